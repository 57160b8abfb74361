"""The slot: one int64 per row that a run is sorted by and that is its whole index.

``slot = hash's upper 32 bits << 32 | (time - base) >> shift``. The upper half groups rows with (most likely)
equal keys, the lower half orders them by time, or by the ordinals of another index (`measure`), which count
as times here; ``base`` is the run's least time and ``shift`` coarsens the time so that the run's span fits 32
bits. Slots of different runs are not comparable in their lower halves,
but their upper halves are, so hash ranges with borders at multiples of 2**32 cut every run alike.

Equal slots do not mean equal keys or times: whoever looks up checks both.

Without a key there is nothing to hash: there the slot is the index value itself (`SortedRows.by_value`), and
ranges of values cut runs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from watersmeet.event_time import MAX_TIME, MIN_TIME, Times

Slots = npt.NDArray[np.int64]

TIME_BITS = 32
TIME_MASK = np.int64((1 << TIME_BITS) - 1)
BUCKET_MASK = np.int64(~int(TIME_MASK))
BORDER_BITS = 44
FEW_RUNS = 32
"""Up to so many ascending stretches are merged rather than sorted."""


def order_of(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The positions that sort ``values`` (at most 2**32 of them); equal ones stay in their order.

    A sort that need not keep the order of equal values is several times faster; their order is mended after.
    """
    if np.count_nonzero(values[1:] < values[:-1]) < FEW_RUNS:
        return np.argsort(values, kind="stable")
    order = np.argsort(values)
    sorted_values = values[order]
    rises = sorted_values[1:] != sorted_values[:-1]
    if rises.all():
        return order
    places = np.zeros(len(values), dtype=np.uint64)
    np.cumsum(rises, out=places[1:])
    places = (places << np.uint64(32)) | order.view(np.uint64)
    places.sort()
    return (places & np.uint64(0xFFFF_FFFF)).view(np.int64)


def shift_for(least: int, greatest: int) -> int:
    """By how many bits times of a run between ``least`` and ``greatest`` are coarsened."""
    return max(0, (greatest - least).bit_length() - TIME_BITS)


def offsets(times: Times, base: int, shift: int) -> Slots:
    """``(times - base) >> shift`` for times ≥ base; exact over all of int64."""
    distance = times.view(np.uint64) - np.uint64(base & 0xFFFF_FFFF_FFFF_FFFF)
    return (distance >> np.uint64(shift)).view(np.int64)


def encode(buckets: Slots, times: Times, base: int, shift: int) -> Slots:
    """Slots of rows. ``buckets``: int64, lower 32 bits ignored; ``times`` in [base, base + 2**(32+shift))."""
    return (buckets & BUCKET_MASK) | offsets(times, base, shift)


def borders(partitions: int) -> list[int]:
    """``partitions + 1`` borders of the int64 hash space: multiples of 2**44, the last one 2**63.

    Partition p owns the hashes in [borders[p], borders[p+1]).
    """
    prefixes = 1 << (64 - BORDER_BITS)
    cuts = [((p * prefixes) // partitions << BORDER_BITS) + MIN_TIME for p in range(partitions)]
    return [*cuts, MAX_TIME + 1]


def buckets_in(slots: Slots) -> int:
    """How many different upper halves sorted slots have."""
    upper = slots >> np.int64(TIME_BITS)
    return int(np.count_nonzero(upper[1:] != upper[:-1])) + min(1, len(slots))


def slice_of(slots: Slots, low: int, high: int) -> tuple[int, int]:
    """The half-open range of positions in sorted ``slots`` whose hashes lie in [low, high)."""
    start = 0 if low <= MIN_TIME else int(np.searchsorted(slots, np.int64(low), side="left"))
    stop = len(slots) if high > MAX_TIME else int(np.searchsorted(slots, np.int64(high), side="left"))
    return start, stop
