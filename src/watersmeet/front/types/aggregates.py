"""Types of aggregate functions' results, as Spark has them."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from watersmeet.front.types.columns import INTEGERS, UNKNOWN
from watersmeet.spec.aggregates import call_of

_COUNTS = ("count", "count_if", "approx_count_distinct", "regr_count")
_DOUBLES = (
    "stddev_samp", "stddev_pop", "var_samp", "var_pop", "corr", "covar_pop", "covar_samp", "skewness",
    "kurtosis",
)  # fmt: skip
_BOOLEANS = ("bool_and", "bool_or")
_AS_ARGUMENT = ("min", "max", "min_by", "max_by", "any_value", "bit_and", "bit_or", "bit_xor")
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_MOST = 38


def aggregate_type(node: exp.Expr, type_of: Callable[[exp.Expr], str]) -> str:
    """The type of a call's result; `UNKNOWN` where only Spark can tell."""
    call = call_of(node)
    if call.function in _COUNTS:
        return "BIGINT"
    if call.function in _DOUBLES:
        return "DOUBLE"
    if call.function in _BOOLEANS:
        return "BOOLEAN"
    if not call.plain or not call.arguments:
        return UNKNOWN
    kind = type_of(call.arguments[0])
    if call.function in _AS_ARGUMENT:
        return kind
    if call.function not in ("sum", "avg"):
        return UNKNOWN
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is not None:
        precision, scale = int(decimal[1]), int(decimal[2])
        if call.function == "sum":
            return f"DECIMAL({min(_MOST, precision + 10)},{scale})"
        return f"DECIMAL({min(_MOST, precision + 4)},{min(_MOST, scale + 4)})"
    if kind in INTEGERS:
        return "BIGINT" if call.function == "sum" else "DOUBLE"
    return "DOUBLE" if kind in ("FLOAT", "DOUBLE", "STRING") else UNKNOWN
