"""Groups that Spark aggregates: tasks put out rows of windows that close, its groupBy does the rest."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.engine.messages.shapes import AggregateShape
from watersmeet.engine.spark.text import quoted, sql_of
from watersmeet.plan.model.nodes import AggregatePlan
from watersmeet.spec.model import WINDOW_END, WINDOW_START

_WINDOW = (WINDOW_START, WINDOW_END)


def results_of(frame: DataFrame, shape: AggregateShape, node: AggregatePlan) -> DataFrame:
    """What `AggregatePlan.results` says, of the rows that tasks put out."""
    windows = [F.col(name).cast(_window_type(node)).alias(name) for name in _WINDOW]
    if shape.aggregates is not None:
        others = [F.col(quoted(name)) for name in frame.columns if name not in _WINDOW]
        return frame.select(*windows, *others)
    keys = [F.col(quoted(column)).alias(name) for name, column in node.keys]
    calls = [F.expr(sql_of(call.expr)).alias(call.name) for call in node.calls]
    return frame.groupBy(*windows, *keys).agg(*calls)


def needs_spark(shape: AggregateShape, node: AggregatePlan) -> bool:
    """Whether the tasks' rows are not the results as they are."""
    zoned = getattr(shape.window_type, "tz", None) is not None
    return shape.aggregates is None or (_window_type(node) == "TIMESTAMP" and not zoned)


def _window_type(node: AggregatePlan) -> str:
    return next(column.type for column in node.results if column.name == WINDOW_START)
