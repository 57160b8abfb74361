"""Rule: functions of MAPs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from watersmeet.plan.exact.arrays import literal_of
from watersmeet.plan.exact.nested import element, entry
from watersmeet.plan.exact.rules import Rule, arguments
from watersmeet.plan.exact.values import (
    Exact,
    NotExact,
    call,
    constant,
    constant_value,
    has_reals,
    is_ordered,
    is_value,
    one_type,
    widened,
)
from watersmeet.spec.model import Expr
from watersmeet.types.compared import loses_digits
from watersmeet.types.sql_type import BOOLEAN, STRING, VOID, Field, SqlType, array, map_of, struct

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler


def made_map(
    function: str, key: SqlType, value: SqlType, *parts: Exact, options: Sequence[object] = ()
) -> Exact:
    """A function whose result is a MAP of these types."""
    if not is_value(key) or not is_value(value) or not is_ordered(key):
        raise NotExact(f"a MAP of {key} and {value}")
    if has_reals(key) and function not in ("chosen", "with_values"):
        raise NotExact("a MAP is made whose keys are FLOAT or DOUBLE: of -0.0 Spark makes now 0.0, now not")
    return call(function, map_of(key, value), *parts, options=options)


def _map(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    if not nodes:
        return constant([], map_of(VOID, VOID))
    items = compiler.all(nodes)
    if len(items) % 2:
        raise NotExact("a key without a value")
    keys, values = compiler.alike(items[::2]), compiler.alike(items[1::2])
    turns = [value for pair in zip(keys, values, strict=True) for value in pair]
    return made_map("make_map", keys[0].type, values[0].type, *turns)


def _from_arrays(_: Compiler, keys: Exact, values: Exact) -> Exact:
    return made_map("map_of_arrays", element(keys), element(values), keys, values)


def _from_entries(_: Compiler, entries: Exact) -> Exact:
    fields = element(entries).fields
    if len(fields) != 2:
        raise NotExact(f"a MAP of {entries.type}")
    return made_map("map_of_entries", fields[0].type, fields[1].type, entries)


def _concat(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    maps = compiler.alike(compiler.all(nodes))
    if not maps:
        raise NotExact("map_concat of nothing")
    return made_map("maps_together", *entry(maps[0]), *maps)


def _part(function: str, type_of: Callable[[SqlType, SqlType], SqlType]) -> Rule:
    def make(_: Compiler, maps: Exact) -> Exact:
        return call(function, type_of(*entry(maps)), maps)

    return arguments(1, make)


def _entries(_: Compiler, maps: Exact) -> Exact:
    key, value = entry(maps)
    return Exact(maps.tree, array(struct([Field("key", key), Field("value", value)])))


def _contains(_: Compiler, maps: Exact, key: Exact) -> Exact:
    own = entry(maps)[0]
    common = key.type if loses_digits(own, key.type) else one_type([own, key.type])
    if common != entry(maps)[0]:
        raise NotExact(f"{key.type} as a key of {maps.type}")
    return call("has_key", BOOLEAN, maps, widened(key, common))


def _from_text(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    values = compiler.all(nodes)
    if not 1 <= len(values) <= 3 or any(value.type != STRING for value in values):
        raise NotExact("str_to_map of what are not texts")
    between, within = [literal_of(constant_value(value)) for value in values[1:]] + [",", ":"][
        len(values) - 1 :
    ]
    return made_map("text_to_map", STRING, STRING, values[0], options=[between, within])


FUNCTIONS: dict[str, Rule] = {
    "map": _map,
    "map_from_arrays": arguments(2, _from_arrays),
    "map_from_entries": arguments(1, _from_entries),
    "map_concat": _concat,
    "map_contains_key": arguments(2, _contains),
    "map_entries": arguments(1, _entries),
    "map_keys": _part("map_keys", lambda key, _: array(key)),
    "map_values": _part("map_values", lambda _, value: array(value)),
    "str_to_map": _from_text,
}
