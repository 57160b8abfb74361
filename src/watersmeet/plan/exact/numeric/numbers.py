"""Rule: functions of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from watersmeet.plan.exact.numeric.arithmetic import compute, quotient, remainder
from watersmeet.plan.exact.numeric.reals import real
from watersmeet.plan.exact.rules import Rule, arguments
from watersmeet.plan.exact.values import Exact, NotExact, call, computed, constant, or_null, turned
from watersmeet.spec.model import Expr
from watersmeet.types.sql_type import BIGINT, BOOLEAN, DOUBLE, FLOAT, INT, SMALLINT, TINYINT, SqlType, decimal

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler


def _isnan(_: Compiler, value: Exact) -> Exact:
    if value.type == FLOAT:
        return call("is_nan", BOOLEAN, value)
    return call("is_nan", BOOLEAN, real(value))


def _pmod(compiler: Compiler, left: Exact, right: Exact) -> Exact:
    return remainder(compiler, left, right, "positive_remainder")


def _tried(rule: Callable[[Compiler, Exact, Exact], Exact]) -> Rule:
    """`try_add` and its like: NULL where the operator fails."""

    def make(compiler: Compiler, left: Exact, right: Exact) -> Exact:
        if not (left.type.is_number and right.type.is_number):
            raise NotExact(f"{left.type} and {right.type} as numbers")
        return or_null(rule(compiler, left, right))

    return arguments(2, make)


def _nullifzero(compiler: Compiler, value: Exact) -> Exact:
    if not value.type.is_number:
        raise NotExact(f"nullifzero of {value.type}")
    equal = compiler.compared("=", value, constant(0, INT))
    return Exact(
        ("case", ((equal.tree, constant(None, value.type).tree),), value.tree, value.type), value.type
    )


def _zeroifnull(compiler: Compiler, value: Exact) -> Exact:
    if not value.type.is_number:
        raise NotExact(f"zeroifnull of {value.type}")
    alike = compiler.alike([value, constant(0, INT)])
    return Exact(("first", tuple(choice.tree for choice in alike)), alike[0].type)


def _to_decimal(compiler: Compiler, value: Exact) -> Exact:
    return compiler.cast_to(value, decimal(10, 0))


def _add_operator(name: type[Expr]) -> Rule:
    def rule(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
        if len(nodes) != 2:
            raise NotExact("this number of arguments is not on the list")
        return compiler.of(name(this=nodes[0], expression=nodes[1]))

    return rule


def _numeric(value: Exact) -> Exact:
    if not value.type.is_number:
        raise NotExact(f"arithmetic with {value.type}")
    return computed(value)


def _cast(type_: SqlType) -> Rule:
    return arguments(1, lambda compiler, value: computed(compiler.cast_to(value, type_)))


FUNCTIONS: dict[str, Rule] = {
    "abs": arguments(1, lambda _, value: turned("absolute", value)),
    "isnan": arguments(1, _isnan),
    "pmod": arguments(2, _pmod),
    "mod": _add_operator(exp.Mod),
    "negative": arguments(1, lambda _, value: turned("minus_one", value)),
    "positive": arguments(1, lambda _, value: _numeric(value)),
    "try_add": _tried(lambda compiler, left, right: compute(compiler, "plus", left, right)),
    "try_subtract": _tried(lambda compiler, left, right: compute(compiler, "minus", left, right)),
    "try_multiply": _tried(lambda compiler, left, right: compute(compiler, "times", left, right)),
    "try_divide": _tried(quotient),
    "try_mod": _tried(remainder),
    "nullifzero": arguments(1, _nullifzero),
    "zeroifnull": arguments(1, _zeroifnull),
    "float": _cast(FLOAT),
    "decimal": arguments(1, _to_decimal),
    "bigint": _cast(BIGINT),
    "int": _cast(INT),
    "smallint": _cast(SMALLINT),
    "tinyint": _cast(TINYINT),
    "double": _cast(DOUBLE),
    "boolean": _cast(BOOLEAN),
}  # fmt: skip

NOTES = {
    **dict.fromkeys(("abs", "negative"), "of DECIMALs of up to 34 digits, beyond which Spark rounds"),
    **dict.fromkeys(
        ("try_add", "try_subtract", "try_multiply", "try_divide", "try_mod", "mod", "pmod"),
        "of numbers; DECIMALs as far as their operators are computed",
    ),
}
