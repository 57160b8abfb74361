"""Event times between Arrow's types and the canonical int64 (see `event_time`)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import EngineError
from watersmeet.event_time import DAY_US, MAX_TIME

_DAYS = MAX_TIME // DAY_US
"""Later dates (after the year 290,000) and earlier ones are taken for this one; those of sources have no time
(`known_times`)."""


def to_canonical(column: pa.Array) -> pa.Array:
    """Convert an event-time column to int64: µs for timestamps and dates, integers as they are.

    NULLs stay.
    """
    kind = column.type
    if pa.types.is_int64(kind):
        return column
    if pa.types.is_integer(kind):
        return column.cast(pa.int64())
    if pa.types.is_timestamp(kind):
        if kind.unit == "us":
            return column.view(pa.int64())
        return column.cast(pa.timestamp("us", kind.tz)).view(pa.int64())
    if pa.types.is_date32(kind):
        days = column.view(pa.int32()).cast(pa.int64())
        inside = pc.max_element_wise(
            pc.min_element_wise(days, _DAYS, skip_nulls=False), -_DAYS, skip_nulls=False
        )
        return pc.multiply(inside, DAY_US)
    raise EngineError(f"{kind} cannot be the type of an event time", code="event-time-type")


def known_times(column: pa.Array) -> pa.Array:
    """Convert an event-time column to int64; out-of-range DATEs become NULL.

    Other values convert as in `to_canonical`. A DATE is out of range if int64 cannot represent it in µs
    (about 292,000 years). `to_canonical` clips such a date to another day, on which it would match
    other rows.
    """
    times = to_canonical(column)
    if not pa.types.is_date32(column.type):
        return times
    days = column.view(pa.int32())
    outside = pc.or_(pc.greater(days, _DAYS), pc.less(days, -_DAYS))
    if not pc.any(outside).as_py():  # NULLs are passed over
        return times
    return pc.if_else(outside, pa.scalar(None, pa.int64()), times)


def to_native(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert canonical times back to their native type; the inverse of `to_canonical`.

    A column that already has its native type is returned unchanged.
    """
    if column.type == kind:
        return column
    if pa.types.is_timestamp(kind):
        return column.view(kind)
    if pa.types.is_date32(kind):
        days = np.floor_divide(column.fill_null(0).to_numpy(), np.int64(DAY_US)).astype(np.int32)
        mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        return pa.array(days, type=pa.int32(), mask=mask).view(pa.date32())
    return column.cast(kind)
