"""Parts of a condition as plans have them, besides those of `watersmeet.conditions`: what mentions
expressions, and what belongs together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from watersmeet.conditions import ExactBand, IntegerSum, Key, RealBand
from watersmeet.event_time import Side, TimeComparison
from watersmeet.spec.model import Expr


@dataclass(frozen=True)
class KeyPlan:
    """An equality ``left = right`` (or ``<=>``) over expressions of one side each.

    ``columns``: the kept columns that hold the values: a side's own column when its expression is one, else a
    computed one. ``text``: as it was written, for messages; empty: nobody wrote it.
    """

    left: Expr
    right: Expr
    columns: Key
    text: str = ""

    @property
    def null_safe(self) -> bool:
        return self.columns.null_safe

    def expr(self, side: Side) -> Expr:
        return self.left if side is Side.LEFT else self.right

    def column(self, side: Side) -> str:
        return self.columns.column(side)


@dataclass(frozen=True)
class Bands:
    """The bands of a join over anything but two event times. ``comparisons``, ``rechecks``, ``slack``: of the
    exact ones, as in `MatchPlan`. ``inverted``: the texts of exact ones that hold nothing though their ends
    are closed. (In floating point such a band holds pairs of NaN.)"""

    exact: tuple[ExactBand, ...] = ()
    real: tuple[RealBand, ...] = ()
    comparisons: tuple[TimeComparison, ...] = ()
    rechecks: tuple[TimeComparison, ...] = ()
    recheck_texts: tuple[str, ...] = ()
    slack: int = 0
    inverted: tuple[str, ...] = ()

    @property
    def every(self) -> tuple[ExactBand | RealBand, ...]:
        return (*self.exact, *self.real)


@dataclass(frozen=True)
class Careful:
    """What is asked in place of a join's bands and its residual where one of ``sums`` may leave its type.

    ``values``: the bands of conjuncts without such a sum. ``residual``: all the rest, in the order in which
    it is written; it, ``exact`` and ``columns`` are as in `MatchPlan`.
    """

    sums: tuple[IntegerSum, ...]
    values: Bands
    residual: Expr
    exact: tuple[Any, ...] | None
    columns: tuple[str, ...]
