"""Rule: which expressions are linear in their columns (`forms`).

What is not linear (a factor, months, a function) gives None; what Spark would refuse too (a TIMESTAMP plus 3)
raises PlanError[wrong-types].
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from sqlglot import exp

from watersmeet.event_time import DAY_US, TimeColumn
from watersmeet.plan.conditions.forms import (
    LinearForm,
    add,
    combine,
    constant,
    floored,
    multiply,
    negated,
    truncated,
    widened,
    wrong_types,
)
from watersmeet.plan.join_inputs import JoinInputs, Ref, Unit
from watersmeet.spec.model import Expr
from watersmeet.spec.number_literals import read_number
from watersmeet.spec.time_zones import UTC
from watersmeet.types.intervals import interval_us, is_of_days, unit_us
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import BIGINT, DATE, TIMESTAMP, TIMESTAMP_NTZ
from watersmeet.zones import zone

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
    """The linear form of ``expr``, or None. Raises PlanError[wrong-types]."""
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
            return negated(linear_form(expr.this, inputs), expr)
        case exp.Add() | exp.Sub():
            left, right = linear_form(expr.this, inputs), linear_form(expr.expression, inputs)
            return _sum(left, right, 1 if isinstance(expr, exp.Add) else -1, expr, inputs)
        case exp.Mul() | exp.IntDiv() | exp.Mod():
            return multiply(linear_form(expr.this, inputs), linear_form(expr.expression, inputs), expr)
        case exp.Cast():
            return _cast(linear_form(expr.this, inputs), expr, inputs)
        case exp.TsOrDsToDate() if expr.args.get("format") is None:
            return _to_date(linear_form(expr.this, inputs), inputs)
        case exp.TimestampTrunc():
            return _truncated(linear_form(expr.this, inputs), expr.text("unit"), inputs)
        case exp.TimestampAdd() | exp.TsOrDsAdd():
            return _added(expr, inputs)
        case exp.TimestampDiff():
            return _units_between(expr.text("unit"), expr.expression, expr.this, inputs)
        case exp.DateDiff() if expr.text("unit"):  # timestampdiff by another name
            return _units_between(expr.text("unit"), expr.expression.this, expr.this.this, inputs)
        case exp.DateDiff():
            left, right = (_to_date(linear_form(e, inputs), inputs) for e in (expr.this, expr.expression))
            both = add(left, right, -1, expr)
            return None if both is None else replace(both, unit=Unit.DAYS)
        case exp.Anonymous() if expr.name.upper() == "UNIX_DATE" and len(expr.expressions) == 1:
            return _counted(expr.expressions[0], Unit.DAYS, DAY_US, inputs)
        case exp.StrToUnix():
            return _unix_timestamp(expr.this, inputs)
        case _ if type(expr) in _COUNTS:
            return _counted(expr.this, *_COUNTS[type(expr)], inputs)
    return None


def _counted(expr: Expr, unit: Unit, size: int, inputs: JoinInputs) -> LinearForm | None:
    operand = linear_form(expr, inputs)
    if operand is None or not operand.unit.is_time:
        return None
    operand = _wall(operand, inputs) if unit is Unit.DAYS else _instant(operand, inputs)
    return replace(floored(operand, size), unit=unit, wall=False)


def _units_between(name: str, start: Expr, end: Expr, inputs: JoinInputs) -> LinearForm | None:
    """Whole units between two times on the clock of the job's zone, rounded towards zero."""
    size = unit_us(name)
    if size is None or size not in _BETWEEN:
        return None
    later, earlier = (linear_form(expr, inputs) for expr in (end, start))
    if later is None or earlier is None or not (later.unit.is_time and earlier.unit.is_time):
        return None
    later, earlier = (_wall(_instant(form, inputs), inputs) for form in (later, earlier))
    return truncated(combine(later, earlier, -1, Unit.INTERVAL), size, _BETWEEN[size])


def _unix_timestamp(expr: Expr, inputs: JoinInputs) -> LinearForm | None:
    """Seconds since 1970, rounded towards zero; of a TIMESTAMP_NTZ those on the wall."""
    operand = linear_form(expr, inputs)
    if operand is None or not operand.unit.is_time:
        return None
    if operand.unit is Unit.DATE:
        operand = _instant(operand, inputs)
    return truncated(replace(operand, wall=False), 1_000_000, Unit.SECONDS)


def _instant(form: LinearForm, inputs: JoinInputs) -> LinearForm:
    """A time as an instant: midnight, of a DATE, on the zone's clock."""
    if not form.wall or inputs.time_zone == UTC:
        return replace(form, wall=False) if form.wall else form
    own = zone(inputs.time_zone)
    return widened(form, -own.greatest, -own.least, wall=False)


def _wall(form: LinearForm, inputs: JoinInputs) -> LinearForm:
    """A time as the zone's clock shows it."""
    if form.wall or inputs.time_zone == UTC:
        return form if form.wall else replace(form, wall=True)
    own = zone(inputs.time_zone)
    return widened(form, own.least, own.greatest, wall=True)


def _over_changes(form: LinearForm | None, inputs: JoinInputs) -> LinearForm | None:
    """Of what Spark counts on the zone's clock: between two instants the clock may be changed."""
    if form is None or inputs.time_zone == UTC:
        return form
    own = zone(inputs.time_zone)
    swing = own.greatest - own.least
    return widened(form, -swing, swing, wall=form.wall) if swing else form


def _sum(
    left: LinearForm | None, right: LinearForm | None, sign: Literal[1, -1], expr: Expr, inputs: JoinInputs
) -> LinearForm | None:
    """Days are added, and two times subtracted, on the clock of the job's zone."""
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


def compared(left: LinearForm, right: LinearForm, expr: Expr, inputs: JoinInputs) -> LinearForm | None:
    """``left - right`` for a comparison, or None where the two do not count the same."""
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


def _cast(operand: LinearForm | None, cast: exp.Cast, inputs: JoinInputs) -> LinearForm | None:
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
            return replace(floored(operand, 1_000_000), unit=Unit.SECONDS)
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
    return replace(floored(_wall(operand, inputs), DAY_US), unit=Unit.DATE)


def _truncated(operand: LinearForm | None, unit: str, inputs: JoinInputs) -> LinearForm | None:
    if operand is None or not operand.unit.is_time:
        return None
    size = unit_us(unit)
    if size is None:
        return None
    if inputs.time_zone != UTC:
        on_the_wall = _wall(_instant(operand, inputs), inputs)
        return replace(_instant(floored(on_the_wall, size), inputs), unit=Unit.TIMESTAMP)
    if size == _WEEK:
        shifted = combine(operand, constant(_MONDAY, Unit.INTERVAL), 1, Unit.TIMESTAMP)
        return combine(floored(shifted, size), constant(_MONDAY, Unit.INTERVAL), -1, Unit.TIMESTAMP)
    return replace(floored(operand, size), unit=Unit.TIMESTAMP)


def _added(expr: Expr, inputs: JoinInputs) -> LinearForm | None:
    """timestampadd(unit, n, time); date_add(date, n)."""
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
