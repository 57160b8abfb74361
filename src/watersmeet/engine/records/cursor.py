"""Bytes of many records at once, with a place in each: what is read is read of all of them.

A record that cannot be read is marked with why, and its place is put to its end; the values that go on coming
out of it mean nothing. Records are named by their numbers (``at``), whatever of them a caller looks at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.kernel.batches import joined

Ints = np.ndarray[Any, np.dtype[np.int64]]
Unsigned = np.ndarray[Any, np.dtype[np.uint64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

ENDS_EARLY = "it ends early"
LONG_NUMBER = "a number is too long"
NOT_UTF8 = "a text is not UTF-8"

FEW = 32
"""Of so few records one is read after the other where it has many values: all at a time cost the same for
each value, however few they are."""

_PADDING = 16
_LONGEST = 10
_LONG_PIECE = 64


class Cursor:
    """
    Attributes:
        data: the bytes of all records, and some behind.
        at: per record, where the next value begins; ``end``: where the record ends.
        bad: per record, the number in ``reasons`` of why it cannot be read; 0: it can.
    """

    def __init__(self, data: Bytes, start: Ints, end: Ints) -> None:
        self.data = data
        self.at = start.astype(np.int64)
        self.end = end.astype(np.int64)
        self.bad = np.zeros(len(start), np.int32)
        self.reasons = [""]
        self._numbers = {"": 0}

    @classmethod
    def of(cls, values: pa.Array) -> Cursor:
        """Of a BINARY column; NULL is no bytes."""
        offsets = np.frombuffer(values.buffers()[1], np.int32)[
            values.offset : values.offset + len(values) + 1
        ]
        body = values.buffers()[2]
        first, last = (int(offsets[0]), int(offsets[-1])) if len(values) else (0, 0)
        raw = np.zeros(0, np.uint8) if body is None else np.frombuffer(body, np.uint8)[first:last]
        ends = offsets.astype(np.int64) - first
        return cls(padded(raw), ends[:-1], ends[1:])

    def within(self, start: Ints, end: Ints) -> Cursor:
        """Of parts of the same bytes, as records of their own."""
        return Cursor(self.data, start, end)

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

    def fail_alike(self, at: Ints, inner: Cursor) -> None:
        """What is wrong with parts is wrong with the records ``at``, of which they are."""
        for number in np.unique(inner.bad[inner.bad > 0]).tolist():
            self.fail(np.unique(at[inner.bad == number]), inner.reasons[number])

    def is_good(self, at: Ints) -> Mask:
        good: Mask = self.bad[at] == 0
        return good

    def varint(self, at: Ints) -> Unsigned:
        """The next number of 7 bits a byte, the least first."""
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
        """The next number, with a sign."""
        return unzigzag(self.varint(at))

    def skip(self, at: Ints, sizes: Ints) -> Ints:
        """Pass over so many bytes. Returns where they begin; of records without them their end."""
        start = self.at[at]
        wrong = (sizes < 0) | (sizes > self.end[at] - start)
        if wrong.any():
            self.fail(at[wrong], ENDS_EARLY)
            start = np.where(wrong, self.end[at], start)
        self.at[at] = np.where(wrong, self.end[at], start + np.where(wrong, 0, sizes))
        return start

    def fixed(self, at: Ints, size: int) -> Bytes:
        """The next ``size`` bytes: a row per record."""
        start = self.skip(at, np.full(len(at), size, np.int64))
        whole = self.end[at] - start >= size
        start = np.where(whole & self.is_good(at), start, 0)
        if len(self.data) < size:
            return np.zeros((len(at), size), np.uint8)
        rows: Bytes = self.data[start[:, None] + np.arange(size)]
        return rows

    def spans(self, at: Ints, start: Ints, sizes: Ints, type_: pa.DataType) -> pa.Array:
        """Bytes or texts of these places, copied out. A text that is none marks its record."""
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
        """The bytes of these places, one behind the other."""
        total = int(sizes.sum())
        if total > _LONG_PIECE * len(sizes):  # an index of each byte would take 16 times the room
            pieces = zip(start.tolist(), sizes.tolist(), strict=True)
            return np.concatenate([self.data[first : first + size] for first, size in pieces])
        offsets = np.cumsum(sizes) - sizes
        bytes_: Bytes = self.data[np.repeat(start - offsets, sizes) + np.arange(total)]
        return bytes_


def _are_utf8(texts: pa.Array) -> bool:
    """Each for itself: halves of a letter at the end of one and the beginning of the next are none."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def padded(raw: Bytes) -> Bytes:
    data = np.zeros(len(raw) + _PADDING, np.uint8)
    data[: len(raw)] = raw
    return data


def unzigzag(value: Unsigned) -> Ints:
    half = (value >> np.uint64(1)).view(np.int64)
    sign = -(value & np.uint64(1)).astype(np.int64)
    signed: Ints = half ^ sign
    return signed


def taken(pieces: list[pa.Array], order: Ints, type_: pa.DataType) -> pa.Array:
    """The values of several arrays, one behind the other, in another order."""
    whole = joined(pieces) if pieces else pa.array([], type_)
    return whole.take(pa.array(order))


def list_of(offsets: Ints, values: pa.Array, type_: pa.DataType) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values, type=type_)


def map_of(offsets: Ints, keys: pa.Array, values: pa.Array, type_: pa.DataType) -> pa.Array:
    return pa.MapArray.from_arrays(pa.array(offsets.astype(np.int32)), keys, values, type=type_)
