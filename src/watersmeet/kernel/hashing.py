"""Hashes of key columns: what puts equal keys into one bucket of slots, whatever side, engine or machine.

Stable: stored slots depend on it. Equal values have equal hashes over all widths of integers and floats, and
0.0 and −0.0, and all NaNs, are one value (Spark SQL's equality). A NULL has a hash too; whether it may match
is not decided here. Mixing is MurmurHash3's 64-bit finaliser (A. Appleby, public domain).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.slots import Slots

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
