"""Types of aggregate functions' results, as Spark has them."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from watersmeet.spec.aggregates import call_of
from watersmeet.types.arithmetic import mean_type, total_type
from watersmeet.types.sql_type import BIGINT, BOOLEAN, DOUBLE, UNKNOWN, SqlType

_COUNTS = ("count", "count_if", "approx_count_distinct", "regr_count")
_DOUBLES = (
    "stddev_samp", "stddev_pop", "var_samp", "var_pop", "corr", "covar_pop", "covar_samp", "skewness",
    "kurtosis",
)  # fmt: skip
_BOOLEANS = ("bool_and", "bool_or")
_AS_ARGUMENT = ("min", "max", "min_by", "max_by", "any_value", "bit_and", "bit_or", "bit_xor")


def aggregate_type(node: exp.Expr, type_of: Callable[[exp.Expr], SqlType]) -> SqlType:
    """The type of a call's result; `UNKNOWN` where only Spark can tell."""
    call = call_of(node)
    if call.function in _COUNTS:
        return BIGINT
    if call.function in _DOUBLES:
        return DOUBLE
    if call.function in _BOOLEANS:
        return BOOLEAN
    if not call.plain or not call.arguments:
        return UNKNOWN
    kind = type_of(call.arguments[0])
    if call.function in _AS_ARGUMENT:
        return kind
    if call.function not in ("sum", "avg"):
        return UNKNOWN
    return (total_type if call.function == "sum" else mean_type)(kind) or UNKNOWN
