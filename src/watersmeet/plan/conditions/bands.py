"""Rule: bands, by which look-ups find candidates and no watermark releases rows (semantics.md, section 3).

``plus - minus`` within an interval, over one column of each side that are not both event times: integers,
dates, timestamps, decimals, doubles. The conjunct as written decides: of integers and times by the same
comparisons as time bounds (saturating at the ends of int64), of decimals exactly, of FLOAT and DOUBLE columns
by the same sums in floating point. What mixes floating point with other numbers, or has more digits than
an int64 holds, and texts, by their first bytes, find candidates here and are decided as a residual.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from sqlglot import exp

from watersmeet.event_time import MAX_TIME, Side, TimeColumn, TimeComparison, TimeConstant, TimeExpr, TimeSum
from watersmeet.measure import REAL, TEXT, Measure, Measured, RealColumn, RealComparison, RealExpr, RealSum
from watersmeet.plan.conditions.conjuncts import Conjunct
from watersmeet.plan.conditions.numbers import (
    NumberType,
    Sum,
    literal,
    number_type,
    sum_of,
)
from watersmeet.plan.scope import Ref, Scope
from watersmeet.spec.model import Expr

DIGITS = 18
"""Decimals of up to so many digits, with all places of their band, are counted exactly."""

MOST_DIGITS = 38
"""That a decimal has in Spark; of a sum with more of them the last places are rounded off."""

_TEXT = re.compile(r"STRING|VARCHAR\(\d+\)")

Operator = Literal["<", "<=", ">", ">=", "="]


@dataclass(frozen=True)
class ExactBand:
    """``lower <= right - left <= upper`` in the units of the measure, inclusive; None is open.

    Like a `TimeBand`: a pair in all bands is accepted by every comparison that is no recheck.
    """

    left: Measured
    right: Measured
    lower: int | None
    upper: int | None
    texts: tuple[str, ...]

    def side(self, side: Side) -> Measured:
        return self.left if side is Side.LEFT else self.right


@dataclass(frozen=True)
class RealBand:
    """``lower <= right - left <= upper`` in floating point, about: by how much rounding may move an end is
    ``error`` times the sum of ``size`` and the value looked from.

    ``falls``: the sides whose column is subtracted where it is written: there NaN makes the difference
    greatest. ``limit``: values beyond it may overflow. ``comparison``: the conjunct as written, for the same
    sums in floating point; None: it is decided as a residual.
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
    text: str

    def side(self, side: Side) -> Measured:
        return self.left if side is Side.LEFT else self.right


@dataclass(frozen=True)
class Bands:
    """All bands of a join. ``comparisons``, ``rechecks``, ``slack``: of the exact ones, as in `JoinPlan`.
    ``inverted``: the texts of exact ones that hold nothing though their ends are closed. (In floating point
    such a band holds pairs of NaN.)"""

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
class ExactPart:
    """One conjunct of an `ExactBand`. ``closed_lower``, ``closed_upper``: its ends, strict ones read as
    closed. ``is_exact`` False: the comparison has to be asked as well; None: it is decided as a residual."""

    conjunct: Conjunct
    first: Measured
    second: Measured
    refs: tuple[Ref, Ref]
    lower: int | None
    upper: int | None
    closed_lower: int | None
    closed_upper: int | None
    is_exact: bool
    span: int
    comparison: TimeComparison | None

    def in_units(self, end: int) -> Fraction:
        """An end as a number, whatever it is counted in."""
        return Fraction(end, 10**self.first.measure.places)


@dataclass(frozen=True)
class RealPart:
    """One conjunct in floating point."""

    band: RealBand
    refs: tuple[Ref, Ref]


BandPart = ExactPart | RealPart


def is_decided(part: BandPart) -> bool:
    """Whether the band decides its conjunct; else that is a residual."""
    return (part.band if isinstance(part, RealPart) else part).comparison is not None


def bands_of(parts: Sequence[BandPart]) -> Bands:
    """The bands of a join: of exact ones one per pair of columns, of others one per conjunct."""
    exact: dict[tuple[Measured, Measured], ExactBand] = {}
    for part in parts:
        if isinstance(part, ExactPart):
            key = (part.first, part.second)
            known = exact.get(key, ExactBand(*key, None, None, ()))
            lower = [each for each in (known.lower, part.lower) if each is not None]
            upper = [each for each in (known.upper, part.upper) if each is not None]
            exact[key] = replace(
                known,
                lower=max(lower, default=None),
                upper=min(upper, default=None),
                texts=tuple(dict.fromkeys((*known.texts, part.conjunct.text))),
            )
    counted = [part for part in parts if isinstance(part, ExactPart)]
    return Bands(
        exact=tuple(exact.values()),
        real=tuple(dict.fromkeys(part.band for part in parts if isinstance(part, RealPart))),
        comparisons=tuple(dict.fromkeys(part.comparison for part in counted if part.comparison)),
        rechecks=tuple(
            dict.fromkeys(part.comparison for part in counted if part.comparison and not part.is_exact)
        ),
        recheck_texts=tuple(dict.fromkeys(part.conjunct.text for part in counted if not part.is_exact)),
        slack=min(max((part.span for part in counted), default=0), MAX_TIME),
        inverted=_inverted(counted),
    )


def _inverted(parts: Sequence[ExactPart]) -> tuple[str, ...]:
    found: dict[tuple[Ref, Ref], list[ExactPart]] = {}
    for part in parts:
        found.setdefault(part.refs, []).append(part)
    texts = []
    for same in found.values():
        lower = [part.in_units(part.closed_lower) for part in same if part.closed_lower is not None]
        upper = [part.in_units(part.closed_upper) for part in same if part.closed_upper is not None]
        if lower and upper and max(lower) > min(upper):
            texts.append(" and ".join(dict.fromkeys(part.conjunct.text for part in same)))
    return tuple(texts)


def text_part(conjunct: Conjunct, op: Operator, scope: Scope) -> ExactPart | None:
    """A comparison of texts of both sides, or None where it is none: candidates by the first bytes."""
    left, right = conjunct.expr.this.unnest(), conjunct.expr.expression.unnest()
    if not isinstance(left, exp.Column) or not isinstance(right, exp.Column):
        return None
    refs = ((left.table, left.name), (right.table, right.name))
    if any(_TEXT.fullmatch(scope.column(ref).type.upper().strip()) is None for ref in refs):
        return None
    if scope.side(refs[0][0]) is scope.side(refs[1][0]):
        return None
    least, most = (0 if op in ("<", "<=", "=") else None), (0 if op in (">", ">=", "=") else None)
    if scope.side(refs[0][0]) is Side.RIGHT:
        refs, least, most = refs[::-1], most, least
    first, second = (Measured(scope.column_name(ref), TEXT) for ref in refs)
    return ExactPart(
        conjunct, first, second, refs, least, most, least, most, is_exact=True, span=0, comparison=None
    )


def number_part(conjunct: Conjunct, op: Operator, scope: Scope) -> BandPart | None:
    """A conjunct over numbers that are not all integers, or None where it is no band."""
    left, right = sum_of(conjunct.expr.this, scope), sum_of(conjunct.expr.expression, scope)
    if left is None or right is None or set(left.terms) & set(right.terms):
        return None
    terms = {**left.terms, **{ref: -factor for ref, factor in right.terms.items()}}
    if sorted(terms.values()) != [-1, 1]:
        return None
    plus, minus = sorted(terms, key=lambda ref: -terms[ref])
    if scope.side(plus[0]) is scope.side(minus[0]):
        return None
    types = [number_type(scope.column(ref).type) for ref in (plus, minus)]
    one, other = types
    if one is None or other is None:
        return None
    draft = _Numbers(conjunct, op, scope, left, right, plus, minus, (one, other))
    return (draft.exact() or draft.real()) if draft.keeps_places() else None


@dataclass(frozen=True)
class _Numbers:
    """``left op right``, which is ``plus - minus + constant op 0``."""

    conjunct: Conjunct
    op: Operator
    scope: Scope
    left: Sum
    right: Sum
    plus: Ref
    minus: Ref
    types: tuple[NumberType, NumberType]

    def keeps_places(self) -> bool:
        """Whether no decimal in it has so many digits that places are rounded off."""
        whole = max(each.whole or 0 for each in self.types)
        while self.size >= 10**whole:
            whole += 1
            if whole > MOST_DIGITS:
                return False
        additions = self.left.steps + self.right.steps - 2
        return whole + self._places() + additions <= MOST_DIGITS

    def _places(self) -> int:
        return max(self.left.places, self.right.places, *(each.places for each in self.types))

    @property
    def constant(self) -> Fraction:
        return self.left.constant - self.right.constant

    @property
    def size(self) -> Fraction:
        return self.left.size + self.right.size

    def exact(self) -> ExactPart | None:
        """Decimals and integers, counted in the last place of any of them."""
        places = self._places()
        if self.left.has_real or self.right.has_real or self.size * 10**places >= 10**DIGITS:
            return None
        for each in self.types:
            if each.whole is None or each.whole + places > DIGITS:
                return None
        measure = Measure("decimal", places)
        plus, minus = (self._measured(ref, measure) for ref in (self.plus, self.minus))
        e, step = int(self.constant * 10**places), 1 if self.op in ("<", ">") else 0
        lower = -e if self.op in (">", ">=", "=") else None
        upper = -e if self.op in ("<", "<=", "=") else None
        first, second, refs = minus, plus, (self.minus, self.plus)
        if self.scope.side(self.plus[0]) is Side.LEFT:
            first, second, refs = plus, minus, (self.plus, self.minus)
            lower, upper = (None if end is None else -end for end in (upper, lower))
        return ExactPart(
            self.conjunct,
            first,
            second,
            refs,
            None if lower is None else lower + step,
            None if upper is None else upper - step,
            lower,
            upper,
            is_exact=True,
            span=int(self.size * 10**places),
            comparison=TimeComparison(
                self._tree(self.conjunct.expr.this, measure),
                self.op,
                self._tree(self.conjunct.expr.expression, measure),
            ),
        )

    def real(self) -> RealPart:
        """Anything else, by doubles near the values."""
        bits = min((each.bits for each in self.types if each.is_real), default=53)
        single = all(each.bits == 24 for each in self.types)
        constant, size = float(self.constant), float(self.size)
        steps = self.left.steps + self.right.steps
        lower = -constant if self.op in (">", ">=", "=") else None
        upper = -constant if self.op in ("<", "<=", "=") else None
        first, second = self.minus, self.plus
        if self.scope.side(self.plus[0]) is Side.LEFT:
            first, second = self.plus, self.minus
            lower, upper = (None if end is None else -end for end in (upper, lower))
        falls = {
            self.scope.side(ref[0])
            for each in (self.left, self.right)
            for ref, factor in each.terms.items()
            if factor < 0
        }
        decided = all(each.is_real for each in self.types) and self.left.is_plain and self.right.is_plain
        band = RealBand(
            self._measured(first, REAL),
            self._measured(second, REAL),
            lower,
            upper,
            size,
            error=(steps + 6) * 2.0 ** (2 - bits),
            limit=2.0**126 if single else 2.0**1022,
            falls=tuple(side for side in Side if side in falls),
            comparison=RealComparison(
                self._real_tree(self.conjunct.expr.this),
                self.op,
                self._real_tree(self.conjunct.expr.expression),
            )
            if decided
            else None,
            text=self.conjunct.text,
        )
        return RealPart(band, (first, second))

    def _measured(self, ref: Ref, measure: Measure) -> Measured:
        return Measured(self.scope.column_name(ref), measure)

    def _tree(self, expr: Expr, measure: Measure) -> TimeExpr:
        match expr:
            case exp.Column():
                ref = (expr.table, expr.name)
                return TimeColumn(self.scope.side(ref[0]), self._measured(ref, measure).name)
            case exp.Neg():
                return TimeSum(TimeConstant(0), self._tree(expr.this, measure), -1)
            case exp.Add() | exp.Sub():
                left, right = self._tree(expr.this, measure), self._tree(expr.expression, measure)
                return TimeSum(left, right, 1 if isinstance(expr, exp.Add) else -1)
            case exp.Literal():
                return TimeConstant(int(_value(expr) * 10**measure.places))
        return self._tree(expr.this, measure)  # in parentheses, or a cast that changes no value

    def _real_tree(self, expr: Expr) -> RealExpr:
        match expr:
            case exp.Column():
                ref = (expr.table, expr.name)
                return RealColumn(self.scope.side(ref[0]), self._measured(ref, REAL))
            case exp.Neg():
                return RealSum(0.0, self._real_tree(expr.this), -1)
            case exp.Add() | exp.Sub():
                left, right = self._real_tree(expr.this), self._real_tree(expr.expression)
                return RealSum(left, right, 1 if isinstance(expr, exp.Add) else -1)
            case exp.Literal():
                return float(_value(expr))
        return self._real_tree(expr.this)


def _value(constant: exp.Literal) -> Fraction:
    found = literal(constant.this)
    assert found is not None
    return found.constant


__all__ = [
    "BandPart",
    "Bands",
    "ExactBand",
    "ExactPart",
    "RealBand",
    "RealPart",
    "bands_of",
    "is_decided",
    "number_part",
    "text_part",
]
