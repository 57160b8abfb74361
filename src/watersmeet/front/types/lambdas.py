"""Types of the parameters of lambdas, by the ARRAYs and MAPs that they are given to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from watersmeet.types.common import common_type
from watersmeet.types.sql_type import INT, UNKNOWN, SqlType

Kind = Callable[[exp.Expr], SqlType]

_NAMES: dict[type[exp.Expr], str] = {
    exp.Transform: "transform",
    exp.ArrayFilter: "filter",
    exp.Exists: "exists",
    exp.ArraySort: "array_sort",
    exp.Reduce: "aggregate",
}
_NO_VARIABLES = (exp.Column, exp.ColumnDef, exp.Alias, exp.PropertyEQ)


def variable_type(node: exp.Identifier, kind: Kind) -> SqlType:
    """Of a parameter of the nearest lambda that has one of that name; unknown for what is none."""
    parent = node.parent
    if isinstance(parent, _NO_VARIABLES) or (isinstance(parent, exp.Dot) and node.arg_key == "expression"):
        return UNKNOWN
    below: exp.Expr = node
    above = node.parent
    while above is not None:
        if isinstance(above, exp.Lambda) and below.arg_key == "this":
            names = [parameter.name.lower() for parameter in above.expressions]
            if node.name.lower() in names:
                types = _types(above, kind)
                place = names.index(node.name.lower())
                return types[place] if place < len(types) else UNKNOWN
        below, above = above, above.parent
    return UNKNOWN


def _types(node: exp.Lambda, kind: Kind) -> Sequence[SqlType]:
    call = node.parent
    if isinstance(call, exp.Reduce):
        start = kind(call.args["initial"])
        return [start, kind(call.this).element or UNKNOWN] if node.arg_key == "merge" else [start]
    name = _name(call)
    if name == "zip_with" and call is not None:
        return [kind(argument).element or UNKNOWN for argument in call.expressions[:2]]
    if name == "map_zip_with" and call is not None:
        entries = [kind(argument).entry for argument in call.expressions[:2]]
        if None in entries:
            return []
        (key, one), (other_key, other) = (entry or (UNKNOWN, UNKNOWN) for entry in entries)
        return [common_type(key, other_key) or UNKNOWN, one, other]
    first = None if call is None else call.expressions[0] if isinstance(call, exp.Anonymous) else call.this
    if first is None:
        return []
    base = kind(first)
    if name in ("transform", "filter", "exists", "forall"):
        return [base.element or UNKNOWN, INT]
    if name == "array_sort":
        return [base.element or UNKNOWN] * 2
    return base.entry or [] if name in ("map_filter", "transform_keys", "transform_values") else []


def _name(call: exp.Expr | None) -> str | None:
    return call.name.lower() if isinstance(call, exp.Anonymous) else _NAMES.get(type(call)) if call else None
