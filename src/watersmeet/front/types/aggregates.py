"""Types of aggregate functions' results, as Spark has them."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from watersmeet.spec.aggregates import call_of
from watersmeet.types.arithmetic import mean_type, result_type, total_type
from watersmeet.types.sql_type import BIGINT, BOOLEAN, DOUBLE, UNKNOWN, SqlType, decimal

_COUNTS = ("count", "count_if", "approx_count_distinct", "regr_count")
_DOUBLES = (
    "stddev_samp", "stddev_pop", "var_samp", "var_pop", "corr", "covar_pop", "covar_samp", "skewness",
    "kurtosis",
)  # fmt: skip
_BOOLEANS = ("bool_and", "bool_or")
_AS_ARGUMENT = ("min", "max", "min_by", "max_by", "any_value", "bit_and", "bit_or", "bit_xor")


_OPERATORS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}


def _type_of_number(node: exp.Expr, type_of: Callable[[exp.Expr], SqlType]) -> SqlType:
    """The type of an argument: `type_of`, and arithmetic with DECIMALs."""
    plain = node.unnest()
    operator = _OPERATORS.get(type(plain))
    kind = type_of(plain)
    if operator is None or kind != UNKNOWN:
        return kind
    sides = [_type_of_number(side, type_of) for side in (plain.this, plain.expression)]
    if not any(side.is_decimal for side in sides):
        return UNKNOWN
    for place, side in enumerate((plain.this.unnest(), plain.expression.unnest())):
        if isinstance(side, exp.Literal) and not side.is_string and side.name.isdigit():
            sides[place] = decimal(len(side.name.lstrip("0")) or 1, 0)  # beside a DECIMAL, of its own digits
    return result_type(operator, *sides) or UNKNOWN


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
    kind = _type_of_number(call.arguments[0], type_of)
    if call.function in _AS_ARGUMENT:
        return kind
    if call.function not in ("sum", "avg"):
        return UNKNOWN
    return (total_type if call.function == "sum" else mean_type)(kind) or UNKNOWN
