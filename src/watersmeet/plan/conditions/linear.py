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
_WEEK = 7 * DAY_US
_MONDAY = 3 * DAY_US
"""1970-01-01 was a Thursday: weeks begin three days before it."""


def linear_form(expr: Expr, scope: JoinInputs) -> LinearForm | None:
    """The linear form of ``expr``, or None. Raises PlanError[wrong-types]."""
    match expr:
        case exp.Paren():
            return linear_form(expr.this, scope)
        case exp.Column():
            return _column((expr.table, expr.name), scope)
        case exp.Literal() if not expr.is_string:
            return _literal(expr.this)
        case exp.Interval():
            us = interval_us(expr)
            return None if us is None else constant(us, Unit.INTERVAL, days=is_of_days(expr))
        case exp.Neg():
            return negated(linear_form(expr.this, scope), expr)
        case exp.Add() | exp.Sub():
            left, right = linear_form(expr.this, scope), linear_form(expr.expression, scope)
            return _sum(left, right, 1 if isinstance(expr, exp.Add) else -1, expr, scope)
        case exp.Mul() | exp.IntDiv() | exp.Mod():
            return multiply(linear_form(expr.this, scope), linear_form(expr.expression, scope), expr)
        case exp.Cast():
            return _cast(linear_form(expr.this, scope), expr, scope)
        case exp.TsOrDsToDate() if expr.args.get("format") is None:
            return _to_date(linear_form(expr.this, scope), scope)
        case exp.TimestampTrunc():
            return _truncated(linear_form(expr.this, scope), expr.text("unit"), scope)
        case exp.TimestampAdd() | exp.TsOrDsAdd():
            return _added(expr, scope)
        case exp.DateDiff() if expr.text("unit").upper() in ("", "DAY"):
            left, right = (_to_date(linear_form(e, scope), scope) for e in (expr.this, expr.expression))
            both = add(left, right, -1, expr)
            return None if both is None else replace(both, unit=Unit.DAYS)
        case exp.Anonymous() if expr.name.upper() == "UNIX_DATE" and len(expr.expressions) == 1:
            return _counted(expr.expressions[0], Unit.DAYS, DAY_US, scope)
        case _ if type(expr) in _COUNTS:
            return _counted(expr.this, *_COUNTS[type(expr)], scope)
    return None


def _counted(expr: Expr, unit: Unit, size: int, scope: JoinInputs) -> LinearForm | None:
    operand = linear_form(expr, scope)
    if operand is None or not operand.unit.is_time:
        return None
    operand = _wall(operand, scope) if unit is Unit.DAYS else _instant(operand, scope)
    return replace(floored(operand, size), unit=unit, wall=False)


def _instant(form: LinearForm, scope: JoinInputs) -> LinearForm:
    """A time as an instant: midnight, of a DATE, on the zone's clock."""
    if not form.wall or scope.time_zone == UTC:
        return replace(form, wall=False) if form.wall else form
    own = zone(scope.time_zone)
    return widened(form, -own.greatest, -own.least, wall=False)


def _wall(form: LinearForm, scope: JoinInputs) -> LinearForm:
    """A time as the zone's clock shows it."""
    if form.wall or scope.time_zone == UTC:
        return form if form.wall else replace(form, wall=True)
    own = zone(scope.time_zone)
    return widened(form, own.least, own.greatest, wall=True)


def _over_changes(form: LinearForm | None, scope: JoinInputs) -> LinearForm | None:
    """Of what Spark counts on the zone's clock: between two instants the clock may be changed."""
    if form is None or scope.time_zone == UTC:
        return form
    own = zone(scope.time_zone)
    swing = own.greatest - own.least
    return widened(form, -swing, swing, wall=form.wall) if swing else form


def _sum(
    left: LinearForm | None, right: LinearForm | None, sign: Literal[1, -1], expr: Expr, scope: JoinInputs
) -> LinearForm | None:
    """Days are added, and two times subtracted, on the clock of the job's zone."""
    if left is None or right is None:
        return None
    if left.unit.is_time and right.unit.is_time:
        if left.unit is right.unit is Unit.DATE or (left.wall and right.wall):
            return add(left, right, sign, expr)
        return _over_changes(add(_instant(left, scope), _instant(right, scope), sign, expr), scope)
    total = add(left, right, sign, expr)
    time, other = (left, right) if left.unit.is_time else (right, left)
    if total is None or not time.unit.is_time or other.unit is not Unit.INTERVAL:
        return total
    if time.unit is Unit.DATE and total.unit is not Unit.DATE:
        total = _instant(total, scope)
    whole = other.mentioned or abs(other.low) >= DAY_US or abs(other.high) >= DAY_US
    return _over_changes(total, scope) if whole and not total.wall else total


def compared(left: LinearForm, right: LinearForm, expr: Expr, scope: JoinInputs) -> LinearForm | None:
    """``left - right`` for a comparison, or None where the two do not count the same."""
    if left.unit.is_time and right.unit.is_time:
        if left.wall is not right.wall:
            left, right = _instant(left, scope), _instant(right, scope)
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


def _column(ref: Ref, scope: JoinInputs) -> LinearForm:
    tree = TimeColumn(scope.side(ref[0]), scope.column_name(ref))
    type_ = scope.column(ref).type
    bits, wall = type_.bits or 64, type_ in (DATE, TIMESTAMP_NTZ)
    return LinearForm(scope.unit(ref), {ref: 1}, frozenset({ref}), 0, 0, 0, tree, bits, wall)


def _literal(text: str) -> LinearForm:
    number = read_number(text, negative=True)  # what is beyond its type without a sign, Spark refuses
    return constant(-int(number.value), Unit.INTEGER) if number.is_whole else constant(0, Unit.NUMBER)


def _cast(operand: LinearForm | None, cast: exp.Cast, scope: JoinInputs) -> LinearForm | None:
    if operand is None:
        return None
    target = sql_type(cast.to.sql(dialect="spark"))
    if operand.unit.is_time:
        if target == DATE:
            return _to_date(operand, scope)
        if target == TIMESTAMP_NTZ:
            return replace(_wall(operand, scope), unit=Unit.TIMESTAMP)
        if target == TIMESTAMP:
            return replace(_instant(operand, scope), unit=Unit.TIMESTAMP)
        if target == BIGINT and operand.unit is Unit.TIMESTAMP and not operand.wall:
            return replace(floored(operand, 1_000_000), unit=Unit.SECONDS)
        return None
    if operand.unit is Unit.INTEGER and target.bits >= (1 if operand.is_constant else operand.bits):
        return replace(operand, bits=target.bits)
    if operand.unit is Unit.INTEGER and (target.is_decimal or target.is_real):
        return replace(operand, unit=Unit.NUMBER)
    return None


def _to_date(operand: LinearForm | None, scope: JoinInputs) -> LinearForm | None:
    if operand is None or not operand.unit.is_time:
        return None
    if operand.unit is Unit.DATE:
        return operand
    return replace(floored(_wall(operand, scope), DAY_US), unit=Unit.DATE)


def _truncated(operand: LinearForm | None, unit: str, scope: JoinInputs) -> LinearForm | None:
    if operand is None or not operand.unit.is_time:
        return None
    size = unit_us(unit)
    if size is None:
        return None
    if scope.time_zone != UTC:
        on_the_wall = _wall(_instant(operand, scope), scope)
        return replace(_instant(floored(on_the_wall, size), scope), unit=Unit.TIMESTAMP)
    if size == _WEEK:
        shifted = combine(operand, constant(_MONDAY, Unit.INTERVAL), 1, Unit.TIMESTAMP)
        return combine(floored(shifted, size), constant(_MONDAY, Unit.INTERVAL), -1, Unit.TIMESTAMP)
    return replace(floored(operand, size), unit=Unit.TIMESTAMP)


def _added(expr: Expr, scope: JoinInputs) -> LinearForm | None:
    """timestampadd(unit, n, time); date_add(date, n)."""
    operand, count = linear_form(expr.this, scope), linear_form(expr.expression, scope)
    size = unit_us(expr.text("unit") or "DAY")
    if operand is None or count is None or size is None or not operand.unit.is_time:
        return None
    if not count.is_constant or count.unit is not Unit.INTEGER:
        return None
    if isinstance(expr, exp.TsOrDsAdd):
        date = _to_date(operand, scope)
        return (
            None if date is None else combine(date, constant(count.low * size, Unit.INTERVAL), 1, Unit.DATE)
        )
    shifted = combine(_instant(operand, scope), constant(count.low * size, Unit.INTERVAL), 1, Unit.TIMESTAMP)
    return shifted if abs(count.low * size) < DAY_US else _over_changes(shifted, scope)
