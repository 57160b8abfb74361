"""Frames whose records change rows: multiplicities, primary keys, upsert-json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from watersmeet.names import DIFF, PARTITION, ours
from watersmeet.runtime.files.supported_types import MAX_DIGITS
from watersmeet.runtime.spark import lazy_functions as F
from watersmeet.runtime.spark.json_object import (
    extract_object,
    is_not_whole,
    lacks_column,
    parse_whole_json,
    wrap_value,
)
from watersmeet.runtime.spark.rounded_decimals import TopicRecord
from watersmeet.runtime.spark.sources.columns import BROKEN
from watersmeet.runtime.spark.sql_text import literal, quote_name, to_spark_sql
from watersmeet.spec.change_kinds import ChangeColumn, PrimaryKey
from watersmeet.spec.model import Source
from watersmeet.spec.options.changes import MOST_TIMES
from watersmeet.spec.options.kafka import RAW, key_format
from watersmeet.spec.records.changes import columns_of_deletes, computed_expr
from watersmeet.spec.records.text_records import JsonNames
from watersmeet.types.sql_type import SqlType, decimal

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame


# Frames whose records say what becomes of rows: the diff as a column, and records that do not say it.


def add_diff_column(frame: DataFrame, source: Source) -> DataFrame:
    """Add `DIFF` to the frame, if its records have a column that classifies the change.

    Records with an unknown value in it become broken, as JSON.
    """
    change = source.change_column
    if change is None:
        return frame
    diff = F.expr(diff_sql(change, value_sql(source, change.column)))
    columns = ", ".join(quote_name(column.name) for column in source.columns)
    unclear = F.when(diff.isNull(), F.expr(f"to_json(struct({columns}))"))
    return frame.withColumns({DIFF: diff, BROKEN: F.coalesce(F.col(BROKEN), unclear)})


def value_sql(source: Source, name: str) -> str:
    """Return a column of the records, or one that is computed of them, as Spark SQL over the records'."""
    computed = computed_expr(source.computed, name)
    return quote_name(name) if computed is None else f"({to_spark_sql(computed)})"


def diff_sql(change: ChangeColumn, value: str) -> str:
    """Return how often the row comes (below zero: goes), as Spark SQL; NULL: the value does not say it."""
    if change.is_diff:
        diff = f"CAST({value} AS BIGINT)"
        return f"IF({diff} BETWEEN -{MOST_TIMES} AND {MOST_TIMES}, {diff}, NULL)"
    arms = (
        f"WHEN CAST({value} AS STRING) IN ({', '.join(map(literal, values))}) THEN {diff}L"
        for values, diff in ((change.inserts, 1), (change.deletes, -1))
    )
    return f"CASE {' '.join(arms)} END"


# Frames of tables with a primary key: records that say which change they are, and format ``upsert-json``.
#
# A record whose key is NULL in any column, or one that brings a row without a sequence, is broken; where
# records come in no order that counts, so is a delete without one. What else a delete says is not looked
# at: its other columns are NULL, so that nothing that is computed of them can fail.
#
# ``upsert-json``: the value is the row as JSON; a record without one deletes the row of its key. The
# record's key is a JSON object with the columns of the primary key, or, with ``'key.format' = 'raw'``,
# the text of its one column. A value need not repeat them; where it does and says something else, the
# record is broken. So is one whose key has a decimal with more digits than its column: rounded, it would
# be the key of another row.

_PARSED, _KEY, _NO_VALUE = ours("parsed"), ours("key"), ours("no_value")


def add_key_checks(frame: DataFrame, source: Source) -> DataFrame:
    """Add `DIFF` to the frame, and mark records that do not identify their change as broken.

    The text of such a record is JSON.
    """
    key = source.primary_key
    if key is None:
        return frame
    if DIFF not in frame.columns:
        frame = frame.withColumn(DIFF, F.lit(1).cast("bigint"))
    columns = ", ".join(quote_name(column.name) for column in source.columns)
    unclear = F.when(F.expr(_unclear_sql(source, key)), F.expr(f"to_json(struct({columns}))"))
    frame = frame.withColumn(BROKEN, F.coalesce(F.col(BROKEN), unclear))
    of_deletes = columns_of_deletes(source)
    others = [column for column in source.row_columns if column.name not in of_deletes]
    return frame.withColumns(
        {
            column.name: F.expr(f"IF({DIFF} < 0, CAST(NULL AS {column.type}), {quote_name(column.name)})")
            for column in others
        }
    )


def _unclear_sql(source: Source, key: PrimaryKey) -> str:
    conditions = [f"{value_sql(source, name)} IS NULL" for name in key.columns]
    if key.sequence is not None:
        unknown = f"{value_sql(source, key.sequence)} IS NULL"
        conditions.append(f"({DIFF} > 0 AND {unknown})" if source.traits.in_order else unknown)
    return " OR ".join(conditions)


def read_upserts(
    raw: DataFrame,
    source: Source,
    partition: SparkColumn,
    parser: Mapping[str, str],
    metadata: Mapping[str, str],
) -> DataFrame:
    """Read Kafka records of format ``upsert-json``.

    Args:
        parser: options of Spark's JSON parser.
        metadata: the Spark SQL that fills columns that are in neither key nor value.

    Returns:
        The declared columns, `PARTITION`, `BROKEN` and `DIFF`.
    """
    key = source.primary_key
    assert key is not None
    types = {column.name: column.type for column in source.columns}
    values = {name: types[name] for name in types if name not in metadata}
    record = TopicRecord(source, values, _PARSED, extract_object)
    told = record.parse(lambda types: _parse_object("CAST(value AS STRING)", types, parser))
    frame = raw.select(
        F.expr(told).alias(_PARSED),
        F.expr(_parse_key(source, key, parser)).alias(_KEY),
        F.expr("value IS NULL").alias(_NO_VALUE),
        F.expr("coalesce(CAST(value AS STRING), CAST(key AS STRING), '')").alias("value"),
        F.expr("key IS NOT NULL").alias("key"),
        *(F.expr(sql).alias(ours(f"metadata:{name}")) for name, sql in metadata.items()),
        partition.alias(PARTITION),
    )
    broken = [
        f"(NOT {_NO_VALUE} AND {is_not_whole(record.first)})",
        f"(key AND {is_not_whole(_KEY)})",
    ]
    if record.second is not None:
        broken.append(f"({record.second} IS NOT NULL AND {is_not_whole(record.second)})")
    for name in key.columns:
        own, other = record.value(name), _key_value(name, types[name])
        if _widened_key_type(types[name]) != types[name]:
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
        return quote_name(ours(f"metadata:{name}"))
    if name in key.columns:
        return f"coalesce({_key_value(name, record.types[name])}, {record.value(name)})"
    return record.value(name)


def _key_value(name: str, type_: SqlType) -> str:
    """Return the SQL of a column of the record's key, in its declared type."""
    value = _key_field(name)
    return value if _widened_key_type(type_) == type_ else f"try_cast({value} AS {type_})"


def _key_field(name: str) -> str:
    return f"{extract_object(_KEY)}.{quote_name(name)}"


def _widened_key_type(type_: SqlType) -> SqlType:
    """Return the type to read a key column with: it retains digits that the declared type lacks."""
    more = MAX_DIGITS - type_.digits if type_.is_decimal else 0
    return decimal(MAX_DIGITS, type_.scale + more) if more else type_


def _parse_key(source: Source, key: PrimaryKey, parser: Mapping[str, str]) -> str:
    """Build the SQL of the record's key columns in the form of `parse_whole_json`.

    Decimals get more digits.
    """
    types = {
        column.name: _widened_key_type(column.type) for column in source.columns if column.name in key.columns
    }
    if key_format(source.options) == RAW:
        (name,) = key.columns
        return wrap_value(f"try_cast(CAST(key AS STRING) AS {types[name]})", name)
    return _parse_object("CAST(key AS STRING)", types, parser)


def _parse_object(text: str, columns: Mapping[str, SqlType], parser: Mapping[str, str]) -> str:
    """Build the SQL that parses a text as an object of these columns."""
    fields = ", ".join(f"{quote_name(name)}: {own}" for name, own in columns.items())
    names = JsonNames.of(columns.items())
    return parse_whole_json(text, fields, parser, names, lambda row: lacks_column(row, columns))
