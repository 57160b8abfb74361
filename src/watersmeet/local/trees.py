"""Conditions as data → the trees that plans are made of, as SQL's own reader makes them (`front`).

Problems are gathered, not raised: all that is wrong with a condition is told together.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from math import isfinite
from typing import Any, get_args

from sqlglot import exp

from watersmeet.errors import SpecError, near_names
from watersmeet.local.conditions import (
    AllOf,
    AnyOf,
    Between,
    ColumnRef,
    Comparison,
    Condition,
    Equal,
)
from watersmeet.relations.columns import tree_of
from watersmeet.spec.model import Column, Expr
from watersmeet.types.intervals import IntervalError, read_interval, text_us
from watersmeet.types.sql_type import SqlType

_KINDS = get_args(Condition)
_COMPARED: Mapping[str, type[Expr]] = {
    "=": exp.EQ,
    "<>": exp.NEQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
}
_US = timedelta(microseconds=1)


class Trees:
    """Makes trees of what is said of two sides.

    Args:
        sides: per ``left`` and ``right`` the name of the side and its columns by name.
    """

    def __init__(self, sides: Mapping[str, tuple[str, Mapping[str, Column]]]) -> None:
        self._sides = sides
        self.problems: list[SpecError] = []

    def condition(self, condition: Any) -> Expr:
        """TRUE where there is a problem with it."""
        match condition:
            case Equal():
                kind = exp.NullSafeEQ if condition.null_safe else exp.EQ
                return kind(this=self.value(condition.first), expression=self.value(condition.second))
            case Comparison():
                compared = _COMPARED.get(condition.operator) if isinstance(condition.operator, str) else None
                if compared is None:
                    return self._problem(
                        f"{condition.operator!r} compares nothing",
                        "bad-condition",
                        f"operators are {' '.join(_COMPARED)}",
                    )
                return compared(this=self.value(condition.first), expression=self.value(condition.second))
            case Between():
                return exp.Between(
                    this=self.value(condition.value),
                    low=self.value(condition.low),
                    high=self.value(condition.high),
                )
            case AllOf() | AnyOf():
                if not condition.conditions:
                    return self._problem(f"{condition} has no conditions", "bad-condition", "name one")
                parts = [self.condition(part) for part in condition.conditions]
                if isinstance(condition, AllOf):
                    return reduce(lambda one, other: exp.And(this=one, expression=other), parts)
                return exp.paren(reduce(lambda one, other: exp.Or(this=one, expression=other), parts))
        return self._problem(
            f"{condition!r} is not a condition",
            "bad-condition",
            f"conditions are {', '.join(kind.__name__ for kind in _KINDS)}",
        )

    def value(self, value: Any) -> Expr:
        """A column, or a constant."""
        if isinstance(value, ColumnRef):
            return self._column(value)
        tree = _constant(value)
        if tree is not None:
            return tree
        return self._problem(
            f"{value!r} is not a value of a condition",
            "bad-condition",
            "values are left(…) and right(…), numbers, texts, booleans, dates and datetimes",
        )

    def _column(self, ref: ColumnRef) -> Expr:
        name, columns = self._sides[ref.side]
        column = columns.get(ref.name)
        if column is None:
            return self._problem(
                f'the {ref.side} side, "{name}", has no column "{ref.name}"',
                "unknown-column",
                near_names(str(ref.name), columns),
            )
        node = tree_of(ref.name, name)
        if not ref.is_moved:
            return node
        length = ref.minus if ref.plus is None else ref.plus
        tree = self._length(length, column.type, f"{ref}")
        kind = exp.Add if ref.plus is not None else exp.Sub
        return kind(this=node, expression=tree)

    def _length(self, length: Any, type_: SqlType, where: str) -> Expr:
        if type_.is_time:
            us = length_us(length)
            if us is not None:
                return read_interval([(f"{us} microseconds", None)])
            hint = 'lengths of time are texts such as "10 seconds", or a timedelta, down to µs'
        elif type_.is_number and isinstance(length, int | Decimal) and not isinstance(length, bool):
            tree = _constant(length)
            if tree is not None:
                return tree
            hint = "give a finite number"
        elif type_.is_number:
            hint = "lengths of numbers are whole numbers or Decimals"
        else:
            hint = "only times and numbers have lengths"
        return self._problem(f"{where}: {length!r} is not a length for {type_}", "bad-condition", hint)

    def _problem(self, message: str, code: str, hint: str | None) -> Expr:
        self.problems.append(SpecError(message, code=code, hint=hint))
        return exp.true()


def length_us(length: Any) -> int | None:
    """µs of a timedelta or a text; None: it is no length of time."""
    if isinstance(length, timedelta):
        return length // _US
    if not isinstance(length, str):
        return None
    try:
        return text_us(length)
    except IntervalError:
        return None


def _constant(value: Any) -> Expr | None:
    """A literal as Spark reads it, in the type that the value has. None: there is none."""
    if isinstance(value, bool):
        return exp.true() if value else exp.false()
    if isinstance(value, float | Decimal | date) and value != value:  # pandas' NaT is a datetime
        return None
    if isinstance(value, int):
        return _signed(str(abs(value)), value < 0)
    if isinstance(value, float):
        if not isfinite(value):
            return None
        mantissa = repr(abs(value))
        return _signed(mantissa if "e" in mantissa else f"{mantissa}e0", value < 0)
    if isinstance(value, Decimal):
        if not value.is_finite():
            return None
        return _signed(f"{abs(value):f}BD", value < 0)
    if isinstance(value, str):
        return exp.Literal.string(value)
    if isinstance(value, datetime):
        instant = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        return exp.cast(exp.Literal.string(instant.isoformat(" ")), "TIMESTAMP", dialect="spark")
    if isinstance(value, date):
        return exp.cast(exp.Literal.string(value.isoformat()), "DATE", dialect="spark")
    return None


def _signed(digits: str, negative: bool) -> Expr:
    number = exp.Literal.number(digits)
    return exp.Neg(this=number) if negative else number
