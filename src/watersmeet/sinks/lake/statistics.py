"""What a data file holds, for readers that pass over files: rows, NULLs, least and greatest values.

Only what is certainly right is said: of numbers that may be NaN and of decimals, which JSON rounds, no least
and greatest; nor of texts where one is long, nor of times outside of the years 1 to 9999. And where one
column has none, none is said at all: `deltalake` as a reader of datasets would take the missing ones for
NULL, and pass over rows that are there.
"""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa

from watersmeet.errors import EngineError

_LONGEST = 64
"""Of texts, in characters."""


def check_times(footer: Any, place: str) -> None:
    """Raise: EngineError, if a column of a file of Iceberg holds a time outside of the years 1 to 9999 of
    UTC, as 9999-12-31 23:00 is in New York: `pyiceberg` reads the least and the greatest as Python's times
    when it commits the file, and other sinks may have the tick's rows by then."""
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
    """By a Parquet file's footer, as Delta has it in the log: ``numRecords``, ``nullCount``, and
    ``minValues`` and ``maxValues``, if there are any of all columns."""
    places = {footer.schema.column(place).path: place for place in range(footer.num_columns)}
    nulls: dict[str, int] = {}
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for field in schema:
        place = None if pa.types.is_nested(field.type) else places.get(field.name)
        if place is None or footer.schema.column(place).name != field.name:
            continue
        groups = [footer.row_group(group).column(place).statistics for group in range(footer.num_row_groups)]
        if any(group is None or not group.has_null_count for group in groups):
            continue
        nulls[field.name] = sum(group.null_count for group in groups)
        bounds = _bounds([group for group in groups if group.num_values], field.type)
        if bounds is not None:
            least[field.name], greatest[field.name] = bounds
    told = {"numRecords": footer.num_rows, "nullCount": nulls}
    bare = {name for name in schema.names if name not in least and nulls.get(name) != footer.num_rows}
    return told if bare else {**told, "minValues": least, "maxValues": greatest}


def _bounds(groups: list[Any], kind: pa.DataType) -> tuple[Any, Any] | None:
    """Least and greatest value, as JSON has them; None: they are not certain."""
    if not groups or not _ordered(kind) or not all(group.has_min_max for group in groups):
        return None
    try:
        bounds = min(group.min for group in groups), max(group.max for group in groups)
        shown = [_shown(value, kind) for value in bounds]
    except (ValueError, OverflowError, TypeError):
        return None  # of years that Python has not
    return None if None in shown else (shown[0], shown[1])


def _ordered(kind: pa.DataType) -> bool:
    return any(
        is_of(kind)
        for is_of in (pa.types.is_integer, pa.types.is_string, pa.types.is_date32, pa.types.is_timestamp)
    )


def _shown(value: Any, kind: pa.DataType) -> Any:
    """The value in JSON; None: it has no certain form there."""
    if pa.types.is_integer(kind):
        return int(value)
    if pa.types.is_string(kind):
        return value if isinstance(value, str) and len(value) <= _LONGEST else None
    if isinstance(value, datetime.datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return f"{text}Z" if kind.tz is not None else text
    return value.isoformat() if isinstance(value, datetime.date) else None
