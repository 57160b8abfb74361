"""Rule: functions of integers: bits, rounding, factorials, digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from watersmeet.plan.exact.rules import Rule, arguments
from watersmeet.plan.exact.values import Exact, NotExact, call, constant_value, widened
from watersmeet.types.sql_type import BIGINT, BOOLEAN, INT, INTEGERS, SMALLINT, STRING, TINYINT, VOID, SqlType

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler

_SMALL = (TINYINT, SMALLINT, INT, VOID)


def places(count: Exact) -> int:
    """The constant number of digits to round to. Raises: NotExact."""
    value = constant_value(count)
    if count.type not in INTEGERS or abs(value) > 38:
        raise NotExact("rounding to this number of digits")
    return int(value)


def rounded_whole(value: Exact, digits: int, even: bool) -> Exact:
    if digits >= 0:
        return value
    return call("round_whole", value.type, value, options=[-digits, even])


def integer(value: Exact, type_: SqlType) -> Exact:
    """An integer that is not wider, as INT or BIGINT. Raises: NotExact."""
    if value.type not in (_SMALL if type_ == INT else (*INTEGERS, VOID)):
        raise NotExact(f"{value.type} as {type_}")
    return widened(value, type_)


def shift(way: str, number: Exact, by: Exact) -> Exact:
    type_ = BIGINT if number.type == BIGINT else INT
    return call("shift", type_, integer(number, type_), integer(by, INT), options=[way])


def _shift(way: str) -> Rule:
    return arguments(2, lambda _, number, by: shift(way, number, by))


def _of_long(function: str, type_: SqlType, *options: object) -> Rule:
    return arguments(1, lambda _, value: call(function, type_, integer(value, BIGINT), options=options))


def _bit_count(_: Compiler, value: Exact) -> Exact:
    if value.type not in (*INTEGERS, BOOLEAN):
        raise NotExact(f"bit_count of {value.type}")
    return call("bit_count", INT, value)


def _bit_get(_: Compiler, number: Exact, place: Exact) -> Exact:
    if number.type not in INTEGERS:
        raise NotExact(f"bits of {number.type}")
    return call("bit_get", TINYINT, number, integer(place, INT))


FUNCTIONS: dict[str, Rule] = {
    "factorial": arguments(1, lambda _, value: call("factorial", BIGINT, integer(value, INT))),
    "shiftleft": _shift("<<"),
    "shiftright": _shift(">>"),
    "shiftrightunsigned": _shift(">>>"),
    "bit_count": arguments(1, _bit_count),
    "bit_get": arguments(2, _bit_get),
    "getbit": arguments(2, _bit_get),
    "bitmap_bit_position": _of_long("place_in_bitmap", BIGINT),
    "bitmap_bucket_number": _of_long("number_of_bitmap", BIGINT),
    "bin": _of_long("digits", STRING, 2),
}

NOTES = {
    "factorial": "of TINYINT, SMALLINT and INT",
    **dict.fromkeys(("shiftleft", "shiftright", "shiftrightunsigned"), "of integers, by an INT"),
    "bin": "of integers",
}
