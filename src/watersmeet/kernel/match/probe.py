"""Look rows up: by bands in sorted runs, and by prefixes of hashes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from watersmeet.conditions import (
    ExactBand,
    RealBand,
    RealColumn,
    RealComparison,
    RealExpr,
    RealSum,
    mirror_ends,
)
from watersmeet.event_time import MAX_TIME, MIN_TIME, Mask, Side, Times, saturate, saturating_add
from watersmeet.kernel.ordinals import NAN_ORDINAL, Raw, Reals, real_ordinals
from watersmeet.kernel.slots import BUCKET_MASK, Slots, offsets, order_of
from watersmeet.measure import Measured

# Band look-ups: which rows of a sorted run may match which needles.
#
# One probe is two binary searches per needle in the run's slots and an expansion of the ranges found; its
# cost is O(needles · log rows + candidates), never a scan. Candidates share 32 bits of hash with their
# needle and lie in the needle's time range coarsened by the run's shift: keys and exact times are checked
# by `pairs`.

Rows = npt.NDArray[np.int64]

CHUNK = 1_000_000
"""Candidates that are expanded at a time; those of one needle may come in several parts."""


@dataclass(frozen=True)
class Distances:
    """The interval [t + lower, t + upper] of partner times of a needle at time t.

    A None end is open. For needles within ``slack`` of an end of int64, where arithmetic on times
    saturates, the interval extends to that end.
    """

    lower: int | None
    upper: int | None
    slack: int = 0

    def around(self, times: Times) -> tuple[Times, Times]:
        """Compute the least and greatest partner time of each needle time, inclusive: int64[n] each."""
        low = np.full(len(times), MIN_TIME) if self.lower is None else saturating_add(times, self.lower)
        high = np.full(len(times), MAX_TIME) if self.upper is None else saturating_add(times, self.upper)
        if len(times) and self.slack:
            near_top = MAX_TIME - self.slack
            near_bottom = MIN_TIME + self.slack
            if times.max() >= near_top:
                at_top = times >= near_top
                low = np.where(at_top, np.minimum(low, near_top), low)
                high = np.where(at_top, MAX_TIME, high)
            if times.min() <= near_bottom:
                at_bottom = times <= near_bottom
                low = np.where(at_bottom, MIN_TIME, low)
                high = np.where(at_bottom, np.maximum(high, near_bottom), high)
        return low, high

    def over(self, low: int, high: int) -> tuple[int, int]:
        """Compute the least and greatest partner time of all needle times in [low, high]."""
        least = MIN_TIME if self.lower is None else saturate(low + self.lower)
        greatest = MAX_TIME if self.upper is None else saturate(high + self.upper)
        if self.slack and high >= MAX_TIME - self.slack:
            least, greatest = min(least, MAX_TIME - self.slack), MAX_TIME
        if self.slack and low <= MIN_TIME + self.slack:
            least, greatest = MIN_TIME, max(greatest, MIN_TIME + self.slack)
        return least, greatest


def ranges(
    buckets: Slots, low: Times, high: Times, slots: Slots, base: int, shift: int, greatest: int
) -> tuple[Rows, Rows]:
    """Find per needle the half-open range of positions in ``slots`` that may match.

    Args:
        buckets: the needles' hashes (the lower 32 bits are ignored), preferably in ascending order.
        low: the least partner times wanted, inclusive.
        high: the greatest partner times wanted, inclusive.
        slots: ascending slots of the run (or of a slice of it), encoded with ``base`` and ``shift``.
        greatest: the run's greatest time.

    Returns:
        (first, end), int64[n] each.
    """
    hit = (low <= greatest) & (high >= base)
    hits = np.count_nonzero(hit)
    # of a run from before, few needles may have partners in it: the others are not searched
    if 2 * hits > len(hit):
        first, end = _search_slots(buckets, low, high, slots, base, shift, greatest)
        return first, end if hits == len(hit) else np.where(hit, end, first)
    first, end = np.zeros((2, len(hit)), dtype=np.int64)
    chosen = np.flatnonzero(hit)
    first[chosen], end[chosen] = _search_slots(
        buckets[chosen], low[chosen], high[chosen], slots, base, shift, greatest
    )
    return first, end


def _search_slots(
    buckets: Slots, low: Times, high: Times, slots: Slots, base: int, shift: int, greatest: int
) -> tuple[Rows, Rows]:
    """Find per needle the half-open range of positions in ``slots`` that may match.

    Each needle's wanted times overlap the times of the run.
    """
    upper_half = buckets & BUCKET_MASK
    ends = np.minimum(np.maximum(np.array((low, high)), base), greatest)
    first_slot, last_slot = upper_half | offsets(ends, base, shift)
    first = slots.searchsorted(first_slot, side="left")
    # of several bands a needle's may have nothing in common: low is above high then
    return first, np.maximum(slots.searchsorted(last_slot, side="right"), first)


def expand(first: Rows, end: Rows) -> Iterator[tuple[Rows, Rows]]:
    """Yield all (needle, position) pairs of the ranges, about `CHUNK` pairs at a time.

    Needles are ascending.
    """
    counts = end - first
    hits = (counts > 0).nonzero()[0]
    if len(hits) == 0:
        return
    counts = counts[hits]
    totals = counts.cumsum()
    if totals[-1] <= CHUNK:
        yield hits.repeat(counts), (first[hits] - totals + counts).repeat(counts) + np.arange(totals[-1])
        return
    start = 0
    while start < len(hits):
        done = int(totals[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(totals, done + CHUNK, side="right")))
        if counts[start] > CHUNK:
            low, high = int(first[hits[start]]), int(end[hits[start]])
            for place in range(low, high, CHUNK):
                places = np.arange(place, min(place + CHUNK, high))
                yield np.full(len(places), hits[start]), places
            start += 1
            continue
        part = counts[start:stop]
        needles = np.repeat(hits[start:stop], part)
        offset = first[hits[start:stop]] - (totals[start:stop] - part - done)
        yield needles, np.repeat(offset, part) + np.arange(len(needles))
        start = stop


# Bands: by which values of one side's rows partners of the other side's rows can be found.
#
# A band turns values of needles into an interval of ordinals in which their partners' values lie. What is
# exact in int64 (`ExactBand`) decides, too; in floating point (`RealBand`) the interval is wide enough
# for all rounding, and the conjunct as written decides.


def distances(band: ExactBand, needles: Side, slack: int) -> Distances:
    """Return the distances from needles of the given side to their partners."""
    ends = (band.lower, band.upper)
    return Distances(*(ends if needles is Side.LEFT else mirror_ends(*ends)), slack)


class OrientedBand(NamedTuple):
    """A band as seen from needles of one side.

    Attributes:
        needles: Measured value of the needles.
        rows: Measured value of the other side's rows.
        distances: Distances that the band allows between the two values.
    """

    needles: Measured
    rows: Measured
    distances: Distances


def orient_band(band: ExactBand, needles: Side, slack: int) -> OrientedBand:
    """Return the band as seen from needles of the given side."""
    return OrientedBand(band.measured(needles), band.measured(needles.other), distances(band, needles, slack))


def partner_range(band: RealBand, needles: Side, values: Reals, greatest: int) -> tuple[Times, Times]:
    """Compute the least and greatest ordinal of each value's partners, inclusive: int64[n] each.

    Args:
        greatest: the greatest ordinal among the rows looked up.
    """
    ends = (band.lower, band.upper)
    lower, upper = ends if needles is Side.LEFT else mirror_ends(*ends)
    sizes = np.abs(values) + band.size
    wild = ~(sizes < band.limit)  # NaN, infinite, or so great that a sum may be
    sizes = np.where(wild, 0.0, sizes)
    values = np.where(wild, 0.0, values)
    off = sizes * band.error
    low, high = np.full(len(values), MIN_TIME), np.full(len(values), MAX_TIME)
    if lower is not None:
        low = np.where(wild, low, real_ordinals(values + lower - off))
    if upper is not None and not (needles.other in band.falls and greatest == NAN_ORDINAL):
        high = np.where(wild, high, real_ordinals(values + upper + off))
    return low, high


def pairs_in_band(band: RealBand, needles: Side, values: Reals, partners: Times) -> Mask:
    """Return a mask of the pairs that may be within the band.

    Args:
        partners: the ordinals of the needles' partners.
    """
    low, high = partner_range(band, needles, values, NAN_ORDINAL)
    mask: Mask = (partners >= low) & (partners <= high)
    return mask


def reals_hold(comparison: RealComparison, columns: Mapping[tuple[Side, str], Raw]) -> Mask:
    """Return a mask of the rows for which ``comparison`` is TRUE.

    Args:
        columns: raw columns by side and column name.
    """
    left, right = _evaluate(comparison.left, columns), _evaluate(comparison.right, columns)
    if np.isnan(left).any() or np.isnan(right).any():
        left, right = (real_ordinals(np.atleast_1d(values).astype(np.float64)) for values in (left, right))
    result: Mask = _COMPARE[comparison.op](left, right)
    return result


def _evaluate(expr: RealExpr, columns: Mapping[tuple[Side, str], Raw]) -> Any:
    match expr:
        case RealColumn(side, measured):
            return columns[side, measured.column]
        case RealSum(left, right, sign):
            a, b = _evaluate(left, columns), _evaluate(right, columns)
            with np.errstate(all="ignore"):
                return a + b if sign == 1 else a - b
    return np.float64(expr)  # a constant counts as a DOUBLE, beside a FLOAT too


_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}


# Finding rows by another key than the one by whose hashes they are sorted: the upper bits of that key's
# hashes in ascending order, and beside each the place of its row.
#
# As many bits do as tell the rows of a run apart: of up to 65,536 rows 16, else 32, and the same for
# places. So an entry takes 4 bytes, or 8, and about one row or less shares its bits with another key's
# needle; the keys themselves are compared by whoever looks up.

Prefixes: TypeAlias = "npt.NDArray[Any]"
"""uint16 or uint32."""

MAX_ROWS_16_BITS = 1 << 16
"""So many rows are told apart, and numbered, by 16 bits."""


@dataclass(frozen=True)
class SortedPrefixes:
    """Sorted hash prefixes of rows.

    Attributes:
        prefixes: Upper bits of the hashes, ascending.
        places: Row number of each prefix.
        keys: Number of distinct hashes, by 32 bits.
    """

    prefixes: Prefixes
    places: Prefixes
    keys: int


def sorted_prefixes(hashes: Slots) -> SortedPrefixes:
    """Build the sorted prefixes of the hashes of at most 2**32 rows, given in row order.

    Cost: one sort.
    """
    kind = np.dtype(np.uint16 if len(hashes) <= MAX_ROWS_16_BITS else np.uint32)
    order = order_of(_upper(hashes, 32))
    in_order = _upper(hashes, 32)[order]
    keys = int(np.count_nonzero(in_order[1:] != in_order[:-1])) + min(1, len(order))
    prefixes = in_order >> np.int64(32 - 8 * kind.itemsize)
    return SortedPrefixes(prefixes.astype(kind), order.astype(kind), keys)


def prefix_ranges(hashes: Slots, prefixes: Prefixes) -> tuple[Rows, Rows]:
    """Find per hash the range of positions in ``prefixes`` that share its upper bits.

    The ranges are half-open: int64[n] each for first and end.
    """
    sought = _upper(hashes, 8 * prefixes.itemsize).astype(prefixes.dtype)
    return np.searchsorted(prefixes, sought, side="left"), np.searchsorted(prefixes, sought, side="right")


def _upper(hashes: Slots, bits: int) -> Slots:
    """Return the upper bits of each hash as an unsigned number."""
    return (hashes.view(np.uint64) >> np.uint64(64 - bits)).view(np.int64)
