"""Groups that Spark aggregates: tasks put out rows of windows that close, its groupBy does the rest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, singledispatch

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from watersmeet.plan.model.nodes import AggregatePlan, NodePlan
from watersmeet.runtime.messages.shapes import AggregateShape, NodeShape
from watersmeet.runtime.spark.sql_text import quote_name, to_spark_sql
from watersmeet.spec.model import WINDOW_END, WINDOW_START
from watersmeet.types.sql_type import TIMESTAMP, SqlType

_WINDOW = (WINDOW_START, WINDOW_END)


ResultFunction = Callable[[DataFrame], DataFrame]


@singledispatch
def build_results(node: NodePlan, shape: NodeShape) -> ResultFunction | None:
    """Return the function that computes a node's output from the rows of its tasks.

    Returns:
        The function, or None if the tasks' rows are the output.
    """
    return None


@build_results.register
def _(node: AggregatePlan, shape: AggregateShape) -> ResultFunction | None:
    zoned = getattr(shape.window_type, "tz", None) is not None
    if not shape.by_spark and (_window_type(node) != TIMESTAMP or zoned):
        return None
    return partial(_group_frame if shape.by_spark else _compute_windows, node)


def _compute_windows(node: AggregatePlan, frame: DataFrame) -> DataFrame:
    """Return the rows with their windows as the plan defines them."""
    others = [F.col(quote_name(name)) for name in frame.columns if name not in _WINDOW]
    return frame.select(*_windows(node), *others)


def _group_frame(node: AggregatePlan, frame: DataFrame) -> DataFrame:
    """Group and aggregate the rows as `AggregatePlan.results` describes."""
    keys = [F.col(quote_name(column)).alias(name) for name, column in node.keys]
    calls = [F.expr(to_spark_sql(call.expr)).alias(call.name) for call in node.calls]
    return frame.groupBy(*_windows(node), *keys).agg(*calls)


def _windows(node: AggregatePlan) -> list[Column]:
    return [F.col(name).cast(str(_window_type(node))).alias(name) for name in _WINDOW]


def _window_type(node: AggregatePlan) -> SqlType:
    return next(column.type for column in node.results if column.name == WINDOW_START)
