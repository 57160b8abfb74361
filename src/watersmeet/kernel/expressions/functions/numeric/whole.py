"""Functions of integers: bits, rounding to tens and hundreds, factorials, digits in base 2 and 16."""

from __future__ import annotations

from math import factorial as _of
from typing import Literal

import numpy as np
import pyarrow as pa

from watersmeet.kernel.expressions.functions import base
from watersmeet.kernel.expressions.functions.base import (
    INT64,
    bounds,
    fits_in_texts,
    made,
    raw,
    where_known,
)

_FACTORIALS = np.array([_of(n) for n in range(21)], dtype=np.int64)


def factorial(number: pa.Array) -> pa.Array:
    """NULL for what is below 0 or above 20."""
    n = raw(number)
    none = (n < 0) | (n > 20)
    not_null = where_known(number)
    factorials = _FACTORIALS[np.where(none, 0, n)]
    return pa.array(factorials, INT64, mask=none if not_null is None else none | ~not_null)


def shift(number: pa.Array, places: pa.Array, way: Literal["<<", ">>", ">>>"]) -> pa.Array:
    """Of INTs and BIGINTs; the places are counted modulo the bits of the type, as Java does."""
    kind = number.type
    bits = kind.bit_width
    values = raw(number)
    by = (raw(places) & (bits - 1)).astype(values.dtype)
    if way == ">>":
        return made(values >> by, kind, number, places)
    unsigned = values.view(f"u{bits // 8}")
    own = by.astype(unsigned.dtype)
    shifted = unsigned << own if way == "<<" else unsigned >> own
    return made(shifted.view(values.dtype), kind, number, places)


def bit_count(number: pa.Array) -> pa.Array:
    """Of the number as a BIGINT."""
    values = raw(number).astype(np.int64).view(np.uint64)
    return made(np.bitwise_count(values).astype(np.int32), pa.int32(), number)


def bit_get(number: pa.Array, place: pa.Array) -> pa.Array:
    bits = number.type.bit_width
    at = raw(place).astype(np.int64)
    bad = (at < 0) | (at >= bits)
    base.check(bad, "INVALID_PARAMETER_VALUE.BIT_POSITION_RANGE", "there is no such bit", number, place)
    one_bit = (raw(number).astype(np.int64) >> np.where(bad, 0, at)) & 1
    return made(one_bit.astype(np.int8), pa.int8(), number, place)


_BITS_OF_A_MAP = 32768


def place_in_bitmap(number: pa.Array) -> pa.Array:
    """`bitmap_bit_position`."""
    n = raw(number)
    with np.errstate(over="ignore"):
        places = np.fmod(np.where(n > 0, n - 1, -n), _BITS_OF_A_MAP)
    return made(places, INT64, number)


def number_of_bitmap(number: pa.Array) -> pa.Array:
    """`bitmap_bucket_number`."""
    n = raw(number)
    with np.errstate(over="ignore"):
        up = np.where(n > 0, n - 1, n)
        numbers = np.where(n > 0, 1 + up // _BITS_OF_A_MAP, -(-n // _BITS_OF_A_MAP))
        numbers = np.where(n == np.iinfo(np.int64).min, n // _BITS_OF_A_MAP, numbers)
    return made(numbers, INT64, number)


def digits(number: pa.Array, of: Literal[2, 16]) -> pa.Array:
    """`bin` and `hex` of BIGINTs: two's complement, without leading zeros."""
    octets = raw(number).astype(">i8").view(np.uint8).reshape(-1, 8)
    if of == 2:
        places = np.unpackbits(octets, axis=1)
    else:
        places = np.stack([octets >> 4, octets & 15], axis=2).reshape(-1, 16)
    width = places.shape[1]
    first = np.where(places.any(axis=1), (places != 0).argmax(axis=1), width - 1)
    letters = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8)[places]
    lengths = width - first
    not_null = where_known(number)
    if not_null is not None:
        lengths = np.where(not_null, lengths, 0)
    fits_in_texts(int(lengths.sum()))
    written = letters[np.arange(width) >= (width - lengths)[:, None]]
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    valid = None if not_null is None else pa.array(not_null).buffers()[1]
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(written), valid)


def round_whole(number: pa.Array, zeros: int, even: bool) -> pa.Array:
    """`round` and `bround` of integers to a multiple of a power of ten."""
    kind, values = number.type, raw(number).astype(np.int64)
    if zeros > 19:
        return made(np.zeros_like(values).astype(kind.to_pandas_dtype()), kind, number)
    size = np.where(values < 0, -values.view(np.uint64), values.view(np.uint64))
    unit = np.uint64(10**zeros)
    rest = size % unit
    left = unit - rest
    up = (rest > left) | ((rest == left) & ((size // unit) % np.uint64(2) == 1)) if even else rest >= left
    size = size - rest + np.where(up & (rest > 0), unit, np.uint64(0))
    low, high = bounds(kind)
    bad = size > np.where(values < 0, np.uint64(-low), np.uint64(high))
    base.check(bad, base.OVERFLOW, "a rounded number is too great or too small", number)
    rounded = np.where(values < 0, (~size + np.uint64(1)).view(np.int64), size.view(np.int64))
    return made(np.where(bad, 0, rounded).astype(kind.to_pandas_dtype()), kind, number)
