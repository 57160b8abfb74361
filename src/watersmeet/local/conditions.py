"""Conditions of joins without SQL: calls that make the expressions that `Relation.join` takes.

    condition ::= Equal | Comparison | Between | AllOf | AnyOf
    value     ::= left("column") | right("column"), each + or − a length | a constant

A length is a whole number or a Decimal, in units of the column; of times a timedelta or a text such as
``"10 seconds"``. A condition means what the same expression means in SQL: a comparison with NULL is neither
true nor false, and no match. Whether columns exist and lengths fit them says `JoinSpec`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from math import isfinite
from typing import Any, Literal, NoReturn

from sqlglot import exp

from watersmeet.errors import SpecError
from watersmeet.relations.columns import tree_of
from watersmeet.relations.terms import length_node, length_us

Length = int | Decimal | timedelta | str
Constant = bool | int | float | Decimal | str | date
"""A date may be a datetime, which without a zone is UTC's."""

Operator = Literal["=", "<>", "<", "<=", ">", ">="]
_COMPARED: Mapping[str, type[exp.Expression]] = {
    "=": exp.EQ,
    "<>": exp.NEQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
}


@dataclass(frozen=True, repr=False)
class Term:
    """An expression over the columns of two sides, which it calls ``left`` and ``right``."""

    tree: exp.Expression

    def __repr__(self) -> str:
        return self.tree.sql("spark")

    def __bool__(self) -> NoReturn:
        # `a and b` of Python is one of the two: the other would be lost without a word
        raise _problem(
            f"{self!r} is a condition on rows, which Python's and, or and not cannot combine",
            "use AllOf(…, …) for AND and AnyOf(…, …) for OR",
        )


class ColumnRef(Term):
    """A column of one side, which may be moved by a length. Made by `left` and `right`."""

    def __add__(self, length: Length) -> ColumnRef:
        return ColumnRef(exp.Add(this=self.tree, expression=_length(length)))

    def __sub__(self, length: Length) -> ColumnRef:
        return ColumnRef(exp.Sub(this=self.tree, expression=_length(length)))


Value = ColumnRef | Constant


class Condition(Term):
    """A condition on a row of each side."""


class Equal(Condition):
    """``first = second``; ``null_safe``: NULL equals NULL, and nothing else.

    >>> Equal(left("k"), right("k"), null_safe=True)
    `left`.`k` IS NOT DISTINCT FROM `right`.`k`
    """

    def __init__(self, first: Value, second: Value, null_safe: bool = False) -> None:
        kind: type[exp.Expression] = exp.NullSafeEQ if null_safe else exp.EQ
        super().__init__(kind(this=_value(first), expression=_value(second)))


class Comparison(Condition):
    """``first operator second``.

    >>> Comparison(left("t"), "<=", right("t") + 5)
    `left`.`t` <= `right`.`t` + 5
    """

    def __init__(self, first: Value, operator: Operator, second: Value) -> None:
        if operator not in _COMPARED:
            raise _problem(f"{operator!r} compares nothing", f"operators are {' '.join(_COMPARED)}")
        super().__init__(_COMPARED[operator](this=_value(first), expression=_value(second)))


class Between(Condition):
    """``low <= value <= high``, both ends included.

    >>> Between(right("t"), left("t"), left("t") + "1 hour")
    `right`.`t` BETWEEN `left`.`t` AND `left`.`t` + INTERVAL '3600000000' MICROSECONDS
    """

    def __init__(self, value: Value, low: Value, high: Value) -> None:
        super().__init__(exp.Between(this=_value(value), low=_value(low), high=_value(high)))


class AllOf(Condition):
    """All of them are true.

    >>> AllOf(Equal(left("k"), right("k")), Comparison(left("t"), "<", right("t")))
    `left`.`k` = `right`.`k` AND `left`.`t` < `right`.`t`
    """

    def __init__(self, *conditions: Condition) -> None:
        super().__init__(_combine_conditions(exp.And, conditions))


class AnyOf(Condition):
    """One of them is true, at least.

    >>> AnyOf(Equal(left("k"), 1), Equal(right("k"), 2))
    (`left`.`k` = 1 OR `right`.`k` = 2)
    """

    def __init__(self, *conditions: Condition) -> None:
        super().__init__(exp.paren(_combine_conditions(exp.Or, conditions), copy=False))


def left(column: str) -> ColumnRef:
    """Return a column of the left side.

    >>> left("order_time") + "1 hour"
    `left`.`order_time` + INTERVAL '3600000000' MICROSECONDS
    """
    return ColumnRef(tree_of(column, "left"))


def right(column: str) -> ColumnRef:
    """Return a column of the right side.

    >>> right("price") - 10
    `right`.`price` - 10
    """
    return ColumnRef(tree_of(column, "right"))


def check_condition(given: Any) -> None:
    """Raise SpecError for anything but a condition."""
    if not isinstance(given, Condition):
        hint = "conditions are Equal, Comparison, Between, AllOf and AnyOf"
        raise _problem(f"{given!r} is not a condition", hint)


def _combine_conditions(kind: type[exp.Expression], conditions: tuple[Condition, ...]) -> exp.Expression:
    if not conditions:
        raise _problem("AllOf() and AnyOf() need at least one condition", "AllOf(Equal(…), Between(…))")
    for condition in conditions:
        check_condition(condition)
    return reduce(lambda one, other: kind(this=one, expression=other), (part.tree for part in conditions))


def _value(value: Value) -> exp.Expression:
    tree = value.tree if isinstance(value, ColumnRef) else _constant(value)
    if tree is None:
        raise _problem(
            f"{value!r} is not a value of a condition",
            "values are left(…) and right(…), numbers, texts, booleans, dates and datetimes",
        )
    return tree


def _length(length: Length) -> exp.Expression:
    if isinstance(length, str):
        length = timedelta(microseconds=length_us(length, "length"))
    if isinstance(length, timedelta):  # fingerprints in checkpoints have this unit
        return length_node(f"{length // timedelta(microseconds=1)} microseconds", "length")
    is_number = isinstance(length, int | Decimal) and not isinstance(length, bool)
    tree = _constant(length) if is_number else None
    if tree is None:
        hint = "lengths are whole numbers and Decimals; of times a timedelta or a text such as '10 seconds'"
        raise _problem(f"{length!r} is not a length", hint)
    return tree


def _constant(value: Any) -> exp.Expression | None:
    """Return a literal as Spark reads it, in the type that the value has; None if there is none."""
    if isinstance(value, float | Decimal | date) and value != value:  # pandas' NaT is a datetime
        return None
    if isinstance(value, bool):
        return exp.true() if value else exp.false()
    if isinstance(value, int | float | Decimal):
        if not isfinite(value):
            return None
        digits = f"{abs(value):f}BD" if isinstance(value, Decimal) else repr(abs(value))
        number = exp.Literal.number(
            f"{digits}e0" if isinstance(value, float) and "e" not in digits else digits
        )
        return exp.Neg(this=number) if value < 0 else number
    if isinstance(value, datetime):
        instant = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        return exp.cast(exp.Literal.string(instant.isoformat(" ")), "TIMESTAMP", dialect="spark")
    if isinstance(value, date):
        return exp.cast(exp.Literal.string(value.isoformat()), "DATE", dialect="spark")
    return exp.Literal.string(value) if isinstance(value, str) else None


def _problem(message: str, hint: str) -> SpecError:
    return SpecError(message, code="bad-condition", hint=hint)
