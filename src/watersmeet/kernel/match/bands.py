"""Bands: by which values of one side's rows partners of the other side's rows can be found.

A band turns values of needles into an interval of ordinals in which their partners' values lie. What is
exact in int64 (`ExactBand`) decides, too; in floating point (`RealBand`) the interval is wide enough for all
rounding, and the conjunct as written decides.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from watersmeet.conditions import ExactBand, RealBand, RealColumn, RealComparison, RealExpr, RealSum, mirrored
from watersmeet.event_time import MAX_TIME, MIN_TIME, Mask, Side, Times
from watersmeet.kernel.match.probe import Distances
from watersmeet.kernel.ordinals import NAN_ORDINAL, Raw, Reals, real_ordinals
from watersmeet.measure import Measured


def distances(band: ExactBand, needles: Side, slack: int) -> Distances:
    """How far from needles of that side their partners are."""
    ends = (band.lower, band.upper)
    return Distances(*(ends if needles is Side.LEFT else mirrored(*ends)), slack)


class Along(NamedTuple):
    """A band, as needles of one side look along it: what counts of them and of the rows, and how far apart
    these may be."""

    needles: Measured
    rows: Measured
    distances: Distances


def along(band: ExactBand, needles: Side, slack: int) -> Along:
    """The band from needles of that side."""
    return Along(band.measured(needles), band.measured(needles.other), distances(band, needles, slack))


def around(band: RealBand, needles: Side, values: Reals, greatest: int) -> tuple[Times, Times]:
    """Least and greatest ordinal of partners of each value, inclusive. int64[n], int64[n].

    Args:
        greatest: the greatest ordinal among the rows looked up.
    """
    ends = (band.lower, band.upper)
    lower, upper = ends if needles is Side.LEFT else mirrored(*ends)
    sizes = np.abs(values) + band.size
    wild = ~(sizes < band.limit)  # NaN, infinite, or so great that a sum may be
    sizes = np.where(wild, 0.0, sizes)
    values = np.where(wild, 0.0, values)
    off = sizes * band.error
    low, high = np.full(len(values), MIN_TIME), np.full(len(values), MAX_TIME)
    if lower is not None:
        low = np.where(wild, low, real_ordinals(values + lower - off))
    if upper is not None and not (needles.other in band.falls and greatest == NAN_ORDINAL):
        high = np.where(wild, high, real_ordinals(values + upper + off))
    return low, high


def within(band: RealBand, needles: Side, values: Reals, partners: Times) -> Mask:
    """Whether pairs may be of the band. ``partners``: ordinals."""
    low, high = around(band, needles, values, NAN_ORDINAL)
    mask: Mask = (partners >= low) & (partners <= high)
    return mask


def reals_hold(comparison: RealComparison, columns: Mapping[tuple[Side, str], Raw]) -> Mask:
    """For which rows ``comparison`` is TRUE. ``columns``: by side and column name, as they are."""
    left, right = _evaluated(comparison.left, columns), _evaluated(comparison.right, columns)
    if np.isnan(left).any() or np.isnan(right).any():
        left, right = (real_ordinals(np.atleast_1d(values).astype(np.float64)) for values in (left, right))
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
