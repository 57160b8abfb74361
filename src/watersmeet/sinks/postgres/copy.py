"""Rows of a task on their way into a staging table, by COPY.

They go in pieces of bounded size, each in a transaction of its own and under a number of its own, drawn at
random, in the column ``part``. A piece whose COMMIT was not answered is sent once more under another number;
only numbers that are reported count.
"""

from __future__ import annotations

import datetime
import json
import math
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from watersmeet.errors import EngineError
from watersmeet.postgres_server import Cursor, Server, advice, is_away, refuses_row, state_of, words
from watersmeet.sinks.base import StagedPart
from watersmeet.sinks.postgres.target import staged_type_of

PART = "part"
"""The column of a staging table that says of which piece a row is."""

MAX_REJECTED_ROWS = 10_000
"""Of a tick, or of a task's rows. When so many are refused it is the table or the query that is wrong, and no
single rows."""

_UNSTAGED = pa.schema([("record", pa.string()), ("reason", pa.string()), ("sqlstate", pa.string())])
CHUNK_ROWS, CHUNK_BYTES = 200_000, 32 << 20
"""Size at which the rows of a task are sent by one COPY; a single row may be larger."""
_LINE = re.compile(r"\bline (\d+)\b")
_MAX_CHARACTERS = 300


def column_of(number: int) -> str:
    """Return the name of a column of rows in a staging table."""
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
        unstaged: the table for rows that cannot be staged; None: such a row stops the job.

    What it tells: ``parts``, a list of [number, rows], and in ``unstaged`` the same of that table.
    """

    url: str
    sink: str
    insert: str
    schema: str
    table: str
    types: list[str]
    wait_s: float
    unstaged: str | None = None

    SECRETS: ClassVar = ("url",)

    def __repr__(self) -> str:
        return f"PostgresPart({self.table!r})"

    def write(self, partition: int, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> StagedPart:
        """Stage all rows of a partition."""
        self._check(schema)
        server = Server(self.url, self.sink, self.wait_s)
        try:
            staged: list[list[int]] = []
            unstaged: list[pa.RecordBatch] = []
            for piece in _pieces(rows):
                staged += self._stage_rows(server, piece, unstaged)
            told: dict[str, Any] = {"parts": staged}
            if unstaged:
                told["unstaged"] = [self._copy(server, pa.Table.from_batches(unstaged), self.unstaged or "")]
        except BaseException:
            server.close()
            raise
        server.keep()
        return told

    def _check(self, schema: pa.Schema) -> None:
        """COPY takes bytes as they come: those of another type would become other values."""
        types = [staged_type_of(field.type) for field in schema]
        if types != list(self.types):
            raise EngineError(
                f'rows of "{self.insert}" have the types {types}, not {list(self.types)} (sink'
                f' "{self.sink}")',
                code="internal",
                hint="this is a bug in watersmeet: please report it with this message",
            )

    def _stage_rows(self, server: Server, rows: pa.Table, unstaged: list[pa.RecordBatch]) -> list[list[int]]:
        """Stage the rows in as many chunks as necessary.

        Appends rows that cannot be staged to ``unstaged``.

        Returns:
            The staged chunks, each with its number and its number of rows.
        """
        columns = [column_of(number) for number in range(rows.num_columns)]
        try:
            return [self._copy(server, rows.rename_columns(columns), self.table)]
        except EngineError:
            raise
        except Exception as error:
            if is_away(error):
                raise
            if self.unstaged is None or not refuses_row(error) or len(unstaged) >= MAX_REJECTED_ROWS:
                raise self._error(error, rows) from None
            if rows.num_rows == 1:
                unstaged.append(_rejected_row(rows, self._explain_rejection(error, rows)[0], state_of(error)))
                return []
        middle = rows.num_rows // 2
        first = self._stage_rows(server, rows.slice(0, middle), unstaged)
        return first + self._stage_rows(server, rows.slice(middle), unstaged)

    def _copy(self, server: Server, rows: pa.Table, table: str) -> list[int]:
        """Send rows to a table, in one transaction. The number they have there, and how many they are."""

        def copy(cursor: Cursor) -> list[int]:
            number = secrets.randbits(62)
            marks = pa.repeat(pa.scalar(number, pa.int64()), rows.num_rows)
            marked = pa.Table.from_arrays([*map(_utc, rows.columns), marks], names=[*rows.column_names, PART])
            cursor.adbc_ingest(table, marked, mode="append", db_schema_name=self.schema)
            return [number, rows.num_rows]

        return server.run(copy)

    def _error(self, error: Exception, rows: pa.Table) -> EngineError:
        said = words(error, self.url)
        if not refuses_row(error):
            return EngineError(
                f'rows of "{self.insert}" could not be staged (sink "{self.sink}"): {said}',
                code="sink-failed",
                hint=advice(error) or "put right what the server says, and run again: the tick is repeated",
            )
        said, number = self._explain_rejection(error, rows)
        return EngineError(
            f'sink "{self.sink}" cannot store a row of "{self.insert}": {said}; the row:'
            f" {shown_row(rows, number)}",
            code="sink-refused-row",
            hint="change the query's result, for example with replace(name, '\\u0000', ''), and run"
            " again, which repeats the tick; nothing of it was published",
        )

    def _explain_rejection(self, error: Exception, rows: pa.Table) -> tuple[str, int]:
        """Return the reason why the server rejected a row, and the number of that row."""
        nul = _with_nul(rows)
        if nul is not None:
            number, name = nul
            return f'the text in "{name}" has a NUL character, which PostgreSQL cannot store', number
        line = _LINE.search(str(error))
        return words(error, self.url), int(line[1]) - 1 if line else 0


def _utc(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert instants to UTC, whatever their display time zone, before they are copied."""
    kind = column.type
    if pa.types.is_timestamp(kind) and (kind.tz not in (None, "UTC") or kind.unit != "us"):
        return column.cast(pa.timestamp("us", None if kind.tz is None else "UTC"))
    return column


def _pieces(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Split the rows, in order, into chunks that fit in memory; a single row may be larger."""
    held: list[pa.RecordBatch] = []
    for batch in rows:
        step = max(1, min(CHUNK_ROWS, batch.num_rows * CHUNK_BYTES // max(1, batch.nbytes)))
        for low in range(0, batch.num_rows, step):
            held.append(batch.slice(low, step))
            size = sum(part.nbytes for part in held)
            if size >= CHUNK_BYTES or sum(part.num_rows for part in held) >= CHUNK_ROWS:
                yield pa.Table.from_batches(held)
                held = []
    if held:
        yield pa.Table.from_batches(held)


def _with_nul(rows: pa.Table) -> tuple[int, str] | None:
    """Find the first text with a NUL character in rejected rows; return its row and column."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        as_bytes = _as_bytes(column)
        if as_bytes is None:
            continue
        for number, value in enumerate(as_bytes.to_pylist()):
            texts = value if isinstance(value, list) else [value]
            if any(text is not None and b"\0" in text for text in texts):
                return number, name
    return None


def _as_bytes(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Convert texts, which may not be valid UTF-8, to bytes; None if the column has no texts."""
    kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    inner = kind.value_type if is_list else kind
    if not (pa.types.is_string(inner) or pa.types.is_large_string(inner)):
        return None
    plain = pa.large_binary() if pa.types.is_large_string(inner) else pa.binary()
    if not is_list:
        return column.cast(plain)
    return column.cast(pa.large_list(plain) if pa.types.is_large_list(kind) else pa.list_(plain))


def value_of(column: pa.ChunkedArray, number: int) -> object:
    """Return one value of the column; a text that is not valid UTF-8 is returned as bytes."""
    one = column.slice(number, 1)
    try:
        return one[0].as_py()
    except UnicodeDecodeError:
        as_bytes = _as_bytes(one)
        return "?" if as_bytes is None else as_bytes[0].as_py()


def _rejected_row(rows: pa.Table, said: str, state: str | None) -> pa.RecordBatch:
    """Build the row that is staged in place of a row that cannot be staged."""
    values = {"record": as_json(rows, 0), "reason": said, "sqlstate": state}
    return pa.RecordBatch.from_pylist([values], schema=_UNSTAGED)


def as_json(rows: pa.Table, number: int) -> str:
    """Format a row as a JSON object of ASCII characters, which any database can store."""
    values = {
        name: _jsonable(value_of(column, number), is_text=not pa.types.is_binary(column.type))
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    }
    return json.dumps(values, default=str)


def _jsonable(value: object, *, is_text: bool) -> object:
    """Convert a value to what ``row_to_json`` returns for it.

    A text that is not valid UTF-8 is returned with replacement characters.
    """
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace") if is_text else f"\\x{value.hex()}"
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, list):
        return [_jsonable(one, is_text=is_text) for one in value]
    return value


def shown_row(rows: pa.Table, number: int) -> str:
    """Format a row for a message, shortened if it is long."""
    values = ", ".join(
        f"{name}: {_shown_value(value_of(column, number))}"
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    )
    return values if len(values) <= _MAX_CHARACTERS * 4 else f"{values[: _MAX_CHARACTERS * 4]}…"


def _shown_value(value: object) -> str:
    text = "NULL" if value is None else repr(value)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"
