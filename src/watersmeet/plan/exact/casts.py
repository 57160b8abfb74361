"""Rule: which casts tasks compute, and which literals of times."""

from __future__ import annotations

import re
from datetime import date

from watersmeet.plan.exact.temporal.time_casts import time_cast
from watersmeet.plan.exact.values import (
    DAY_US,
    Exact,
    NotExact,
    call,
    constant,
    constant_value,
    widened,
)
from watersmeet.types.sql_type import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGERS,
    STRING,
    TIMES,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    SqlType,
)


def cast_to(value: Exact, to: SqlType, zone: str) -> Exact:
    """CAST. Raises: NotExact."""
    own = value.type
    if own == to:
        return value
    if own == VOID:
        return widened(value, to)
    if to == STRING and own in (*INTEGERS, BOOLEAN):
        return call("boolean_to_text" if own == BOOLEAN else "whole_to_text", to, value)
    timed = (own in TIMES and to != STRING) or (to == TIMESTAMP and own.is_number)
    if timed or own.is_interval or to.is_interval:
        return time_cast(value, to, zone)
    number = _number(value, to) if own.is_number or own == BOOLEAN else None
    if number is not None:
        return number
    if own == STRING:
        return _of_text(value, to, zone)
    if to == STRING and own in (DATE, TIMESTAMP, TIMESTAMP_NTZ):
        function = {DATE: "date_to_text", TIMESTAMP: "timestamp_to_text"}.get(own, "time_to_text")
        return call(function, to, value, options=[zone] if own == TIMESTAMP else [])
    if to == STRING and own.is_decimal:
        return call("decimal_to_text", to, value)
    if to == STRING and own in (FLOAT, DOUBLE):
        raise NotExact(f"versions of Java write a {own} with other digits")
    raise NotExact(f"a cast from {own} to {to}")


def _of_text(value: Exact, to: SqlType, zone: str) -> Exact:
    if value.tree[0] == "constant" and to in (DATE, TIMESTAMP):
        try:
            text = constant_value(value)
            return timestamp_literal(text, zone) if to == TIMESTAMP else date_literal(text)
        except NotExact:
            pass  # a lenient form: read where the others are
    if to in (*INTEGERS, FLOAT, DOUBLE) or to.is_decimal:
        function = (
            "text_to_integer" if to in INTEGERS else "text_to_decimal" if to.is_decimal else "text_to_real"
        )
        return call(function, to, value, options=[("type", to)])
    function = _FROM_TEXT.get(to, "")
    if not function:
        raise NotExact(f"a cast from STRING to {to}")
    return call(function, to, value, options=[zone] if to == TIMESTAMP else [])


_FROM_TEXT = {
    BOOLEAN: "text_to_boolean",
    DATE: "text_to_date",
    TIMESTAMP: "text_to_timestamp",
    TIMESTAMP_NTZ: "text_to_wall",
    BINARY: "as_binary",
}


def _number(value: Exact, to: SqlType) -> Exact | None:
    """A number or BOOLEAN as a number or BOOLEAN; None: not on the list."""
    own = value.type
    if own.is_decimal and to in INTEGERS:
        return call("decimal_to_integer", to, value, options=[("type", to)])
    if to.is_decimal and (own.is_decimal or own in (*INTEGERS, BOOLEAN)):
        return call("fitted", to, value, options=[("type", to)])
    if own in INTEGERS and to in INTEGERS and INTEGERS.index(to) > INTEGERS.index(own):
        return widened(value, to)
    if to in INTEGERS:
        return call("to_integer", to, value, options=[("type", to)])
    if to == BOOLEAN:
        return call("decimal_to_boolean" if own.is_decimal else "to_boolean", to, value)
    if own == BOOLEAN and to in (FLOAT, DOUBLE):
        return call("truth_as_real", to, value, options=[("type", to)])
    if to == DOUBLE and own.is_number:
        return widened(value, to)
    if to == FLOAT and own in (*INTEGERS, DOUBLE):
        return call("to_float", to, value)
    return None


def as_timestamp(value: Exact, zone: str) -> Exact:
    """What a function takes as a TIMESTAMP without a cast."""
    if value.type not in (*TIMES, STRING, VOID):
        raise NotExact(f"{value.type} as TIMESTAMP")
    return cast_to(value, TIMESTAMP, zone)


def as_date(value: Exact, zone: str) -> Exact:
    """The same, as a DATE."""
    if value.type not in (*TIMES, STRING, VOID):
        raise NotExact(f"{value.type} as DATE")
    return cast_to(value, DATE, zone)


def timestamp_literal(text: str, zone: str) -> Exact:
    match = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?", text)
    if match is None:
        raise NotExact("this TIMESTAMP literal is read by Spark")
    days = _days(*(int(part) for part in match.groups()[:3]))
    hours, minutes, seconds = (int(part) for part in match.groups()[3:6])
    if hours > 23 or minutes > 59 or seconds > 59:
        raise NotExact("this TIMESTAMP literal is read by Spark")
    fraction = int((match.group(7) or "").ljust(6, "0"))
    wall = days * DAY_US + ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction
    return call("wall_to_timestamp", TIMESTAMP, constant(wall, TIMESTAMP_NTZ), options=[zone])


def date_literal(text: str) -> Exact:
    match = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)", text)
    if match is None:
        raise NotExact("this DATE literal is read by Spark")
    return constant(_days(*(int(part) for part in match.groups())), DATE)


def _days(year: int, month: int, day: int) -> int:
    try:
        return date(year, month, day).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError:
        raise NotExact("this literal is read by Spark") from None
