"""Rule: functions of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from watersmeet.plan.exact.rules import Rule, arguments
from watersmeet.plan.exact.values import INTEGERS, Exact, NotExact, call, is_decimal
from watersmeet.spec.model import Expr

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler


def _absolute(_: Compiler, value: Exact) -> Exact:
    if value.type not in (*INTEGERS, "DOUBLE") and not is_decimal(value.type):
        raise NotExact(f"abs of {value.type}")
    return call("absolute", value.type, value)


def _isnan(_: Compiler, value: Exact) -> Exact:
    if value.type != "DOUBLE":
        raise NotExact(f"isnan of {value.type}")
    return call("is_nan", "BOOLEAN", value)


def _pmod(compiler: Compiler, left: Exact, right: Exact) -> Exact:
    found = compiler.whole(left, right)
    return call("positive_remainder", found[0].type, *found)


def _add_operator(name: type[Expr]) -> Rule:
    def rule(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
        if len(nodes) != 2:
            raise NotExact("this number of arguments is not on the list")
        return compiler.of(name(this=nodes[0], expression=nodes[1]))

    return rule


def _numeric(value: Exact) -> Exact:
    if value.type not in (*INTEGERS, "DOUBLE") and not is_decimal(value.type):
        raise NotExact(f"arithmetic with {value.type}")
    return value


FUNCTIONS: dict[str, Rule] = {
    "abs": arguments(1, _absolute),
    "isnan": arguments(1, _isnan),
    "pmod": arguments(2, _pmod),
    "mod": _add_operator(exp.Mod),
    "negative": arguments(1, lambda _, value: call("minus_one", value.type, _numeric(value))),
    "positive": arguments(1, lambda _, value: _numeric(value)),
    "try_divide": arguments(2, lambda compiler, left, right: call(
        "divide_or_null", "DOUBLE", *compiler.doubles(left, right))),
    "bigint": arguments(1, lambda compiler, value: compiler.cast_to(value, "BIGINT")),
    "int": arguments(1, lambda compiler, value: compiler.cast_to(value, "INT")),
    "smallint": arguments(1, lambda compiler, value: compiler.cast_to(value, "SMALLINT")),
    "tinyint": arguments(1, lambda compiler, value: compiler.cast_to(value, "TINYINT")),
    "double": arguments(1, lambda compiler, value: compiler.cast_to(value, "DOUBLE")),
    "boolean": arguments(1, lambda compiler, value: compiler.cast_to(value, "BOOLEAN")),
}  # fmt: skip
