"""Frames whose records say what becomes of rows: the diff as a column, and records that do not say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from watersmeet.engine.spark import lazy_functions as F
from watersmeet.engine.spark.sources.views import BROKEN
from watersmeet.engine.spark.text import literal, quoted, sql_of
from watersmeet.names import DIFF
from watersmeet.spec.changing import ChangeColumn
from watersmeet.spec.model import Source
from watersmeet.spec.options.changes import MOST_TIMES
from watersmeet.spec.records.changes import computed_expr

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_changes(frame: DataFrame, source: Source) -> DataFrame:
    """The frame with `DIFF`, if its records say what changes; those that say it in no known way are broken,
    as JSON."""
    change = source.change_column
    if change is None:
        return frame
    diff = F.expr(diff_sql(change, value_sql(source, change.column)))
    columns = ", ".join(quoted(column.name) for column in source.columns)
    unclear = F.when(diff.isNull(), F.expr(f"to_json(struct({columns}))"))
    return frame.withColumns({DIFF: diff, BROKEN: F.coalesce(F.col(BROKEN), unclear)})


def value_sql(source: Source, name: str) -> str:
    """Return a column of the records, or one that is computed of them, as Spark SQL over the records'."""
    computed = computed_expr(source.computed, name)
    return quoted(name) if computed is None else f"({sql_of(computed)})"


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
