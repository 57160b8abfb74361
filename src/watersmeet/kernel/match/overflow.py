"""Check pairs: SQL equality of their values, and sums of integers that leave their type.

Pairs that overflow are found without testing every pair: both sides are halved by the values of the sum's
columns until a part has no such pair, only such pairs, or few pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.conditions import IntegerSum
from watersmeet.event_time import Mask, Side, Times
from watersmeet.kernel.batches import bound, cut_points, sizes, take_values
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.ordinals import ordinals_to_reals
from watersmeet.measure import Measure, Measured

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


MAX_PAIRS_CHECKED = 1 << 18
"""Pairs that are looked at one by one rather than halved again."""

Spans = Mapping[str, tuple[int, int]]
"""Least and greatest ordinal by the name of what is measured."""

Ordinals = Mapping[tuple[Side, Measured], Times]
"""Per column of a sum the ordinals of its side's rows (or of its side of pairs)."""


def may_leave_type(added: IntegerSum, spans: Mapping[Side, Spans]) -> bool:
    """Return True if the sum may overflow its type for values within these spans."""
    low, high = _ends(added, spans)
    return min(low) < added.least or max(high) > added.most


def parts_leaving_type(
    added: IntegerSum, ordinals: Ordinals, rows: Mapping[Side, int]
) -> Iterator[dict[Side, Rows]]:
    """Yield parts of both sides that cover every pair for which the sum may overflow its type.

    Each pair is in at most one part. A small part may consist mostly of pairs that do not overflow.

    Args:
        ordinals: the ordinals of all rows.
        rows: the number of rows per side.

    Yields:
        the row numbers per side, ascending.
    """
    parts = [{side: np.arange(count) for side, count in rows.items()}]
    while parts:
        part = parts.pop()
        if not all(len(rows_of_side) for rows_of_side in part.values()):
            continue
        spans: dict[Side, dict[str, tuple[int, int]]] = {side: {} for side in Side}
        for side, measured, _ in added.terms:
            values = ordinals[side, measured][part[side]]
            spans[side][measured.name] = int(values.min()), int(values.max())
        low, high = _ends(added, spans)
        if min(low) >= added.least and max(high) <= added.most:
            continue
        certain = max(low) < added.least or min(high) > added.most
        if certain or len(part[Side.LEFT]) * len(part[Side.RIGHT]) <= MAX_PAIRS_CHECKED:
            yield part
            continue
        side, measured = _widest(added, spans)
        least, most = spans[side][measured.name]
        if least == most:
            yield part
            continue
        below = ordinals[side, measured][part[side]] <= least + (most - least) // 2
        parts.append({**part, side: part[side][~below]})
        parts.append({**part, side: part[side][below]})


def leaves_type(added: IntegerSum, ordinals: Ordinals, pairs: int) -> Mask:
    """Return a mask of the pairs for which the sum may overflow its type: bool[pairs].

    The mask contains every pair that overflows, and hardly any other pair.
    """
    total, size = np.zeros(pairs), np.zeros(pairs)
    for side, measured, factor in added.terms:
        values = ordinals[side, measured]
        if measured.measure.kind == "real":
            numbers = ordinals_to_reals(values)
        else:
            numbers = values / float(10**measured.measure.places)
        total += factor * numbers
        size += np.abs(factor * numbers)
    size += max(abs(added.low), abs(added.high))
    off = np.where(size < 2.0**50, 0.0, size * 2.0**-48)  # doubles are exact below
    mask: Mask = (total + added.low - off < added.least) | (total + added.high + off > added.most)
    return mask


def _ends(added: IntegerSum, spans: Mapping[Side, Spans]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Compute the interval of the sum's least value and the interval of its greatest value."""
    least, most = 0, 0
    for side, measured, factor in added.terms:
        ends = _values(measured.measure, *spans[side][measured.name])
        least += factor * ends[0 if factor > 0 else 1]
        most += factor * ends[1 if factor > 0 else 0]
    return (least + added.low, most + added.low), (least + added.high, most + added.high)


def _widest(added: IntegerSum, spans: Mapping[Side, Spans]) -> tuple[Side, Measured]:
    """Return the column whose values contribute the widest range to the sum, and its side."""

    def width(term: tuple[Side, Measured, int]) -> int:
        side, measured, factor = term
        least, most = _values(measured.measure, *spans[side][measured.name])
        return abs(factor) * (most - least)

    side, measured, _ = max(added.terms, key=width)
    return side, measured


def _values(measure: Measure, least: int, most: int) -> tuple[int, int]:
    """Return whole numbers between which all values with these ordinals lie."""
    if measure.kind == "real":  # doubles near them
        ends = ordinals_to_reals(np.array([least, most], dtype=np.int64))
        off = 2**11 if np.abs(ends).max() >= 2.0**53 else 0
        return int(ends[0]) - off, int(ends[1]) + off
    unit = 10**measure.places
    return least // unit, -(-most // unit)
