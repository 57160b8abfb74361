"""Bands: by which values of one side's rows partners of the other side's rows can be found.

A band turns values of needles into an interval of ordinals in which their partners' values lie. What is exact
in int64 (`Band`) decides, too; in floating point (`RealBand`) the interval is wide enough for all rounding,
and the conjunct as written decides.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from watersmeet.event_time import MAX_TIME, MIN_TIME, Mask, Side, Times
from watersmeet.kernel.ordinals import NAN_ORDINAL, Raw, Reals, real_ordinals
from watersmeet.kernel.probe import Window
from watersmeet.measure import WHOLE, Measure, Measured, RealColumn, RealComparison, RealExpr, RealSum


@dataclass(frozen=True)
class Band:
    """``lower <= right - left <= upper`` over a column of each side, as ``measure`` counts; None is open."""

    left: str
    right: str
    lower: int | None
    upper: int | None
    measure: Measure = WHOLE

    def measured(self, side: Side) -> Measured:
        return Measured(self.left if side is Side.LEFT else self.right, self.measure)

    def window(self, needles: Side, slack: int) -> Window:
        """Where partners of needles of that side are."""
        window = Window(self.lower, self.upper, slack)
        return window if needles is Side.LEFT else window.mirrored()


@dataclass(frozen=True)
class RealBand:
    """See `plan.conditions.bands.RealBand`."""

    left: Measured
    right: Measured
    lower: float | None
    upper: float | None
    size: float
    error: float
    limit: float
    falls: tuple[Side, ...]
    comparison: RealComparison | None

    def measured(self, side: Side) -> Measured:
        return self.left if side is Side.LEFT else self.right

    def around(self, needles: Side, values: Reals, greatest: int) -> tuple[Times, Times]:
        """Least and greatest ordinal of partners of each value, inclusive. int64[n], int64[n].

        Args:
            greatest: the greatest ordinal among the rows looked up.
        """
        lower, upper = self.lower, self.upper
        if needles is Side.RIGHT:
            lower, upper = (None if end is None else -end for end in (upper, lower))
        sizes = np.abs(values) + self.size
        wild = ~(sizes < self.limit)  # NaN, infinite, or so great that a sum may be
        sizes = np.where(wild, 0.0, sizes)
        values = np.where(wild, 0.0, values)
        off = sizes * self.error
        low, high = np.full(len(values), MIN_TIME), np.full(len(values), MAX_TIME)
        if lower is not None:
            low = np.where(wild, low, real_ordinals(values + lower - off))
        if upper is not None and not (needles.other in self.falls and greatest == NAN_ORDINAL):
            high = np.where(wild, high, real_ordinals(values + upper + off))
        return low, high

    def within(self, needles: Side, values: Reals, partners: Times) -> Mask:
        """Whether pairs may be of the band. ``partners``: ordinals."""
        low, high = self.around(needles, values, NAN_ORDINAL)
        mask: Mask = (partners >= low) & (partners <= high)
        return mask


def reals_hold(comparison: RealComparison, columns: Mapping[tuple[Side, str], Raw]) -> Mask:
    """For which rows ``comparison`` is TRUE. ``columns``: by side and column name, as they are."""
    left, right = _evaluated(comparison.left, columns), _evaluated(comparison.right, columns)
    if np.isnan(left).any() or np.isnan(right).any():
        left, right = (real_ordinals(np.atleast_1d(each).astype(np.float64)) for each in (left, right))
    result: Mask = _COMPARE[comparison.op](left, right)
    return result


def _evaluated(expr: RealExpr, columns: Mapping[tuple[Side, str], Raw]) -> Any:
    match expr:
        case RealColumn(side, measured):
            return columns[side, measured.column]
        case RealSum(left, right, sign):
            a, b = _evaluated(left, columns), _evaluated(right, columns)
            with np.errstate(all="ignore"):
                return a + b if sign == 1 else a - b
    return np.float64(expr)  # a constant counts as a DOUBLE, beside a FLOAT too


_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}
