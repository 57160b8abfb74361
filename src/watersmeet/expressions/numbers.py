"""Numbers: arithmetic, rounding, bits, and casts between numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from math import factorial as _of
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from watersmeet.expressions import base
from watersmeet.expressions.base import (
    INT64,
    OVERFLOW,
    ArrowFunction,
    Raw,
    arrow,
    bounds,
    build_array,
    fits_in_texts,
    narrow,
    raw,
    where_known,
)
from watersmeet.expressions.conditionals import coalesce, is_nan, nullif
from watersmeet.expressions.rules import Compiler, Restricted, Rule, arguments, computed, only, optional
from watersmeet.expressions.typed_tree import (
    TypedTree,
    UnsupportedExpression,
    as_decimal,
    call,
    constant,
    constant_value,
    decimal_parts,
    decimal_type,
    one_type,
    or_null,
    require,
    widen_value,
    wrap_constant_in_call,
)
from watersmeet.spec.model import Expr
from watersmeet.types.coercion import fit_decimal as decimal_within
from watersmeet.types.coercion import product_parts, quotient_parts, remainder_parts, sum_parts
from watersmeet.types.sql_type import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INT,
    INTEGERS,
    MAX_DECIMAL_DIGITS,
    REALS,
    SMALLINT,
    STRING,
    TINYINT,
    VOID,
    SqlType,
    decimal,
)

Overflows = Callable[[Raw, Raw, Raw], Raw]


def _operate(
    left: pa.Array,
    right: pa.Array,
    by_arrow: ArrowFunction,
    by_numpy: np.ufunc,
    overflows: Overflows,
    what: str,
) -> pa.Array:
    """Compute an operator of numbers of one type.

    Args:
        overflows: returns the mask of wrong 64-bit results, from both operands and the results.
        what: name of the result, for messages.
    """
    kind = left.type
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return by_arrow(left, right)
    a, b, problem = raw(left), raw(right), f"a {what} is too great or too small"
    if kind.bit_width < 64:
        return narrow(by_numpy(a.astype(np.int64), b), kind, problem, left, right)
    with np.errstate(over="ignore", divide="ignore"):
        made = by_numpy(a, b)
        bad = overflows(a, b, made)
    base.check(bad, OVERFLOW, problem, left, right)
    return build_array(made, kind, left, right)


@arrow("plus")
def plus(left: pa.Array, right: pa.Array) -> pa.Array:
    return _operate(left, right, pc.add, np.add, lambda a, b, sums: ((a ^ sums) & (b ^ sums)) < 0, "sum")


@arrow("minus")
def minus(left: pa.Array, right: pa.Array) -> pa.Array:
    return _operate(
        left, right, pc.subtract, np.subtract, lambda a, b, made: ((a ^ b) & (a ^ made)) < 0, "difference"
    )


@arrow("times")
def times(left: pa.Array, right: pa.Array) -> pa.Array:
    return _operate(left, right, pc.multiply, np.multiply, _product_overflows, "product")


def _product_overflows(a: Raw, b: Raw, products: Raw) -> Raw:
    least, divisor = np.iinfo(np.int64).min, np.where(b == 0, 1, b)
    bad = (products // divisor != a) | (products % divisor != 0)
    overflows: Raw = np.where(b == 0, False, bad) | ((a == least) & (b == -1)) | ((b == least) & (a == -1))
    return overflows


@arrow("minus_one")
def minus_one(value: pa.Array) -> pa.Array:
    """Compute ``-x``."""
    kind = value.type
    if not pa.types.is_integer(kind):
        return pc.negate(value)
    base.check(raw(value) == bounds(kind)[0], OVERFLOW, "a number has no negative", value)
    return pc.negate(value)


@arrow("absolute")
def absolute(value: pa.Array) -> pa.Array:
    if pa.types.is_integer(value.type):
        base.check(raw(value) == bounds(value.type)[0], OVERFLOW, "a number has no positive", value)
    return pc.abs(value)


@arrow("divide")
def divide(left: pa.Array, right: pa.Array) -> pa.Array:
    """Compute ``/`` of DOUBLEs."""
    a, b = raw(left), raw(right)
    base.check(b == 0, "DIVIDE_BY_ZERO", "division by zero", left, right)
    with np.errstate(all="ignore"):
        return build_array(a / np.where(b == 0, 1.0, b), pa.float64(), left, right)


@arrow("whole_quotient")
def whole_quotient(left: pa.Array, right: pa.Array) -> pa.Array:
    """Compute ``div`` of BIGINTs, rounded toward zero."""
    a, b = raw(left), raw(right)
    base.check(b == 0, "DIVIDE_BY_ZERO", "division by zero", left, right)
    bad = (a == np.iinfo(np.int64).min) & (b == -1)
    base.check(bad, OVERFLOW, "a quotient is too great", left, right)
    divisor = np.where((b == 0) | bad, 1, b)
    quotients = a // divisor
    quotients += ((a % divisor != 0) & ((a < 0) != (divisor < 0))).astype(np.int64)
    return build_array(quotients, INT64, left, right)


@arrow("remainder")
def remainder(left: pa.Array, right: pa.Array) -> pa.Array:
    """Compute ``%``; the result has the sign of the dividend."""
    return build_array(_remainders(raw(left), raw(right), left, right), left.type, left, right)


@arrow("positive_remainder")
def positive_remainder(left: pa.Array, right: pa.Array) -> pa.Array:
    """Compute `pmod`."""
    a, b = raw(left), raw(right)
    if pa.types.is_integer(left.type) and left.type.bit_width < 32:
        a, b = a.astype(np.int32), b.astype(np.int32)  # as Java, which has no narrower sums
    remainders = _remainders(a, b, left, right, positive=True)
    return build_array(remainders.astype(left.type.to_pandas_dtype()), left.type, left, right)


def _remainders(a: Raw, b: Raw, *arguments: pa.Array, positive: bool = False) -> Raw:
    base.check(b == 0, "REMAINDER_BY_ZERO", "remainder by zero", *arguments)
    divisor = np.where(b == 0, 1, b).astype(b.dtype)
    with np.errstate(all="ignore"):
        remainders: Raw = np.fmod(a, divisor)
        if not positive:
            return remainders
        return np.where(remainders < 0, np.fmod(remainders + divisor, divisor), remainders)


@arrow("bits")
def bits(left: pa.Array, right: pa.Array, op: Literal["&", "|", "^"]) -> pa.Array:
    return {"&": pc.bit_wise_and, "|": pc.bit_wise_or, "^": pc.bit_wise_xor}[op](left, right)


@arrow("other_bits")
def other_bits(value: pa.Array) -> pa.Array:
    return pc.bit_wise_not(value)


@arrow("to_integer")
def to_integer(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast an integer, BOOLEAN or DOUBLE to an integer; a value that does not fit fails."""
    values = raw(array)
    low, high = bounds(kind)
    if pa.types.is_boolean(array.type):
        return build_array(values.astype(kind.to_pandas_dtype()), kind, array)
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
        return build_array(integers.astype(kind.to_pandas_dtype()), kind, array)
    base.check((values < low) | (values > high), "CAST_OVERFLOW", f"a number does not fit into {kind}", array)
    return build_array(values.astype(kind.to_pandas_dtype()), kind, array)


@arrow("to_boolean")
def to_boolean(array: pa.Array) -> pa.Array:
    return pc.not_equal(array, pa.scalar(0, array.type))


@arrow("to_float")
def to_float(array: pa.Array) -> pa.Array:
    """Cast an integer or DOUBLE to the nearest FLOAT."""
    with np.errstate(over="ignore"):
        return build_array(raw(array).astype(np.float32), pa.float32(), array)


_TOO_GREAT = "a DECIMAL has too many digits"
_OUT_OF_RANGE = "NUMERIC_VALUE_OUT_OF_RANGE"
_MODES = {
    "up": "half_towards_infinity",
    "even": "half_to_even",
    "floor": "down",
    "ceil": "up",
    "cut": "towards_zero",
}


@arrow("rounded")
def round_decimal(number: pa.Array, kind: pa.DataType, digits: int, mode: str) -> pa.Array:
    """Compute `round`, `bround`, `floor` or `ceil` of DECIMALs.

    ``digits`` counts digits after the decimal point; negative values count digits before it.
    """
    return _narrow_decimal(pc.round(_wide(number), digits, round_mode=_MODES[mode]), kind, number)


@arrow("fitted")
def cast_to_decimal(number: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a DECIMAL or an integer to a DECIMAL."""
    if pa.types.is_boolean(number.type):
        number = number.cast(pa.int8())
    if pa.types.is_integer(number.type):
        number = number.cast(pa.decimal128(20 if number.type.bit_width == 64 else 10, 0))
    wide = _wide(number)
    if kind.scale < number.type.scale:
        wide = pc.round(wide, kind.scale, round_mode=_MODES["up"])
    return _narrow_decimal(wide, kind, number)


def _narrow_decimal(wide: pa.Array, kind: pa.DataType, *arguments: pa.Array) -> pa.Array:
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


@arrow("sum_of")
def sum_of(left: pa.Array, right: pa.Array, kind: pa.DataType, op: Literal["+", "-", "*"]) -> pa.Array:
    """Compute sums, differences and products of DECIMALs that may need more than 38 digits."""
    a, b = (
        operand.cast(pa.decimal256(operand.type.precision, operand.type.scale)) for operand in (left, right)
    )
    exact = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[op](a, b)
    if kind.scale < exact.type.scale:
        exact = pc.round(_wide(exact), kind.scale, round_mode=_MODES["up"])
    return _narrow_decimal(exact, kind, left, right)


@arrow("quotient")
def quotient(left: pa.Array, right: pa.Array, kind: pa.DataType) -> pa.Array:
    """Compute ``/`` of DECIMALs.

    Arrow truncates where Spark rounds, so Arrow computes one digit more.
    """
    zero = _is_zero(right)
    base.check(zero, "DIVIDE_BY_ZERO", "division by zero", left, right)
    if zero.any():
        right = pc.if_else(pa.array(zero), pa.scalar(_power(-right.type.scale), right.type), right)
    # Arrow gives so many digits behind the point: left.scale + right.precision - right.scale + 1
    more = kind.scale - left.type.scale - right.type.precision + right.type.scale
    a = left.cast(pa.decimal256(left.type.precision + more, left.type.scale + more))
    quotients = pc.divide(a, right.cast(pa.decimal256(right.type.precision, right.type.scale)))
    return _narrow_decimal(pc.round(_wide(quotients), kind.scale, round_mode=_MODES["up"]), kind, left, right)


@arrow("decimal_remainder")
def decimal_remainder(left: pa.Array, right: pa.Array, kind: pa.DataType, positive: bool) -> pa.Array:
    """Compute ``%`` or `pmod` of DECIMALs of one type with at most 18 digits.

    Args:
        kind: type of the result.
    """
    a, b = _extract_unscaled_digits(left), _extract_unscaled_digits(right)
    remainders = _remainders(a, b, left, right, positive=positive)
    return _build_decimals(remainders, left.type.scale, kind, left, right)


@arrow("whole_decimal_quotient")
def whole_decimal_quotient(left: pa.Array, right: pa.Array) -> pa.Array:
    """Compute ``div`` of DECIMALs of one type with at most 18 digits, as BIGINT."""
    a, b = _extract_unscaled_digits(left), _extract_unscaled_digits(right)
    base.check(b == 0, "DIVIDE_BY_ZERO", "division by zero", left, right)
    divisor = np.where(b == 0, 1, b)
    return build_array((a - np.fmod(a, divisor)) // divisor, INT64, left, right)


@arrow("decimal_to_integer")
def decimal_to_integer(number: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a DECIMAL to an integer; truncate the fraction."""
    cut = pc.round(_wide(number), 0, round_mode=_MODES["cut"])
    whole = cut.cast(pa.decimal256(76, 0), safe=False)
    low, high = (pa.scalar(bound, whole.type) for bound in base.bounds(kind))
    outside = pc.or_(pc.less(whole, low), pc.greater(whole, high))
    bad = pc.fill_null(outside, False).to_numpy(zero_copy_only=False)
    base.check(bad, "CAST_OVERFLOW", f"a number does not fit into {kind}", number)
    kept = pc.if_else(pa.array(bad), pa.scalar(None, whole.type), whole)
    return kept.cast(pa.decimal128(38, 0)).cast(kind)


@arrow("decimal_to_boolean")
def decimal_to_boolean(number: pa.Array) -> pa.Array:
    return pc.not_equal(number, pa.scalar(0, number.type))


def _is_zero(number: pa.Array) -> Raw:
    is_zero = pc.fill_null(pc.equal(number, pa.scalar(0, number.type)), False)
    zero: Raw = is_zero.to_numpy(zero_copy_only=False)
    return zero


def _extract_unscaled_digits(number: pa.Array) -> Raw:
    """Return the unscaled digits of DECIMALs with at most 18 digits; 0 for NULL."""
    low: Raw = np.frombuffer(number.buffers()[1], dtype=np.int64)[::2][
        number.offset : number.offset + len(number)
    ]
    not_null = where_known(number)
    return low if not_null is None else np.where(not_null, low, 0)


def _build_decimals(whole: Raw, scale: int, kind: pa.DataType, *arguments: pa.Array) -> pa.Array:
    bad = np.abs(whole) >= 10 ** (kind.precision - kind.scale + scale)
    base.check(bad, _OUT_OF_RANGE, _TOO_GREAT, *arguments)
    whole = np.where(bad, 0, whole)
    words = np.empty((len(whole), 2), dtype=np.int64)
    words[:, 0], words[:, 1] = whole, whole >> 63
    not_null = where_known(*arguments)
    valid = None if not_null is None else pa.array(not_null).buffers()[1]
    scaled = pa.Array.from_buffers(pa.decimal128(18, scale), len(whole), [valid, pa.py_buffer(words)])
    return scaled.cast(pa.decimal128(38, scale)).cast(kind)


@arrow("truth_as_real")
def truth_as_real(truth: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast BOOLEAN to FLOAT or DOUBLE."""
    return build_array(raw(truth).astype(kind.to_pandas_dtype()), kind, truth)


_DOUBLE = pa.float64()
_OF_ONE: dict[str, Callable[[Raw], Raw]] = {
    "sqrt": np.sqrt,
    "rint": np.rint,
    "degrees": lambda x: x * (180.0 / np.pi),
    "radians": lambda x: x * (np.pi / 180.0),
    "sign": lambda x: np.where(x == 0, x, np.sign(x)),
}


@arrow("real")
def real(x: pa.Array, function: str) -> pa.Array:
    """Compute `sqrt`, `rint`, `degrees`, `radians` or `sign`."""
    with np.errstate(all="ignore"):
        return build_array(_OF_ONE[function](raw(x)), _DOUBLE, x)


@arrow("whole_below")
def whole_below(x: pa.Array) -> pa.Array:
    """Compute `floor` of DOUBLEs as BIGINT."""
    return build_array(_long(np.floor(raw(x))), INT64, x)


@arrow("whole_above")
def whole_above(x: pa.Array) -> pa.Array:
    """Compute `ceil` of DOUBLEs as BIGINT."""
    return build_array(_long(np.ceil(raw(x))), INT64, x)


@arrow("bucket")
def bucket(value: pa.Array, low: pa.Array, high: pa.Array, count: pa.Array) -> pa.Array:
    """Compute `width_bucket`.

    The result is 0 before the first of ``count`` equal parts, and ``count`` + 1 after the last.
    """
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
    """Convert doubles to longs like Java.

    NaN becomes 0, and a value out of range becomes the minimum or maximum.
    """
    least, greatest = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    fits = (x >= -(2.0**63)) & (x < 2.0**63)
    longs: Raw = np.where(fits, x, 0.0).astype(np.int64)
    longs = np.where(x >= 2.0**63, greatest, longs)
    return np.where(x < -(2.0**63), least, longs)


_FACTORIALS = np.array([_of(n) for n in range(21)], dtype=np.int64)


@arrow("factorial")
def factorial(number: pa.Array) -> pa.Array:
    """Compute `factorial`: NULL below 0 or above 20."""
    n = raw(number)
    none = (n < 0) | (n > 20)
    not_null = where_known(number)
    factorials = _FACTORIALS[np.where(none, 0, n)]
    return pa.array(factorials, INT64, mask=none if not_null is None else none | ~not_null)


@arrow("shift")
def shift(number: pa.Array, places: pa.Array, way: Literal["<<", ">>", ">>>"]) -> pa.Array:
    """Shift the bits of INTs or BIGINTs.

    As in Java, the number of places counts modulo the bits of the type.
    """
    kind = number.type
    bits = kind.bit_width
    values = raw(number)
    by = (raw(places) & (bits - 1)).astype(values.dtype)
    if way == ">>":
        return build_array(values >> by, kind, number, places)
    unsigned = values.view(f"u{bits // 8}")
    own = by.astype(unsigned.dtype)
    shifted = unsigned << own if way == "<<" else unsigned >> own
    return build_array(shifted.view(values.dtype), kind, number, places)


@arrow("bit_count")
def bit_count(number: pa.Array) -> pa.Array:
    """Count the 1 bits of a number as a BIGINT."""
    values = raw(number).astype(np.int64).view(np.uint64)
    return build_array(np.bitwise_count(values).astype(np.int32), pa.int32(), number)


@arrow("bit_get")
def bit_get(number: pa.Array, place: pa.Array) -> pa.Array:
    bits = number.type.bit_width
    at = raw(place).astype(np.int64)
    bad = (at < 0) | (at >= bits)
    base.check(bad, "INVALID_PARAMETER_VALUE.BIT_POSITION_RANGE", "there is no such bit", number, place)
    one_bit = (raw(number).astype(np.int64) >> np.where(bad, 0, at)) & 1
    return build_array(one_bit.astype(np.int8), pa.int8(), number, place)


_BITS_OF_A_MAP = 32768


@arrow("place_in_bitmap")
def place_in_bitmap(number: pa.Array) -> pa.Array:
    """Compute `bitmap_bit_position`."""
    n = raw(number)
    with np.errstate(over="ignore"):
        places = np.fmod(np.where(n > 0, n - 1, -n), _BITS_OF_A_MAP)
    return build_array(places, INT64, number)


@arrow("number_of_bitmap")
def number_of_bitmap(number: pa.Array) -> pa.Array:
    """Compute `bitmap_bucket_number`."""
    n = raw(number)
    with np.errstate(over="ignore"):
        up = np.where(n > 0, n - 1, n)
        numbers = np.where(n > 0, 1 + up // _BITS_OF_A_MAP, -(-n // _BITS_OF_A_MAP))
        numbers = np.where(n == np.iinfo(np.int64).min, n // _BITS_OF_A_MAP, numbers)
    return build_array(numbers, INT64, number)


@arrow("digits")
def digits(number: pa.Array, of: Literal[2, 16]) -> pa.Array:
    """Compute `bin` or `hex` of BIGINTs: two's complement, without leading zeros."""
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


@arrow("round_whole")
def round_whole(number: pa.Array, zeros: int, even: bool) -> pa.Array:
    """Round integers to a multiple of a power of ten, for `round` and `bround`."""
    kind, values = number.type, raw(number).astype(np.int64)
    if zeros > 19:
        return build_array(np.zeros_like(values).astype(kind.to_pandas_dtype()), kind, number)
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
    return build_array(np.where(bad, 0, rounded).astype(kind.to_pandas_dtype()), kind, number)


_IN_64_BITS = 18
_SIGNS = {plus: "+", minus: "-", times: "*"}


def compile_arithmetic(
    compiler: Compiler, function: ArrowFunction, left: TypedTree, right: TypedTree
) -> TypedTree:
    """Compile ``+``, ``-`` or ``*`` of numbers.

    Raises:
        UnsupportedExpression: tasks do not support the types.
    """
    if _of_decimals(left, right):
        return _of_many_digits(function, left, right)
    require(STRING not in (left.type, right.type), "arithmetic with a text")
    alike = compiler.alike([left, right])
    require(alike[0].type in (*INTEGERS, *REALS), f"arithmetic with {alike[0].type}")
    return call(function, alike[0].type, *alike)


def compile_quotient(compiler: Compiler, left: TypedTree, right: TypedTree) -> TypedTree:
    """Compile ``/``."""
    if not _of_decimals(left, right):
        return call(divide, DOUBLE, as_double(compiler, left), as_double(compiler, right))
    divisor = _type(right)
    digits, scale = quotient_parts(_type(left), divisor)
    require(
        digits <= MAX_DECIMAL_DIGITS and scale + 1 + divisor.digits <= MAX_DECIMAL_DIGITS,
        "a quotient of DECIMALs of so many digits is rounded twice by Spark, and",
    )
    type_ = decimal_within(digits, scale)
    return call(quotient, type_, *_as_decimals(left, right), options=[("type", type_)])


def alike_integers(left: TypedTree, right: TypedTree, type_: SqlType | None = None) -> list[TypedTree]:
    """Widen integers to ``type_``, or to their common type. Raises: UnsupportedExpression."""
    require(
        left.type in INTEGERS and right.type in INTEGERS, f"{left.type} and {right.type} as whole numbers"
    )
    common = type_ or one_type([left.type, right.type])
    return [widen_value(left, common), widen_value(right, common)]


def compile_whole_quotient(_: Compiler, left: TypedTree, right: TypedTree) -> TypedTree:
    """Compile ``div``."""
    if not _of_decimals(left, right):
        return call(whole_quotient, BIGINT, *alike_integers(left, right, BIGINT))
    return call(whole_decimal_quotient, BIGINT, *_in_64_bits(left, right))


def compile_remainder(
    compiler: Compiler, left: TypedTree, right: TypedTree, function: ArrowFunction = remainder
) -> TypedTree:
    """Compile ``%``, and `pmod` with the function `positive_remainder`."""
    if not _of_decimals(left, right):
        return compile_arithmetic(compiler, function, left, right)
    type_ = decimal_within(*remainder_parts(_type(left), _type(right)))
    options = [("type", type_), function == positive_remainder]
    return call(decimal_remainder, type_, *_in_64_bits(left, right), options=options)


def _of_decimals(left: TypedTree, right: TypedTree) -> bool:
    types = (left.type, right.type)
    return any(type_.is_decimal for type_ in types) and not any(type_ in REALS for type_ in types)


def _of_many_digits(function: ArrowFunction, left: TypedTree, right: TypedTree) -> TypedTree:
    parts = product_parts if function == times else sum_parts
    digits, scale = parts(_type(left), _type(right))
    own, type_ = _as_decimals(left, right), decimal_within(digits, scale)
    if digits <= MAX_DECIMAL_DIGITS:
        return call(function, type_, *own)
    require(digits <= 2 * MAX_DECIMAL_DIGITS, "a product of so many digits")
    return call(sum_of, type_, *own, options=[("type", type_), _SIGNS[function]])


def _type(value: TypedTree) -> SqlType:
    """Return the DECIMAL type of a number.

    A literal integer has the digits that it is written with, except a TINYINT literal, which has those
    of its type.
    """
    if _is_literal(value):
        return decimal(len(str(abs(value.tree[1]))), 0)
    return as_decimal(value.type)


def _is_literal(value: TypedTree) -> bool:
    return value.tree[0] == "constant" and value.type in INTEGERS[1:] and value.tree[1] is not None


def _as_decimals(*values: TypedTree) -> list[TypedTree]:
    return [_as_decimal(value) for value in values]


def _as_decimal(value: TypedTree) -> TypedTree:
    type_ = _type(value)
    if _is_literal(value):
        return constant(str(value.tree[1]), type_)
    return widen_value(value, type_)


def _in_64_bits(left: TypedTree, right: TypedTree) -> list[TypedTree]:
    own = _as_decimals(left, right)
    common = one_type([operand.type for operand in own])
    require(as_decimal(common).digits <= _IN_64_BITS, "a remainder of DECIMALs of more than 18 digits")
    return [widen_value(operand, common) for operand in own]


as_small = only((TINYINT, SMALLINT, INT, VOID), "{} as INT", INT)
as_long = only((*INTEGERS, VOID), "{} as BIGINT", BIGINT)


def places(count: TypedTree) -> int:
    """Return the constant number of digits to round to.

    Raises:
        UnsupportedExpression: the number is not a constant integer from -38 to 38.
    """
    value = constant_value(count)
    require(count.type in INTEGERS and abs(value) <= 38, "rounding to this number of digits")
    return int(value)


def rounded_whole(value: TypedTree, digits: int, even: bool) -> TypedTree:
    if digits >= 0:
        return value
    return call(round_whole, value.type, value, options=[-digits, even])


def compile_shift(compiler: Compiler, way: str, number: TypedTree, by: TypedTree) -> TypedTree:
    own = (as_long if number.type == BIGINT else as_small)(compiler, number)
    return call(shift, BIGINT if number.type == BIGINT else INT, own, as_small(compiler, by), options=[way])


def compile_sign_change(function: ArrowFunction, value: TypedTree) -> TypedTree:
    """Compile ``-x`` or `abs`.

    Raises:
        UnsupportedExpression: not a number, or a DECIMAL with more than 34 digits, which Spark rounds.
    """
    require(
        value.type.is_number and (not value.type.is_decimal or decimal_parts(value.type)[0] <= 34),
        f"{function.__name__.replace('_', ' ')} of {value.type}",
    )
    return call(function, value.type, value)


def as_double(_: Compiler, value: TypedTree) -> TypedTree:
    """Widen a number to DOUBLE.

    Raises:
        UnsupportedExpression: the value is not a number.
    """
    require(value.type == VOID or value.type.is_number, f"{value.type} as DOUBLE")
    return widen_value(value, DOUBLE)


def _whole(function: ArrowFunction, mode: str) -> Rule:
    """Build the rule of `floor` or `ceil`."""

    def make(compiler: Compiler, value: TypedTree, count: TypedTree | None = None) -> TypedTree:
        if count is not None:
            require(
                value.type in INTEGERS or value.type.is_decimal,
                f"{mode} of {value.type} to a number of digits",
            )
            return _of_decimal(widen_value(value, as_decimal(value.type)), places(count), mode)
        if value.type.is_decimal:
            digits, scale = decimal_parts(value.type)
            if scale == 0:
                return value
            type_ = decimal_type(digits - scale + 1, 0)
            return call(round_decimal, type_, value, options=[("type", type_), 0, mode])
        if value.type in INTEGERS:
            return widen_value(value, BIGINT)
        return call(function, BIGINT, as_double(compiler, value))

    return optional(1, 2, make)


def _round(mode: str) -> Rule:
    def make(_: Compiler, value: TypedTree, count: TypedTree | None = None) -> TypedTree:
        digits = 0 if count is None else places(count)
        if value.type.is_decimal:
            return _of_decimal(value, digits, mode)
        if value.type in INTEGERS:
            return rounded_whole(value, digits, mode == "even")
        raise UnsupportedExpression(f"rounding {value.type}, which goes by how Java writes it,")

    return optional(1, 2, make)


def _of_decimal(value: TypedTree, to: int, mode: str) -> TypedTree:
    digits, scale = decimal_parts(value.type)
    before = digits - scale + 1
    if to < 0:
        type_ = decimal_type(max(before, -to + 1), 0)
    else:
        type_ = decimal_type(before + min(scale, to), min(scale, to))
    return call(round_decimal, type_, value, options=[("type", type_), min(to, scale), mode])


def _nanvl(compiler: Compiler, left: TypedTree, right: TypedTree) -> TypedTree:
    if (left.type, right.type) != (FLOAT, FLOAT):
        left, right = as_double(compiler, left), as_double(compiler, right)
    return compiler.case_of([call(is_nan, BOOLEAN, left)], [right], left)


def _isnan(compiler: Compiler, value: TypedTree) -> TypedTree:
    return call(is_nan, BOOLEAN, value if value.type == FLOAT else as_double(compiler, value))


def _build_try_rule(rule: Callable[[Compiler, TypedTree, TypedTree], TypedTree]) -> Rule:
    """Build the rule of `try_add` and similar functions: NULL where the operator fails."""

    def make(compiler: Compiler, left: TypedTree, right: TypedTree) -> TypedTree:
        require(left.type.is_number and right.type.is_number, f"{left.type} and {right.type} as numbers")
        return or_null(rule(compiler, left, right))

    return arguments(2, make)


def _nullifzero(compiler: Compiler, value: TypedTree) -> TypedTree:
    require(value.type.is_number, f"nullifzero of {value.type}")
    return nullif(compiler, value, constant(0, INT))


def _zeroifnull(compiler: Compiler, value: TypedTree) -> TypedTree:
    require(value.type.is_number, f"zeroifnull of {value.type}")
    return coalesce(compiler, value, constant(0, INT))


def _add_operator(name: type[Expr]) -> Rule:
    def rule(compiler: Compiler, nodes: Sequence[Expr]) -> TypedTree:
        require(len(nodes) == 2, "this number of arguments is not on the list")
        return compiler.of(name(this=nodes[0], expression=nodes[1]))

    return rule


def _numeric(value: TypedTree) -> TypedTree:
    require(value.type.is_number, f"arithmetic with {value.type}")
    return wrap_constant_in_call(value)


_TO_CONSTANT_DIGITS = "to a constant number of digits: of integers and DECIMALs"
_CONSTANT_DIGITS = "of integers and DECIMALs; the number of digits constant"
_ROUNDED_BY_SPARK = "of DECIMALs of up to 34 digits, beyond which Spark rounds"
_OF_NUMBERS = "of numbers; DECIMALs as far as their operators are computed"

FUNCTIONS: dict[str, Rule | Restricted] = {
    "factorial": Restricted(computed(factorial, BIGINT, as_small), "of TINYINT, SMALLINT and INT"),
    **{
        name: Restricted(
            arguments(2, lambda compiler, number, by, way=way: compile_shift(compiler, way, number, by)),
            "of integers, by an INT",
        )
        for name, way in (("shiftleft", "<<"), ("shiftright", ">>"), ("shiftrightunsigned", ">>>"))
    },
    "bit_count": computed(bit_count, INT, only((*INTEGERS, BOOLEAN), "bit_count of {}")),
    **dict.fromkeys(
        ("bit_get", "getbit"), computed(bit_get, TINYINT, only(INTEGERS, "bits of {}"), as_small)
    ),
    "bitmap_bit_position": computed(place_in_bitmap, BIGINT, as_long),
    "bitmap_bucket_number": computed(number_of_bitmap, BIGINT, as_long),
    "bin": Restricted(computed(digits, STRING, as_long, options=[2]), "of integers"),
    **{
        name: computed(real, DOUBLE, as_double, options=[name])
        for name in ("sqrt", "rint", "degrees", "radians", "sign")
    },
    "signum": computed(real, DOUBLE, as_double, options=["sign"]),
    "e": arguments(0, lambda _: constant(math.e, DOUBLE)),
    "pi": arguments(0, lambda _: constant(math.pi, DOUBLE)),
    "floor": Restricted(_whole(whole_below, "floor"), _TO_CONSTANT_DIGITS),
    "ceil": Restricted(_whole(whole_above, "ceil"), _TO_CONSTANT_DIGITS),
    "ceiling": Restricted(_whole(whole_above, "ceil"), _TO_CONSTANT_DIGITS),
    "round": Restricted(_round("up"), _CONSTANT_DIGITS),
    "bround": Restricted(_round("even"), _CONSTANT_DIGITS),
    "width_bucket": Restricted(
        computed(
            bucket,
            BIGINT,
            as_double,
            as_double,
            as_double,
            only(INTEGERS, "{} as a number of buckets", BIGINT),
        ),
        "of numbers",
    ),
    "nanvl": arguments(2, _nanvl),
    "abs": Restricted(arguments(1, lambda _, value: compile_sign_change(absolute, value)), _ROUNDED_BY_SPARK),
    "isnan": arguments(1, _isnan),
    "pmod": Restricted(arguments(2, partial(compile_remainder, function=positive_remainder)), _OF_NUMBERS),
    "mod": Restricted(_add_operator(exp.Mod), _OF_NUMBERS),
    "negative": Restricted(
        arguments(1, lambda _, value: compile_sign_change(minus_one, value)), _ROUNDED_BY_SPARK
    ),
    "positive": arguments(1, lambda _, value: _numeric(value)),
    "try_add": Restricted(
        _build_try_rule(lambda compiler, left, right: compile_arithmetic(compiler, plus, left, right)),
        _OF_NUMBERS,
    ),
    "try_subtract": Restricted(
        _build_try_rule(lambda compiler, left, right: compile_arithmetic(compiler, minus, left, right)),
        _OF_NUMBERS,
    ),
    "try_multiply": Restricted(
        _build_try_rule(lambda compiler, left, right: compile_arithmetic(compiler, times, left, right)),
        _OF_NUMBERS,
    ),
    "try_divide": Restricted(_build_try_rule(compile_quotient), _OF_NUMBERS),
    "try_mod": Restricted(_build_try_rule(compile_remainder), _OF_NUMBERS),
    "nullifzero": arguments(1, _nullifzero),
    "zeroifnull": arguments(1, _zeroifnull),
}
