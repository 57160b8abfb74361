"""Values in Debezium's events, as Spark SQL: times as numbers of days and of parts of a second, or as texts;
DECIMALs as bytes. A record may have a schema (Kafka Connect's JsonConverter, with ``schemas.enable``), which
says what a number counts, and the scale of bytes.

Spark's own JSON reader takes a number in the place of a TIMESTAMP for seconds, and none for a DATE.
"""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.engine.spark.counted_times import WHOLE, counted_of, text_of
from watersmeet.engine.spark.text import let, literal, options_map
from watersmeet.names import ours
from watersmeet.spec.options.debezium import DECIMAL, NAMES_OF_DAYS, NAMES_OF_UNITS, VARIABLE_DECIMAL
from watersmeet.spec.records.counted_times import TimeUnit
from watersmeet.types.sql_type import DATE, SqlType

_COLUMN = "STRUCT<field: STRING, type: STRING, name: STRING, parameters: STRUCT<scale: STRING>>"
_SCHEMA = f"schema STRUCT<fields: ARRAY<STRUCT<field: STRING, fields: ARRAY<{_COLUMN}>>>>"
_MAX_BYTES = 16
"""Of a number of 38 digits."""
_MAX_SCALE = 100
_2_64 = "18446744073709551616BD"
_HEX, _DIGITS, _SIZE, _SHIFT = map(ours, ("hex", "digits", "size", "shift"))


def debezium_time(
    text: str, kind: SqlType, unit: TimeUnit | None, parser: Mapping[str, str], name: str | None = None
) -> str:
    """Return the date or time that a text of JSON (a number as it is written) is, as SQL; NULL: none.

    Args:
        kind: a DATE, TIMESTAMP or TIMESTAMP_NTZ.
        unit: what a number in a timestamp's place counts, since 1970 (in UTC; NTZ: by the wall clock); None:
            it says nothing. What is less than a microsecond is cut off.
        parser: options of Spark's JSON parser, by which other texts are read.
        name: what the record's schema calls the type, as SQL; it says more than ``unit``.
    """
    counted, read = counted_of(text, kind, unit), text_of(text, kind, parser)
    if name is not None:
        counted = f"CASE {_counted_as_named(text, kind, name)} ELSE {counted} END"
    return f"CASE WHEN {text} RLIKE '{WHOLE}' THEN {counted} ELSE {read} END"


def _counted_as_named(text: str, kind: SqlType, name: str) -> str:
    """Arms of a CASE: days are no time of day, and no time of day is days."""
    arms: dict[tuple[str, ...], str] = {} if kind == DATE else {NAMES_OF_DAYS: "NULL"}
    for unit, names in NAMES_OF_UNITS.items():
        arms[names] = "NULL" if kind == DATE else counted_of(text, kind, unit)
    return " ".join(
        f"WHEN {name} IN ({', '.join(map(literal, names))}) THEN {counted}" for names, counted in arms.items()
    )


def columns_of(text: str, parser: Mapping[str, str]) -> str:
    """Return the columns of a row, an ARRAY, as an event's schema has them; NULL: it has none.

    Args:
        text: of the event.
        parser: options of Spark's JSON parser.
    """
    parsed = f"from_json({text}, {literal(_SCHEMA)}, {options_map({**parser, 'mode': 'PERMISSIVE'})})"
    after = f"get(filter({parsed}.schema.fields, part -> part.field = 'after'), 0).fields"
    return f"IF(instr({text}, '\"fields\"') > 0, {after}, NULL)"


def column_of(columns: str, name: str) -> str:
    """Return what the columns say of one of them; NULL: nothing."""
    return f"get(filter({columns}, own -> lower(own.field) = {literal(name.lower())}), 0)"


def decimal_of(text: str, kind: SqlType, told: str) -> str:
    """Return the DECIMAL that a text of an event is; NULL: none.

    Args:
        text: bytes in base64, an object that has them and their scale, or a number.
        told: what the schema says of the column.
    """
    of_object = _of_bytes(f"get_json_object({text}, '$.value')", f"get_json_object({text}, '$.scale')", kind)
    return f"""CASE WHEN {told}.name = '{DECIMAL}' THEN {_of_bytes(text, f"{told}.parameters.scale", kind)}
        WHEN {told}.name = '{VARIABLE_DECIMAL}' THEN {of_object}
        WHEN {told}.type NOT IN ('bytes', 'struct') THEN try_cast({text} AS {kind}) END"""


def _of_bytes(text: str, scale: str, kind: SqlType) -> str:
    """Of a whole number in two's complement, and how many of its digits are behind the point."""
    is_below = f"substr({_HEX}, 1, 1) >= '8'"
    inverse = f"translate({_HEX}, '0123456789ABCDEF', 'FEDCBA9876543210')"
    digits = f"lpad(IF({is_below}, {inverse}, {_HEX}), {2 * _MAX_BYTES}, '0')"
    high, low = (f"CAST(conv(substr({_DIGITS}, {n}, 16), 16, 10) AS DECIMAL(20,0))" for n in (1, 17))
    size = let(_DIGITS, digits, f"try_add(try_multiply({high}, {_2_64}), {low})")
    whole = let(_SIZE, size, f"IF({is_below}, try_subtract(CAST(-1 AS DECIMAL(38,0)), {_SIZE}), {_SIZE})")
    number = f"try_cast(concat(CAST({whole} AS STRING), 'E', CAST(-{_SHIFT} AS STRING)) AS {kind})"
    is_short = f"length({_HEX}) BETWEEN 2 AND {2 * _MAX_BYTES}"
    fits = f"{is_short} AND {_SHIFT} BETWEEN -{_MAX_SCALE} AND {_MAX_SCALE}"
    shifted = let(_SHIFT, f"try_cast({scale} AS INT)", f"IF({fits}, {number}, NULL)")
    return let(_HEX, f"hex(try_to_binary({text}, 'base64'))", shifted)
