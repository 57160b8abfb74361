"""Types of expressions, as far as they can be told without Spark: a wrong one would be worse than none."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from watersmeet.errors import SqlError
from watersmeet.front.types.columns import type_named
from watersmeet.spec.number_literals import NumberError, read_number
from watersmeet.types.common import common_type
from watersmeet.types.intervals import is_interval, is_of_days
from watersmeet.types.sql_type import (
    BIGINT,
    DATE,
    INT,
    PLAIN,
    SMALLINT,
    STRING,
    TIMES,
    TIMESTAMP,
    TINYINT,
    UNKNOWN,
    VOID,
    SqlType,
    array,
)

_CERTAIN = {*PLAIN} - {TINYINT, SMALLINT}
_INT_FUNCTIONS = (exp.Year, exp.Quarter, exp.Month, exp.Day, exp.DayOfMonth, exp.DayOfWeek, exp.DayOfYear,
                  exp.WeekOfYear, exp.Hour, exp.Minute, exp.Second, exp.Length)  # fmt: skip


def type_of(expr: exp.Expr, column_type: Callable[[exp.Column], SqlType]) -> SqlType:
    """The Spark type of a resolved expression; `UNKNOWN` where only Spark can tell (decimals of arithmetic,
    functions of its own, …)."""
    plain = expr.unnest()
    if isinstance(plain, exp.Column):
        return column_type(plain)
    if isinstance(plain, (exp.Cast, exp.TryCast)):
        return _type_of_cast(plain.to)
    try:
        annotated = annotate_types(
            plain.copy().transform(lambda node: _typed(node, column_type)), dialect="spark"
        )
    except (SqlglotError, ValueError, TypeError, KeyError):
        return UNKNOWN
    if any(_misjudged(node) for node in annotated.find_all(exp.Add, exp.Sub, exp.Mul, exp.Div)):
        return UNKNOWN
    type_ = _type_of_node(annotated)
    return type_ if type_ in _CERTAIN else UNKNOWN


def _typed(node: exp.Expression, column_type: Callable[[exp.Column], SqlType]) -> exp.Expression:
    """The node itself, or a NULL of its type where sqlglot would not know it or differ from Spark."""
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


def null_of(kind: SqlType) -> exp.Cast:
    """A NULL of that type."""
    return _null_of(kind).copy()


@cache
def _null_of(kind: SqlType) -> exp.Cast:
    return exp.cast(exp.Null(), str(kind), dialect="spark")


def number_type(literal: exp.Expr) -> SqlType:
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
    return DATE in kinds and step is not None and not is_of_days(step)


def _type_of_node(node: exp.Expr) -> SqlType:
    return _type_of_cast(node.type) if node.type else UNKNOWN


def _type_of_cast(kind: exp.Expr) -> SqlType:
    if isinstance(kind, exp.DataType) and [name for name, value in kind.args.items() if value] == ["this"]:
        return _plain_type(kind.this)
    return _written_type(kind.sql("spark"))


@cache
def _plain_type(name: exp.DType) -> SqlType:
    """Of a type that is nothing but its name."""
    return _written_type(exp.DataType(this=name).sql("spark"))


def _written_type(text: str) -> SqlType:
    try:
        return type_named(text)
    except (SqlError, SqlglotError):
        return UNKNOWN


def united(a: SqlType, b: SqlType) -> SqlType | None:
    """The type that both become in a UNION ALL, as in Spark; None when people are to cast them: they must be
    equal, integers, FLOAT or DOUBLE with any number, or DATE and TIMESTAMP.

    >>> from watersmeet.types.sql_type import DOUBLE, FLOAT, decimal
    >>> united(INT, BIGINT), united(INT, FLOAT), united(DOUBLE, decimal(8, 2))
    (SqlType('BIGINT'), SqlType('DOUBLE'), SqlType('DOUBLE'))
    """
    if a == b or b in (UNKNOWN, VOID):
        return a
    if a in (UNKNOWN, VOID):
        return b
    common = common_type(a, b)
    if common is None:
        return None
    numbers = a.is_number and b.is_number and not common.is_decimal
    return common if numbers or {a, b} == {DATE, TIMESTAMP} else None


def field_type(kind: SqlType, name: str) -> SqlType | None:
    """The type of that field of a value; of an ARRAY those of its elements, of a MAP its value. None: it has
    none.

    >>> field_type(type_named("ARRAY<STRUCT<a: INT>>"), "A"), field_type(type_named("STRUCT<a: INT>"), "b")
    (SqlType('ARRAY<INT>'), None)
    """
    if kind == UNKNOWN:
        return UNKNOWN
    if kind.element is not None:
        inner = field_type(kind.element, name) if kind.element.is_struct or kind.element.is_unknown else None
        return None if inner is None else array(inner)
    if kind.entry is not None:
        key, value = kind.entry
        return value if key == STRING else UNKNOWN
    types = [field.type for field in kind.fields if field.name.lower() == name.lower()]
    return UNKNOWN if len(types) > 1 else next(iter(types), None)
