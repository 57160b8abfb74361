"""Lambdas of functions of ARRAYs and MAPs: calls that Spark refuses."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from watersmeet.front.query.expressions.operators import Kind, Problem, not_a_condition, shown
from watersmeet.spec.functions import family_of
from watersmeet.spec.model import Expr

_COUNTS: dict[str, tuple[int, ...]] = {
    "transform": (1, 2), "filter": (1, 2), "exists": (1,), "forall": (1,), "array_sort": (2,),
    "zip_with": (2,), "map_filter": (2,), "transform_keys": (2,), "transform_values": (2,),
    "map_zip_with": (3,),
}  # fmt: skip
_CONDITIONS = ("filter", "exists", "forall", "map_filter")


def lambda_problem(name: str, given: Sequence[Expr], kind: Kind) -> Problem | None:
    """What is wrong with a call that takes a lambda: what it is of, how many parameters, what comes out."""
    if name in ("aggregate", "reduce") and given and family_of(kind(given[0])) not in (None, "ARRAY"):
        said = f"{name}(): {shown(given[0])} is {kind(given[0])}, not an ARRAY"
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
                f"{name}(): {shown(argument)} is {kind(argument)}, not {wanted}",
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
