"""Rows of a task on their way into a staging table, by COPY.

They go in pieces of bounded size, each in a transaction of its own and under a number of its own, drawn at
random, in the column ``part``. A piece whose COMMIT was not answered is sent once more under another number;
only numbers that are reported count.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from watersmeet.errors import EngineError
from watersmeet.postgres import Cursor, Server
from watersmeet.postgres_errors import advice, is_away, refuses_row, words
from watersmeet.sinks.base import StagedPart
from watersmeet.sinks.postgres.types import staged_type_of

PART = "part"
"""The column of a staging table that says of which piece a row is."""

_PIECE_ROWS, _PIECE_BYTES = 200_000, 32 << 20
_LINE = re.compile(r"\bline (\d+)\b")
_SHOWN = 300


def column_of(number: int) -> str:
    """What a column of rows is called in a staging table."""
    return f"c{number}"


@dataclass(frozen=True)
class PostgresPart:
    """Stages the rows of partitions.

    Args:
        url: of the server, with the password.
        sink, insert: for messages.
        schema, table: of the staging table.
        types: of its columns, but for `PART`.
        wait_s: for how long the server is waited for.

    What it tells: ``parts``, a list of [number, rows].
    """

    url: str
    sink: str
    insert: str
    schema: str
    table: str
    types: list[str]
    wait_s: float

    SECRETS: ClassVar = ("url",)

    def __repr__(self) -> str:
        return f"PostgresPart({self.table!r})"

    def write(self, partition: int, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> StagedPart:
        """Stage all rows of a partition."""
        self._check(schema)
        server = Server(self.url, self.sink, self.wait_s)
        try:
            pieces = [self._copy(server, piece) for piece in _pieces(rows)]
        except BaseException:
            server.close()
            raise
        server.keep()
        return {"parts": pieces}

    def _check(self, schema: pa.Schema) -> None:
        """COPY takes bytes as they come: those of another type would become other values."""
        types = [staged_type_of(field.type) for field in schema]
        if types != list(self.types):
            raise EngineError(
                f'rows of "{self.insert}" have the types {types}, and not {list(self.types)} (sink'
                f' "{self.sink}")',
                code="internal",
                hint="please report this",
            )

    def _copy(self, server: Server, rows: pa.Table) -> list[int]:
        columns = [*map(_utc, rows.columns)]
        names = [column_of(number) for number in range(len(columns))]

        def copy(cursor: Cursor) -> list[int]:
            number = secrets.randbits(62)
            marks = pa.repeat(pa.scalar(number, pa.int64()), rows.num_rows)
            marked = pa.Table.from_arrays([*columns, marks], names=[*names, PART])
            cursor.adbc_ingest(self.table, marked, mode="append", db_schema_name=self.schema)
            return [number, rows.num_rows]

        try:
            return server.run(copy)
        except EngineError:
            raise
        except Exception as error:
            if is_away(error):
                raise
            raise self._error(error, rows) from None

    def _error(self, error: Exception, rows: pa.Table) -> EngineError:
        said = words(error, self.url)
        if not refuses_row(error):
            return EngineError(
                f'rows of "{self.insert}" could not be staged (sink "{self.sink}"): {said}',
                code="sink-failed",
                hint=advice(error) or "put right what the server says, and run again: the tick is repeated",
            )
        line = _LINE.search(str(error))
        number = int(line[1]) - 1 if line else 0
        nul = _with_nul(rows)
        if nul is not None:
            number, name = nul
            said = f'the text in "{name}" has a NUL character, which PostgreSQL cannot store'
        return EngineError(
            f'sink "{self.sink}" cannot take a row of "{self.insert}": {said}; the row:'
            f" {shown_row(rows, number)}",
            code="sink-refused-row",
            hint="change what the query puts out, such as by replace(name, '\\u0000', ''); nothing of the"
            " tick is published, and it is repeated when the job is run again",
        )


def _utc(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Instants are copied as those of UTC, whatever zone they are shown in."""
    kind = column.type
    if pa.types.is_timestamp(kind) and (kind.tz not in (None, "UTC") or kind.unit != "us"):
        return column.cast(pa.timestamp("us", None if kind.tz is None else "UTC"))
    return column


def _pieces(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in order, so many at once as are to be held; a row may be larger than that."""
    held: list[pa.RecordBatch] = []
    for batch in rows:
        step = max(1, min(_PIECE_ROWS, batch.num_rows * _PIECE_BYTES // max(1, batch.nbytes)))
        for low in range(0, batch.num_rows, step):
            held.append(batch.slice(low, step))
            size = sum(part.nbytes for part in held)
            if size >= _PIECE_BYTES or sum(part.num_rows for part in held) >= _PIECE_ROWS:
                yield pa.Table.from_batches(held)
                held = []
    if held:
        yield pa.Table.from_batches(held)


def _with_nul(rows: pa.Table) -> tuple[int, str] | None:
    """The first row of a column with a NUL character in a text, and the column. Of rows that were refused."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        as_bytes = _undecoded(column)
        if as_bytes is None:
            continue
        for number, value in enumerate(as_bytes.to_pylist()):
            texts = value if isinstance(value, list) else [value]
            if any(text is not None and b"\0" in text for text in texts):
                return number, name
    return None


def _undecoded(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Texts as bytes, which may not be UTF-8; None: it has no texts."""
    kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    inner = kind.value_type if is_list else kind
    if not (pa.types.is_string(inner) or pa.types.is_large_string(inner)):
        return None
    plain = pa.large_binary() if pa.types.is_large_string(inner) else pa.binary()
    if not is_list:
        return column.cast(plain)
    return column.cast(pa.large_list(plain) if pa.types.is_large_list(kind) else pa.list_(plain))


def _value(column: pa.ChunkedArray, number: int) -> object:
    """One value; texts that are no UTF-8 as bytes."""
    one = column.slice(number, 1)
    try:
        return one[0].as_py()
    except UnicodeDecodeError:
        as_bytes = _undecoded(one)
        return "?" if as_bytes is None else as_bytes[0].as_py()


def shown_row(rows: pa.Table, number: int) -> str:
    """A row for a message, cut where it is long."""
    values = ", ".join(
        f"{name}: {_shown_value(_value(column, number))}"
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    )
    return values if len(values) <= _SHOWN * 4 else f"{values[: _SHOWN * 4]}…"


def _shown_value(value: object) -> str:
    text = "NULL" if value is None else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
