"""Intervals: of days and clock times (int64 µs), and of months (int32)."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.expressions.functions import base
from watersmeet.kernel.expressions.functions.base import (
    DAY_US,
    INT64,
    Raw,
    bounds,
    decimals,
    made,
    raw,
    unscaled,
)
from watersmeet.zones import SECOND_US

TOO_LONG = "INTERVAL_ARITHMETIC_OVERFLOW"
_RAW = "ArithmeticException"
"""Java's own exception."""
_HOUR_US, _MINUTE_US = 3_600 * SECOND_US, 60 * SECOND_US


def _fit(values: Raw, kind: pa.DataType, condition: str, *arguments: pa.Array) -> pa.Array:
    """int64 as ``kind``."""
    low, high = bounds(kind)
    base.check((values < low) | (values > high), condition, "an interval is too long", *arguments)
    return made(values.astype(kind.to_pandas_dtype()), kind, *arguments)


def _sum(a: Raw, b: Raw, *arguments: pa.Array, condition: str = TOO_LONG) -> Raw:
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


def add_intervals(left: pa.Array, right: pa.Array, sign: int) -> pa.Array:
    """The sum or difference of two of a kind."""
    kind, a, b = left.type, raw(left).astype(np.int64), raw(right).astype(np.int64)
    if kind.bit_width < 64:
        return _fit(a + sign * b, kind, TOO_LONG, left, right)
    if sign == 1:
        return made(_sum(a, b, left, right), kind, left, right)
    with np.errstate(over="ignore"):
        sums = a - b
    base.check(((a ^ b) & (a ^ sums)) < 0, TOO_LONG, "an interval is too long", left, right)
    return made(sums, kind, left, right)


def minus_interval(interval: pa.Array) -> pa.Array:
    """``-x``."""
    lengths = raw(interval)
    base.check(lengths == bounds(interval.type)[0], TOO_LONG, "an interval is too long", interval)
    with np.errstate(over="ignore"):
        return made(-lengths, interval.type, interval)


def interval_times(interval: pa.Array, number: pa.Array) -> pa.Array:
    """By a BIGINT, a DOUBLE or a DECIMAL; halves are rounded away from zero."""
    kind, given = interval.type, (interval, number)
    if pa.types.is_decimal(number.type):
        digits = 10 if kind.bit_width < 64 else 19
        product = pc.multiply(interval.cast(pa.decimal128(digits, 0)), number)
        whole = pc.round(product, 0, round_mode="half_towards_infinity")
        low, high = (pa.scalar(Decimal(bound), pa.decimal128(19, 0)) for bound in bounds(kind))
        bad = raw(pc.or_(pc.less(whole, low), pc.greater(whole, high)))
        base.check(bad, _RAW, "an interval is too long", *given)
        fits = pc.if_else(pa.array(bad), pa.scalar(None, whole.type), whole)
        return made(raw(fits.cast(kind)), kind, *given)
    own = raw(interval)
    if pa.types.is_floating(number.type):
        with np.errstate(all="ignore"):
            return _rounded(own * raw(number), kind, *given)
    return _fit(_product(own.astype(np.int64), raw(number), *given, condition=_RAW), kind, _RAW, *given)


def interval_over(interval: pa.Array, number: pa.Array) -> pa.Array:
    """By a BIGINT or a DOUBLE; halves are rounded away from zero."""
    kind, given = interval.type, (interval, number)
    own, by = raw(interval), raw(number)
    base.check(by == 0, "INTERVAL_DIVIDED_BY_ZERO", "division by zero", *given)
    divisor = np.where(by == 0, 1, by)
    if pa.types.is_floating(number.type):
        with np.errstate(all="ignore"):
            return _rounded(own / divisor, kind, *given)
    wide = own.astype(np.int64)
    far = (wide == bounds(kind)[0]) & (divisor == -1)
    base.check(far, TOO_LONG, "an interval is too long", *given)
    divisor = np.where(far, 1, divisor)
    floor = wide // divisor
    rest = wide - floor * divisor  # of the divisor's sign
    twice = np.abs(rest).astype(np.uint64) * np.uint64(2)
    size = np.abs(divisor).astype(np.uint64)
    negative = (wide < 0) != (divisor < 0)
    return made(
        (floor + ((twice > size) | ((twice == size) & ~negative))).astype(kind.to_pandas_dtype()),
        kind,
        *given,
    )


def _rounded(values: Raw, kind: pa.DataType, *arguments: pa.Array) -> pa.Array:
    """A DOUBLE, halves away from zero."""
    near = np.rint(values)
    near = np.where(np.abs(values - near) == 0.5, values + np.copysign(0.5, values), near)
    most = 2.0 ** (kind.bit_width - 1)
    bad = ~((near >= -most) & (near < most))
    base.check(bad, _RAW, "an interval is too long", *arguments)
    return made(np.where(bad, 0.0, near).astype(kind.to_pandas_dtype()), kind, *arguments)


def interval_days(interval: pa.Array) -> pa.Array:
    """Whole days: INT."""
    return made(_towards_zero(raw(interval), DAY_US).astype(np.int32), pa.int32(), interval)


def _towards_zero(values: Raw, size: int) -> Raw:
    whole: Raw = values // size + ((values < 0) & (values % size != 0))
    return whole


_PARTS = {"day": (DAY_US, None), "hour": (_HOUR_US, DAY_US), "minute": (_MINUTE_US, _HOUR_US)}


def interval_part(interval: pa.Array, part: str) -> pa.Array:
    """`extract`: years and days INT, months, hours and minutes TINYINT, seconds DECIMAL(8,6)."""
    lengths = raw(interval)
    if part == "second":
        return decimals(np.fmod(lengths, _MINUTE_US), pa.decimal128(8, 6), interval)
    if part == "year":
        return made(_towards_zero(lengths, 12).astype(np.int32), pa.int32(), interval)
    if part == "month":
        return made(np.fmod(lengths, 12).astype(np.int8), pa.int8(), interval)
    size, whole = _PARTS[part]
    kind = pa.int32() if whole is None else pa.int8()
    rest = lengths if whole is None else np.fmod(lengths, whole)
    return made(_towards_zero(rest, size).astype(kind.to_pandas_dtype()), kind, interval)


def interval_count(interval: pa.Array, size: int) -> pa.Array:
    """How many whole units, towards zero: BIGINT."""
    return made(_towards_zero(raw(interval).astype(np.int64), size), INT64, interval)


def cut_interval(interval: pa.Array, size: int) -> pa.Array:
    """Whole units only."""
    lengths = raw(interval)
    return made(lengths - np.fmod(lengths, size), interval.type, interval)


def interval_of_count(number: pa.Array, size: int, kind: pa.DataType) -> pa.Array:
    """An integer number of units."""
    counts = raw(number).astype(np.int64)
    product = _product(counts, np.full(len(counts), size), number, condition="CAST_OVERFLOW")
    return _fit(product, kind, "CAST_OVERFLOW", number)


def make_days(days: pa.Array, hours: pa.Array, minutes: pa.Array, seconds: pa.Array) -> pa.Array:
    """`make_dt_interval`; ``seconds``: DECIMAL(18,6)."""
    given = (days, hours, minutes, seconds)
    totals = unscaled(seconds)
    for count, size in ((days, DAY_US), (hours, _HOUR_US), (minutes, _MINUTE_US)):
        own = raw(count).astype(np.int64)
        totals = _sum(totals, _product(own, np.full(len(own), size), *given), *given)
    return made(totals, INT64, *given)


def make_months(years: pa.Array, months: pa.Array) -> pa.Array:
    """`make_ym_interval`."""
    totals = raw(years).astype(np.int64) * 12 + raw(months)
    return _fit(totals, pa.int32(), TOO_LONG, years, months)
