"""Rule: literals and arithmetic of intervals, and sums with times in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from watersmeet.plan.exact.rules import Rule
from watersmeet.plan.exact.values import (
    INTERVAL,
    INTERVAL_OF_DAYS,
    INTERVAL_OF_MONTHS,
    Exact,
    NotExact,
    call,
    constant,
    decimal_parts,
    interval_fields,
    one_type,
    widened,
)
from watersmeet.spec.model import Expr
from watersmeet.spec.time_zones import UTC
from watersmeet.types.intervals import interval_months, interval_type, interval_us, is_calendar
from watersmeet.types.sql_type import (
    BIGINT,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTEGERS,
    SMALLINT,
    TIMES,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    decimal,
)

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler

Sign = Literal[1, -1]
DAYS = (TINYINT, SMALLINT, INT)


def literal_of(node: exp.Interval) -> Exact:
    """``INTERVAL '1' DAY``."""
    months = is_calendar(node)
    size = interval_months(node) if months else interval_us(node)
    bits = 31 if months else 63
    if size is None or not -(1 << bits) <= size < 1 << bits:
        raise NotExact("this INTERVAL is read by Spark")
    return constant(size, interval_type(node))


def negated(interval: Exact) -> Exact:
    if interval.tree[0] == "constant" and interval.tree[1] is not None:
        return constant(-interval.tree[1], interval.type)
    return call("minus_interval", interval.type, interval)


def sum_of(compiler: Compiler, left: Exact, right: Exact, sign: Sign) -> Exact | None:
    """A sum with a time or an interval in it; None: there is none."""
    if sign == 1 and right.type in TIMES and left.type not in TIMES:
        left, right = right, left
    one, other = left.type, right.type
    if one in TIMES and other.is_interval:
        return moved(compiler, left, right if sign == 1 else negated(right))
    if one.is_interval and other.is_interval:
        return call("add_intervals", one_type([one, other]), left, right, options=[sign])
    if one == DATE and other in DAYS:
        return call("add_days", DATE, left, widened(right, INT), options=[sign])
    if one in TIMES and other in TIMES and sign == -1:
        return difference(compiler, left, right)
    if any(type_ in TIMES or type_.is_interval for type_ in (one, other)):
        raise NotExact(f"{one} {'+' if sign == 1 else '-'} {other}")
    return None


def moved(compiler: Compiler, time: Exact, interval: Exact) -> Exact:
    """A time + an interval."""
    days = interval.type == INTERVAL_OF_DAYS
    if time.type == DATE and interval.type.is_of_months:
        return call("add_months", DATE, time, interval)
    if time.type == DATE and days:
        return call("add_days", DATE, time, call("interval_days", INT, interval), options=[1])
    own, zone = compiler.on_clock(time)
    function = "add_months_to_time" if interval.type.is_of_months else "add_interval"
    return call(function, own.type, own, interval, options=[zone])


def difference(compiler: Compiler, end: Exact, start: Exact) -> Exact:
    """A time - a time."""
    if end.type == start.type == DATE:
        return call("date_difference", INTERVAL_OF_DAYS, end, start)
    if {end.type, start.type} == {TIMESTAMP, TIMESTAMP_NTZ}:  # on the wall, also in a gap
        end, start = (compiler.cast_to(moment, TIMESTAMP_NTZ) for moment in (end, start))
        return call("time_between", INTERVAL, end, start, options=[UTC])
    a, b = compiler.alike([end, start])
    _, zone = compiler.on_clock(a)
    return call("time_between", INTERVAL, a, b, options=[zone])


def scaled(node: Expr, left: Exact, right: Exact) -> Exact:
    """An interval * or / a number."""
    if isinstance(node, exp.Mul) and right.type.is_interval:
        left, right = right, left
    if not isinstance(node, exp.Mul | exp.Div) or not left.type.is_interval:
        raise NotExact(f"{left.type} and {right.type}: this arithmetic is not on the list")
    type_ = INTERVAL_OF_MONTHS if left.type.is_of_months else INTERVAL
    function = "interval_times" if isinstance(node, exp.Mul) else "interval_over"
    return call(function, type_, left, _factor(right, isinstance(node, exp.Mul)))


def _factor(number: Exact, decimals: bool) -> Exact:
    if number.type in INTEGERS:
        return widened(number, BIGINT)
    if number.type in (FLOAT, DOUBLE):
        return widened(number, DOUBLE)
    if decimals and number.type.is_decimal and decimal_parts(number.type)[0] <= 18:
        return number
    raise NotExact(f"an interval and {number.type}: this arithmetic is not on the list")


_TYPES = {"year": INT, "month": TINYINT, "day": INT, "hour": TINYINT, "minute": TINYINT}


def part_of_interval(part: str, interval: Exact) -> Exact:
    """EXTRACT, of a part that its type has."""
    fields = ("year", "month") if interval.type.is_of_months else ("day", "hour", "minute", "second")
    first, last = (fields.index(field.lower()) for field in interval_fields(interval.type))
    if part not in fields[first : last + 1]:
        raise NotExact(f"{part} of {interval.type}")
    return call("interval_part", _TYPES.get(part, decimal(8, 6)), interval, options=[part])


def _make_days(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    values = compiler.all(nodes)
    if len(values) > 4:
        raise NotExact("this number of arguments is not on the list")
    whole = [compiler.as_int(value) for value in values[:3]]
    whole += [constant(0, INT)] * (3 - len(whole))
    seconds = seconds_of(values[3], 18) if len(values) > 3 else constant("0", decimal(18, 6))
    return call("make_days", INTERVAL, *whole, seconds)


def _make_months(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    numbers = [compiler.as_int(value) for value in compiler.all(nodes)]
    if len(numbers) > 2:
        raise NotExact("this number of arguments is not on the list")
    numbers += [constant(0, INT)] * (2 - len(numbers))
    return call("make_months", INTERVAL_OF_MONTHS, *numbers)


def seconds_of(number: Exact, digits: int) -> Exact:
    """As DECIMAL(digits,6), if nothing is cut off."""
    type_ = decimal(digits, 6)
    if number.type in DAYS:
        return widened(number, type_)
    if number.type.is_decimal:
        own, scale = decimal_parts(number.type)
        if scale <= 6 and own - scale <= digits - 6:
            return widened(number, type_)
    raise NotExact(f"{number.type} as seconds")


def _bucket(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
    values = compiler.all(nodes)
    if len(values) not in (2, 3):
        raise NotExact("this number of arguments is not on the list")
    size, time = values[:2]
    if not size.type.is_interval or size.tree[0] != "constant" or not size.tree[1] or size.tree[1] < 0:
        raise NotExact("a size that is not a constant INTERVAL above 0")
    if time.type not in (TIMESTAMP, TIMESTAMP_NTZ):
        raise NotExact(f"a bucket of {time.type}")
    origin = values[2] if len(values) == 3 else constant(0, TIMESTAMP_NTZ)
    if any(leaf and leaf[0] == "column" for leaf in _leaves(origin.tree)):
        raise NotExact("an origin that is not constant")
    origin = compiler.cast_to(origin, time.type)
    _, zone = compiler.on_clock(time)
    function = "time_bucket_of_months" if size.type.is_of_months else "time_bucket"
    return call(function, time.type, time, origin, options=[size.tree[1], zone])


def _leaves(tree: object) -> list[tuple[object, ...]]:
    if not isinstance(tree, tuple):
        return []
    return [tree, *(leaf for branch in tree for leaf in _leaves(branch))]


FUNCTIONS: dict[str, Rule] = {
    "make_dt_interval": _make_days,
    "make_ym_interval": _make_months,
    "time_bucket": _bucket,
}  # fmt: skip
