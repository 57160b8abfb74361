"""Rule: times made from fields and numbers, numbers of times, and other zones."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from watersmeet.plan.exact.rules import Rule, arguments
from watersmeet.plan.exact.temporal.intervals import seconds_of
from watersmeet.plan.exact.values import (
    Exact,
    NotExact,
    call,
    constant,
    constant_value,
    decimal_parts,
    or_null,
    widened,
)
from watersmeet.spec.model import Expr
from watersmeet.spec.time_zones import UTC, regions
from watersmeet.types.sql_type import (
    BIGINT,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTEGERS,
    STRING,
    TIMES,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    SqlType,
)

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler

_NO_TIME = ("DATETIME_FIELD_OUT_OF_BOUNDS", "INVALID_FRACTION_OF_SECOND")


def zone_of(value: Exact) -> str:
    """A constant zone that means the same to Java. Raises: NotExact."""
    name = str(constant_value(value))
    if value.type == STRING and (name in regions() or name == UTC):
        return name
    offset = re.fullmatch(r"[+-](\d\d):(\d\d)", name)
    if offset is None or int(offset[1]) * 60 + int(offset[2]) > 18 * 60 or int(offset[2]) > 59:
        raise NotExact(f"the zone {name} is read by Spark")
    return UTC if name[1:] == "00:00" else name


def _make_date(compiler: Compiler, *fields: Exact) -> Exact:
    return call("make_date", DATE, *(compiler.as_int(field) for field in fields))


def _make(to: SqlType, fails: bool) -> Rule:
    def rule(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
        values = compiler.all(nodes)
        if len(values) not in ((6,) if to == TIMESTAMP_NTZ else (6, 7)):
            raise NotExact("this number of arguments is not on the list")
        zone = zone_of(values[6]) if len(values) == 7 else compiler.zone
        fields = [compiler.as_int(value) for value in values[:5]]
        wall = call("make_wall", TIMESTAMP_NTZ, *fields, seconds_of(values[5], 16))
        wall = wall if fails else or_null(wall, _NO_TIME)
        return wall if to == TIMESTAMP_NTZ else call("wall_to_timestamp", to, wall, options=[zone])

    return rule


def _unix(size: int) -> Callable[[Compiler, Exact], Exact]:
    def make(_: Compiler, value: Exact) -> Exact:
        if value.type != TIMESTAMP:
            raise NotExact(f"{value.type} as a count")
        return call("unix_count", BIGINT, value, options=[size])

    return make


def unix_timestamp(compiler: Compiler, value: Exact) -> Exact:
    if value.type not in TIMES:
        raise NotExact(f"{value.type} as a count")
    # Of a TIMESTAMP_NTZ Spark counts the seconds on the wall.
    time = value if value.type == TIMESTAMP_NTZ else compiler.as_timestamp(value)
    return call("whole_seconds", BIGINT, time)


def _of_count(size: int) -> Callable[[Compiler, Exact], Exact]:
    def make(_: Compiler, value: Exact) -> Exact:
        if value.type not in INTEGERS:
            raise NotExact(f"{value.type} as a count")
        return call("from_count", TIMESTAMP, value, options=[size])

    return make


def _of_seconds(compiler: Compiler, value: Exact) -> Exact:
    if value.type in (FLOAT, DOUBLE):
        return call("from_real_seconds", TIMESTAMP, widened(value, DOUBLE), options=[False])
    if value.type.is_decimal and decimal_parts(value.type)[0] <= 18:
        return call("from_decimal_seconds", TIMESTAMP, value, options=[True])
    return _of_count(1_000_000)(compiler, value)


def _unix_date(_: Compiler, value: Exact) -> Exact:
    if value.type != DATE:
        raise NotExact(f"{value.type} as days")
    return call("same_days", INT, value)


def _of_unix_date(compiler: Compiler, value: Exact) -> Exact:
    return call("same_days", DATE, compiler.as_int(value))


def _elsewhere(function: str) -> Callable[[Compiler, Exact, Exact], Exact]:
    def make(compiler: Compiler, value: Exact, zone: Exact) -> Exact:
        return call(function, TIMESTAMP, compiler.as_timestamp(value), options=[zone_of(zone)])

    return make


def _convert(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    values = compiler.all(nodes)
    if len(values) not in (2, 3):
        raise NotExact("this number of arguments is not on the list")
    source = zone_of(values[0]) if len(values) == 3 else compiler.zone
    wall = compiler.cast_to(values[-1], TIMESTAMP_NTZ) if values[-1].type in TIMES else None
    if wall is None:
        raise NotExact(f"{values[-1].type} as TIMESTAMP_NTZ")
    instant = call("wall_to_timestamp", TIMESTAMP, wall, options=[source])
    return call("timestamp_to_wall", TIMESTAMP_NTZ, instant, options=[zone_of(values[-2])])


FUNCTIONS: dict[str, Rule] = {
    "make_date": arguments(3, _make_date),
    "make_timestamp": _make(TIMESTAMP, True),
    "make_timestamp_ltz": _make(TIMESTAMP, True),
    "make_timestamp_ntz": _make(TIMESTAMP_NTZ, True),
    "try_make_timestamp": _make(TIMESTAMP, False),
    "try_make_timestamp_ltz": _make(TIMESTAMP, False),
    "try_make_timestamp_ntz": _make(TIMESTAMP_NTZ, False),
    "unix_seconds": arguments(1, _unix(1_000_000)),
    "unix_millis": arguments(1, _unix(1_000)),
    "unix_micros": arguments(1, _unix(1)),
    "timestamp_seconds": arguments(1, _of_seconds),
    "timestamp_millis": arguments(1, _of_count(1_000)),
    "timestamp_micros": arguments(1, _of_count(1)),
    "unix_date": arguments(1, _unix_date),
    "date_from_unix_date": arguments(1, _of_unix_date),
    "from_utc_timestamp": arguments(2, _elsewhere("timestamp_to_wall")),
    "to_utc_timestamp": arguments(2, _elsewhere("wall_to_timestamp")),
    "convert_timezone": _convert,
    "current_timezone": arguments(0, lambda compiler: constant(compiler.zone, STRING)),
    "date": arguments(1, lambda compiler, value: compiler.cast_to(value, DATE)),
    "timestamp": arguments(1, lambda compiler, value: compiler.cast_to(value, TIMESTAMP)),
}  # fmt: skip
