"""The first rows of a Parquet file: of columns of which it is known how Spark reads them as declared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from watersmeet.engine.spark.sources.files.first_found import FirstRows, Row, damaged, refused
from watersmeet.engine.spark.sources.files.inferred_parquet import spark_type
from watersmeet.engine.spark.sources.files.parquet_types import compare_columns
from watersmeet.engine.tasks.files.parquet_rows import UNREADABLE
from watersmeet.spec.model import Column, Source
from watersmeet.types.arrow import sql_name
from watersmeet.types.sql_type import BIGINT, TIMESTAMP, TIMESTAMP_NTZ, SqlType

_OLDEST = datetime(1900, 1, 1)


def read_parquet(
    source: Source, file: str, of_path: Row, options: Any, time_zone: str, first_rows: FirstRows, count: int
) -> None:
    try:
        opened = parquet.ParquetFile(file)
        compare_columns(f'"{source.name}"', source, file)
        fields = {arrow_field.name.lower(): arrow_field for arrow_field in opened.schema_arrow}
        leaves = [opened.metadata.schema.column(n) for n in range(len(opened.metadata.schema))]
    except UNREADABLE:
        raise damaged(source, file, "it is not a complete Parquet file") from None
    physical = {leaf.path: leaf.physical_type for leaf in leaves}
    chosen: dict[str, Column] = {}
    for column in source.columns:
        field = fields.get(column.name.lower())
        if column.name in of_path or field is None:
            continue
        has = spark_type(field.type, physical.get(field.name, ""))
        is_ns = (
            pa.types.is_timestamp(field.type) and has == BIGINT and column.type in (TIMESTAMP, TIMESTAMP_NTZ)
        )
        if has is None or not (is_ns or _is_read_as(has, column.type)):
            if column.type.is_nested:
                first_rows.unchecked = tuple(dict.fromkeys((*first_rows.unchecked, column.name)))
                continue
            raise refused(
                source, f"only Spark can read column {column.name} ({sql_name(field.type)}) as {column.type}"
            )
        chosen[field.name] = column
    left = count - len(first_rows.rows)
    first_rows.more = first_rows.more or opened.metadata.num_rows > left
    for batch in _batches(source, file, opened, min(left, 10_000), list(chosen)):
        batch = batch.slice(0, left)
        values = [_values(source, batch.column(name), column) for name, column in chosen.items()]
        names = [column.name for column in chosen.values()]
        for number in range(batch.num_rows):
            first_rows.rows.append(
                {n: column_values[number] for n, column_values in zip(names, values, strict=True)} | of_path
            )
        left -= batch.num_rows
        if not left:
            return


def _is_read_as(has: SqlType, declared: SqlType) -> bool:
    """Whether a column of a file is read as it is; integers also as wider ones."""
    return has.nullable == declared.nullable or 0 < has.bits <= declared.bits


def _batches(
    source: Source, file: str, opened: parquet.ParquetFile, rows: int, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """Batches that may have other columns, too: ``a`` is also the beginning of ``a.b``."""
    try:
        yield from opened.iter_batches(rows, columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise damaged(source, file, str(error)) from None


def _values(source: Source, array: pa.Array, column: Column) -> list[Any]:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_timestamp(array.type):
        if column.type == BIGINT:
            array = array.cast(pa.int64())
        elif array.type.unit == "ns":  # rounded down, as Spark does
            us = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) // 1000
            missing = array.is_null().to_numpy(zero_copy_only=False)
            array = pa.array(us, mask=missing).cast(pa.timestamp("us"))
        else:
            array = array.cast(pa.timestamp("us"))
    try:
        values: list[Any] = array.to_pylist()
    except (ValueError, OverflowError, UnicodeDecodeError):
        raise refused(source, f"only Spark can read some values of {column.name}") from None
    nested = column.type.is_nested
    old = [
        v for v in (_leaves(values) if nested else values) if isinstance(v, date) and v.year < _OLDEST.year
    ]
    if old:
        raise refused(source, f"only Spark can read times before 1900 ({column.name}: {old[0]})")
    return values


def _leaves(value: Any) -> Iterator[Any]:
    """What nested values come down to."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for element in value:
            yield from _leaves(element)
    else:
        yield value
