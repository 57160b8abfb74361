"""Cut a condition into conjuncts, and decide those of constants."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from watersmeet.spec.literals import Number, NumberError, read_number
from watersmeet.spec.model import Expr
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import BIGINT, BOOLEAN, DOUBLE, FLOAT, INT, STRING

# Rule: a condition is cut at its top-level ANDs; BETWEEN is two conjuncts.

_SPARK = Dialect.get_or_raise("spark")
"""Made once: a plan asks for hundreds of short texts."""


@dataclass(frozen=True)
class Conjunct:
    """One conjunct of a condition.

    Attributes:
        written: What the user wrote, if that is more than ``expr``: for each half of a BETWEEN, all of it.
    """

    expr: Expr
    written: Expr | None = None

    @cached_property
    def text(self) -> str:
        """Text that the user wrote, as Spark SQL; plans that are only tried do not compute it."""
        return text_of(self.expr if self.written is None else self.written)


def split_as_written(condition: Expr | None) -> list[Expr]:
    """Split a condition into its conjuncts as written; a BETWEEN stays one conjunct.

    Returns:
        An empty list for None.
    """
    match condition:
        case None:
            return []
        case exp.Paren():
            return split_as_written(condition.this)
        case exp.And():
            return split_as_written(condition.this) + split_as_written(condition.expression)
    return [condition]


def split(condition: Expr | None) -> tuple[Conjunct, ...]:
    """Split ``condition`` into its conjuncts in text order; return none for None."""
    return tuple(conjunct for own in split_as_written(condition) for conjunct in cut_between(Conjunct(own)))


def cut_between(conjunct: Conjunct) -> tuple[Conjunct, ...]:
    """Cut a BETWEEN into its halves; any other conjunct stays as it is."""
    condition = conjunct.expr
    if isinstance(condition, exp.Between) and not condition.args.get("symmetric"):
        value, low, high = condition.this, condition.args["low"], condition.args["high"]
        return (
            Conjunct(exp.GTE(this=value.copy(), expression=low.copy()), condition),
            Conjunct(exp.LTE(this=value.copy(), expression=high.copy()), condition),
        )
    return (conjunct,)


def join_all(conditions: list[Expr]) -> Expr | None:
    """Combine ``conditions`` with AND; return None if there are none."""
    if not conditions:
        return None
    result: Expr = _parenthesize(conditions[0])
    for condition in conditions[1:]:
        result = exp.And(this=result, expression=_parenthesize(condition))
    return result


def _parenthesize(condition: Expr) -> Expr:
    """Add parentheses where AND would bind tighter."""
    copy = condition.copy()
    return exp.Paren(this=copy) if isinstance(copy, exp.Or | exp.And) else copy


def text_of(expr: Expr) -> str:
    """Return ``expr`` as Spark SQL text."""
    if isinstance(expr, exp.Column) and expr.comments is None:
        name, table, *others = expr.this, *(expr.args.get(part) for part in ("table", "db", "catalog"))
        if isinstance(name, exp.Identifier) and name.comments is None and not any(others):
            if table is None:
                return _column_text(name.name, name.quoted, None, False)
            if isinstance(table, exp.Identifier) and table.comments is None:
                return _column_text(name.name, name.quoted, table.name, table.quoted)
    return expr.sql(dialect=_SPARK)


@lru_cache(4096)
def _column_text(name: str, quoted: bool, table: str | None, table_quoted: bool) -> str:
    """Return the SQL text of a column, for plans that request it hundreds of times."""
    column = exp.Column(
        this=exp.Identifier(this=name, quoted=quoted),
        table=None if table is None else exp.Identifier(this=table, quoted=table_quoted),
    )
    return column.sql(dialect=_SPARK)


# Rule: conditions of constants that are decided before the job runs, as Spark is known to decide them.

_NULLS = {INT: Number, BIGINT: Number, DOUBLE: Number, STRING: str, BOOLEAN: bool}
"""Beside what a NULL that was cast to a type may stand."""


@dataclass(frozen=True)
class _Null:
    """A NULL of a type. ``of``: what it may be compared with."""

    of: type


_Value = bool | str | Number | _Null | None
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


class _UndecidedCondition(Exception):
    """Only Spark knows, or refuses it."""


def constant_is_true(expr: Expr) -> bool | None:
    """Return True if a constant condition is TRUE, or None if only a run can decide it.

    >>> import sqlglot
    >>> [constant_is_true(sqlglot.parse_one(text)) for text in ("1 < 2", "NULL AND TRUE", "1 / 0 = 1")]
    [True, False, None]
    """
    try:
        return _truth(expr) is True
    except (_UndecidedCondition, NumberError):
        return None


def _truth(node: Expr) -> bool | None:
    value = _value(node)
    if isinstance(value, _Null) and value.of is bool:
        return None
    if value is None or isinstance(value, bool):
        return value
    raise _UndecidedCondition


def _value(node: Expr) -> _Value:
    if isinstance(node, exp.Paren):
        return _value(node.this)
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal):
        return str(node.this) if node.is_string else read_number(node.this)
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return read_number(node.this.this, negative=True)
    of = _NULLS.get(sql_type(node.to.sql("spark"))) if isinstance(node, exp.Cast) else None
    if of is not None and _value(node.this) is None:
        return _Null(of)
    truth = _condition(node)
    return _Null(bool) if truth is None else truth


def _condition(node: Expr) -> bool | None:
    if isinstance(node, exp.Not):
        truth = _truth(node.this)
        return None if truth is None else not truth
    if isinstance(node, exp.And | exp.Or):
        deciding = isinstance(node, exp.Or)
        truths = (_truth(node.this), _truth(node.expression))
        return deciding if deciding in truths else None if None in truths else not deciding
    if isinstance(node, _COMPARISONS):
        return _compare_values(node, _value(node.this), _value(node.expression))
    raise _UndecidedCondition


def _compare_values(node: Expr, left: _Value, right: _Value) -> bool | None:
    if left is None or right is None:
        return None
    kinds = {operand.of if isinstance(operand, _Null) else type(operand) for operand in (left, right)}
    if len(kinds) == 1 and (isinstance(left, _Null) or isinstance(right, _Null)):
        if any(isinstance(operand, Number) and abs(operand.value) >= 2**31 for operand in (left, right)):
            raise _UndecidedCondition  # Spark's optimizer has found some of these TRUE
        return None
    if isinstance(left, Number) and isinstance(right, Number):
        return _evaluate_comparison(node, *_alike(left, right))
    if isinstance(left, str) and isinstance(right, str):
        return _evaluate_comparison(node, left.encode(), right.encode())
    if isinstance(left, bool) and isinstance(right, bool):
        return _evaluate_comparison(node, left, right)
    raise _UndecidedCondition


def _alike(left: Number, right: Number) -> tuple[Fraction | float, Fraction | float]:
    types = {left.type, right.type}
    if FLOAT in types:
        raise _UndecidedCondition
    if DOUBLE in types:
        return float(left.value), float(right.value)
    if any(operand.type.is_decimal and abs(operand.value) >= 10**18 for operand in (left, right)):
        raise _UndecidedCondition  # their common type may lack digits
    return left.value, right.value


def _evaluate_comparison(node: Expr, left: Fraction | float | bytes, right: Fraction | float | bytes) -> bool:
    lower, equal = left < right, left == right  # type: ignore[operator]
    truths: dict[type[Expr], bool] = {
        exp.EQ: equal,
        exp.NEQ: not equal,
        exp.LT: lower,
        exp.LTE: lower or equal,
        exp.GT: not (lower or equal),
        exp.GTE: not lower,
    }
    return truths[type(node)]
