"""Conjuncts that say how far a column of one side may be from a column of the other, in whole units; and what
several of them say together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce

from watersmeet.conditions import ExactBand, IntegerSum, mirrored
from watersmeet.event_time import MAX_TIME, Operator, TimeComparison
from watersmeet.measure import WHOLE, Measure, Measured
from watersmeet.plan.conditions.conjuncts import Conjunct
from watersmeet.plan.join_inputs import JoinInputs, Ref


@dataclass(frozen=True)
class Ends:
    """``lower <= right - left <= upper``, inclusive; None is open. ``closed_lower``, ``closed_upper``: with
    strict comparisons read as closed ones (for retention)."""

    lower: int | None = None
    upper: int | None = None
    closed_lower: int | None = None
    closed_upper: int | None = None

    @classmethod
    def where(cls, op: Operator, low: int, high: int) -> Ends:
        """What ``difference + e op 0`` says of the difference, for an e that is anywhere from low to high."""
        step = 1 if op in ("<", ">") else 0  # strict is one unit tighter
        least = -high if op in (">", ">=", "=") else None
        most = -low if op in ("<", "<=", "=") else None
        return cls(
            None if least is None else least + step, None if most is None else most - step, least, most
        )

    def mirrored(self) -> Ends:
        """The ends of ``left - right``."""
        return Ends(*mirrored(self.lower, self.upper), *mirrored(self.closed_lower, self.closed_upper))

    def closed(self) -> Ends:
        """Those of the comparison with strict read as closed."""
        return Ends(self.closed_lower, self.closed_upper, self.closed_lower, self.closed_upper)

    def within(self, other: Ends) -> Ends:
        """What both say together."""
        return Ends(
            _of_both(max, self.lower, other.lower),
            _of_both(min, self.upper, other.upper),
            _of_both(max, self.closed_lower, other.closed_lower),
            _of_both(min, self.closed_upper, other.closed_upper),
        )


def _of_both(choose: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else choose(one, other)


@dataclass(frozen=True)
class IntervalPart:
    """A conjunct ``lower <= right - left <= upper`` over a column of each side.

    ``ends``: in units of the ``measure``; exact unless ``is_exact`` is False, then wide enough, and the
    comparison has to be asked as well. ``span``: within it of an end of int64 arithmetic saturates.
    ``comparison``: the conjunct as written; None: it is decided as a residual. ``sums``: see
    `plan.conditions.overflow`. ``is_approximate``: see `LinearForm`; what decides it is a key or a
    residual, too, and ``comparison`` says nothing.
    """

    conjunct: Conjunct
    left: Ref
    right: Ref
    ends: Ends
    is_exact: bool
    span: int
    comparison: TimeComparison | None
    measure: Measure = WHOLE
    sums: tuple[IntegerSum, ...] = ()
    is_approximate: bool = False

    @property
    def refs(self) -> tuple[Ref, Ref]:
        return self.left, self.right

    @property
    def text(self) -> str:
        return self.conjunct.text


def bands_of(parts: Iterable[IntervalPart], inputs: JoinInputs) -> tuple[ExactBand, ...]:
    """One band per pair of columns and measure, in the order in which they are first mentioned."""
    together: dict[tuple[Measured, Measured], list[IntervalPart]] = {}
    for part in parts:
        left, right = (Measured(inputs.column_name(ref), part.measure) for ref in part.refs)
        together.setdefault((left, right), []).append(part)
    return tuple(
        ExactBand(left, right, ends.lower, ends.upper, tuple(dict.fromkeys(part.text for part in same)))
        for (left, right), same in together.items()
        for ends in [common_ends(same)]
    )


def common_ends(parts: Iterable[IntervalPart]) -> Ends:
    """What conjuncts over one pair of columns say together."""
    return reduce(Ends.within, (part.ends for part in parts), Ends())


def comparisons_of(parts: Iterable[IntervalPart]) -> tuple[TimeComparison, ...]:
    """The conjuncts as written, each once."""
    return tuple(dict.fromkeys(part.comparison for part in parts if part.comparison is not None))


def slack_of(parts: Iterable[IntervalPart]) -> int:
    """Within what distance of the ends of int64 arithmetic may saturate: by one even without a constant, for
    ``a < b`` is looked up as ``a + 1 <= b``."""
    return min(max((max(part.span, 1) for part in parts), default=0), MAX_TIME)
