"""Types of expressions, as far as they can be told without Spark: a wrong one would be worse than none."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from watersmeet.errors import SqlError
from watersmeet.front.types.columns import INTEGERS, TIMES, UNKNOWN, normal_type
from watersmeet.spec.intervals import is_interval, is_of_days
from watersmeet.spec.number_literals import NumberError, read_number

_CERTAIN = {
    "INT",
    "BIGINT",
    "BOOLEAN",
    "STRING",
    "DOUBLE",
    "FLOAT",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "BINARY",
}
_FLOATING = ("FLOAT", "DOUBLE")
_INT_FUNCTIONS = (exp.Year, exp.Quarter, exp.Month, exp.Day, exp.DayOfMonth, exp.DayOfWeek, exp.DayOfYear,
                  exp.WeekOfYear, exp.Hour, exp.Minute, exp.Second, exp.Length)  # fmt: skip


def type_of(expr: exp.Expr, column_type: Callable[[exp.Column], str]) -> str:
    """The Spark type of a resolved expression; `UNKNOWN` where only Spark can tell (decimals of arithmetic,
    functions of its own, …)."""
    plain = expr.unnest()
    if isinstance(plain, exp.Column):
        return column_type(plain)
    if isinstance(plain, (exp.Cast, exp.TryCast)):
        return _type_text(plain.to)
    try:
        annotated = annotate_types(
            plain.copy().transform(lambda node: _typed(node, column_type)), dialect="spark"
        )
    except (SqlglotError, ValueError, TypeError, KeyError):
        return UNKNOWN
    if any(_misjudged(node) for node in annotated.find_all(exp.Add, exp.Sub, exp.Mul, exp.Div)):
        return UNKNOWN
    found = _type_of_node(annotated)
    return found if found in _CERTAIN else UNKNOWN


def _typed(node: exp.Expression, column_type: Callable[[exp.Column], str]) -> exp.Expression:
    """The node itself, or a NULL of its type where sqlglot would not know it or differ from Spark."""
    kind = None
    if isinstance(node, exp.Column):
        kind = column_type(node)
    elif isinstance(node, exp.IntDiv):
        kind = "BIGINT"
    elif isinstance(node, _INT_FUNCTIONS):
        kind = "INT"
    elif isinstance(node, exp.Literal) and not node.is_string and not isinstance(node.parent, exp.Interval):
        kind = number_type(node)
        if kind.startswith("DECIMAL"):
            kind = UNKNOWN
    if kind is None:
        return node
    return exp.Anonymous(this="unknown") if kind == UNKNOWN else exp.cast(exp.Null(), kind, dialect="spark")


def number_type(literal: exp.Expr) -> str:
    """Of a number as it is written, with its sign, if there is one; `UNKNOWN` of all else."""
    if not isinstance(literal, exp.Literal) or literal.is_string:
        return UNKNOWN
    try:
        return read_number(literal.name, negative=isinstance(literal.parent, exp.Neg)).type
    except NumberError:
        return UNKNOWN


def _misjudged(node: exp.Binary) -> bool:
    """A difference of times is an interval, a number of times an interval one, too, and DATE plus hours a
    TIMESTAMP: not what sqlglot says."""
    if isinstance(node, exp.Mul | exp.Div):
        return any(side.find(exp.Interval) is not None for side in (node.this, node.expression))
    kinds = [_type_of_node(side) for side in (node.this, node.expression)]
    if isinstance(node, exp.Sub) and all(kind in TIMES for kind in kinds):
        return True
    step = next((side for side in (node.this, node.expression) if is_interval(side)), None)
    return "DATE" in kinds and step is not None and not is_of_days(step)


def _type_of_node(node: exp.Expr) -> str:
    return _type_text(node.type) if node.type else UNKNOWN


def _type_text(kind: exp.Expr) -> str:
    try:
        return normal_type(kind.sql("spark"))
    except (SqlError, SqlglotError):
        return UNKNOWN


def common_type(a: str, b: str) -> str | None:
    """The type that both become in a UNION ALL, as in Spark; None when they are to be cast: they must be
    equal, integers, FLOAT or DOUBLE with any number, or DATE and TIMESTAMP.

    >>> common_type("INT", "BIGINT"), common_type("INT", "FLOAT"), common_type("DOUBLE", "DECIMAL(8,2)")
    ('BIGINT', 'DOUBLE', 'DOUBLE')
    """
    if a == b or b in (UNKNOWN, "VOID"):
        return a
    if a in (UNKNOWN, "VOID"):
        return b
    if a in INTEGERS and b in INTEGERS:
        return max(a, b, key=INTEGERS.index)
    if (a in _FLOATING or b in _FLOATING) and all(_is_number(each) for each in (a, b)):
        return "DOUBLE"  # with a FLOAT, too, that does not hold all integers
    return "TIMESTAMP" if {a, b} == {"DATE", "TIMESTAMP"} else None


def _is_number(kind: str) -> bool:
    return kind in INTEGERS or kind in _FLOATING or kind.startswith("DECIMAL(")
