"""Debezium's change events as JSON: each becomes the row that goes, the row that comes, or both.

An event holds the row before and after, and what was done (``op``): ``c`` created, ``r`` read by a snapshot,
``u`` updated, ``d`` deleted. With a schema beside it, it is in ``payload``. A record without a value comes
after a delete, for compaction, and says nothing. Source: Debezium's documentation, "Change event values".

Of a table with a primary key the row before need not be there: what goes is said by its key, or by the key of
the row after, or of Kafka's record. A row whose key changes goes under the old one and comes under the new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.engine.spark.sources.counted_times import time_of
from watersmeet.engine.spark.sources.views import BROKEN
from watersmeet.engine.spark.text import literal, options_map, quoted
from watersmeet.engine.spark.whole_json import lacks_column, not_whole, object_in, whole_json
from watersmeet.names import DIFF, PARTITION, ours
from watersmeet.spec.changing import PrimaryKey
from watersmeet.spec.model import Source
from watersmeet.spec.options.debezium import UNAVAILABLE, reads_decimal_texts, timestamps_unit
from watersmeet.spec.records.json_names import JsonNames
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import BINARY, DOUBLE, STRING, TIMES

_PARSED, _CORRUPT, _CHANGE, _KEY = ours("parsed"), ours("corrupt"), ours("change"), ours("key")
_EVENT = object_in(_PARSED)
_ENVELOPE = ("before", "after", "op", "payload")
_BEFORE, _AFTER, _OP, _WRONG = ours("before"), ours("after"), ours("op"), ours("wrong")


def changes(raw: DataFrame, source: Source, partition: SparkColumn, parser: Mapping[str, str]) -> DataFrame:
    """The declared columns, `PARTITION`, `BROKEN` and `DIFF`, of Kafka's records, or of lines without a key.
    Broken are events that do not tell the row that goes (Postgres does with REPLICA IDENTITY FULL; with a
    primary key, its key is enough), nor all of the row that comes, and other operations.

    Args:
        parser: options of Spark's JSON parser.
    """
    names = [column.name for column in source.columns]
    text = _text("value", _enveloped, source, names, parser)
    parse = _whole(text, source, names, _enveloped, parser, _event_rows)
    key = source.primary_key
    keys = () if key is None or "key" not in raw.columns else key.columns
    parsed = {_PARSED: parse}
    if keys:
        text = _text("key", _of_key, source, keys, parser)
        parsed[_KEY] = _whole(text, source, keys, _of_key, parser, _key_rows)
    value = F.expr("CAST(value AS STRING)").alias("value")
    told = raw.where("value IS NOT NULL").select(
        *(F.expr(sql).alias(name) for name, sql in parsed.items()), value, partition.alias(PARTITION)
    )
    written = {part: f"coalesce({_EVENT}.payload.{part}, {_EVENT}.{part})" for part in ("before", "after")}
    parts = {
        _OP: f"coalesce({_EVENT}.payload.op, {_EVENT}.op)",
        _BEFORE: _typed(source, names, written["before"], parser),
        _AFTER: _typed(source, names, written["after"], parser),
    }
    if keys:
        told_key = object_in(_KEY)
        of_record = ", ".join(
            f"{literal(name)}, coalesce({told_key}.payload.{quoted(name)}, {told_key}.{quoted(name)})"
            for name in keys
        )
        parts[_KEY] = _typed(source, keys, f"named_struct({of_record})", parser)
    wrong = [not_whole(_PARSED)]
    wrong += _untyped(source, names, written.values(), parser)
    wrong += _unavailable(source, written["after"])
    events = told.select(
        *(F.expr(sql).alias(name) for name, sql in parts.items()),
        F.expr(f"coalesce({' OR '.join(wrong)}, false)").alias(_WRONG),
        F.col("value"),
        F.col(PARTITION),
    )
    by_row = _BY_ROW if key is None else _by_key(source, key, has_record_key=bool(keys))
    change = f"CASE WHEN {_WRONG} THEN NULL {by_row} END"
    events = events.select(
        F.expr(f"explode_outer({change})").alias(_CHANGE), F.col("value"), F.col(PARTITION)
    )
    return events.select(
        *(F.col(f"{_CHANGE}.row.{quoted(name)}").alias(name) for name in names),
        F.col(PARTITION),
        F.when(F.col(_CHANGE).isNull(), F.col("value")).alias(BROKEN),
        F.col(f"{_CHANGE}.diff").alias(DIFF),
    )


_BY_ROW = f"""
        WHEN {_OP} IN ('c', 'r') AND {_AFTER} IS NOT NULL THEN array(struct({_AFTER} AS row, 1L AS diff))
        WHEN {_OP} = 'd' AND {_BEFORE} IS NOT NULL THEN array(struct({_BEFORE} AS row, -1L AS diff))
        WHEN {_OP} = 'u' AND {_BEFORE} IS NOT NULL AND {_AFTER} IS NOT NULL
            THEN array(struct({_BEFORE} AS row, -1L AS diff), struct({_AFTER} AS row, 1L AS diff))"""


def _by_key(source: Source, key: PrimaryKey, *, has_record_key: bool) -> str:
    """A row that gets another key goes with the sequence of the row that comes: it is the same change."""
    before, after, op = _BEFORE, _AFTER, _OP

    def old(name: str) -> str:
        own = f"{before}.{quoted(name)}"
        return f"coalesce({own}, {_KEY}.{quoted(name)})" if has_record_key else own

    deleted = _row(
        source,
        {name: old(name) for name in key.columns}
        | ({} if key.sequence is None else {key.sequence: f"{before}.{quoted(key.sequence)}"}),
    )
    moved = _row(
        source,
        {name: f"{before}.{quoted(name)}" for name in key.columns}
        | ({} if key.sequence is None else {key.sequence: f"{after}.{quoted(key.sequence)}"}),
    )
    is_known = " AND ".join(f"{before}.{quoted(name)} IS NOT NULL" for name in key.columns)
    is_other = " OR ".join(
        f"NOT ({before}.{quoted(name)} <=> {after}.{quoted(name)})" for name in key.columns
    )
    has_key = " AND ".join(f"{old(name)} IS NOT NULL" for name in key.columns)
    return f"""
        WHEN {op} IN ('c', 'r') AND {after} IS NOT NULL THEN array(struct({after} AS row, 1L AS diff))
        WHEN {op} = 'd' AND {has_key} THEN array(struct({deleted} AS row, -1L AS diff))
        WHEN {op} = 'u' AND {after} IS NOT NULL AND {is_known} AND ({is_other})
            THEN array(struct({moved} AS row, -1L AS diff), struct({after} AS row, 1L AS diff))
        WHEN {op} = 'u' AND {after} IS NOT NULL THEN array(struct({after} AS row, 1L AS diff))"""


def _row(source: Source, values: Mapping[str, str]) -> str:
    """A row with these columns alone."""
    fields = (
        f"{literal(column.name)}, CAST({values.get(column.name, 'NULL')} AS {column.type})"
        for column in source.columns
    )
    return f"named_struct({', '.join(fields)})"


def _fields(source: Source, names: Sequence[str]) -> str:
    """Times as they are written: a number in a TIMESTAMP would be read as seconds."""
    types = {column.name: column.type for column in source.columns}
    return ", ".join(f"{quoted(name)}: {STRING if types[name] in TIMES else types[name]}" for name in names)


def _enveloped(row: str) -> str:
    """The fields of an event, with or without its schema, of those of a row."""
    envelope = f"before: STRUCT<{row}>, after: STRUCT<{row}>, op: STRING"
    return f"{envelope}, payload: STRUCT<{envelope}>"


def _of_key(row: str) -> str:
    """The fields of a record's key, likewise."""
    return f"{row}, payload: STRUCT<{row}>"


def _event_rows(event: str) -> tuple[str, ...]:
    """Where the rows of an event are, with or without its schema."""
    return (f"{event}.before", f"{event}.after", f"{event}.payload.before", f"{event}.payload.after")


def _key_rows(key: str) -> tuple[str, ...]:
    """Where the columns of a record's key are, likewise."""
    return (key, f"{key}.payload")


def _whole(
    text: str,
    source: Source,
    names: Sequence[str],
    fields_of: Callable[[str], str],
    parser: Mapping[str, str],
    rows_in: Callable[[str], tuple[str, ...]],
) -> str:
    """What `whole_json` makes of a text, with rows of the columns ``names`` in it."""
    types = {column.name: column.type for column in source.columns if column.name in names}

    def lacks_some(record: str) -> str:
        rows = (f"({row} IS NOT NULL AND {lacks_column(row, types)})" for row in rows_in(record))
        return f"({' OR '.join(rows)})"

    json_names = JsonNames.of(types.items(), envelope=_ENVELOPE)
    return whole_json(text, fields_of(_fields(source, names)), parser, json_names, lacks_some)


def _text(
    column: str,
    fields_of: Callable[[str], str],
    source: Source,
    names: Sequence[str],
    parser: Mapping[str, str],
) -> str:
    """The text of a record; NULL where it has a text in the place of a DECIMAL, and nobody says that it is a
    number: Spark would take bytes in base64 for one, if they are digits alone. A DOUBLE it reads of numbers
    only."""
    text = f"CAST({column} AS STRING)"
    decimals = {c.name: c.type for c in source.columns if c.name in names and c.type.is_decimal}
    if not decimals or reads_decimal_texts(source.options):
        return text
    numbers = _parse(text, fields_of(", ".join(f"{quoted(name)}: {DOUBLE}" for name in decimals)), parser)
    is_number = f"{numbers}.{_CORRUPT} IS NULL"
    if (others := JsonNames.of(decimals.items(), _ENVELOPE)).names:
        text_there = literal(rf'{others.in_another_case}[ \t\r\n]*+"')
        is_number += f" AND NOT rlike({text}, {text_there})"
    return f"IF({is_number}, {text}, NULL)"


def _parse(text: str, fields: str, parser: Mapping[str, str]) -> str:
    options = dict(parser) | {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return f"from_json({text}, {literal(f'STRUCT<{fields}, {_CORRUPT}: STRING>')}, {options_map(options)})"


def _typed(source: Source, names: Sequence[str], part: str, parser: Mapping[str, str]) -> str:
    """The STRUCT ``part``, its times read."""
    times = _times(source, names, part, parser)
    if not times:
        return part
    fields = (f"{literal(name)}, {times.get(name, f'{part}.{quoted(name)}')}" for name in names)
    return f"IF({part} IS NULL, NULL, named_struct({', '.join(fields)}))"


def _untyped(
    source: Source, names: Sequence[str], parts: Iterable[str], parser: Mapping[str, str]
) -> list[str]:
    """Conditions: a time cannot be read."""
    return [
        f"({part}.{quoted(name)} IS NOT NULL AND {time} IS NULL)"
        for part in parts
        for name, time in _times(source, names, part, parser).items()
    ]


def _times(source: Source, names: Sequence[str], part: str, parser: Mapping[str, str]) -> dict[str, str]:
    """Times as they are read of their texts; NULL: they cannot be."""
    unit = timestamps_unit(source.options)
    return {
        column.name: time_of(f"{part}.{quoted(column.name)}", column.type, unit, parser)
        for column in source.columns
        if column.name in names and column.type in TIMES
    }


def _unavailable(source: Source, row: str) -> list[str]:
    """Conditions: a large value is left out, for the change did not touch it."""
    placeholders = {
        STRING: literal(UNAVAILABLE),
        BINARY: f"CAST({literal(UNAVAILABLE)} AS BINARY)",
        sql_type("ARRAY<STRING>"): f"array({literal(UNAVAILABLE)})",
    }
    return [
        f"{row}.{quoted(column.name)} = {placeholders[column.type]}"
        for column in source.columns
        if column.type in placeholders
    ]
