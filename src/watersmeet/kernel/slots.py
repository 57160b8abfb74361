"""The slot, one int64 per row by which a run is sorted, and the hashes of keys that it is made of.

Stable: stored slots depend on it. Equal values have equal hashes over all widths of integers and floats, and
0.0 and −0.0, and all NaNs, are one value (Spark SQL's equality). A NULL has a hash too; whether it may match
is not decided here. Mixing is MurmurHash3's 64-bit finaliser (A. Appleby, public domain).

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

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.event_time import MAX_TIME, MIN_TIME, Times

Words = npt.NDArray[np.uint64]

_SEED = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xA5A5_5A5A_DEAD_BEE5)
_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)
_LONG_TEXT_BYTES = 512
"""Texts of more bytes are digested one by one: their number is what counts, not their length."""


def hash_columns(columns: Sequence[pa.Array], rows: int) -> Slots:
    """Hash rows by their key columns, in order: int64[rows].

    Without key columns, all rows have the same hash.

    Raises:
        TypeError: a type has no equality (a map, an interval).
    """
    state = np.full(rows, _SEED if columns else 0, dtype=np.uint64)
    for column in columns:
        state = _mix(state ^ _values(column))
    return state.view(np.int64)


def hash_rows(columns: Sequence[pa.Array], rows: int) -> Slots:
    """Hash rows by all of their columns, of any types: int64[rows].

    The hash of a map depends on the order of its entries.
    """
    return hash_columns([column.cast(_hashable_type(column.type)) for column in columns], rows)


def _hashable_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with hashes that retains every component of values of ``kind``."""
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_hashable_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        entry = [("key", _hashable_type(kind.key_type)), ("value", _hashable_type(kind.item_type))]
        return pa.list_(pa.struct(entry))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_hashable_type(kind.value_type))
    return kind


def family(kind: pa.DataType) -> str:
    """Return the family of a type; types of one family hash equal values alike.

    Equality between families needs a cast first. In STRUCTs the positions of fields count, not their
    names.
    """
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(family(field.type) for field in kind)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"ARRAY<{family(kind.value_type)}>"
    if pa.types.is_boolean(kind):
        return "BOOLEAN"
    if pa.types.is_integer(kind):
        return "integers"
    if pa.types.is_floating(kind):
        return "floating point numbers"
    if pa.types.is_decimal(kind):
        return f"decimals with {kind.scale} places"
    if pa.types.is_date(kind):
        return "DATE"
    if pa.types.is_timestamp(kind):
        return f"TIMESTAMP in {kind.unit}"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "STRING"
    return str(kind)


def _mix(words: Words) -> Words:
    words = (words ^ (words >> _SHIFT)) * _FIRST
    words = (words ^ (words >> _SHIFT)) * _SECOND
    return words ^ (words >> _SHIFT)


def _values(column: pa.Array) -> Words:
    """Compute the words to hash: uint64[n], unmixed for numbers; NULLs are `_NULL`."""
    if pa.types.is_null(column.type):
        return np.full(len(column), _NULL, dtype=np.uint64)
    words = _words(column)
    if column.null_count:
        words = np.where(column.is_valid().to_numpy(zero_copy_only=False), words, _NULL)
    return words


def _words(column: pa.Array) -> Words:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _words(column.dictionary_decode())
    if pa.types.is_boolean(kind):
        column, kind = column.cast(pa.int8()), pa.int8()
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        column, kind = column.view(width), width
    if pa.types.is_integer(kind):
        filled = pc.fill_null(column, 0) if column.null_count else column
        integers: Words = filled.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
        return integers
    if pa.types.is_floating(kind):
        return _of_floats(column)
    if pa.types.is_decimal(kind):
        return _of_decimals(column)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _of_texts(column, np.dtype(np.int32))
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _of_texts(column, np.dtype(np.int64))
    if pa.types.is_struct(kind):
        state = np.full(len(column), _SEED, dtype=np.uint64)
        for field in column.flatten():
            state = _mix(state ^ _values(field))
        return state
    if pa.types.is_list(kind):
        return _of_lists(column)
    raise TypeError(f"values of type {kind} have no hash")


def _of_floats(column: pa.Array) -> Words:
    filled = pc.fill_null(column, 0.0) if column.null_count else column
    values = filled.to_numpy(zero_copy_only=False).astype(np.float64) + 0.0
    values[np.isnan(values)] = np.nan
    words: Words = values.view(np.uint64)
    return words


def _of_decimals(column: pa.Array) -> Words:
    raw = np.frombuffer(column.buffers()[1], dtype=np.uint64)
    halves = raw.reshape(-1, 2)[column.offset : column.offset + len(column)]
    return _mix(halves[:, 0] ^ _SEED) ^ halves[:, 1]


def _of_texts(column: pa.Array, width: np.dtype[Any]) -> Words:
    """Hash strings eight bytes at a time, vectorized over all strings of that length or more.

    Very long strings are hashed one by one with BLAKE2b.
    """
    buffers = column.buffers()
    count = len(column)
    if count == 0:
        return np.zeros(0, dtype=np.uint64)
    bounds = np.frombuffer(buffers[1], dtype=width)[column.offset :][: count + 1].astype(np.int64)
    first, last = int(bounds[0]), int(bounds[-1])
    data = bytes(8) if buffers[2] is None else buffers[2].slice(first, last - first).to_pybytes() + bytes(8)
    starts, lengths = bounds[:-1] - first, np.diff(bounds)
    anywhere = np.ndarray((last - first + 1,), dtype="<u8", buffer=data, strides=(1,))
    state = _mix(lengths.view(np.uint64) ^ _SEED)
    long = np.flatnonzero(lengths > _LONG_TEXT_BYTES)
    active = np.flatnonzero((lengths > 0) & (lengths <= _LONG_TEXT_BYTES))
    done = 0
    while len(active):
        words = anywhere[starts[active] + done]
        left = lengths[active] - done
        spare = ((8 - np.minimum(left, 8)) * 8).astype(np.uint64)
        words = (words << spare) >> spare
        state[active] = _mix(state[active] ^ words)
        done += 8
        active = active[left > 8]
    for row in long.tolist():
        text = data[starts[row] : starts[row] + lengths[row]]
        state[row] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return state


def _of_lists(column: pa.Array) -> Words:
    """Hash lists, one element of every list at a time."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    values = _values(column.flatten())
    starts = np.cumsum(lengths) - lengths
    state = _mix(lengths.view(np.uint64) ^ _SEED)
    done = 0
    while len(active := np.flatnonzero(lengths > done)):
        state[active] = _mix(state[active] ^ values[starts[active] + done])
        done += 1
    return state


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
