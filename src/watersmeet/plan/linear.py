"""Rule: which expressions are linear in their columns (`forms`).

What is not linear (a factor, months, a function) gives None; what Spark would refuse too (a TIMESTAMP plus 3)
raises PlanError[wrong-types].
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from watersmeet.event_time import DAY_US, TimeColumn
from watersmeet.plan.forms import LinearForm, add, combine, constant, floored, multiply, negated, wrong_types
from watersmeet.plan.intervals import interval_us, unit_us
from watersmeet.plan.scope import INTEGER_BITS, Ref, Scope, Unit
from watersmeet.spec.model import Expr

_COUNTS: dict[type[Expr], tuple[Unit, int]] = {
    exp.UnixSeconds: (Unit.SECONDS, 1_000_000),
    exp.UnixMillis: (Unit.MILLIS, 1_000),
    exp.UnixMicros: (Unit.MICROS, 1),
    exp.UnixDate: (Unit.DAYS, DAY_US),
}
_WEEK = 7 * DAY_US
_MONDAY = 3 * DAY_US
"""1970-01-01 was a Thursday: weeks begin three days before it."""


def linear_form(expr: Expr, scope: Scope) -> LinearForm | None:
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
            return None if us is None else constant(us, Unit.INTERVAL)
        case exp.Neg():
            return negated(linear_form(expr.this, scope), expr)
        case exp.Add() | exp.Sub():
            left, right = linear_form(expr.this, scope), linear_form(expr.expression, scope)
            return add(left, right, 1 if isinstance(expr, exp.Add) else -1, expr)
        case exp.Mul() | exp.IntDiv() | exp.Mod():
            return multiply(linear_form(expr.this, scope), linear_form(expr.expression, scope), expr)
        case exp.Cast():
            return _cast(linear_form(expr.this, scope), expr)
        case exp.TsOrDsToDate() if expr.args.get("format") is None:
            return _to_date(linear_form(expr.this, scope))
        case exp.TimestampTrunc():
            return _truncated(linear_form(expr.this, scope), expr.text("unit"))
        case exp.TimestampAdd() | exp.TsOrDsAdd():
            return _added(expr, scope)
        case exp.DateDiff() if expr.text("unit").upper() in ("", "DAY"):
            left, right = (_to_date(linear_form(e, scope)) for e in (expr.this, expr.expression))
            both = add(left, right, -1, expr)
            return None if both is None else replace(both, unit=Unit.DAYS)
        case _ if type(expr) in _COUNTS:
            unit, size = _COUNTS[type(expr)]
            operand = linear_form(expr.this, scope)
            if operand is None or not operand.unit.is_time:
                return None
            return replace(floored(operand, size), unit=unit)
    return None


def compared(left: LinearForm, right: LinearForm, expr: Expr) -> LinearForm | None:
    """``left - right`` for a comparison, or None where the two do not count the same."""
    if left.unit.is_time and right.unit.is_time:
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


def _column(ref: Ref, scope: Scope) -> LinearForm:
    tree = TimeColumn(scope.side(ref[0]), scope.column_name(ref))
    bits = INTEGER_BITS.get(scope.column(ref).type.upper(), 64)
    return LinearForm(scope.unit(ref), {ref: 1}, frozenset({ref}), 0, 0, 0, tree, bits)


def _literal(text: str) -> LinearForm:
    return constant(int(text), Unit.INTEGER) if text.isdigit() else constant(0, Unit.NUMBER)


def _cast(operand: LinearForm | None, cast: exp.Cast) -> LinearForm | None:
    if operand is None:
        return None
    target = cast.to.sql(dialect="spark").upper()
    if operand.unit.is_time:
        if target == "DATE":
            return _to_date(operand)
        if target.startswith("TIMESTAMP"):
            return replace(operand, unit=Unit.TIMESTAMP)
        if target in ("BIGINT", "LONG") and operand.unit is Unit.TIMESTAMP:
            return replace(floored(operand, 1_000_000), unit=Unit.SECONDS)
        return None
    if operand.unit is Unit.INTEGER and INTEGER_BITS.get(target, 0) >= (
        1 if operand.is_constant else operand.bits
    ):
        return replace(operand, bits=INTEGER_BITS[target])
    if operand.unit is Unit.INTEGER and target.split("(")[0] in ("DECIMAL", "DOUBLE", "FLOAT"):
        return replace(operand, unit=Unit.NUMBER)
    return None


def _to_date(operand: LinearForm | None) -> LinearForm | None:
    if operand is None or not operand.unit.is_time:
        return None
    return replace(floored(operand, DAY_US), unit=Unit.DATE) if operand.unit is Unit.TIMESTAMP else operand


def _truncated(operand: LinearForm | None, unit: str) -> LinearForm | None:
    if operand is None or not operand.unit.is_time:
        return None
    size = unit_us(unit)
    if size is None:
        return None
    if size == _WEEK:
        shifted = combine(operand, constant(_MONDAY, Unit.INTERVAL), 1, Unit.TIMESTAMP)
        return combine(floored(shifted, size), constant(_MONDAY, Unit.INTERVAL), -1, Unit.TIMESTAMP)
    return replace(floored(operand, size), unit=Unit.TIMESTAMP)


def _added(expr: Expr, scope: Scope) -> LinearForm | None:
    """timestampadd(unit, n, time); date_add(date, n)."""
    operand, count = linear_form(expr.this, scope), linear_form(expr.expression, scope)
    size = unit_us(expr.text("unit") or "DAY")
    if operand is None or count is None or size is None or not operand.unit.is_time:
        return None
    if not count.is_constant or count.unit is not Unit.INTEGER:
        return None
    if isinstance(expr, exp.TsOrDsAdd):
        date = _to_date(operand)
        return (
            None if date is None else combine(date, constant(count.low * size, Unit.INTERVAL), 1, Unit.DATE)
        )
    return combine(operand, constant(count.low * size, Unit.INTERVAL), 1, Unit.TIMESTAMP)
