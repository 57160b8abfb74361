"""Integers that Spark's readers take though they do not fit their declared TINYINT or SMALLINT, at any depth.

Parquet stores both in 32 bits, whatever their values, and Spark's reader keeps the low bits of what does not
fit: 70000 becomes 4464. Its JSON parser takes 128 to 255 for a TINYINT: 200 becomes -56. So such columns are
read as a wider type, and a record with a value that does not fit is broken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from watersmeet.runtime.spark import lazy_functions as F
from watersmeet.runtime.spark.rejected_values import any_nested_misfit
from watersmeet.runtime.spark.sources.columns import BROKEN
from watersmeet.runtime.spark.sql_text import quote_name
from watersmeet.spec.model import Column, Source
from watersmeet.types.sql_type import INT, SMALLINT, TINYINT, SqlType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARQUET = {TINYINT: INT, SMALLINT: INT}
JSON = {TINYINT: SMALLINT}
"""Per reader, the types in whose place it is given wider ones."""

WiderTypes = Mapping[SqlType, SqlType]


def narrow_columns(source: Source, wider: WiderTypes = PARQUET) -> list[Column]:
    """Return the declared columns that have a type in their own that is read as a wider one."""
    return [column for column in source.columns if any(own in wider for own in column.type.every)]


def widen_integers(type_: SqlType, wider: WiderTypes = PARQUET) -> SqlType:
    """Return the type with the wider ones in it.

    >>> from watersmeet.types.parser import sql_type
    >>> widen_integers(sql_type("ARRAY<STRUCT<n: SMALLINT, d: DECIMAL(3,1)>>"))
    SqlType('ARRAY<STRUCT<n: INT, d: DECIMAL(3,1)>>')
    """
    parts = tuple(widen_integers(part, wider) for part in type_.parts)
    fields = tuple(replace(field, type=widen_integers(field.type, wider)) for field in type_.fields)
    return wider.get(type_) or replace(type_, parts=parts, fields=fields)


def mark_misfits(frame: DataFrame, source: Source) -> DataFrame:
    """Cast the columns of Parquet files to their declared types, and add `BROKEN`.

    Args:
        frame: Frame whose columns have the types of `widen_integers`.

    Returns:
        The frame. `BROKEN` is the record as JSON where a value does not fit, else NULL. Other columns of the
        frame stay.
    """
    narrow = narrow_columns(source)
    misfits = " OR ".join(f"({misfit_sql(quote_name(column.name), column.type)})" for column in narrow)
    record = ", ".join(quote_name(column.name) for column in source.columns)
    broken = F.expr(f"CASE WHEN {misfits} THEN to_json(struct({record})) END")
    casts = {column.name: f"CAST({quote_name(column.name)} AS {column.type})" for column in narrow}
    fitting = {name: F.expr(f"CASE WHEN {BROKEN} IS NULL THEN {cast} END") for name, cast in casts.items()}
    return frame.withColumn(BROKEN, broken).withColumns(fitting)


def misfit_sql(value: str, type_: SqlType, wider: WiderTypes = PARQUET) -> str | None:
    """Return the Spark SQL condition that something in a value does not fit its type.

    Returns:
        A condition that is TRUE if something does not fit, else FALSE or NULL; None if nothing in the type
        is read as a wider type.
    """

    def misfit(own: str, kind: SqlType) -> str | None:
        least = -(1 << (kind.bits - 1)) if kind in wider else 0
        return f"{own} NOT BETWEEN {least} AND {-least - 1}" if least else None

    return any_nested_misfit(value, type_, misfit)
