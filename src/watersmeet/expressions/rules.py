"""Rules by which calls are compiled, and the compiler as rules see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from watersmeet.expressions.base import ArrowFunction
from watersmeet.expressions.typed_tree import (
    TypedTree,
    call,
    one_type,
    or_null,
    require,
    widen_value,
)
from watersmeet.spec.model import Expr
from watersmeet.spec.time_zones import UTC
from watersmeet.types.coercion import common_of
from watersmeet.types.sql_type import (
    DATE,
    INT,
    INTEGERS,
    STRING,
    TIMES,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    SqlType,
)


class Compiler(ABC):
    """Compiles one expression. ``zone``: the time zone of the session."""

    zone: str

    @abstractmethod
    def of(self, node: Expr) -> TypedTree:
        """Compile an expression. Raises: UnsupportedExpression."""

    @abstractmethod
    def name_of(self, node: Expr) -> str | None:
        """Return the name that Spark derives from a column or field; None for other expressions."""

    @abstractmethod
    def cast_to(self, value: TypedTree, to: SqlType) -> TypedTree:
        """Cast a value of any type. Raises: UnsupportedExpression."""

    def all(self, nodes: Sequence[Expr]) -> list[TypedTree]:
        return [self.of(node) for node in nodes]

    def alike(self, values: Sequence[TypedTree]) -> list[TypedTree]:
        """Convert values to the type in which Spark chooses between them."""
        types = {value.type for value in values if value.type != VOID}
        if len(types) > 1 and (types <= set(TIMES) or (STRING in types and len(types) == 2)):
            wanted = common_of(types)
            if wanted is not None:
                return [self.cast_to(value, wanted) for value in values]
        common = one_type([value.type for value in values])
        return [widen_value(value, common) for value in values]

    def case_of(
        self, conditions: Sequence[TypedTree], values: Sequence[TypedTree], otherwise: TypedTree | None
    ) -> TypedTree:
        alike = self.alike([*values, *([] if otherwise is None else [otherwise])])
        type_ = alike[0].type
        require(type_ != VOID, "a CASE of NULLs")
        branches = tuple(
            (condition.tree, value.tree) for condition, value in zip(conditions, alike, strict=False)
        )
        rest = None if otherwise is None else alike[-1].tree
        return TypedTree(("case", branches, rest, type_), type_)

    def as_timestamp(self, value: TypedTree) -> TypedTree:
        """Cast an argument that functions accept as a TIMESTAMP without an explicit cast."""
        require(value.type in (*TIMES, STRING, VOID), f"{value.type} as TIMESTAMP")
        return self.cast_to(value, TIMESTAMP)

    def as_date(self, value: TypedTree) -> TypedTree:
        """Cast an argument that functions accept as a DATE without an explicit cast."""
        require(value.type in (*TIMES, STRING, VOID), f"{value.type} as DATE")
        return self.cast_to(value, DATE)

    def on_clock(self, value: TypedTree) -> tuple[TypedTree, str]:
        """Return a time whose clock fields are read, and the time zone of that clock."""
        return (value, UTC) if value.type == TIMESTAMP_NTZ else (self.as_timestamp(value), self.zone)

    def as_int(self, value: TypedTree) -> TypedTree:
        """Cast an argument that functions accept as an INT without an explicit cast."""
        require(value.type in (*INTEGERS, VOID), f"{value.type} as INT")
        return self.cast_to(value, INT)


Rule = Callable[[Compiler, Sequence[Expr]], TypedTree]
"""Of a call's arguments as they are written. Raises: UnsupportedExpression."""
Conversion = Callable[[Compiler, TypedTree], TypedTree]
"""Of one argument to a type that a function takes. Raises: UnsupportedExpression."""


@dataclass(frozen=True)
class Restricted:
    """``text``: for which arguments alone tasks compute a function."""

    rule: Rule
    text: str


def arguments(count: int, make: Callable[..., TypedTree]) -> Rule:
    """Return the rule of a function of ``count`` arguments."""
    return optional(count, count, make)


def optional(least: int, most: int, make: Callable[..., TypedTree]) -> Rule:
    """Return the rule of a function of ``least`` to ``most`` arguments."""

    def rule(compiler: Compiler, nodes: Sequence[Expr]) -> TypedTree:
        require(least <= len(nodes) <= most, "this number of arguments is not on the list")
        return make(compiler, *compiler.all(nodes))

    return rule


def computed(
    function: ArrowFunction, type_: SqlType | None, *conversions: Conversion, options: Sequence[Any] = ()
) -> Rule:
    """Return the rule of a function with a conversion for each argument.

    Args:
        type_: the type of the result; None: that of the first argument.
    """

    def make(compiler: Compiler, *values: TypedTree) -> TypedTree:
        own = [convert(compiler, value) for convert, value in zip(conversions, values, strict=True)]
        return call(function, type_ or own[0].type, *own, options=options)

    return arguments(len(conversions), make)


def nullable(rule: Rule) -> Rule:
    """Return the rule of a function that is NULL where ``rule`` fails."""
    return lambda compiler, nodes: or_null(rule(compiler, nodes))


def only(types: Sequence[SqlType], use: str, to: SqlType | None = None) -> Conversion:
    """Return a conversion that accepts some types.

    Args:
        use: how the argument is used, for messages: ``{} as days``.
        to: the wider type to convert to; None: leave the value unchanged.
    """

    def convert(_: Compiler, value: TypedTree) -> TypedTree:
        require(value.type in types, use.format(value.type))
        return value if to is None else widen_value(value, to)

    return convert
