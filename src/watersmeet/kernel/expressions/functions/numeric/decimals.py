"""DECIMALs: rounding, quotients, remainders, casts, and results of more digits than 38, by Spark's rules.

Computed in 256 bits without loss, then rounded once, half away from zero; what does not fit fails.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.expressions.functions import base
from watersmeet.kernel.expressions.functions.base import (
    INT64,
    Raw,
    made,
    raw,
    where_known,
)

_TOO_GREAT = "a DECIMAL has too many digits"
_OUT_OF_RANGE = "NUMERIC_VALUE_OUT_OF_RANGE"
_MODES = {
    "up": "half_towards_infinity",
    "even": "half_to_even",
    "floor": "down",
    "ceil": "up",
    "cut": "towards_zero",
}


def rounded(number: pa.Array, kind: pa.DataType, digits: int, mode: str) -> pa.Array:
    """`round`, `bround`, `floor` and `ceil` of DECIMALs: to so many digits behind the point, or before it."""
    return _fitted(pc.round(_wide(number), digits, round_mode=_MODES[mode]), kind, number)


def fitted(number: pa.Array, kind: pa.DataType) -> pa.Array:
    """A DECIMAL or an integer as another DECIMAL."""
    if pa.types.is_boolean(number.type):
        number = number.cast(pa.int8())
    if pa.types.is_integer(number.type):
        number = number.cast(pa.decimal128(20 if number.type.bit_width == 64 else 10, 0))
    wide = _wide(number)
    if kind.scale < number.type.scale:
        wide = pc.round(wide, kind.scale, round_mode=_MODES["up"])
    return _fitted(wide, kind, number)


def _fitted(wide: pa.Array, kind: pa.DataType, *arguments: pa.Array) -> pa.Array:
    before = kind.precision - kind.scale
    if before + wide.type.scale < 76:
        limit = pa.scalar(_power(before), pa.decimal256(76, wide.type.scale))
        bad = pc.fill_null(pc.greater_equal(pc.abs(wide), limit), False).to_numpy(zero_copy_only=False)
    else:
        bad = np.zeros(len(wide), dtype=np.bool_)
    if bad.any():
        base.check(bad, _OUT_OF_RANGE, _TOO_GREAT, *arguments)
        wide = pc.if_else(pa.array(bad), pa.scalar(None, wide.type), wide)
    if kind.scale < wide.type.scale:
        wide = wide.cast(pa.decimal256(76, kind.scale), safe=False)
    return wide.cast(kind)


def _wide(number: pa.Array) -> pa.Array:
    return number.cast(pa.decimal256(76, number.type.scale))


def _power(of_ten: int) -> Decimal:
    return Decimal((0, (1,), of_ten))


def sum_of(left: pa.Array, right: pa.Array, kind: pa.DataType, op: Literal["+", "-", "*"]) -> pa.Array:
    """Sums, differences and products of more than 38 digits."""
    a, b = (
        operand.cast(pa.decimal256(operand.type.precision, operand.type.scale)) for operand in (left, right)
    )
    exact = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[op](a, b)
    if kind.scale < exact.type.scale:
        exact = pc.round(_wide(exact), kind.scale, round_mode=_MODES["up"])
    return _fitted(exact, kind, left, right)


def quotient(left: pa.Array, right: pa.Array, kind: pa.DataType) -> pa.Array:
    """``/``. Arrow cuts where Spark rounds: it is asked for one digit more."""
    zero = _is_zero(right)
    base.check(zero, "DIVIDE_BY_ZERO", "division by zero", left, right)
    if zero.any():
        right = pc.if_else(pa.array(zero), pa.scalar(_power(-right.type.scale), right.type), right)
    # Arrow gives so many digits behind the point: left.scale + right.precision - right.scale + 1
    more = kind.scale - left.type.scale - right.type.precision + right.type.scale
    a = left.cast(pa.decimal256(left.type.precision + more, left.type.scale + more))
    quotients = pc.divide(a, right.cast(pa.decimal256(right.type.precision, right.type.scale)))
    return _fitted(pc.round(_wide(quotients), kind.scale, round_mode=_MODES["up"]), kind, left, right)


def decimal_remainder(left: pa.Array, right: pa.Array, kind: pa.DataType, positive: bool) -> pa.Array:
    """``%`` and `pmod` of DECIMALs of one type of at most 18 digits; ``kind``: of the result."""
    a, b = _unscaled(left), _unscaled(right)
    base.check(b == 0, "REMAINDER_BY_ZERO", "remainder by zero", left, right)
    divisor = np.where(b == 0, 1, b)
    remainders = np.fmod(a, divisor)
    if positive:
        remainders = np.where(remainders < 0, np.fmod(remainders + divisor, divisor), remainders)
    return _scaled(remainders, left.type.scale, kind, left, right)


def whole_decimal_quotient(left: pa.Array, right: pa.Array) -> pa.Array:
    """``div`` of DECIMALs of one type of at most 18 digits, as BIGINT."""
    a, b = _unscaled(left), _unscaled(right)
    base.check(b == 0, "DIVIDE_BY_ZERO", "division by zero", left, right)
    divisor = np.where(b == 0, 1, b)
    return made((a - np.fmod(a, divisor)) // divisor, INT64, left, right)


def decimal_to_integer(number: pa.Array, kind: pa.DataType) -> pa.Array:
    """What is behind the point is cut off."""
    cut = pc.round(_wide(number), 0, round_mode=_MODES["cut"])
    whole = cut.cast(pa.decimal256(76, 0), safe=False)
    low, high = (pa.scalar(bound, whole.type) for bound in base.bounds(kind))
    outside = pc.or_(pc.less(whole, low), pc.greater(whole, high))
    bad = pc.fill_null(outside, False).to_numpy(zero_copy_only=False)
    base.check(bad, "CAST_OVERFLOW", f"a number does not fit into {kind}", number)
    kept = pc.if_else(pa.array(bad), pa.scalar(None, whole.type), whole)
    return kept.cast(pa.decimal128(38, 0)).cast(kind)


def decimal_to_boolean(number: pa.Array) -> pa.Array:
    return pc.not_equal(number, pa.scalar(0, number.type))


def _is_zero(number: pa.Array) -> Raw:
    is_zero = pc.fill_null(pc.equal(number, pa.scalar(0, number.type)), False)
    zero: Raw = is_zero.to_numpy(zero_copy_only=False)
    return zero


def _unscaled(number: pa.Array) -> Raw:
    """The digits as whole numbers, of DECIMALs of at most 18; 0 for NULL."""
    low: Raw = np.frombuffer(number.buffers()[1], dtype=np.int64)[::2][
        number.offset : number.offset + len(number)
    ]
    not_null = where_known(number)
    return low if not_null is None else np.where(not_null, low, 0)


def _scaled(whole: Raw, scale: int, kind: pa.DataType, *arguments: pa.Array) -> pa.Array:
    bad = np.abs(whole) >= 10 ** (kind.precision - kind.scale + scale)
    base.check(bad, _OUT_OF_RANGE, _TOO_GREAT, *arguments)
    whole = np.where(bad, 0, whole)
    words = np.empty((len(whole), 2), dtype=np.int64)
    words[:, 0], words[:, 1] = whole, whole >> 63
    not_null = where_known(*arguments)
    valid = None if not_null is None else pa.array(not_null).buffers()[1]
    scaled = pa.Array.from_buffers(pa.decimal128(18, scale), len(whole), [valid, pa.py_buffer(words)])
    return scaled.cast(pa.decimal128(38, scale)).cast(kind)


def truth_as_real(truth: pa.Array, kind: pa.DataType) -> pa.Array:
    """BOOLEAN as FLOAT or DOUBLE."""
    return made(raw(truth).astype(kind.to_pandas_dtype()), kind, truth)
