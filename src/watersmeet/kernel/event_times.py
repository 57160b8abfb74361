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
    """An event-time column as int64: µs for timestamps and dates, itself for integers. NULLs stay."""
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
    """An event-time column as int64, as of `to_canonical`, with NULLs also where a DATE is farther off than
    int64 can say in µs (about 292,000 years): by the day that it would be taken for it would meet others."""
    times = to_canonical(column)
    if not pa.types.is_date32(column.type):
        return times
    days = column.view(pa.int32())
    outside = pc.or_(pc.greater(days, _DAYS), pc.less(days, -_DAYS))
    if not pc.any(outside).as_py():  # NULLs are passed over
        return times
    return pc.if_else(outside, pa.scalar(None, pa.int64()), times)


def to_native(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The inverse of `to_canonical`; a column that has its native type already is returned as it is."""
    if column.type == kind:
        return column
    if pa.types.is_timestamp(kind):
        return column.view(kind)
    if pa.types.is_date32(kind):
        days = np.floor_divide(column.fill_null(0).to_numpy(), np.int64(DAY_US)).astype(np.int32)
        mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        return pa.array(days, type=pa.int32(), mask=mask).view(pa.date32())
    return column.cast(kind)
