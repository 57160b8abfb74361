"""Avro's binary records as columns, all records of a batch at a time: one value of them all, then the next.

A record is read only if its bytes end where its last value does. Source: the Avro specification, "Binary
encoding".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.runtime.records.cursor import (
    LONG_LIST,
    MAX_SEQUENTIAL_RECORDS,
    NO_BRANCH,
    BytesCursor,
    Ints,
    avro_items,
    build_list_array,
    build_map_array,
    take_from_pieces,
)
from watersmeet.runtime.records.values import (
    convert_integers,
    format_uuids,
    read_decimal,
    to_arrow_type,
)
from watersmeet.spec.records.reading import Reading

TRAILING_BYTES = "bytes follow its last field: it has another schema"


def decode_avro(cursor: BytesCursor, at: Ints, reading: Reading) -> pa.StructArray:
    """Decode the columns of the records ``at``; mark records that cannot be read."""
    columns = _read(cursor, at, reading)
    assert columns is not None
    left = cursor.at[at] != cursor.end[at]
    cursor.fail(at[left], TRAILING_BYTES)
    return columns


def _read(cursor: BytesCursor, at: Ints, reading: Reading) -> pa.Array | None:
    """Read the next value of each record; return None if the value is only skipped."""
    to = reading.to
    match reading.kind:
        case "null":
            return None if to is None else pa.nulls(len(at), to_arrow_type(to))
        case "boolean":
            flags = cursor.read_fixed(at, 1)[:, 0]
            cursor.fail(at[flags > 1], "a boolean is neither 0 nor 1")
            return None if to is None else pa.array(flags == 1)
        case "int" | "long":
            numbers = cursor.zigzag(at)
            if reading.kind == "int":
                wrong = (numbers < -(2**31)) | (numbers >= 2**31)
                cursor.fail(at[wrong], "an int has more than 32 bits")
                numbers = np.where(wrong, 0, numbers)
            return None if to is None else convert_integers(cursor, at, numbers, to, reading.logical)
        case "float" | "double":
            size, kind = (4, "<f4") if reading.kind == "float" else (8, "<f8")
            raw = cursor.read_fixed(at, size)
            if to is None:
                return None
            return pa.array(np.ascontiguousarray(raw).view(kind)[:, 0]).cast(to_arrow_type(to))
        case "bytes" | "string":
            sizes = cursor.zigzag(at)
            return _bytes(cursor, at, sizes, reading)
        case "fixed":
            return _bytes(cursor, at, np.full(len(at), reading.size, np.int64), reading)
        case "enum":
            return _enum(cursor, at, reading)
        case "record":
            return _record(cursor, at, reading)
        case "union":
            return _union(cursor, at, reading)
        case "array" | "map":
            return _read_items(cursor, at, reading)
    raise AssertionError(reading.kind)


def _bytes(cursor: BytesCursor, at: Ints, sizes: Ints, reading: Reading) -> pa.Array | None:
    start = cursor.skip(at, sizes)
    if reading.to is None:
        return None
    if reading.logical == "decimal":
        return read_decimal(cursor, at, start, sizes, reading.digits, reading.scale, reading.to)
    if reading.logical == "uuid":
        good = cursor.is_good(at)
        return format_uuids(cursor.data[np.where(good, start, 0)[:, None] + np.arange(16)])
    return cursor.spans(at, start, sizes, to_arrow_type(reading.to))


def _enum(cursor: BytesCursor, at: Ints, reading: Reading) -> pa.Array | None:
    numbers = cursor.zigzag(at)
    wrong = (numbers < 0) | (numbers >= len(reading.words))
    cursor.fail(at[wrong], "an enum has no such symbol")
    if reading.to is None:
        return None
    return pa.array(reading.words or ("",), pa.string()).take(pa.array(np.where(wrong, 0, numbers)))


def _record(cursor: BytesCursor, at: Ints, reading: Reading) -> pa.Array | None:
    columns = [_read(cursor, at, part) for part in reading.parts]
    if reading.to is None:
        return None
    type_ = to_arrow_type(reading.to)
    arrays = {place: column for place, column in zip(reading.places, columns, strict=True) if place >= 0}
    for place, value in reading.defaults:
        one = pa.array([value], _naive_type(type_[place].type)).cast(type_[place].type)
        arrays[place] = one.take(pa.array(np.zeros(len(at), np.int64)))
    return pa.StructArray.from_arrays([arrays[n] for n in range(len(type_))], fields=list(type_))


def _naive_type(type_: pa.DataType) -> pa.DataType:
    """Return the type for which Arrow accepts values as Python represents them.

    A timestamp loses its zone.
    """
    return pa.timestamp("us") if pa.types.is_timestamp(type_) else type_


def _union(cursor: BytesCursor, at: Ints, reading: Reading) -> pa.Array | None:
    numbers = cursor.zigzag(at)
    wrong = (numbers < 0) | (numbers >= len(reading.parts))
    cursor.fail(at[wrong], NO_BRANCH)
    numbers = np.where(wrong, 0, numbers)
    pieces, rows = [], []
    for number, part in enumerate(reading.parts):
        of_branch = np.flatnonzero(numbers == number)
        if len(of_branch):
            pieces.append(_read(cursor, at[of_branch], part))
            rows.append(of_branch)
    if reading.to is None:
        return None
    if len(pieces) == 1:
        return pieces[0]
    order = np.argsort(np.concatenate(rows)) if rows else np.zeros(0, np.int64)
    return take_from_pieces(
        [piece for piece in pieces if piece is not None], order, to_arrow_type(reading.to)
    )


def _read_items(cursor: BytesCursor, at: Ints, reading: Reading) -> pa.Array | None:
    """Read arrays and maps: blocks of items, each with a count, up to an empty block."""
    (part,) = reading.parts
    is_map = reading.kind == "map"
    left = np.zeros(len(at), np.int64)
    live = np.arange(len(at))
    owners: list[Ints] = []
    keys: list[pa.Array] = []
    values: list[pa.Array] = []
    key = Reading("string", None if reading.to is None or reading.to.entry is None else reading.to.entry[0])
    while len(live):  # one item of all lists, then the next; of few lists all items
        empty = live[left[live] == 0]
        if len(empty):
            left[empty] = _read_block_size(cursor, at[empty])
        live = live[(left[live] > 0) & cursor.is_good(at[live])]
        if not len(live):
            break
        if few := len(live) < MAX_SEQUENTIAL_RECORDS:
            whose, start, end = avro_items(cursor, at, live, left, part, is_map).places()
            within = cursor.within(start, end)
            items, live = within.all(), live[:0]
        else:
            whose, within, items = live, cursor, at[live]
            left[live] -= 1
        name = _read(within, items, key) if is_map else None
        value = _read(within, items, part)
        if few:
            cursor.fail_with_parts(at[whose], within)
        if reading.to is not None:
            owners.append(whose)
            if name is not None:
                keys.append(name)
            if value is not None:
                values.append(value)
    if reading.to is None:
        return None
    owner = np.concatenate(owners) if owners else np.zeros(0, np.int64)
    order = np.argsort(owner, kind="stable")
    offsets = np.zeros(len(at) + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=len(at)), out=offsets[1:])
    type_ = to_arrow_type(reading.to)
    if not is_map:
        return build_list_array(offsets, take_from_pieces(values, order, type_.value_type), type_)
    named = take_from_pieces(keys, order, type_.key_type)
    fail_repeated_keys(cursor, at, owner[order], named)
    return build_map_array(offsets, named, take_from_pieces(values, order, type_.item_type), type_)


def _read_block_size(cursor: BytesCursor, at: Ints) -> Ints:
    """Read how many items follow; a negative count is followed by the block's size in bytes."""
    count = cursor.zigzag(at)
    sized = count < 0
    cursor.zigzag(at[sized])
    count = np.abs(count)
    wrong = (count > cursor.end[at] - cursor.at[at]) | (count < 0)  # an item has a byte at least
    cursor.fail(at[wrong & cursor.is_good(at)], LONG_LIST)
    return np.where(cursor.is_good(at), count, 0)


def fail_repeated_keys(cursor: BytesCursor, at: Ints, owner: Ints, keys: pa.Array) -> None:
    """Mark records with a map that contains a key twice."""
    codes = pc.dictionary_encode(keys).indices.to_numpy(zero_copy_only=False).astype(np.int64)
    pairs = owner * (len(keys) + 1) + codes
    _, first, counts = np.unique(pairs, return_index=True, return_counts=True)
    cursor.fail(at[np.unique(owner[first[counts > 1]])], "a map has a key twice")
