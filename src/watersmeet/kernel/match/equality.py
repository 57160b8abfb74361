"""SQL equality of pairs of values, as Spark defines it: NaN = NaN, 0.0 = −0.0, NULL equals nothing (``=``) or
NULL (``<=>``)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.event_time import Mask
from watersmeet.kernel.batches import bound, cut_points, sizes, take_values
from watersmeet.kernel.match.probe import Rows

CHECKED_BYTES = 64 << 20
"""Of values that are compared at a time."""


def _plain(column: pa.Array) -> bool:
    """Return True for integers, dates and times without NULLs.

    numpy can compare them without a copy.
    """
    kind = column.type
    return column.null_count == 0 and bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))


def _as_numpy(column: pa.Array) -> Any:
    kind = column.type
    if pa.types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return column.to_numpy(zero_copy_only=True)


def equal_pairs(
    left: pa.Array, left_rows: Rows, right: pa.Array, right_rows: Rows, *, null_safe: bool
) -> Mask:
    """Compare ``left[left_rows[i]]`` with ``right[right_rows[i]]``: bool[n].

    Under ``=`` a NULL gives False.
    """
    if _plain(left) and _plain(right) and left.type == right.type:
        mask: Mask = _as_numpy(left)[left_rows] == _as_numpy(right)[right_rows]
        return mask
    if bound([left], left_rows) + bound([right], right_rows) <= CHECKED_BYTES:
        return equal_arrays(take_values(left, left_rows), take_values(right, right_rows), null_safe=null_safe)
    of_pairs = sizes([left], left_rows) + sizes([right], right_rows)
    masks = [
        equal_arrays(
            take_values(left, left_rows[a:b]), take_values(right, right_rows[a:b]), null_safe=null_safe
        )
        for a, b in pairwise(cut_points(of_pairs, CHECKED_BYTES))
    ]
    return np.concatenate(masks)


def equal_arrays(a: pa.Array, b: pa.Array, *, null_safe: bool) -> Mask:
    """Compare two arrays of equal length elementwise.

    Their types may differ if Arrow has a common type for them.
    """
    same = _compare(a, b)
    if null_safe and (a.null_count or b.null_count):
        both_null = pc.and_(pc.is_null(a), pc.is_null(b))
        same = pc.if_else(both_null, True, pc.fill_null(same, False))
    elif same.null_count:
        same = pc.fill_null(same, False)
    result: Mask = same.to_numpy(zero_copy_only=False).astype(np.bool_, copy=False)
    return result


def _same(x: Any, y: Any) -> bool:
    """Return True if two values are equal.

    Inside arrays and structs NULL equals NULL, and struct fields are compared by position.
    """
    if isinstance(x, list) and isinstance(y, list):
        return len(x) == len(y) and all(map(_same, x, y))
    if isinstance(x, dict) and isinstance(y, dict):
        return len(x) == len(y) and all(map(_same, x.values(), y.values()))
    if isinstance(x, float) and isinstance(y, float) and x != x and y != y:
        return True
    return bool(x == y)


def _compare(a: pa.Array, b: pa.Array) -> pa.Array:
    if pa.types.is_nested(a.type) or pa.types.is_nested(b.type):
        pairs = zip(a.to_pylist(), b.to_pylist(), strict=True)
        return pa.array([None if x is None or y is None else _same(x, y) for x, y in pairs], pa.bool_())
    if pa.types.is_null(a.type) or pa.types.is_null(b.type):
        return pa.nulls(len(a), pa.bool_())
    if pa.types.is_temporal(a.type) and pa.types.is_temporal(b.type) and a.type != b.type:
        a, b = a.cast(pa.timestamp("us"), safe=False), b.cast(pa.timestamp("us"), safe=False)
    same = pc.equal(a, b)
    if pa.types.is_floating(a.type) or pa.types.is_floating(b.type):
        a_nan = pc.is_nan(a.cast(pa.float64()))
        b_nan = pc.is_nan(b.cast(pa.float64()))
        same = pc.or_(same, pc.and_(a_nan, b_nan))
    return same
