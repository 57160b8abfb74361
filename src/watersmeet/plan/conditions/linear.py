"""Linear forms of expressions, exact by the rules of Spark SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.event_time import DAY_US, TimeColumn, TimeConstant, TimeExpr, TimeFloor, TimeSum
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.query_inputs import JoinInputs, Ref, Unit
from watersmeet.spec.literals import NumberError, read_number
from watersmeet.spec.model import Expr
from watersmeet.spec.time_zones import UTC
from watersmeet.types import sql_type as sql
from watersmeet.types.intervals import interval_us, is_of_days, unit_us
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import BIGINT, DATE, TIMESTAMP, TIMESTAMP_NTZ, SqlType
from watersmeet.zones import zone

# Sums of number columns and constants, exact whatever the type: what bands over decimals and doubles are
# made of. (Integers among themselves are linear forms like times, `linear`.)

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}


@dataclass(frozen=True)
class NumberType:
    """Digits before and after the point; of FLOAT and DOUBLE None, and their precision in bits."""

    whole: int | None
    places: int = 0
    bits: int = 0

    @property
    def is_real(self) -> bool:
        return self.whole is None


FLOAT, DOUBLE = NumberType(None, bits=24), NumberType(None, bits=53)


@dataclass(frozen=True)
class Sum:
    """``sum of ±columns + constant``.

    ``size``: the sum of the constants' sizes; ``places``: the most digits after the point of a constant;
    ``steps``: how many values went into it, casts counted; ``is_plain``: no cast in it, so that it
    can be computed again as it is written; ``has_real``: some constant is a double.
    """

    terms: Mapping[Ref, int]
    constant: Fraction = Fraction(0)
    size: Fraction = Fraction(0)
    places: int = 0
    steps: int = 1
    is_plain: bool = True
    has_real: bool = False


def number_type(type_: SqlType) -> NumberType | None:
    """Return the number type of a declared type, or None if it is no number."""
    if type_.is_integer:
        return NumberType(_DIGITS[type_.bits])
    if type_.is_decimal:
        return NumberType(type_.whole_digits, type_.scale)
    return {sql.FLOAT: FLOAT, sql.DOUBLE: DOUBLE}.get(type_)


def sum_of(expr: Expr, inputs: JoinInputs) -> Sum | None:
    """Return ``expr`` as a sum, or None if it is no sum."""
    match expr:
        case exp.Paren():
            return sum_of(expr.this, inputs)
        case exp.Column():
            ref = (expr.table, expr.name)
            return Sum({ref: 1}) if inputs.unit(ref) in (Unit.INTEGER, Unit.NUMBER) else None
        case exp.Literal():
            return None if expr.is_string else literal(expr.this)
        case exp.Neg():
            return _add_sums(Sum({}), sum_of(expr.this, inputs), -1)
        case exp.Add() | exp.Sub():
            left, right = sum_of(expr.this, inputs), sum_of(expr.expression, inputs)
            return _add_sums(left, right, 1 if isinstance(expr, exp.Add) else -1)
        case exp.Cast():
            return _number_cast(expr, inputs)
    return None


def literal(text: str) -> Sum | None:
    """Parse a number literal, or return None if it is no plain number."""
    try:
        number = read_number(text, negative=True)
    except NumberError:
        return None
    if number.type == sql.FLOAT:
        return None
    if number.type == sql.DOUBLE:
        value = Fraction(float(-number.value))
        return Sum({}, value, abs(value), has_real=True)
    own = number_type(number.type)
    assert own is not None
    return Sum({}, -number.value, abs(number.value), own.places)


def _number_cast(cast: exp.Cast, inputs: JoinInputs) -> Sum | None:
    """Casts that keep the order and every value, or the nearest double of it."""
    target = number_type(sql_type(cast.to.sql(dialect="spark")))
    if target is None:
        return None
    if isinstance(cast.this, exp.Literal):
        text = cast.this.this
        number = None if cast.this.is_string and not re.fullmatch(r"\d+(\.\d+)?", text) else literal(text)
        if number is None or target == FLOAT:
            return None
        if target.whole is not None and (number.places > target.places or number.size >= 10**target.whole):
            return None
        return Sum(number.terms, number.constant, number.size, number.places, has_real=target.is_real)
    operand = sum_of(cast.this, inputs)
    if operand is None or target == FLOAT:
        return None
    if target.whole is not None:
        types = [number_type(inputs.column(ref).type) for ref in operand.terms]
        if len(types) != 1 or operand.size or types[0] is None or types[0].whole is None:
            return None
        if types[0].whole > target.whole or types[0].places > target.places:
            return None
    return Sum(
        operand.terms,
        operand.constant,
        operand.size,
        operand.places,
        operand.steps + 1,
        is_plain=False,
        has_real=operand.has_real or target.is_real,
    )


def _add_sums(left: Sum | None, right: Sum | None, sign: int) -> Sum | None:
    if left is None or right is None:
        return None
    terms = dict(left.terms)
    for ref, factor in right.terms.items():
        if ref in terms:
            return None  # a column twice: what is NULL or NaN in it counts though it cancels out
        terms[ref] = sign * factor
    return Sum(
        terms,
        left.constant + sign * right.constant,
        left.size + right.size,
        max(left.places, right.places),
        left.steps + right.steps,
        left.is_plain and right.is_plain,
        left.has_real or right.has_real,
    )


# Linear forms and arithmetic on them, by the rules of Spark SQL for numbers, times and intervals.
#
# A linear form is ``sum of ±columns + e`` with ``low <= e <= high``: the two differ only where a cast
# loses precision (TIMESTAMP to DATE, date_trunc), which makes a value smaller by up to its unit less one.
# Times are in canonical units (µs, or plain integers), whatever the expression counts in.

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


def negate_form(operand: LinearForm | None, expr: Expr) -> LinearForm | None:
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
    """Return the unit of a sum or difference by the rules of Spark SQL.

    Returns:
        None if the expression is not linear.
    """
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


def widen_form(form: LinearForm, low: int, high: int, *, wall: bool) -> LinearForm:
    """Add to a form the range of a time-zone shift between ``low`` and ``high``."""
    return replace(
        form,
        low=form.low + low,
        high=form.high + high,
        span=form.span + max(abs(low), abs(high)),
        wall=wall,
        approximate=True,
    )


def multiply(left: LinearForm | None, right: LinearForm | None, expr: Expr) -> LinearForm | None:
    """Return the product of two constants, or of a form and ±1; None for any other product."""
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
        return negate_form(form, expr) if factor.low == -1 else None
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


def floor_form(operand: LinearForm, size: int) -> LinearForm:
    if size == 1 or operand.is_constant:
        return operand if size == 1 else constant(operand.low - operand.low % size, operand.unit)
    return replace(
        operand, low=operand.low - (size - 1), span=operand.span + size, tree=TimeFloor(operand.tree, size)
    )


def truncate_form(form: LinearForm, size: int, unit: Unit) -> LinearForm:
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


# Rule: which expressions are linear in their columns (`forms`).
#
# What is not linear (a factor, months, a function) gives None; what Spark would refuse too (a TIMESTAMP
# plus 3) raises PlanError[wrong-types].

_COUNTS: dict[type[Expr], tuple[Unit, int]] = {
    exp.UnixSeconds: (Unit.SECONDS, 1_000_000),
    exp.UnixMillis: (Unit.MILLIS, 1_000),
    exp.UnixMicros: (Unit.MICROS, 1),
}
_BETWEEN = {unit.scale: unit for unit in Unit if unit.is_count}
"""By its size, what `timestampdiff` counts in a unit."""
_WEEK = 7 * DAY_US
_MONDAY = 3 * DAY_US
"""1970-01-01 was a Thursday: weeks begin three days before it."""


def linear_form(expr: Expr, inputs: JoinInputs) -> LinearForm | None:
    """Return the linear form of ``expr``, or None if it has none.

    Raises:
        PlanError: [wrong-types] The types cannot be combined.
    """
    match expr:
        case exp.Paren():
            return linear_form(expr.this, inputs)
        case exp.Column():
            return _column((expr.table, expr.name), inputs)
        case exp.Literal() if not expr.is_string:
            return _literal(expr.this)
        case exp.Interval():
            us = interval_us(expr)
            return None if us is None else constant(us, Unit.INTERVAL, days=is_of_days(expr))
        case exp.Neg():
            return negate_form(linear_form(expr.this, inputs), expr)
        case exp.Add() | exp.Sub():
            left, right = linear_form(expr.this, inputs), linear_form(expr.expression, inputs)
            return _sum(left, right, 1 if isinstance(expr, exp.Add) else -1, expr, inputs)
        case exp.Mul() | exp.IntDiv() | exp.Mod():
            return multiply(linear_form(expr.this, inputs), linear_form(expr.expression, inputs), expr)
        case exp.Cast():
            return _linear_cast(linear_form(expr.this, inputs), expr, inputs)
        case exp.TsOrDsToDate() if expr.args.get("format") is None:
            return _to_date(linear_form(expr.this, inputs), inputs)
        case exp.TimestampTrunc():
            return _truncate_time(linear_form(expr.this, inputs), expr.text("unit"), inputs)
        case exp.TimestampAdd() | exp.TsOrDsAdd():
            return _linear_addition(expr, inputs)
        case exp.TimestampDiff():
            return _units_between(expr.text("unit"), expr.expression, expr.this, inputs)
        case exp.DateDiff() if expr.text("unit"):  # timestampdiff by another name
            return _units_between(expr.text("unit"), expr.expression.this, expr.this.this, inputs)
        case exp.DateDiff():
            left, right = (_to_date(linear_form(e, inputs), inputs) for e in (expr.this, expr.expression))
            both = add(left, right, -1, expr)
            return None if both is None else replace(both, unit=Unit.DAYS)
        case exp.Anonymous() if expr.name.upper() == "UNIX_DATE" and len(expr.expressions) == 1:
            return _count_units(expr.expressions[0], Unit.DAYS, DAY_US, inputs)
        case exp.StrToUnix():
            return _unix_timestamp(expr.this, inputs)
        case _ if type(expr) in _COUNTS:
            return _count_units(expr.this, *_COUNTS[type(expr)], inputs)
    return None


def _count_units(expr: Expr, unit: Unit, size: int, inputs: JoinInputs) -> LinearForm | None:
    operand = linear_form(expr, inputs)
    if operand is None or not operand.unit.is_time:
        return None
    operand = _wall(operand, inputs) if unit is Unit.DAYS else _instant(operand, inputs)
    return replace(floor_form(operand, size), unit=unit, wall=False)


def _units_between(name: str, start: Expr, end: Expr, inputs: JoinInputs) -> LinearForm | None:
    """Return the whole units between two times on the clock of the job's zone, rounded to zero.

    Returns:
        None if the unit is not supported or an operand is no time.
    """
    size = unit_us(name)
    if size is None or size not in _BETWEEN:
        return None
    later, earlier = (linear_form(expr, inputs) for expr in (end, start))
    if later is None or earlier is None or not (later.unit.is_time and earlier.unit.is_time):
        return None
    later, earlier = (_wall(_instant(form, inputs), inputs) for form in (later, earlier))
    return truncate_form(combine(later, earlier, -1, Unit.INTERVAL), size, _BETWEEN[size])


def _unix_timestamp(expr: Expr, inputs: JoinInputs) -> LinearForm | None:
    """Return the seconds since 1970, rounded towards zero; None if the operand is no time.

    A TIMESTAMP_NTZ counts seconds of the wall clock.
    """
    operand = linear_form(expr, inputs)
    if operand is None or not operand.unit.is_time:
        return None
    if operand.unit is Unit.DATE:
        operand = _instant(operand, inputs)
    return truncate_form(replace(operand, wall=False), 1_000_000, Unit.SECONDS)


def _instant(form: LinearForm, inputs: JoinInputs) -> LinearForm:
    """Convert a time to an instant; a DATE becomes midnight on the zone's clock."""
    if not form.wall or inputs.time_zone == UTC:
        return replace(form, wall=False) if form.wall else form
    own = zone(inputs.time_zone)
    return widen_form(form, -own.greatest, -own.least, wall=False)


def _wall(form: LinearForm, inputs: JoinInputs) -> LinearForm:
    """Convert a time to the wall clock of the zone."""
    if form.wall or inputs.time_zone == UTC:
        return form if form.wall else replace(form, wall=True)
    own = zone(inputs.time_zone)
    return widen_form(form, own.least, own.greatest, wall=True)


def _over_changes(form: LinearForm | None, inputs: JoinInputs) -> LinearForm | None:
    """Widen a form that Spark computes on the zone's clock by the largest change of that clock.

    The clock may change between two instants. None stays None.
    """
    if form is None or inputs.time_zone == UTC:
        return form
    own = zone(inputs.time_zone)
    swing = own.greatest - own.least
    return widen_form(form, -swing, swing, wall=form.wall) if swing else form


def _sum(
    left: LinearForm | None, right: LinearForm | None, sign: Literal[1, -1], expr: Expr, inputs: JoinInputs
) -> LinearForm | None:
    """Add or subtract two forms.

    Days are added, and two times subtracted, on the clock of the job's time zone.
    """
    if left is None or right is None:
        return None
    if left.unit.is_time and right.unit.is_time:
        if left.unit is right.unit is Unit.DATE or (left.wall and right.wall):
            return add(left, right, sign, expr)
        return _over_changes(add(_instant(left, inputs), _instant(right, inputs), sign, expr), inputs)
    total = add(left, right, sign, expr)
    time, other = (left, right) if left.unit.is_time else (right, left)
    if total is None or not time.unit.is_time or other.unit is not Unit.INTERVAL:
        return total
    if time.unit is Unit.DATE and total.unit is not Unit.DATE:
        total = _instant(total, inputs)
    whole = other.mentioned or abs(other.low) >= DAY_US or abs(other.high) >= DAY_US
    return _over_changes(total, inputs) if whole and not total.wall else total


def difference_form(left: LinearForm, right: LinearForm, expr: Expr, inputs: JoinInputs) -> LinearForm | None:
    """Return ``left - right`` for a comparison, or None if their units differ."""
    if left.unit.is_time and right.unit.is_time:
        if left.wall is not right.wall:
            left, right = _instant(left, inputs), _instant(right, inputs)
        return combine(left, right, -1, Unit.INTERVAL)
    if left.unit is right.unit is Unit.OTHER:
        return combine(left, right, -1, Unit.OTHER)
    for one, other in ((left, right), (right, left)):
        if one.unit.is_time and other.unit in (Unit.INTEGER, Unit.NUMBER):
            raise wrong_types(
                expr, "a time is compared with a number", "cast one of them, or compare with an INTERVAL"
            )
        if one.unit is Unit.INTERVAL and other.unit in (Unit.INTEGER, Unit.NUMBER):
            raise wrong_types(
                expr,
                "an interval is compared with a number",
                "write the distance as an interval: INTERVAL '10' SECOND",
            )
        if one.unit is Unit.INTERVAL and other.unit.is_time:
            raise wrong_types(expr, "an interval is compared with a time", "add the interval to a time first")
    return add(left, right, -1, expr)


def _column(ref: Ref, inputs: JoinInputs) -> LinearForm:
    tree = TimeColumn(inputs.side(ref[0]), inputs.column_name(ref))
    type_ = inputs.column(ref).type
    bits, wall = type_.bits or 64, type_ in (DATE, TIMESTAMP_NTZ)
    return LinearForm(inputs.unit(ref), {ref: 1}, frozenset({ref}), 0, 0, 0, tree, bits, wall)


def _literal(text: str) -> LinearForm:
    number = read_number(text, negative=True)  # what is beyond its type without a sign, Spark refuses
    return constant(-int(number.value), Unit.INTEGER) if number.is_whole else constant(0, Unit.NUMBER)


def _linear_cast(operand: LinearForm | None, cast: exp.Cast, inputs: JoinInputs) -> LinearForm | None:
    if operand is None:
        return None
    target = sql_type(cast.to.sql(dialect="spark"))
    if operand.unit.is_time:
        if target == DATE:
            return _to_date(operand, inputs)
        if target == TIMESTAMP_NTZ:
            return replace(_wall(operand, inputs), unit=Unit.TIMESTAMP)
        if target == TIMESTAMP:
            return replace(_instant(operand, inputs), unit=Unit.TIMESTAMP)
        if target == BIGINT and operand.unit is Unit.TIMESTAMP and not operand.wall:
            return replace(floor_form(operand, 1_000_000), unit=Unit.SECONDS)
        return None
    if operand.unit is Unit.INTEGER and target.bits >= (1 if operand.is_constant else operand.bits):
        return replace(operand, bits=target.bits)
    if operand.unit is Unit.INTEGER and (target.is_decimal or target.is_real):
        return replace(operand, unit=Unit.NUMBER)
    return None


def _to_date(operand: LinearForm | None, inputs: JoinInputs) -> LinearForm | None:
    if operand is None or not operand.unit.is_time:
        return None
    if operand.unit is Unit.DATE:
        return operand
    return replace(floor_form(_wall(operand, inputs), DAY_US), unit=Unit.DATE)


def _truncate_time(operand: LinearForm | None, unit: str, inputs: JoinInputs) -> LinearForm | None:
    if operand is None or not operand.unit.is_time:
        return None
    size = unit_us(unit)
    if size is None:
        return None
    if inputs.time_zone != UTC:
        on_the_wall = _wall(_instant(operand, inputs), inputs)
        return replace(_instant(floor_form(on_the_wall, size), inputs), unit=Unit.TIMESTAMP)
    if size == _WEEK:
        shifted = combine(operand, constant(_MONDAY, Unit.INTERVAL), 1, Unit.TIMESTAMP)
        return combine(floor_form(shifted, size), constant(_MONDAY, Unit.INTERVAL), -1, Unit.TIMESTAMP)
    return replace(floor_form(operand, size), unit=Unit.TIMESTAMP)


def _linear_addition(expr: Expr, inputs: JoinInputs) -> LinearForm | None:
    """Return the linear form of ``timestampadd(unit, n, time)`` or ``date_add(date, n)``."""
    operand, count = linear_form(expr.this, inputs), linear_form(expr.expression, inputs)
    size = unit_us(expr.text("unit") or "DAY")
    if operand is None or count is None or size is None or not operand.unit.is_time:
        return None
    if not count.is_constant or count.unit is not Unit.INTEGER:
        return None
    if isinstance(expr, exp.TsOrDsAdd):
        date = _to_date(operand, inputs)
        return (
            None if date is None else combine(date, constant(count.low * size, Unit.INTERVAL), 1, Unit.DATE)
        )
    shifted = combine(_instant(operand, inputs), constant(count.low * size, Unit.INTERVAL), 1, Unit.TIMESTAMP)
    return shifted if abs(count.low * size) < DAY_US else _over_changes(shifted, inputs)
