"""Debezium's change events as JSON: each becomes the row that goes, the row that comes, or both.

An event holds the row before and after, and what was done (``op``): ``c`` created, ``r`` read by a snapshot,
``u`` updated, ``d`` deleted. With a schema beside it, it is in ``payload``. A record without a value comes
after a delete, for compaction, and says nothing. Source: Debezium's documentation, "Change event values".

Of a table with a primary key the row before need not be there: what goes is said by its key, or by the key of
the row after, or of Kafka's record. A row whose key changes goes under the old one and comes under the new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.engine.spark.sources.views import BROKEN
from watersmeet.engine.spark.text import literal, quoted
from watersmeet.names import DIFF, PARTITION, ours
from watersmeet.spec.changing import PrimaryKey
from watersmeet.spec.model import Source

_PARSED, _CORRUPT, _CHANGE, _KEY = ours("parsed"), ours("corrupt"), ours("change"), ours("key")


def changes(raw: DataFrame, source: Source, partition: SparkColumn, parser: Mapping[str, str]) -> DataFrame:
    """The declared columns, `PARTITION`, `BROKEN` and `DIFF`, of Kafka's records, or of lines without a key.
    Broken are events that do not tell the row that goes (Postgres does with REPLICA IDENTITY FULL; with a
    primary key, its key is enough), and other operations.

    Args:
        parser: options of Spark's JSON parser.
    """
    row = _fields(source, [column.name for column in source.columns])
    envelope = f"before: STRUCT<{row}>, after: STRUCT<{row}>, op: STRING"
    parse = _parse("value", f"{envelope}, payload: STRUCT<{envelope}>, {_CORRUPT}: STRING", parser)
    key = source.primary_key
    key_of_record = []
    if key is not None and "key" in raw.columns:
        own = _fields(source, key.columns)
        of_key = _parse("key", f"{own}, payload: STRUCT<{own}>, {_CORRUPT}: STRING", parser)
        key_of_record.append(F.expr(of_key).alias(_KEY))
    told = raw.where("value IS NOT NULL").select(
        F.expr(parse).alias(_PARSED),
        F.expr("CAST(value AS STRING)").alias("value"),
        *key_of_record,
        partition.alias(PARTITION),
    )
    by_row = _by_row() if key is None else _by_key(source, key, has_record_key=bool(key_of_record))
    change = f"CASE WHEN {_PARSED} IS NULL OR {_PARSED}.{_CORRUPT} IS NOT NULL THEN NULL {by_row} END"
    events = told.select(F.expr(f"explode_outer({change})").alias(_CHANGE), F.col("value"), F.col(PARTITION))
    return events.select(
        *(F.col(f"{_CHANGE}.row.{quoted(column.name)}").alias(column.name) for column in source.columns),
        F.col(PARTITION),
        F.when(F.col(_CHANGE).isNull(), F.col("value")).alias(BROKEN),
        F.col(f"{_CHANGE}.diff").alias(DIFF),
    )


def _by_row() -> str:
    before, after, op = (_either(part) for part in ("before", "after", "op"))
    return f"""
        WHEN {op} IN ('c', 'r') AND {after} IS NOT NULL THEN array(struct({after} AS row, 1L AS diff))
        WHEN {op} = 'd' AND {before} IS NOT NULL THEN array(struct({before} AS row, -1L AS diff))
        WHEN {op} = 'u' AND {before} IS NOT NULL AND {after} IS NOT NULL
            THEN array(struct({before} AS row, -1L AS diff), struct({after} AS row, 1L AS diff))"""


def _by_key(source: Source, key: PrimaryKey, *, has_record_key: bool) -> str:
    """A row that gets another key goes with the sequence of the row that comes: it is the same change."""
    before, after, op = (_either(part) for part in ("before", "after", "op"))

    def old(name: str) -> str:
        own = f"{before}.{quoted(name)}"
        if not has_record_key:
            return own
        return f"coalesce({own}, {_KEY}.payload.{quoted(name)}, {_KEY}.{quoted(name)})"

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
    types = {column.name: column.type for column in source.columns}
    return ", ".join(f"{quoted(name)}: {types[name]}" for name in names)


def _parse(column: str, fields: str, parser: Mapping[str, str]) -> str:
    options = dict(parser) | {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    given = ", ".join(f"{literal(k)}, {literal(v)}" for k, v in sorted(options.items()))
    return f"from_json(CAST({column} AS STRING), {literal(f'STRUCT<{fields}>')}, map({given}))"


def _either(part: str) -> str:
    return f"coalesce({_PARSED}.payload.{part}, {_PARSED}.{part})"
