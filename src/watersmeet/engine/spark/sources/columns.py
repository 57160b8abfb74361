"""Whether what a source reads has the columns that are declared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from watersmeet.engine.spark.text import quoted
from watersmeet.errors import EngineError, near_names, raise_all
from watersmeet.spec.model import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def check_columns(what: str, source: Source, columns: Sequence[str], where: str) -> None:
    """Raises: EngineError naming the declared columns that ``where`` ("the files have") has not."""
    column_names = {name.lower() for name in columns}
    missing = [column.name for column in source.columns if column.name.lower() not in column_names]
    if missing:
        raise EngineError(
            f"{what}: {where} no column {', '.join(missing)}",
            code="wrong-columns",
            hint=near_names(missing[0], columns) or f"its columns are {', '.join(columns)}",
        )


def check_types(spark: SparkSession, what: str, source: Source, frame: DataFrame) -> None:
    """Raises: EngineError naming the declared columns that ``frame`` has of other types; it has them all."""
    there = {field.name.lower(): field.dataType.simpleString() for field in frame.schema.fields}
    nulls = [f"CAST(NULL AS {column.type}) AS {quoted(column.name)}" for column in source.columns]
    wanted = {field.name: field.dataType.simpleString() for field in spark.range(0).selectExpr(*nulls).schema}
    raise_all(
        [
            EngineError(
                f'{what}: column "{name}" is {there[name.lower()].upper()}, but declared {type_.upper()}',
                code="wrong-columns",
                hint="declare the type that it has, and cast it in a view",
            )
            for name, type_ in wanted.items()
            if there[name.lower()] != type_
        ]
    )
