"""TIMESTAMPs: instants, and what the clock on the wall shows (TIMESTAMP_NTZ). ``name``: of a time zone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from watersmeet.kernel.expressions.functions import base
from watersmeet.kernel.expressions.functions.base import (
    DAY_US,
    INT64,
    Raw,
    decimals,
    made,
    raw,
    unscaled,
    where_known,
)
from watersmeet.kernel.expressions.functions.temporal import calendar
from watersmeet.kernel.expressions.functions.temporal.dates import FIELDS, are_dates, days_of
from watersmeet.zones import SECOND_US, Zone, zone

FAR = "ArithmeticException"
"""Java's own exception, for times out of the range of int64 µs."""
DATETIME_OVERFLOW = "DATETIME_OVERFLOW"
_DAY_SECONDS = 86_400
_MOST_DAYS = 106_751_991


def _clock(instants: pa.Array, name: str) -> tuple[Raw, Raw]:
    """(seconds on the wall, µs): of all instants, for seconds do not overflow."""
    time = raw(instants)
    offset = zone(name).offset_at(time) // SECOND_US
    return np.floor_divide(time, SECOND_US) + offset, time % SECOND_US


def _days(instants: pa.Array, name: str) -> Raw:
    seconds, _ = _clock(instants, name)
    return np.floor_divide(seconds, _DAY_SECONDS)


def _sum(a: Raw, b: Raw, *arguments: pa.Array, condition: str = FAR) -> Raw:
    with np.errstate(over="ignore"):
        sums: Raw = a + b
    base.check(((a ^ sums) & (b ^ sums)) < 0, condition, "a time is too far", *arguments)
    return sums


def _wall(instants: pa.Array, name: str, condition: str = FAR) -> Raw:
    time = raw(instants)
    return _sum(time, zone(name).offset_at(time), instants, condition=condition)


def _instant(own: Zone, wall: Raw, *arguments: pa.Array) -> Raw:
    with np.errstate(over="ignore"):
        offset = own.to_instant(wall) - wall
    return _sum(wall, offset, *arguments)


def _kept(own: Zone, wall: Raw, offset: Raw, *arguments: pa.Array, condition: str = FAR) -> Raw:
    """Between two instants of one wall-clock time Java keeps the offset that it had, if it can."""
    same = _sum(wall, -offset, *arguments, condition=condition)
    instants: Raw = np.where(own.offset_at(same) == offset, same, own.to_instant(wall))
    return instants


def _micros(days: Raw, *arguments: pa.Array, condition: str = FAR) -> Raw:
    """Midnights on the wall."""
    bad = np.abs(days) > _MOST_DAYS
    base.check(bad, condition, "a date is too far for a TIMESTAMP", *arguments)
    return np.where(bad, 0, days) * DAY_US


def to_date(instants: pa.Array, name: str) -> pa.Array:
    """TIMESTAMP as DATE."""
    return made(_days(instants, name).astype(np.int32), pa.int32(), instants)


def to_timestamp(dates: pa.Array, name: str) -> pa.Array:
    """DATE as TIMESTAMP: midnight."""
    walls = _micros(raw(dates).astype(np.int64), dates)
    return made(_instant(zone(name), walls, dates), INT64, dates)


def wall_to_timestamp(walls: pa.Array, name: str) -> pa.Array:
    """TIMESTAMP_NTZ as TIMESTAMP."""
    return made(_instant(zone(name), raw(walls), walls), INT64, walls)


def timestamp_to_wall(instants: pa.Array, name: str) -> pa.Array:
    return made(_wall(instants, name), INT64, instants)


def add_interval(instants: pa.Array, interval: pa.Array, name: str, condition: str = FAR) -> pa.Array:
    """Whole days on the zone's clock, then the rest; too far fails by ``condition``."""
    time, by = raw(instants), raw(interval)
    given = (instants, interval)
    days = by // DAY_US + ((by < 0) & (by % DAY_US != 0))  # towards zero
    rest = by - days * DAY_US
    if days.any():
        own = zone(name)
        moved = _sum(_wall(instants, name, condition), days * DAY_US, *given, condition=condition)
        kept = _kept(own, moved, own.offset_at(time), *given, condition=condition)
        time = np.where(days == 0, time, kept)
    return made(_sum(time, rest, *given, condition=condition), INT64, *given)


def add_months_to_time(instants: pa.Array, months: pa.Array, name: str, condition: str = FAR) -> pa.Array:
    """TIMESTAMP + an interval of months, on the zone's clock; too far fails by ``condition``."""
    time, own, given = raw(instants), zone(name), (instants, months)
    seconds, micros = _clock(instants, name)
    days = calendar.plus_months(seconds // _DAY_SECONDS, raw(months).astype(np.int64))
    midnight = _micros(days, *given, condition=condition)
    moved = _sum(midnight, seconds % _DAY_SECONDS * SECOND_US + micros, *given, condition=condition)
    return made(_kept(own, moved, own.offset_at(time), *given, condition=condition), INT64, *given)


def add_units(instants: pa.Array, counts: pa.Array, size: int, name: str) -> pa.Array:
    """`timestampadd` of units of ``size`` µs; from a day on, on the zone's clock."""

    def add(by: pa.Array) -> pa.Array:
        if size >= DAY_US:
            return add_interval(instants, by, name, DATETIME_OVERFLOW)
        given = (instants, by)
        return made(_sum(raw(instants), raw(by), *given, condition=DATETIME_OVERFLOW), INT64, *given)

    return _units(instants, counts, size, 63, add)


def add_units_of_months(instants: pa.Array, counts: pa.Array, size: int, name: str) -> pa.Array:
    """`timestampadd` of units of so many months."""
    return _units(
        instants, counts, size, 31, lambda by: add_months_to_time(instants, by, name, DATETIME_OVERFLOW)
    )


def _units(
    instants: pa.Array, counts: pa.Array, size: int, bits: int, add: Callable[[pa.Array], pa.Array]
) -> pa.Array:
    count, limit = raw(counts), 1 << bits
    bad = (count > (limit - 1) // size) | (count < -(limit // size))
    base.check(bad, DATETIME_OVERFLOW, "a time is too far", instants, counts)
    by = made(np.where(bad, 0, count) * size, INT64, counts)
    return add(by)


def time_between(end: pa.Array, start: pa.Array, name: str) -> pa.Array:
    """The difference of two TIMESTAMPs on the zone's clock, in µs."""
    return made(_apart(end, start, name), INT64, end, start)


def _apart(end: pa.Array, start: pa.Array, name: str) -> Raw:
    a, b = _wall(end, name), _wall(start, name)
    with np.errstate(over="ignore"):
        differences: Raw = a - b
    base.check(((a ^ b) & (a ^ differences)) < 0, FAR, "two times are too far apart", end, start)
    return differences


def units_between(start: pa.Array, end: pa.Array, size: int, name: str) -> pa.Array:
    """`timestampdiff` in units of ``size`` µs, towards zero."""
    apart = _apart(end, start, name)
    return made(apart // size + ((apart < 0) & (apart % size != 0)), INT64, start, end)


def calendar_units_between(start: pa.Array, end: pa.Array, months: int, name: str) -> pa.Array:
    """`timestampdiff` in units of so many months, towards zero."""
    walls = [_wall(instants, name) for instants in (start, end)]
    (day1, day2), (clock1, clock2) = ([wall // DAY_US for wall in walls], [wall % DAY_US for wall in walls])
    # As LocalDateTime: a day that is not full does not count, and then dates are compared.
    day2 = day2 + ((day2 < day1) & (clock2 > clock1)) - ((day2 > day1) & (clock2 < clock1)).astype(np.int64)
    (month1, rest1), (month2, rest2) = calendar.months_of(day1), calendar.months_of(day2)
    apart = month2 - month1
    apart = apart - ((apart > 0) & (rest2 < rest1)) + ((apart < 0) & (rest2 > rest1))
    return made(apart // months + ((apart < 0) & (apart % months != 0)), INT64, start, end)


def months_between(end: pa.Array, start: pa.Array, rounded: bool, name: str) -> pa.Array:
    """Months, and parts of 31 days; whole ones between equal days of months, and between their last days."""
    (months1, day1, last1, seconds1), (months2, day2, last2, seconds2) = (
        _in_month(instants, name) for instants in (end, start)
    )
    whole = (months1 - months2).astype(np.float64)
    seconds = (day1 - day2) * _DAY_SECONDS + seconds1 - seconds2
    months_apart = whole + seconds / (31.0 * _DAY_SECONDS)
    if rounded:
        scaled = months_apart * 1e8
        floor = np.floor(scaled)
        months_apart = (floor + (scaled - floor >= 0.5)) / 1e8
    return made(np.where((day1 == day2) | (last1 & last2), whole, months_apart), pa.float64(), end, start)


def _in_month(instants: pa.Array, name: str) -> tuple[Raw, Raw, Raw, Raw]:
    """(months since 1970-01, day, whether it is the month's last, whole seconds since the day began)."""
    time = raw(instants)
    days = _days(instants, name)
    months, rest = calendar.months_of(days)
    passed = time - zone(name).to_instant(np.clip(days, -_MOST_DAYS, _MOST_DAYS) * DAY_US)
    seconds = passed // SECOND_US + ((passed < 0) & (passed % SECOND_US != 0))
    return months, rest, rest == calendar.length_of(months) - 1, seconds


def time_part(instants: pa.Array, size: int, count: int, name: str) -> pa.Array:
    """`hour`, `minute`, `second`: how many of ``size`` seconds since the last whole ``count`` of them."""
    seconds, _ = _clock(instants, name)
    return made((seconds // size % count).astype(np.int32), pa.int32(), instants)


def second_with_fraction(instants: pa.Array, name: str) -> pa.Array:
    """DECIMAL(8,6)."""
    seconds, micros = _clock(instants, name)
    return decimals(seconds % 60 * SECOND_US + micros, pa.decimal128(8, 6), instants)


def floor_time(instants: pa.Array, size: int, name: str) -> pa.Array:
    """`date_trunc` to units of one length up to a day."""
    time, own = raw(instants), zone(name)
    if size <= SECOND_US:
        return made(time - time % size, INT64, instants)
    wall = _wall(instants, name)
    wall = wall - wall % size
    floors = own.to_instant(wall) if size == DAY_US else _kept(own, wall, own.offset_at(time), instants)
    return made(floors, INT64, instants)


def floor_time_to_days(instants: pa.Array, unit: str, name: str) -> pa.Array:
    """`date_trunc` to weeks, months, quarters, years."""
    days = calendar.floor_days(_days(instants, name), unit)
    return made(_instant(zone(name), _micros(days, instants), instants), INT64, instants)


def time_bucket(instants: pa.Array, origins: pa.Array, size: int, name: str) -> pa.Array:
    """`time_bucket` of ``size`` µs; from a day on, whole days are those of the zone's clock."""
    time, origin = raw(instants), raw(origins)
    given = (instants, origins)
    count = np.floor_divide(_sum(time, -origin, *given), size)
    if size < DAY_US:
        return made(origin + count * size, INT64, *given)
    return _bucket(
        instants, count, lambda counts: add_interval(origins, made(counts * size, INT64, *given), name)
    )


def time_bucket_of_months(instants: pa.Array, origins: pa.Array, size: int, name: str) -> pa.Array:
    """`time_bucket` of so many months."""
    (months, _), (first, _) = (calendar.months_of(_days(times, name)) for times in (instants, origins))
    return _bucket(
        instants,
        (months - first) // size,
        lambda counts: add_months_to_time(origins, made(counts * size, INT64, instants, origins), name),
    )


def _bucket(instants: pa.Array, count: Raw, start: Callable[[Raw], pa.Array]) -> pa.Array:
    """``count``: about how many buckets after the first; ``start``: of a bucket."""
    time, here, after = raw(instants), start(count), start(count + 1)
    starts = np.where(
        raw(here) > time, raw(start(count - 1)), np.where(raw(after) <= time, raw(after), raw(here))
    )
    return made(starts, INT64, instants, here)


def make_wall(
    year: pa.Array,
    month: pa.Array,
    day: pa.Array,
    hour: pa.Array,
    minute: pa.Array,
    second: pa.Array,
) -> pa.Array:
    """`make_timestamp_ntz`; ``second``: DECIMAL(16,6), up to 60."""
    given = (year, month, day, hour, minute, second)
    years, months, days, hours, minutes = (raw(array).astype(np.int64) for array in given[:-1])
    micros = unscaled(second)
    bad = (hours < 0) | (hours > 23) | (minutes < 0) | (minutes > 59)
    bad = bad | (micros < 0) | (micros >= 61 * SECOND_US) | ~are_dates(years, months, days)
    part = (micros > 60 * SECOND_US) & (micros < 61 * SECOND_US)
    base.check(part, "INVALID_FRACTION_OF_SECOND", "seconds are from 0 to 60", *given)
    base.check(bad & ~part, FIELDS, "there is no such time", *given)
    ok = ~bad & ~part
    day = days_of(*(np.where(ok, field, 1) for field in (years, months, days)))
    passed = np.where(ok, (hours * 60 + minutes) * (60 * SECOND_US) + micros, 0)
    return made(_sum(_micros(day, *given), passed, *given), INT64, *given)


def whole_seconds(instants: pa.Array) -> pa.Array:
    """`unix_timestamp`: towards zero."""
    time = raw(instants)
    return made(time // SECOND_US + ((time < 0) & (time % SECOND_US != 0)), INT64, instants)


def unix_count(instants: pa.Array, size: int) -> pa.Array:
    """`unix_seconds` and its like."""
    return made(np.floor_divide(raw(instants), size), INT64, instants)


def from_count(numbers: pa.Array, size: int, condition: str | None = FAR) -> pa.Array:
    """The instant of a whole number of ``size`` µs; too far fails by ``condition``, or is the last one."""
    counts = raw(numbers).astype(np.int64)
    most = np.iinfo(np.int64).max // size
    bad = (counts > most) | (counts < -((1 << 63) // size))
    if condition is not None:
        base.check(bad, condition, "a time is too far", numbers)
    with np.errstate(over="ignore"):
        times = counts * size
    ends = np.where(counts > 0, np.iinfo(np.int64).max, np.iinfo(np.int64).min)
    return made(np.where(bad, ends, times), INT64, numbers)


def wrapped_seconds(numbers: pa.Array) -> pa.Array:
    """The instant of a BIGINT number of seconds as `from_unixtime` has it: it wraps around."""
    with np.errstate(over="ignore"):
        return made(raw(numbers) * SECOND_US, INT64, numbers)


def from_decimal_seconds(numbers: pa.Array, exact: bool) -> pa.Array:
    """The instant of a DECIMAL number of seconds. ``exact``: what has more digits or is too far fails, as in
    `timestamp_seconds`; else digits are cut off and the rest wraps around, as in a cast."""
    units, scale = unscaled(numbers), numbers.type.scale
    if scale > 6:
        size = 10 ** (scale - 6)
        rest = np.fmod(units, size)
        if exact:
            base.check(rest != 0, FAR, "a number of seconds has parts of a microsecond", numbers)
        return made((units - rest) // size, INT64, numbers)
    size = 10 ** (6 - scale)
    if exact:
        most = np.iinfo(np.int64).max // size
        base.check((units > most) | (units < -((1 << 63) // size)), FAR, "a time is too far", numbers)
    with np.errstate(over="ignore"):
        return made(units * size, INT64, numbers)


def from_real_seconds(numbers: pa.Array, cast: bool) -> pa.Array:
    """The instant of a DOUBLE number of seconds. ``cast``: what is none or too far fails; else NaN and
    infinities are NULL, and what is too far is the last instant."""
    values = raw(numbers)
    none = ~np.isfinite(values)
    if cast:
        base.check(none, "CAST_INVALID_INPUT", "a number is not a time", numbers)
    with np.errstate(over="ignore", invalid="ignore"):
        micros = np.where(none, 0.0, values) * 1e6
    far = (np.floor(micros) > 2.0**63) | (np.ceil(micros) < -(2.0**63))
    if cast:
        base.check(far, "CAST_OVERFLOW", "a time is too far", numbers)
    above, below = micros >= 2.0**63, micros < -(2.0**63)
    whole = np.trunc(np.where(above | below, 0.0, micros)).astype(np.int64)
    whole = np.where(above, np.iinfo(np.int64).max, np.where(below, np.iinfo(np.int64).min, whole))
    not_null = where_known(numbers)
    missing = none if not_null is None else none | ~not_null
    return pa.array(whole, INT64, mask=missing)


def to_real_seconds(instants: pa.Array) -> pa.Array:
    """TIMESTAMP as DOUBLE."""
    return made(raw(instants) / 1e6, pa.float64(), instants)
