"""Rule: which sums of integers in a band may leave their type, where Spark stops with ARITHMETIC_OVERFLOW.

A band counts exactly, whatever the sum. So where values are such that a sum of a conjunct may be beyond its
type, the conjunct finds no candidates, and is decided as a residual is: as it is written, in its place among
the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from watersmeet.conditions import IntegerSum
from watersmeet.event_time import MAX_TIME, MIN_TIME
from watersmeet.measure import Measure, Measured
from watersmeet.plan.conditions.linear import LinearForm, linear_form
from watersmeet.plan.query_inputs import JoinInputs, Ref
from watersmeet.spec.literals import NumberError, read_number
from watersmeet.spec.model import Expr
from watersmeet.types.parser import sql_type

_COUNTS: dict[type[Expr], int] = {
    exp.UnixSeconds: 64,
    exp.UnixMillis: 64,
    exp.UnixMicros: 64,
    exp.StrToUnix: 64,
    exp.TimestampDiff: 64,
    exp.DateDiff: 32,
}
_SUMS = (exp.Add, exp.Sub, exp.Mul, exp.IntDiv, exp.Neg, exp.Cast)


def sums_of(condition: Expr, inputs: JoinInputs, measure: Measure) -> tuple[IntegerSum, ...]:
    """Return the sums of a conjunct that can overflow their type for some column values.

    Args:
        measure: Unit in which column values are counted.
    """
    return tuple(dict.fromkeys(_sums(condition, inputs, measure)))


def _sums(condition: Expr, inputs: JoinInputs, measure: Measure) -> Iterator[IntegerSum]:
    for node in condition.walk():
        if not isinstance(node, _SUMS):
            continue
        bits = _bits(node, inputs)
        if bits is None:
            continue
        form = linear_form(node, inputs)
        if form is None:
            continue
        least, most = _ends(bits, form.unit.scale)
        low, high = form.low, form.high
        for ref, factor in form.terms.items():
            ends = sorted(end * factor for end in _declared_range(ref, inputs))
            low, high = low + ends[0], high + ends[1]
        if least <= low and high <= most:
            continue
        yield _sum(form, least, most, inputs, measure)


def _sum(form: LinearForm, least: int, most: int, inputs: JoinInputs, measure: Measure) -> IntegerSum:
    terms = [
        (inputs.side(ref[0]), Measured(inputs.column_name(ref), measure), factor)
        for ref, factor in form.terms.items()
    ]
    return IntegerSum(tuple(terms), form.low, form.high, least, most)


def _ends(bits: int, scale: int = 1) -> tuple[int, int]:
    return -(1 << (bits - 1)) * scale, ((1 << (bits - 1)) - 1) * scale


def _declared_range(ref: Ref, inputs: JoinInputs) -> tuple[int, int]:
    """Return the smallest and the largest value that a column can have."""
    bits = inputs.column(ref).type.bits
    return _ends(bits) if bits else (MIN_TIME, MAX_TIME)


def _bits(expr: Expr, inputs: JoinInputs) -> int | None:
    """Return the width of an integer in Spark, or None if the expression is no integer."""
    match expr:
        case exp.Paren():
            return _bits(expr.this, inputs)
        case exp.Column():
            return inputs.column((expr.table, expr.name)).type.bits or None
        case exp.Literal() if not expr.is_string:
            return _literal_bits(expr)
        case exp.Neg():
            return _bits(expr.this, inputs)
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Mod():
            left, right = _bits(expr.this, inputs), _bits(expr.expression, inputs)
            return None if left is None or right is None else max(left, right)
        case exp.IntDiv():
            return 64
        case exp.Cast():
            return sql_type(expr.to.sql(dialect="spark")).bits or None
        case exp.Anonymous() if expr.name.upper() == "UNIX_DATE":
            return 32
        case exp.DateDiff() if expr.args.get("unit"):
            return 64
    return _COUNTS.get(type(expr))


def _literal_bits(literal: exp.Literal) -> int | None:
    try:
        number = read_number(literal.this, negative=isinstance(literal.parent, exp.Neg))
    except NumberError:
        return None
    return number.type.bits or None
