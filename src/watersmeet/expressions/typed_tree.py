"""Build trees of constants, calls and casts to wider types, with the types that Spark gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from watersmeet.expressions.base import NAMES, ArrowFunction, widen, widen_nested
from watersmeet.types.coercion import common_of, holds, loses_digits, same_shape, tightest_type
from watersmeet.types.sql_type import (
    DOUBLE,
    FLOAT,
    INTEGERS,
    MAX_DECIMAL_DIGITS,
    PLAIN,
    VOID,
    SqlType,
    decimal,
    interval,
)

Tree = tuple[Any, ...]


INTERVAL = interval("DAY", "SECOND")
INTERVAL_OF_DAYS = interval("DAY", "DAY")
INTERVAL_OF_MONTHS = interval("YEAR", "MONTH")


class UnsupportedExpression(Exception):
    """Error for an expression that tasks cannot compute; its text gives the reason."""


def require(is_supported: object, otherwise: str) -> None:
    """Check a requirement of an exact translation.

    Raises:
        UnsupportedExpression: ``is_supported`` is false; its message is ``otherwise``.
    """
    if not is_supported:
        raise UnsupportedExpression(otherwise)


@dataclass(frozen=True)
class TypedTree:
    """Expression that tasks compute; ``type`` is its Spark type."""

    tree: Tree
    type: SqlType


def call(
    function: ArrowFunction, type_: SqlType, *arguments: TypedTree, options: Sequence[Any] = ()
) -> TypedTree:
    """Build a call of a function.

    Args:
        options: constants; the function receives a ``("type", SqlType)`` as an Arrow type.
    """
    trees = tuple(argument.tree for argument in arguments)
    return TypedTree(("call", NAMES[function], trees, tuple(options)), type_)


def or_null(value: TypedTree, conditions: Sequence[str] = ()) -> TypedTree:
    """Build a call that returns NULL for rows that fail with one of ``conditions``.

    An empty sequence of conditions means any condition.
    """
    if value.tree[0] != "call":
        return value
    return TypedTree(("or_null", value.tree, tuple(conditions)), value.type)


def constant(value: object, type_: SqlType) -> TypedTree:
    return TypedTree(("constant", value, type_), type_)


def wrap_constant_in_call(value: TypedTree) -> TypedTree:
    """Return the value as a call, so that next to a DECIMAL it is not a literal.

    The value of the call may be known anyway.
    """
    if value.tree[0] == "constant" and value.type in INTEGERS:
        return call(widen, value.type, value, options=[("type", value.type)])
    return value


def constant_value(value: TypedTree) -> Any:
    """Return the value of a constant.

    Raises:
        UnsupportedExpression: the argument is not constant, or NULL.
    """
    if value.tree[0] != "constant" or value.tree[1] is None:
        raise UnsupportedExpression("an argument that has to be constant is not")
    return value.tree[1]


def interval_fields(type_: SqlType) -> tuple[str, str]:
    """Return the first and the last field: ``INTERVAL DAY TO HOUR``, ``INTERVAL DAY``."""
    assert type_.span is not None, type_
    return type_.span


def as_decimal(type_: SqlType) -> SqlType:
    """Return the DECIMAL type that has all values of an integer or DECIMAL type.

    Raises:
        UnsupportedExpression: the type is neither.
    """
    wide = type_.as_decimal
    if wide is None:
        raise UnsupportedExpression(f"{type_} is not on the list")
    return wide


def decimal_parts(type_: SqlType) -> tuple[int, int]:
    """Return the digits and the scale of `as_decimal`."""
    wide = as_decimal(type_)
    return wide.digits, wide.scale


def decimal_type(digits: int, scale: int) -> SqlType:
    """Return a DECIMAL type.

    Raises:
        UnsupportedExpression: it would have more than 38 digits.
    """
    require(digits <= MAX_DECIMAL_DIGITS, "a DECIMAL of more than 38 digits is cut by rules of Spark's own")
    return decimal(digits, scale)


def widen_value(value: TypedTree, type_: SqlType) -> TypedTree:
    """Convert a value to a wider type of its kind."""
    if value.type == type_:
        return value
    if value.type == VOID:
        return constant(None, type_)
    if value.type.is_nested or type_.is_nested:
        return _widened_within(value, type_)
    if value.type.is_interval and type_.is_interval and value.type.is_of_months == type_.is_of_months:
        return TypedTree(value.tree, type_)
    wider_integers = INTEGERS[INTEGERS.index(value.type) :] if value.type in INTEGERS else ()
    if value.tree[0] == "constant" and type_ in wider_integers:
        return constant(value.tree[1], type_)
    digits = value.type.digits
    wider = {
        DOUBLE: value.type in (*INTEGERS, FLOAT) or 0 < digits <= 15,
        **dict.fromkeys(wider_integers, True),
    }
    to_decimal = type_.is_decimal and (value.type in INTEGERS or digits > 0)
    if wider.get(type_, to_decimal):
        return call(widen, type_, value, options=[("type", type_)])
    raise UnsupportedExpression(f"{value.type} as {type_}")


def _widened_within(value: TypedTree, type_: SqlType) -> TypedTree:
    """Convert ARRAYs, MAPs and STRUCTs so that their parts have wider types."""
    require(same_shape(value.type, type_), f"{value.type} as {type_}")
    for own, wider in zip(value.type.inner, type_.inner, strict=True):
        widen_value(TypedTree(("variable", ""), own), wider)
    if value.type.unnamed == type_.unnamed:
        return TypedTree(value.tree, type_)
    return call(widen_nested, type_, value, options=[("type", type_)])


def is_value(type_: SqlType) -> bool:
    """Return True if columns and parts of columns can have the type."""
    if type_.is_nested:
        return all(map(is_value, type_.inner))
    return type_ in PLAIN or type_.is_decimal


def is_ordered(type_: SqlType) -> bool:
    """Return True if Spark compares values of the type; it does not compare MAPs."""
    return all(inner.entry is None for inner in type_.every)


def one_type(types: Sequence[SqlType]) -> SqlType:
    """Return the type in which Spark compares or chooses between values of these types.

    Raises:
        UnsupportedExpression: tasks cannot widen the values to it (`widen_value`).
    """
    distinct = list(dict.fromkeys(types))
    common = common_of(distinct)
    if common is None or not all(_is_widened(type_, common) for type_ in distinct):
        raise UnsupportedExpression(
            f"{' and '.join(map(str, distinct))} are turned into one type by Spark alone"
        )
    return common


def compared_type(one: SqlType, other: SqlType, *, by_function: bool = False) -> SqlType:
    """Return the type in which Spark compares ARRAYs and STRUCTs.

    Functions of ARRAYs and MAPs also look up values in this type.

    Args:
        by_function: such a function compares; its rules lose digits of integers next to a FLOAT.

    Raises:
        UnsupportedExpression: only Spark compares the types.
    """
    common = tightest_type(one, other)
    if common is None or (by_function and loses_digits(one, other)):
        raise UnsupportedExpression(f"{one} and {other} are compared by Spark alone")
    return common


def _is_widened(own: SqlType, to: SqlType) -> bool:
    """Return True if no cast is needed.

    Text to a number, and DATE to TIMESTAMP, need a cast.
    """
    if own == to or own.is_void:
        return True
    if to.is_decimal:
        return holds(to, own)
    if own.is_nested and to.is_nested:
        return all(map(_is_widened, own.inner, to.inner))
    return (own.is_number and to.is_number) or (own.is_interval and to.is_interval)
