"""Data files that tasks write: statistics, field ids."""

from __future__ import annotations

import datetime
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from watersmeet.durable_files import sync
from watersmeet.errors import EngineError
from watersmeet.sinks.lake.storage import Storage, translate_storage_errors
from watersmeet.sinks.parquet import dictionary_columns

_MAX_SHOWN = 80
"""Characters of a value in a message."""


def check_texts(rows: pa.Table, place: str) -> None:
    """Raise: EngineError, if a text, or one in a nested value, is not UTF-8; it shows the row."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if not _has_texts(column.type):
            continue
        number = None if _is_right(column) else _first_wrong(column)
        if number is not None:
            row = rows.slice(number, 1)
            shown = ", ".join(f"{of}: {_format_value(row.column(of))}" for of in rows.column_names)
            raise EngineError(
                f'a text in "{name}" is not valid UTF-8, which {place} cannot store; the row: {shown}',
                code="sink-refused-row",
                hint=f"write its bytes (CAST({name} AS BINARY)), or convert it with decode(), and run"
                " again, which repeats the tick; nothing of it was published",
            )


def _has_texts(kind: pa.DataType) -> bool:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return True
    return any(_has_texts(kind.field(place).type) for place in range(kind.num_fields))


def _is_right(values: pa.ChunkedArray) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _first_wrong(values: pa.ChunkedArray) -> int | None:
    """Find the first row with invalid UTF-8.

    Returns None if no row has invalid UTF-8, only memory outside of the rows.
    """
    begin, end = 0, len(values)

    def is_wrong(first: int, last: int) -> bool:
        return not _is_right(values.take(pa.array(range(first, last), pa.int64())))

    if not is_wrong(begin, end):
        return None
    while end - begin > 1:
        middle = (begin + end) // 2
        begin, end = (begin, middle) if is_wrong(begin, middle) else (middle, end)
    return begin


def _format_value(value: pa.ChunkedArray) -> str:
    """Format the only value of the column, shortened if it is long."""
    shown: Any
    try:
        shown = value.to_pylist()[0]
    except UnicodeDecodeError:
        if pa.types.is_nested(value.type):
            return "…"
        shown = pc.cast(value, pa.large_binary()).to_pylist()[0]
    except OverflowError:  # a time of a year that Python has not
        return "…"
    text = "NULL" if shown is None else repr(shown)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


# What a data file holds, for readers that pass over files: rows, NULLs, least and greatest values.
#
# Only what is certainly right is said: of numbers that may be NaN and of decimals, which JSON rounds, no
# least and greatest; nor of texts where one is long, nor of times outside of the years 1 to 9999. And
# where one column has none, none is said at all: `deltalake` as a reader of datasets would take the
# missing ones for NULL, and pass over rows that are there.

_MAX_CHARACTERS = 64
"""Of texts, in characters."""


def check_times(footer: Any, place: str) -> None:
    """Check that a data file for Iceberg has only times of the years 1 to 9999 in UTC.

    9999-12-31 23:00 in New York is outside. `pyiceberg` reads the minimum and maximum as Python
    datetimes when it commits the file, and other sinks may already have the tick's rows at that point.

    Raises:
        EngineError: A column has such a time.
    """
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for place_of_column in range(footer.num_columns):
            column = group.column(place_of_column)
            said = column.statistics
            if said is None or not said.has_min_max:
                continue
            try:
                _ = said.min, said.max
            except OverflowError:
                raise EngineError(
                    f'a time in "{column.path_in_schema}" is outside of the years 1 to 9999 (UTC),'
                    f" which pyiceberg, the client of {place}, does not support",
                    code="sink-refused-row",
                    hint="filter out such rows, or write the time as text (CAST(… AS STRING)), and run"
                    " again, which repeats the tick; nothing of it was published",
                ) from None


def statistics_of(footer: Any, schema: pa.Schema) -> dict[str, Any]:
    """Build Delta log statistics from a Parquet file's footer.

    Returns:
        ``numRecords``, ``nullCount``, ``minValues`` and ``maxValues``, where the footer has them.
    """
    places = {footer.schema.column(place).path: place for place in range(footer.num_columns)}
    nulls: dict[str, int] = {}
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for column in schema:
        place = None if pa.types.is_nested(column.type) else places.get(column.name)
        if place is None or footer.schema.column(place).name != column.name:
            continue
        groups = [footer.row_group(group).column(place).statistics for group in range(footer.num_row_groups)]
        if any(group is None or not group.has_null_count for group in groups):
            continue
        nulls[column.name] = sum(group.null_count for group in groups)
        bounds = _bounds([group for group in groups if group.num_values], column.type)
        if bounds is not None:
            least[column.name], greatest[column.name] = bounds
    told = {"numRecords": footer.num_rows, "nullCount": nulls}
    bare = {name for name in schema.names if name not in least and nulls.get(name) != footer.num_rows}
    return told if bare else {**told, "minValues": least, "maxValues": greatest}


def _bounds(groups: list[Any], kind: pa.DataType) -> tuple[Any, Any] | None:
    """Return the minimum and maximum as JSON values; None if they are not certain."""
    if not groups or not _has_order(kind) or not all(group.has_min_max for group in groups):
        return None
    try:
        bounds = min(group.min for group in groups), max(group.max for group in groups)
        shown = [_json_bound(value, kind) for value in bounds]
    except (ValueError, OverflowError, TypeError):
        return None  # of years that Python has not
    return None if None in shown else (shown[0], shown[1])


def _has_order(kind: pa.DataType) -> bool:
    return any(
        is_of(kind)
        for is_of in (pa.types.is_integer, pa.types.is_string, pa.types.is_date32, pa.types.is_timestamp)
    )


def _json_bound(value: Any, kind: pa.DataType) -> Any:
    """Convert a value to JSON; None if it has no exact form there."""
    if pa.types.is_integer(kind):
        return int(value)
    if pa.types.is_string(kind):
        return value if isinstance(value, str) and len(value) <= _MAX_CHARACTERS else None
    if isinstance(value, datetime.datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return f"{text}Z" if kind.tz is not None else text
    return value.isoformat() if isinstance(value, datetime.date) else None


# The ids of an Iceberg table's columns, as its data files have them.
#
# By its id a column is found in a file whatever it is called later. In a file without ids it is found by
# its name: once a column was renamed, or dropped, and another one has its name, that one would get its
# values.

_ID = b"PARQUET:field_id"

FieldIds = Mapping[str, Any]
"""Per column its id, and those of what it holds: ``[id, [[id, []], …]]``, as plain values that JSON knows."""


def ids_in(schema: pa.Schema) -> FieldIds:
    """Return the field ids of a schema in which every field has one."""
    return {field.name: _ids_of(field) for field in schema}


def with_ids(schema: pa.Schema, ids: FieldIds) -> pa.Schema:
    """Return the schema with the columns' field ids.

    A column that ``ids`` does not contain, or has with another type, stays unchanged; no commit accepts
    the latter.
    """
    return pa.schema(
        [
            _number_field(field, ids[field.name]) if _is_known(field, ids.get(field.name)) else field
            for field in schema
        ]
    )


def _is_known(field: pa.Field, ids: list[Any] | None) -> bool:
    parts = list(_within(field.type))
    return (
        ids is not None
        and len(parts) == len(ids[1])
        and all(_is_known(part, own) for part, own in zip(parts, ids[1], strict=True))
    )


def _ids_of(field: pa.Field) -> list[Any]:
    return [int(field.metadata[_ID]), [_ids_of(inner) for inner in _within(field.type)]]


def _number_field(field: pa.Field, ids: list[Any]) -> pa.Field:
    number, inner = ids
    parts = [_number_field(part, own) for part, own in zip(_within(field.type), inner, strict=True)]
    return field.with_type(_rebuild_type(field.type, parts)).with_metadata({_ID: str(number)})


def _within(kind: pa.DataType) -> Iterable[pa.Field]:
    if pa.types.is_map(kind):
        return kind.key_field, kind.item_field
    return [kind.field(place) for place in range(kind.num_fields)]


def _rebuild_type(kind: pa.DataType, parts: list[pa.Field]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(parts)
    if pa.types.is_map(kind):
        return pa.map_(*parts)
    return pa.list_(*parts) if pa.types.is_list(kind) else kind


# Data files that tasks write into a table's place. Nobody sees them until a commit names them.
#
# Every attempt of a task writes a file of a new name; what it says of it goes to the driver, which
# commits the files of one attempt per task. Values are as tables have them: times in µs of UTC, or of no
# zone.

_GROUP_ROWS, _GROUP_BYTES = 1 << 20, 128 << 20
"""Of a row group, at most, about."""


@dataclass(frozen=True)
class LakePart:
    """Stages rows as files ``folder/name-….parquet``.

    Args:
        s3, endpoint, region: see `Storage`.
        widened: the table has no integers of less than 32 bits.
        ids: those of its columns, if it has any.
    """

    folder: str
    name: str
    s3: bool = False
    endpoint: str = ""
    region: str = ""
    widened: bool = False
    ids: FieldIds = field(default_factory=dict)

    def write(
        self, partition: int, schema: pa.Schema, rows: Iterator[pa.RecordBatch]
    ) -> dict[str, Any] | None:
        """Write all ``rows`` to one file, and describe it.

        Returns:
            ``path``, ``size`` in bytes, ``bytes`` in memory, ``rows``, ``stats``, ``ids`` of the columns, and
            ``written_ms`` since 1970. None if there are no rows; then no file is written.
        """
        first = next((batch for batch in rows if batch.num_rows), None)
        if first is None:
            return None
        path = f"{self.folder}/{self.name}-{partition:05d}-{uuid.uuid4().hex}.parquet"
        storage = Storage(self.s3, self.endpoint, self.region)
        wanted = with_ids(table_schema(schema, widened=self.widened), self.ids)
        groups = _groups(first, rows)
        looked_at = next(groups)
        coded = dictionary_columns(looked_at)
        held = 0
        with (
            translate_storage_errors(self.folder, s3=self.s3),
            storage.connect().open_output_stream(path) as out,
        ):
            with parquet.ParquetWriter(
                out, wanted, compression="zstd", use_dictionary=coded or False
            ) as writer:
                for group in chain((looked_at,), groups):
                    held += group.nbytes
                    check_texts(group, self.folder)
                    writer.write_table(in_table(group, wanted))
            footer = writer.writer.metadata  # one asked for beforehand hides why a file cannot be written
            size = out.tell()
        if self.widened:
            check_times(footer, self.folder)
        if not self.s3:
            with translate_storage_errors(self.folder, s3=False):
                sync(path)
        return {
            "path": path,
            "size": size,
            "rows": footer.num_rows,
            "bytes": held,
            "stats": statistics_of(footer, wanted),
            "ids": {name: self.ids[name] for name in wanted.names if name in self.ids},
            "written_ms": time.time_ns() // 1_000_000,
        }


def _groups(first: pa.RecordBatch, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows in tables that are large enough for row groups."""
    held, count, size = [first], first.num_rows, first.nbytes
    for batch in rows:
        if count >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, count, size = [], 0, 0
        held.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
    if held:
        yield pa.Table.from_batches(held)


def in_table(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast the rows to ``schema``, which has wider types or another name of the time zone."""
    return pa.Table.from_arrays(
        [column.cast(f.type) for column, f in zip(rows.columns, schema, strict=True)], schema=schema
    )


def table_schema(schema: pa.Schema, *, widened: bool) -> pa.Schema:
    """Return the schema of a table that accepts rows of ``schema``; all columns may be NULL."""
    return pa.schema([pa.field(field.name, table_type(field.type, widened=widened)) for field in schema])


def table_type(kind: pa.DataType, *, widened: bool) -> pa.DataType:
    """Return the type of a table column for values of type ``kind``."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz is not None else None)
    if widened and (pa.types.is_int8(kind) or pa.types.is_int16(kind)):
        return pa.int32()
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, table_type(f.type, widened=widened)) for f in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", table_type(kind.value_type, widened=widened)))
    if pa.types.is_map(kind):
        return pa.map_(
            table_type(kind.key_type, widened=widened), table_type(kind.item_type, widened=widened)
        )
    return kind
