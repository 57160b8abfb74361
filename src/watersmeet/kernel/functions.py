"""What tasks compute of Spark's functions: arrays in, an array out, each proven against Spark by a test.

NULL in any argument gives NULL unless a function says otherwise. Where Spark raises, `Fails` names the first
row. Division by zero, overflow, dates that there are none of: by Spark's conditions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.fails import Fails
from watersmeet.zones import zone

Raw = npt.NDArray[Any]
DAY_US = 86_400_000_000
_INT64 = pa.int64()


def _raw(array: pa.Array) -> Raw:
    """Values, with something harmless where there is none."""
    if array.null_count:
        array = pc.fill_null(array, False if pa.types.is_boolean(array.type) else 0)
    found: Raw = array.to_numpy(zero_copy_only=False)
    return found


def _known(*arrays: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Where none is NULL; None: everywhere."""
    found: npt.NDArray[np.bool_] | None = None
    for array in arrays:
        if array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            found = valid if found is None else found & valid
    return found


def _made(values: Raw, kind: pa.DataType, *arguments: pa.Array) -> pa.Array:
    known = _known(*arguments)
    return pa.array(values, kind, mask=None if known is None else ~known)


def _check(bad: npt.NDArray[np.bool_], condition: str, what: str, *arguments: pa.Array) -> None:
    known = _known(*arguments)
    if known is not None:
        bad = bad & known
    if bad.any():
        raise Fails(int(np.argmax(bad)), condition, what)


# comparisons


def compare(left: pa.Array, right: pa.Array, op: str) -> pa.Array:
    """``=``, ``<``, … of two arrays of one type. NaN is equal to itself and greater than all; -0.0 is 0.0."""
    kind = left.type
    if pa.types.is_string(kind):
        left, right = left.view(pa.binary()), right.view(pa.binary())
    elif pa.types.is_floating(kind):
        a, b = _raw(left), _raw(right)
        return _made(_compare_reals(a, b, op), pa.bool_(), left, right)
    return {
        "=": pc.equal,
        "<>": pc.not_equal,
        "<": pc.less,
        "<=": pc.less_equal,
        ">": pc.greater,
        ">=": pc.greater_equal,
    }[op](left, right)


def _compare_reals(a: Raw, b: Raw, op: str) -> Raw:
    none_a, none_b = np.isnan(a), np.isnan(b)
    equal = (a == b) | (none_a & none_b)
    less = (a < b) | (none_b & ~none_a)
    found: dict[str, Raw] = {
        "=": equal,
        "<>": ~equal,
        "<": less,
        "<=": less | equal,
        ">": ~(less | equal),
        ">=": ~less,
    }
    return found[op]


def null_safe_equal(left: pa.Array, right: pa.Array) -> pa.Array:
    """NULL is equal to NULL."""
    equal = pc.fill_null(compare(left, right, "="), False)
    return pc.or_(equal, pc.and_(left.is_null(), right.is_null()))


def is_null(array: pa.Array) -> pa.Array:
    return array.is_null()


def is_not_null(array: pa.Array) -> pa.Array:
    return array.is_valid()


def is_nan(array: pa.Array) -> pa.Array:
    """Of NULL it is FALSE."""
    return pc.fill_null(pc.is_nan(array), False)


def negate(array: pa.Array) -> pa.Array:
    """NOT."""
    return pc.invert(array)


def is_in(value: pa.Array, *listed: pa.Array) -> pa.Array:
    """TRUE if one is equal; else NULL if one is NULL."""
    found = compare(value, listed[0], "=")
    for each in listed[1:]:
        found = pc.or_kleene(found, compare(value, each, "="))
    return found


# arithmetic

_OVERFLOW = "ARITHMETIC_OVERFLOW"


def _bounds(kind: pa.DataType) -> tuple[int, int]:
    bits = kind.bit_width
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def _narrow(wide: Raw, kind: pa.DataType, what: str, *arguments: pa.Array) -> pa.Array:
    least, greatest = _bounds(kind)
    condition = _OVERFLOW if kind.bit_width >= 32 else f"BINARY_{_OVERFLOW}"
    _check((wide < least) | (wide > greatest), condition, what, *arguments)
    return _made(wide.astype(kind.to_pandas_dtype()), kind, *arguments)


def plus(left: pa.Array, right: pa.Array) -> pa.Array:
    kind = left.type
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return pc.add(left, right)
    a, b = _raw(left), _raw(right)
    if kind.bit_width < 64:
        return _narrow(a.astype(np.int64) + b, kind, "a sum is too great or too small", left, right)
    with np.errstate(over="ignore"):
        found = a + b
    _check(((a ^ found) & (b ^ found)) < 0, _OVERFLOW, "a sum is too great or too small", left, right)
    return _made(found, kind, left, right)


def minus(left: pa.Array, right: pa.Array) -> pa.Array:
    kind = left.type
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return pc.subtract(left, right)
    a, b = _raw(left), _raw(right)
    if kind.bit_width < 64:
        return _narrow(a.astype(np.int64) - b, kind, "a difference is too great or too small", left, right)
    with np.errstate(over="ignore"):
        found = a - b
    _check(((a ^ b) & (a ^ found)) < 0, _OVERFLOW, "a difference is too great or too small", left, right)
    return _made(found, kind, left, right)


def times(left: pa.Array, right: pa.Array) -> pa.Array:
    kind = left.type
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return pc.multiply(left, right)
    a, b = _raw(left), _raw(right)
    if kind.bit_width < 64:
        return _narrow(a.astype(np.int64) * b, kind, "a product is too great or too small", left, right)
    least = np.iinfo(np.int64).min
    with np.errstate(over="ignore", divide="ignore"):
        found = a * b
        divisor = np.where(b == 0, 1, b)
        bad = (found // divisor != a) | (found % divisor != 0)
        bad = np.where(b == 0, False, bad) | ((a == least) & (b == -1)) | ((b == least) & (a == -1))
    _check(bad, _OVERFLOW, "a product is too great or too small", left, right)
    return _made(found, kind, left, right)


def minus_one(value: pa.Array) -> pa.Array:
    """``-x``."""
    kind = value.type
    if not pa.types.is_integer(kind):
        return pc.negate(value)
    _check(_raw(value) == _bounds(kind)[0], _OVERFLOW, "a number has no negative", value)
    return pc.negate(value)


def absolute(value: pa.Array) -> pa.Array:
    if pa.types.is_integer(value.type):
        _check(_raw(value) == _bounds(value.type)[0], _OVERFLOW, "a number has no positive", value)
    return pc.abs(value)


def divide(left: pa.Array, right: pa.Array) -> pa.Array:
    """``/`` of DOUBLEs."""
    a, b = _raw(left), _raw(right)
    _check(b == 0, "DIVIDE_BY_ZERO", "division by zero", left, right)
    with np.errstate(all="ignore"):
        return _made(a / np.where(b == 0, 1.0, b), pa.float64(), left, right)


def divide_or_null(left: pa.Array, right: pa.Array) -> pa.Array:
    """`try_divide` of DOUBLEs."""
    a, b = _raw(left), _raw(right)
    with np.errstate(all="ignore"):
        found = a / np.where(b == 0, 1.0, b)
    known = _known(left, right)
    bad = b == 0 if known is None else (b == 0) | ~known
    return pa.array(found, pa.float64(), mask=bad)


def whole_quotient(left: pa.Array, right: pa.Array) -> pa.Array:
    """``div`` of BIGINTs, towards zero."""
    a, b = _raw(left), _raw(right)
    _check(b == 0, "DIVIDE_BY_ZERO", "division by zero", left, right)
    bad = (a == np.iinfo(np.int64).min) & (b == -1)
    _check(bad, _OVERFLOW, "a quotient is too great", left, right)
    divisor = np.where((b == 0) | bad, 1, b)
    found = a // divisor
    found += ((a % divisor != 0) & ((a < 0) != (divisor < 0))).astype(np.int64)
    return _made(found, _INT64, left, right)


def remainder(left: pa.Array, right: pa.Array) -> pa.Array:
    """``%``: it has the sign of the dividend."""
    a, b = _raw(left), _raw(right)
    _check(b == 0, "REMAINDER_BY_ZERO", "remainder by zero", left, right)
    with np.errstate(all="ignore"):
        found = np.fmod(a, np.where(b == 0, 1, b).astype(b.dtype))
    return _made(found, left.type, left, right)


def positive_remainder(left: pa.Array, right: pa.Array) -> pa.Array:
    """`pmod` of integers."""
    a, b = _raw(left), _raw(right)
    _check(b == 0, "REMAINDER_BY_ZERO", "remainder by zero", left, right)
    divisor = np.where(b == 0, 1, b).astype(b.dtype)
    found = np.fmod(a, divisor)
    with np.errstate(over="ignore"):
        found = np.where(found < 0, np.fmod(found + divisor, divisor), found)
    return _made(found.astype(a.dtype), left.type, left, right)


def bits(left: pa.Array, right: pa.Array, op: Literal["&", "|", "^"]) -> pa.Array:
    return {"&": pc.bit_wise_and, "|": pc.bit_wise_or, "^": pc.bit_wise_xor}[op](left, right)


def other_bits(value: pa.Array) -> pa.Array:
    return pc.bit_wise_not(value)


def extreme(*arrays: pa.Array, op: str = ">") -> pa.Array:
    """`greatest` and `least`: NULLs are passed over."""
    found = arrays[0]
    for each in arrays[1:]:
        better = pc.or_(
            pc.fill_null(compare(each, found, op), False), pc.and_(found.is_null(), each.is_valid())
        )
        found = pc.if_else(better, each, found)
    return found


def greatest(*arrays: pa.Array) -> pa.Array:
    return extreme(*arrays, op=">")


def least(*arrays: pa.Array) -> pa.Array:
    return extreme(*arrays, op="<")


# casts


def widen(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """To a type that holds every value, or the nearest DOUBLE."""
    if pa.types.is_integer(array.type) and pa.types.is_floating(kind):
        return _made(_raw(array).astype(kind.to_pandas_dtype()), kind, array)
    if pa.types.is_decimal(array.type) and pa.types.is_floating(kind):
        # At most 15 digits: both are whole DOUBLEs, so that one division rounds as Java does.
        whole = np.frombuffer(array.buffers()[1], dtype=np.int64)[::2][
            array.offset : array.offset + len(array)
        ]
        known = _known(array)
        whole = whole if known is None else np.where(known, whole, 0)
        return _made(whole / 10.0**array.type.scale, kind, array)
    return array.cast(kind)


def to_integer(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """An integer, BOOLEAN or DOUBLE as an integer: what does not fit fails."""
    values = _raw(array)
    low, high = _bounds(kind)
    if pa.types.is_boolean(array.type):
        return _made(values.astype(kind.to_pandas_dtype()), kind, array)
    if pa.types.is_floating(array.type):
        # As Java: what is cut to a whole number has to fit; BIGINT's greatest is no DOUBLE.
        fits = (np.floor(values) <= high) & (np.ceil(values) >= low)
        if kind.bit_width == 64:
            fits = (np.floor(values) <= float(high)) & (np.ceil(values) >= float(low))
        _check(~fits, "CAST_OVERFLOW", f"a number does not fit into {kind}", array)
        with np.errstate(invalid="ignore"):
            cut = np.trunc(np.where(fits, values, 0.0))
            found = np.where(
                cut >= 2.0**63, np.iinfo(np.int64).max, np.where(cut >= 2.0**63, 0, cut).astype(np.int64)
            )
        return _made(found.astype(kind.to_pandas_dtype()), kind, array)
    _check((values < low) | (values > high), "CAST_OVERFLOW", f"a number does not fit into {kind}", array)
    return _made(values.astype(kind.to_pandas_dtype()), kind, array)


def to_boolean(array: pa.Array) -> pa.Array:
    return pc.not_equal(array, pa.scalar(0, array.type))


def whole_to_text(array: pa.Array) -> pa.Array:
    """Integers as text."""
    return array.cast(pa.string())


def boolean_to_text(array: pa.Array) -> pa.Array:
    return pc.if_else(array, "true", "false")


# times; ``name``: of the job's zone


def _wall(instants: pa.Array, name: str) -> Raw:
    return zone(name).to_wall(_raw(instants))


def to_date(instants: pa.Array, name: str) -> pa.Array:
    """TIMESTAMP as DATE."""
    days = np.floor_divide(_wall(instants, name), DAY_US)
    return _made(days.astype(np.int32), pa.int32(), instants)


def to_timestamp(dates: pa.Array, name: str) -> pa.Array:
    """DATE as TIMESTAMP: midnight."""
    days = _raw(dates).astype(np.int64)
    bad = np.abs(days) > 106_751_990
    _check(bad, "DATETIME_OVERFLOW", "a date is too far for a TIMESTAMP", dates)
    return _made(zone(name).to_instant(np.where(bad, 0, days) * DAY_US), _INT64, dates)


def wall_to_timestamp(walls: pa.Array, name: str) -> pa.Array:
    """TIMESTAMP_NTZ as TIMESTAMP."""
    return _made(zone(name).to_instant(_raw(walls)), _INT64, walls)


def timestamp_to_wall(instants: pa.Array, name: str) -> pa.Array:
    return _made(_wall(instants, name), _INT64, instants)


def add_days(dates: pa.Array, days: pa.Array, sign: int) -> pa.Array:
    """`date_add`, `date_sub`; wraps around as Spark does never: too far fails."""
    found = _raw(dates).astype(np.int64) + sign * _raw(days).astype(np.int64)
    return _narrow(found, pa.int32(), "a date is too far", dates, days)


def days_between(end: pa.Array, start: pa.Array) -> pa.Array:
    """`datediff` of DATEs."""
    return _narrow(
        _raw(end).astype(np.int64) - _raw(start), pa.int32(), "dates are too far apart", end, start
    )


def add_interval(instants: pa.Array, interval: pa.Array, sign: int, name: str) -> pa.Array:
    """Whole days on the zone's clock, then the rest."""
    time, by = _raw(instants), sign * _raw(interval)
    days = np.sign(by) * (np.abs(by) // DAY_US)
    rest = by - days * DAY_US
    own = zone(name)
    moved = _sum(time, rest, instants, interval) if not days.any() else None
    if moved is None:
        wall = _sum(own.to_wall(time), days * DAY_US, instants, interval)
        # Between two offsets of one wall-clock time Java keeps the one it had, where that is possible.
        there = np.where(days == 0, time, _kept(own, wall, own.offset_at(time)))
        moved = _sum(there, rest, instants, interval)
    return _made(moved, _INT64, instants, interval)


def _kept(own: Any, wall: Raw, offset: Raw) -> Raw:
    same = wall - offset
    instant = own.to_instant(wall)
    found: Raw = np.where(own.offset_at(same) == offset, same, instant)
    return found


def _sum(a: Raw, b: Raw, *arguments: pa.Array) -> Raw:
    with np.errstate(over="ignore"):
        found: Raw = a + b
    _check(((a ^ found) & (b ^ found)) < 0, "DATETIME_OVERFLOW", "a time is too far", *arguments)
    return found


def time_between(end: pa.Array, start: pa.Array, name: str) -> pa.Array:
    """The difference of two TIMESTAMPs on the zone's clock."""
    a, b = _wall(end, name), _wall(start, name)
    with np.errstate(over="ignore"):
        found = a - b
    _check(((a ^ b) & (a ^ found)) < 0, _OVERFLOW, "two times are too far apart", end, start)
    return _made(found, _INT64, end, start)


def time_part(instants: pa.Array, size: int, count: int, name: str) -> pa.Array:
    """`hour`, `minute`, `second`: how many of ``size`` µs since the last whole ``count`` of them."""
    found = np.floor_divide(_wall(instants, name), size) % count
    return _made(found.astype(np.int32), pa.int32(), instants)


def floor_time(instants: pa.Array, size: int, name: str) -> pa.Array:
    """`date_trunc` to units of one length up to a day."""
    time, own = _raw(instants), zone(name)
    wall = own.to_wall(time)
    wall = wall - wall % size
    found = own.to_instant(wall) if size == DAY_US else _kept(own, wall, own.offset_at(time))
    return _made(found, _INT64, instants)


_CALENDAR: dict[str, Callable[[pa.Array], pa.Array]] = {
    "year": pc.year,
    "month": pc.month,
    "day": pc.day,
    "quarter": pc.quarter,
    "dayofyear": pc.day_of_year,
    "weekofyear": pc.iso_week,
}


def date_part(dates: pa.Array, part: str) -> pa.Array:
    """`year`, `month`, … of DATEs."""
    if part in ("dayofweek", "weekday"):
        days = _raw(dates).astype(np.int64)
        found = (days + 4) % 7 + 1 if part == "dayofweek" else (days + 3) % 7  # a Thursday was the first
        return _made(found.astype(np.int32), pa.int32(), dates)
    return _CALENDAR[part](dates.view(pa.date32())).cast(pa.int32())


def unix_count(instants: pa.Array, size: int) -> pa.Array:
    """`unix_seconds` and its like."""
    return _made(np.floor_divide(_raw(instants), size), _INT64, instants)


def same(array: pa.Array) -> pa.Array:
    """What is there already."""
    return array


# texts


def length(text: pa.Array) -> pa.Array:
    """Characters."""
    return pc.utf8_length(text)


def byte_length(text: pa.Array) -> pa.Array:
    return pc.binary_length(text)


def concat(*texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*texts, "")


def reverse(text: pa.Array) -> pa.Array:
    return pc.utf8_reverse(text)


def left_of(text: pa.Array, count: int) -> pa.Array:
    return pc.utf8_slice_codeunits(text, 0, max(count, 0))


def piece(text: pa.Array, start: int, count: int | None) -> pa.Array:
    """`substring` from a place counted from 1."""
    return pc.utf8_slice_codeunits(text, start - 1, None if count is None else start - 1 + max(count, 0))


def is_like(text: pa.Array, pattern: str) -> pa.Array:
    """`LIKE` with a constant pattern without an escape."""
    return pc.match_like(text, pattern)
