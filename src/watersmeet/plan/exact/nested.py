"""Rule: parts of ARRAYs, MAPs and STRUCTs, and what makes STRUCTs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from watersmeet.plan.exact.rules import Rule
from watersmeet.plan.exact.values import Exact, NotExact, call, constant_value, one_type, widened
from watersmeet.spec.model import Expr
from watersmeet.types.sql_type import BIGINT, INTEGERS, STRING, VOID, Field, SqlType, array
from watersmeet.types.sql_type import struct as struct_type

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler


def field_of(value: Exact, name: str) -> Exact:
    """``value.name``: of a STRUCT, of all STRUCTs of an ARRAY, or of a MAP's key."""
    kind, element, entry = value.type, value.type.element, value.type.entry
    if entry is not None and entry[0] == STRING:
        return value_of(value, Exact(("constant", name, STRING), STRING))
    of = kind if element is None else element
    if not of.is_struct:
        raise NotExact(f"a field of {kind}")
    places = [n for n, own in enumerate(of.fields) if own.name.lower() == name.lower()]
    if len(places) != 1:
        raise NotExact(f"{kind} has {len(places)} fields {name}")
    type_ = of.fields[places[0]].type
    if element is None:
        return call("field", type_, value, options=places)
    return call("field_of_elements", array(type_), value, options=places)


def bracket(compiler: Compiler, node: exp.Bracket) -> Exact:
    """``a[i]``, ``m[k]``, ``s['f']``."""
    if len(node.expressions) != 1:
        raise NotExact("this [] is not on the list")
    value, index = compiler.of(node.this), compiler.of(node.expressions[0])
    element = value.type.element
    if element is not None:
        return call("item", element, value, whole(index), options=["[]"])
    if value.type.entry is not None:
        return value_of(value, index)
    return field_of(value, str(constant_value(index)))


def value_of(maps: Exact, key: Exact) -> Exact:
    """Of a key of a MAP. A wider key would be one of a MAP of wider keys, which is left to Spark."""
    entry = maps.type.entry
    assert entry is not None
    if one_type([entry[0], key.type]) != entry[0]:
        raise NotExact(f"{key.type} as a key of {maps.type}")
    return call("value_of", entry[1], maps, widened(key, entry[0]))


def whole(value: Exact, most: SqlType = BIGINT) -> Exact:
    """An integer of at most a type."""
    if value.type not in INTEGERS[: INTEGERS.index(most) + 1]:
        raise NotExact(f"{value.type} as a place")
    return value


def element(value: Exact) -> SqlType:
    """The type of an ARRAY's elements."""
    inner = value.type.element
    if inner is None or inner == VOID:
        raise NotExact(f"{value.type} as an ARRAY")
    return inner


def entry(value: Exact) -> tuple[SqlType, SqlType]:
    inner = value.type.entry
    if inner is None:
        raise NotExact(f"{value.type} as a MAP")
    return inner


def _struct(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    named = []
    for place, node in enumerate(nodes, 1):
        aliased = isinstance(node, exp.Alias)
        value = compiler.of(node.this if aliased else node)
        name = node.alias if aliased else compiler.name_of(node)
        named.append((f"col{place}" if name is None else name, value))
    return struct(named)


def _named_struct(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    values = compiler.all(nodes)
    if len(values) % 2:
        raise NotExact("a name without a value")
    return struct(
        [(str(constant_value(name)), value) for name, value in zip(values[::2], values[1::2], strict=True)]
    )


def struct(named: Sequence[tuple[str, Exact]]) -> Exact:
    if not named or any(value.type == VOID or value.type.name == "INTERVAL" for _, value in named):
        raise NotExact("a STRUCT of nothing, of NULL, or of intervals")
    return call(
        "make_struct", struct_type([Field(name, v.type) for name, v in named]), *(v for _, v in named)
    )


FUNCTIONS: dict[str, Rule] = {
    "struct": _struct,
    "named_struct": _named_struct,
}
