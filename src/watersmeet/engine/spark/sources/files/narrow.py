"""Integers of Parquet files that are declared TINYINT or SMALLINT, at any depth.

Parquet stores them in 32 bits, whatever their values, and Spark's reader keeps the low bits of what does not
fit: 70000 becomes 4464. So such columns are read as INT, and a record with a value that does not fit is
broken.
"""

from __future__ import annotations

from itertools import count

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.engine.spark.sources.views import BROKEN
from watersmeet.engine.spark.text import quoted
from watersmeet.spec.model import Column, Source
from watersmeet.types.sql_type import SMALLINT, TINYINT, SqlType

_LEAST = {TINYINT: -128, SMALLINT: -32_768}


def narrow_columns(source: Source) -> list[Column]:
    """Return the declared columns that have TINYINT or SMALLINT in their type."""
    return [column for column in source.columns if _has_narrow(column.type)]


def widen_to_sql(type_: SqlType) -> str:
    """Return the type as Spark SQL, with INT in the place of TINYINT and SMALLINT.

    >>> from watersmeet.types.parser import sql_type
    >>> widen_to_sql(sql_type("ARRAY<STRUCT<n: SMALLINT, d: DECIMAL(3,1)>>"))
    'ARRAY<STRUCT<`n`: INT, `d`: DECIMAL(3,1)>>'
    """
    if type_ in _LEAST:
        return "INT"
    if type_.parts:
        return f"{type_.name}<{', '.join(map(widen_to_sql, type_.parts))}>"
    if type_.is_struct:
        fields = (f"{quoted(field.name)}: {widen_to_sql(field.type)}" for field in type_.fields)
        return f"STRUCT<{', '.join(fields)}>"
    return str(type_)


def mark_misfits(frame: DataFrame, source: Source) -> DataFrame:
    """Give the columns of a frame, which have the types of `widen_to_sql`, their declared types, and add
    `BROKEN`: the record as JSON where a value does not fit. All else in the frame stays."""
    narrow, numbers = narrow_columns(source), count()
    misfits = " OR ".join(f"({_misfit(quoted(column.name), column.type, numbers)})" for column in narrow)
    record = ", ".join(quoted(column.name) for column in source.columns)
    broken = F.expr(f"CASE WHEN {misfits} THEN to_json(struct({record})) END")
    casts = {column.name: f"CAST({quoted(column.name)} AS {column.type})" for column in narrow}
    fitting = {name: F.expr(f"CASE WHEN {BROKEN} IS NULL THEN {cast} END") for name, cast in casts.items()}
    return frame.withColumn(BROKEN, broken).withColumns(fitting)


def _has_narrow(type_: SqlType) -> bool:
    inner = (*type_.parts, *(field.type for field in type_.fields))
    return type_ in _LEAST or any(map(_has_narrow, inner))


def _misfit(value: str, type_: SqlType, numbers: count[int]) -> str:
    """Return a condition of Spark SQL: TRUE where something in a value does not fit, else FALSE or NULL."""
    if type_ in _LEAST:
        least = _LEAST[type_]
        return f"{value} NOT BETWEEN {least} AND {-least - 1}"
    if type_.is_struct:
        parts = [(f"{value}.{quoted(field.name)}", field.type) for field in type_.fields]
        return " OR ".join(f"({_misfit(*part, numbers)})" for part in parts if _has_narrow(part[1]))
    lists = [value] if len(type_.parts) == 1 else [f"map_keys({value})", f"map_values({value})"]
    conditions = []
    for values, element in zip(lists, type_.parts, strict=True):
        if _has_narrow(element):
            name = f"e{next(numbers)}"
            conditions.append(f"exists({values}, {name} -> {_misfit(name, element, numbers)})")
    return " OR ".join(conditions)
