"""Rule: functions that choose between values, and tests for NULL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from watersmeet.plan.exact.rules import Rule, arguments
from watersmeet.plan.exact.values import Exact, NotExact, call, constant, is_ordered
from watersmeet.spec.model import Expr
from watersmeet.types.sql_type import BOOLEAN, STRING, VOID

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler


def _coalesce(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    alike = compiler.alike(compiler.all(nodes))
    if alike[0].type == VOID:
        raise NotExact("a choice of NULLs")
    return Exact(("first", tuple(choice.tree for choice in alike)), alike[0].type)


def _nullif(compiler: Compiler, left: Exact, right: Exact) -> Exact:
    equal = compiler.compared("=", left, right)
    return Exact(("case", ((equal.tree, constant(None, left.type).tree),), left.tree, left.type), left.type)


def _nvl2(compiler: Compiler, tested: Exact, one: Exact, other: Exact) -> Exact:
    return compiler.case_of([call("is_not_null", BOOLEAN, tested)], [one], other)


def _extreme(function: str) -> Rule:
    def rule(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
        values = compiler.all(nodes)
        types = {value.type for value in values} - {VOID}
        if STRING in types and len(types) > 1:
            raise NotExact(f"{function} of texts and others")
        alike = compiler.alike(values)
        if len(alike) < 2 or alike[0].type == VOID or not is_ordered(alike[0].type):
            raise NotExact(f"{function} of one, or of MAPs")
        return call(function, alike[0].type, *alike)

    return rule


FUNCTIONS: dict[str, Rule] = {
    "coalesce": _coalesce,
    "nvl": _coalesce,
    "ifnull": _coalesce,
    "nullif": arguments(2, _nullif),
    "nvl2": arguments(3, _nvl2),
    "isnull": arguments(1, lambda _, value: call("is_null", BOOLEAN, value)),
    "isnotnull": arguments(1, lambda _, value: call("is_not_null", BOOLEAN, value)),
    "equal_null": arguments(2, lambda compiler, left, right: compiler.compared("<=>", left, right)),
    "greatest": _extreme("greatest"),
    "least": _extreme("least"),
}  # fmt: skip
