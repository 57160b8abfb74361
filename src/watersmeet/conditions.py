"""Vocabulary of join conditions in plans, shapes and kernels: keys, bands, bounds, ASOF choices.

Plain frozen values over column names. `plan.conditions` derives them from queries, and
`kernel.match.probe` uses them in look-ups. Comparisons of times, with their arithmetic, are in
`event_time`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

from watersmeet.event_time import MAX_TIME, MIN_TIME, Operator, Side, TimeComparison
from watersmeet.measure import Measured

End = TypeVar("End", int, float)


@dataclass(frozen=True)
class IntegerSum:
    """A sum of integer columns, each with a sign or factor, and a constant.

    Attributes:
        low, high: smallest and largest value of the constant part.
        least, most: smallest and largest value of the sum's type.
    """

    terms: tuple[tuple[Side, Measured, int], ...]
    low: int
    high: int
    least: int
    most: int


@dataclass(frozen=True)
class RealColumn:
    """A column of one side, as it is: a FLOAT counts as one until it meets a DOUBLE."""

    side: Side
    measured: Measured


@dataclass(frozen=True)
class RealSum:
    """``left + right`` (``sign`` 1) or ``left - right`` (``sign`` −1), in floating point."""

    left: RealExpr
    right: RealExpr
    sign: Literal[1, -1]


RealExpr = RealColumn | RealSum | float


@dataclass(frozen=True)
class RealComparison:
    """``left op right`` in floating point, as the user wrote it: NaN is equal to itself and the greatest."""

    left: RealExpr
    op: Operator
    right: RealExpr


@dataclass(frozen=True)
class Key:
    """An equality ``left = right`` (``<=>`` if ``null_safe``) of a column of each side."""

    left: str
    right: str
    null_safe: bool = False

    def column(self, side: Side) -> str:
        return self.left if side is Side.LEFT else self.right


@dataclass(frozen=True)
class ExactBand:
    """Band ``lower <= right - left <= upper`` in units of the measure, inclusive; None is open.

    Every pair that the join's condition accepts lies in all bands. Every comparison that is not a
    recheck accepts every pair that lies in all bands. ``texts`` lists the conjuncts, for people.
    """

    left: Measured
    right: Measured
    lower: int | None
    upper: int | None
    texts: tuple[str, ...] = ()

    def measured(self, side: Side) -> Measured:
        return self.left if side is Side.LEFT else self.right


@dataclass(frozen=True)
class RealBand:
    """Approximate band ``lower <= right - left <= upper`` in floating point.

    Rounding may move an end by ``error`` times the sum of ``size`` and the absolute value that is looked up.

    Attributes:
        falls: sides whose column the written condition subtracts; NaN in it makes the difference greatest.
        limit: values beyond it may overflow.
        comparison: the conjunct as written, for the same sums in floating point. None: the residual
            predicate decides it.
        text: the conjunct, for people.
    """

    left: Measured
    right: Measured
    lower: float | None
    upper: float | None
    size: float
    error: float
    limit: float
    falls: tuple[Side, ...]
    comparison: RealComparison | None
    text: str = ""

    def measured(self, side: Side) -> Measured:
        return self.left if side is Side.LEFT else self.right


@dataclass(frozen=True)
class Bound:
    """Eviction bound ``evicted >= by - c``: rows below ``W[by] - c`` match nothing.

    ``evicted`` and ``by`` are watermark keys ``alias.column``; ``text`` is the conjunct from which the
    bound was derived. Near the ends of int64, ``W[by] - c`` is clamped to ``low`` and ``high``, and
    rows lower by up to ``slack`` may still match; see `plan.conditions.bands.Link`.
    """

    evicted: str
    by: str
    c: int
    text: str
    slack: int = 0
    low: int = MIN_TIME
    high: int = MAX_TIME


@dataclass(frozen=True)
class Horizon:
    """Single eviction time of a join with the rule ``lateness = join``.

    It is the least watermark of ``keys``, the event times of the two sides, minus ``reach`` and
    allowed_lateness. Rows below it are late and not retained, and no row that the join still emits has
    a lesser time.

    ``reach`` is the maximum distance between the times of a pair, whichever is later.
    """

    keys: tuple[str, str]
    reach: int


@dataclass(frozen=True)
class AsofRule:
    """Choice of an ASOF join among the right rows in its band: the ``latest`` or the earliest.

    ``closed_lower`` and ``closed_upper`` are the band with strict comparisons read as closed ones, for
    retention. ``floors`` and ``ceilings`` are the comparisons as written that bound the right time from
    below and from above; the join evaluates them for times near the ends of int64.
    """

    latest: bool
    closed_lower: int | None
    closed_upper: int | None
    floors: tuple[TimeComparison, ...]
    ceilings: tuple[TimeComparison, ...]


def mirror_ends(lower: End | None, upper: End | None) -> tuple[End | None, End | None]:
    """Convert the ends of ``right - left`` to those of ``left - right``."""
    return None if upper is None else -upper, None if lower is None else -lower
