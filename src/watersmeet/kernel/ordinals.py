"""Columns as int64 ordinals (`measure`) and as doubles. No copy of a column is made before rows are chosen.

`raw` is a view of a column's memory, `ordinals` and `reals` take rows of such views: looking at a few rows of
a long run costs those rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
