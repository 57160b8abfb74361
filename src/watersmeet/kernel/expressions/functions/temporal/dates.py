"""DATEs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.kernel.expressions.functions import base
from watersmeet.kernel.expressions.functions.base import Raw, made, narrow, raw
from watersmeet.kernel.expressions.functions.temporal import calendar

FIELDS = "DATETIME_FIELD_OUT_OF_BOUNDS"
_MOST_YEAR = 999_999_999


def _days(dates: pa.Array) -> Raw:
    return raw(dates).astype(np.int64)


def _made(days: Raw, *arguments: pa.Array) -> pa.Array:
    """Like Java's `int`, days wrap around."""
    return made(days.astype(np.int32), pa.int32(), *arguments)


def add_days(dates: pa.Array, days: pa.Array, sign: int) -> pa.Array:
    """`date_add`, `date_sub`."""
    return _made(_days(dates) + sign * _days(days), dates, days)


def days_between(end: pa.Array, start: pa.Array) -> pa.Array:
    """`datediff`: an INT."""
    return _made(_days(end) - _days(start), end, start)


def add_months(dates: pa.Array, months: pa.Array) -> pa.Array:
    days = calendar.plus_months(_days(dates), _days(months))
    return narrow(days, pa.int32(), "a date is too far", dates, months)


def last_day(dates: pa.Array) -> pa.Array:
    """Of the month."""
    months, rest = calendar.months_of(_days(dates))
    return _made(_days(dates) + calendar.length_of(months) - rest - 1, dates)


def next_day(dates: pa.Array, weekday: int) -> pa.Array:
    """The next such day after it; Monday is 0."""
    days = _days(dates)
    return _made(days + 1 + (weekday - (days + 4) % 7) % 7, dates)


def floor_date(dates: pa.Array, unit: str) -> pa.Array:
    """`trunc`."""
    return _made(calendar.floor_days(_days(dates), unit), dates)


def date_part(dates: pa.Array, part: str) -> pa.Array:
    """`year`, `month`, …"""
    return _made(calendar.part_of(_days(dates), part), dates)


def date_name(dates: pa.Array, part: str, names: str) -> pa.Array:
    """`dayname`, `monthname`: a part that counts from 1 as its name, of names with blanks between."""
    number = calendar.part_of(_days(dates), part) - 1
    return pa.array(names.split()).take(made(number, pa.int64(), dates))


def make_date(year: pa.Array, month: pa.Array, day: pa.Array) -> pa.Array:
    given = (year, month, day)
    fields = [_days(array) for array in given]
    ok = are_dates(*fields)
    base.check(~ok, FIELDS, "there is no such date", *given)
    days = days_of(*(np.where(ok, field, 1) for field in fields))
    return narrow(days, pa.int32(), "a date is too far", *given)


def are_dates(year: Raw, month: Raw, day: Raw) -> npt.NDArray[np.bool_]:
    """Whether Java has such dates."""
    ok = (np.abs(year) <= _MOST_YEAR) & (month >= 1) & (month <= 12)
    months = np.where(ok, (year - 1970) * 12 + month - 1, 0)
    valid: npt.NDArray[np.bool_] = ok & (day >= 1) & (day <= calendar.length_of(months))
    return valid


def days_of(year: Raw, month: Raw, day: Raw) -> Raw:
    """The days of dates."""
    days: Raw = calendar.first_of((year - 1970) * 12 + month - 1) + day - 1
    return days


def date_difference(end: pa.Array, start: pa.Array) -> pa.Array:
    """DATE - DATE: an interval of days, in µs."""
    days = _days(end) - _days(start)
    base.check(np.abs(days) > 106_751_991, "ArithmeticException", "two dates are too far apart", end, start)
    with np.errstate(over="ignore"):
        return made(days * base.DAY_US, pa.int64(), end, start)


def same_days(days: pa.Array) -> pa.Array:
    """`unix_date` and `date_from_unix_date`: DATEs are their days in here."""
    return days
