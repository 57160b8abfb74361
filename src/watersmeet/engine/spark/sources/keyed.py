"""Frames of tables with a primary key: records that say which change they are, and format ``upsert-json``.

A record whose key is NULL in any column, or one that brings a row without a sequence, is broken; where
records come in no order that counts, so is a delete without one. What else a delete says is not looked at:
its other columns are NULL, so that nothing that is computed of them can fail.

``upsert-json``: the value is the row as JSON; a record without one deletes the row of its key. The record's
key is a JSON object with the columns of the primary key, or, with ``'key.format' = 'raw'``, the text of its
one column. A value need not repeat them; where it does and says something else, the record is broken. So is
one whose key has a decimal with more digits than its column: rounded, it would be the key of another row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from watersmeet.engine.spark import lazy_functions as F
from watersmeet.engine.spark.rounded_decimals import TopicRecord
from watersmeet.engine.spark.sources.changes import value_sql
from watersmeet.engine.spark.sources.views import BROKEN
from watersmeet.engine.spark.text import quoted
from watersmeet.engine.spark.whole_json import lacks_column, not_whole, object_in, whole, whole_json
from watersmeet.engine.tasks.files.taken import MAX_DIGITS
from watersmeet.names import DIFF, PARTITION, ours
from watersmeet.spec.changing import PrimaryKey
from watersmeet.spec.model import Source
from watersmeet.spec.options.kafka import RAW, key_format
from watersmeet.spec.records.changes import columns_of_deletes
from watersmeet.spec.records.json_names import JsonNames
from watersmeet.types.sql_type import SqlType, decimal

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

_PARSED, _KEY, _NO_VALUE = ours("parsed"), ours("key"), ours("no_value")


def with_key(frame: DataFrame, source: Source) -> DataFrame:
    """The frame with `DIFF`, and records that do not say which change they are as broken, as JSON."""
    key = source.primary_key
    if key is None:
        return frame
    if DIFF not in frame.columns:
        frame = frame.withColumn(DIFF, F.lit(1).cast("bigint"))
    columns = ", ".join(quoted(column.name) for column in source.columns)
    unclear = F.when(F.expr(_unclear(source, key)), F.expr(f"to_json(struct({columns}))"))
    frame = frame.withColumn(BROKEN, F.coalesce(F.col(BROKEN), unclear))
    of_deletes = columns_of_deletes(source)
    others = [column for column in source.row_columns if column.name not in of_deletes]
    return frame.withColumns(
        {
            column.name: F.expr(f"IF({DIFF} < 0, CAST(NULL AS {column.type}), {quoted(column.name)})")
            for column in others
        }
    )


def _unclear(source: Source, key: PrimaryKey) -> str:
    conditions = [f"{value_sql(source, name)} IS NULL" for name in key.columns]
    if key.sequence is not None:
        unknown = f"{value_sql(source, key.sequence)} IS NULL"
        conditions.append(f"({DIFF} > 0 AND {unknown})" if source.traits.in_order else unknown)
    return " OR ".join(conditions)


def upserts(
    raw: DataFrame,
    source: Source,
    partition: SparkColumn,
    parser: Mapping[str, str],
    metadata: Mapping[str, str],
) -> DataFrame:
    """The declared columns, `PARTITION`, `BROKEN` and `DIFF`, of Kafka's records in format ``upsert-json``.

    Args:
        parser: options of Spark's JSON parser.
        metadata: what fills columns that are in neither key nor value, as Spark SQL.
    """
    key = source.primary_key
    assert key is not None
    types = {column.name: column.type for column in source.columns}
    values = {name: types[name] for name in types if name not in metadata}
    record = TopicRecord(source, values, _PARSED, object_in)
    told = record.parse(lambda types: _object("CAST(value AS STRING)", types, parser))
    frame = raw.select(
        F.expr(told).alias(_PARSED),
        F.expr(_key_of(source, key, parser)).alias(_KEY),
        F.expr("value IS NULL").alias(_NO_VALUE),
        F.expr("coalesce(CAST(value AS STRING), CAST(key AS STRING), '')").alias("value"),
        F.expr("key IS NOT NULL").alias("key"),
        *(F.expr(sql).alias(ours(f"metadata:{name}")) for name, sql in metadata.items()),
        partition.alias(PARTITION),
    )
    broken = [
        f"(NOT {_NO_VALUE} AND {not_whole(record.first)})",
        f"(key AND {not_whole(_KEY)})",
    ]
    if record.second is not None:
        broken.append(f"({record.second} IS NOT NULL AND {not_whole(record.second)})")
    for name in key.columns:
        own, other = record.value(name), _key_value(name, types[name])
        if _exact(types[name]) != types[name]:
            broken.append(f"(key AND NOT ({other} <=> {_key_field(name)}))")
        broken.append(f"(key AND NOT {_NO_VALUE} AND {own} IS NOT NULL AND NOT ({own} <=> {other}))")
        broken.append(f"coalesce({other}, {own}) IS NULL")
    return frame.select(
        *(F.expr(_column(name, key, metadata, record)).alias(name) for name in types),
        F.col(PARTITION),
        F.expr(f"IF({' OR '.join(broken)}, value, NULL)").alias(BROKEN),
        F.expr(f"IF({_NO_VALUE}, -1L, 1L)").alias(DIFF),
        *record.rounded_columns(),
    )


def _column(name: str, key: PrimaryKey, metadata: Mapping[str, str], record: TopicRecord) -> str:
    if name in metadata:
        return quoted(ours(f"metadata:{name}"))
    if name in key.columns:
        return f"coalesce({_key_value(name, record.types[name])}, {record.value(name)})"
    return record.value(name)


def _key_value(name: str, type_: SqlType) -> str:
    """A column of the record's key, as it is declared."""
    value = _key_field(name)
    return value if _exact(type_) == type_ else f"try_cast({value} AS {type_})"


def _key_field(name: str) -> str:
    return f"{object_in(_KEY)}.{quoted(name)}"


def _exact(type_: SqlType) -> SqlType:
    """The type as which a column of a key is read: digits that its own does not have are seen."""
    more = MAX_DIGITS - type_.digits if type_.is_decimal else 0
    return decimal(MAX_DIGITS, type_.scale + more) if more else type_


def _key_of(source: Source, key: PrimaryKey, parser: Mapping[str, str]) -> str:
    """The columns of the key, of the record's, as `whole_json` gives them; decimals with more digits."""
    types = {column.name: _exact(column.type) for column in source.columns if column.name in key.columns}
    if key_format(source.options) == RAW:
        (name,) = key.columns
        return whole(f"try_cast(CAST(key AS STRING) AS {types[name]})", name)
    return _object("CAST(key AS STRING)", types, parser)


def _object(text: str, columns: Mapping[str, SqlType], parser: Mapping[str, str]) -> str:
    """A text as an object of these columns."""
    fields = ", ".join(f"{quoted(name)}: {own}" for name, own in columns.items())
    names = JsonNames.of(columns.items())
    return whole_json(text, fields, parser, names, lambda row: lacks_column(row, columns))
