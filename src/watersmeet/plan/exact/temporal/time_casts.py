"""Rule: casts from times and intervals, and to intervals; TIMESTAMPs of numbers."""

from __future__ import annotations

from watersmeet.plan.exact.values import (
    INTERVAL,
    INTERVAL_OF_MONTHS,
    Exact,
    NotExact,
    call,
    decimal_parts,
    interval_fields,
    widened,
)
from watersmeet.spec.time_zones import UTC
from watersmeet.types.intervals import UNIT_US
from watersmeet.types.sql_type import (
    BIGINT,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGERS,
    INTERVAL_FIELDS,
    TIMES,
    TIMESTAMP,
    SqlType,
)

FIELD_US = {field: UNIT_US[field.lower()] for field in INTERVAL_FIELDS[2:]}
_FIELD_MONTHS = {"YEAR": 12, "MONTH": 1}


def time_cast(value: Exact, to: SqlType, zone: str) -> Exact:
    """Where one of the types is a time or an interval, and none is text. Raises: NotExact."""
    own = value.type
    converted = None
    if own in TIMES and to in TIMES:
        converted = _between_times(value, to, zone)
    elif own == TIMESTAMP:
        converted = _as_number(value, to)
    elif to == TIMESTAMP:
        converted = _of_number(value)
    elif own.is_interval and to.is_interval:
        converted = _between_intervals(value, to)
    elif own.is_interval and to in INTEGERS:
        converted = _whole(call("interval_count", BIGINT, value, options=[_unit(own)]), to)
    elif own in INTEGERS and to.is_interval:
        kind = ("type", INTERVAL_OF_MONTHS if to.is_of_months else INTERVAL)
        converted = call("interval_of_count", to, value, options=[_unit(to), kind])
    if converted is None:
        raise NotExact(f"a cast from {own} to {to}")
    return converted


def _unit(type_: SqlType) -> int:
    """Of the last field, in µs or months."""
    last = interval_fields(type_)[1]
    return _FIELD_MONTHS.get(last) or FIELD_US[last]


def _between_times(value: Exact, to: SqlType, zone: str) -> Exact:
    own = value.type
    if to == own:
        return value
    if to == DATE:
        return call("to_date", to, value, options=[zone if own == TIMESTAMP else UTC])
    if own == DATE:
        return call("to_timestamp", to, value, options=[zone if to == TIMESTAMP else UTC])
    function = "wall_to_timestamp" if to == TIMESTAMP else "timestamp_to_wall"
    return call(function, to, value, options=[zone])


def _as_number(value: Exact, to: SqlType) -> Exact | None:
    if to in INTEGERS:
        return _whole(call("unix_count", BIGINT, value, options=[1_000_000]), to)
    return call("to_real_seconds", to, value) if to == DOUBLE else None


def _whole(count: Exact, to: SqlType) -> Exact:
    return count if to == BIGINT else call("to_integer", to, count, options=[("type", to)])


def _of_number(value: Exact) -> Exact | None:
    own = value.type
    if own in INTEGERS:
        return call("from_count", TIMESTAMP, value, options=[1_000_000, None])
    if own in (FLOAT, DOUBLE):
        return call("from_real_seconds", TIMESTAMP, widened(value, DOUBLE), options=[True])
    if not own.is_decimal or decimal_parts(own)[0] > 18:
        return None
    return call("from_decimal_seconds", TIMESTAMP, value, options=[False])


def _between_intervals(value: Exact, to: SqlType) -> Exact | None:
    if value.type.is_of_months != to.is_of_months:
        return None
    return call("cut_interval", to, value, options=[_unit(to)])
