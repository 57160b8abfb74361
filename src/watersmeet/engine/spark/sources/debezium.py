"""Debezium's change events as JSON: each becomes the row that goes, the row that comes, or both.

An event holds the row before and after, and what was done (``op``): ``c`` created, ``r`` read by a snapshot,
``u`` updated, ``d`` deleted. With a schema beside it, it is in ``payload``. A record without a value comes
after a delete, for compaction, and says nothing. Source: Debezium's documentation, "Change event values".
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.engine.spark.sources.views import BROKEN
from watersmeet.engine.spark.text import literal, quoted
from watersmeet.names import DIFF, PARTITION, ours
from watersmeet.spec.model import Source

_PARSED, _CORRUPT, _CHANGE = ours("parsed"), ours("corrupt"), ours("change")


def changes(raw: DataFrame, source: Source, partition: SparkColumn, parser: Mapping[str, str]) -> DataFrame:
    """The declared columns, `PARTITION`, `BROKEN` and `DIFF`, of Kafka's records. Broken are events without
    the row that goes (Postgres tells it with REPLICA IDENTITY FULL), and other operations.

    Args:
        parser: options of Spark's JSON parser.
    """
    row = ", ".join(f"{quoted(column.name)}: {column.type}" for column in source.columns)
    envelope = f"before: STRUCT<{row}>, after: STRUCT<{row}>, op: STRING"
    schema = f"STRUCT<{envelope}, payload: STRUCT<{envelope}>, {_CORRUPT}: STRING>"
    options = dict(parser) | {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    given = ", ".join(f"{literal(k)}, {literal(v)}" for k, v in sorted(options.items()))
    parse = f"from_json(CAST(value AS STRING), {literal(schema)}, map({given}))"
    told = raw.where("value IS NOT NULL").select(
        F.expr(parse).alias(_PARSED),
        F.expr("CAST(value AS STRING)").alias("value"),
        partition.alias(PARTITION),
    )
    before, after, op = (_either(part) for part in ("before", "after", "op"))
    change = f"""CASE
        WHEN {_PARSED} IS NULL OR {_PARSED}.{_CORRUPT} IS NOT NULL THEN NULL
        WHEN {op} IN ('c', 'r') AND {after} IS NOT NULL THEN array(struct({after} AS row, 1L AS diff))
        WHEN {op} = 'd' AND {before} IS NOT NULL THEN array(struct({before} AS row, -1L AS diff))
        WHEN {op} = 'u' AND {before} IS NOT NULL AND {after} IS NOT NULL
            THEN array(struct({before} AS row, -1L AS diff), struct({after} AS row, 1L AS diff))
        END"""
    events = told.select(F.expr(f"explode_outer({change})").alias(_CHANGE), F.col("value"), F.col(PARTITION))
    return events.select(
        *(F.col(f"{_CHANGE}.row.{quoted(column.name)}").alias(column.name) for column in source.columns),
        F.col(PARTITION),
        F.when(F.col(_CHANGE).isNull(), F.col("value")).alias(BROKEN),
        F.col(f"{_CHANGE}.diff").alias(DIFF),
    )


def _either(part: str) -> str:
    return f"coalesce({_PARSED}.payload.{part}, {_PARSED}.{part})"
