"""Arithmetic, bits, and casts between numbers and BOOLEANs."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.expressions.functions import base
from watersmeet.kernel.expressions.functions.base import (
    INT64,
    OVERFLOW,
    bounds,
    made,
    narrow,
    raw,
    where_known,
)


def plus(left: pa.Array, right: pa.Array) -> pa.Array:
    kind = left.type
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return pc.add(left, right)
    a, b = raw(left), raw(right)
    if kind.bit_width < 64:
        return narrow(a.astype(np.int64) + b, kind, "a sum is too great or too small", left, right)
    with np.errstate(over="ignore"):
        sums = a + b
    base.check(((a ^ sums) & (b ^ sums)) < 0, OVERFLOW, "a sum is too great or too small", left, right)
    return made(sums, kind, left, right)


def minus(left: pa.Array, right: pa.Array) -> pa.Array:
    kind = left.type
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return pc.subtract(left, right)
    a, b = raw(left), raw(right)
    if kind.bit_width < 64:
        return narrow(a.astype(np.int64) - b, kind, "a difference is too great or too small", left, right)
    with np.errstate(over="ignore"):
        differences = a - b
    base.check(
        ((a ^ b) & (a ^ differences)) < 0, OVERFLOW, "a difference is too great or too small", left, right
    )
    return made(differences, kind, left, right)


def times(left: pa.Array, right: pa.Array) -> pa.Array:
    kind = left.type
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return pc.multiply(left, right)
    a, b = raw(left), raw(right)
    if kind.bit_width < 64:
        return narrow(a.astype(np.int64) * b, kind, "a product is too great or too small", left, right)
    least = np.iinfo(np.int64).min
    with np.errstate(over="ignore", divide="ignore"):
        products = a * b
        divisor = np.where(b == 0, 1, b)
        bad = (products // divisor != a) | (products % divisor != 0)
        bad = np.where(b == 0, False, bad) | ((a == least) & (b == -1)) | ((b == least) & (a == -1))
    base.check(bad, OVERFLOW, "a product is too great or too small", left, right)
    return made(products, kind, left, right)


def minus_one(value: pa.Array) -> pa.Array:
    """``-x``."""
    kind = value.type
    if not pa.types.is_integer(kind):
        return pc.negate(value)
    base.check(raw(value) == bounds(kind)[0], OVERFLOW, "a number has no negative", value)
    return pc.negate(value)


def absolute(value: pa.Array) -> pa.Array:
    if pa.types.is_integer(value.type):
        base.check(raw(value) == bounds(value.type)[0], OVERFLOW, "a number has no positive", value)
    return pc.abs(value)


def divide(left: pa.Array, right: pa.Array) -> pa.Array:
    """``/`` of DOUBLEs."""
    a, b = raw(left), raw(right)
    base.check(b == 0, "DIVIDE_BY_ZERO", "division by zero", left, right)
    with np.errstate(all="ignore"):
        return made(a / np.where(b == 0, 1.0, b), pa.float64(), left, right)


def whole_quotient(left: pa.Array, right: pa.Array) -> pa.Array:
    """``div`` of BIGINTs, towards zero."""
    a, b = raw(left), raw(right)
    base.check(b == 0, "DIVIDE_BY_ZERO", "division by zero", left, right)
    bad = (a == np.iinfo(np.int64).min) & (b == -1)
    base.check(bad, OVERFLOW, "a quotient is too great", left, right)
    divisor = np.where((b == 0) | bad, 1, b)
    quotients = a // divisor
    quotients += ((a % divisor != 0) & ((a < 0) != (divisor < 0))).astype(np.int64)
    return made(quotients, INT64, left, right)


def remainder(left: pa.Array, right: pa.Array) -> pa.Array:
    """``%``: it has the sign of the dividend."""
    a, b = raw(left), raw(right)
    base.check(b == 0, "REMAINDER_BY_ZERO", "remainder by zero", left, right)
    with np.errstate(all="ignore"):
        remainders = np.fmod(a, np.where(b == 0, 1, b).astype(b.dtype))
    return made(remainders, left.type, left, right)


def positive_remainder(left: pa.Array, right: pa.Array) -> pa.Array:
    """`pmod`."""
    a, b = raw(left), raw(right)
    if pa.types.is_integer(left.type) and left.type.bit_width < 32:
        a, b = a.astype(np.int32), b.astype(np.int32)  # as Java, which has no narrower sums
    base.check(b == 0, "REMAINDER_BY_ZERO", "remainder by zero", left, right)
    divisor = np.where(b == 0, 1, b).astype(b.dtype)
    with np.errstate(all="ignore"):
        remainders = np.fmod(a, divisor)
        remainders = np.where(remainders < 0, np.fmod(remainders + divisor, divisor), remainders)
    return made(remainders.astype(left.type.to_pandas_dtype()), left.type, left, right)


def bits(left: pa.Array, right: pa.Array, op: Literal["&", "|", "^"]) -> pa.Array:
    return {"&": pc.bit_wise_and, "|": pc.bit_wise_or, "^": pc.bit_wise_xor}[op](left, right)


def other_bits(value: pa.Array) -> pa.Array:
    return pc.bit_wise_not(value)


def widen(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """To a type that holds every value, or the nearest DOUBLE."""
    if pa.types.is_integer(array.type) and pa.types.is_floating(kind):
        return made(raw(array).astype(kind.to_pandas_dtype()), kind, array)
    if pa.types.is_decimal(array.type) and pa.types.is_floating(kind):
        # At most 15 digits: both are whole DOUBLEs, so that one division rounds as Java does.
        whole = np.frombuffer(array.buffers()[1], dtype=np.int64)[::2][
            array.offset : array.offset + len(array)
        ]
        not_null = where_known(array)
        whole = whole if not_null is None else np.where(not_null, whole, 0)
        return made(whole / 10.0**array.type.scale, kind, array)
    return array.cast(kind)


def to_integer(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """An integer, BOOLEAN or DOUBLE as an integer: what does not fit fails."""
    values = raw(array)
    low, high = bounds(kind)
    if pa.types.is_boolean(array.type):
        return made(values.astype(kind.to_pandas_dtype()), kind, array)
    if pa.types.is_floating(array.type):
        values = values.astype(np.float64)
        # As Java: what is cut to a whole number has to fit; BIGINT's greatest is no DOUBLE.
        fits = (np.floor(values) <= high) & (np.ceil(values) >= low)
        if kind.bit_width == 64:
            fits = (np.floor(values) <= float(high)) & (np.ceil(values) >= float(low))
        base.check(~fits, "CAST_OVERFLOW", f"a number does not fit into {kind}", array)
        with np.errstate(invalid="ignore"):
            cut = np.trunc(np.where(fits, values, 0.0))
            integers = np.where(
                cut >= 2.0**63, np.iinfo(np.int64).max, np.where(cut >= 2.0**63, 0, cut).astype(np.int64)
            )
        return made(integers.astype(kind.to_pandas_dtype()), kind, array)
    base.check((values < low) | (values > high), "CAST_OVERFLOW", f"a number does not fit into {kind}", array)
    return made(values.astype(kind.to_pandas_dtype()), kind, array)


def to_boolean(array: pa.Array) -> pa.Array:
    return pc.not_equal(array, pa.scalar(0, array.type))


def to_float(array: pa.Array) -> pa.Array:
    """An integer or DOUBLE as the nearest FLOAT."""
    with np.errstate(over="ignore"):
        return made(raw(array).astype(np.float32), pa.float32(), array)
