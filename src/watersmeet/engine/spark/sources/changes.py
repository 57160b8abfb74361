"""Frames whose records say what becomes of rows: the diff as a column, and records that do not say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from watersmeet.engine.spark import lazy_functions as F
from watersmeet.engine.spark.sources.views import BROKEN
from watersmeet.engine.spark.text import literal, quoted
from watersmeet.names import DIFF
from watersmeet.spec.changing import ChangeColumn
from watersmeet.spec.model import Source
from watersmeet.spec.options.changes import MOST_TIMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_changes(frame: DataFrame, source: Source) -> DataFrame:
    """The frame with `DIFF`, if its records say what changes; those that say it in no known way are broken,
    as JSON."""
    change = source.change_column
    if change is None:
        return frame
    diff = F.expr(diff_sql(change))
    columns = ", ".join(quoted(column.name) for column in source.columns)
    unclear = F.when(diff.isNull(), F.expr(f"to_json(struct({columns}))"))
    return frame.withColumns({DIFF: diff, BROKEN: F.coalesce(F.col(BROKEN), unclear)})


def diff_sql(change: ChangeColumn) -> str:
    """How often the row comes (below zero: goes), as Spark SQL; NULL where the column does not say it."""
    if change.is_diff:
        diff = f"CAST({quoted(change.column)} AS BIGINT)"
        return f"IF({diff} BETWEEN -{MOST_TIMES} AND {MOST_TIMES}, {diff}, NULL)"
    arms = (
        f"WHEN CAST({quoted(change.column)} AS STRING) IN ({', '.join(map(literal, values))}) THEN {diff}L"
        for values, diff in ((change.inserts, 1), (change.deletes, -1))
    )
    return f"CASE {' '.join(arms)} END"
