"""Rule: conditions of constants that are decided before the job runs, as Spark is known to decide them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from watersmeet.spec.model import Expr
from watersmeet.spec.number_literals import Number, NumberError, read_number
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import BIGINT, BOOLEAN, DOUBLE, FLOAT, INT, STRING

_NULLS = {INT: Number, BIGINT: Number, DOUBLE: Number, STRING: str, BOOLEAN: bool}
"""Beside what a NULL that was cast to a type may stand."""


@dataclass(frozen=True)
class _Null:
    """A NULL of a type. ``of``: what it may be compared with."""

    of: type


_Value = bool | str | Number | _Null | None
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


class _Undecided(Exception):
    """Only Spark knows, or refuses it."""


def constant_is_true(expr: Expr) -> bool | None:
    """Whether a condition of constants is TRUE; None when that is not known before the job runs.

    >>> import sqlglot
    >>> [constant_is_true(sqlglot.parse_one(text)) for text in ("1 < 2", "NULL AND TRUE", "1 / 0 = 1")]
    [True, False, None]
    """
    try:
        return _truth(expr) is True
    except (_Undecided, NumberError):
        return None


def _truth(node: Expr) -> bool | None:
    value = _value(node)
    if isinstance(value, _Null) and value.of is bool:
        return None
    if value is None or isinstance(value, bool):
        return value
    raise _Undecided


def _value(node: Expr) -> _Value:
    if isinstance(node, exp.Paren):
        return _value(node.this)
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal):
        return str(node.this) if node.is_string else read_number(node.this)
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return read_number(node.this.this, negative=True)
    of = _NULLS.get(sql_type(node.to.sql("spark"))) if isinstance(node, exp.Cast) else None
    if of is not None and _value(node.this) is None:
        return _Null(of)
    truth = _condition(node)
    return _Null(bool) if truth is None else truth


def _condition(node: Expr) -> bool | None:
    if isinstance(node, exp.Not):
        truth = _truth(node.this)
        return None if truth is None else not truth
    if isinstance(node, exp.And | exp.Or):
        deciding = isinstance(node, exp.Or)
        truths = (_truth(node.this), _truth(node.expression))
        return deciding if deciding in truths else None if None in truths else not deciding
    if isinstance(node, _COMPARISONS):
        return _compared(node, _value(node.this), _value(node.expression))
    raise _Undecided


def _compared(node: Expr, left: _Value, right: _Value) -> bool | None:
    if left is None or right is None:
        return None
    kinds = {operand.of if isinstance(operand, _Null) else type(operand) for operand in (left, right)}
    if len(kinds) == 1 and (isinstance(left, _Null) or isinstance(right, _Null)):
        if any(isinstance(operand, Number) and abs(operand.value) >= 2**31 for operand in (left, right)):
            raise _Undecided  # Spark's optimizer has found some of these TRUE
        return None
    if isinstance(left, Number) and isinstance(right, Number):
        return _ordered(node, *_alike(left, right))
    if isinstance(left, str) and isinstance(right, str):
        return _ordered(node, left.encode(), right.encode())
    if isinstance(left, bool) and isinstance(right, bool):
        return _ordered(node, left, right)
    raise _Undecided


def _alike(left: Number, right: Number) -> tuple[Fraction | float, Fraction | float]:
    types = {left.type, right.type}
    if FLOAT in types:
        raise _Undecided
    if DOUBLE in types:
        return float(left.value), float(right.value)
    if any(operand.type.is_decimal and abs(operand.value) >= 10**18 for operand in (left, right)):
        raise _Undecided  # their common type may lack digits
    return left.value, right.value


def _ordered(node: Expr, left: Fraction | float | bytes, right: Fraction | float | bytes) -> bool:
    lower, equal = left < right, left == right  # type: ignore[operator]
    truths: dict[type[Expr], bool] = {
        exp.EQ: equal,
        exp.NEQ: not equal,
        exp.LT: lower,
        exp.LTE: lower or equal,
        exp.GT: not (lower or equal),
        exp.GTE: not lower,
    }
    return truths[type(node)]
