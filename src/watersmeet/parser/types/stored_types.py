"""Types by which columns of stored rows are known again: as they were told before there was a table of them.

A column of a view is known in stored state by a digest with its type in it (`plan.identity.origins`), and of
many expressions no type was told. The state of jobs from before goes on as long as these types stay as they
are here: nothing else may ask for them, and nothing is to be added.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from watersmeet.parser.types.inference import null_of, number_type, type_of, type_of_data_type
from watersmeet.spec.aggregates import call_of, is_aggregate
from watersmeet.spec.model import Column
from watersmeet.types.coercion import mean_type, result_type, total_type
from watersmeet.types.intervals import is_interval, is_of_days
from watersmeet.types.sql_type import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    PLAIN,
    SMALLINT,
    TIMES,
    TINYINT,
    UNKNOWN,
    SqlType,
    decimal,
)

ColumnType = Callable[[exp.Column], SqlType]
_COUNTS = ("count", "count_if", "approx_count_distinct", "regr_count")
_DOUBLES = (
    "stddev_samp", "stddev_pop", "var_samp", "var_pop", "corr", "covar_pop", "covar_samp", "skewness",
    "kurtosis",
)  # fmt: skip
_BOOLEANS = ("bool_and", "bool_or")
_AS_ARGUMENT = ("min", "max", "min_by", "max_by", "any_value", "bit_and", "bit_or", "bit_xor")
_OPERATORS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}


_CERTAIN = {*PLAIN} - {TINYINT, SMALLINT}
_INT_FUNCTIONS = (exp.Year, exp.Quarter, exp.Month, exp.Day, exp.DayOfMonth, exp.DayOfWeek, exp.DayOfYear,
                  exp.WeekOfYear, exp.Hour, exp.Minute, exp.Second, exp.Length)  # fmt: skip


def column_of(name: str, expr: exp.Expr, column: Callable[[exp.Column], Column | None]) -> Column:
    """Return the column that stores the value of an expression.

    Args:
        column: Returns the column that a name in the expression refers to.
    """

    def own_type(node: exp.Column) -> SqlType:
        own = column(node)
        return UNKNOWN if own is None else own.type

    def stored_type(node: exp.Column) -> SqlType:
        own = column(node)
        return UNKNOWN if own is None else own.identity_type

    stored = _aggregate_type(expr, stored_type) if is_aggregate(expr) else _stored_type(expr, stored_type)
    return Column(name, type_of(expr, own_type), stored)


def _stored_type(expr: exp.Expr, column_type: ColumnType) -> SqlType:
    plain = expr.unnest()
    if isinstance(plain, exp.Column):
        return column_type(plain)
    if isinstance(plain, (exp.Cast, exp.TryCast)):
        return type_of_data_type(plain.to)
    try:
        annotated = annotate_types(
            plain.copy().transform(lambda node: _replace_with_typed(node, column_type)), dialect="spark"
        )
    except (SqlglotError, ValueError, TypeError, KeyError):
        return UNKNOWN
    if any(_is_mistyped(node) for node in annotated.find_all(exp.Add, exp.Sub, exp.Mul, exp.Div)):
        return UNKNOWN
    type_ = _type_of_node(annotated)
    return type_ if type_ in _CERTAIN else UNKNOWN


def _replace_with_typed(node: exp.Expression, column_type: Callable[[exp.Column], SqlType]) -> exp.Expression:
    """Return the node, or a NULL of its type where sqlglot's type is unknown or not Spark's."""
    kind = None
    if isinstance(node, exp.Column):
        kind = column_type(node)
    elif isinstance(node, exp.IntDiv):
        kind = BIGINT
    elif isinstance(node, _INT_FUNCTIONS):
        kind = INT
    elif isinstance(node, exp.Literal) and not node.is_string and not isinstance(node.parent, exp.Interval):
        kind = number_type(node)
        if kind.is_decimal:
            kind = UNKNOWN
    if kind is None:
        return node
    return exp.Anonymous(this="unknown") if kind == UNKNOWN else null_of(kind)


def _is_mistyped(node: exp.Binary) -> bool:
    """Return True if sqlglot infers a type other than Spark's for this operation on times.

    In Spark, a difference of times is an interval, a multiple of an interval is an interval, and DATE
    plus hours is a TIMESTAMP.
    """
    if isinstance(node, exp.Mul | exp.Div):
        return any(side.find(exp.Interval) is not None for side in (node.this, node.expression))
    kinds = [_type_of_node(side) for side in (node.this, node.expression)]
    if isinstance(node, exp.Sub) and all(kind in TIMES for kind in kinds):
        return True
    step = next((side for side in (node.this, node.expression) if is_interval(side)), None)
    return DATE in kinds and step is not None and not is_of_days(step)


def _type_of_node(node: exp.Expr) -> SqlType:
    return type_of_data_type(node.type) if node.type else UNKNOWN


def _aggregate_type(node: exp.Expr, column_type: ColumnType) -> SqlType:
    call = call_of(node)
    if call.function in _COUNTS:
        return BIGINT
    if call.function in _DOUBLES:
        return DOUBLE
    if call.function in _BOOLEANS:
        return BOOLEAN
    if not call.plain or not call.arguments:
        return UNKNOWN
    kind = _type_of_number(call.arguments[0], column_type)
    if call.function in _AS_ARGUMENT:
        return kind
    if call.function not in ("sum", "avg"):
        return UNKNOWN
    return (total_type if call.function == "sum" else mean_type)(kind) or UNKNOWN


def _type_of_number(node: exp.Expr, column_type: ColumnType) -> SqlType:
    """Return the type of an argument: `_stored_type`, extended by arithmetic with DECIMALs."""
    plain = node.unnest()
    operator = _OPERATORS.get(type(plain))
    kind = _stored_type(plain, column_type)
    if operator is None or kind != UNKNOWN:
        return kind
    sides = [_type_of_number(side, column_type) for side in (plain.this, plain.expression)]
    if not any(side.is_decimal for side in sides):
        return UNKNOWN
    for place, side in enumerate((plain.this.unnest(), plain.expression.unnest())):
        if isinstance(side, exp.Literal) and not side.is_string and side.name.isdigit():
            sides[place] = decimal(len(side.name.lstrip("0")) or 1, 0)  # beside a DECIMAL, of its own digits
    return result_type(operator, *sides) or UNKNOWN
