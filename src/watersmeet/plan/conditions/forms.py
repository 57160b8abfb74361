"""Linear forms and arithmetic on them, by the rules of Spark SQL for numbers, times and intervals.

A linear form is ``sum of ±columns + e`` with ``low <= e <= high``: the two differ only where a cast loses
precision (TIMESTAMP to DATE, date_trunc), which makes a value smaller by up to its unit less one. Times are
in canonical units (µs, or plain integers), whatever the expression counts in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.event_time import TimeConstant, TimeExpr, TimeFloor, TimeSum
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.join_inputs import Ref, Unit
from watersmeet.spec.model import Expr

Sign = Literal[1, -1]


@dataclass(frozen=True)
class LinearForm:
    """``sum(sign * column) + e``, ``low <= e <= high``. ``mentioned``: columns that cancelled out included.

    ``span``: the sum of all constants and units by their size: how near the ends of int64 arithmetic on times
    may saturate. ``tree``: the expression as written. ``bits``: the width of an integer. ``wall``: a time as
    the clock on the wall shows it (DATE, TIMESTAMP_NTZ), no instant. ``approximate``: it depends on
    the job's time zone, or is rounded towards zero; ``low`` and ``high`` are wide enough, and ``tree`` does
    not tell it. ``days``: an interval that Spark has as days: a DATE plus it is a DATE, and
    plus any other a TIMESTAMP.
    """

    unit: Unit
    terms: Mapping[Ref, int]
    mentioned: frozenset[Ref]
    low: int
    high: int
    span: int
    tree: TimeExpr
    bits: int = 64
    wall: bool = False
    approximate: bool = False
    days: bool = False

    @property
    def is_constant(self) -> bool:
        return not self.mentioned

    @property
    def is_exact(self) -> bool:
        return self.low == self.high


def constant(value: int, unit: Unit, *, days: bool = False) -> LinearForm:
    return LinearForm(unit, {}, frozenset(), value, value, abs(value), TimeConstant(value), days=days)


def negated(operand: LinearForm | None, expr: Expr) -> LinearForm | None:
    if operand is None or operand.unit is Unit.OTHER:
        return None
    if operand.unit.is_time:
        raise wrong_types(expr, "a time cannot be negated")
    if operand.is_constant:
        return constant(-operand.low, operand.unit, days=operand.days)
    return replace(combine(constant(0, operand.unit), operand, -1, operand.unit), days=operand.days)


def add(left: LinearForm | None, right: LinearForm | None, sign: Sign, expr: Expr) -> LinearForm | None:
    if left is None or right is None:
        return None
    unit = _unit_of_sum(left, right, sign, expr)
    if unit is None:
        return None
    if unit.scale != 1:  # a plain number beside a count of times counts the same: 60 is 60 seconds
        left, right = (
            constant(form.low * unit.scale, form.unit) if form.unit is Unit.INTEGER else form
            for form in (left, right)
        )
    days = unit is Unit.INTERVAL and all(form.days or form.unit is Unit.DATE for form in (left, right))
    return replace(combine(left, right, sign, unit), days=days)


def _unit_of_sum(left: LinearForm, right: LinearForm, sign: Sign, expr: Expr) -> Unit | None:
    """What a sum (or difference) counts, by the rules of Spark SQL; None where it is not linear."""
    a, b = left.unit, right.unit
    if Unit.OTHER in (a, b):
        return None
    if a.is_time and b.is_time:
        if sign == -1:
            return Unit.INTERVAL
        raise wrong_types(expr, "two times cannot be added")
    operands = [(a, b, right, True), (b, a, left, False)]
    operands.sort(key=lambda operand: (not operand[0].is_time, operand[0] is not Unit.INTERVAL))
    for one, other, form, first in operands:
        if one.is_time:
            if sign == -1 and not first:
                raise wrong_types(expr, "a time can only be subtracted from a time")
            if other is Unit.INTERVAL:
                return one if form.days else Unit.TIMESTAMP
            if one is Unit.DATE and other is Unit.INTEGER:
                return Unit.DATE if form.is_constant else None
            if other is Unit.INTEGER or other is Unit.NUMBER:
                raise wrong_types(
                    expr,
                    f"a number and a {one.name} cannot be added",
                    "write it as an interval: INTERVAL '10' SECOND",
                )
            return None
        if one is Unit.INTERVAL and other is not Unit.INTERVAL:
            raise wrong_types(
                expr,
                "an interval and a number cannot be added",
                "use a plain number: the times are integers",
            )
        if one.is_count and other is Unit.INTEGER:
            return one if form.is_constant else None
        if one is Unit.NUMBER:
            return Unit.NUMBER
    return a if a is b else None


def combine(left: LinearForm, right: LinearForm, sign: Sign, unit: Unit) -> LinearForm:
    terms = dict(left.terms)
    for ref, factor in right.terms.items():
        terms[ref] = terms.get(ref, 0) + sign * factor
    low, high = (right.low, right.high) if sign == 1 else (-right.high, -right.low)
    low, high = left.low + low, left.high + high
    mentioned = left.mentioned | right.mentioned
    if not mentioned:
        return constant(low, unit)
    return LinearForm(
        unit,
        {ref: factor for ref, factor in terms.items() if factor},
        mentioned,
        low,
        high,
        left.span + right.span,
        TimeSum(left.tree, right.tree, sign),
        max(left.bits, right.bits),
        unit.is_time and (left if left.unit.is_time else right).wall,
        left.approximate or right.approximate,
    )


def widened(form: LinearForm, low: int, high: int, *, wall: bool) -> LinearForm:
    """A form to which the time zone adds something between ``low`` and ``high``."""
    return replace(
        form,
        low=form.low + low,
        high=form.high + high,
        span=form.span + max(abs(low), abs(high)),
        wall=wall,
        approximate=True,
    )


def multiply(left: LinearForm | None, right: LinearForm | None, expr: Expr) -> LinearForm | None:
    """Constants among themselves, and ±1 as a factor."""
    if left is None or right is None:
        return None
    if left.is_constant and right.is_constant:
        units = {left.unit, right.unit}
        if Unit.NUMBER in units or (units == {Unit.INTERVAL}):
            return constant(0, Unit.NUMBER) if Unit.INTERVAL not in units else None
        return _constant_product(left, right, expr)
    factor, form = (left, right) if left.is_constant else (right, left)
    if (
        isinstance(expr, exp.Mul)
        and factor.is_constant
        and factor.unit is Unit.INTEGER
        and not form.unit.is_time
    ):
        form = replace(form, days=False)
        if factor.low == 1:
            return form
        return negated(form, expr) if factor.low == -1 else None
    return None


def _constant_product(left: LinearForm, right: LinearForm, expr: Expr) -> LinearForm | None:
    unit = Unit.INTERVAL if Unit.INTERVAL in (left.unit, right.unit) else Unit.INTEGER
    a, b = left.low, right.low
    if isinstance(expr, exp.Mul):
        return constant(a * b, unit)
    if b == 0 or unit is Unit.INTERVAL:
        return None
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return constant(quotient if isinstance(expr, exp.IntDiv) else a - quotient * b, unit)


def floored(operand: LinearForm, size: int) -> LinearForm:
    if size == 1 or operand.is_constant:
        return operand if size == 1 else constant(operand.low - operand.low % size, operand.unit)
    return replace(
        operand, low=operand.low - (size - 1), span=operand.span + size, tree=TimeFloor(operand.tree, size)
    )


def truncated(form: LinearForm, size: int, unit: Unit) -> LinearForm:
    """Round towards zero to whole ``unit``s of this size, as a count of them."""
    return replace(
        form,
        unit=unit,
        low=form.low - (size - 1),
        high=form.high + (size - 1),
        span=form.span + size,
        approximate=True,
    )


def wrong_types(expr: Expr, what: str, hint: str | None = None) -> PlanError:
    return PlanError(f"{what}: {text_of(expr)}", code="wrong-types", hint=hint)
