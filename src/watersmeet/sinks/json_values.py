"""Rows as JSON has them: whatever a program reads gets numbers as numbers and NULL as null.

Integers, booleans and strings are themselves. DECIMAL is a string, for JSON's numbers are not exact. DATE is
an ISO string, TIMESTAMP one of UTC with a ``Z``, TIMESTAMP_NTZ one without. FLOAT and DOUBLE are numbers, but
for ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``, which JSON has not. BINARY is a string of base64. Arrays
are arrays, structs objects; maps are objects where keys are strings, else arrays of ``[key, value]``. Types
that have no place in Arrow (intervals, VARIANT) are text, as Spark casts them.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from datetime import UTC
from typing import Any

import pyarrow as pa

_WITHOUT = re.compile(r"\b(interval|variant|void|geometry|geography|object|udt)\b")

Convert = Callable[[Any], Any]


def has_value(kind: str) -> bool:
    """Whether values of a Spark type are taken as they are, and not as text.

    >>> has_value("array<decimal(3,1)>"), has_value("interval day to second")
    (True, False)
    """
    return _WITHOUT.search(kind.lower()) is None


def rows_of(table: pa.Table) -> list[list[Any]]:
    """The rows of a table, in order; columns may share their names.

    >>> rows_of(pa.table({"n": [1, None], "x": [0.5, float("nan")], "s": ["1", None]}))
    [[1, 0.5, '1'], [None, 'NaN', None]]
    """
    columns = [
        [_convert(field.type)(value) for value in column.to_pylist()]
        for field, column in zip(table.schema, table.columns, strict=True)
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def _convert(kind: pa.DataType) -> Convert:
    found = _of_values(kind)
    return lambda value: None if value is None else found(value)


def _of_values(kind: pa.DataType) -> Convert:
    if pa.types.is_decimal(kind):
        return lambda value: format(value, "f")
    if pa.types.is_floating(kind):
        return _number
    if pa.types.is_timestamp(kind):
        return _timestamp if kind.tz is not None else lambda value: value.isoformat()
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return lambda value: value.isoformat()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return lambda value: base64.b64encode(value).decode()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        each = _convert(kind.value_type)
        return lambda values: [each(value) for value in values]
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


def _timestamp(value: Any) -> str:
    return str(value.astimezone(UTC).replace(tzinfo=None).isoformat()) + "Z"


def _map(kind: pa.MapType) -> Convert:
    key, item = _convert(kind.key_type), _convert(kind.item_type)
    if pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type):
        return lambda pairs: {name: item(value) for name, value in pairs}
    return lambda pairs: [[key(name), item(value)] for name, value in pairs]
