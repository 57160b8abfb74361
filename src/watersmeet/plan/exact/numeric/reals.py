"""Rule: functions of DOUBLEs.

Not on the list: logarithms, powers and `sin` and its like, whose last digits are those of Java's own library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from watersmeet.plan.exact.numeric.whole import places, rounded_whole
from watersmeet.plan.exact.rules import Rule, arguments
from watersmeet.plan.exact.values import (
    Exact,
    NotExact,
    as_decimal,
    call,
    constant,
    decimal_parts,
    decimal_type,
    widened,
)
from watersmeet.spec.model import Expr
from watersmeet.types.sql_type import BIGINT, BOOLEAN, DOUBLE, FLOAT, INTEGERS, VOID

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler


def real(value: Exact) -> Exact:
    """A number as DOUBLE. Raises: NotExact."""
    if value.type != VOID and not value.type.is_number:
        raise NotExact(f"{value.type} as DOUBLE")
    return widened(value, DOUBLE)


def _of_one(function: str) -> Rule:
    return arguments(1, lambda _, value: call("real", DOUBLE, real(value), options=[function]))


def _bucket(_: Compiler, value: Exact, low: Exact, high: Exact, count: Exact) -> Exact:
    if count.type not in INTEGERS:
        raise NotExact(f"{count.type} as a number of buckets")
    return call("bucket", BIGINT, real(value), real(low), real(high), widened(count, BIGINT))


def _whole(function: str, mode: str) -> Rule:
    """`floor`, `ceil`."""

    def of_one(_: Compiler, value: Exact) -> Exact:
        if value.type.is_decimal:
            digits, scale = decimal_parts(value.type)
            if scale == 0:
                return value
            type_ = decimal_type(digits - scale + 1, 0)
            return call("rounded", type_, value, options=[("type", type_), 0, mode])
        if value.type in INTEGERS:
            return widened(value, BIGINT)
        return call(function, BIGINT, real(value))

    def of_two(_: Compiler, value: Exact, digits: Exact) -> Exact:
        if value.type not in INTEGERS and not value.type.is_decimal:
            raise NotExact(f"{mode} of {value.type} to a number of digits")
        return _of_decimal(widened(value, as_decimal(value.type)), places(digits), mode)

    return lambda compiler, nodes: arguments(len(nodes), of_one if len(nodes) == 1 else of_two)(
        compiler, nodes if len(nodes) in (1, 2) else nodes[:0]
    )


def _round(mode: str) -> Rule:
    def rule(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
        if len(nodes) not in (1, 2):
            raise NotExact("this number of arguments is not on the list")
        value, *rest = compiler.all(nodes)
        digits = places(rest[0]) if rest else 0
        if value.type.is_decimal:
            return _of_decimal(value, digits, mode)
        if value.type in INTEGERS:
            return rounded_whole(value, digits, mode == "even")
        raise NotExact(f"rounding {value.type}, which goes by how Java writes it,")

    return rule


def _of_decimal(value: Exact, to: int, mode: str) -> Exact:
    digits, scale = decimal_parts(value.type)
    before = digits - scale + 1
    if to < 0:
        type_ = decimal_type(max(before, -to + 1), 0)
    else:
        type_ = decimal_type(before + min(scale, to), min(scale, to))
    return call("rounded", type_, value, options=[("type", type_), min(to, scale), mode])


def _nanvl(compiler: Compiler, left: Exact, right: Exact) -> Exact:
    if (left.type, right.type) != (FLOAT, FLOAT):
        left, right = real(left), real(right)
    return compiler.case_of([call("is_nan", BOOLEAN, left)], [right], left)


FUNCTIONS: dict[str, Rule] = {
    **{name: _of_one(name) for name in ("sqrt", "rint", "degrees", "radians", "sign")},
    "signum": _of_one("sign"),
    "e": arguments(0, lambda _: constant(math.e, DOUBLE)),
    "pi": arguments(0, lambda _: constant(math.pi, DOUBLE)),
    "floor": _whole("whole_below", "floor"),
    "ceil": _whole("whole_above", "ceil"),
    "ceiling": _whole("whole_above", "ceil"),
    "round": _round("up"),
    "bround": _round("even"),
    "width_bucket": arguments(4, _bucket),
    "nanvl": arguments(2, _nanvl),
}  # fmt: skip

NOTES = {
    **dict.fromkeys(("round", "bround"), "of integers and DECIMALs; the number of digits constant"),
    **dict.fromkeys(("floor", "ceil", "ceiling"), "to a constant number of digits: of integers and DECIMALs"),
    "width_bucket": "of numbers",
}
