"""A part of a file that tasks read by Arrow, what is said where they may not, and how rows come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from watersmeet.errors import EngineError
from watersmeet.kernel.batches import one_batch, size
from watersmeet.types.sql_type import SqlType

ROWS = 100_000
"""At most so many in a batch."""

BYTES = 64 << 20
"""And about so many, unless one row has more."""


class NotPlain(Exception):
    """A file whose rows Arrow might read otherwise than Spark, or not at all. Its text: why."""


@dataclass(frozen=True)
class Part:
    """What of a file begins in its bytes [``start``, ``end``); None: at its end, or behind it. What is not
    cut is a row group of Parquet, or a line."""

    path: str
    start: int = 0
    end: int | None = None

    @property
    def is_cut(self) -> bool:
        """Whether some of the file may be of another part."""
        return self.start > 0 or self.end is not None

    def has(self, offset: int) -> bool:
        """Whether what begins there is of this part. Whatever a file says, each piece is of one."""
        return (self.start <= offset or self.start == 0) and (self.end is None or offset < self.end)


class Reader(Protocol):
    """How the files of a source are read."""

    def rows_of(self, part: Part, wanted: Mapping[str, SqlType]) -> Iterator[pa.RecordBatch]:
        """The rows of a part in their order, in batches of at most `ROWS` rows and about `BYTES`.

        Args:
            wanted: the declared columns that are wanted, by name.

        Raises:
            NotPlain: Spark is to read the file. Batches that were given before count for nothing then.
        """
        ...


def rows_or_refusal(part: Part, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a part as its reader has them, in batches of at most `ROWS` rows and about `BYTES`.

    Raises:
        NotPlain: also where the reader raises something else.
    """
    try:
        yield from _regrouped(batches)
    except (NotPlain, EngineError):
        raise
    except Exception as error:  # whatever a damaged file leads to: Spark says what is wrong with it
        raise NotPlain(f"{part.path}: {type(error).__name__}: {error}") from None


@contextmanager
def naming(part: Part, column: str) -> Iterator[None]:
    """What is refused within is of a column. Raises: NotPlain, also in the place of what Arrow raises."""
    try:
        yield
    except (NotPlain, pa.ArrowException) as error:
        raise NotPlain(f"{part.path}: {column}: {error}") from None


def _regrouped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are neither small nor large."""
    held: list[pa.RecordBatch] = []
    rows = held_bytes = 0
    pieces = (batch.slice(at, ROWS) for batch in batches for at in range(0, max(batch.num_rows, 1), ROWS))
    for batch in pieces:
        batch_bytes = size(batch.columns)
        if held and (rows + batch.num_rows > ROWS or held_bytes + batch_bytes > BYTES):
            yield one_batch(held)
            held, rows, held_bytes = [], 0, 0
        held.append(batch)
        rows, held_bytes = rows + batch.num_rows, held_bytes + batch_bytes
    if held:
        yield one_batch(held)
