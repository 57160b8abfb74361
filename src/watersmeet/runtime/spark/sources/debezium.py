"""Debezium's change events as rows: JSON envelopes and their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from watersmeet.names import DIFF, PARTITION, ours
from watersmeet.runtime.spark import lazy_functions as F
from watersmeet.runtime.spark.json_object import (
    extract_object,
    is_not_whole,
    lacks_column,
    parse_whole_json,
)
from watersmeet.runtime.spark.sources.columns import BROKEN, SKIPPED, TRUNCATED
from watersmeet.runtime.spark.sources.files.narrow_integers import (
    JSON,
    misfit_sql,
    narrow_columns,
    widen_integers,
)
from watersmeet.runtime.spark.sql_text import bind_value, literal, options_map, quote_name
from watersmeet.runtime.spark.time_values import WHOLE, convert_number_to_time, parsed_text_sql
from watersmeet.spec.change_kinds import PrimaryKey
from watersmeet.spec.model import Source
from watersmeet.spec.options.debezium import (
    CLOCKS,
    DECIMAL,
    MARKS,
    NAMES_OF_DAYS,
    NAMES_OF_UNITS,
    UNAVAILABLE,
    VARIABLE_DECIMAL,
    event_fields,
    placeholders,
    reads_decimal_texts,
    skips_truncate,
    timestamps_unit,
)
from watersmeet.spec.records.text_records import JsonNames, TimeUnit
from watersmeet.types.sql_type import DATE, DOUBLE, STRING, TIMES, SqlType

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame


# Values in Debezium's events, as Spark SQL: times as numbers of days and of parts of a second, or as
# texts; DECIMALs as bytes. A record may have a schema (Kafka Connect's JsonConverter, with
# ``schemas.enable``), which says what a number counts, and the scale of bytes.
#
# Spark's own JSON reader takes a number in the place of a TIMESTAMP for seconds, and none for a DATE.

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
    counted, read = convert_number_to_time(text, kind, unit), parsed_text_sql(text, kind, parser)
    if name is not None:
        counted = f"CASE {_named_unit_arms(text, kind, name)} ELSE {counted} END"
    return f"CASE WHEN {text} RLIKE '{WHOLE}' THEN {counted} ELSE {read} END"


def _named_unit_arms(text: str, kind: SqlType, name: str) -> str:
    """Build CASE arms that convert a number by its named unit.

    A number of days gives NULL for a time, and a number in a unit of time gives NULL for a date.
    """
    arms: dict[tuple[str, ...], str] = {} if kind == DATE else {NAMES_OF_DAYS: "NULL"}
    for unit, names in NAMES_OF_UNITS.items():
        arms[names] = "NULL" if kind == DATE else convert_number_to_time(text, kind, unit)
    return " ".join(
        f"WHEN {name} IN ({', '.join(map(literal, names))}) THEN {counted}" for names, counted in arms.items()
    )


def schema_columns_sql(text: str, parser: Mapping[str, str]) -> str:
    """Return the columns of a row, an ARRAY, as an event's schema has them; NULL: it has none.

    Args:
        text: of the event.
        parser: options of Spark's JSON parser.
    """
    parsed = f"from_json({text}, {literal(_SCHEMA)}, {options_map({**parser, 'mode': 'PERMISSIVE'})})"
    after = f"get(filter({parsed}.schema.fields, part -> part.field = 'after'), 0).fields"
    return f"IF(instr({text}, '\"fields\"') > 0, {after}, NULL)"


def schema_column_sql(columns: str, name: str) -> str:
    """Return what the columns say of one of them; NULL: nothing."""
    return f"get(filter({columns}, own -> lower(own.field) = {literal(name.lower())}), 0)"


def decimal_sql(text: str, kind: SqlType, told: str) -> str:
    """Return the DECIMAL that a text of an event is; NULL: none.

    Args:
        text: bytes in base64, an object that has them and their scale, or a number.
        told: what the schema says of the column.
    """
    of_object = _bytes_to_decimal(
        f"get_json_object({text}, '$.value')", f"get_json_object({text}, '$.scale')", kind
    )
    of_bytes = _bytes_to_decimal(text, f"{told}.parameters.scale", kind)
    return f"""CASE WHEN {told}.name = '{DECIMAL}' THEN {of_bytes}
        WHEN {told}.name = '{VARIABLE_DECIMAL}' THEN {of_object}
        WHEN {told}.type NOT IN ('bytes', 'struct') THEN try_cast({text} AS {kind}) END"""


def _bytes_to_decimal(text: str, scale: str, kind: SqlType) -> str:
    """Build the SQL that converts base64 bytes to a decimal.

    The bytes are an integer in two's complement; ``scale`` is the number of digits after the point.
    """
    is_below = f"substr({_HEX}, 1, 1) >= '8'"
    inverse = f"translate({_HEX}, '0123456789ABCDEF', 'FEDCBA9876543210')"
    digits = f"lpad(IF({is_below}, {inverse}, {_HEX}), {2 * _MAX_BYTES}, '0')"
    high, low = (f"CAST(conv(substr({_DIGITS}, {n}, 16), 16, 10) AS DECIMAL(20,0))" for n in (1, 17))
    size = bind_value(_DIGITS, digits, f"try_add(try_multiply({high}, {_2_64}), {low})")
    whole = bind_value(
        _SIZE, size, f"IF({is_below}, try_subtract(CAST(-1 AS DECIMAL(38,0)), {_SIZE}), {_SIZE})"
    )
    number = f"try_cast(concat(CAST({whole} AS STRING), 'E', CAST(-{_SHIFT} AS STRING)) AS {kind})"
    is_short = f"length({_HEX}) BETWEEN 2 AND {2 * _MAX_BYTES}"
    fits = f"{is_short} AND {_SHIFT} BETWEEN -{_MAX_SCALE} AND {_MAX_SCALE}"
    shifted = bind_value(_SHIFT, f"try_cast({scale} AS INT)", f"IF({fits}, {number}, NULL)")
    return bind_value(_HEX, f"hex(try_to_binary({text}, 'base64'))", shifted)


# Debezium's change events as JSON: each becomes the row that goes, the row that comes, or both.
#
# An event holds the row before and after, and what was done (``op``): ``c`` created, ``r`` read by a
# snapshot, ``u`` updated, ``d`` deleted. With a schema beside it, it is in ``payload``. A record without
# a value comes after a delete, for compaction, and says nothing. Source: Debezium's documentation,
# "Change event values".
#
# Of a table with a primary key the row before need not be there: what goes is said by its key, or by the
# key of the row after, or of Kafka's record. A row whose key changes goes under the old one and comes
# under the new.

_PARSED, _CORRUPT, _CHANGE, _KEY = ours("parsed"), ours("corrupt"), ours("change"), ours("key")
_EVENT = extract_object(_PARSED)
_ROW_PATHS = ("$.before", "$.after", "$.payload.before", "$.payload.after")
_KEY_PATHS = ("$", "$.payload")
_BEFORE, _AFTER, _OP, _WRONG = ours("before"), ours("after"), ours("op"), ours("wrong")
_TEXT, _COLUMNS, _TEXTS = ours("text"), ours("columns"), ours("texts")
_ROWS = {part: ours(f"row_{part}") for part in ("before", "after")}
_ROW_KEY = ours("row_key")
_TYPED = {"before": _BEFORE, "after": _AFTER}
_AS_TEXT, _HAS_SCHEMA, _ROW = ours("as_text"), ours("is_told"), ours("row")
_EVENT_OF_TEXTS = extract_object(_TEXTS)
"""The event where DECIMALs are as the record's schema says, and not numbers."""


def read_changes(
    raw: DataFrame, source: Source, partition: SparkColumn, parser: Mapping[str, str]
) -> DataFrame:
    """Read the change events of Kafka records, or of lines without a key.

    Broken records are events without the row to remove (Postgres writes it with REPLICA IDENTITY FULL;
    with a primary key, its key is enough), events without all of the new row, and other operations.

    Args:
        parser: options of Spark's JSON parser.

    Returns:
        The declared columns, `PARTITION`, `BROKEN` and `DIFF`.
    """
    fields = event_fields(source)
    names = _row_columns(source)
    raw = _add_schema_types(raw.where("value IS NOT NULL"), source, names, parser)
    text = f"IF({_AS_TEXT}, NULL, {_TEXT})"
    parse = _parse_rows(
        text, _build_envelope_fields(_fields(source, names), fields.values()), source, names, parser
    )
    key = source.primary_key
    keys = () if key is None or "key" not in raw.columns else key.columns
    parsed = {_PARSED: parse}
    if _decimals(source, names):
        row = _fields(source, names, of_texts=True)
        told_text = f"IF({_HAS_SCHEMA}, {_TEXT}, NULL)"
        parsed[_TEXTS] = _parse_rows(
            told_text, _build_envelope_fields(row, fields.values()), source, names, parser
        )
    if keys:
        text = _record_text("key", _key_fields, source, keys, parser)
        parsed[_KEY] = _parse_rows(text, _key_fields(_fields(source, keys)), source, keys, parser, _KEY_PATHS)
    types = _type_columns(source, names).values()
    value = F.expr("CAST(value AS STRING)").alias("value")
    told = raw.select(
        *(F.expr(sql).alias(name) for name, sql in parsed.items()),
        value,
        partition.alias(PARTITION),
        *map(F.col, [_HAS_SCHEMA, *types]),
    )
    written = {part: f"coalesce({_EVENT}.payload.{part}, {_EVENT}.{part})" for part in _ROWS}
    wrong = [is_not_whole(_PARSED)]
    if _TEXTS in parsed:
        of_texts = {
            part: f"coalesce({_EVENT_OF_TEXTS}.payload.{part}, {_EVENT_OF_TEXTS}.{part})" for part in written
        }
        wrong = [f"IF({_HAS_SCHEMA}, {is_not_whole(_TEXTS)}, {is_not_whole(_PARSED)})"]
        wrong += [
            f"({of_texts[part]}.{quote_name(name)} IS NOT NULL AND {_ROWS[part]}.{quote_name(name)} IS NULL)"
            for part in of_texts
            for name in _decimals(source, names)
        ]
        written = {
            part: f"IF({_HAS_SCHEMA}, {_read_struct_decimals(source, names, of_texts[part])}, {own})"
            for part, own in written.items()
        }
    # What is asked of twice is a column of a frame beneath: the plan repeats what is written twice.
    rows = {_ROWS[part]: own for part, own in written.items()}
    if keys:
        told_key = extract_object(_KEY)
        of_record = ", ".join(
            f"{literal(name)}, coalesce({told_key}.payload.{quote_name(name)}, {told_key}.{quote_name(name)})"
            for name in keys
        )
        rows[_ROW_KEY] = f"named_struct({of_record})"
    told = told.withColumns({name: F.expr(own) for name, own in rows.items()})
    typed = {part: _build_typed_struct(source, names, row, parser) for part, row in _ROWS.items()}
    told = told.withColumns({_TYPED[part]: F.expr(own) for part, own in typed.items()})
    of_events = [_EVENT, *([_EVENT_OF_TEXTS] if _TEXTS in parsed else [])]
    parts = {_OP: f"coalesce({', '.join(f'{event}.payload.op, {event}.op' for event in of_events)})"}
    if keys:
        parts[_KEY] = _build_typed_struct(source, keys, _ROW_KEY, parser)
    parts |= _event_columns(source, fields, of_events)
    wrong += [
        f"({row}.{quote_name(name)} IS NOT NULL AND {_TYPED[part]}.{quote_name(name)} IS NULL)"
        for part, row in _ROWS.items()
        for name in _value_readings(source, names, row, parser)
    ]
    events = told.select(
        *(F.expr(sql).alias(name) for name, sql in parts.items()),
        *map(F.col, _TYPED.values()),
        F.expr(f"coalesce({' OR '.join(wrong)}, false)").alias(_WRONG),
        F.col("value"),
        F.col(PARTITION),
    )
    by_row = _CHANGES_BY_ROW if key is None else _changes_by_key(source, key, has_record_key=bool(keys))
    if fields:
        events = events.withColumn(_AFTER, F.expr(_add_event_fields(source, fields)))
    left_out = _omitted_conditions(source, _AFTER)
    if left_out:
        events = events.withColumn(_AFTER, F.expr(_fill_from_before(source, left_out)))
    unknown = _unknown_value_sql(key, left_out)
    change = f"CASE WHEN {_WRONG} OR {unknown} THEN NULL {by_row} END"
    events = events.select(
        F.expr(f"explode_outer({change})").alias(_CHANGE),
        F.expr(_non_row_record_sql(source)).alias("value"),
        F.col(PARTITION),
    )
    return events.select(
        *(F.col(f"{_CHANGE}.row.{quote_name(column.name)}").alias(column.name) for column in source.columns),
        F.col(PARTITION),
        F.when(F.col(_CHANGE).isNull(), F.col("value")).alias(BROKEN),
        F.col(f"{_CHANGE}.diff").alias(DIFF),
    )


def _non_row_record_sql(source: Source) -> str:
    """Build the SQL for a record that changes no row: its text, or a mark.

    The mark makes the job skip the record or stop. Messages of the database's log, heartbeats and
    transaction markers contain no rows.
    """
    whole = "coalesce(get_json_object(value, '$.payload'), value)"
    names, clocks = f"json_object_keys({whole})", ", ".join(map(literal, CLOCKS))
    is_heartbeat = f"array_contains({names}, 'ts_ms') AND size(array_except({names}, array({clocks}))) = 0"
    is_marker = (
        f"get_json_object({whole}, '$.status') IN ({', '.join(map(literal, MARKS))})"
        f" AND array_contains({names}, 'id') AND array_contains({names}, 'event_count')"
    )
    is_beside = f"{_OP} IS NULL AND {_BEFORE} IS NULL AND {_AFTER} IS NULL"
    truncated = SKIPPED if skips_truncate(source.options) else TRUNCATED
    return f"""CASE WHEN {_WRONG} THEN value
        WHEN {_OP} = 'm' THEN '{SKIPPED}' WHEN {_OP} = 't' THEN '{truncated}'
        WHEN {is_beside} AND (({is_heartbeat}) OR ({is_marker})) THEN '{SKIPPED}' ELSE value END"""


_CHANGES_BY_ROW = f"""
        WHEN {_OP} IN ('c', 'r') AND {_AFTER} IS NOT NULL THEN array(struct({_AFTER} AS row, 1L AS diff))
        WHEN {_OP} = 'd' AND {_BEFORE} IS NOT NULL THEN array(struct({_BEFORE} AS row, -1L AS diff))
        WHEN {_OP} = 'u' AND {_BEFORE} IS NOT NULL AND {_AFTER} IS NOT NULL
            THEN array(struct({_BEFORE} AS row, -1L AS diff), struct({_AFTER} AS row, 1L AS diff))"""


def _changes_by_key(source: Source, key: PrimaryKey, *, has_record_key: bool) -> str:
    """Build the CASE arms that turn an event into changes of rows by primary key.

    An update that changes the key removes the old row with the sequence of the new row: both are the
    same
    change, and the whole record is broken if the new row lacks a key column or the sequence. A delete
    has
    a sequence only if the event itself contains it. The sequence in the row before is that of an
    earlier
    change, or 0, which Debezium writes where it knows none; such a delete counts in order of arrival.
    """
    before, after, op = _BEFORE, _AFTER, _OP
    of_event = _event_column_names(event_fields(source))

    def old(name: str) -> str:
        own = f"{before}.{quote_name(name)}"
        return f"coalesce({own}, {_KEY}.{quote_name(name)})" if has_record_key else own

    deleted = _build_row(source, {name: old(name) for name in key.columns} | of_event)
    moved = _build_row(
        source,
        {name: f"{before}.{quote_name(name)}" for name in key.columns}
        | ({} if key.sequence is None else {key.sequence: f"{after}.{quote_name(key.sequence)}"}),
    )
    is_known = " AND ".join(f"{before}.{quote_name(name)} IS NOT NULL" for name in key.columns)
    is_other = " OR ".join(
        f"NOT ({before}.{quote_name(name)} <=> {after}.{quote_name(name)})" for name in key.columns
    )
    is_whole = " AND ".join(f"{after}.{quote_name(name)} IS NOT NULL" for name in key.named)
    has_key = " AND ".join(f"{old(name)} IS NOT NULL" for name in key.columns)
    both = f"array(struct({moved} AS row, -1L AS diff), struct({after} AS row, 1L AS diff))"
    return f"""
        WHEN {op} IN ('c', 'r') AND {after} IS NOT NULL THEN array(struct({after} AS row, 1L AS diff))
        WHEN {op} = 'd' AND {has_key} THEN array(struct({deleted} AS row, -1L AS diff))
        WHEN {op} = 'u' AND {after} IS NOT NULL AND {is_known} AND ({is_other})
            THEN IF({is_whole}, {both}, NULL)
        WHEN {op} = 'u' AND {after} IS NOT NULL THEN array(struct({after} AS row, 1L AS diff))"""


def _build_row(source: Source, values: Mapping[str, str]) -> str:
    """Build the SQL of a row in which only these columns have values."""
    fields = (
        f"{literal(column.name)}, CAST({values.get(column.name, 'NULL')} AS {column.type})"
        for column in source.columns
    )
    return f"named_struct({', '.join(fields)})"


def _fields(source: Source, names: Sequence[str], *, of_texts: bool = False) -> str:
    """Return the fields of a row as Spark SQL, with times as STRING.

    Spark would read a number in a TIMESTAMP as seconds.

    Args:
        of_texts: True if DECIMALs are STRING, too.
    """
    types = {column.name: widen_integers(column.type, JSON) for column in source.columns}
    written = {name: types[name] in TIMES or (of_texts and types[name].is_decimal) for name in names}
    return ", ".join(f"{quote_name(name)}: {STRING if written[name] else types[name]}" for name in names)


def _build_envelope_fields(row: str, others: Iterable[str] = ()) -> str:
    """Build the fields of an event, with or without its schema, from those of a row.

    Args:
        others: see `event_fields`.
    """
    envelope = f"before: STRUCT<{row}>, after: STRUCT<{row}>, op: STRING"
    paths = dict.fromkeys(others)
    of_source = [path.removeprefix("source.") for path in paths if path.startswith("source.")]
    told = [f"{path}: STRING" for path in paths if not path.startswith("source.")]
    if of_source:
        told.append(f"source: STRUCT<{', '.join(f'{quote_name(name)}: STRING' for name in of_source)}>")
    envelope = ", ".join([envelope, *told])
    return f"{envelope}, payload: STRUCT<{envelope}>"


def _event_columns(source: Source, fields: Mapping[str, str], events: Sequence[str]) -> dict[str, str]:
    """Build the frame's columns for the columns that the event itself fills."""
    types = {column.name: column.type for column in source.columns}
    names, parts = _event_column_names(fields), {}
    for column, path in fields.items():
        own = ".".join(map(quote_name, path.split(".")))
        told = ", ".join(f"{event}.payload.{own}, {event}.{own}" for event in events)
        parts[names[column]] = f"try_cast(coalesce({told}) AS {types[column]})"
    return parts


def _event_column_names(fields: Iterable[str]) -> dict[str, str]:
    """Return the names in the frame of events of the columns that the event itself fills."""
    return {column: ours(f"field{number}") for number, column in enumerate(fields)}


def _add_event_fields(source: Source, fields: Mapping[str, str]) -> str:
    """Build the SQL of the row after, with the columns that the event itself fills."""
    names = _event_column_names(fields)
    told = (
        f"{literal(c.name)}, {names.get(c.name, f'{_AFTER}.{quote_name(c.name)}')}" for c in source.columns
    )
    return f"IF({_AFTER} IS NULL, NULL, named_struct({', '.join(told)}))"


def _key_fields(row: str) -> str:
    """Build the fields of a record's key, with or without its schema."""
    return f"{row}, payload: STRUCT<{row}>"


def _parse_rows(
    text: str,
    fields: str,
    source: Source,
    names: Sequence[str],
    parser: Mapping[str, str],
    paths: Sequence[str] = _ROW_PATHS,
) -> str:
    """Build the SQL that parses a text with rows of columns ``names`` at these paths.

    The result has the form of `parse_whole_json`.
    """
    types = {column.name: column.type for column in source.columns if column.name in names}

    def lacks_some(record: str) -> str:
        rows = (record + path.removeprefix("$") for path in paths)
        lacking = (f"({row} IS NOT NULL AND {lacks_column(row, types)})" for row in rows)
        return f"({' OR '.join(lacking)})"

    json_names = JsonNames.of(types.items(), paths)
    return parse_whole_json(text, fields, parser, json_names, lacks_some)


def _add_schema_types(
    raw: DataFrame, source: Source, names: Sequence[str], parser: Mapping[str, str]
) -> DataFrame:
    """Add the text of each record, and its schema's types of columns whose values need them.

    `_AS_TEXT`: a DECIMAL is not a number and must not be read as one. `_HAS_SCHEMA`: the schema says
    what
    it is.
    """
    types = _type_columns(source, names)
    raw = raw.withColumn(_TEXT, F.expr("CAST(value AS STRING)"))
    columns = schema_columns_sql(_TEXT, parser) if types else "CAST(NULL AS ARRAY<STRING>)"
    raw = raw.withColumn(_COLUMNS, F.expr(columns))
    raw = raw.withColumns({own: F.expr(schema_column_sql(_COLUMNS, name)) for name, own in types.items()})
    told, has_texts = (
        f"{_COLUMNS} IS NOT NULL",
        _has_texts(_TEXT, _build_envelope_fields, _decimals(source, names), parser),
    )
    if reads_decimal_texts(source.options):
        has_texts = f"{told} AND {has_texts}"
    raw = raw.withColumn(_AS_TEXT, F.expr(has_texts))
    return raw.withColumn(_HAS_SCHEMA, F.expr(f"{_AS_TEXT} AND {told}"))


def _type_columns(source: Source, names: Sequence[str]) -> dict[str, str]:
    """Return the names of the frame's columns that contain the schema's type of each column."""
    told = [c.name for c in source.columns if c.name in names and (c.type in TIMES or c.type.is_decimal)]
    return {name: ours(f"type{number}") for number, name in enumerate(told)}


def _decimals(source: Source, names: Sequence[str]) -> list[str]:
    return [column.name for column in source.columns if column.name in names and column.type.is_decimal]


def _read_struct_decimals(source: Source, names: Sequence[str], part: str) -> str:
    """Build the SQL of the STRUCT ``part`` with its DECIMALs read from their texts."""
    decimals = _read_decimals(source, names, _ROW)
    fields = (f"{literal(name)}, {decimals.get(name, f'{_ROW}.{quote_name(name)}')}" for name in names)
    return bind_value(_ROW, part, f"IF({_ROW} IS NULL, NULL, named_struct({', '.join(fields)}))")


def _read_decimals(source: Source, names: Sequence[str], part: str) -> dict[str, str]:
    types = _type_columns(source, names)
    return {
        column.name: decimal_sql(f"{part}.{quote_name(column.name)}", column.type, types[column.name])
        for column in source.columns
        if column.name in names and column.type.is_decimal
    }


def _record_text(
    column: str,
    fields_of: Callable[[str], str],
    source: Source,
    names: Sequence[str],
    parser: Mapping[str, str],
) -> str:
    """Build the SQL of a record's text.

    It is NULL if a DECIMAL is a text and the options do not declare such texts to be numbers: Spark
    would
    read base64 bytes as a number if they consist of digits.
    """
    text = f"CAST({column} AS STRING)"
    if reads_decimal_texts(source.options):
        return text
    return f"IF({_has_texts(text, fields_of, _decimals(source, names), parser)}, NULL, {text})"


def _has_texts(
    text: str, fields_of: Callable[[str], str], decimals: Sequence[str], parser: Mapping[str, str]
) -> str:
    """Build the SQL condition that one of these columns is not a number.

    Spark reads a DOUBLE only from numbers.
    """
    if not decimals:
        return "false"
    numbers = _parse(text, fields_of(", ".join(f"{quote_name(name)}: {DOUBLE}" for name in decimals)), parser)
    is_text = f"{numbers}.{_CORRUPT} IS NOT NULL"
    if (others := JsonNames.of((name, DOUBLE) for name in decimals)).names:
        text_there = literal(rf'{others.in_another_case}[ \t\r\n]*+"')
        is_text = f"({is_text} OR rlike({text}, {text_there}))"
    return is_text


def _parse(text: str, fields: str, parser: Mapping[str, str]) -> str:
    options = dict(parser) | {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return f"from_json({text}, {literal(f'STRUCT<{fields}, {_CORRUPT}: STRING>')}, {options_map(options)})"


def _build_typed_struct(source: Source, names: Sequence[str], part: str, parser: Mapping[str, str]) -> str:
    """Build the SQL of the STRUCT ``part`` with values of the declared types."""
    values = _value_readings(source, names, part, parser)
    if not values:
        return part
    fields = (f"{literal(name)}, {values.get(name, f'{part}.{quote_name(name)}')}" for name in names)
    return f"IF({part} IS NULL, NULL, named_struct({', '.join(fields)}))"


def _row_columns(source: Source) -> list[str]:
    """List the columns that are in the rows before and after."""
    fields = event_fields(source)
    return [column.name for column in source.columns if column.name not in fields]


def _value_readings(
    source: Source, names: Sequence[str], part: str, parser: Mapping[str, str]
) -> dict[str, str]:
    """Return SQL that reads times from their texts, and integers from wider ones; NULL if that fails."""
    unit, types = timestamps_unit(source.options), _type_columns(source, _row_columns(source))
    integers = {
        column.name: f"IF({misfit_sql(own, column.type, JSON)}, NULL, CAST({own} AS {column.type}))"
        for column in narrow_columns(source, JSON)
        if column.name in names and (own := f"{part}.{quote_name(column.name)}")
    }
    return integers | {
        column.name: debezium_time(
            f"{part}.{quote_name(column.name)}", column.type, unit, parser, f"{types[column.name]}.name"
        )
        for column in source.columns
        if column.name in names and column.type in TIMES
    }


def _omitted_conditions(source: Source, row: str) -> dict[str, str]:
    """Build per column the condition that the event omits a large value that did not change."""
    return {
        column.name: f"coalesce({_is_placeholder(f'{row}.{quote_name(column.name)}', column.type)}, false)"
        for column in source.columns
        if placeholders(column.type) and column.name not in event_fields(source)
    }


def _is_placeholder(value: str, kind: SqlType) -> str:
    if kind.name == "MAP":  # Spark does not compare maps
        return f"map_keys({value}) = array({literal(UNAVAILABLE)})"
    return f"{value} IN ({', '.join(_literal(own) for own in placeholders(kind))})"


def _literal(value: Any) -> str:
    if isinstance(value, list):
        return f"array({', '.join(map(_literal, value))})"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return literal(value) if isinstance(value, str) else str(value)


def _fill_from_before(source: Source, left_out: Mapping[str, str]) -> str:
    """Build the SQL of the row after, with omitted values from the row before where it has them."""
    before = _omitted_conditions(source, _BEFORE)
    fields = []
    for column in source.columns:
        own, value = (f"{row}.{quote_name(column.name)}" for row in (_BEFORE, _AFTER))
        if column.name in left_out:
            has_it = f"{left_out[column.name]} AND {own} IS NOT NULL AND NOT {before[column.name]}"
            value = f"IF({has_it}, {own}, {value})"
        fields.append(f"{literal(column.name)}, {value}")
    return f"IF({' OR '.join(left_out.values())}, named_struct({', '.join(fields)}), {_AFTER})"


def _unknown_value_sql(key: PrimaryKey | None, left_out: Mapping[str, str]) -> str:
    """Build the SQL condition that an omitted value is unknown.

    With a primary key, an update takes the value from the existing row (`kernel.placeholders`).
    """
    if key is None:
        return " OR ".join(left_out.values()) or "false"
    of_key = [condition for name, condition in left_out.items() if name in key.named]
    anywhere = f"({_OP} <> 'u' AND ({' OR '.join(left_out.values()) or 'false'}))"
    return " OR ".join([anywhere, *of_key])
