"""Rule: functions of ARRAYs, and those that look into MAPs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from watersmeet.plan.exact.nested import element, entry, value_of, whole
from watersmeet.plan.exact.rules import Rule, arguments
from watersmeet.plan.exact.values import (
    Exact,
    NotExact,
    call,
    compared_type,
    constant,
    constant_value,
    is_ordered,
    is_value,
    one_type,
    widened,
)
from watersmeet.spec.model import Expr
from watersmeet.types.compared import loses_digits
from watersmeet.types.sql_type import (
    BIGINT,
    BOOLEAN,
    DATE,
    INT,
    INTEGERS,
    STRING,
    VOID,
    Field,
    SqlType,
    array,
    struct,
)

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler


def _array(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    if not nodes:
        return constant([], array(VOID))
    elements = compiler.alike(compiler.all(nodes))
    if elements[0].type != VOID and not is_value(elements[0].type):
        raise NotExact(f"an ARRAY of {elements[0].type}")
    return call("make_array", array(elements[0].type), *elements)


def _of_list(function: str, type_: SqlType | None = None) -> Rule:
    """Of one ARRAY, of which it keeps the type, if it does not say another one."""

    def make(_: Compiler, lists: Exact) -> Exact:
        element(lists)
        return call(function, type_ or lists.type, lists)

    return arguments(1, make)


def _size(_: Compiler, value: Exact) -> Exact:
    if value.type.element is None and value.type.entry is None:
        raise NotExact(f"the size of {value.type}")
    return call("list_size", INT, value)


def _item(kind: str) -> Callable[[Compiler, Exact, Exact], Exact]:
    def make(_: Compiler, value: Exact, index: Exact) -> Exact:
        entry = value.type.entry
        if kind != "get" and entry is not None:
            if compared_type(entry[0], index.type, by_function=True) != entry[0]:
                raise NotExact(f"{index.type} as a key of {value.type}")
            return value_of(value, index)
        return call("item", element(value), value, whole(index, INT), options=[kind])

    return make


def _with_element(function: str, type_: SqlType | None) -> Callable[[Compiler, Exact, Exact], Exact]:
    """Of an ARRAY and a value that is compared with its elements. ``type_``: None is the ARRAY's."""

    def make(_: Compiler, lists: Exact, value: Exact) -> Exact:
        kind = element(lists)
        if function == "has_element" and not loses_digits(kind, value.type):
            common = one_type([kind, value.type])
        else:
            common = compared_type(kind, value.type, by_function=True)
        if not is_ordered(common):
            raise NotExact(f"{common} is compared")
        wide = widened(lists, array(common))
        if function == "without_element" and value.type == VOID:
            raise NotExact("NULL is removed")
        return call(function, type_ or wide.type, wide, widened(value, common))

    return make


def _added(function: str) -> Callable[[Compiler, Exact, Exact], Exact]:
    def make(_: Compiler, lists: Exact, value: Exact) -> Exact:
        common = compared_type(element(lists), value.type, by_function=True)
        return call(function, array(common), widened(lists, array(common)), widened(value, common))

    return make


def _insert(_: Compiler, lists: Exact, place: Exact, value: Exact) -> Exact:
    common = compared_type(element(lists), value.type, by_function=True)
    wide = widened(lists, array(common))
    return call("insert_element", wide.type, wide, whole(place, INT), widened(value, common))


def _of_two(function: str, type_: SqlType | None = None) -> Callable[[Compiler, Exact, Exact], Exact]:
    def make(_: Compiler, left: Exact, right: Exact) -> Exact:
        common = compared_type(left.type, right.type, by_function=True)
        both = [widened(left, common), widened(right, common)]
        if not is_ordered(element(both[0])):
            raise NotExact(f"{both[0].type} is compared")
        return call(function, type_ or both[0].type, *both)

    return make


def _distinct(_: Compiler, lists: Exact) -> Exact:
    if not is_ordered(element(lists)):
        raise NotExact(f"{lists.type} is compared")
    return call("distinct", lists.type, lists)


def _sorted(name: str) -> Rule:
    def rule(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
        values = compiler.all(nodes)
        down = len(values) > 1 and constant_value(values[1]) is False
        if not values or len(values) > (2 if name == "sort_array" else 1):
            raise NotExact("this number of arguments is not on the list")
        if len(values) > 1 and values[1].type != BOOLEAN:
            raise NotExact("an order that is not TRUE or FALSE")
        if not is_ordered(element(values[0])):
            raise NotExact(f"{values[0].type} is ordered")
        options = [down, down or name == "array_sort"]
        return call("sorted_list", values[0].type, values[0], options=options)

    return rule


def _extreme(greatest: bool) -> Callable[[Compiler, Exact], Exact]:
    def make(_: Compiler, lists: Exact) -> Exact:
        if not is_ordered(element(lists)):
            raise NotExact(f"{lists.type} is ordered")
        return call("extreme_of", element(lists), lists, options=[greatest])

    return make


def _repeat(_: Compiler, value: Exact, count: Exact) -> Exact:
    if not is_value(value.type):
        raise NotExact(f"an ARRAY of {value.type}")
    if count.type != INT:
        raise NotExact(f"{count.type} as a number of times")
    return call("repeat_element", array(value.type), value, count)


def _slice(_: Compiler, lists: Exact, start: Exact, length: Exact) -> Exact:
    element(lists)
    return call("slice_of", lists.type, lists, whole(start, INT), whole(length, INT))


def _flatten(_: Compiler, lists: Exact) -> Exact:
    inner = element(lists)
    if inner.element is None:
        raise NotExact(f"flatten of {lists.type}")
    return call("flatten", inner, lists)


def _sequence(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    values = compiler.all(nodes)
    if len(values) not in (2, 3):
        raise NotExact("this number of arguments is not on the list")
    if {value.type for value in values[:2]} == {DATE} and len(values) == 2:
        return call("sequence", array(DATE), *values)
    if any(value.type not in INTEGERS for value in values):
        raise NotExact("a sequence of what are not integers")
    common = one_type([value.type for value in values])
    return call("sequence", array(common), *(widened(value, common) for value in values))


def _zip(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    values = compiler.all(nodes)
    if not values:
        raise NotExact("arrays_zip of nothing")
    names = [compiler.name_of(node) or str(n) for n, node in enumerate(nodes)]
    fields = [Field(name, element(value)) for name, value in zip(names, values, strict=True)]
    return call("zipped", array(struct(fields)), *values)


def _join(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    values = compiler.all(nodes)
    if (
        len(values) not in (2, 3)
        or values[0].type != array(STRING)
        or any(e.type != STRING for e in values[1:])
    ):
        raise NotExact("array_join of what are not texts")
    return call("joined_elements", STRING, *values)


def literal_of(pattern: object) -> str:
    """The text that a regular expression stands for. Raises: NotExact: it is more than a text."""
    if not isinstance(pattern, str) or not re.fullmatch(r"(?:[^\\.\[\]{}()*+?^$|]|\\[^\w\s])+", pattern):
        raise NotExact("a separator that is not a plain text")
    return re.sub(r"\\(.)", r"\1", pattern)


def _split(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    values = compiler.all(nodes)
    if len(values) not in (2, 3) or values[0].type != STRING or values[1].type != STRING:
        raise NotExact("split of what is not text")
    most = constant_value(values[2]) if len(values) == 3 else 0
    if not isinstance(most, int):
        raise NotExact("a limit that is not a number")
    separator = literal_of(constant_value(values[1]))
    return call("split_text", array(STRING), values[0], options=[separator, max(most, 0)])


def _part(function: str, type_of: Callable[[SqlType, SqlType], SqlType]) -> Rule:
    return arguments(1, lambda _, maps: call(function, type_of(*entry(maps)), maps))


def _entries(_: Compiler, maps: Exact) -> Exact:
    key, value = entry(maps)
    return Exact(maps.tree, array(struct([Field("key", key), Field("value", value)])))


def _contains(_: Compiler, maps: Exact, key: Exact) -> Exact:
    own = entry(maps)[0]
    common = key.type if loses_digits(own, key.type) else one_type([own, key.type])
    if common != own:
        raise NotExact(f"{key.type} as a key of {maps.type}")
    return call("has_key", BOOLEAN, maps, widened(key, common))


FUNCTIONS: dict[str, Rule] = {
    "array": _array,
    "size": arguments(1, _size),
    "cardinality": arguments(1, _size),
    "array_size": _of_list("list_size", INT),
    "element_at": arguments(2, _item("element_at")),
    "try_element_at": arguments(2, _item("try")),
    "get": arguments(2, _item("get")),
    "array_contains": arguments(2, _with_element("has_element", BOOLEAN)),
    "array_position": arguments(2, _with_element("place_of_element", BIGINT)),
    "array_remove": arguments(2, _with_element("without_element", None)),
    "array_append": arguments(2, _added("append_element")),
    "array_prepend": arguments(2, _added("prepend_element")),
    "array_insert": arguments(3, _insert),
    "array_compact": _of_list("compact"),
    "array_distinct": arguments(1, _distinct),
    "array_union": arguments(2, _of_two("union")),
    "array_intersect": arguments(2, _of_two("intersect")),
    "array_except": arguments(2, _of_two("without")),
    "arrays_overlap": arguments(2, _of_two("overlap", BOOLEAN)),
    "array_sort": _sorted("array_sort"),
    "sort_array": _sorted("sort_array"),
    "array_max": arguments(1, _extreme(True)),
    "array_min": arguments(1, _extreme(False)),
    "array_repeat": arguments(2, _repeat),
    "arrays_zip": _zip,
    "array_join": _join,
    "slice": arguments(3, _slice),
    "flatten": arguments(1, _flatten),
    "sequence": _sequence,
    "split": _split,
    "map_contains_key": arguments(2, _contains),
    "map_entries": arguments(1, _entries),
    "map_keys": _part("map_keys", lambda key, _: array(key)),
    "map_values": _part("map_values", lambda _, value: array(value)),
}
