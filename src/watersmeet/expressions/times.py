"""Times: parts, moves, differences, intervals, zones, and their texts by patterns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from itertools import groupby
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from watersmeet.event_time import DAY_US
from watersmeet.expressions import base
from watersmeet.expressions.base import (
    INT64,
    ArrowFunction,
    Raw,
    arrow,
    bounds,
    build_array,
    decimals,
    extract_unscaled_digits,
    narrow,
    raw,
    where_known,
)
from watersmeet.expressions.rules import Compiler, Restricted, Rule, arguments, computed, only, optional
from watersmeet.expressions.typed_tree import (
    INTERVAL,
    INTERVAL_OF_DAYS,
    INTERVAL_OF_MONTHS,
    TypedTree,
    UnsupportedExpression,
    call,
    constant,
    constant_value,
    decimal_parts,
    interval_fields,
    one_type,
    or_null,
    require,
    widen_value,
)
from watersmeet.spec.model import Expr
from watersmeet.spec.time_zones import UTC, regions
from watersmeet.types.intervals import interval_months, interval_type, interval_us, is_calendar
from watersmeet.types.sql_type import (
    BIGINT,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTEGERS,
    SMALLINT,
    STRING,
    TIMES,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    SqlType,
    decimal,
)
from watersmeet.zones import SECOND_US, Zone, zone

MONTHS_OF = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def months_of(days: Raw) -> tuple[Raw, Raw]:
    """Return the months since 1970-01, and the days since the first of that month."""
    dates = days.astype(np.int64).view("M8[D]")
    months = dates.astype("M8[M]")
    return months.view(np.int64), (dates - months.astype("M8[D]")).view(np.int64)


def first_of(months: Raw) -> Raw:
    """Return the first day of each month."""
    days: Raw = months.astype(np.int64).view("M8[M]").astype("M8[D]").view(np.int64)
    return days


def length_of(months: Raw) -> Raw:
    """Return the number of days of each month."""
    lengths: Raw = first_of(months + 1) - first_of(months)
    return lengths


def plus_months(days: Raw, by: Raw) -> Raw:
    """Add months to days; if the day does not exist, return the last day of the month."""
    months, rest = months_of(days)
    there = months + by
    moved: Raw = first_of(there) + np.minimum(rest, length_of(there) - 1)
    return moved


def floor_days(days: Raw, unit: str) -> Raw:
    """Return the first day of the WEEK (a Monday), MONTH, QUARTER or YEAR."""
    if unit == "WEEK":
        monday: Raw = days - (days + 3) % 7  # 1970-01-01 was a Thursday
        return monday
    months, _ = months_of(days)
    return first_of(months - months % MONTHS_OF[unit])


def part_of(days: Raw, part: str) -> Raw:
    """Extract `year`, `month`, … from days."""
    if part in ("dayofweek", "dayofweek_iso", "weekday"):
        monday: Raw = (days + 3) % 7
        return {"dayofweek": (monday + 1) % 7 + 1, "dayofweek_iso": monday + 1, "weekday": monday}[part]
    if part in ("week", "yearofweek"):
        thursday = floor_days(days, "WEEK") + 3  # it says of which year the week is
        months, _ = months_of(thursday)
        year = months - months % 12
        return (thursday - first_of(year)) // 7 + 1 if part == "week" else year // 12 + 1970
    months, rest = months_of(days)
    if part == "year":
        return months // 12 + 1970
    if part == "quarter":
        return months % 12 // 3 + 1
    if part == "month":
        return months % 12 + 1
    return rest + 1 if part == "day" else days - first_of(months - months % 12) + 1


FIELDS = "DATETIME_FIELD_OUT_OF_BOUNDS"
_MOST_YEAR = 999_999_999


def _day_numbers(dates: pa.Array) -> Raw:
    return raw(dates).astype(np.int64)


def _build_dates(days: Raw, *arguments: pa.Array) -> pa.Array:
    """Build DATEs; days wrap around like Java's `int`."""
    return build_array(days.astype(np.int32), pa.int32(), *arguments)


@arrow("add_days")
def add_days(dates: pa.Array, days: pa.Array, sign: int) -> pa.Array:
    """Compute `date_add` or `date_sub`."""
    return _build_dates(_day_numbers(dates) + sign * _day_numbers(days), dates, days)


@arrow("days_between")
def days_between(end: pa.Array, start: pa.Array) -> pa.Array:
    """Compute `datediff`: an INT."""
    return _build_dates(_day_numbers(end) - _day_numbers(start), end, start)


@arrow("add_months")
def add_months(dates: pa.Array, months: pa.Array) -> pa.Array:
    days = plus_months(_day_numbers(dates), _day_numbers(months))
    return narrow(days, pa.int32(), "a date is too far", dates, months)


@arrow("last_day")
def last_day(dates: pa.Array) -> pa.Array:
    """Return the last day of the month."""
    months, rest = months_of(_day_numbers(dates))
    return _build_dates(_day_numbers(dates) + length_of(months) - rest - 1, dates)


@arrow("next_day")
def next_day(dates: pa.Array, weekday: int) -> pa.Array:
    """Return the next such weekday after the date; Monday is 0."""
    days = _day_numbers(dates)
    return _build_dates(days + 1 + (weekday - (days + 4) % 7) % 7, dates)


@arrow("floor_date")
def floor_date(dates: pa.Array, unit: str) -> pa.Array:
    """Compute `trunc` of DATEs."""
    return _build_dates(floor_days(_day_numbers(dates), unit), dates)


@arrow("date_part")
def date_part(dates: pa.Array, part: str) -> pa.Array:
    """Compute `year`, `month`, … of DATEs."""
    return _build_dates(part_of(_day_numbers(dates), part), dates)


@arrow("date_name")
def date_name(dates: pa.Array, part: str, names: str) -> pa.Array:
    """Compute `dayname` or `monthname`.

    Args:
        part: a part that counts from 1.
        names: the names of its values, separated by blanks.
    """
    number = part_of(_day_numbers(dates), part) - 1
    return pa.array(names.split()).take(build_array(number, pa.int64(), dates))


@arrow("make_date")
def make_date(year: pa.Array, month: pa.Array, day: pa.Array) -> pa.Array:
    given = (year, month, day)
    fields = [_day_numbers(array) for array in given]
    ok = are_dates(*fields)
    base.check(~ok, FIELDS, "there is no such date", *given)
    days = days_of(*(np.where(ok, field, 1) for field in fields))
    return narrow(days, pa.int32(), "a date is too far", *given)


def are_dates(year: Raw, month: Raw, day: Raw) -> npt.NDArray[np.bool_]:
    """Return the mask of dates that exist in Java."""
    ok = (np.abs(year) <= _MOST_YEAR) & (month >= 1) & (month <= 12)
    months = np.where(ok, (year - 1970) * 12 + month - 1, 0)
    valid: npt.NDArray[np.bool_] = ok & (day >= 1) & (day <= length_of(months))
    return valid


def days_of(year: Raw, month: Raw, day: Raw) -> Raw:
    """Return the day numbers of dates."""
    days: Raw = first_of((year - 1970) * 12 + month - 1) + day - 1
    return days


@arrow("date_difference")
def date_difference(end: pa.Array, start: pa.Array) -> pa.Array:
    """Compute DATE - DATE: an interval of days, in µs."""
    days = _day_numbers(end) - _day_numbers(start)
    base.check(np.abs(days) > 106_751_991, "ArithmeticException", "two dates are too far apart", end, start)
    with np.errstate(over="ignore"):
        return build_array(days * DAY_US, pa.int64(), end, start)


@arrow("same_days")
def same_days(days: pa.Array) -> pa.Array:
    """Compute `unix_date` or `date_from_unix_date`: DATEs are represented as days here."""
    return days


FAR = "ArithmeticException"
"""Java's own exception, for times out of the range of int64 µs."""
DATETIME_OVERFLOW = "DATETIME_OVERFLOW"
_DAY_SECONDS = 86_400
_MOST_DAYS = 106_751_991


def _clock(instants: pa.Array, name: str) -> tuple[Raw, Raw]:
    """Return the local time of instants in seconds, and their µs.

    Seconds do not overflow, so this works for all instants.
    """
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


def _resolve_instants(own: Zone, wall: Raw, offset: Raw, *arguments: pa.Array, condition: str = FAR) -> Raw:
    """Convert local times to instants like Java.

    If a local time has two instants, Java retains the previous offset if possible.
    """
    same = _sum(wall, -offset, *arguments, condition=condition)
    instants: Raw = np.where(own.offset_at(same) == offset, same, own.to_instant(wall))
    return instants


def _micros(days: Raw, *arguments: pa.Array, condition: str = FAR) -> Raw:
    """Return the local midnights of days, in µs."""
    bad = np.abs(days) > _MOST_DAYS
    base.check(bad, condition, "a date is too far for a TIMESTAMP", *arguments)
    return np.where(bad, 0, days) * DAY_US


@arrow("to_date")
def to_date(instants: pa.Array, name: str) -> pa.Array:
    """Cast TIMESTAMP to DATE."""
    return build_array(_days(instants, name).astype(np.int32), pa.int32(), instants)


@arrow("to_timestamp")
def to_timestamp(dates: pa.Array, name: str) -> pa.Array:
    """Cast DATE to TIMESTAMP: midnight."""
    walls = _micros(raw(dates).astype(np.int64), dates)
    return build_array(_instant(zone(name), walls, dates), INT64, dates)


@arrow("wall_to_timestamp")
def wall_to_timestamp(walls: pa.Array, name: str) -> pa.Array:
    """Cast TIMESTAMP_NTZ to TIMESTAMP."""
    return build_array(_instant(zone(name), raw(walls), walls), INT64, walls)


@arrow("timestamp_to_wall")
def timestamp_to_wall(instants: pa.Array, name: str) -> pa.Array:
    return build_array(_wall(instants, name), INT64, instants)


@arrow("add_interval")
def add_interval(instants: pa.Array, interval: pa.Array, name: str, condition: str = FAR) -> pa.Array:
    """Add an interval: first whole days on the zone's clock, then the rest.

    A result out of range fails with ``condition``.
    """
    time, by = raw(instants), raw(interval)
    given = (instants, interval)
    days = by // DAY_US + ((by < 0) & (by % DAY_US != 0))  # towards zero
    rest = by - days * DAY_US
    if days.any():
        own = zone(name)
        moved = _sum(_wall(instants, name, condition), days * DAY_US, *given, condition=condition)
        kept = _resolve_instants(own, moved, own.offset_at(time), *given, condition=condition)
        time = np.where(days == 0, time, kept)
    return build_array(_sum(time, rest, *given, condition=condition), INT64, *given)


@arrow("add_months_to_time")
def add_months_to_time(instants: pa.Array, months: pa.Array, name: str, condition: str = FAR) -> pa.Array:
    """Add an interval of months to a TIMESTAMP on the zone's clock.

    A result out of range fails with ``condition``.
    """
    time, own, given = raw(instants), zone(name), (instants, months)
    seconds, micros = _clock(instants, name)
    days = plus_months(seconds // _DAY_SECONDS, raw(months).astype(np.int64))
    midnight = _micros(days, *given, condition=condition)
    moved = _sum(midnight, seconds % _DAY_SECONDS * SECOND_US + micros, *given, condition=condition)
    return build_array(
        _resolve_instants(own, moved, own.offset_at(time), *given, condition=condition), INT64, *given
    )


@arrow("add_units")
def add_units(instants: pa.Array, counts: pa.Array, size: int, name: str) -> pa.Array:
    """Compute `timestampadd` of units of ``size`` µs.

    Units of a day or more are added on the zone's clock.
    """

    def add(by: pa.Array) -> pa.Array:
        if size >= DAY_US:
            return add_interval(instants, by, name, DATETIME_OVERFLOW)
        given = (instants, by)
        return build_array(_sum(raw(instants), raw(by), *given, condition=DATETIME_OVERFLOW), INT64, *given)

    return _units(instants, counts, size, 63, add)


@arrow("add_units_of_months")
def add_units_of_months(instants: pa.Array, counts: pa.Array, size: int, name: str) -> pa.Array:
    """Compute `timestampadd` of units of ``size`` months."""
    return _units(
        instants, counts, size, 31, lambda by: add_months_to_time(instants, by, name, DATETIME_OVERFLOW)
    )


def _units(
    instants: pa.Array, counts: pa.Array, size: int, bits: int, add: Callable[[pa.Array], pa.Array]
) -> pa.Array:
    count, limit = raw(counts), 1 << bits
    bad = (count > (limit - 1) // size) | (count < -(limit // size))
    base.check(bad, DATETIME_OVERFLOW, "a time is too far", instants, counts)
    by = build_array(np.where(bad, 0, count) * size, INT64, counts)
    return add(by)


@arrow("time_between")
def time_between(end: pa.Array, start: pa.Array, name: str) -> pa.Array:
    """Compute the difference of two TIMESTAMPs on the zone's clock, in µs."""
    return build_array(_apart(end, start, name), INT64, end, start)


def _apart(end: pa.Array, start: pa.Array, name: str) -> Raw:
    a, b = _wall(end, name), _wall(start, name)
    with np.errstate(over="ignore"):
        differences: Raw = a - b
    base.check(((a ^ b) & (a ^ differences)) < 0, FAR, "two times are too far apart", end, start)
    return differences


@arrow("units_between")
def units_between(start: pa.Array, end: pa.Array, size: int, name: str) -> pa.Array:
    """Compute `timestampdiff` in units of ``size`` µs, rounded toward zero."""
    apart = _apart(end, start, name)
    return build_array(apart // size + ((apart < 0) & (apart % size != 0)), INT64, start, end)


@arrow("calendar_units_between")
def calendar_units_between(start: pa.Array, end: pa.Array, months: int, name: str) -> pa.Array:
    """Compute `timestampdiff` in units of ``months`` months, rounded toward zero."""
    walls = [_wall(instants, name) for instants in (start, end)]
    (day1, day2), (clock1, clock2) = ([wall // DAY_US for wall in walls], [wall % DAY_US for wall in walls])
    # As LocalDateTime: a day that is not full does not count, and then dates are compared.
    day2 = day2 + ((day2 < day1) & (clock2 > clock1)) - ((day2 > day1) & (clock2 < clock1)).astype(np.int64)
    (month1, rest1), (month2, rest2) = months_of(day1), months_of(day2)
    apart = month2 - month1
    apart = apart - ((apart > 0) & (rest2 < rest1)) + ((apart < 0) & (rest2 > rest1))
    return build_array(apart // months + ((apart < 0) & (apart % months != 0)), INT64, start, end)


@arrow("months_between")
def months_between(end: pa.Array, start: pa.Array, rounded: bool, name: str) -> pa.Array:
    """Compute `months_between`: months, and fractions of 31 days.

    The result is a whole number if both days of the month are equal, or both are the last of their
    month.
    """
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
    return build_array(
        np.where((day1 == day2) | (last1 & last2), whole, months_apart), pa.float64(), end, start
    )


def _in_month(instants: pa.Array, name: str) -> tuple[Raw, Raw, Raw, Raw]:
    """Split instants into parts of their month.

    Returns:
        Months since 1970-01, day, True if it is the last of the month, whole seconds since the start of
        the day.
    """
    time = raw(instants)
    days = _days(instants, name)
    months, rest = months_of(days)
    passed = time - zone(name).to_instant(np.clip(days, -_MOST_DAYS, _MOST_DAYS) * DAY_US)
    seconds = passed // SECOND_US + ((passed < 0) & (passed % SECOND_US != 0))
    return months, rest, rest == length_of(months) - 1, seconds


@arrow("time_part")
def time_part(instants: pa.Array, size: int, count: int, name: str) -> pa.Array:
    """Compute `hour`, `minute` or `second`: units of ``size`` seconds, modulo ``count``."""
    seconds, _ = _clock(instants, name)
    return build_array((seconds // size % count).astype(np.int32), pa.int32(), instants)


@arrow("second_with_fraction")
def second_with_fraction(instants: pa.Array, name: str) -> pa.Array:
    """Return the second with its fraction: DECIMAL(8,6)."""
    seconds, micros = _clock(instants, name)
    return decimals(seconds % 60 * SECOND_US + micros, pa.decimal128(8, 6), instants)


@arrow("floor_time")
def floor_time(instants: pa.Array, size: int, name: str) -> pa.Array:
    """Compute `date_trunc` to units of fixed length up to a day."""
    time, own = raw(instants), zone(name)
    if size <= SECOND_US:
        return build_array(time - time % size, INT64, instants)
    wall = _wall(instants, name)
    wall = wall - wall % size
    floors = (
        own.to_instant(wall)
        if size == DAY_US
        else _resolve_instants(own, wall, own.offset_at(time), instants)
    )
    return build_array(floors, INT64, instants)


@arrow("floor_time_to_days")
def floor_time_to_days(instants: pa.Array, unit: str, name: str) -> pa.Array:
    """Compute `date_trunc` to weeks, months, quarters or years."""
    days = floor_days(_days(instants, name), unit)
    return build_array(_instant(zone(name), _micros(days, instants), instants), INT64, instants)


@arrow("time_bucket")
def time_bucket(instants: pa.Array, origins: pa.Array, size: int, name: str) -> pa.Array:
    """Compute `time_bucket` of ``size`` µs.

    In buckets of a day or more, whole days are those of the zone's clock.
    """
    time, origin = raw(instants), raw(origins)
    given = (instants, origins)
    count = np.floor_divide(_sum(time, -origin, *given), size)
    if size < DAY_US:
        return build_array(origin + count * size, INT64, *given)
    return _bucket(
        instants, count, lambda counts: add_interval(origins, build_array(counts * size, INT64, *given), name)
    )


@arrow("time_bucket_of_months")
def time_bucket_of_months(instants: pa.Array, origins: pa.Array, size: int, name: str) -> pa.Array:
    """Compute `time_bucket` of ``size`` months."""
    (months, _), (first, _) = (months_of(_days(times, name)) for times in (instants, origins))
    return _bucket(
        instants,
        (months - first) // size,
        lambda counts: add_months_to_time(
            origins, build_array(counts * size, INT64, instants, origins), name
        ),
    )


def _bucket(instants: pa.Array, count: Raw, start: Callable[[Raw], pa.Array]) -> pa.Array:
    """Return the start of the bucket of each instant.

    Args:
        count: approximate number of the bucket, counted from the first.
        start: function that returns the start of buckets.
    """
    time, here, after = raw(instants), start(count), start(count + 1)
    starts = np.where(
        raw(here) > time, raw(start(count - 1)), np.where(raw(after) <= time, raw(after), raw(here))
    )
    return build_array(starts, INT64, instants, here)


@arrow("make_wall")
def make_wall(
    year: pa.Array,
    month: pa.Array,
    day: pa.Array,
    hour: pa.Array,
    minute: pa.Array,
    second: pa.Array,
) -> pa.Array:
    """Compute `make_timestamp_ntz`; ``second``: DECIMAL(16,6), up to 60."""
    given = (year, month, day, hour, minute, second)
    years, months, days, hours, minutes = (raw(array).astype(np.int64) for array in given[:-1])
    micros = extract_unscaled_digits(second)
    bad = (hours < 0) | (hours > 23) | (minutes < 0) | (minutes > 59)
    bad = bad | (micros < 0) | (micros >= 61 * SECOND_US) | ~are_dates(years, months, days)
    part = (micros > 60 * SECOND_US) & (micros < 61 * SECOND_US)
    base.check(part, "INVALID_FRACTION_OF_SECOND", "seconds are from 0 to 60", *given)
    base.check(bad & ~part, FIELDS, "there is no such time", *given)
    ok = ~bad & ~part
    day = days_of(*(np.where(ok, field, 1) for field in (years, months, days)))
    passed = np.where(ok, (hours * 60 + minutes) * (60 * SECOND_US) + micros, 0)
    return build_array(_sum(_micros(day, *given), passed, *given), INT64, *given)


@arrow("whole_seconds")
def whole_seconds(instants: pa.Array) -> pa.Array:
    """Compute `unix_timestamp`, rounded toward zero."""
    time = raw(instants)
    return build_array(time // SECOND_US + ((time < 0) & (time % SECOND_US != 0)), INT64, instants)


@arrow("unix_count")
def unix_count(instants: pa.Array, size: int) -> pa.Array:
    """Compute `unix_seconds` and similar functions."""
    return build_array(np.floor_divide(raw(instants), size), INT64, instants)


@arrow("from_count")
def from_count(numbers: pa.Array, size: int, condition: str | None = FAR) -> pa.Array:
    """Convert an integer number of ``size`` µs to an instant.

    Args:
        condition: error for an instant out of range; None returns the first or the last instant.
    """
    counts = raw(numbers).astype(np.int64)
    most = np.iinfo(np.int64).max // size
    bad = (counts > most) | (counts < -((1 << 63) // size))
    if condition is not None:
        base.check(bad, condition, "a time is too far", numbers)
    with np.errstate(over="ignore"):
        times = counts * size
    ends = np.where(counts > 0, np.iinfo(np.int64).max, np.iinfo(np.int64).min)
    return build_array(np.where(bad, ends, times), INT64, numbers)


@arrow("wrapped_seconds")
def wrapped_seconds(numbers: pa.Array) -> pa.Array:
    """Convert a BIGINT number of seconds to an instant like `from_unixtime`: it wraps around."""
    with np.errstate(over="ignore"):
        return build_array(raw(numbers) * SECOND_US, INT64, numbers)


@arrow("from_decimal_seconds")
def from_decimal_seconds(numbers: pa.Array, exact: bool) -> pa.Array:
    """Convert a DECIMAL number of seconds to an instant.

    Args:
        exact: digits beyond µs, and an instant out of range, fail as in `timestamp_seconds`. Otherwise
            digits are truncated and the value wraps around, as in a cast.
    """
    units, scale = extract_unscaled_digits(numbers), numbers.type.scale
    if scale > 6:
        size = 10 ** (scale - 6)
        rest = np.fmod(units, size)
        if exact:
            base.check(rest != 0, FAR, "a number of seconds has parts of a microsecond", numbers)
        return build_array((units - rest) // size, INT64, numbers)
    size = 10 ** (6 - scale)
    if exact:
        most = np.iinfo(np.int64).max // size
        base.check((units > most) | (units < -((1 << 63) // size)), FAR, "a time is too far", numbers)
    with np.errstate(over="ignore"):
        return build_array(units * size, INT64, numbers)


@arrow("from_real_seconds")
def from_real_seconds(numbers: pa.Array, cast: bool) -> pa.Array:
    """Convert a DOUBLE number of seconds to an instant.

    Args:
        cast: NaN, infinities and instants out of range fail. Otherwise NaN and infinities are NULL, and
            an instant out of range becomes the first or the last one.
    """
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


@arrow("to_real_seconds")
def to_real_seconds(instants: pa.Array) -> pa.Array:
    """Cast TIMESTAMP to DOUBLE."""
    return build_array(raw(instants) / 1e6, pa.float64(), instants)


TOO_LONG = "INTERVAL_ARITHMETIC_OVERFLOW"
_RAW = "ArithmeticException"
"""Java's own exception."""
_HOUR_US, _MINUTE_US = 3_600 * SECOND_US, 60 * SECOND_US


def _fit(values: Raw, kind: pa.DataType, condition: str, *arguments: pa.Array) -> pa.Array:
    """Convert int64 to ``kind``; a value out of range fails with ``condition``."""
    low, high = bounds(kind)
    base.check((values < low) | (values > high), condition, "an interval is too long", *arguments)
    return build_array(values.astype(kind.to_pandas_dtype()), kind, *arguments)


def _sum_intervals(a: Raw, b: Raw, *arguments: pa.Array, condition: str = TOO_LONG) -> Raw:
    with np.errstate(over="ignore"):
        sums: Raw = a + b
    base.check(((a ^ sums) & (b ^ sums)) < 0, condition, "an interval is too long", *arguments)
    return sums


def _product(a: Raw, b: Raw, *arguments: pa.Array, condition: str = TOO_LONG) -> Raw:
    with np.errstate(over="ignore", divide="ignore"):
        products: Raw = a * b
        divisor = np.where(b == 0, 1, b)
        least = np.iinfo(np.int64).min
        bad = (b != 0) & ((products // divisor != a) | (products % divisor != 0))
        bad = bad | ((a == least) & (b == -1)) | ((b == least) & (a == -1))
    base.check(bad, condition, "an interval is too long", *arguments)
    return products


@arrow("add_intervals")
def add_intervals(left: pa.Array, right: pa.Array, sign: int) -> pa.Array:
    """Add or subtract two intervals of one kind."""
    kind, a, b = left.type, raw(left).astype(np.int64), raw(right).astype(np.int64)
    if kind.bit_width < 64:
        return _fit(a + sign * b, kind, TOO_LONG, left, right)
    if sign == 1:
        return build_array(_sum_intervals(a, b, left, right), kind, left, right)
    with np.errstate(over="ignore"):
        sums = a - b
    base.check(((a ^ b) & (a ^ sums)) < 0, TOO_LONG, "an interval is too long", left, right)
    return build_array(sums, kind, left, right)


@arrow("minus_interval")
def minus_interval(interval: pa.Array) -> pa.Array:
    """Compute ``-x`` of an interval."""
    lengths = raw(interval)
    base.check(lengths == bounds(interval.type)[0], TOO_LONG, "an interval is too long", interval)
    with np.errstate(over="ignore"):
        return build_array(-lengths, interval.type, interval)


@arrow("interval_times")
def interval_times(interval: pa.Array, number: pa.Array) -> pa.Array:
    """Compute an interval times a BIGINT, a DOUBLE or a DECIMAL; round half away from zero."""
    kind, given = interval.type, (interval, number)
    if pa.types.is_decimal(number.type):
        digits = 10 if kind.bit_width < 64 else 19
        product = pc.multiply(interval.cast(pa.decimal128(digits, 0)), number)
        whole = pc.round(product, 0, round_mode="half_towards_infinity")
        low, high = (pa.scalar(Decimal(bound), pa.decimal128(19, 0)) for bound in bounds(kind))
        bad = raw(pc.or_(pc.less(whole, low), pc.greater(whole, high)))
        base.check(bad, _RAW, "an interval is too long", *given)
        fits = pc.if_else(pa.array(bad), pa.scalar(None, whole.type), whole)
        return build_array(raw(fits.cast(kind)), kind, *given)
    own = raw(interval)
    if pa.types.is_floating(number.type):
        with np.errstate(all="ignore"):
            return _round_half_away(own * raw(number), kind, *given)
    return _fit(_product(own.astype(np.int64), raw(number), *given, condition=_RAW), kind, _RAW, *given)


@arrow("interval_over")
def interval_over(interval: pa.Array, number: pa.Array) -> pa.Array:
    """Divide an interval by a BIGINT or a DOUBLE; round half away from zero."""
    kind, given = interval.type, (interval, number)
    own, by = raw(interval), raw(number)
    base.check(by == 0, "INTERVAL_DIVIDED_BY_ZERO", "division by zero", *given)
    divisor = np.where(by == 0, 1, by)
    if pa.types.is_floating(number.type):
        with np.errstate(all="ignore"):
            return _round_half_away(own / divisor, kind, *given)
    wide = own.astype(np.int64)
    far = (wide == bounds(kind)[0]) & (divisor == -1)
    base.check(far, TOO_LONG, "an interval is too long", *given)
    divisor = np.where(far, 1, divisor)
    floor = wide // divisor
    rest = wide - floor * divisor  # of the divisor's sign
    twice = np.abs(rest).astype(np.uint64) * np.uint64(2)
    size = np.abs(divisor).astype(np.uint64)
    negative = (wide < 0) != (divisor < 0)
    return build_array(
        (floor + ((twice > size) | ((twice == size) & ~negative))).astype(kind.to_pandas_dtype()),
        kind,
        *given,
    )


def _round_half_away(values: Raw, kind: pa.DataType, *arguments: pa.Array) -> pa.Array:
    """Round a DOUBLE half away from zero."""
    near = np.rint(values)
    near = np.where(np.abs(values - near) == 0.5, values + np.copysign(0.5, values), near)
    most = 2.0 ** (kind.bit_width - 1)
    bad = ~((near >= -most) & (near < most))
    base.check(bad, _RAW, "an interval is too long", *arguments)
    return build_array(np.where(bad, 0.0, near).astype(kind.to_pandas_dtype()), kind, *arguments)


@arrow("interval_days")
def interval_days(interval: pa.Array) -> pa.Array:
    """Return the whole days of an interval: INT."""
    return build_array(_towards_zero(raw(interval), DAY_US).astype(np.int32), pa.int32(), interval)


def _towards_zero(values: Raw, size: int) -> Raw:
    whole: Raw = values // size + ((values < 0) & (values % size != 0))
    return whole


_PARTS = {"day": (DAY_US, None), "hour": (_HOUR_US, DAY_US), "minute": (_MINUTE_US, _HOUR_US)}


@arrow("interval_part")
def interval_part(interval: pa.Array, part: str) -> pa.Array:
    """Compute `extract` of an interval.

    Years and days are INT; months, hours and minutes TINYINT; seconds DECIMAL(8,6).
    """
    lengths = raw(interval)
    if part == "second":
        return decimals(np.fmod(lengths, _MINUTE_US), pa.decimal128(8, 6), interval)
    if part == "year":
        return build_array(_towards_zero(lengths, 12).astype(np.int32), pa.int32(), interval)
    if part == "month":
        return build_array(np.fmod(lengths, 12).astype(np.int8), pa.int8(), interval)
    size, whole = _PARTS[part]
    kind = pa.int32() if whole is None else pa.int8()
    rest = lengths if whole is None else np.fmod(lengths, whole)
    return build_array(_towards_zero(rest, size).astype(kind.to_pandas_dtype()), kind, interval)


@arrow("interval_count")
def interval_count(interval: pa.Array, size: int) -> pa.Array:
    """Return the number of whole units, rounded toward zero: BIGINT."""
    return build_array(_towards_zero(raw(interval).astype(np.int64), size), INT64, interval)


@arrow("cut_interval")
def cut_interval(interval: pa.Array, size: int) -> pa.Array:
    """Truncate an interval to whole units."""
    lengths = raw(interval)
    return build_array(lengths - np.fmod(lengths, size), interval.type, interval)


@arrow("interval_of_count")
def interval_of_count(number: pa.Array, size: int, kind: pa.DataType) -> pa.Array:
    """Convert an integer number of units to an interval."""
    counts = raw(number).astype(np.int64)
    product = _product(counts, np.full(len(counts), size), number, condition="CAST_OVERFLOW")
    return _fit(product, kind, "CAST_OVERFLOW", number)


@arrow("make_days")
def make_days(days: pa.Array, hours: pa.Array, minutes: pa.Array, seconds: pa.Array) -> pa.Array:
    """Compute `make_dt_interval`; ``seconds``: DECIMAL(18,6)."""
    given = (days, hours, minutes, seconds)
    totals = extract_unscaled_digits(seconds)
    for count, size in ((days, DAY_US), (hours, _HOUR_US), (minutes, _MINUTE_US)):
        own = raw(count).astype(np.int64)
        totals = _sum_intervals(totals, _product(own, np.full(len(own), size), *given), *given)
    return build_array(totals, INT64, *given)


@arrow("make_months")
def make_months(years: pa.Array, months: pa.Array) -> pa.Array:
    """Compute `make_ym_interval`."""
    totals = raw(years).astype(np.int64) * 12 + raw(months)
    return _fit(totals, pa.int32(), TOO_LONG, years, months)


APART = "\x01"
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)  # fmt: skip


@arrow("format_time")
def format_time(instants: pa.Array, pattern: str, name: str) -> pa.Array:
    """Compute `date_format`; ``name`` is the time zone of the clock."""
    offset = zone(name).offset_at(raw(instants)) // SECOND_US
    seconds = np.floor_divide(raw(instants), SECOND_US) + offset
    micros = raw(instants) % SECOND_US
    parts = []
    for piece in pattern.split(APART):
        kind, text = piece[:1], piece[1:]
        if kind == "=":
            parts.append(pa.scalar(text, pa.string()))
        elif text[0] == "S":
            parts.append(_fraction(micros, len(text)))
        elif text[0] == "X":
            parts.append(_format_numbers(offset, _offset))
        else:
            number, written = _field(text, seconds)
            parts.append(_format_numbers(number, written))
    if not parts:
        parts = [pa.scalar("", pa.string())]
    texts = pc.binary_join_element_wise(*parts, "") if len(parts) > 1 else parts[0]
    if isinstance(texts, pa.Scalar):
        texts = pa.repeat(texts, len(instants))
    not_null = base.where_known(instants)
    return texts if not_null is None else pc.if_else(pa.array(not_null), texts, pa.scalar(None, pa.string()))


def _format_numbers(numbers: Raw, written: Callable[[int], str]) -> pa.Array:
    """Format each number as text, once for each distinct number."""
    distinct, places = np.unique(numbers, return_inverse=True)
    return pa.array([written(number) for number in distinct.tolist()], pa.string()).take(pa.array(places))


def _fraction(micros: Raw, digits: int) -> pa.Array:
    text = pc.utf8_lpad(pa.array(micros).cast(pa.string()), 6, "0")
    return pc.utf8_slice_codeunits(pc.binary_join_element_wise(text, "000", ""), 0, digits)


def _offset(seconds: int) -> str:
    """Format an offset like ``+05:30`` or ``Z``; omit fractions of minutes."""
    minutes = abs(seconds) // 60
    if minutes == 0:
        return "Z"
    return f"{'-' if seconds < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"


def _year(digits: int) -> Callable[[int], str]:
    if digits == 2:
        return lambda year: f"{abs(year) % 100:02}"
    if digits == 1:
        return str
    return lambda year: f"{year:04}" if 0 <= year <= 9999 else f"{'-' if year < 0 else '+'}{abs(year):04}"


def _build_zero_padder(digits: int) -> Callable[[int], str]:
    return lambda number: f"{number:0{digits}}"


def _name_of(names: tuple[str, ...], whole: bool) -> Callable[[int], str]:
    return lambda number: names[number - 1] if whole else names[number - 1][:3]


def _field(text: str, seconds: Raw) -> tuple[Raw, Callable[[int], str]]:
    """Return the numbers of a pattern field, and the function that formats one."""
    letter, count = text[0], len(text)
    of_day = seconds % 86_400
    hour = of_day // 3_600
    if letter in "HhkKms":
        number = {
            "H": hour,
            "h": (hour + 11) % 12 + 1,
            "k": (hour + 23) % 24 + 1,
            "K": hour % 12,
            "m": of_day // 60 % 60,
            "s": of_day % 60,
        }[letter]
        return number, _build_zero_padder(count)
    if letter == "a":
        return hour // 12, lambda half: ("AM", "PM")[half]
    days = seconds // 86_400
    if letter == "y":
        return part_of(days, "year"), _year(count)
    if letter == "E":
        return part_of(days, "dayofweek_iso"), _name_of(WEEKDAYS, count == 4)
    part = {"M": "month", "d": "day", "D": "dayofyear", "Q": "quarter"}[letter]
    if letter == "M" and count > 2:
        return part_of(days, part), _name_of(MONTHS, count == 4)
    return part_of(days, part), _build_zero_padder(count)


_PARSED = {
    "yyyy": r"-[0-9]{4,19}|\+[0-9]{5,19}|[0-9]{4}",
    **dict.fromkeys(("MM", "dd", "HH", "mm", "ss"), "[0-9]{2}"),
    **dict.fromkeys(("M", "d", "H", "m", "s"), "0{0,17}[0-9]{1,2}"),
}
_PLACES = {"y": 0, "M": 1, "d": 2, "H": 3, "m": 4, "s": 5}
_LEAST, _GREATEST = (0, 1, 1, 0, 0, 0), (0, 12, 31, 23, 59, 59)


@arrow("parse_time")
def parse_time(text: pa.Array, pattern: str) -> pa.Array:
    """Parse texts like `to_timestamp`; return local times in µs.

    A text that is not a time fails.
    """
    pieces = pattern.split(APART)
    expression = "".join(_expression(piece, number) for number, piece in enumerate(pieces))
    groups = pc.extract_regex(text, rf"(?is)\A(?:{expression})\z")
    ok = raw(pc.fill_null(groups.is_valid(), False))
    fields = [np.full(len(text), low) for low in (1970, *_LEAST[1:])]
    micros = np.zeros(len(text), dtype=np.int64)
    for number, piece in enumerate(pieces):
        if piece[0] != "#":
            continue
        digits = pc.struct_field(groups, [f"f{number}"])
        digits = pc.if_else(pa.array(ok), digits, "1")
        if piece[1] == "S":
            micros = raw(pc.utf8_slice_codeunits(pc.utf8_rpad(digits, 6, "0"), 0, 6).cast(INT64))
            continue
        place = _PLACES[piece[1]]
        if place == 0:
            ok &= ~raw(pc.match_substring_regex(digits, r"\A-0+\z"))
            # More digits than nine are no year of Java's.
            far = raw(pc.match_substring_regex(digits, r"\A[+-]0*[0-9]{10,}\z"))
            ok &= ~far
            digits = pc.replace_substring_regex(pc.if_else(pa.array(far), "1", digits), r"\A\+", "")
        own = raw(digits.cast(INT64))
        if place:
            ok &= (own >= _LEAST[place]) & (own <= _GREATEST[place])
        fields[place] = own
    year, month, day, hour, minute, second = (
        np.where(ok, f, d) for f, d in zip(fields, (1970, *_LEAST[1:]), strict=True)
    )
    months = (year - 1970) * 12 + month - 1
    ok &= day <= length_of(months)
    base.check(~ok, "CANNOT_PARSE_TIMESTAMP", "a text is not a time of this pattern", text)
    days = np.where(ok, first_of(months) + day - 1, 0)
    far = np.abs(days) > _MOST_DAYS
    base.check(far, "ArithmeticException", "a time is too far", text)
    clock = ((hour * 60 + minute) * 60 + second) * SECOND_US + micros
    days = np.where(far, 0, days)
    with np.errstate(over="ignore"):
        time = days * DAY_US + clock
    base.check((days > 0) & (time < 0), "ArithmeticException", "a time is too far", text)
    return build_array(time, INT64, text)


def _expression(piece: str, number: int) -> str:
    """Return the RE2 expression of a piece of the pattern."""
    text = piece[1:]
    if piece[0] == "=":
        return re.escape(text)
    own = f"[0-9]{{1,{len(text)}}}" if text[0] == "S" else _PARSED[text]
    return f"(?P<f{number}>{own})"


Sign = Literal[1, -1]
DAYS = (TINYINT, SMALLINT, INT)


def interval_literal(node: exp.Interval) -> TypedTree:
    """Compile ``INTERVAL '1' DAY``."""
    months = is_calendar(node)
    size = interval_months(node) if months else interval_us(node)
    bits = 31 if months else 63
    if size is None or not -(1 << bits) <= size < 1 << bits:
        raise UnsupportedExpression("this INTERVAL is read by Spark")
    return constant(size, interval_type(node))


def negate_interval(interval: TypedTree) -> TypedTree:
    if interval.tree[0] == "constant" and interval.tree[1] is not None:
        return constant(-interval.tree[1], interval.type)
    return call(minus_interval, interval.type, interval)


def sum_times(compiler: Compiler, left: TypedTree, right: TypedTree, sign: Sign) -> TypedTree | None:
    """Compile a sum with a time or an interval; return None if no operand is one."""
    if sign == 1 and right.type in TIMES and left.type not in TIMES:
        left, right = right, left
    one, other = left.type, right.type
    if one in TIMES and other.is_interval:
        return move_time(compiler, left, right if sign == 1 else negate_interval(right))
    if one.is_interval and other.is_interval:
        return call(add_intervals, one_type([one, other]), left, right, options=[sign])
    if one == DATE and other in DAYS:
        return call(add_days, DATE, left, widen_value(right, INT), options=[sign])
    if one in TIMES and other in TIMES and sign == -1:
        return subtract_times(compiler, left, right)
    require(
        not any(type_ in TIMES or type_.is_interval for type_ in (one, other)),
        f"{one} {'+' if sign == 1 else '-'} {other}",
    )
    return None


def move_time(compiler: Compiler, time: TypedTree, interval: TypedTree) -> TypedTree:
    """Compile a time + an interval."""
    days = interval.type == INTERVAL_OF_DAYS
    if time.type == DATE and interval.type.is_of_months:
        return call(add_months, DATE, time, interval)
    if time.type == DATE and days:
        return call(add_days, DATE, time, call(interval_days, INT, interval), options=[1])
    own, zone = compiler.on_clock(time)
    function = add_months_to_time if interval.type.is_of_months else add_interval
    return call(function, own.type, own, interval, options=[zone])


def subtract_times(compiler: Compiler, end: TypedTree, start: TypedTree) -> TypedTree:
    """Compile a time - a time."""
    if end.type == start.type == DATE:
        return call(date_difference, INTERVAL_OF_DAYS, end, start)
    if {end.type, start.type} == {TIMESTAMP, TIMESTAMP_NTZ}:  # on the wall, also in a gap
        end, start = (compiler.cast_to(moment, TIMESTAMP_NTZ) for moment in (end, start))
        return call(time_between, INTERVAL, end, start, options=[UTC])
    a, b = compiler.alike([end, start])
    _, zone = compiler.on_clock(a)
    return call(time_between, INTERVAL, a, b, options=[zone])


def scale_interval(node: Expr, left: TypedTree, right: TypedTree) -> TypedTree:
    """Compile an interval * or / a number."""
    if isinstance(node, exp.Mul) and right.type.is_interval:
        left, right = right, left
    if not isinstance(node, exp.Mul | exp.Div) or not left.type.is_interval:
        raise UnsupportedExpression(f"{left.type} and {right.type}: this arithmetic is not on the list")
    type_ = INTERVAL_OF_MONTHS if left.type.is_of_months else INTERVAL
    function = interval_times if isinstance(node, exp.Mul) else interval_over
    return call(function, type_, left, _factor(right, isinstance(node, exp.Mul)))


def _factor(number: TypedTree, decimals: bool) -> TypedTree:
    if number.type in INTEGERS:
        return widen_value(number, BIGINT)
    if number.type in (FLOAT, DOUBLE):
        return widen_value(number, DOUBLE)
    if decimals and number.type.is_decimal and decimal_parts(number.type)[0] <= 18:
        return number
    raise UnsupportedExpression(f"an interval and {number.type}: this arithmetic is not on the list")


_TYPES = {"year": INT, "month": TINYINT, "day": INT, "hour": TINYINT, "minute": TINYINT}


def part_of_interval(part: str, interval: TypedTree) -> TypedTree:
    """EXTRACT, of a part that its type has."""
    fields = ("year", "month") if interval.type.is_of_months else ("day", "hour", "minute", "second")
    first, last = (fields.index(field.lower()) for field in interval_fields(interval.type))
    require(part in fields[first : last + 1], f"{part} of {interval.type}")
    return call(interval_part, _TYPES.get(part, decimal(8, 6)), interval, options=[part])


def _make_days(compiler: Compiler, *values: TypedTree) -> TypedTree:
    whole = [compiler.as_int(value) for value in values[:3]]
    whole += [constant(0, INT)] * (3 - len(whole))
    seconds = seconds_of(values[3], 18) if len(values) > 3 else constant("0", decimal(18, 6))
    return call(make_days, INTERVAL, *whole, seconds)


def _make_months(compiler: Compiler, *values: TypedTree) -> TypedTree:
    numbers = [compiler.as_int(value) for value in values]
    numbers += [constant(0, INT)] * (2 - len(numbers))
    return call(make_months, INTERVAL_OF_MONTHS, *numbers)


def seconds_of(number: TypedTree, digits: int) -> TypedTree:
    """Convert a number to DECIMAL(digits,6) if no digit is lost."""
    type_ = decimal(digits, 6)
    if number.type in DAYS:
        return widen_value(number, type_)
    if number.type.is_decimal:
        own, scale = decimal_parts(number.type)
        if scale <= 6 and own - scale <= digits - 6:
            return widen_value(number, type_)
    raise UnsupportedExpression(f"{number.type} as seconds")


def _time_bucket(
    compiler: Compiler, size: TypedTree, time: TypedTree, origin: TypedTree | None = None
) -> TypedTree:
    require(
        size.type.is_interval and size.tree[0] == "constant" and size.tree[1] and size.tree[1] >= 0,
        "a size that is not a constant INTERVAL above 0",
    )
    require(time.type in (TIMESTAMP, TIMESTAMP_NTZ), f"a bucket of {time.type}")
    origin = origin or constant(0, TIMESTAMP_NTZ)
    require(
        not any(leaf and leaf[0] == "column" for leaf in _leaves(origin.tree)),
        "an origin that is not constant",
    )
    origin = compiler.cast_to(origin, time.type)
    _, zone = compiler.on_clock(time)
    function = time_bucket_of_months if size.type.is_of_months else time_bucket
    return call(function, time.type, time, origin, options=[size.tree[1], zone])


def _leaves(tree: object) -> list[tuple[object, ...]]:
    if not isinstance(tree, tuple):
        return []
    return [tree, *(leaf for branch in tree for leaf in _leaves(branch))]


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
_CLOCK = {"hour": (3_600, 24), "minute": (60, 60), "second": (1, 60)}
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


def _shorten(names: Sequence[str]) -> str:
    return " ".join(name[:3] for name in names)


def compile_part(compiler: Compiler, field: str, value: TypedTree) -> TypedTree:
    """EXTRACT, `date_part`: fields of times and intervals by their names."""
    part = _FIELD.get(field.upper())
    if part is None:
        raise UnsupportedExpression(f"{field} of a time is not on the list")
    if value.type.is_interval:
        return part_of_interval(part, value)
    if part == "second":
        time, zone = compiler.on_clock(value)
        return call(second_with_fraction, decimal(8, 6), time, options=[zone])
    return _part(part, compiler, value)


def _part(part: str, compiler: Compiler, value: TypedTree) -> TypedTree:
    """Compile `hour`, `year`, …."""
    if part in _CLOCK:
        time, zone = compiler.on_clock(value)
        return call(time_part, INT, time, options=[*_CLOCK[part], zone])
    return call(date_part, INT, compiler.as_date(value), options=[part])


def _date_part(compiler: Compiler, field: TypedTree, value: TypedTree) -> TypedTree:
    return compile_part(compiler, _text(field), value)


def _text(value: TypedTree) -> str:
    text = constant_value(value)
    require(value.type == STRING, "a unit that is not text")
    return str(text)


def _months_between(
    compiler: Compiler, end: TypedTree, start: TypedTree, round_off: TypedTree | None = None
) -> TypedTree:
    rounded = True if round_off is None else constant_value(round_off)
    if not isinstance(rounded, bool):
        raise UnsupportedExpression("months_between with what is not a BOOLEAN")
    times = compiler.as_timestamp(end), compiler.as_timestamp(start)
    return call(months_between, DOUBLE, *times, options=[rounded, compiler.zone])


def _next_day(compiler: Compiler, date: TypedTree, weekday: TypedTree) -> TypedTree:
    wanted = _text(weekday).upper()
    for number, name in enumerate(WEEKDAYS):
        if wanted in (name[:2].upper(), name[:3].upper(), name.upper()):
            return call(next_day, DATE, compiler.as_date(date), options=[number])
    raise UnsupportedExpression(f"{wanted} is not a day of the week")


def _trunc(compiler: Compiler, value: TypedTree, unit: TypedTree) -> TypedTree:
    own = _CUT_DAYS.get(_text(unit).upper())
    date = compiler.as_date(value)
    if own is None:
        raise UnsupportedExpression("trunc to no unit of days is NULL")
    return call(floor_date, DATE, date, options=[own])


def _date_trunc(compiler: Compiler, unit: TypedTree, value: TypedTree) -> TypedTree:
    name = _text(unit).upper()
    time = compiler.as_timestamp(value)
    if name in _CUT_US:
        return call(floor_time, TIMESTAMP, time, options=[_CUT_US[name], compiler.zone])
    if name in _CUT_DAYS:
        return call(floor_time_to_days, TIMESTAMP, time, options=[_CUT_DAYS[name], compiler.zone])
    raise UnsupportedExpression("date_trunc to no unit is NULL")


def _unit(node: Expr) -> str:
    """Return the name of a unit, like ``HOUR`` in ``dateadd(HOUR, 1, ts)``."""
    if not isinstance(node, exp.Column | exp.Var) or not node.name:
        raise UnsupportedExpression("a unit that is not a name")
    return node.name.upper()


def _timestampadd(compiler: Compiler, nodes: Sequence[Expr]) -> TypedTree:
    require(len(nodes) == 3, "this number of arguments is not on the list")
    unit, (count, value) = _unit(nodes[0]), compiler.all(nodes[1:])
    require(count.type in INTEGERS, f"{count.type} as a number of units")
    unit = "DAY" if unit == "DAYOFYEAR" else unit
    time, zone = compiler.on_clock(value)
    require(unit in _UNIT_US or unit in _UNIT_MONTHS, f"{unit} is not a unit")
    size, function = (
        (_UNIT_US[unit], add_units) if unit in _UNIT_US else (_UNIT_MONTHS[unit], add_units_of_months)
    )
    return call(function, time.type, time, widen_value(count, BIGINT), options=[size, zone])


def _timestampdiff(compiler: Compiler, nodes: Sequence[Expr]) -> TypedTree:
    require(len(nodes) == 3, "this number of arguments is not on the list")
    unit, values = _unit(nodes[0]), compiler.all(nodes[1:])
    # Spark takes both as TIMESTAMPs, whatever they are.
    times = [compiler.as_timestamp(value) for value in values]
    options = [_UNIT_US.get(unit) or _UNIT_MONTHS.get(unit), compiler.zone]
    if options[0] is None:
        raise UnsupportedExpression(f"{unit} is not a unit")
    function = units_between if unit in _UNIT_US else calendar_units_between
    return call(function, BIGINT, *times, options=options)


def _with_or_without_unit(days: Rule, units: Rule) -> Rule:
    """Return the rule of a function that counts days unless its first argument names a unit."""
    return lambda compiler, nodes: (days if len(nodes) == 2 else units)(compiler, nodes)


_AS_DAYS = only(DAYS, "{} as days", INT)
_AS_COUNT = only(INTEGERS, "{} as a count")
_AS_INSTANT = only((TIMESTAMP,), "{} as a count")


_NO_TIME = ("DATETIME_FIELD_OUT_OF_BOUNDS", "INVALID_FRACTION_OF_SECOND")


def zone_of(value: TypedTree) -> str:
    """Return a constant time zone that has the same meaning in Java.

    Raises:
        UnsupportedExpression: Java may read the zone differently.
    """
    name = str(constant_value(value))
    if value.type == STRING and (name in regions() or name == UTC):
        return name
    offset = re.fullmatch(r"[+-](\d\d):(\d\d)", name)
    if offset is None or int(offset[1]) * 60 + int(offset[2]) > 18 * 60 or int(offset[2]) > 59:
        raise UnsupportedExpression(f"the zone {name} is read by Spark")
    return UTC if name[1:] == "00:00" else name


def _make(to: SqlType, fails: bool) -> Rule:
    def make(compiler: Compiler, *values: TypedTree) -> TypedTree:
        zone = zone_of(values[6]) if len(values) == 7 else compiler.zone
        fields = [compiler.as_int(value) for value in values[:5]]
        wall = call(make_wall, TIMESTAMP_NTZ, *fields, seconds_of(values[5], 16))
        wall = wall if fails else or_null(wall, _NO_TIME)
        return wall if to == TIMESTAMP_NTZ else call(wall_to_timestamp, to, wall, options=[zone])

    return optional(6, 6 if to == TIMESTAMP_NTZ else 7, make)


def unix_timestamp(compiler: Compiler, value: TypedTree) -> TypedTree:
    require(value.type in TIMES, f"{value.type} as a count")
    # Of a TIMESTAMP_NTZ Spark counts the seconds on the wall.
    time = value if value.type == TIMESTAMP_NTZ else compiler.as_timestamp(value)
    return call(whole_seconds, BIGINT, time)


def _of_seconds(compiler: Compiler, value: TypedTree) -> TypedTree:
    if value.type in (FLOAT, DOUBLE):
        return call(from_real_seconds, TIMESTAMP, widen_value(value, DOUBLE), options=[False])
    if value.type.is_decimal and decimal_parts(value.type)[0] <= 18:
        return call(from_decimal_seconds, TIMESTAMP, value, options=[True])
    return call(from_count, TIMESTAMP, _AS_COUNT(compiler, value), options=[1_000_000])


def _build_zone_rule(function: ArrowFunction) -> Callable[[Compiler, TypedTree, TypedTree], TypedTree]:
    def make(compiler: Compiler, value: TypedTree, zone: TypedTree) -> TypedTree:
        return call(function, TIMESTAMP, compiler.as_timestamp(value), options=[zone_of(zone)])

    return make


def _convert(compiler: Compiler, *values: TypedTree) -> TypedTree:
    source = zone_of(values[0]) if len(values) == 3 else compiler.zone
    require(values[-1].type in TIMES, f"{values[-1].type} as TIMESTAMP_NTZ")
    wall = compiler.cast_to(values[-1], TIMESTAMP_NTZ)
    instant = call(wall_to_timestamp, TIMESTAMP, wall, options=[source])
    return call(timestamp_to_wall, TIMESTAMP_NTZ, instant, options=[zone_of(values[-2])])


_USUAL = "yyyy-MM-dd HH:mm:ss"
_WRITTEN: dict[str, Sequence[int]] = {
    **dict.fromkeys("dHhkKmsQ", (1, 2)),
    "y": (1, 2, 4),
    "M": (1, 2, 3, 4),
    "D": (1, 2, 3),
    "E": (1, 2, 3, 4),
    "a": (1,),
    "X": (3,),
    "S": range(1, 10),
}
_READ: dict[str, Sequence[int]] = {"y": (4,), **dict.fromkeys("MdHms", (1, 2)), "S": range(1, 10)}
_FAILS = ("CANNOT_PARSE_TIMESTAMP",)


def _pieces(pattern: str) -> Iterator[str]:
    """Yield the pieces of the pattern in the form of the kernel.

    Raises:
        UnsupportedExpression: only Spark reads the pattern.
    """
    rest = pattern
    while rest:
        letter = rest[0]
        if letter == "'":
            end = rest.find("'", 1)
            require(end >= 0 and rest[end + 1 : end + 2] != "'", f"the pattern {pattern!r} is read by Spark")
            yield "=" + (rest[1:end] or "'")
            rest = rest[end + 1 :]
        elif letter.isascii() and letter.isalpha():
            count = len(rest) - len(rest.lstrip(letter))
            yield "#" + rest[:count]
            rest = rest[count:]
        elif letter in "[]{}#" or letter == APART:
            raise UnsupportedExpression(f"the pattern {pattern!r} is read by Spark")
        else:
            yield "=" + letter
            rest = rest[1:]


def written_pattern(pattern: str) -> str:
    """Convert a pattern that formats times.

    Raises:
        UnsupportedExpression: only Spark reads the pattern.
    """
    pieces = list(_pieces(pattern))
    _check(pieces, _WRITTEN, pattern)
    return APART.join(pieces)


def read_pattern(pattern: str) -> str:
    """Convert a pattern that parses times: a year, then what may follow it, each once.

    Raises:
        UnsupportedExpression: only Spark reads the pattern.
    """
    pieces = list(_pieces(pattern))
    _check(pieces, _READ, pattern)
    letters = [piece[1] for piece in pieces if piece[0] == "#"]
    date, clock = [x for x in letters if x in "yMd"], [x for x in letters if x in "HmsS"]
    require(
        sorted(date) in (["y"], ["M", "y"], ["M", "d", "y"])
        and "".join(clock) in ("", "H", "Hm", "Hms", "HmsS"),
        f"the pattern {pattern!r} is read by Spark",
    )
    for kind, group in groupby(pieces, key=lambda piece: piece[0]):
        run = list(group)
        if kind == "#" and len(run) > 1 and any(len(piece) == 2 or piece[1] == "S" for piece in run):
            raise UnsupportedExpression(f"the pattern {pattern!r} is read by Spark")
        # Case is passed over, and which letters are one then is a matter of their alphabets.
        require(
            kind != "=" or (not any(c.isalpha() and c not in "TZ" for piece in run for c in piece[1:])),
            f"the pattern {pattern!r} is read by Spark",
        )
    return APART.join(pieces)


def _check(pieces: Sequence[str], lengths: dict[str, Sequence[int]], pattern: str) -> None:
    for piece in pieces:
        if piece[0] == "#" and len(piece) - 1 not in lengths.get(piece[1], ()):
            raise UnsupportedExpression(f"{piece[1:]} in the pattern {pattern!r} is not on the list")


def _pattern(value: TypedTree) -> str:
    require(value.type == STRING, "a pattern that is not text")
    return str(constant_value(value))


def _date_format(compiler: Compiler, time: TypedTree, pattern: TypedTree) -> TypedTree:
    return _compile_time_format(compiler, compiler.as_timestamp(time), _pattern(pattern))


def _compile_time_format(compiler: Compiler, time: TypedTree, pattern: str) -> TypedTree:
    return call(format_time, STRING, time, options=[written_pattern(pattern), compiler.zone])


def _from_unixtime(compiler: Compiler, value: TypedTree, pattern: TypedTree | None = None) -> TypedTree:
    require(value.type in INTEGERS, f"from_unixtime of {value.type}")
    seconds = call(wrapped_seconds, TIMESTAMP, widen_value(value, BIGINT))
    return _compile_time_format(compiler, seconds, _USUAL if pattern is None else _pattern(pattern))


def _build_parse_rule(to: SqlType, fails: bool) -> Rule:
    """Build the rule of `to_date`, `to_timestamp`, …: parse with a pattern; cast without one."""

    def make(compiler: Compiler, own: TypedTree, pattern: TypedTree | None = None) -> TypedTree:
        if pattern is None:
            value = compiler.cast_to(own, to)
            return value if fails or value is own else or_null(value)
        require(own.type == STRING, "what is not text is not read by a pattern")
        wall = _parse_wall(own, _pattern(pattern), fails)
        return wall if to == TIMESTAMP_NTZ else compiler.cast_to(compiler.cast_to(wall, TIMESTAMP), to)

    return optional(1, 2, make)


def _parse_wall(text: TypedTree, pattern: str, fails: bool) -> TypedTree:
    wall = call(parse_time, TIMESTAMP_NTZ, text, options=[read_pattern(pattern)])
    return wall if fails else or_null(wall, _FAILS)


def _unix_timestamp(compiler: Compiler, value: TypedTree, pattern: TypedTree | None = None) -> TypedTree:
    if value.type == STRING:
        wall = _parse_wall(value, _USUAL if pattern is None else _pattern(pattern), True)
        value = compiler.cast_to(wall, TIMESTAMP)
    return unix_timestamp(compiler, value)


_WRITTEN_PATTERN = "constant patterns of `yMdDHhkKmsSEaQX` and quoted texts"
_READ_PATTERN = "of texts with a constant pattern of `yyyy`, `M`, `d`, `H`, `m`, `s`, `S`"

FUNCTIONS: dict[str, Rule | Restricted] = {
    "make_dt_interval": optional(0, 4, _make_days),
    "make_ym_interval": optional(0, 2, _make_months),
    "time_bucket": optional(2, 3, _time_bucket),
    **{part: arguments(1, partial(_part, part)) for part in (*_CLOCK, *_CALENDAR)},
    "dayofmonth": arguments(1, partial(_part, "day")),
    "weekofyear": arguments(1, partial(_part, "week")),
    "date_part": arguments(2, _date_part),
    "datepart": arguments(2, _date_part),
    "dayname": computed(
        date_name,
        STRING,
        Compiler.as_date,
        options=["dayofweek_iso", _shorten(WEEKDAYS)],
    ),
    "monthname": computed(
        date_name,
        STRING,
        Compiler.as_date,
        options=["month", _shorten(MONTHS)],
    ),
    **dict.fromkeys(
        ("date_add", "dateadd"),
        _with_or_without_unit(
            computed(add_days, DATE, Compiler.as_date, _AS_DAYS, options=[1]), _timestampadd
        ),
    ),
    "date_sub": computed(add_days, DATE, Compiler.as_date, _AS_DAYS, options=[-1]),
    "timestampadd": _timestampadd,
    **dict.fromkeys(
        ("datediff", "date_diff"),
        _with_or_without_unit(
            computed(days_between, INT, Compiler.as_date, Compiler.as_date), _timestampdiff
        ),
    ),
    "timestampdiff": _timestampdiff,
    "add_months": computed(add_months, DATE, Compiler.as_date, Compiler.as_int),
    "months_between": optional(2, 3, _months_between),
    "last_day": computed(last_day, DATE, Compiler.as_date),
    "next_day": arguments(2, _next_day),
    "trunc": arguments(2, _trunc),
    "date_trunc": arguments(2, _date_trunc),
    "make_date": computed(make_date, DATE, *[Compiler.as_int] * 3),
    "make_timestamp": _make(TIMESTAMP, True),
    "make_timestamp_ltz": _make(TIMESTAMP, True),
    "make_timestamp_ntz": _make(TIMESTAMP_NTZ, True),
    "try_make_timestamp": _make(TIMESTAMP, False),
    "try_make_timestamp_ltz": _make(TIMESTAMP, False),
    "try_make_timestamp_ntz": _make(TIMESTAMP_NTZ, False),
    "unix_seconds": computed(unix_count, BIGINT, _AS_INSTANT, options=[1_000_000]),
    "unix_millis": computed(unix_count, BIGINT, _AS_INSTANT, options=[1_000]),
    "unix_micros": computed(unix_count, BIGINT, _AS_INSTANT, options=[1]),
    "timestamp_seconds": arguments(1, _of_seconds),
    "timestamp_millis": computed(from_count, TIMESTAMP, _AS_COUNT, options=[1_000]),
    "timestamp_micros": computed(from_count, TIMESTAMP, _AS_COUNT, options=[1]),
    "unix_date": computed(same_days, INT, only((DATE,), "{} as days")),
    "date_from_unix_date": computed(same_days, DATE, Compiler.as_int),
    "from_utc_timestamp": arguments(2, _build_zone_rule(timestamp_to_wall)),
    "to_utc_timestamp": arguments(2, _build_zone_rule(wall_to_timestamp)),
    "convert_timezone": optional(2, 3, _convert),
    "current_timezone": arguments(0, lambda compiler: constant(compiler.zone, STRING)),
    "date_format": Restricted(arguments(2, _date_format), _WRITTEN_PATTERN),
    "from_unixtime": Restricted(optional(1, 2, _from_unixtime), _WRITTEN_PATTERN),
    "unix_timestamp": Restricted(optional(1, 2, _unix_timestamp), _READ_PATTERN),
    "to_unix_timestamp": Restricted(optional(1, 2, _unix_timestamp), _READ_PATTERN),
    "to_date": Restricted(_build_parse_rule(DATE, True), _READ_PATTERN),
    "try_to_date": Restricted(_build_parse_rule(DATE, False), _READ_PATTERN),
    "to_timestamp": Restricted(_build_parse_rule(TIMESTAMP, True), _READ_PATTERN),
    "to_timestamp_ltz": Restricted(_build_parse_rule(TIMESTAMP, True), _READ_PATTERN),
    "to_timestamp_ntz": Restricted(_build_parse_rule(TIMESTAMP_NTZ, True), _READ_PATTERN),
    "try_to_timestamp": Restricted(_build_parse_rule(TIMESTAMP, False), _READ_PATTERN),
}
