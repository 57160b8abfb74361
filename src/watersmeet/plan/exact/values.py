"""What tasks compute, as data, and of what type: constants, calls, the type of several values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from watersmeet.types.common import common_of, holds, same_shape
from watersmeet.types.compared import loses_digits, tightest_type
from watersmeet.types.sql_type import (
    DOUBLE,
    FLOAT,
    INTEGERS,
    MOST_DIGITS,
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


DAY_US = 86_400_000_000


class NotExact(Exception):
    """Tasks do not compute it; the text says why."""


@dataclass(frozen=True)
class Exact:
    """What tasks compute. ``type``: Spark's."""

    tree: Tree
    type: SqlType


def call(function: str, type_: SqlType, *arguments: Exact, options: Sequence[Any] = ()) -> Exact:
    return Exact(("call", function, tuple(each.tree for each in arguments), tuple(options)), type_)


def or_null(found: Exact, conditions: Sequence[str] = ()) -> Exact:
    """A call that is NULL for a row for which it would fail by one of ``conditions``; of none: by any."""
    return found if found.tree[0] != "call" else Exact(("or_null", found.tree, tuple(conditions)), found.type)


def constant(value: object, type_: SqlType) -> Exact:
    return Exact(("constant", value, type_), type_)


def computed(found: Exact) -> Exact:
    """The value of a call, which beside a DECIMAL is no literal, though it be known."""
    if found.tree[0] == "constant" and found.type in INTEGERS:
        return call("widen", found.type, found, options=[("type", found.type)])
    return found


def constant_value(found: Exact) -> Any:
    """The value of a constant. Raises: NotExact."""
    if found.tree[0] != "constant" or found.tree[1] is None:
        raise NotExact("an argument that has to be constant is not")
    return found.tree[1]


def interval_fields(type_: SqlType) -> tuple[str, str]:
    """The first and the last: ``INTERVAL DAY TO HOUR``, ``INTERVAL DAY``."""
    assert type_.span is not None, type_
    return type_.span


def as_decimal(type_: SqlType) -> SqlType:
    """The DECIMAL that holds all values of an integer or a DECIMAL. Raises: NotExact."""
    found = type_.as_decimal
    if found is None:
        raise NotExact(f"{type_} is not on the list")
    return found


def decimal_parts(type_: SqlType) -> tuple[int, int]:
    """Digits and scale of `as_decimal`."""
    found = as_decimal(type_)
    return found.digits, found.scale


def decimal_type(digits: int, scale: int) -> SqlType:
    """Raises: NotExact."""
    if digits > MOST_DIGITS:
        raise NotExact("a DECIMAL of more than 38 digits is cut by rules of Spark's own")
    return decimal(digits, scale)


def turned(function: str, value: Exact) -> Exact:
    """``-x`` and `abs`. Of DECIMALs beyond 34 digits Spark rounds them. Raises: NotExact."""
    if not value.type.is_number or (value.type.is_decimal and decimal_parts(value.type)[0] > 34):
        raise NotExact(f"{function.replace('_', ' ')} of {value.type}")
    return call(function, value.type, value)


def widened(found: Exact, type_: SqlType) -> Exact:
    """A value in a wider type of its kind."""
    if found.type == type_:
        return found
    if found.type == VOID:
        return constant(None, type_)
    if found.type.is_nested or type_.is_nested:
        return _widened_within(found, type_)
    if found.type.is_interval and type_.is_interval and found.type.is_of_months == type_.is_of_months:
        return Exact(found.tree, type_)
    wider_integers = INTEGERS[INTEGERS.index(found.type) :] if found.type in INTEGERS else ()
    if found.tree[0] == "constant" and type_ in wider_integers:
        return constant(found.tree[1], type_)
    digits = found.type.digits
    wider = {
        DOUBLE: found.type in (*INTEGERS, FLOAT) or 0 < digits <= 15,
        **dict.fromkeys(wider_integers, True),
    }
    to_decimal = type_.is_decimal and (found.type in INTEGERS or digits > 0)
    if wider.get(type_, to_decimal):
        return call("widen", type_, found, options=[("type", type_)])
    raise NotExact(f"{found.type} as {type_}")


def _widened_within(found: Exact, type_: SqlType) -> Exact:
    """ARRAYs, MAPs and STRUCTs whose parts are in a wider type."""
    if not same_shape(found.type, type_):
        raise NotExact(f"{found.type} as {type_}")
    for own, wider in zip(found.type.inner, type_.inner, strict=True):
        widened(Exact(("variable", ""), own), wider)
    if found.type.unnamed == type_.unnamed:
        return Exact(found.tree, type_)
    return call("widen_nested", type_, found, options=[("type", type_)])


def is_value(type_: SqlType) -> bool:
    """Whether columns and parts of columns may be of a type."""
    if type_.is_nested:
        return all(map(is_value, type_.inner))
    return type_ in PLAIN or type_.is_decimal


def is_ordered(type_: SqlType) -> bool:
    """Whether Spark compares values of a type: no MAPs."""
    return all(inner.entry is None for inner in type_.every)


def has_reals(type_: SqlType) -> bool:
    """Whether it is FLOAT or DOUBLE, or something in it is."""
    return any(inner.is_real for inner in type_.every)


def one_type(types: Sequence[SqlType]) -> SqlType:
    """The type in which Spark compares or chooses between values, if tasks widen them to it (`widened`).
    Raises: NotExact."""
    known = list(dict.fromkeys(types))
    found = common_of(known)
    if found is None or not all(_is_widened(each, found) for each in known):
        raise NotExact(f"{' and '.join(map(str, known))} are turned into one type by Spark alone")
    return found


def compared_type(one: SqlType, other: SqlType, *, by_function: bool = False) -> SqlType:
    """The type in which Spark compares ARRAYs and STRUCTs, and in which functions of ARRAYs and MAPs look for
    a value. Raises: NotExact.

    Args:
        by_function: such a function does it, by whose rules a FLOAT beside integers loses their digits.
    """
    found = tightest_type(one, other)
    if found is None or (by_function and loses_digits(one, other)):
        raise NotExact(f"{one} and {other} are compared by Spark alone")
    return found


def _is_widened(own: SqlType, to: SqlType) -> bool:
    """Whether it takes no cast: not from a text to a number, nor from a DATE to a TIMESTAMP."""
    if own == to or own.is_void:
        return True
    if to.is_decimal:
        return holds(to, own)
    if own.is_nested and to.is_nested:
        return all(map(_is_widened, own.inner, to.inner))
    return (own.is_number and to.is_number) or (own.is_interval and to.is_interval)
