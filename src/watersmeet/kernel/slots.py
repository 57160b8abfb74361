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
_Unsigned = npt.NDArray[np.uint64]

TIME_BITS = 32
TIME_MASK = np.int64((1 << TIME_BITS) - 1)
BUCKET_MASK = np.int64(~int(TIME_MASK))
BORDER_BITS = 44
MAX_MERGED_RUNS = 32
"""Up to so many ascending stretches are merged rather than sorted."""


def order_of(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the positions that sort ``values`` (at most 2**32); equal ones stay in their order.

    16-bit numbers are sorted by counting, and values that span at most 32 bits by two such halves.
    Other values are sorted with their positions in their lower bits, since numpy sorts numbers faster
    than it computes an argsort; values that differ only in bits that do not fit are then sorted once
    more by these bits.
    """
    if np.count_nonzero(values[1:] < values[:-1]) < MAX_MERGED_RUNS:
        return values.argsort(kind="stable")
    distances = values.view(np.uint64) - values.min().view(np.uint64)
    span_bits, place_bits = int(distances.max()).bit_length(), (len(values) - 1).bit_length()
    if span_bits <= 32:
        return _argsort_by_halves(distances, span_bits)
    left_out = max(0, span_bits + place_bits - 64)
    packed = _pack_positions(distances >> np.uint64(left_out), place_bits)
    order = (packed & _low_bits_mask(place_bits)).view(np.int64)
    if left_out:
        packed >>= np.uint64(place_bits)
        _sort_ties(order, packed, distances, left_out)
    return order


def sorted_unique(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the distinct values, ascending.

    For a few values this is cheaper than `numpy.unique`.
    """
    if len(values) < 2:
        return values
    values = np.sort(values)
    is_other = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=is_other[1:])
    return values[is_other]


def _argsort_by_halves(values: _Unsigned, bits: int) -> Slots:
    order = np.argsort(values.astype(np.uint16), kind="stable")
    if bits > 16:
        upper = (values >> np.uint64(16)).astype(np.uint16)
        order = order[np.argsort(upper[order], kind="stable")]
    return order


def _sort_ties(order: Slots, upper: _Unsigned, distances: _Unsigned, left_out: int) -> None:
    """Put rows of equal ``upper`` (ascending; all but some bits) into the order of those bits, in place."""
    same = upper[1:] == upper[:-1]
    if not same.any():
        return
    places = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
    groups = np.zeros(len(places), dtype=np.uint64)
    np.cumsum(upper[places[1:]] != upper[places[:-1]], out=groups[1:])
    rows = order[places]
    lower = distances[rows] & _low_bits_mask(left_out)
    place_bits = (len(places) - 1).bit_length()
    if int(groups[-1]).bit_length() + left_out + place_bits > 64:
        order[places] = rows[np.lexsort((lower, groups))]
        return
    packed = _pack_positions((groups << np.uint64(left_out)) | lower, place_bits)
    order[places] = rows[(packed & _low_bits_mask(place_bits)).view(np.int64)]


def _pack_positions(values: _Unsigned, place_bits: int) -> _Unsigned:
    """Sort ``values`` with each value's position in the bits below it.

    The upper ``place_bits`` bits of ``values`` must be free.
    """
    packed = (values << np.uint64(place_bits)) | np.arange(len(values), dtype=np.uint64)
    packed.sort()
    return packed


def _low_bits_mask(bits: int) -> np.uint64:
    return np.uint64((1 << bits) - 1)


def shift_for(least: int, greatest: int) -> int:
    """Compute the number of bits by which a run coarsens its times.

    The run's times lie between ``least`` and ``greatest``.
    """
    return max(0, (greatest - least).bit_length() - TIME_BITS)


def offsets(times: Times, base: int, shift: int) -> Slots:
    """Compute ``(times - base) >> shift`` for times ≥ base; exact over all of int64."""
    distance = times.view(np.uint64) - np.uint64(base & 0xFFFF_FFFF_FFFF_FFFF)
    return (distance >> np.uint64(shift)).view(np.int64)


def encode(buckets: Slots, times: Times, base: int, shift: int) -> Slots:
    """Encode the slots of rows from hashes and times.

    Args:
        buckets: the hashes, int64; the lower 32 bits are ignored.
        times: times in [base, base + 2**(32+shift)).
    """
    return (buckets & BUCKET_MASK) | offsets(times, base, shift)


def borders(partitions: int) -> list[int]:
    """Compute the ``partitions + 1`` borders that split the int64 hash space.

    Borders are multiples of 2**44; the last one is 2**63. Partition p owns the hashes in
    [borders[p], borders[p+1]).
    """
    prefixes = 1 << (64 - BORDER_BITS)
    cuts = [((p * prefixes) // partitions << BORDER_BITS) + MIN_TIME for p in range(partitions)]
    return [*cuts, MAX_TIME + 1]


def buckets_in(slots: Slots) -> int:
    """Count the distinct upper halves of sorted slots."""
    upper = slots >> np.int64(TIME_BITS)
    return int(np.count_nonzero(upper[1:] != upper[:-1])) + min(1, len(slots))


def slice_of(slots: Slots, low: int, high: int) -> tuple[int, int]:
    """Find the range of positions in sorted ``slots`` whose hashes lie in [low, high).

    The range is half-open.
    """
    start = 0 if low <= MIN_TIME else int(np.searchsorted(slots, np.int64(low), side="left"))
    stop = len(slots) if high > MAX_TIME else int(np.searchsorted(slots, np.int64(high), side="left"))
    return start, stop
