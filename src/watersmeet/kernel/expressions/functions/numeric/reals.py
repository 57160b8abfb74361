"""Functions of DOUBLEs that IEEE arithmetic defines to the last bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from watersmeet.kernel.expressions.functions.base import (
    INT64,
    Raw,
    made,
    raw,
    where_known,
)

_DOUBLE = pa.float64()
_OF_ONE: dict[str, Callable[[Raw], Raw]] = {
    "sqrt": np.sqrt,
    "rint": np.rint,
    "degrees": lambda x: x * (180.0 / np.pi),
    "radians": lambda x: x * (np.pi / 180.0),
    "sign": lambda x: np.where(x == 0, x, np.sign(x)),
}


def real(x: pa.Array, function: str) -> pa.Array:
    """`sqrt`, `rint`, `degrees`, `radians`, `sign`."""
    with np.errstate(all="ignore"):
        return made(_OF_ONE[function](raw(x)), _DOUBLE, x)


def whole_below(x: pa.Array) -> pa.Array:
    """`floor` of DOUBLEs as BIGINT."""
    return made(_long(np.floor(raw(x))), INT64, x)


def whole_above(x: pa.Array) -> pa.Array:
    """`ceil` of DOUBLEs as BIGINT."""
    return made(_long(np.ceil(raw(x))), INT64, x)


def bucket(value: pa.Array, low: pa.Array, high: pa.Array, count: pa.Array) -> pa.Array:
    """`width_bucket`: 0 before the first of ``count`` equal parts, ``count`` + 1 behind the last."""
    x, a, b, n = raw(value), raw(low), raw(high), raw(count)
    none = (
        (n <= 0) | (n == np.iinfo(np.int64).max) | np.isnan(x) | (a == b) | ~np.isfinite(a) | ~np.isfinite(b)
    )
    least, greatest = np.minimum(a, b), np.maximum(a, b)
    rising = a < b
    with np.errstate(all="ignore"):
        way = np.where(rising, x - least, greatest - x)
        inner = _long(n.astype(np.float64) * way / (greatest - least)) + 1
        before = np.where(rising, x < least, x > greatest)
        behind = np.where(rising, x >= greatest, x <= least)
        buckets = np.where(before, 0, np.where(behind, n + 1, inner))
    not_null = where_known(value, low, high, count)
    return pa.array(buckets, INT64, mask=none if not_null is None else none | ~not_null)


def _long(x: Raw) -> Raw:
    """As Java makes a long of a double: NaN is 0, and what is too great is the greatest."""
    least, greatest = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    fits = (x >= -(2.0**63)) & (x < 2.0**63)
    longs: Raw = np.where(fits, x, 0.0).astype(np.int64)
    longs = np.where(x >= 2.0**63, greatest, longs)
    return np.where(x < -(2.0**63), least, longs)
