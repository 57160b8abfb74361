"""Comparisons, NULL, NOT, IN, `greatest` and `least`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.expressions.functions.base import Raw, made, raw
from watersmeet.kernel.expressions.functions.nested import compare_nested
from watersmeet.kernel.expressions.held import is_nested


def compare(left: pa.Array, right: pa.Array, op: str) -> pa.Array:
    """``=``, ``<``, … of two arrays of one type. NaN is equal to itself and greater than all; -0.0 is 0.0."""
    kind = left.type
    if is_nested(kind):
        return compare_nested(left, right, op)
    if pa.types.is_string(kind):
        left, right = left.view(pa.binary()), right.view(pa.binary())
    elif pa.types.is_floating(kind):
        a, b = raw(left), raw(right)
        return made(_compare_reals(a, b, op), pa.bool_(), left, right)
    return {
        "=": pc.equal,
        "<>": pc.not_equal,
        "<": pc.less,
        "<=": pc.less_equal,
        ">": pc.greater,
        ">=": pc.greater_equal,
    }[op](left, right)


def _compare_reals(a: Raw, b: Raw, op: str) -> Raw:
    none_a, none_b = np.isnan(a), np.isnan(b)
    equal = (a == b) | (none_a & none_b)
    less = (a < b) | (none_b & ~none_a)
    by_op: dict[str, Raw] = {
        "=": equal,
        "<>": ~equal,
        "<": less,
        "<=": less | equal,
        ">": ~(less | equal),
        ">=": ~less,
    }
    return by_op[op]


def null_safe_equal(left: pa.Array, right: pa.Array) -> pa.Array:
    """NULL is equal to NULL."""
    equal = pc.fill_null(compare(left, right, "="), False)
    return pc.or_(equal, pc.and_(left.is_null(), right.is_null()))


def is_null(array: pa.Array) -> pa.Array:
    return array.is_null()


def is_not_null(array: pa.Array) -> pa.Array:
    return array.is_valid()


def is_nan(array: pa.Array) -> pa.Array:
    """Of NULL it is FALSE."""
    return pc.fill_null(pc.is_nan(array), False)


def negate(array: pa.Array) -> pa.Array:
    """NOT."""
    return pc.invert(array)


def is_in(value: pa.Array, *listed: pa.Array) -> pa.Array:
    """TRUE if one is equal; else NULL if one is NULL."""
    is_listed = compare(value, listed[0], "=")
    for option in listed[1:]:
        is_listed = pc.or_kleene(is_listed, compare(value, option, "="))
    return is_listed


def extreme(*arrays: pa.Array, op: str = ">") -> pa.Array:
    """`greatest` and `least`: NULLs are passed over."""
    best = arrays[0]
    for array in arrays[1:]:
        better = pc.or_(
            pc.fill_null(compare(array, best, op), False), pc.and_(best.is_null(), array.is_valid())
        )
        best = pc.if_else(better, array, best)
    return best


def greatest(*arrays: pa.Array) -> pa.Array:
    return extreme(*arrays, op=">")


def least(*arrays: pa.Array) -> pa.Array:
    return extreme(*arrays, op="<")
