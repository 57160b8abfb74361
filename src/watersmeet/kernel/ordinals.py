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

_MAGNITUDE = np.int64(MAX_TIME)
_DAYS = MAX_TIME // DAY_US


def raw(column: pa.Array) -> Raw:
    """The values of a column without NULLs, as they lie in memory; of a decimal its two words, [n, 2]."""
    assert not column.null_count, "a band's column holds a NULL"
    kind = column.type
    if pa.types.is_decimal(kind):
        words = np.frombuffer(column.buffers()[1], dtype=np.int64).reshape(-1, 2)
        return words[column.offset : column.offset + len(column)]
    if pa.types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    found: Raw = column.to_numpy(zero_copy_only=True)
    return found


def ordinals(values: Raw, kind: pa.DataType, measure: Measure) -> Times:
    """The ordinals of values of a `raw` column of Arrow type ``kind``."""
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
    """Doubles by their order: NaN above everything, -0.0 as 0.0."""
    plain = values + 0.0
    plain[np.isnan(plain)] = np.nan
    bits = plain.view(np.int64)
    return np.where(bits < 0, bits ^ _MAGNITUDE, bits)


def ordinals_to_reals(values: Times) -> Reals:
    """The doubles that have these ordinals."""
    return np.where(values < 0, values ^ _MAGNITUDE, values).view(np.float64)


def reals(values: Raw, kind: pa.DataType) -> Reals:
    """Values of a `raw` numeric column as doubles, right but for a few units in the last place."""
    if not pa.types.is_decimal(kind):
        return values.astype(np.float64, copy=False)
    low, high = values[:, 0].view(np.uint64), values[:, 1]
    negative = high < 0
    # of a negative value the complement, or the sum of two large words would lose it
    low = np.where(negative, ~low, low)
    high = np.where(negative, ~high, high)
    sized = high.astype(np.float64) * 2.0**64 + low.astype(np.float64)
    signed = np.where(negative, -1.0 - sized, sized)
    found: Reals = signed / 10.0**kind.scale
    return found
