"""Convert columns to int64: event times to their canonical unit, values of bands to ordinals.

`raw` is a view of a column's memory, `ordinals` and `reals` take rows of such views: looking at a few rows of
a long run costs those rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import EngineError
from watersmeet.event_time import DAY_US, MAX_TIME, Times
from watersmeet.measure import Measure

Raw = npt.NDArray[Any]
Reals = npt.NDArray[np.float64]

NAN_ORDINAL = int(np.array(np.nan).view(np.int64))
"""Of NaN: the greatest."""

TEXT_BYTES = 8
"""Of a text that count; of the last byte its lowest bit does not."""

_MAGNITUDE = np.int64(MAX_TIME)
_DAYS = MAX_TIME // DAY_US


def raw(column: pa.Array) -> Raw:
    """Return the values of a column without NULLs as they lie in memory.

    A decimal has two words per value: [n, 2].
    """
    assert not column.null_count, "a band's column holds a NULL"
    kind = column.type
    if pa.types.is_decimal(kind):
        words = np.frombuffer(column.buffers()[1], dtype=np.int64).reshape(-1, 2)
        return words[column.offset : column.offset + len(column)]
    if pa.types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    values: Raw = column.to_numpy(zero_copy_only=True)
    return values


def ordinals_of(column: pa.Array, measure: Measure, rows: npt.NDArray[np.int64] | None = None) -> Times:
    """Compute the int64 ordinals of a column without NULLs, or of the chosen ``rows`` of it."""
    if measure.kind == "text":
        return text_ordinals(column, rows)
    values = raw(column)
    return ordinals(values if rows is None else values[rows], column.type, measure)


def text_ordinals(column: pa.Array, rows: npt.NDArray[np.int64] | None = None) -> Times:
    """Compute ordinals of strings from their first bytes, in Spark's order.

    Ordinals have 63 bits and start at -2**62, so that the difference of two never overflows int64. The
    function reads `TEXT_BYTES` bytes of each chosen row, regardless of its length.
    """
    assert not column.null_count, "a band's column holds a NULL"
    if not len(column):
        return np.zeros(0, dtype=np.int64)
    _, ends, held = column.buffers()
    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    places = np.frombuffer(ends, dtype=width)[column.offset :][: len(column) + 1].astype(np.int64)
    starts, stops = (places[:-1], places[1:]) if rows is None else (places[rows], places[rows + 1])
    data = np.zeros(1, dtype=np.uint8) if held is None or not held.size else np.frombuffer(held, np.uint8)
    leading_bytes = np.zeros(len(starts), dtype=np.uint64)
    at = starts.copy()
    last = len(data) - 1
    for _ in range(TEXT_BYTES):
        byte = np.where(at < stops, data[np.minimum(at, last)], 0).astype(np.uint64)
        leading_bytes = (leading_bytes << np.uint64(8)) | byte
        at += 1
    return (leading_bytes >> np.uint64(1)).view(np.int64) - np.int64(1 << 62)


def ordinals(values: Raw, kind: pa.DataType, measure: Measure) -> Times:
    """Compute the ordinals of values of a `raw` column of Arrow type ``kind``."""
    if measure.kind == "real":
        return real_ordinals(reals(values, kind))
    if measure.kind == "decimal":
        if pa.types.is_decimal(kind):  # 18 digits fit the lower word
            scaled: Times = values[:, 0] * np.int64(10 ** (measure.places - kind.scale))
            return scaled
        whole: Times = values.astype(np.int64) * np.int64(10**measure.places)
        return whole
    if pa.types.is_date(kind):
        return np.clip(values.astype(np.int64), -_DAYS, _DAYS) * np.int64(DAY_US)
    if pa.types.is_timestamp(kind) and kind.unit != "us":
        times: Times = pa.array(values).view(kind).cast(pa.timestamp("us")).view(pa.int64()).to_numpy()
        return times
    return values.astype(np.int64, copy=False)


def real_ordinals(values: Reals) -> Times:
    """Compute ordinals of doubles in their order: NaN is above everything, -0.0 equals 0.0."""
    plain = values + 0.0
    plain[np.isnan(plain)] = np.nan
    bits = plain.view(np.int64)
    return np.where(bits < 0, bits ^ _MAGNITUDE, bits)


def ordinals_to_reals(values: Times) -> Reals:
    """Convert ordinals back to the doubles that have them."""
    return np.where(values < 0, values ^ _MAGNITUDE, values).view(np.float64)


def reals(values: Raw, kind: pa.DataType) -> Reals:
    """Convert a `raw` numeric column to doubles, accurate to a few units in the last place."""
    if not pa.types.is_decimal(kind):
        return values.astype(np.float64, copy=False)
    low, high = values[:, 0].view(np.uint64), values[:, 1]
    negative = high < 0
    # of a negative value the complement, or the sum of two large words would lose it
    low = np.where(negative, ~low, low)
    high = np.where(negative, ~high, high)
    sized = high.astype(np.float64) * 2.0**64 + low.astype(np.float64)
    signed = np.where(negative, -1.0 - sized, sized)
    numbers: Reals = signed / 10.0**kind.scale
    return numbers


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
