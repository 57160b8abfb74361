"""Event times as 64-bit integers, and exact, saturating arithmetic on them.

Canonical times: TIMESTAMP and DATE are µs since 1970-01-01 UTC (a DATE is its midnight), integer times are
themselves. All are int64; every int64 is a legal time. Arithmetic on times saturates at the ends of int64
(semantics.md, section 3). A watermark is a time or ±∞ (`NEVER` before the first row, `ENDED` after the
end of
input); Python compares ints with float infinities exactly, so no sentinel can collide with a legal time.

Here also: small expression trees of event times (`TimeExpr`), by which a condition *as written* is checked.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

MIN_TIME = -(2**63)
MAX_TIME = 2**63 - 1

Watermark = int | float
"""An int64 time, or −∞ / +∞ as a float."""

NEVER: float = -math.inf
ENDED: float = math.inf

DAY_US = 86_400_000_000

_EPOCH = datetime(1970, 1, 1)

Operator = Literal["<", "<=", ">", ">=", "="]

Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def saturate(value: int) -> int:
    """Limit ``value`` to the range of int64."""
    return MIN_TIME if value < MIN_TIME else MAX_TIME if value > MAX_TIME else value


def shift(watermark: Watermark, by: int) -> Watermark:
    """Add ``by`` to a watermark, saturating; ±∞ stay unchanged."""
    return watermark if isinstance(watermark, float) else saturate(watermark + by)


def shown_time(mark: Watermark, is_integer: bool) -> str:
    """Format a watermark for people.

    >>> shown_time(1_357_034_400_000_000, False), shown_time(7, True), shown_time(NEVER, False)
    ('2013-01-01 10:00:00', '7', '−')
    """
    if mark == NEVER:
        return "−"
    if mark == ENDED:
        return "end"
    if is_integer:
        return str(mark)
    try:
        return (_EPOCH + timedelta(microseconds=int(mark))).isoformat(" ")
    except OverflowError:  # a legal time beyond the years that datetime knows
        return f"{mark} µs"


def are_below(times: Times, limit: Watermark) -> Mask:
    """Compare times with ``limit``: a mask of those below it; exact for limits outside of int64."""
    if limit <= MIN_TIME:
        return np.zeros(len(times), dtype=np.bool_)
    if limit > MAX_TIME:
        return np.ones(len(times), dtype=np.bool_)
    return times < np.int64(limit)


def saturating_add(times: Times, by: int) -> Times:
    """Add ``by`` to each time, saturating; ``by`` is any int.

    Cost: one pass, or two near the extremes of int64.
    """
    if by == 0 or len(times) == 0:
        return times
    if not MIN_TIME <= by <= MAX_TIME:
        return np.array([saturate(int(t) + by) for t in times], dtype=np.int64)
    if by > 0:
        room = MAX_TIME - by
        if times.max() <= room:
            return times + np.int64(by)
        return np.where(times > room, np.int64(MAX_TIME), np.minimum(times, room) + np.int64(by))
    room = MIN_TIME - by
    if times.min() >= room:
        return times + np.int64(by)
    return np.where(times < room, np.int64(MIN_TIME), np.maximum(times, room) + np.int64(by))


def saturating_sub(a: Times, b: Times) -> Times:
    """Subtract ``b`` from ``a`` elementwise, saturating."""
    with np.errstate(over="ignore"):
        result = a - b
    overflow = ((a ^ b) & (a ^ result)) < 0
    if overflow.any():
        result = np.where(overflow, np.where(a < 0, np.int64(MIN_TIME), np.int64(MAX_TIME)), result)
    return result


def saturating_sum(a: Times, b: Times) -> Times:
    """Add ``a`` and ``b`` elementwise, saturating."""
    with np.errstate(over="ignore"):
        result = a + b
    overflow = ((a ^ result) & (b ^ result)) < 0
    if overflow.any():
        result = np.where(overflow, np.where(a < 0, np.int64(MIN_TIME), np.int64(MAX_TIME)), result)
    return result


class Side(Enum):
    """The two inputs of a binary join."""

    LEFT = "left"
    RIGHT = "right"

    __hash__ = object.__hash__  # there is one of each: that of enumerations is a function of Python's

    @property
    def other(self) -> Side:
        return Side.RIGHT if self is Side.LEFT else Side.LEFT


@dataclass(frozen=True)
class TimeColumn:
    """An event-time column of one side of a join."""

    side: Side
    column: str


@dataclass(frozen=True)
class TimeConstant:
    value: int


@dataclass(frozen=True)
class TimeSum:
    """``left + right`` (``sign`` 1) or ``left - right`` (``sign`` −1), saturating."""

    left: TimeExpr
    right: TimeExpr
    sign: Literal[1, -1]


@dataclass(frozen=True)
class TimeFloor:
    """The greatest multiple of ``unit`` not above: a cast that loses precision (TIMESTAMP to DATE)."""

    operand: TimeExpr
    unit: int


TimeExpr = TimeColumn | TimeConstant | TimeSum | TimeFloor


@dataclass(frozen=True)
class TimeComparison:
    """``left op right``, as the user wrote it."""

    left: TimeExpr
    op: Operator
    right: TimeExpr


def evaluate(expr: TimeExpr, columns: Mapping[tuple[Side, str], Times], rows: int) -> Times:
    """Evaluate ``expr`` for ``rows`` rows, given the columns that it mentions (int64[rows])."""
    match expr:
        case TimeColumn(side, column):
            return columns[side, column]
        case TimeConstant(value):
            return np.full(rows, saturate(value), dtype=np.int64)
        case TimeSum(left, TimeConstant(value), sign):
            return saturating_add(evaluate(left, columns, rows), sign * value)
        case TimeSum(left, right, sign):
            a, b = evaluate(left, columns, rows), evaluate(right, columns, rows)
            return saturating_sum(a, b) if sign == 1 else saturating_sub(a, b)
        case TimeFloor(operand, unit):
            values = evaluate(operand, columns, rows)
            return values - np.mod(values, np.int64(unit))


def evaluate_comparison(
    comparison: TimeComparison, columns: Mapping[tuple[Side, str], Times], rows: int
) -> Mask:
    """Evaluate ``comparison``: a mask of the rows for which it is TRUE. No operand may be NULL."""
    left = evaluate(comparison.left, columns, rows)
    right = evaluate(comparison.right, columns, rows)
    result: Mask = _COMPARE[comparison.op](left, right)
    return result


_COMPARE: Mapping[str, Callable[[Times, Times], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}
