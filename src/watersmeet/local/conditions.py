"""Conditions of joins as data: a small, closed set of frozen values, and nothing that is a text to be parsed.

    condition ::= Equal | Comparison | Between | AllOf | AnyOf
    value     ::= left("column") | right("column"), each + or − a length | a constant

A length is a whole number or a Decimal, in units of the column; of times a timedelta or a text such as
``"10 seconds"``. What a condition means is what the same words mean in SQL: a comparison with NULL is neither
true nor false, and no match. Whether columns exist and lengths fit them says `JoinSpec`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Literal, NoReturn

from watersmeet.errors import SpecError

Length = int | Decimal | timedelta | str
Constant = bool | int | float | Decimal | str | date
"""A date may be a datetime, which without a zone is UTC's."""

Side = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")
Operator = Literal["=", "<>", "<", "<=", ">", ">="]


@dataclass(frozen=True)
class ColumnRef:
    """A column of one side, ``plus`` so much. Made by `left` and `right`."""

    side: Side
    name: str
    plus: Length | None = None
    minus: Length | None = None

    def __add__(self, length: Length) -> ColumnRef:
        return self._moved(length, None)

    def __sub__(self, length: Length) -> ColumnRef:
        return self._moved(None, length)

    def _moved(self, plus: Length | None, minus: Length | None) -> ColumnRef:
        if self.is_moved:
            raise TypeError(f"{self} already has a length of time added: add the lengths first")
        return ColumnRef(self.side, self.name, plus, minus)

    @property
    def is_moved(self) -> bool:
        """It is not the column as it is."""
        return self.plus is not None or self.minus is not None

    def __str__(self) -> str:
        moved = f" + {self.plus!r}" if self.plus is not None else ""
        moved = f" - {self.minus!r}" if self.minus is not None else moved
        return f"{self.side}({self.name!r}){moved}"


Value = ColumnRef | Constant


class _WithoutTruth:
    """``a and b`` of Python is one of the two: the other condition would be lost without a word."""

    def __bool__(self) -> NoReturn:
        raise SpecError(
            f"{self!r} is a condition on rows, which Python's and, or and not cannot combine",
            code="bad-condition",
            hint="use AllOf(…, …) for AND and AnyOf(…, …) for OR",
        )


@dataclass(frozen=True)
class Equal(_WithoutTruth):
    """``first = second``; ``null_safe``: NULL equals NULL, and nothing else.

    >>> Equal(left("k"), right("k"), null_safe=True)
    Equal(left('k') <=> right('k'))
    """

    first: Value
    second: Value
    null_safe: bool = False

    def __repr__(self) -> str:
        return f"Equal({_shown(self.first)} {'<=>' if self.null_safe else '='} {_shown(self.second)})"


@dataclass(frozen=True)
class Comparison(_WithoutTruth):
    """``first operator second``.

    >>> Comparison(left("t"), "<=", right("t") + 5)
    Comparison(left('t') <= right('t') + 5)
    """

    first: Value
    operator: Operator
    second: Value

    def __repr__(self) -> str:
        return f"Comparison({_shown(self.first)} {self.operator} {_shown(self.second)})"


@dataclass(frozen=True)
class Between(_WithoutTruth):
    """``low <= value <= high``, both ends included.

    >>> Between(right("t"), left("t"), left("t") + "1 hour")
    Between(left('t') <= right('t') <= left('t') + '1 hour')
    """

    value: Value
    low: Value
    high: Value

    def __repr__(self) -> str:
        return f"Between({_shown(self.low)} <= {_shown(self.value)} <= {_shown(self.high)})"


@dataclass(frozen=True, init=False)
class AllOf(_WithoutTruth):
    """All of them are true.

    >>> AllOf(Equal(left("k"), right("k")), Comparison(left("t"), "<", right("t")))
    AllOf(Equal(left('k') = right('k')), Comparison(left('t') < right('t')))
    """

    conditions: tuple[Condition, ...]

    def __init__(self, *conditions: Condition) -> None:
        object.__setattr__(self, "conditions", conditions)

    def __repr__(self) -> str:
        return f"AllOf({', '.join(map(repr, self.conditions))})"


@dataclass(frozen=True, init=False)
class AnyOf(_WithoutTruth):
    """One of them is true, at least.

    >>> AnyOf(Equal(left("k"), 1), Equal(right("k"), 2))
    AnyOf(Equal(left('k') = 1), Equal(right('k') = 2))
    """

    conditions: tuple[Condition, ...]

    def __init__(self, *conditions: Condition) -> None:
        object.__setattr__(self, "conditions", conditions)

    def __repr__(self) -> str:
        return f"AnyOf({', '.join(map(repr, self.conditions))})"


Condition = Equal | Comparison | Between | AllOf | AnyOf


def left(column: str) -> ColumnRef:
    """A column of the left side.

    >>> left("order_time") + "1 hour"
    ColumnRef(side='left', name='order_time', plus='1 hour', minus=None)
    """
    return ColumnRef("left", column)


def right(column: str) -> ColumnRef:
    """A column of the right side.

    >>> str(right("price") - 10)
    "right('price') - 10"
    """
    return ColumnRef("right", column)


def _shown(value: Value) -> str:
    return str(value) if isinstance(value, ColumnRef) else repr(value)
