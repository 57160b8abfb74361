"""Rule: parts of dates and times, moves, differences, and cutting off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from watersmeet.plan.exact.rules import Rule, arguments
from watersmeet.plan.exact.temporal.intervals import DAYS, part_of_interval
from watersmeet.plan.exact.values import DAY_US, Exact, NotExact, call, constant_value, widened
from watersmeet.spec.model import Expr
from watersmeet.types.sql_type import BIGINT, DATE, DOUBLE, INT, INTEGERS, STRING, TIMESTAMP, decimal

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)  # fmt: skip
_MINUTE_US, _HOUR_US = 60_000_000, 3_600_000_000
_CUT_US = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": _MINUTE_US,
    "HOUR": _HOUR_US,
    "DAY": DAY_US,
    "DD": DAY_US,
}
_CUT_DAYS = {
    "WEEK": "WEEK",
    **dict.fromkeys(("MON", "MONTH", "MM"), "MONTH"),
    "QUARTER": "QUARTER",
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "YEAR"),
}
_UNIT_US = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": _MINUTE_US,
    "HOUR": _HOUR_US,
    "DAY": DAY_US,
    "WEEK": 7 * DAY_US,
}
_UNIT_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_CLOCK = {"hour": (3_600, 24), "minute": (60, 60)}
_CALENDAR = ("year", "month", "day", "quarter", "dayofyear", "dayofweek", "weekday")
_FIELDS = {
    "year": ("Y", "YEARS", "YR", "YRS"),
    "yearofweek": (),
    "quarter": ("QTR",),
    "month": ("MON", "MONS", "MONTHS"),
    "week": ("W", "WEEKS"),
    "day": ("D", "DAYS"),
    "dayofweek": ("DOW",),
    "dayofweek_iso": ("DOW_ISO",),
    "dayofyear": ("DOY",),
    "hour": ("H", "HOURS", "HR", "HRS"),
    "minute": ("M", "MIN", "MINS", "MINUTES"),
    "second": ("S", "SEC", "SECONDS", "SECS"),
}
_FIELD = {name: field for field, names in _FIELDS.items() for name in (field.upper(), *names)}


def part_of(compiler: Compiler, field: str, value: Exact) -> Exact:
    """EXTRACT, `date_part`: fields of times and intervals by their names."""
    part = _FIELD.get(field.upper())
    if part is None:
        raise NotExact(f"{field} of a time is not on the list")
    if value.type.is_interval:
        return part_of_interval(part, value)
    if part == "second":
        time, zone = compiler.on_clock(value)
        return call("second_with_fraction", decimal(8, 6), time, options=[zone])
    return _part(part)(compiler, value)


def _part(part: str) -> Callable[[Compiler, Exact], Exact]:
    """`hour`, `year`, …"""

    def make(compiler: Compiler, value: Exact) -> Exact:
        if part in _CLOCK:
            return _of_clock(compiler, value, *_CLOCK[part])
        return call("date_part", INT, compiler.as_date(value), options=[part])

    return make


def _of_clock(compiler: Compiler, value: Exact, size: int, count: int) -> Exact:
    time, zone = compiler.on_clock(value)
    return call("time_part", INT, time, options=[size, count, zone])


def _date_part(compiler: Compiler, field: Exact, value: Exact) -> Exact:
    return part_of(compiler, _text(field), value)


def _text(value: Exact) -> str:
    text = constant_value(value)
    if value.type != STRING:
        raise NotExact("a unit that is not text")
    return str(text)


def _name(part: str, names: Sequence[str]) -> Callable[[Compiler, Exact], Exact]:
    short = " ".join(name[:3] for name in names)
    return lambda compiler, value: call("date_name", STRING, compiler.as_date(value), options=[part, short])


def _days_moved(sign: int) -> Callable[[Compiler, Exact, Exact], Exact]:
    def make(compiler: Compiler, date: Exact, days: Exact) -> Exact:
        if days.type not in DAYS:
            raise NotExact(f"{days.type} as days")
        return call("add_days", DATE, compiler.as_date(date), widened(days, INT), options=[sign])

    return make


def _add_months(compiler: Compiler, date: Exact, months: Exact) -> Exact:
    return call("add_months", DATE, compiler.as_date(date), compiler.as_int(months))


def _months_between(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    values = compiler.all(nodes)
    if len(values) not in (2, 3):
        raise NotExact("this number of arguments is not on the list")
    rounded = constant_value(values[2]) if len(values) == 3 else True
    if not isinstance(rounded, bool):
        raise NotExact("months_between with what is not a BOOLEAN")
    times = [compiler.as_timestamp(value) for value in values[:2]]
    return call("months_between", DOUBLE, *times, options=[rounded, compiler.zone])


def _last_day(compiler: Compiler, date: Exact) -> Exact:
    return call("last_day", DATE, compiler.as_date(date))


def _next_day(compiler: Compiler, date: Exact, weekday: Exact) -> Exact:
    wanted = _text(weekday).upper()
    for number, name in enumerate(WEEKDAYS):
        if wanted in (name[:2].upper(), name[:3].upper(), name.upper()):
            return call("next_day", DATE, compiler.as_date(date), options=[number])
    raise NotExact(f"{wanted} is not a day of the week")


def _trunc(compiler: Compiler, value: Exact, unit: Exact) -> Exact:
    own = _CUT_DAYS.get(_text(unit).upper())
    date = compiler.as_date(value)
    if own is None:
        raise NotExact("trunc to no unit of days is NULL")
    return call("floor_date", DATE, date, options=[own])


def _date_trunc(compiler: Compiler, unit: Exact, value: Exact) -> Exact:
    name = _text(unit).upper()
    time = compiler.as_timestamp(value)
    if name in _CUT_US:
        return call("floor_time", TIMESTAMP, time, options=[_CUT_US[name], compiler.zone])
    if name in _CUT_DAYS:
        return call("floor_time_to_days", TIMESTAMP, time, options=[_CUT_DAYS[name], compiler.zone])
    raise NotExact("date_trunc to no unit is NULL")


def _unit(node: Expr) -> str:
    """``HOUR`` in ``dateadd(HOUR, 1, ts)``."""
    if not isinstance(node, exp.Column | exp.Var) or not node.name:
        raise NotExact("a unit that is not a name")
    return node.name.upper()


def _add(days: Rule) -> Rule:
    def rule(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
        return days(compiler, nodes) if len(nodes) == 2 else _timestampadd(compiler, nodes)

    return rule


def _timestampadd(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    if len(nodes) != 3:
        raise NotExact("this number of arguments is not on the list")
    unit, (count, value) = _unit(nodes[0]), compiler.all(nodes[1:])
    if count.type not in INTEGERS:
        raise NotExact(f"{count.type} as a number of units")
    unit = "DAY" if unit == "DAYOFYEAR" else unit
    time, zone = compiler.on_clock(value)
    if unit not in _UNIT_US and unit not in _UNIT_MONTHS:
        raise NotExact(f"{unit} is not a unit")
    size, function = (
        (_UNIT_US[unit], "add_units") if unit in _UNIT_US else (_UNIT_MONTHS[unit], "add_units_of_months")
    )
    return call(function, time.type, time, widened(count, BIGINT), options=[size, zone])


def _difference(days: Rule) -> Rule:
    def rule(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
        return days(compiler, nodes) if len(nodes) == 2 else _timestampdiff(compiler, nodes)

    return rule


def _datediff(compiler: Compiler, end: Exact, start: Exact) -> Exact:
    return call("days_between", INT, compiler.as_date(end), compiler.as_date(start))


def _timestampdiff(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    if len(nodes) != 3:
        raise NotExact("this number of arguments is not on the list")
    unit, values = _unit(nodes[0]), compiler.all(nodes[1:])
    # Spark takes both as TIMESTAMPs, whatever they are.
    times = [compiler.as_timestamp(value) for value in values]
    options = [_UNIT_US.get(unit) or _UNIT_MONTHS.get(unit), compiler.zone]
    if options[0] is None:
        raise NotExact(f"{unit} is not a unit")
    function = "units_between" if unit in _UNIT_US else "calendar_units_between"
    return call(function, BIGINT, *times, options=options)


_BY_DAYS = _add(arguments(2, _days_moved(1)))
_DAYS_BETWEEN = _difference(arguments(2, _datediff))

FUNCTIONS: dict[str, Rule] = {
    **{part: arguments(1, _part(part)) for part in (*_CLOCK, *_CALENDAR)},
    "dayofmonth": arguments(1, _part("day")),
    "weekofyear": arguments(1, _part("week")),
    "second": arguments(1, lambda compiler, value: _of_clock(compiler, value, 1, 60)),
    "date_part": arguments(2, _date_part),
    "datepart": arguments(2, _date_part),
    "dayname": arguments(1, _name("dayofweek_iso", WEEKDAYS)),
    "monthname": arguments(1, _name("month", MONTHS)),
    "date_add": _BY_DAYS,
    "dateadd": _BY_DAYS,
    "date_sub": arguments(2, _days_moved(-1)),
    "timestampadd": _timestampadd,
    "datediff": _DAYS_BETWEEN,
    "date_diff": _DAYS_BETWEEN,
    "timestampdiff": _timestampdiff,
    "add_months": arguments(2, _add_months),
    "months_between": _months_between,
    "last_day": arguments(1, _last_day),
    "next_day": arguments(2, _next_day),
    "trunc": arguments(2, _trunc),
    "date_trunc": arguments(2, _date_trunc),
}  # fmt: skip
