"""Rule: functions of ARRAYs and MAPs that take lambdas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from watersmeet.plan.exact.maps import made_map
from watersmeet.plan.exact.nested import element, entry
from watersmeet.plan.exact.rules import Rule
from watersmeet.plan.exact.values import Exact, NotExact, call, has_reals, is_ordered, is_value, widened
from watersmeet.spec.model import Expr
from watersmeet.types.sql_type import BOOLEAN, INT, Field, SqlType, array, struct

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler


def _lambda(node: Expr, *counts: int) -> exp.Lambda:
    if not isinstance(node, exp.Lambda) or len(node.expressions) not in counts:
        raise NotExact("this lambda is not on the list")
    return node


def _each(
    compiler: Compiler,
    lists: Exact,
    node: exp.Lambda,
    whats: Sequence[tuple[str | int, SqlType]],
    condition: bool = False,
) -> tuple[Exact, tuple[Any, ...]]:
    """(the body, the start of the tree). ``whats``: per parameter (what it is of an element, type)."""
    bound = [(compiler.fresh(), what, type_) for what, type_ in whats[: len(node.expressions)]]
    body = compiler.body(node, [(name, type_) for name, _, type_ in bound])
    if condition:
        body = widened(body, BOOLEAN)
    if not is_value(body.type):
        raise NotExact(f"a lambda gives {body.type}")
    return body, ("each", lists.tree, tuple((name, what) for name, what, _ in bound), body.tree)


def _of_elements(function: str | None, counts: Sequence[int], stops: bool | None = None) -> Rule:
    """Of an ARRAY and a lambda: `transform`; the others' bodies are conditions."""

    def rule(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
        if len(nodes) != 2:
            raise NotExact("this number of arguments is not on the list")
        lists, node = compiler.of(nodes[0]), _lambda(nodes[1], *counts)
        whats: list[tuple[str | int, SqlType]] = [("element", element(lists)), ("place", INT)]
        body, tree = _each(compiler, lists, node, whats, function is not None)
        type_ = array(body.type) if function is None else lists.type if stops is None else BOOLEAN
        return Exact((*tree, function, stops), type_)

    return rule


def _zip_with(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    if len(nodes) != 3:
        raise NotExact("this number of arguments is not on the list")
    left, right = compiler.all(nodes[:2])
    fields = [Field("0", element(left)), Field("1", element(right))]
    both = call("zipped", array(struct(fields)), left, right)
    body, tree = _each(
        compiler, both, _lambda(nodes[2], 2), [(n, field.type) for n, field in enumerate(fields)]
    )
    return Exact((*tree, None, None), array(body.type))


def _of_entries(function: str) -> Rule:
    """Of a MAP and a lambda of key and value."""

    def rule(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
        if len(nodes) != 2:
            raise NotExact("this number of arguments is not on the list")
        maps, node = compiler.of(nodes[0]), _lambda(nodes[1], 2)
        key, value = entry(maps)
        body, tree = _each(compiler, maps, node, [(0, key), (1, value)], function == "chosen")
        kinds = {"chosen": (key, value), "with_keys": (body.type, value), "with_values": (key, body.type)}
        made = made_map(function, *kinds[function])
        return Exact((*tree, function, None), made.type)

    return rule


def _map_zip_with(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    if len(nodes) != 3:
        raise NotExact("this number of arguments is not on the list")
    left, right = compiler.all(nodes[:2])
    (key, one), (other_key, other) = entry(left), entry(right)
    if key != other_key or not is_ordered(key) or has_reals(key):
        raise NotExact(f"keys that are {key} and {other_key}")
    fields = [Field("0", key), Field("1", one), Field("2", other)]
    both = call("maps_zipped", array(struct(fields)), left, right)
    body, tree = _each(
        compiler, both, _lambda(nodes[2], 3), [(n, field.type) for n, field in enumerate(fields)]
    )
    return Exact((*tree, "with_values", None), made_map("with_values", key, body.type).type)


def _aggregate(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    if len(nodes) not in (3, 4):
        raise NotExact("this number of arguments is not on the list")
    lists, start = compiler.all(nodes[:2])
    names = (compiler.fresh(), compiler.fresh())
    bound = [(names[0], start.type), (names[1], element(lists))]
    body = compiler.body(_lambda(nodes[2], 2), bound)
    if body.type != start.type or not is_value(body.type):
        raise NotExact(f"what is found so far is {start.type} at first, and {body.type} then")
    folded = Exact(("fold", lists.tree, start.tree, names, body.tree), body.type)
    if len(nodes) == 3:
        return folded
    name = compiler.fresh()
    end = compiler.body(_lambda(nodes[3], 1), [(name, body.type)])
    return Exact(("let", name, folded.tree, end.tree), end.type)


FUNCTIONS: dict[str, Rule] = {
    "transform": _of_elements(None, (1, 2)),
    "filter": _of_elements("chosen", (1, 2)),
    "exists": _of_elements("any_true", (1,), True),
    "forall": _of_elements("all_true", (1,), False),
    "zip_with": _zip_with,
    "aggregate": _aggregate,
    "reduce": _aggregate,
    "map_filter": _of_entries("chosen"),
    "transform_keys": _of_entries("with_keys"),
    "transform_values": _of_entries("with_values"),
    "map_zip_with": _map_zip_with,
}
