"""Lambdas of functions of ARRAYs and MAPs: types of their parameters, and calls that Spark refuses."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from watersmeet.front.query.expressions.operators import Kind, Problem, not_a_condition, shown
from watersmeet.front.types.infer import null_of
from watersmeet.spec.functions import family_of
from watersmeet.spec.model import Expr
from watersmeet.types.sql_type import INT, UNKNOWN, SqlType

_COUNTS: dict[str, tuple[int, ...]] = {
    "transform": (1, 2), "filter": (1, 2), "exists": (1,), "forall": (1,), "array_sort": (2,),
    "zip_with": (2,), "map_filter": (2,), "transform_keys": (2,), "transform_values": (2,),
    "map_zip_with": (3,),
}  # fmt: skip
_CONDITIONS = ("filter", "exists", "forall", "map_filter")
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


def with_variables(tree: exp.Expr, kind: Kind) -> exp.Expr:
    """A copy in which NULLs of their types stand for the parameters of lambdas around ``tree``."""
    if tree.find_ancestor(exp.Lambda) is None:
        return tree
    copy = tree.copy()
    for node, own in zip(list(tree.walk()), list(copy.walk()), strict=True):
        if isinstance(node, exp.Identifier) and not isinstance(node.parent, exp.Lambda) and own.parent:
            type_ = variable_type(node, kind)
            if type_ != UNKNOWN:
                own.replace(null_of(type_))
    return copy


def _types(node: exp.Lambda, kind: Kind) -> Sequence[SqlType]:
    call = node.parent
    if isinstance(call, exp.Reduce):
        start = kind(call.args["initial"])
        return [start, kind(call.this).element or UNKNOWN] if node.arg_key == "merge" else []
    name = _name(call)
    if name == "zip_with" and call is not None:
        return [kind(argument).element or UNKNOWN for argument in call.expressions[:2]]
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


def lambda_problem(name: str, given: Sequence[Expr], kind: Kind) -> Problem | None:
    """What is wrong with a call that takes a lambda: what it is of, how many parameters, what comes out."""
    if name in ("aggregate", "reduce") and given and family_of(kind(given[0])) not in (None, "ARRAY"):
        said = f"{name}(): {shown(given[0])} is {kind(given[0])}, and no ARRAY"
        return said, "wrong-arguments", None
    counts = _COUNTS.get(name)
    lambdas = [operand for operand in given if isinstance(operand, exp.Lambda)]
    if counts is None or len(lambdas) != 1 or given[-1] is not lambdas[0]:
        return None
    wanted = "MAP" if "map" in name or name in ("transform_keys", "transform_values") else "ARRAY"
    for argument in given[:-1]:
        family = family_of(kind(argument))
        if family not in (None, wanted):
            return (
                f"{name}(): {shown(argument)} is {kind(argument)}, and no {wanted}",
                "wrong-arguments",
                None,
            )
    count = len(lambdas[0].expressions)
    if count not in counts:
        said = " or ".join(map(str, counts))
        return f"{name}() takes a lambda of {said} parameters, not of {count}", "wrong-arguments", None
    if name in _CONDITIONS:
        return not_a_condition(lambdas[0].this, kind, f"{name}()")
    return None
