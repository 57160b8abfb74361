"""Which pairs bring a sum of integers out of its type, where Spark stops with ARITHMETIC_OVERFLOW.

They are sought among the rows of two sides without looking at every pair: both sides are halved by the values
of the sum's columns until a part holds no such pair, only such pairs, or few.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from watersmeet.conditions import IntegerSum
from watersmeet.event_time import Mask, Side, Times
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.ordinals import ordinals_to_reals
from watersmeet.measure import Measure, Measured

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
