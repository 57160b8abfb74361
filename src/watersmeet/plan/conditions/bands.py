"""Rule: bands, by which look-ups find candidates and no watermark releases rows (semantics.md, section 3).

``plus - minus`` within an interval, over one column of each side that are not both event times: integers,
dates, timestamps, decimals, doubles. The conjunct as written decides: of integers and times by the same
comparisons as time bounds (saturating at the ends of int64), of decimals exactly, of FLOAT and DOUBLE columns
by the same sums in floating point. What mixes floating point with other numbers, or has more digits than
an int64 holds, and texts, by their first bytes, find candidates here and are decided as a residual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from watersmeet.conditions import (
    IntegerSum,
    RealBand,
    RealColumn,
    RealComparison,
    RealExpr,
    RealSum,
    mirrored,
)
from watersmeet.event_time import Operator, Side, TimeColumn, TimeComparison, TimeConstant, TimeExpr, TimeSum
from watersmeet.measure import REAL, TEXT, Measure, Measured
from watersmeet.plan.conditions.conjuncts import Conjunct
from watersmeet.plan.conditions.intervals import Ends, IntervalPart, bands_of, comparisons_of, slack_of
from watersmeet.plan.conditions.numbers import (
    NumberType,
    Sum,
    literal,
    number_type,
    sum_of,
)
from watersmeet.plan.conditions.overflow import sums_of
from watersmeet.plan.join_inputs import JoinInputs, Ref
from watersmeet.plan.model.conditions import Bands
from watersmeet.spec.model import Expr
from watersmeet.types.sql_type import STRING

DIGITS = 18
"""Decimals of up to so many digits, with all places of their band, are counted exactly."""

MOST_DIGITS = 38
"""That a decimal has in Spark; of a sum with more of them the last places are rounded off."""


@dataclass(frozen=True)
class RealPart:
    """One conjunct in floating point."""

    conjunct: Conjunct
    band: RealBand
    refs: tuple[Ref, Ref]
    sums: tuple[IntegerSum, ...] = ()


BandPart = IntervalPart | RealPart


def is_decided(part: BandPart) -> bool:
    """Whether the band decides its conjunct; else that is a residual."""
    return (part.band if isinstance(part, RealPart) else part).comparison is not None


def value_bands(parts: Sequence[BandPart], inputs: JoinInputs) -> Bands:
    """The bands of a join: of exact ones one per pair of columns, of others one per conjunct."""
    exact = [part for part in parts if isinstance(part, IntervalPart)]
    inexact = [part for part in exact if not part.is_exact]
    return Bands(
        exact=bands_of(exact, inputs),
        real=tuple(dict.fromkeys(part.band for part in parts if isinstance(part, RealPart))),
        comparisons=comparisons_of(exact),
        rechecks=comparisons_of(inexact),
        recheck_texts=tuple(dict.fromkeys(part.text for part in inexact)),
        slack=slack_of(exact),
        inverted=_inverted(exact),
    )


def _inverted(parts: Sequence[IntervalPart]) -> tuple[str, ...]:
    """The texts of conjuncts that contradict each other; some of one pair may count in other units."""
    by_refs: dict[tuple[Ref, Ref], list[IntervalPart]] = {}
    for part in parts:
        by_refs.setdefault(part.refs, []).append(part)
    texts = []
    for same in by_refs.values():
        lower = [_number(part, end) for part in same if (end := part.ends.closed_lower) is not None]
        upper = [_number(part, end) for part in same if (end := part.ends.closed_upper) is not None]
        if lower and upper and max(lower) > min(upper):
            texts.append(" and ".join(dict.fromkeys(part.text for part in same)))
    return tuple(texts)


def _number(part: IntervalPart, end: int) -> Fraction:
    """An end as a number, whatever it is counted in."""
    return Fraction(end, 10**part.measure.places)


def text_part(conjunct: Conjunct, op: Operator, inputs: JoinInputs) -> IntervalPart | None:
    """A comparison of texts of both sides, or None where it is none: candidates by the first bytes."""
    left, right = conjunct.expr.this.unnest(), conjunct.expr.expression.unnest()
    if not isinstance(left, exp.Column) or not isinstance(right, exp.Column):
        return None
    refs = ((left.table, left.name), (right.table, right.name))
    if any(inputs.column(ref).type != STRING for ref in refs):
        return None
    if inputs.side(refs[0][0]) is inputs.side(refs[1][0]):
        return None
    ends = Ends.where(op, 0, 0).closed()  # of first - second; texts that differ may begin alike
    if inputs.side(refs[0][0]) is Side.RIGHT:
        refs = refs[::-1]
    else:
        ends = ends.mirrored()
    return IntervalPart(conjunct, *refs, ends, is_exact=True, span=0, comparison=None, measure=TEXT)


def number_part(conjunct: Conjunct, op: Operator, inputs: JoinInputs) -> BandPart | None:
    """A conjunct over numbers that are not all integers, or None where it is no band."""
    left, right = sum_of(conjunct.expr.this, inputs), sum_of(conjunct.expr.expression, inputs)
    if left is None or right is None or set(left.terms) & set(right.terms):
        return None
    terms = {**left.terms, **{ref: -factor for ref, factor in right.terms.items()}}
    if sorted(terms.values()) != [-1, 1]:
        return None
    plus, minus = sorted(terms, key=lambda ref: -terms[ref])
    if inputs.side(plus[0]) is inputs.side(minus[0]):
        return None
    types = [number_type(inputs.column(ref).type) for ref in (plus, minus)]
    one, other = types
    if one is None or other is None:
        return None
    draft = _Numbers(conjunct, op, inputs, left, right, plus, minus, (one, other))
    return (draft.exact() or draft.real()) if draft.keeps_places() else None


@dataclass(frozen=True)
class _Numbers:
    """``left op right``, which is ``plus - minus + constant op 0``."""

    conjunct: Conjunct
    op: Operator
    join_inputs: JoinInputs
    left: Sum
    right: Sum
    plus: Ref
    minus: Ref
    types: tuple[NumberType, NumberType]

    def keeps_places(self) -> bool:
        """Whether no decimal in it has so many digits that places are rounded off."""
        whole = max(number.whole or 0 for number in self.types)
        while self.size >= 10**whole:
            whole += 1
            if whole > MOST_DIGITS:
                return False
        additions = self.left.steps + self.right.steps - 2
        return whole + self._places() + additions <= MOST_DIGITS

    def _places(self) -> int:
        return max(self.left.places, self.right.places, *(number.places for number in self.types))

    @property
    def constant(self) -> Fraction:
        return self.left.constant - self.right.constant

    @property
    def size(self) -> Fraction:
        return self.left.size + self.right.size

    def exact(self) -> IntervalPart | None:
        """Decimals and integers, counted in the last place of any of them."""
        places = self._places()
        if self.left.has_real or self.right.has_real or self.size * 10**places >= 10**DIGITS:
            return None
        for number in self.types:
            if number.whole is None or number.whole + places > DIGITS:
                return None
        measure = Measure("decimal", places)
        e = int(self.constant * 10**places)
        ends = Ends.where(self.op, e, e)
        left, right = self.minus, self.plus
        if self.join_inputs.side(self.plus[0]) is Side.LEFT:
            left, right, ends = right, left, ends.mirrored()
        return IntervalPart(
            self.conjunct,
            left,
            right,
            ends,
            is_exact=True,
            span=int(self.size * 10**places),
            comparison=TimeComparison(
                self._tree(self.conjunct.expr.this, measure),
                self.op,
                self._tree(self.conjunct.expr.expression, measure),
            ),
            measure=measure,
            sums=sums_of(self.conjunct.expr, self.join_inputs, measure),
        )

    def real(self) -> RealPart:
        """Anything else, by doubles near the values."""
        bits = min((number.bits for number in self.types if number.is_real), default=53)
        single = all(number.bits == 24 for number in self.types)
        constant, size = float(self.constant), float(self.size)
        steps = self.left.steps + self.right.steps
        lower = -constant if self.op in (">", ">=", "=") else None
        upper = -constant if self.op in ("<", "<=", "=") else None
        left, right = self.minus, self.plus
        if self.join_inputs.side(self.plus[0]) is Side.LEFT:
            left, right = right, left
            lower, upper = mirrored(lower, upper)
        falls = {
            self.join_inputs.side(ref[0])
            for operand in (self.left, self.right)
            for ref, factor in operand.terms.items()
            if factor < 0
        }
        decided = all(number.is_real for number in self.types) and self.left.is_plain and self.right.is_plain
        band = RealBand(
            self._measured(left, REAL),
            self._measured(right, REAL),
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
        sums = sums_of(self.conjunct.expr, self.join_inputs, REAL)
        return RealPart(self.conjunct, band, (left, right), sums)

    def _measured(self, ref: Ref, measure: Measure) -> Measured:
        return Measured(self.join_inputs.column_name(ref), measure)

    def _tree(self, expr: Expr, measure: Measure) -> TimeExpr:
        match expr:
            case exp.Column():
                ref = (expr.table, expr.name)
                return TimeColumn(self.join_inputs.side(ref[0]), self._measured(ref, measure).name)
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
                return RealColumn(self.join_inputs.side(ref[0]), self._measured(ref, REAL))
            case exp.Neg():
                return RealSum(0.0, self._real_tree(expr.this), -1)
            case exp.Add() | exp.Sub():
                left, right = self._real_tree(expr.this), self._real_tree(expr.expression)
                return RealSum(left, right, 1 if isinstance(expr, exp.Add) else -1)
            case exp.Literal():
                return float(_value(expr))
        return self._real_tree(expr.this)


def _value(constant: exp.Literal) -> Fraction:
    number = literal(constant.this)
    assert number is not None
    return number.constant
