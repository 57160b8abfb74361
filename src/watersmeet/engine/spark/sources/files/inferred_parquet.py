"""The columns of Parquet files by their footers, as Spark reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow import parquet

from watersmeet.engine.spark.sources.files.inferred_types import Told
from watersmeet.engine.spark.sources.files.parquet_types import types_of
from watersmeet.engine.spark.sources.files.there import shown
from watersmeet.engine.tasks.files.parquet_rows import UNREADABLE
from watersmeet.errors import EngineError
from watersmeet.types.sql_type import (
    BIGINT,
    INT,
    MOST_DIGITS,
    SMALLINT,
    TINYINT,
    Field,
    SqlType,
    array,
    map_of,
    struct,
)

_NEAREST = {
    pa.int8(): TINYINT, pa.int16(): SMALLINT, pa.uint8(): SMALLINT, pa.uint16(): INT,
}  # fmt: skip


@dataclass
class FileColumns:
    """What files say of their columns: ``types`` by name, in their order."""

    types: dict[str, SqlType] = field(default_factory=dict)
    notes: list[Told] = field(default_factory=list)
    files: int = 0
    records: int | None = None


def columns_of(name: str, files: Sequence[str]) -> FileColumns:
    """The columns that all ``files`` have; ``name``: of the source.

    Raises:
        EngineError: one cannot be read, or has others than another.
    """
    first: tuple[str, FileColumns] | None = None
    for file in files:
        columns = _of_file(name, file)
        if first is None:
            first = file, columns
        elif _lowered(columns) != _lowered(first[1]):
            raise EngineError(
                f'"{name}": its files have different columns: {shown(first[0])} has {_said(first[1])};'
                f" {shown(file)} has {_said(columns)}",
                code="wrong-columns",
                hint="declare the columns that you need; a file that lacks one reads as NULL",
            )
    assert first is not None
    first[1].files = len(files)
    return first[1]


def _lowered(columns: FileColumns) -> dict[str, SqlType]:
    return {name.lower(): kind for name, kind in columns.types.items()}


def _said(columns: FileColumns) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.types.items())


def _of_file(name: str, file: str) -> FileColumns:
    try:
        meta = parquet.read_metadata(file)
        fields = meta.schema.to_arrow_schema()
    except UNREADABLE as error:
        reason = (
            error.strerror
            if isinstance(error, OSError) and error.strerror
            else "it is not a complete Parquet file"
        )
        raise EngineError(
            f'"{name}": {shown(file)} cannot be read: {reason}',
            code="cannot-infer",
            hint="correct or remove the file, or set 'format' if the files are not Parquet",
        ) from None
    leaves = {
        leaf.path: leaf.physical_type for leaf in (meta.schema.column(n) for n in range(len(meta.schema)))
    }
    columns = FileColumns()
    for column in fields:
        if column.name.lower() in _lowered(columns):
            raise EngineError(
                f'"{name}": {shown(file)} has two columns named {column.name}, which differ in case at'
                " most, so Spark cannot read either",
                code="wrong-columns",
                hint="declare the columns that you need, without that one",
            )
        kind = spark_type(column.type, leaves.get(column.name, ""))
        if kind is None:
            columns.notes.append(
                (None, f"the column {column.name} is left out: Spark cannot read its type {column.type}")
            )
            continue
        columns.types[column.name] = kind
        if pa.types.is_timestamp(column.type) and kind == BIGINT:
            note = (
                f"{column.name} is inferred as BIGINT, in nanoseconds since 1970: Spark cannot read"
                " it as TIMESTAMP"
            )
            columns.notes.append((column.name, note))
    return columns


def spark_type(kind: pa.DataType, physical: str) -> SqlType | None:
    """As Spark infers it; None: that is not known here.

    Args:
        physical: Parquet's type of a column that is not nested, such as ``INT96``.
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = spark_type(kind.value_type, "")
        return element and array(element)
    if pa.types.is_map(kind):
        key, item = spark_type(kind.key_type, ""), spark_type(kind.item_type, "")
        return key and item and map_of(key, item)
    if pa.types.is_struct(kind):
        parts = [(column.name, spark_type(column.type, "")) for column in kind]
        fields = [Field(name, part) for name, part in parts if part is not None]
        return struct(fields) if fields and len(fields) == len(parts) else None
    if pa.types.is_timestamp(kind) and kind.unit == "ns" and not physical:
        return None
    if pa.types.is_decimal(kind) and kind.precision > MOST_DIGITS:
        return None
    if kind in _NEAREST:
        return _NEAREST[kind]
    return next(iter(types_of(kind, physical)), None)
