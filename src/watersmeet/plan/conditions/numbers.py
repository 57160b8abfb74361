"""Sums of number columns and constants, exact whatever the type: what bands over decimals and doubles are
made of. (Integers among themselves are linear forms like times, `linear`.)"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from watersmeet.plan.join_inputs import JoinInputs, Ref, Unit
from watersmeet.spec.model import Expr
from watersmeet.spec.number_literals import NumberError, read_number
from watersmeet.types import sql_type as sql
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import SqlType

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
    """Of a declared type; None: it is no number."""
    if type_.is_integer:
        return NumberType(_DIGITS[type_.bits])
    if type_.is_decimal:
        return NumberType(type_.whole_digits, type_.scale)
    return {sql.FLOAT: FLOAT, sql.DOUBLE: DOUBLE}.get(type_)


def sum_of(expr: Expr, inputs: JoinInputs) -> Sum | None:
    """``expr`` as a sum, or None where it is something else."""
    match expr:
        case exp.Paren():
            return sum_of(expr.this, inputs)
        case exp.Column():
            ref = (expr.table, expr.name)
            return Sum({ref: 1}) if inputs.unit(ref) in (Unit.INTEGER, Unit.NUMBER) else None
        case exp.Literal():
            return None if expr.is_string else literal(expr.this)
        case exp.Neg():
            return _added(Sum({}), sum_of(expr.this, inputs), -1)
        case exp.Add() | exp.Sub():
            left, right = sum_of(expr.this, inputs), sum_of(expr.expression, inputs)
            return _added(left, right, 1 if isinstance(expr, exp.Add) else -1)
        case exp.Cast():
            return _cast(expr, inputs)
    return None


def literal(text: str) -> Sum | None:
    """A number as it is written; None: it is no plain one."""
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


def _cast(cast: exp.Cast, inputs: JoinInputs) -> Sum | None:
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


def _added(left: Sum | None, right: Sum | None, sign: int) -> Sum | None:
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
