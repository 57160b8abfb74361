"""A cursor over the bytes of many records at once."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.kernel.batches import concat_arrays
from watersmeet.spec.records.reading import Reading

# Bytes of many records at once, with a place in each: what is read is read of all of them.
#
# A record that cannot be read is marked with why, and its place is put to its end; the values that go on
# coming out of it mean nothing. Records are named by their numbers (``at``), whatever of them a caller
# looks at.

Ints = np.ndarray[Any, np.dtype[np.int64]]
Unsigned = np.ndarray[Any, np.dtype[np.uint64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

ENDS_EARLY = "it ends early"
LONG_NUMBER = "a number is too long"
NOT_UTF8 = "a text is not UTF-8"

MAX_SEQUENTIAL_RECORDS = 32
"""Of so few records one is read after the other where it has many values: all at a time cost the same for
each value, however few they are."""

_PADDING = 16
_LONGEST = 10
_LONG_PIECE = 64


class BytesCursor:
    """Position within the bytes of each record of a batch.

    Attributes:
        data: the bytes of all records, followed by padding.
        at: per record, where the next value begins.
        end: per record, where the record ends.
        bad: per record, the number in ``reasons`` of the error that makes it unreadable; 0 if it is readable.
    """

    def __init__(self, data: Bytes, start: Ints, end: Ints) -> None:
        self.data = data
        self.at = start.astype(np.int64)
        self.end = end.astype(np.int64)
        self.bad = np.zeros(len(start), np.int32)
        self.reasons = [""]
        self._numbers = {"": 0}

    @classmethod
    def of(cls, values: pa.Array) -> BytesCursor:
        """Create a cursor over a BINARY column; NULL is read as no bytes."""
        offsets = np.frombuffer(values.buffers()[1], np.int32)[
            values.offset : values.offset + len(values) + 1
        ]
        body = values.buffers()[2]
        first, last = (int(offsets[0]), int(offsets[-1])) if len(values) else (0, 0)
        raw = np.zeros(0, np.uint8) if body is None else np.frombuffer(body, np.uint8)[first:last]
        ends = offsets.astype(np.int64) - first
        padded = np.concatenate([raw, np.zeros(_PADDING, np.uint8)])
        return cls(padded, ends[:-1], ends[1:])

    def within(self, start: Ints, end: Ints) -> BytesCursor:
        """Create a cursor over parts of the same bytes, each as a record of its own."""
        return BytesCursor(self.data, start, end)

    @property
    def count(self) -> int:
        return len(self.at)

    def all(self) -> Ints:
        return np.arange(self.count, dtype=np.int64)

    def fail(self, at: Ints, why: str) -> None:
        """Mark records; the first reason counts."""
        if not len(at):
            return
        number = self._numbers.setdefault(why, len(self.reasons))
        if number == len(self.reasons):
            self.reasons.append(why)
        fresh = at[self.bad[at] == 0]
        self.bad[fresh] = number
        self.at[at] = self.end[at]

    def fail_with_parts(self, at: Ints, inner: BytesCursor) -> None:
        """Mark the records ``at`` with the errors of their parts."""
        for number in np.unique(inner.bad[inner.bad > 0]).tolist():
            self.fail(np.unique(at[inner.bad == number]), inner.reasons[number])

    def is_good(self, at: Ints) -> Mask:
        good: Mask = self.bad[at] == 0
        return good

    def varint(self, at: Ints) -> Unsigned:
        """Read the next varint: 7 bits per byte, the least significant first."""
        value = np.zeros(len(at), np.uint64)
        live = np.arange(len(at))
        place = self.at[at]
        end = self.end[at]
        for count in range(_LONGEST):
            short = place[live] >= end[live]
            if short.any():
                self.fail(at[live[short]], ENDS_EARLY)
                live = live[~short]
            byte = self.data[place[live]]
            value[live] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * count)
            place[live] += 1
            if count == _LONGEST - 1:
                self.fail(at[live[byte > 1]], LONG_NUMBER)
                break
            live = live[byte > 0x7F]
            if not len(live):
                break
        good = self.is_good(at)
        self.at[at[good]] = place[good]
        return value

    def zigzag(self, at: Ints) -> Ints:
        """Read the next signed number (zigzag)."""
        value = self.varint(at)
        signed: Ints = (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)
        return signed

    def skip(self, at: Ints, sizes: Ints) -> Ints:
        """Skip ``sizes`` bytes and mark records that are too short.

        Returns:
            Where the skipped bytes start; for records that are too short, the end of the record.
        """
        start = self.at[at]
        wrong = (sizes < 0) | (sizes > self.end[at] - start)
        if wrong.any():
            self.fail(at[wrong], ENDS_EARLY)
            start = np.where(wrong, self.end[at], start)
        self.at[at] = np.where(wrong, self.end[at], start + np.where(wrong, 0, sizes))
        return start

    def read_fixed(self, at: Ints, size: int) -> Bytes:
        """Read the next ``size`` bytes: one row per record."""
        start = self.skip(at, np.full(len(at), size, np.int64))
        whole = self.end[at] - start >= size
        start = np.where(whole & self.is_good(at), start, 0)
        if len(self.data) < size:
            return np.zeros((len(at), size), np.uint8)
        rows: Bytes = self.data[start[:, None] + np.arange(size)]
        return rows

    def spans(self, at: Ints, start: Ints, sizes: Ints, type_: pa.DataType) -> pa.Array:
        """Copy the bytes or texts at these places; mark records whose text is not UTF-8."""
        sizes = np.where(self.is_good(at), sizes, 0)
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        body = pa.py_buffer(self.gathered(start, sizes))
        buffers = [None, pa.py_buffer(offsets.astype(np.int32).tobytes()), body]
        array = pa.Array.from_buffers(type_, len(sizes), buffers)
        if not pa.types.is_string(type_) or _are_utf8(array):
            return array
        wrong = np.array([not _are_utf8(array[n : n + 1]) for n in range(len(sizes))], dtype=np.bool_)
        self.fail(at[wrong], NOT_UTF8)
        return self.spans(at, start, sizes, type_)

    def gathered(self, start: Ints, sizes: Ints) -> Bytes:
        """Copy the bytes at these places into one array, in order."""
        total = int(sizes.sum())
        if total > _LONG_PIECE * len(sizes):  # an index of each byte would take 16 times the room
            pieces = zip(start.tolist(), sizes.tolist(), strict=True)
            return np.concatenate([self.data[first : first + size] for first, size in pieces])
        offsets = np.cumsum(sizes) - sizes
        bytes_: Bytes = self.data[np.repeat(start - offsets, sizes) + np.arange(total)]
        return bytes_


def _are_utf8(texts: pa.Array) -> bool:
    """Return True if each text alone is valid UTF-8.

    A character split between two texts is invalid in both.
    """
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def take_from_pieces(pieces: list[pa.Array], order: Ints, type_: pa.DataType) -> pa.Array:
    """Concatenate several arrays and return their values in the given order."""
    whole = concat_arrays(pieces) if pieces else pa.array([], type_)
    return whole.take(pa.array(order))


def build_list_array(offsets: Ints, values: pa.Array, type_: pa.DataType) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values, type=type_)


def build_map_array(offsets: Ints, keys: pa.Array, values: pa.Array, type_: pa.DataType) -> pa.Array:
    return pa.MapArray.from_arrays(pa.array(offsets.astype(np.int32)), keys, values, type=type_)


# Where values are, one behind the other: of the few records that have very many of them.
#
# Only places are found here; what is in them is read of all at once, as of records. So what a value may
# be is judged in one place, and here no more than how long it is.

NO_BRANCH = "a union has no such branch"
LONG_LIST = "a list is longer than its bytes"

_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class Unreadable(ValueError):
    """Why the rest of a record cannot be walked."""


def decode_varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """Decode the varint at ``at``: 7 bits per byte; return the value and where it ends.

    Raises:
        Unreadable: the number is too long, or the data ends within it.
    """
    value = shift = 0
    for place in range(at, min(end, at + _LONGEST)):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, place + 1
        shift += 7
    raise Unreadable(LONG_NUMBER if end - at >= _LONGEST else ENDS_EARLY)


def decode_zigzag(value: int) -> int:
    """Decode a zigzag number."""
    return (value >> 1) ^ -(value & 1)


@dataclass
class ListItems:
    """Positions of the items of lists: the owner of each item, its start and its end."""

    owners: array[int] = field(default_factory=lambda: array("q"))
    starts: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))

    def places(self) -> tuple[Ints, Ints, Ints]:
        owners, starts, ends = (
            np.array(column, np.int64) for column in (self.owners, self.starts, self.ends)
        )
        return owners, starts, ends


def avro_items(
    cursor: BytesCursor, at: Ints, live: Ints, left: Ints, part: Reading, is_map: bool
) -> ListItems:
    """Find the remaining items of the lists of the records ``at[live]``.

    The cursor ends up after the lists.

    Args:
        left: per record of ``at``, how many items of its list's current block remain.
    """
    data, items = cursor.data.data, ListItems()
    for owner in live.tolist():
        record = int(at[owner])
        place, end = int(cursor.at[record]), int(cursor.end[record])
        try:
            for start, stop in _walk_list(data, place, end, int(left[owner]), part, is_map):
                if start >= 0:
                    items.owners.append(owner)
                    items.starts.append(start)
                    items.ends.append(stop)
                else:
                    cursor.at[record] = stop
        except Unreadable as why:
            cursor.fail(at[owner : owner + 1], str(why))
    return items


def _walk_list(
    data: memoryview, at: int, end: int, left: int, part: Reading, is_map: bool
) -> Iterator[tuple[int, int]]:
    """Begin and end of each item; in the end (-1, the end of the list)."""
    while True:
        if not left:
            number, at = decode_varint(data, at, end)
            left = decode_zigzag(number)
            if left < 0:
                _, at = decode_varint(data, at, end)
                left = -left
            if left > end - at:  # an item has a byte at least
                raise Unreadable(LONG_LIST)
            if not left:
                yield -1, at
                return
        start = at
        if is_map:
            at = _skip_bytes(data, at, end)
        at = _skip_value(data, at, end, part)
        yield start, at
        left -= 1


def _skip_value(data: memoryview, at: int, end: int, part: Reading) -> int:
    """Skip a value and return where it ends.

    Raises:
        Unreadable: the data ends within the value, or a number or union branch is invalid.
    """
    kind = part.kind
    if kind in ("int", "long", "enum"):
        return decode_varint(data, at, end)[1]
    if kind in ("bytes", "string"):
        return _skip_bytes(data, at, end)
    if kind == "record":
        for inner in part.parts:
            at = _skip_value(data, at, end, inner)
        return at
    if kind == "union":
        number, at = decode_varint(data, at, end)
        branch = decode_zigzag(number)
        if not 0 <= branch < len(part.parts):
            raise Unreadable(NO_BRANCH)
        return _skip_value(data, at, end, part.parts[branch])
    if kind in ("array", "map"):
        *_, (_, stop) = _walk_list(data, at, end, 0, part.parts[0], kind == "map")
        return stop
    return _skip_size(at, end, part.size if kind == "fixed" else _SIZES[kind])


def _skip_bytes(data: memoryview, at: int, end: int) -> int:
    number, at = decode_varint(data, at, end)
    return _skip_size(at, end, decode_zigzag(number))


def _skip_size(at: int, end: int, size: int) -> int:
    if not 0 <= size <= end - at:
        raise Unreadable(ENDS_EARLY)
    return at + size
