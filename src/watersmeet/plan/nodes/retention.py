"""Eviction bounds: below which event time a row can match nothing more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import singledispatch

import numpy as np

from watersmeet.conditions import Bound, Horizon
from watersmeet.errors import PlanError
from watersmeet.event_time import (
    MAX_TIME,
    MIN_TIME,
    NEVER,
    Side,
    TimeColumn,
    TimeComparison,
    TimeConstant,
    TimeExpr,
    TimeFloor,
    TimeSum,
    Watermark,
    evaluate_comparison,
    saturate,
    shift,
)
from watersmeet.plan.model.nodes import ArrangePlan, JoinPlan, LookupPlan, MatchPlan, NodePlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.spec.model import JoinKind, Options, OutputMode, WatermarkRule

# Limits: below which event time a row can match nothing that is still to come.
#
# ``limit[A]`` is the greatest ``W[B] - c`` over the bounds on A. Arithmetic on times saturates, so near
# the ends of int64 a condition as written may accept what ``W[B] - c`` would rule out (``l.t - 5 >= r.t``
# holds for two times near the least one); there the condition itself is asked, and no possible match is
# lost.


def limits(
    join: MatchPlan, watermarks: Mapping[str, Watermark], lateness: Mapping[str, int] | None = None
) -> dict[str, Watermark]:
    """Compute limit[A] per watermark key ``alias.column``, with lateness subtracted.

    Keys without a bound are absent. A limit never decreases unless a watermark does.

    Args:
        watermarks: Watermarks of the keys of both sides.
        lateness: allowed_lateness per key. Watermarks that a node emits already include it.
    """
    result: dict[str, Watermark] = {}
    for bound in join.bounds:
        watermark = watermarks.get(bound.by)
        if watermark is None:
            continue
        limit = shift(_limit(join, bound, watermark), -(lateness or {}).get(bound.by, 0))
        result[bound.evicted] = max(limit, result.get(bound.evicted, limit))
    return result


def horizon_limits(horizon: Horizon, on_time: Mapping[str, Watermark]) -> dict[str, Watermark]:
    """Compute the horizon of a join for the keys of both sides.

    The horizon is the limit, the smallest time that is on time, and the output watermark. It never
    decreases unless a watermark does.

    Args:
        on_time: Watermarks of those keys, with allowed_lateness subtracted.
    """
    least = min(on_time.get(key, NEVER) for key in horizon.keys)
    return dict.fromkeys(horizon.keys, shift(least, -horizon.reach))


def _limit(join: MatchPlan, bound: Bound, watermark: Watermark) -> Watermark:
    if isinstance(watermark, float):
        return watermark
    limit = min(max(watermark - bound.c, bound.low), bound.high)
    reach = 2 * bound.slack + 2
    inside = all(MIN_TIME + reach <= time <= MAX_TIME - reach for time in (watermark, watermark - bound.c))
    if not bound.slack or inside:
        return limit
    evicted, by = _column(join, bound.evicted), _column(join, bound.by)
    asked = [
        _least_that_may_match(below, evicted, by, watermark)
        for comparison in join.comparisons
        if (below := _bounding_from_below(comparison, evicted, by)) is not None
    ]
    if asked:
        return min(limit, max(asked))
    # A derived bound, of no comparison alone: values are off by at most slack, and only near the ends.
    low = saturate(limit - bound.slack)
    return min(limit if limit > MIN_TIME + reach and watermark > MIN_TIME + reach else low, MAX_TIME - reach)


def _column(join: MatchPlan, key: str) -> TimeColumn:
    for side in Side:
        plan = join.side(side)
        for column in plan.event_times:
            if plan.watermark_key(column) == key:
                return TimeColumn(side, column)
    raise AssertionError(f"bound on an unknown watermark key {key}")


def _columns(expr: TimeExpr) -> list[TimeColumn]:
    match expr:
        case TimeColumn():
            return [expr]
        case TimeConstant():
            return []
        case TimeFloor(operand, _):
            return _columns(operand)
        case TimeSum(left, right, _):
            return _columns(left) + _columns(right)


def _sign(expr: TimeExpr, column: TimeColumn) -> int:
    """Return +1 if ``expr`` rises with ``column``, −1 if it falls, and 0 without the column."""
    match expr:
        case TimeColumn():
            return int(expr == column)
        case TimeConstant():
            return 0
        case TimeFloor(operand, _):
            return _sign(operand, column)
        case TimeSum(left, right, sign):
            return _sign(left, column) + sign * _sign(right, column)


def _bounding_from_below(
    comparison: TimeComparison, evicted: TimeColumn, by: TimeColumn
) -> TimeComparison | None:
    """Return the comparison, closed, if it also holds for all larger times of ``evicted``.

    Each column has to occur once: then each operand, saturating or not, only rises (or only falls) with
    it.

    Returns:
        None if it does not hold for all larger times.
    """
    mentioned = _columns(comparison.left) + _columns(comparison.right)
    if len(mentioned) != 2 or set(mentioned) != {evicted, by}:
        return None
    rises = _sign(comparison.left, evicted) - _sign(comparison.right, evicted) > 0
    if comparison.op != "=" and (comparison.op in (">", ">=")) != rises:
        return None
    return TimeComparison(comparison.left, ">=" if rises else "<=", comparison.right)


def _least_that_may_match(below: TimeComparison, evicted: TimeColumn, by: TimeColumn, watermark: int) -> int:
    """Find the smallest time of ``evicted`` that can still match.

    It matches some time of ``by`` at ``watermark`` or above. A time that matches any of these also
    matches ``watermark`` itself, and so does every larger time; this allows a bisection. If none
    matches, return the largest time plus one.
    """

    def may_match(time: int) -> bool:
        columns = {
            (evicted.side, evicted.column): np.array([time], dtype=np.int64),
            (by.side, by.column): np.array([watermark], dtype=np.int64),
        }
        return bool(evaluate_comparison(below, columns, 1)[0])

    low, high = MIN_TIME, MAX_TIME + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if may_match(middle) else (middle + 1, high)
    return low


# Rule: by ``lateness = join`` one horizon says which rows of a join are late, how long they are retained,
# and what its output watermark is (`conditions.Horizon`). What that rule does not define is refused.
#
# It is for one join of two streams, each of one event time, INNER, LEFT, RIGHT or FULL, whose condition
# bounds how far these times may be apart. Windows may be laid over it: they go by its output watermark.
# Its rows may meet tables as of their tick: nothing is kept of such a row, and none of these is late.

KINDS = (JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL)

_BY_COLUMN = "SET lateness = 'column', which compares each row with the watermark of its own event time"

Why = tuple[str, str]
"""What the rule asks for and does not find, and what helps."""


def with_horizon(
    nodes: Sequence[NodePlan], query: str, options: Options
) -> tuple[tuple[NodePlan, ...], list[PlanError]]:
    """Return the nodes of a query with a horizon on its join.

    If the query does not support one, return the nodes unchanged, with the errors.
    """
    problems = list(_problems(nodes, options))
    if problems:
        return tuple(nodes), [
            PlanError(f'lateness = join: "{query}" {why}', code="join-lateness", hint=hint)
            for why, hint in problems
        ]
    (join,) = _joins(nodes)
    horizon = Horizon(_keys(join), max(abs(bound.c) for bound in join.bounds))
    return tuple(replace(join, horizon=horizon) if node is join else node for node in nodes), []


def _problems(nodes: Sequence[NodePlan], options: Options) -> Iterator[Why]:
    if options.watermark_rule is WatermarkRule.LIMIT:
        yield (
            "also has watermark_rule = limit, and both rules define the output watermark of a join",
            "remove watermark_rule",
        )
    form = list(_of_form(nodes, options))
    if form:
        yield form[0]
        return
    (join,) = _joins(nodes)
    yield from list(_of_join(join)) or _other_streams(nodes, join)


def _of_form(nodes: Sequence[NodePlan], options: Options) -> Iterator[Why]:
    """Yield the reasons why the query does not consist of one join of final rows.

    Other problems follow from these.
    """
    joins = _joins(nodes)
    if options.output_mode is OutputMode.CHANGELOG or any(node.changes for node in nodes):
        yield (
            "has rows that can be retracted, but this rule needs final rows",
            f"write EMIT FINAL, or {_BY_COLUMN}",
        )
    yield from (why for node in nodes for why in _of_node(node))
    if len(joins) != 1:
        joined = f"{len(joins)} joins" if joins else "no join"
        yield (
            f"has {joined}, but this rule supports one join of two streams",
            f"write one join per query and the others in a job that reads its results, or {_BY_COLUMN}",
        )


@singledispatch
def _of_node(node: NodePlan) -> Iterator[Why]:
    """Yield the reasons why a node has another form than the required join."""
    yield from ()


@_of_node.register
def _(node: ArrangePlan) -> Iterator[Why]:
    yield "runs as a delta join, but this rule supports a join of two inputs", "remove plan = delta"


@_of_node.register
def _(node: LookupPlan) -> Iterator[Why]:
    if any(side.sources for side in node.sides):
        yield (
            "joins a stream with a table FOR SYSTEM_TIME AS OF before the join of the streams, but this"
            " rule needs plain streams",
            f"join the streams first and then the table, or {_BY_COLUMN}",
        )


def _joins(nodes: Sequence[NodePlan]) -> list[JoinPlan]:
    return [join for node in nodes for join in _join(node)]


@singledispatch
def _join(node: NodePlan) -> Iterator[JoinPlan]:
    """Yield the node if it is a join that retains the rows of its sides."""
    yield from ()


@_join.register
def _(node: JoinPlan) -> Iterator[JoinPlan]:
    yield node


def _of_join(join: JoinPlan) -> Iterator[Why]:
    if join.asof is not None or join.kind not in KINDS:
        kind = "ASOF" if join.asof is not None else join.kind.value
        yield (
            f"has a join that is {kind}, but this rule supports INNER, LEFT, RIGHT and FULL joins",
            _BY_COLUMN,
        )
        return
    wrong = [why for side in join.sides for why in _of_side(side)]
    yield from wrong
    if not wrong and not {bound.evicted for bound in join.bounds}.issuperset(_keys(join)):
        left, right = _keys(join)
        yield (
            f"does not bound {right} both before and after {left}, which this rule needs",
            f"add {right} BETWEEN {left} - … AND {left} + …",
        )


def _other_streams(nodes: Sequence[NodePlan], join: JoinPlan) -> Iterator[Why]:
    beside = [side.title for node in nodes if node is not join for side in node.sides if side.sources]
    if beside:
        yield (
            f"also reads a stream outside of its join ({beside[0]}), which this rule does not support",
            f"write that stream with an INSERT in another job, or {_BY_COLUMN}",
        )


def _of_side(side: SidePlan) -> Iterator[Why]:
    times = ", ".join(f"{side.title}.{column}" for column in side.event_times)
    if side.feeds:
        yield (
            f"joins derived rows ({side.title}), but this rule needs plain streams",
            f"compute them in another job, or {_BY_COLUMN}",
        )
    elif len(side.event_times) != 1:
        yield (
            (
                f"joins {side.title} by the event times {times or 'none'}, but this rule needs exactly one"
                " per input"
            ),
            "keep only the event time that the condition compares",
        )


def _keys(join: JoinPlan) -> tuple[str, str]:
    """Return the watermark keys of both sides, each of which has one event time."""
    left, right = (join.side(side).watermark_key(join.side(side).event_times[0]) for side in Side)
    return left, right
