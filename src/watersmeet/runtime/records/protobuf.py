"""Protobuf's messages as columns, all records of a batch at a time: one field of them all, then the next.

Of a field that comes several times the last value counts, and messages are merged; of a oneof the last one.
Fields that the message has not are passed over, but a record without any that it has is none of its. A field
with another encoding than its type's marks the record, where parsers pass over it. Source: Protobuf's
documentation, "Encoding".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from watersmeet.kernel.batches import concat_arrays
from watersmeet.runtime.records.cursor import (
    BYTES,
    ENDS_EARLY,
    FIXED32,
    FIXED64,
    LONG_NUMBER,
    MAX_SEQUENTIAL_RECORDS,
    NO_ENCODING,
    VARINT,
    BytesCursor,
    Ints,
    Mask,
    build_list_array,
    build_map_array,
    decode_zigzags,
    message_fields,
    pad_bytes,
)
from watersmeet.runtime.records.values import NO_DAY, OUT_OF_RANGE, convert_integers, to_arrow_type
from watersmeet.spec.records.reading import Reading
from watersmeet.types.sql_type import BIGINT, INT, TIMESTAMP, Field, struct

NONE_OF_ITS_FIELDS = "none of its fields is in the message"

_WIRE = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "enum"), VARINT),
    **dict.fromkeys(("fixed64", "sfixed64", "double"), FIXED64),
    **dict.fromkeys(("fixed32", "sfixed32", "float"), FIXED32),
    **dict.fromkeys(("string", "bytes", "message"), BYTES),
}
_RANGES = {
    **dict.fromkeys(("int32", "sint32", "enum"), (-(2**31), 2**31 - 1)),
    "uint32": (0, 2**32 - 1),
    "bool": (0, 1),
}
_SECOND_US, _BILLION = 1_000_000, 1_000_000_000
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799


@dataclass
class _FieldValues:
    """Values of one field: owners, numbers (or where bytes start), sizes in bytes, and rounds."""

    owners: list[Ints] = field(default_factory=list)
    values: list[Ints] = field(default_factory=list)
    sizes: list[Ints] = field(default_factory=list)
    rounds: list[Ints] = field(default_factory=list)

    def add(self, owners: Ints, values: Ints, sizes: Ints, rounds: Ints) -> None:
        self.owners.append(owners)
        self.values.append(values)
        self.sizes.append(sizes)
        self.rounds.append(rounds)

    def all(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Return owners, values, sizes and rounds, in the order of rounds."""
        none: list[Ints] = [np.zeros(0, np.int64)]
        parts = (self.owners, self.values, self.sizes, self.rounds)
        owners, values, sizes, rounds = (np.concatenate(part or none) for part in parts)
        order = np.argsort(rounds, kind="stable")
        return owners[order], values[order], sizes[order], rounds[order]


def decode_protobuf(cursor: BytesCursor, at: Ints, reading: Reading) -> pa.StructArray:
    """Decode the columns of the records ``at``; mark records that cannot be read."""
    has_bytes = cursor.at[at] < cursor.end[at]
    seen, any_known = _read_fields(cursor, at, reading)
    cursor.fail(at[has_bytes & ~any_known], NONE_OF_ITS_FIELDS)
    return _read_message(cursor, at, reading, seen)


def _read_fields(cursor: BytesCursor, at: Ints, reading: Reading) -> tuple[dict[int, _FieldValues], Mask]:
    """Read the fields of the messages.

    Returns:
        The values by field number, and a mask of the messages that have any known field.
    """
    parts = {part.number: part for part in reading.parts}
    numbers = np.array(sorted(parts), np.int64)
    seen = {number: _FieldValues() for number in parts}
    any_known = np.zeros(len(at), np.bool_)
    live, at_round = np.arange(len(at)), 0
    while True:
        live = live[(cursor.at[at[live]] < cursor.end[at[live]]) & cursor.is_good(at[live])]
        if not len(live):
            return seen, any_known
        if len(live) < MAX_SEQUENTIAL_RECORDS:
            rows, tags, values, sizes = message_fields(cursor, at, live)
            rounds = at_round + 1 + np.arange(len(rows))
            live = live[:0]
        else:
            at_round += 1
            tags = cursor.varint(at[live]).view(np.int64)
            good = cursor.is_good(at[live])
            rows = live = live[good]
            tags = tags[good]
            values, sizes = _read_values(cursor, at[rows], tags & 7)
            rounds = np.full(len(rows), at_round)
        field_numbers = tags >> 3
        cursor.fail(at[rows[(field_numbers <= 0) | (field_numbers >= 1 << 29)]], NO_ENCODING)
        declared = np.isin(field_numbers, numbers)
        any_known[rows[declared]] = True
        for tag in np.unique(tags[declared]).tolist():
            of_tag = np.flatnonzero(tags == tag)
            _add(
                cursor, at, parts[tag >> 3], tag & 7, seen, [a[of_tag] for a in (rows, values, sizes, rounds)]
            )


def _add(
    cursor: BytesCursor,
    at: Ints,
    part: Reading,
    wire: int,
    seen: dict[int, _FieldValues],
    fields: Sequence[Ints],
) -> None:
    """Add the values of a field in one encoding.

    Args:
        fields: the messages, the values, their sizes, and the rounds.
    """
    rows, values, sizes, rounds = fields
    wanted = _WIRE.get(part.kind)
    if wire == wanted:
        seen[part.number].add(rows, values, sizes, rounds)
    elif part.repeated is not None and wire == BYTES:
        lists, packed = _read_packed(cursor, at[rows], values, sizes, wanted)
        seen[part.number].add(rows[lists], packed, packed, rounds[lists])
    elif part.to is not None:
        cursor.fail(at[rows], f'"{part.name}" has another type')


def _read_values(cursor: BytesCursor, at: Ints, wires: Ints) -> tuple[Ints, Ints]:
    """Read the values after the keys: the bits of numbers; for bytes, their start and size."""
    values, sizes = np.zeros((2, len(at)), np.int64)
    for wire in np.unique(wires).tolist():
        mine = np.flatnonzero(wires == wire)
        if wire in (VARINT, BYTES, FIXED32, FIXED64):
            values[mine], sizes[mine] = _read_value(cursor, at[mine], wire)
        else:
            cursor.fail(at[mine], NO_ENCODING)
    return values, sizes


def _read_value(cursor: BytesCursor, at: Ints, wire: int) -> tuple[Ints, Ints]:
    """Read values of one wire type: the bits of numbers; for bytes, their start and size."""
    if wire == VARINT:
        numbers = cursor.varint(at).view(np.int64)
        return numbers, numbers
    if wire == BYTES:
        sizes = cursor.varint(at).view(np.int64)
        start = cursor.skip(at, sizes)
        return start, np.where(cursor.is_good(at), sizes, 0)  # one that ends early has none, whatever it says
    raw = np.ascontiguousarray(cursor.read_fixed(at, 8 if wire == FIXED64 else 4))
    numbers = raw.view("<i8" if wire == FIXED64 else "<u4")[:, 0].astype(np.int64)
    return numbers, numbers


def _read_packed(
    cursor: BytesCursor, at: Ints, start: Ints, sizes: Ints, wire: int | None
) -> tuple[Ints, Ints]:
    """Read the numbers of packed lists, which have no keys.

    Returns:
        The list of each number, and the numbers.
    """
    sizes = np.where(cursor.is_good(at), sizes, 0)
    width = {FIXED32: 4, FIXED64: 8}.get(wire or VARINT, 1)
    torn = sizes % width != 0
    if width == 1:
        last = cursor.data[np.where(sizes > 0, start + sizes - 1, 0)]
        torn = (sizes > 0) & (last > 0x7F)
    cursor.fail(at[torn], ENDS_EARLY)
    sizes = np.where(torn, 0, sizes)
    raw = cursor.gathered(start, sizes)
    lists = np.repeat(np.arange(len(at)), sizes)
    if width > 1:
        numbers = raw.view("<i8" if width == 8 else "<u4").astype(np.int64)
        return lists[::width], numbers
    ends = np.flatnonzero(raw < 0x80)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])[: len(ends)]
    lengths = ends - starts + 1
    long = (lengths > 10) | ((lengths == 10) & (raw[ends] > 1))
    cursor.fail(at[np.unique(lists[starts[long]])], LONG_NUMBER)
    value = np.zeros(len(ends), np.uint64)
    for place in range(min(10, int(lengths.max(initial=0)))):
        more = np.flatnonzero(lengths > place)
        value[more] |= (raw[starts[more] + place] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * place)
    return lists[starts], value.view(np.int64)


def _read_message(
    cursor: BytesCursor, at: Ints, reading: Reading, seen: dict[int, _FieldValues]
) -> pa.StructArray:
    assert reading.to is not None
    type_ = to_arrow_type(reading.to)
    oneofs = _Oneofs(len(at), reading, seen)
    arrays: dict[int, pa.Array] = {}
    for part, place in zip(reading.parts, reading.places, strict=True):
        if part.presence == "required":
            missing = np.ones(len(at), np.bool_)
            missing[seen[part.number].all()[0]] = False
            cursor.fail(at[missing], f'"{part.name}" is required, and is missing')
        if place < 0:
            continue
        if part.repeated is not None:
            arrays[place] = _read_repeated(cursor, at, part, seen[part.number])
        else:
            arrays[place] = _read_single(cursor, at, part, seen[part.number], oneofs.others(part))
    return pa.StructArray.from_arrays([arrays[n] for n in range(len(type_))], fields=list(type_))


class _Oneofs:
    """Rounds in which the members of oneofs arrived; each member clears the earlier others."""

    def __init__(self, count: int, reading: Reading, seen: dict[int, _FieldValues]) -> None:
        zeros = np.zeros(count, np.int64)
        self._came: dict[int, Ints] = {}
        self._last: dict[int, tuple[Ints, Ints]] = {}
        for part in reading.parts:
            if part.oneof < 0:
                continue
            owners, _, _, rounds = seen[part.number].all()
            came = self._came[part.number] = zeros.copy()
            np.maximum.at(came, owners, rounds)
            last, before = self._last.get(part.oneof, (zeros, zeros))
            later = came > last
            before = np.where(later, last, np.maximum(before, came))
            self._last[part.oneof] = (np.where(later, came, last), before)

    def others(self, part: Reading) -> Ints | None:
        """Return per message the last round of the other members; None if the field is in no oneof."""
        if part.oneof < 0:
            return None
        last, before = self._last[part.oneof]
        return np.where(self._came[part.number] == last, before, last)


def _read_single(
    cursor: BytesCursor, at: Ints, part: Reading, seen: _FieldValues, others: Ints | None
) -> pa.Array:
    """Read the values of a field that is not repeated.

    Args:
        others: the last rounds of the other members of its oneof; see `_Oneofs`.
    """
    owners, values, sizes, rounds = seen.all()
    if others is not None:
        alive = rounds > others[owners]
        owners, values, sizes = owners[alive], values[alive], sizes[alive]
    of_row = np.full(len(at), -1, np.int64)
    of_row[owners] = np.arange(len(owners))  # the last one counts
    there = of_row >= 0
    if part.kind == "message":
        if part.presence == "implicit":  # the value of a map's entry
            absent = np.flatnonzero(~there)
            none = np.zeros(len(absent), np.int64)
            owners, values = np.append(owners, absent), np.append(values, none)
            sizes, there = np.append(sizes, none), np.ones(len(at), np.bool_)
        rows = np.flatnonzero(there)
        inner = _merge_messages(cursor, owners, values, sizes, rows)
        array = _read_messages(cursor, at[rows], inner, part)
        of_row = np.full(len(at), -1, np.int64)
        of_row[rows] = np.arange(len(rows))
        return array.take(pa.array(of_row, mask=~there))
    pick = np.flatnonzero(there)
    chosen = of_row[pick]
    array = _read_scalars(cursor, at[pick], values[chosen], sizes[chosen], part)
    places = np.zeros(len(at), np.int64)
    places[pick] = np.arange(len(pick))
    if part.presence != "implicit":
        return array.take(pa.array(places, mask=~there))
    zero = np.zeros(1, np.int64)
    empty = _read_scalars(cursor.within(zero, zero), zero, zero, zero, part)
    places[~there] = len(array)
    return concat_arrays([array, empty]).take(pa.array(places))


def _read_repeated(cursor: BytesCursor, at: Ints, part: Reading, seen: _FieldValues) -> pa.Array:
    """Read the values of a repeated field or of a map."""
    assert part.repeated is not None
    owners, values, sizes, _ = seen.all()
    order = np.argsort(owners, kind="stable")
    owners, values, sizes = owners[order], values[order], sizes[order]
    type_ = to_arrow_type(part.repeated)
    if part.kind == "message":
        array = _read_messages(cursor, at[owners], cursor.within(values, values + np.maximum(sizes, 0)), part)
    else:
        array = _read_scalars(cursor, at[owners], values, sizes, part)
    if part.logical == "map":
        keys, kept = array.field(0), _last_keys(owners, array.field(0))
        owners, keys, array = owners[kept], keys.take(pa.array(kept)), array.field(1).take(pa.array(kept))
    offsets = np.zeros(len(at) + 1, np.int64)
    np.cumsum(np.bincount(owners, minlength=len(at)), out=offsets[1:])
    return (
        build_map_array(offsets, keys, array, type_)
        if part.logical == "map"
        else build_list_array(offsets, array, type_)
    )


def _last_keys(owners: Ints, keys: pa.Array) -> Ints:
    """Select the last of the entries with the same key."""
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    pairs = owners * (len(keys) + 1) + codes
    _, from_behind = np.unique(pairs[::-1], return_index=True)
    return np.sort(len(pairs) - 1 - from_behind)


def _merge_messages(cursor: BytesCursor, owners: Ints, start: Ints, sizes: Ints, rows: Ints) -> BytesCursor:
    """Return a cursor with one message per row.

    Several messages of one row are concatenated, which merges them.
    """
    mine = np.isin(owners, rows)
    owners, start, sizes = owners[mine], start[mine], np.maximum(sizes[mine], 0)
    sizes = np.where(start + sizes <= len(cursor.data), sizes, 0)
    order = np.argsort(owners, kind="stable")
    if len(owners) == len(rows):
        return cursor.within(start[order], start[order] + sizes[order])
    sizes_in_order = sizes[order]
    ends = np.cumsum(sizes_in_order)
    last = np.searchsorted(owners[order], rows, side="right") - 1
    ends_of_rows = ends[last]
    starts_of_rows = np.concatenate([[0], ends_of_rows[:-1]])
    return BytesCursor(pad_bytes(cursor.gathered(start[order], sizes_in_order)), starts_of_rows, ends_of_rows)


def _read_messages(cursor: BytesCursor, at: Ints, inner: BytesCursor, part: Reading) -> pa.Array:
    """Read nested messages.

    Args:
        at: the records that own them.
    """
    every = inner.all()
    inner.fail(np.flatnonzero(~cursor.is_good(at)), "its record is broken")
    if part.logical == "timestamp":
        array = _read_timestamps(inner, every)
    else:
        seen, _ = _read_fields(inner, every, part)
        whole_message = part if part.logical != "wrapper" else _as_struct(part)
        array = _read_message(inner, every, whole_message, seen)
        if part.logical == "wrapper":
            array = array.field(0)
    cursor.fail_with_parts(at, inner)
    return array


def _as_struct(part: Reading) -> Reading:
    assert part.to is not None
    return Reading("message", struct([Field("value", part.to)]), parts=part.parts, places=(0,))


_SECONDS = Reading("int64", BIGINT, name="seconds", number=1, presence="implicit")
_NANOS = Reading("int32", INT, name="nanos", number=2, presence="implicit")


def _read_timestamps(inner: BytesCursor, every: Ints) -> pa.Array:
    seen, _ = _read_fields(inner, every, Reading("message", TIMESTAMP, parts=(_SECONDS, _NANOS)))
    numbers = np.zeros((2, len(every)), np.int64)
    for number in (1, 2):
        owners, values, _, _ = seen[number].all()
        numbers[number - 1][owners] = values
    seconds, nanos = numbers
    wrong = (seconds < _FIRST_SECOND) | (seconds > _LAST_SECOND) | (nanos < 0) | (nanos >= _BILLION)
    inner.fail(every[wrong], NO_DAY)
    micros = np.where(wrong, 0, seconds) * _SECOND_US + np.where(wrong, 0, nanos) // 1000
    return pa.array(micros).cast(to_arrow_type(TIMESTAMP))


def _read_scalars(cursor: BytesCursor, at: Ints, values: Ints, sizes: Ints, part: Reading) -> pa.Array:
    """Convert scalar values from the bits of numbers or from the places of bytes."""
    to, kind = part.to, part.kind
    assert to is not None
    if kind in ("string", "bytes"):
        return cursor.spans(at, values, sizes, to_arrow_type(to))
    if kind == "double":
        return pa.array(values.view(np.float64))
    if kind == "float":
        return pa.array(values.astype(np.uint32).view(np.float32)).cast(to_arrow_type(to))
    if kind.startswith("sint"):
        values = decode_zigzags(values.view(np.uint64))
    elif kind == "sfixed32":
        values = values.astype(np.uint32).view(np.int32).astype(np.int64)
    if kind in _RANGES:
        least, most = _RANGES[kind]
        wrong = (values < least) | (values > most)
        cursor.fail(at[wrong], OUT_OF_RANGE)
        values = np.where(wrong, 0, values)
    if kind == "bool":
        return pa.array(values == 1)
    if kind == "enum" and to.name == "STRING":
        return _read_enum(cursor, at, values, part)
    if kind in ("uint64", "fixed64"):
        unsigned = pa.array(values.view(np.uint64))
        return unsigned.cast(pa.decimal128(20, 0)).cast(to_arrow_type(to))
    return convert_integers(cursor, at, values, to, "")


def _read_enum(cursor: BytesCursor, at: Ints, values: Ints, part: Reading) -> pa.Array:
    numbers = np.array(part.numbers, np.int64)
    places = np.minimum(np.searchsorted(numbers, values), max(len(numbers) - 1, 0))
    wrong = numbers[places] != values if len(numbers) else np.ones(len(values), np.bool_)
    cursor.fail(at[wrong], f'the enum of "{part.name}" has no such number')
    return pa.array(part.words or ("",), pa.string()).take(pa.array(places))
