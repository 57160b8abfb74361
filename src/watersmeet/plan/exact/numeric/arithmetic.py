"""Rule: sums, products, quotients and remainders of numbers, and of what type they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from watersmeet.plan.exact.values import (
    Exact,
    NotExact,
    as_decimal,
    call,
    constant,
    one_type,
    widened,
)
from watersmeet.types.arithmetic import fitted, product_parts, quotient_parts, remainder_parts, sum_parts
from watersmeet.types.sql_type import (
    BIGINT,
    DOUBLE,
    INTEGERS,
    MOST_DIGITS,
    REALS,
    STRING,
    VOID,
    SqlType,
    decimal,
)

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler

_IN_64_BITS = 18
_SIGNS = {"plus": "+", "minus": "-", "times": "*"}


def compute(compiler: Compiler, function: str, left: Exact, right: Exact) -> Exact:
    """``+``, ``-``, ``*`` of numbers. Raises: NotExact."""
    if _of_decimals(left, right):
        return _of_many_digits(function, left, right)
    if STRING in (left.type, right.type):
        raise NotExact("arithmetic with a text")
    alike = compiler.alike([left, right])
    if alike[0].type not in (*INTEGERS, *REALS):
        raise NotExact(f"arithmetic with {alike[0].type}")
    return call(function, alike[0].type, *alike)


def quotient(compiler: Compiler, left: Exact, right: Exact) -> Exact:
    """``/``."""
    if not _of_decimals(left, right):
        return call("divide", DOUBLE, *(_real(operand) for operand in (left, right)))
    divisor = _type(right)
    digits, scale = quotient_parts(_type(left), divisor)
    if digits > MOST_DIGITS or scale + 1 + divisor.digits > MOST_DIGITS:
        raise NotExact("a quotient of DECIMALs of so many digits is rounded twice by Spark, and")
    type_ = fitted(digits, scale)
    return call("quotient", type_, *_as_decimals(left, right), options=[("type", type_)])


def whole_quotient(compiler: Compiler, left: Exact, right: Exact) -> Exact:
    """``div``."""
    if not _of_decimals(left, right):
        return call("whole_quotient", BIGINT, *compiler.whole(left, right, BIGINT))
    return call("whole_decimal_quotient", BIGINT, *_in_64_bits(left, right))


def remainder(compiler: Compiler, left: Exact, right: Exact, function: str = "remainder") -> Exact:
    """``%``, and `pmod` as `positive_remainder`."""
    if not _of_decimals(left, right):
        return compute(compiler, function, left, right)
    type_ = fitted(*remainder_parts(_type(left), _type(right)))
    options = [("type", type_), function == "positive_remainder"]
    return call("decimal_remainder", type_, *_in_64_bits(left, right), options=options)


def _of_decimals(left: Exact, right: Exact) -> bool:
    types = (left.type, right.type)
    return any(type_.is_decimal for type_ in types) and not any(type_ in REALS for type_ in types)


def _real(value: Exact) -> Exact:
    if value.type != VOID and not value.type.is_number:
        raise NotExact(f"{value.type} as a number")
    return widened(value, DOUBLE)


def _of_many_digits(function: str, left: Exact, right: Exact) -> Exact:
    parts = product_parts if function == "times" else sum_parts
    digits, scale = parts(_type(left), _type(right))
    own, type_ = _as_decimals(left, right), fitted(digits, scale)
    if digits <= MOST_DIGITS:
        return call(function, type_, *own)
    if digits > 2 * MOST_DIGITS:
        raise NotExact("a product of so many digits")
    return call("sum_of", type_, *own, options=[("type", type_), _SIGNS[function]])


def _type(value: Exact) -> SqlType:
    """The DECIMAL that it is; a literal integer has the digits that it has, but not so a TINYINT."""
    if _is_literal(value):
        return decimal(len(str(abs(value.tree[1]))), 0)
    return as_decimal(value.type)


def _is_literal(value: Exact) -> bool:
    return value.tree[0] == "constant" and value.type in INTEGERS[1:] and value.tree[1] is not None


def _as_decimals(*values: Exact) -> list[Exact]:
    return [_as_decimal(value) for value in values]


def _as_decimal(value: Exact) -> Exact:
    type_ = _type(value)
    if _is_literal(value):
        return constant(str(value.tree[1]), type_)
    return widened(value, type_)


def _in_64_bits(left: Exact, right: Exact) -> list[Exact]:
    own = _as_decimals(left, right)
    common = one_type([operand.type for operand in own])
    if as_decimal(common).digits > _IN_64_BITS:
        raise NotExact("a remainder of DECIMALs of more than 18 digits")
    return [widened(operand, common) for operand in own]
