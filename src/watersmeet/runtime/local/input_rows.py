"""Coerce rows that users pass (mappings, Arrow, pandas, Polars) to declared columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC as UTC_ZONE
from datetime import date, datetime, time, timedelta
from math import isinf
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import EngineError, SpecError, WatersmeetError, near_names, raise_all
from watersmeet.event_time import MAX_TIME, MIN_TIME, Mask
from watersmeet.kernel.batches import one_array, one_table
from watersmeet.names import CASE_PARTITION, DIFF, PARTITION, SHOWN_DIFF
from watersmeet.runtime.local.evaluate import evaluate_column
from watersmeet.runtime.values import Change, Readers, Row, drop_cancelled_changes, to_json, to_table
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.changes import diff_of
from watersmeet.spec.records.changes import columns_of_deletes, get_change_column_name
from watersmeet.spec.time_zones import UTC
from watersmeet.types.arrow import in_arrow, sql_name
from watersmeet.types.sql_type import TIMESTAMP, TIMESTAMP_NTZ, SqlType

# What ticks of the in-process job are given: rows of cases as mappings, and tables that were pushed.


@dataclass(frozen=True)
class SourceRows:
    """Rows of one source in one tick: ``changes``, followed by ``pushed``; ``table`` has both."""

    source: Source
    changes: Sequence[Change]
    pushed: Sequence[pa.Table]
    table: pa.Table

    def select_late_changes(self, late: Mask) -> list[Row]:
        """Return the late ones of ``changes``, but for rows that come and go in the same tick."""
        return drop_cancelled_changes(
            [self.changes[int(at)] for at in np.flatnonzero(late[: len(self.changes)])]
        )

    def select_late_pushed(self, late: Mask) -> pa.Table | None:
        """Return the late rows of ``pushed``, or None if no row is late.

        They have all declared columns, and `SHOWN_DIFF` where rows may go.
        """
        own = late[len(self.changes) :]
        if not own.any():
            return None
        rows = one_table(self.pushed).filter(pa.array(own)).drop_columns([PARTITION])
        if not self.source.changes:
            return rows.drop_columns([DIFF])
        names = [SHOWN_DIFF if name == DIFF else name for name in rows.column_names]
        return rows.rename_columns(names)


def build_source_rows(
    source: Source, changes: Sequence[Change], pushed: Sequence[pa.Table], zone: str = UTC
) -> SourceRows:
    """Build what a tick is given of a source; ``pushed`` may have more columns than ``source`` declares."""
    tables = list(pushed)
    if changes or not tables:
        tables.insert(0, to_table(source.columns, *_rows_and_diffs(source, changes, zone)))
    names = tables[0].column_names if changes else [column.name for column in source.columns]
    names = [*dict.fromkeys([*names, PARTITION, DIFF])]
    table = one_table([table.select(names) for table in tables])
    return SourceRows(source, changes, pushed, table)


def list_changes(pushed: Sequence[pa.Table]) -> list[Change]:
    """Return pushed rows one by one, for tables that are held as rows."""
    changes: list[Change] = []
    for table in pushed:
        diffs = table.column(DIFF).to_pylist()
        changes += zip(table.drop_columns([PARTITION, DIFF]).to_pylist(), diffs, strict=True)
    return changes


def late_rows(tables: Mapping[str, pa.Table]) -> list[tuple[str, Row]]:
    """Return late rows that were pushed, as case files write them."""
    rows: list[tuple[str, Row]] = []
    for name, table in tables.items():
        diffs = [1] * table.num_rows
        if SHOWN_DIFF in table.column_names:
            diffs = table.column(SHOWN_DIFF).to_pylist()
            table = table.drop_columns([SHOWN_DIFF])
        written = [{key: to_json(value) for key, value in row.items()} for row in table.to_pylist()]
        rows += [(name, row) for row in drop_cancelled_changes(list(zip(written, diffs, strict=True)))]
    return rows


def add_utc_zone(table: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """Give the TIMESTAMPs among the table's first columns their zone, UTC."""
    for place, column in enumerate(columns):
        if column.type == TIMESTAMP:
            instants = table.column(column.name).cast(pa.timestamp("us", "UTC"))
            table = table.set_column(place, column.name, instants)
    return table


def _rows_and_diffs(source: Source, changes: Sequence[Change], zone: str) -> tuple[list[Row], list[int]]:
    """Return the rows and their diffs; of a delete by a primary key only the columns of that key."""
    rows = [row for row, _ in changes]
    stated = _read_change_values(source, rows, zone)
    diffs = [diff * _read_diff(source, value) for value, (_, diff) in zip(stated, changes, strict=True)]
    if source.primary_key is not None:
        named = {*columns_of_deletes(source), CASE_PARTITION}
        rows = [
            row if diff > 0 else {name: value for name, value in row.items() if name in named}
            for row, diff in zip(rows, diffs, strict=True)
        ]
    return rows, diffs


def _read_change_values(source: Source, rows: Sequence[Row], zone: str) -> Sequence[Any]:
    """Return what each row has in the column that says what becomes of it."""
    name = get_change_column_name(source) or ""
    if not any(own.column.name == name for own in source.computed):
        return [row.get(name) for row in rows]
    table = to_table(source.columns, rows, [1] * len(rows))
    values: list[Any] = evaluate_column(source, name, table, zone).to_pylist()
    return values


def _read_diff(source: Source, value: Any) -> int:
    """Return the diff that a row states by a value of its change column.

    Raises:
        EngineError: it is no known value.
    """
    change = source.change_column
    if change is None:
        return 1
    diff = diff_of(change, value)
    if diff is None:
        raise unknown_change_error(source, value)
    return diff


def unknown_change_error(source: Source, value: Any) -> EngineError:
    """Build the error for a row whose change column has no known value."""
    change = source.change_column
    assert change is not None
    hint = None
    if not change.is_diff:
        hint = f"use {', '.join(change.inserts)} for inserts and {', '.join(change.deletes)} for deletes"
    return EngineError(
        f'a row of "{source.name}" has {value!r} in "{change.column}", which is neither an insert nor a'
        " delete",
        code="bad-value",
        hint=hint,
    )


# Values of mappings that users give, read as what they are: nothing is cut, rounded, or made a text that
# is none. What pandas puts where nothing is known (NaN, NA, NaT) is no value of any column but one of
# numbers.

_FRACTION = re.compile(r"[.,]\d{6}(\d+)")
"""Of a time as text: digits behind the microseconds."""


def build_table(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], *, naive_is_utc: bool = True
) -> pa.Table:
    """Build a table with these columns from rows; a column that a row lacks is NULL.

    Args:
        naive_is_utc: True if times without a zone are in UTC.

    Raises:
        EngineError: a value does not have its column's type.
    """
    read = _READERS[naive_is_utc]
    return to_table(columns, rows, [1] * len(rows), read).drop_columns([PARTITION, DIFF])


def _read_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return str(value)


def _read_moment(value: Any) -> datetime:
    if not isinstance(value, str | date) or value != value:  # pandas' NaT is a datetime
        value = _read_numpy_time(value)
    more = _FRACTION.search(value) if isinstance(value, str) else None
    if getattr(value, "nanosecond", 0) or (more is not None and more[1].strip("0")):
        raise ValueError(f"{value} has more digits than microseconds")
    if isinstance(value, str):
        return datetime.fromisoformat(value)
    return value if isinstance(value, datetime) else datetime.combine(value, time())


def _read_numpy_time(value: Any) -> Any:
    """Convert a datetime64 to text.

    Raises:
        TypeError: the value is not a time.
    """
    if type(value).__name__ == "datetime64" and value == value:
        return str(value)
    raise TypeError(f"{value!r} is not a date or time")


def _timestamp(value: Any) -> datetime:
    moment = _read_moment(value)
    return moment.astimezone(UTC_ZONE).replace(tzinfo=None) if moment.tzinfo else moment


def _instant(value: Any) -> datetime:
    moment = _read_moment(value)
    if moment.tzinfo is None:
        raise ValueError(f"{value} has no time zone, but time_zone is not UTC")
    return moment.astimezone(UTC_ZONE).replace(tzinfo=None)


def _date(value: Any) -> date:
    if isinstance(value, str):
        return date.fromisoformat(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    moment = _read_moment(value)
    if moment.time() != time():
        raise ValueError(f"{value} has a time of day, but the column is a DATE")
    return moment.date()


def _read_double(value: Any) -> float:
    if isinstance(value, str | bytes | bool | np.bool_):
        raise TypeError(f"{value!r} is not a number")
    number = float(value)
    if isinstance(value, int) and number != value:
        raise ValueError(f"{value} has more digits than the column")
    return number


def _read_float(value: Any) -> float:
    number = _read_double(value)
    with np.errstate(over="ignore"):
        narrow = float(np.float32(number))
    if isinstance(value, int) and narrow != value:
        raise ValueError(f"{value} has more digits than the column")
    if isinf(narrow) and not isinf(number):
        raise ValueError(f"{value} is too large for the column")
    return number


_READERS = {
    naive_is_utc: Readers(
        _read_text, _timestamp if naive_is_utc else _instant, _date, _read_double, _read_float
    )
    for naive_is_utc in (True, False)
}


# Rows as users have them, Arrow, pandas, Polars or mappings, as a table of a source's declared columns.
#
# Columns are looked at as a whole: what is of the declared type already is taken as it is, and what holds
# the same values in another form (other widths and units, dictionaries, large strings, zones of times) is
# cast with every value checked. Nothing is guessed: another kind of value, a column too many or one that
# is missing is refused, and all problems of one table are told together. Only mappings are read value by
# value (`mapped`).

_ACCEPTED_DATA = "an Arrow table or batch, a pandas or Polars DataFrame, a mapping, or a list of mappings"


def coerce_rows(
    source: Source,
    data: Any,
    *,
    partition: str | None = None,
    diff: int = 1,
    naive_is_utc: bool = True,
    zone: str = UTC,
) -> pa.Table:
    """Coerce ``data`` to a table with the declared columns, `PARTITION` and `DIFF`, in order.

    Args:
        partition: the source partition of all the rows.
        diff: +1 for inserts, -1 for deletes. A change column of the rows also counts.
        naive_is_utc: True if TIMESTAMPs without a zone are in UTC.
        zone: the job's time zone.

    Raises:
        SpecError: the data is not a table, or its columns are not the declared ones.
        EngineError: a value does not fit its column's type.
        SeveralErrors: several of these errors.
    """
    table = _to_arrow_table(source, data)
    if table is None:
        table, naive_is_utc = _convert_mappings(source, data, naive_is_utc), True
    problems: list[WatersmeetError] = _check_column_names(source, table.column_names)
    raise_all(problems)
    arrays = []
    for column in source.columns:
        try:
            arrays.append(_convert_column(source, column, table.column(column.name), naive_is_utc))
        except WatersmeetError as error:
            problems.append(error)
    raise_all(problems)
    count = table.num_rows
    records = pa.table(arrays, names=[column.name for column in source.columns])
    diffs = _read_diffs(source, records, count, zone) * diff
    if source.primary_key is not None and (diffs < 0).any():
        arrays = _keep_delete_keys(source, arrays, diffs)
    arrays += [
        pa.chunked_array([pa.repeat(pa.scalar(partition, pa.string()), count)]),
        pa.chunked_array([pa.array(diffs)]),
    ]
    return pa.table(arrays, names=[*(column.name for column in source.columns), PARTITION, DIFF])


def _to_arrow_table(source: Source, data: Any) -> pa.Table | None:
    """Convert data to an Arrow table; return None if it is not a table and may be mappings.

    Raises:
        EngineError: Arrow cannot convert the data.
    """
    try:
        return _arrow(data)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise EngineError(
            f'the rows of "{source.name}" cannot be converted to Arrow: {str(error).splitlines()[0]}',
            code="bad-value",
            hint="give each column values of one type",
        ) from None


def _convert_mappings(source: Source, data: Any, naive_is_utc: bool) -> pa.Table:
    if isinstance(data, Mapping):
        data = [data]
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise _not_rows_error(source, data)
    rows = list(data)
    for row in rows:
        if not isinstance(row, Mapping):
            raise _not_rows_error(source, row)
    raise_all(_check_row_names(source, rows))
    return build_table(source.columns, rows, naive_is_utc=naive_is_utc)


def _arrow(data: Any) -> pa.Table | None:
    """Convert a table-like object to an Arrow table; return None for other objects."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if type(data).__module__.split(".")[0] == "pandas" and hasattr(data, "columns"):
        return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(None)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return pa.table(data)
    return None


def _not_rows_error(source: Source, given: Any) -> SpecError:
    shown = f"{given!r}"
    return SpecError(
        f'the input of "{source.name}" is {shown if len(shown) < 60 else type(given).__name__}, not rows',
        code="bad-value",
        hint=f"give {_ACCEPTED_DATA}",
    )


def _check_column_names(source: Source, names: Sequence[str]) -> list[WatersmeetError]:
    declared = [column.name for column in source.columns]
    there = set(names)
    problems: list[WatersmeetError] = []
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            problems.append(
                SpecError(
                    f'the rows of "{source.name}" have {names.count(name)} columns named "{name}"',
                    code="duplicate-column",
                    hint="rename or remove all but one of them",
                )
            )
        if name not in declared:
            problems.append(
                _unknown_column_error(source, str(name), [name for name in declared if name not in there])
            )
    problems += [_missing_column_error(source, name) for name in declared if name not in there]
    return problems


def _check_row_names(source: Source, rows: Sequence[Mapping[str, Any]]) -> list[WatersmeetError]:
    declared = dict.fromkeys(column.name for column in source.columns)
    surplus = dict.fromkeys(name for row in rows for name in row if name not in declared)
    missing = [name for name in declared if any(name not in row for row in rows)]
    return [
        *(_unknown_column_error(source, str(name), missing) for name in surplus),
        *(_missing_column_error(source, name) for name in missing),
    ]


def _unknown_column_error(source: Source, name: str, missing: Sequence[str]) -> SpecError:
    near = near_names(name, missing)
    declared = ", ".join(column.name for column in source.columns)
    return SpecError(
        f'source "{source.name}" has no column "{name}"',
        code="unknown-column",
        hint=near
        if near and near.startswith("did")
        else f"remove the column; the source's columns are {declared}",
    )


def _missing_column_error(source: Source, name: str) -> SpecError:
    return SpecError(
        f'the rows of "{source.name}" have no column "{name}"',
        code="missing-column",
        hint="add the column; use NULL where a value is not known",
    )


def _convert_column(
    source: Source, column: Column, given: pa.ChunkedArray, naive_is_utc: bool
) -> pa.ChunkedArray:
    """Convert a column to its declared type.

    A type that has no Arrow form here is returned unchanged, since nothing computes with it.

    Raises:
        EngineError: a value is invalid.
        SpecError: the given type cannot be converted to the declared type.
    """
    kind = in_arrow(column.type)
    if kind is None or (given.type == kind and not _is_checked(column.type, given.type)):
        return given
    where = f'column "{column.name}" of "{source.name}"'
    try:
        given = _decode_values(given)
        if _is_text(given.type):
            given.validate(full=True)  # bytes of a text may be none
    except (pa.ArrowException, NotImplementedError) as error:
        raise EngineError(f"{where}: {str(error).splitlines()[0]}", code="bad-value") from None
    if not _is_convertible(given.type, column.type):
        raise SpecError(
            f"{where} is declared {column.type}, but the given values are {sql_name(given.type)}",
            code="wrong-type",
            hint=_conversion_hint(given.type, column.type),
        )
    if not naive_is_utc and _is_zoneless(column.type, given.type) and given.null_count < len(given):
        raise SpecError(
            f"{where} is TIMESTAMP, but its values have no time zone, and the job's time_zone is not UTC",
            code="wrong-type",
            hint="pass times with a zone, such as datetime(…, tzinfo=ZoneInfo('America/New_York')) or"
            " timestamp[us, tz=UTC]; if they are UTC, set time_zone to UTC",
        )
    try:
        return given if given.type == kind else given.cast(kind, safe=True)
    except (pa.ArrowException, ValueError, NotImplementedError) as error:
        raise EngineError(
            f"a value of {where} is not a valid {column.type}: {str(error).splitlines()[0]}", code="bad-value"
        ) from None


def _is_checked(type_: SqlType, given: pa.DataType) -> bool:
    """Return True if values of exactly the declared type may still be invalid."""
    return _is_text(given) or _is_zoneless(type_, given)


def _is_text(given: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(given) or types.is_large_string(given) or types.is_string_view(given))


def _is_zoneless(type_: SqlType, given: pa.DataType) -> bool:
    """Return True if the type contains, at any depth, TIMESTAMPs without a time zone."""
    types = pa.types
    if type_.is_struct and types.is_struct(given):
        inner = zip(given, type_.inner, strict=False)
        return any(_is_zoneless(of, field.type) for field, of in inner)
    if type_.element is not None and hasattr(given, "value_type"):
        return _is_zoneless(type_.element, given.value_type)
    if type_.entry is not None and types.is_map(given):
        key, value = type_.entry
        return _is_zoneless(key, given.key_type) or _is_zoneless(value, given.item_type)
    return type_ == TIMESTAMP and bool(types.is_timestamp(given)) and given.tz is None


def _decode_values(given: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decode dictionary-encoded and run-end-encoded values."""
    if pa.types.is_dictionary(given.type):
        kind = given.type.value_type
        if (
            kind in _VIEW_TYPES
        ):  # Arrow takes nothing out of dictionaries of views, as Polars has of categories
            kind = _VIEW_TYPES[kind]
            given = given.cast(pa.dictionary(given.type.index_type, kind))
        return _decode_values(given.cast(kind))
    if pa.types.is_run_end_encoded(given.type):
        return _decode_values(pc.run_end_decode(given))
    return given


_VIEW_TYPES = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def _is_convertible(given: pa.DataType, type_: SqlType) -> bool:
    """Return True if one type can represent every value of the other: the same kind of value."""
    types = pa.types
    if types.is_null(given):
        return True
    if type_.is_integer:
        return bool(types.is_integer(given))
    if type_.is_decimal:
        return bool(types.is_decimal(given))
    if type_.is_struct:
        return (
            bool(types.is_struct(given))
            and [field.name for field in given] == [field.name for field in type_.fields]
            and all(_is_convertible(of.type, inner) for of, inner in zip(given, type_.inner, strict=True))
        )
    if type_.element is not None:
        lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
        return any(is_one(given) for is_one in lists) and _is_convertible(given.value_type, type_.element)
    if type_.entry is not None:
        key, value = type_.entry
        return (
            bool(types.is_map(given))
            and _is_convertible(given.key_type, key)
            and _is_convertible(given.item_type, value)
        )
    if type_.is_time and type_.name != "DATE":
        return bool(types.is_timestamp(given)) and (type_ != TIMESTAMP_NTZ or given.tz is None)
    return any(is_one(given) for is_one in _PLAIN.get(type_.name, ()))


_PLAIN: Mapping[str, Sequence[Any]] = {
    "BOOLEAN": (pa.types.is_boolean,),
    "FLOAT": (pa.types.is_float16, pa.types.is_float32),
    "DOUBLE": (pa.types.is_floating,),
    "DATE": (pa.types.is_date,),
    "STRING": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    "BINARY": (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
        pa.types.is_binary_view,
    ),
}


def _conversion_hint(given: pa.DataType, type_: SqlType) -> str:
    if type_.is_integer and pa.types.is_floating(given):
        return 'use the pandas dtype "Int64": pandas turns whole numbers into floats where some are missing'
    if type_ == TIMESTAMP_NTZ and pa.types.is_timestamp(given):
        return "declare it TIMESTAMP, or remove the time zone of the values: TIMESTAMP_NTZ has none"
    return f"cast the values to {in_arrow(type_)} (Arrow), or declare the column {sql_name(given)}"


def _read_diffs(source: Source, rows: pa.Table, count: int, zone: str) -> Any:
    """Read each row's multiplicity from its change column as int64[n]; 1 without such a column.

    Raises:
        EngineError: the change column has an unknown value.
    """
    change = source.change_column
    if change is None:
        return np.ones(count, dtype=np.int64)
    values = one_array(evaluate_column(source, change.column, rows, zone))
    said = pc.dictionary_encode(values, null_encoding="encode")
    words = said.dictionary.to_pylist()
    diffs = [diff_of(change, word) for word in words]
    if None in diffs:
        raise unknown_change_error(source, words[diffs.index(None)])
    return np.asarray(diffs, dtype=np.int64)[said.indices.to_numpy(zero_copy_only=False)]


def _keep_delete_keys(source: Source, arrays: Sequence[pa.ChunkedArray], diffs: Any) -> list[pa.ChunkedArray]:
    """Set all columns of deletes to NULL, except those that identify the row of a primary key."""
    stays = pa.chunked_array([pa.array(diffs > 0)])
    named = columns_of_deletes(source)
    return [
        array if column.name in named else pc.if_else(stays, array, pa.scalar(None, array.type))
        for column, array in zip(source.columns, arrays, strict=True)
    ]


# Event times as users give them, in the units in which they are computed (`event_time`).

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC_ZONE)


def read_time(value: Any, type_: SqlType, where: str) -> int:
    """Read a time of a column of this type.

    Args:
        value: a whole number in the column's units (µs since 1970 for TIMESTAMP and DATE); for times
            also a datetime (UTC if it has no zone) or a date.
        where: the prefix of error messages.

    Raises:
        SpecError: the value is not a time of this type.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if not MIN_TIME <= value <= MAX_TIME:
            raise SpecError(f"{where}: {value} is out of the range of BIGINT", code="bad-value")
        return value
    if type_.is_time and isinstance(value, date) and value == value:
        moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC_ZONE)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    raise SpecError(
        f"{where}: {value!r} is not a valid {type_}",
        code="bad-value",
        hint="give a datetime, or a whole number of µs since 1970"
        if type_.is_time
        else "give a whole number",
    )
