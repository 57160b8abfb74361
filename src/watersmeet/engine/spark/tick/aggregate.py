"""Groups that Spark aggregates: tasks put out rows of windows that close, its groupBy does the rest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, singledispatch

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from watersmeet.engine.messages.shapes import AggregateShape, NodeShape
from watersmeet.engine.spark.text import quoted, sql_of
from watersmeet.plan.model.nodes import AggregatePlan, NodePlan
from watersmeet.spec.model import WINDOW_END, WINDOW_START
from watersmeet.types.sql_type import TIMESTAMP, SqlType

_WINDOW = (WINDOW_START, WINDOW_END)


Results = Callable[[DataFrame], DataFrame]


@singledispatch
def results_of(node: NodePlan, shape: NodeShape) -> Results | None:
    """What makes the rows that leave a node of those that its tasks put out; None: they are these."""
    return None


@results_of.register
def _(node: AggregatePlan, shape: AggregateShape) -> Results | None:
    zoned = getattr(shape.window_type, "tz", None) is not None
    if not shape.by_spark and (_window_type(node) != TIMESTAMP or zoned):
        return None
    return partial(_grouped if shape.by_spark else _with_windows, node)


def _with_windows(node: AggregatePlan, frame: DataFrame) -> DataFrame:
    """The rows, with their windows as the plan says that these are."""
    others = [F.col(quoted(name)) for name in frame.columns if name not in _WINDOW]
    return frame.select(*_windows(node), *others)


def _grouped(node: AggregatePlan, frame: DataFrame) -> DataFrame:
    """What `AggregatePlan.results` says."""
    keys = [F.col(quoted(column)).alias(name) for name, column in node.keys]
    calls = [F.expr(sql_of(call.expr)).alias(call.name) for call in node.calls]
    return frame.groupBy(*_windows(node), *keys).agg(*calls)


def _windows(node: AggregatePlan) -> list[Column]:
    return [F.col(name).cast(str(_window_type(node))).alias(name) for name in _WINDOW]


def _window_type(node: AggregatePlan) -> SqlType:
    return next(column.type for column in node.results if column.name == WINDOW_START)
