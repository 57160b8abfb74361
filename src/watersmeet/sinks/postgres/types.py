"""Types of results as PostgreSQL has them: in the table, in the table that rows are staged in, and which
columns of a table that is there already take which values without losing any."""

from __future__ import annotations

import re

import pyarrow as pa

from watersmeet.types.sql_type import SqlType

_SCALARS = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INT": "integer",
    "BIGINT": "bigint",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "STRING": "text",
    "BINARY": "bytea",
    "DATE": "date",
    "TIMESTAMP": "timestamp with time zone",
    "TIMESTAMP_NTZ": "timestamp without time zone",
}
_JSON = "jsonb"
_DIGITS = {"smallint": 5, "integer": 10, "bigint": 19}

_TAKEN: dict[str, tuple[str, ...]] = {
    "smallint": ("smallint", "integer", "bigint"),
    "integer": ("integer", "bigint"),
    "real": ("real", "double precision"),
    "text": ("text", "character varying", "uuid", "json", "jsonb"),
    "jsonb": ("jsonb", "json", "text"),
}
"""Beside itself, and numbers without a point as ``numeric``."""

_CAST = ("uuid", "json", "jsonb")
"""Types to which a text has to be cast. (Other casts would cut what is too long.)"""

_NUMERIC = re.compile(r"numeric(?:\((\d+),(-?\d+)\))?")
_MODIFIER = re.compile(r"\(\d+\)")
_CUT = re.compile(r"character varying\((\d+)\)")
_KEY_TEXTS = ("text", "character varying")


def target_type(kind: SqlType) -> str | None:
    """The type of a column for such values; None: there is none."""
    if kind.is_decimal:
        return f"numeric({kind.digits},{kind.scale})"
    if kind.name in _SCALARS:
        return _SCALARS[kind.name]
    if kind.name == "ARRAY" and kind.parts:
        (element,) = kind.parts
        if not element.is_nested:
            inner = target_type(element)
            return None if inner is None else f"{inner}[]"
    return _JSON if kind.is_nested and _is_json(kind) else None


def is_as_json(kind: SqlType) -> bool:
    """It is staged as the text of its JSON: arrays there are of one size in all rows, and hold no arrays."""
    return target_type(kind) == _JSON


def staged_type(kind: SqlType) -> str | None:
    """The type in which values of a frame are staged."""
    named = target_type(kind)
    return "text" if named == _JSON else named if named is None else _NUMERIC.sub("numeric", named)


def staged_type_of(kind: pa.DataType) -> str | None:
    """The same of Arrow's values, which are copied as they are; None: they cannot be."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = None if pa.types.is_nested(kind.value_type) else staged_type_of(kind.value_type)
        return None if inner is None else f"{inner}[]"
    if pa.types.is_decimal(kind):
        return "numeric"
    if pa.types.is_timestamp(kind):
        return "timestamp without time zone" if kind.tz is None else "timestamp with time zone"
    return next((name for is_of, name in _ARROW if is_of(kind)), None)


def takes(column: str, kind: SqlType, *, in_key: bool = False) -> bool:
    """Whether a column of this type (as ``format_type`` writes it) takes all values, each as it is; a text
    may still be too long for it, or none of its own.

    ``in_key``: values that are not equal do not become equal, either: a UUID's case is gone in its column.
    """
    wanted = target_type(kind)
    if wanted is None:
        return False
    if wanted.endswith("[]") or column.endswith("[]"):
        return wanted.endswith("[]") and column.endswith("[]") and _takes_elements(column[:-2], kind, in_key)
    numeric = _NUMERIC.fullmatch(column)
    if numeric is not None and (kind.is_decimal or wanted in _DIGITS):
        digits, scale = (kind.digits, kind.scale) if kind.is_decimal else (_DIGITS[wanted], 0)
        if numeric[1] is None:
            return True
        return int(numeric[2]) >= scale and int(numeric[1]) - int(numeric[2]) >= digits - scale
    if column.startswith("timestamp("):  # fewer digits of the second
        return column.startswith("timestamp(6)") and wanted == column.replace("(6)", "")
    if in_key and wanted == "text":
        return column in _KEY_TEXTS
    plain = _MODIFIER.sub("", column)
    return plain == wanted or plain in _TAKEN.get(wanted, ())


def _takes_elements(column: str, kind: SqlType, in_key: bool) -> bool:
    return _CUT.fullmatch(column) is None and takes(column, kind.parts[0], in_key=in_key)


def casted(value: str, column: str) -> str:
    """SQL: a staged value as one of the column. Where a text is too long by blanks alone, which the server
    would cut, it gets something else behind them, so that it is refused."""
    cut = _CUT.fullmatch(column)
    if cut is not None:
        return f"CASE WHEN char_length({value}) > {cut[1]} THEN {value} || '.' ELSE {value} END"
    plain = _MODIFIER.sub("", column)
    return f"{value}::{column}" if plain.removesuffix("[]") in _CAST else value


def _is_json(kind: SqlType) -> bool:
    parts = [*kind.parts, *(field.type for field in kind.fields)]
    return all(_is_json(part) if part.is_nested else target_type(part) is not None for part in parts)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


_ARROW = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "smallint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_float32, "real"),
    (pa.types.is_float64, "double precision"),
    (_is_text, "text"),
    (_is_bytes, "bytea"),
    (pa.types.is_date32, "date"),
)
