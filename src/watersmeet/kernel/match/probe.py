"""Band look-ups: which rows of a sorted run may match which needles.

One probe is two binary searches per needle in the run's slots and an expansion of the ranges found; its cost
is O(needles · log rows + candidates), never a scan. Candidates share 32 bits of hash with their needle and
lie in the needle's time range coarsened by the run's shift: keys and exact times are checked by `pairs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from watersmeet.event_time import MAX_TIME, MIN_TIME, Times, saturate, saturating_add
from watersmeet.kernel.slots import BUCKET_MASK, Slots, offsets

Rows = npt.NDArray[np.int64]

CHUNK = 1_000_000
"""Candidates that are expanded at a time; those of one needle may come in several parts."""


@dataclass(frozen=True)
class Distances:
    """How far from a needle's time t those of its partners may be: they are in [t + lower, t + upper].

    None is open. ``slack``: for needles within it of an end of int64, where arithmetic on times saturates,
    they reach to that end.
    """

    lower: int | None
    upper: int | None
    slack: int = 0

    def around(self, times: Times) -> tuple[Times, Times]:
        """Least and greatest partner time of each needle time, inclusive. int64[n], int64[n]."""
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
        """Least and greatest partner time of all needle times in [low, high]."""
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
    """Per needle the half-open range of positions in ``slots`` that may match: (first, end), int64[n] each.

    Args:
        buckets: the needles' hashes (lower 32 bits ignored), best in ascending order.
        low, high: the partner times wanted, inclusive.
        slots: ascending slots of the run (or of a slice of it), encoded with ``base`` and ``shift``.
        greatest: the run's greatest time.
    """
    hit = (low <= greatest) & (high >= base)
    hits = np.count_nonzero(hit)
    # of a run from before, few needles may have partners in it: the others are not searched
    if 2 * hits > len(hit):
        first, end = _sought(buckets, low, high, slots, base, shift, greatest)
        return first, end if hits == len(hit) else np.where(hit, end, first)
    first, end = np.zeros((2, len(hit)), dtype=np.int64)
    chosen = np.flatnonzero(hit)
    first[chosen], end[chosen] = _sought(
        buckets[chosen], low[chosen], high[chosen], slots, base, shift, greatest
    )
    return first, end


def _sought(
    buckets: Slots, low: Times, high: Times, slots: Slots, base: int, shift: int, greatest: int
) -> tuple[Rows, Rows]:
    """The same of needles that the run's times may have."""
    upper_half = buckets & BUCKET_MASK
    ends = np.minimum(np.maximum(np.array((low, high)), base), greatest)
    first_slot, last_slot = upper_half | offsets(ends, base, shift)
    first = slots.searchsorted(first_slot, side="left")
    # of several bands a needle's may have nothing in common: low is above high then
    return first, np.maximum(slots.searchsorted(last_slot, side="right"), first)


def expand(first: Rows, end: Rows) -> Iterator[tuple[Rows, Rows]]:
    """All (needle, position) pairs of the ranges, needles ascending, about `CHUNK` pairs at a time."""
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
