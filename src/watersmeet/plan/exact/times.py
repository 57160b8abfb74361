"""Rule: functions of dates, times and intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from watersmeet.plan.exact.rules import Rule, arguments
from watersmeet.plan.exact.values import DAY_US, Exact, NotExact, call, constant_value, widened

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler


_TRUNC_US = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": DAY_US,
    "DD": DAY_US,
}


def part_of(compiler: Compiler, part: str, value: Exact) -> Exact:
    """`hour`, `year`, … of a time."""
    if part in _CLOCK:
        options = [*_CLOCK[part], compiler.zone]
        return call("time_part", "INT", compiler.as_timestamp(value), options=options)
    return call("date_part", "INT", compiler.as_date(value), options=[part])


def _of_time(part: str) -> Callable[[Compiler, Exact], Exact]:
    return lambda compiler, value: part_of(compiler, part, value)


def _days_moved(sign: int) -> Callable[[Compiler, Exact, Exact], Exact]:
    def make(compiler: Compiler, date: Exact, days: Exact) -> Exact:
        if days.type not in ("TINYINT", "SMALLINT", "INT"):
            raise NotExact(f"{days.type} as days")
        return call("add_days", "DATE", compiler.as_date(date), widened(days, "INT"), options=[sign])

    return make


def _datediff(compiler: Compiler, end: Exact, start: Exact) -> Exact:
    return call("days_between", "INT", compiler.as_date(end), compiler.as_date(start))


def _date_trunc(compiler: Compiler, unit: Exact, value: Exact) -> Exact:
    size = _TRUNC_US.get(str(constant_value(unit)).upper())
    if size is None or size < 1_000_000:
        raise NotExact("date_trunc to this unit is not on the list")
    return call("floor_time", "TIMESTAMP", compiler.as_timestamp(value), options=[size, compiler.zone])


def _unix(size: int) -> Callable[[Compiler, Exact], Exact]:
    def make(compiler: Compiler, value: Exact) -> Exact:
        if value.type != "TIMESTAMP":
            raise NotExact(f"{value.type} as a count")
        return call("unix_count", "BIGINT", value, options=[size])

    return make


_CLOCK = {"hour": (3_600_000_000, 24), "minute": (60_000_000, 60)}


_PARTS = ("year", "month", "day", "quarter", "dayofyear", "weekofyear", "dayofweek", "weekday")


FUNCTIONS: dict[str, Rule] = {
    **{part: arguments(1, _of_time(part)) for part in (*_CLOCK, *_PARTS)},
    "dayofmonth": arguments(1, _of_time("day")),
    "second": arguments(1, lambda compiler, value: call(
        "time_part", "INT", compiler.as_timestamp(value), options=[1_000_000, 60, compiler.zone])),
    "to_date": arguments(1, lambda compiler, value: compiler.as_date(value)),
    "date": arguments(1, lambda compiler, value: compiler.as_date(value)),
    "date_add": arguments(2, _days_moved(1)),
    "dateadd": arguments(2, _days_moved(1)),
    "date_sub": arguments(2, _days_moved(-1)),
    "datediff": arguments(2, _datediff),
    "date_diff": arguments(2, _datediff),
    "date_trunc": arguments(2, _date_trunc),
    "unix_seconds": arguments(1, _unix(1_000_000)),
    "unix_millis": arguments(1, _unix(1_000)),
    "unix_micros": arguments(1, _unix(1)),
    "timestamp": arguments(1, lambda compiler, value: compiler.cast_to(value, "TIMESTAMP")),
}  # fmt: skip
