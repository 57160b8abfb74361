"""Parts of a condition as plans have them: equality keys, time bounds, time bands, ASOF."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.event_time import MAX_TIME, MIN_TIME, Side, TimeComparison
from watersmeet.spec.model import (
    Expr,
)


@dataclass(frozen=True)
class Key:
    """An equality ``left = right`` (or ``<=>``) over expressions of one side each.

    ``left`` and ``right`` mention columns of their side. ``left_column`` / ``right_column`` name the kept
    columns that hold the values: the side's own column when the expression is one, else a computed one.
    ``text``: as it was written, for messages; empty: nobody wrote it.
    """

    left: Expr
    right: Expr
    left_column: str
    right_column: str
    null_safe: bool
    text: str = ""

    def expr(self, side: Side) -> Expr:
        return self.left if side is Side.LEFT else self.right

    def column(self, side: Side) -> str:
        return self.left_column if side is Side.LEFT else self.right_column


@dataclass(frozen=True)
class Bound:
    """``evicted >= by - c``: rows of ``evicted`` below ``W[by] - c`` match nothing any more.

    ``evicted`` and ``by`` are watermark keys ``alias.column``; ``text`` is the conjunct it came from. Near
    the ends of int64 ``W[by] - c`` is cut to ``low`` and ``high``, and by ``slack`` less may still match; see
    `plan.conditions.bounds.Link`.
    """

    evicted: str
    by: str
    c: int
    text: str
    slack: int = 0
    low: int = MIN_TIME
    high: int = MAX_TIME


@dataclass(frozen=True)
class TimeBand:
    """``lower <= right - left <= upper`` over one event-time column of each side.

    Every pair that the join's condition accepts lies in all bands; a pair in all bands is accepted by every
    time comparison that is not in `JoinPlan.rechecks`. ``texts``: the conjuncts.
    """

    left_column: str
    right_column: str
    lower: int | None
    upper: int | None
    texts: tuple[str, ...]

    def column(self, side: Side) -> str:
        return self.left_column if side is Side.LEFT else self.right_column


@dataclass(frozen=True)
class AsofPlan:
    """Which right row an ASOF join takes of those in ``JoinPlan.bands[0]``, its one band: the ``latest``, or
    else the earliest.

    ``closed_lower``, ``closed_upper``: the band with strict comparisons read as closed ones, for retention.
    ``floors``, ``ceilings``: the comparisons as written that bound the right time from below, from above.
    """

    latest: bool
    closed_lower: int | None
    closed_upper: int | None
    floors: tuple[TimeComparison, ...]
    ceilings: tuple[TimeComparison, ...]
