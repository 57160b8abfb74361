"""ARRAYs, STRUCTs and MAPs that Spark does not compare, for their parts are of unlike types."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from sqlglot import exp

from watersmeet.front.query.expressions.operators import Kind, Problem, shown
from watersmeet.spec.functions import family_of
from watersmeet.spec.model import Expr
from watersmeet.types.compared import is_compared, tightest_type
from watersmeet.types.sql_type import SqlType

_OF_LISTS = ("array_union", "array_intersect", "array_except", "arrays_overlap")
_OF_ELEMENTS = {
    "array_contains": 1,
    "array_position": 1,
    "array_remove": 1,
    "array_append": 1,
    "array_prepend": 1,
    "array_insert": 2,
}
"""Where the value stands that is beside the ARRAY's elements."""

_WIDENING = ("array_contains", "map_contains_key")
"""They make one type of DECIMALs and other numbers."""

_UNCERTAIN = ("UNKNOWN", "VOID", "INTERVAL")
_EXTREMES = ("greatest", "least")
_HINT = "cast one of the two to the type of the other: CAST(x AS ARRAY<DOUBLE>), CAST(x AS STRUCT<a: BIGINT>)"


def unlike_operands(
    node: Expr, operator: str, left: tuple[Expr, SqlType], right: tuple[Expr, SqlType]
) -> Problem | None:
    """Of an operator that compares: ARRAYs or STRUCTs, of known types."""
    types = left[1], right[1]
    if not all(type_.is_nested for type_ in types) or _is_uncertain(*types) or is_compared(*types):
        return None
    return f"{shown(node)}: Spark cannot compare {left[1]} with {right[1]}", "wrong-types", _HINT


def unlike_arguments(name: str, given: Sequence[Expr], kind: Kind) -> Problem | None:
    """Of a function of ARRAYs or MAPs, and of `greatest` and `least`."""
    if name in _EXTREMES:
        return _texts_beside_others(name, given, kind)
    pair = _pair(name, given, kind)
    if pair is None or not _are_unlike(*pair) or (name in _WIDENING and _have_decimals(*pair)):
        return None
    (one, other), types = (given[0], given[_OF_ELEMENTS.get(name, 1)]), pair
    return (
        f"{name}(): {shown(one)} is {kind(one)} and {shown(other)} is {kind(other)}: Spark cannot"
        f" compare {types[0]} with {types[1]} here",
        "wrong-arguments",
        "CAST one of the two to the type of the other",
    )


def unlike_key(node: exp.Bracket, kind: Kind) -> Problem | None:
    """Of `element_at`, which is no ``[]``: that casts the key."""
    entry = kind(node.this).entry if node.args.get("offset") and len(node.expressions) == 1 else None
    if entry is None or not _are_unlike(entry[0], kind(node.expressions[0])):
        return None
    key = kind(node.expressions[0])
    return (
        f"{shown(node)}: the keys are {entry[0]}, but {shown(node.expressions[0])} is {key}",
        "wrong-arguments",
        f"cast it to {entry[0]}",
    )


def _pair(name: str, given: Sequence[Expr], kind: Kind) -> tuple[SqlType, SqlType] | None:
    """The types that are brought together."""
    place = _OF_ELEMENTS.get(name, 1)
    if len(given) <= place:
        return None
    first, second = kind(given[0]), kind(given[place])
    if name in _OF_LISTS:
        return (first, second) if first.is_nested and second.is_nested else None
    if name == "map_contains_key":
        return None if first.entry is None else (first.entry[0], second)
    if name in _OF_ELEMENTS:
        return None if first.element is None else (first.element, second)
    return None


def _texts_beside_others(name: str, given: Sequence[Expr], kind: Kind) -> Problem | None:
    typed = [(argument, kind(argument)) for argument in given]
    for (one, its), (other, others) in combinations(typed, 2):
        families = family_of(its), family_of(others)
        if None not in families and families[0] != families[1] and "STRING" in families:
            return (
                f"{name}(): {shown(one)} is {its} and {shown(other)} is {others}; Spark has no"
                " common type for them",
                "wrong-arguments",
                "CAST one of the two to the type of the other",
            )
    return None


def _have_decimals(one: SqlType, other: SqlType) -> bool:
    decimals = any(inner.is_decimal for kind in (one, other) for inner in kind.every)
    return decimals and one.is_nested == other.is_nested


def _are_unlike(one: SqlType, other: SqlType) -> bool:
    """Certainly."""
    return not _is_uncertain(one, other) and tightest_type(one, other, names=False) is None


def _is_uncertain(one: SqlType, other: SqlType) -> bool:
    return any(inner.name in _UNCERTAIN for kind in (one, other) for inner in kind.every)
