"""Dates, times and intervals. ``name``: of the job's zone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.functions import base
from watersmeet.kernel.functions.base import DAY_US, INT64, OVERFLOW, Raw, made, narrow, raw
from watersmeet.zones import zone


def _wall(instants: pa.Array, name: str) -> Raw:
    return zone(name).to_wall(raw(instants))


def to_date(instants: pa.Array, name: str) -> pa.Array:
    """TIMESTAMP as DATE."""
    days = np.floor_divide(_wall(instants, name), DAY_US)
    return made(days.astype(np.int32), pa.int32(), instants)


def to_timestamp(dates: pa.Array, name: str) -> pa.Array:
    """DATE as TIMESTAMP: midnight."""
    days = raw(dates).astype(np.int64)
    bad = np.abs(days) > 106_751_990
    base.check(bad, "DATETIME_OVERFLOW", "a date is too far for a TIMESTAMP", dates)
    return made(zone(name).to_instant(np.where(bad, 0, days) * DAY_US), INT64, dates)


def wall_to_timestamp(walls: pa.Array, name: str) -> pa.Array:
    """TIMESTAMP_NTZ as TIMESTAMP."""
    return made(zone(name).to_instant(raw(walls)), INT64, walls)


def timestamp_to_wall(instants: pa.Array, name: str) -> pa.Array:
    return made(_wall(instants, name), INT64, instants)


def add_days(dates: pa.Array, days: pa.Array, sign: int) -> pa.Array:
    """`date_add`, `date_sub`; wraps around as Spark does never: too far fails."""
    found = raw(dates).astype(np.int64) + sign * raw(days).astype(np.int64)
    return narrow(found, pa.int32(), "a date is too far", dates, days)


def days_between(end: pa.Array, start: pa.Array) -> pa.Array:
    """`datediff` of DATEs."""
    return narrow(raw(end).astype(np.int64) - raw(start), pa.int32(), "dates are too far apart", end, start)


def add_interval(instants: pa.Array, interval: pa.Array, sign: int, name: str) -> pa.Array:
    """Whole days on the zone's clock, then the rest."""
    time, by = raw(instants), sign * raw(interval)
    days = np.sign(by) * (np.abs(by) // DAY_US)
    rest = by - days * DAY_US
    own = zone(name)
    moved = _sum(time, rest, instants, interval) if not days.any() else None
    if moved is None:
        wall = _sum(own.to_wall(time), days * DAY_US, instants, interval)
        # Between two offsets of one wall-clock time Java keeps the one it had, where that is possible.
        there = np.where(days == 0, time, _kept(own, wall, own.offset_at(time)))
        moved = _sum(there, rest, instants, interval)
    return made(moved, INT64, instants, interval)


def _kept(own: Any, wall: Raw, offset: Raw) -> Raw:
    same = wall - offset
    instant = own.to_instant(wall)
    found: Raw = np.where(own.offset_at(same) == offset, same, instant)
    return found


def _sum(a: Raw, b: Raw, *arguments: pa.Array) -> Raw:
    with np.errstate(over="ignore"):
        found: Raw = a + b
    base.check(((a ^ found) & (b ^ found)) < 0, "DATETIME_OVERFLOW", "a time is too far", *arguments)
    return found


def time_between(end: pa.Array, start: pa.Array, name: str) -> pa.Array:
    """The difference of two TIMESTAMPs on the zone's clock."""
    a, b = _wall(end, name), _wall(start, name)
    with np.errstate(over="ignore"):
        found = a - b
    base.check(((a ^ b) & (a ^ found)) < 0, OVERFLOW, "two times are too far apart", end, start)
    return made(found, INT64, end, start)


def time_part(instants: pa.Array, size: int, count: int, name: str) -> pa.Array:
    """`hour`, `minute`, `second`: how many of ``size`` µs since the last whole ``count`` of them."""
    found = np.floor_divide(_wall(instants, name), size) % count
    return made(found.astype(np.int32), pa.int32(), instants)


def floor_time(instants: pa.Array, size: int, name: str) -> pa.Array:
    """`date_trunc` to units of one length up to a day."""
    time, own = raw(instants), zone(name)
    wall = own.to_wall(time)
    wall = wall - wall % size
    found = own.to_instant(wall) if size == DAY_US else _kept(own, wall, own.offset_at(time))
    return made(found, INT64, instants)


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
        days = raw(dates).astype(np.int64)
        found = (days + 4) % 7 + 1 if part == "dayofweek" else (days + 3) % 7  # a Thursday was the first
        return made(found.astype(np.int32), pa.int32(), dates)
    return _CALENDAR[part](dates.view(pa.date32())).cast(pa.int32())


def unix_count(instants: pa.Array, size: int) -> pa.Array:
    """`unix_seconds` and its like."""
    return made(np.floor_divide(raw(instants), size), INT64, instants)
