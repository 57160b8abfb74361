"""Rule: sums, products, quotients and remainders of numbers, and of what type they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from watersmeet.plan.exact.values import (
    INTEGERS,
    Exact,
    NotExact,
    call,
    common_type,
    constant,
    decimal_parts,
    is_decimal,
    is_number,
    widened,
)

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler

_MOST = 38
_LEAST_SCALE = 6
_IN_64_BITS = 18
_SIGNS = {"plus": "+", "minus": "-", "times": "*"}
_REALS = ("FLOAT", "DOUBLE")


def compute(compiler: Compiler, function: str, left: Exact, right: Exact) -> Exact:
    """``+``, ``-``, ``*`` of numbers. Raises: NotExact."""
    if _of_decimals(left, right):
        return _of_many_digits(function, left, right)
    if "STRING" in (left.type, right.type):
        raise NotExact("arithmetic with a text")
    alike = compiler.alike([left, right])
    if alike[0].type not in (*INTEGERS, *_REALS):
        raise NotExact(f"arithmetic with {alike[0].type}")
    return call(function, alike[0].type, *alike)


def quotient(compiler: Compiler, left: Exact, right: Exact) -> Exact:
    """``/``."""
    if not _of_decimals(left, right):
        return call("divide", "DOUBLE", *(_real(each) for each in (left, right)))
    (p1, s1), (p2, s2) = _parts(left), _parts(right)
    scale = max(_LEAST_SCALE, s1 + p2 + 1)
    digits = p1 - s1 + s2 + scale
    if digits > _MOST or scale + 1 + p2 > _MOST:
        raise NotExact("a quotient of DECIMALs of so many digits is rounded twice by Spark, and")
    type_ = f"DECIMAL({digits},{scale})"
    return call("quotient", type_, *_as_decimals(left, right), options=[("type", type_)])


def whole_quotient(compiler: Compiler, left: Exact, right: Exact) -> Exact:
    """``div``."""
    if not _of_decimals(left, right):
        return call("whole_quotient", "BIGINT", *compiler.whole(left, right, "BIGINT"))
    return call("whole_decimal_quotient", "BIGINT", *_in_64_bits(left, right))


def remainder(compiler: Compiler, left: Exact, right: Exact, function: str = "remainder") -> Exact:
    """``%``, and `pmod` as `positive_remainder`."""
    if not _of_decimals(left, right):
        return compute(compiler, function, left, right)
    (p1, s1), (p2, s2) = _parts(left), _parts(right)
    scale = max(s1, s2)
    type_ = f"DECIMAL({min(p1 - s1, p2 - s2) + scale},{scale})"
    options = [("type", type_), function == "positive_remainder"]
    return call("decimal_remainder", type_, *_in_64_bits(left, right), options=options)


def _of_decimals(left: Exact, right: Exact) -> bool:
    types = (left.type, right.type)
    return any(map(is_decimal, types)) and not any(type_ in _REALS for type_ in types)


def _real(value: Exact) -> Exact:
    if value.type != "NULL" and not is_number(value.type):
        raise NotExact(f"{value.type} as a number")
    return widened(value, "DOUBLE")


def _of_many_digits(function: str, left: Exact, right: Exact) -> Exact:
    (p1, s1), (p2, s2) = _parts(left), _parts(right)
    if function == "times":
        digits, scale = p1 + p2 + 1, s1 + s2
    else:
        scale = max(s1, s2)
        digits = max(p1 - s1, p2 - s2) + scale + 1
    own = _as_decimals(left, right)
    if digits <= _MOST:
        return call(function, f"DECIMAL({digits},{scale})", *own)
    if digits > 2 * _MOST:
        raise NotExact("a product of so many digits")
    type_ = f"DECIMAL({_MOST},{max(_MOST - (digits - scale), min(scale, _LEAST_SCALE))})"
    return call("sum_of", type_, *own, options=[("type", type_), _SIGNS[function]])


def _parts(value: Exact) -> tuple[int, int]:
    """Digits and scale; a literal integer has the digits that it has, but not so a TINYINT."""
    if _is_literal(value):
        return len(str(abs(value.tree[1]))), 0
    return decimal_parts(value.type)


def _is_literal(value: Exact) -> bool:
    return value.tree[0] == "constant" and value.type in INTEGERS[1:] and value.tree[1] is not None


def _as_decimals(*values: Exact) -> list[Exact]:
    return [_as_decimal(each) for each in values]


def _as_decimal(value: Exact) -> Exact:
    type_ = "DECIMAL({},{})".format(*_parts(value))
    if _is_literal(value):
        return constant(str(value.tree[1]), type_)
    return widened(value, type_)


def _in_64_bits(left: Exact, right: Exact) -> list[Exact]:
    own = _as_decimals(left, right)
    common = common_type([each.type for each in own])
    if decimal_parts(common)[0] > _IN_64_BITS:
        raise NotExact("a remainder of DECIMALs of more than 18 digits")
    return [widened(each, common) for each in own]
