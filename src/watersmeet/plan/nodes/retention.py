"""Limits: below which event time a row can match nothing that is still to come.

``limit[A]`` is the greatest ``W[B] - c`` over the bounds on A. Arithmetic on times saturates, so near the
ends of int64 a condition as written may accept what ``W[B] - c`` would rule out (``l.t - 5 >= r.t`` holds for
two times near the least one); there the condition itself is asked, and no possible match is lost.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from watersmeet.conditions import Bound, Horizon
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
    holds,
    saturate,
    shift,
)
from watersmeet.plan.model.nodes import MatchPlan


def limits(
    join: MatchPlan, watermarks: Mapping[str, Watermark], lateness: Mapping[str, int] | None = None
) -> dict[str, Watermark]:
    """limit[A] per watermark key ``alias.column``, lateness taken off; keys without a bound are absent.

    Never goes back when no watermark does.

    Args:
        watermarks: of the keys of both sides.
        lateness: allowed_lateness per key; watermarks that a node put out have it in them already.
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
    """The horizon of a join, for the keys of both its sides: limit, least time on time, output watermark.

    Never goes back when no watermark does.

    Args:
        on_time: watermarks of those keys, allowed_lateness taken off.
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
    """+1 when ``expr`` rises with ``column``, −1 when it falls, 0 without it."""
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
    """The comparison, closed, if it holds for all greater times of ``evicted`` too; else None.

    Each column has to come once: then, saturating or not, each operand only rises (or falls) with it.
    """
    mentioned = _columns(comparison.left) + _columns(comparison.right)
    if len(mentioned) != 2 or set(mentioned) != {evicted, by}:
        return None
    rises = _sign(comparison.left, evicted) - _sign(comparison.right, evicted) > 0
    if comparison.op != "=" and (comparison.op in (">", ">=")) != rises:
        return None
    return TimeComparison(comparison.left, ">=" if rises else "<=", comparison.right)


def _least_that_may_match(below: TimeComparison, evicted: TimeColumn, by: TimeColumn, watermark: int) -> int:
    """The least time of ``evicted`` for which some time of ``by`` at or above ``watermark`` may do.

    A time that does for any does for ``watermark`` itself, and so does each greater one: bisection. When none
    does: one above the greatest time.
    """

    def may_match(time: int) -> bool:
        columns = {
            (evicted.side, evicted.column): np.array([time], dtype=np.int64),
            (by.side, by.column): np.array([watermark], dtype=np.int64),
        }
        return bool(holds(below, columns, 1)[0])

    low, high = MIN_TIME, MAX_TIME + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if may_match(middle) else (middle + 1, high)
    return low
