"""Splits of files that tasks read, and their assignment to tasks."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from watersmeet.errors import EngineError
from watersmeet.kernel.batches import one_batch, size
from watersmeet.types.sql_type import SqlType

# A part of a file that tasks read by Arrow, what is said where they may not, and how rows come.

ROWS = 100_000
"""At most so many in a batch."""

BYTES = 64 << 20
"""And about so many, unless one row has more."""


class UnsupportedFile(Exception):
    """A file whose rows Arrow might read otherwise than Spark, or not at all. Its text: why."""


@dataclass(frozen=True)
class FileSplit:
    """Row groups or lines of a file that start at a byte offset in [``start``, ``end``).

    If ``end`` is None, the split extends to the end of the file, including offsets past it. Row groups
    of Parquet and lines are not divided.
    """

    path: str
    start: int = 0
    end: int | None = None

    @property
    def is_cut(self) -> bool:
        """True if some of the file may belong to another split."""
        return self.start > 0 or self.end is not None

    def has(self, offset: int) -> bool:
        """Return True if the row group or line that starts at ``offset`` belongs to this split.

        Each belongs to exactly one split, whatever offset the file states.
        """
        return (self.start <= offset or self.start == 0) and (self.end is None or offset < self.end)


class FileReadPlan(Protocol):
    """Protocol: rules to read the files of a source."""

    def rows_of(self, part: FileSplit, wanted: Mapping[str, SqlType]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split in order, in batches of at most `ROWS` rows and about `BYTES`.

        Args:
            wanted: the declared columns to read, by name.

        Raises:
            UnsupportedFile: Spark must read the file; discard the batches that were already yielded.
        """
        ...


def regroup_rows(part: FileSplit, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split in batches of at most `ROWS` rows and about `BYTES`.

    Raises:
        UnsupportedFile: also when the reader raises any other error.
    """
    try:
        yield from _regroup_batches(batches)
    except (UnsupportedFile, EngineError):
        raise
    except Exception as error:  # whatever a damaged file leads to: Spark says what is wrong with it
        raise UnsupportedFile(f"{part.path}: {type(error).__name__}: {error}") from None


@contextmanager
def name_column_in_errors(part: FileSplit, column: str) -> Iterator[None]:
    """Add the column's name to errors that the block raises.

    Raises:
        UnsupportedFile: also in place of Arrow's exceptions.
    """
    try:
        yield
    except (UnsupportedFile, pa.ArrowException) as error:
        raise UnsupportedFile(f"{part.path}: {column}: {error}") from None


def _regroup_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches that are neither small nor large."""
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


# Which task reads which files of a tick, and which parts of large ones.

MIN_SPLIT_BYTES = 1 << 20
"""Of files that are worth one more task."""

MAX_SPLIT_BYTES = 128 << 20
"""Of a part; as Spark has it (``spark.sql.files.maxPartitionBytes``)."""

OPEN_BYTES = 64 << 10
"""What opening a file costs, as bytes that are read."""

SplitAssignment = list[list[tuple[int, FileSplit]]]
"""Per task its parts, each with the number of its source, in the order of the files."""


def assign_splits(files: Sequence[tuple[int, str, int]], cores: int) -> SplitAssignment:
    """Assign splits of files evenly to tasks.

    Args:
        files: for each file the number of its source, its path and its size in bytes.

    >>> files = [(0, "a", 3 << 20), (0, "b", 9), (1, "c", 9)]
    >>> [[part.path for _, part in task] for task in assign_splits(files, 2)]
    [['a'], ['b', 'c']]
    """
    total = sum(nbytes + OPEN_BYTES for _, _, nbytes in files)
    wanted = min(MAX_SPLIT_BYTES, max(MIN_SPLIT_BYTES, -(-total // max(cores, 1))))
    pieces: list[tuple[int, int, int, FileSplit]] = []  # size, place, source, part
    for source, path, nbytes in files:
        count = max(1, nbytes // wanted) if nbytes > wanted else 1
        edges = [nbytes * number // count for number in range(count)]
        ends: list[int | None] = [*edges[1:], None]
        for start, end in zip(edges, ends, strict=True):
            own = (nbytes if end is None else end) - start + OPEN_BYTES
            pieces.append((own, len(pieces), source, FileSplit(path, start, end)))
    tasks = max(1, min(len(pieces), -(-total // wanted)))
    heap = [(0, number) for number in range(tasks)]
    shares: list[list[tuple[int, int, FileSplit]]] = [[] for _ in range(tasks)]
    for own, place, source, part in sorted(pieces, key=lambda piece: (-piece[0], piece[1])):
        filled, number = heapq.heappop(heap)
        shares[number].append((place, source, part))
        heapq.heappush(heap, (filled + own, number))
    by_place = [sorted(share, key=lambda piece: piece[0]) for share in shares if share]
    in_order = sorted(by_place, key=lambda share: share[0][0])
    return [[(source, part) for _, source, part in share] for share in in_order]
