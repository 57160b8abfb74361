"""Rows as JSON has them: whatever a program reads gets numbers as numbers and NULL as null.

Integers, booleans and strings are themselves; bytes in a string that are no UTF-8 are replaced. DECIMAL is
a string, for JSON's numbers are not exact. DATE is an ISO string, TIMESTAMP one of UTC with a ``Z``,
TIMESTAMP_NTZ one without, of any year. FLOAT and DOUBLE are numbers, but for ``"NaN"``, ``"Infinity"`` and
``"-Infinity"``, which JSON has not. BINARY is a string of base64. Arrays are arrays, structs objects; maps
are objects where keys are strings, else arrays of ``[key, value]``. Types that have no place in Arrow
(intervals, VARIANT) are text, as Spark casts them.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from datetime import date
from typing import Any

import pyarrow as pa

_WITHOUT = re.compile(r"\b(interval|variant|void|geometry|geography|object|udt)\b")

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAYS_OF_400_YEARS = 146_097
_SINCE_YEAR_1 = date(1970, 1, 1).toordinal() - 1

Convert = Callable[[Any], Any]


def has_native_value(kind: str) -> bool:
    """Return True if values of a Spark type are JSON values rather than text.

    >>> has_native_value("array<decimal(3,1)>"), has_native_value("interval day to second")
    (True, False)
    """
    return _WITHOUT.search(kind.lower()) is None


def rows_of(table: pa.Table | pa.RecordBatch) -> list[list[Any]]:
    """Return the rows of a table, in order; several columns may have one name.

    >>> rows_of(pa.table({"n": [1, None], "x": [0.5, float("nan")], "s": ["1", None]}))
    [[1, 0.5, '1'], [None, 'NaN', None]]
    """
    return [list(row) for row in zip(*map(values_of, table.columns), strict=True)]


def values_of(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of a column; no value raises an error.

    >>> values_of(pa.array([2**31 - 1], pa.int32()).view(pa.date32()))
    ['+5881580-07-11']
    """
    return [_convert(column.type)(value) for value in column.cast(_python_safe_type(column.type)).to_pylist()]


def _python_safe_type(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type that Python can convert for every value.

    Python has no times outside the years 1 to 9999, and no texts with invalid UTF-8.
    """
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_python_safe_type(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_python_safe_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_python_safe_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(
            _python_safe_type(kind.key_type), kind.item_field.with_type(_python_safe_type(kind.item_type))
        )
    return kind


def _convert(kind: pa.DataType) -> Convert:
    convert = _of_values(kind)
    return lambda value: None if value is None else convert(value)


def _of_values(kind: pa.DataType) -> Convert:
    if pa.types.is_decimal(kind):
        return lambda value: format(value, "f")
    if pa.types.is_floating(kind):
        return _number
    if pa.types.is_timestamp(kind):
        second, zone = _PER_SECOND[kind.unit], "" if kind.tz is None else "Z"
        return lambda value: _moment(value, second) + zone
    if pa.types.is_date32(kind):
        return _day
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return lambda value: value.decode(errors="replace")
    if pa.types.is_time(kind):
        return lambda value: value.isoformat()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return lambda value: base64.b64encode(value).decode()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        convert = _convert(kind.value_type)
        return lambda values: [convert(value) for value in values]
    if pa.types.is_struct(kind):
        parts = [(kind.field(n).name, _convert(kind.field(n).type)) for n in range(kind.num_fields)]
        return lambda value: {name: part(value[name]) for name, part in parts}
    if pa.types.is_map(kind):
        return _map(kind)
    return lambda value: value


def _number(value: float) -> Any:
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def _day(days: int) -> str:
    """Format a day of any year, counted from 1970.

    A year of more than four digits has a sign, as in Java.
    """
    cycle, day = divmod(days + _SINCE_YEAR_1, _DAYS_OF_400_YEARS)
    in_cycle = date.fromordinal(day + 1)
    year = in_cycle.year + 400 * cycle
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{in_cycle:%m-%d}"


def _moment(value: int, second: int) -> str:
    """Format a time of any year; leave out a fraction of zero.

    Args:
        value: The time in units since 1970.
        second: The number of units per second.
    """
    seconds, fraction = divmod(value, second)
    days, of_day = divmod(seconds, 86_400)
    text = f"{_day(days)}T{of_day // 3600:02d}:{of_day // 60 % 60:02d}:{of_day % 60:02d}"
    return f"{text}.{fraction:0{len(str(second)) - 1}d}" if fraction else text


def _map(kind: pa.MapType) -> Convert:
    key, item = _convert(kind.key_type), _convert(kind.item_type)
    if pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type):
        return lambda pairs: {key(name): item(value) for name, value in pairs}
    return lambda pairs: [[key(name), item(value)] for name, value in pairs]
