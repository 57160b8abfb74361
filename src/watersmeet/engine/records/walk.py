"""Where values are, one behind the other: of the few records that have very many of them.

Only places are found here; what is in them is read of all at once, as of records. So what a value may be is
judged in one place, and here no more than how long it is.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from watersmeet.engine.records.cursor import ENDS_EARLY, LONG_NUMBER, Cursor, Ints
from watersmeet.spec.records.reading import Reading

NO_ENCODING = "it has a field with an unsupported wire type"
NO_BRANCH = "a union has no such branch"
LONG_LIST = "a list is longer than its bytes"

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Of Protobuf."""

_LONGEST = 10
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class Unreadable(ValueError):
    """Why the rest of a record cannot be walked."""


def varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """The number of 7 bits a byte at ``at``, and where it ends. Raises: Unreadable."""
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


def signed(value: int) -> int:
    """Of zigzag."""
    return (value >> 1) ^ -(value & 1)


@dataclass
class Items:
    """Where the items of lists are: whose each is, its begin and its end."""

    owners: array[int] = field(default_factory=lambda: array("q"))
    starts: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))

    def places(self) -> tuple[Ints, Ints, Ints]:
        owners, starts, ends = (
            np.array(column, np.int64) for column in (self.owners, self.starts, self.ends)
        )
        return owners, starts, ends


def avro_items(cursor: Cursor, at: Ints, live: Ints, left: Ints, part: Reading, is_map: bool) -> Items:
    """The items that are left of the lists of the records ``at[live]``; the cursor stands behind the lists.

    Args:
        left: per record of ``at``, how many items of its list's block are still to come.
    """
    data, items = cursor.data.data, Items()
    for owner in live.tolist():
        record = int(at[owner])
        place, end = int(cursor.at[record]), int(cursor.end[record])
        try:
            for start, stop in _list(data, place, end, int(left[owner]), part, is_map):
                if start >= 0:
                    items.owners.append(owner)
                    items.starts.append(start)
                    items.ends.append(stop)
                else:
                    cursor.at[record] = stop
        except Unreadable as why:
            cursor.fail(at[owner : owner + 1], str(why))
    return items


def _list(
    data: memoryview, at: int, end: int, left: int, part: Reading, is_map: bool
) -> Iterator[tuple[int, int]]:
    """Begin and end of each item; in the end (-1, the end of the list)."""
    while True:
        if not left:
            number, at = varint(data, at, end)
            left = signed(number)
            if left < 0:
                _, at = varint(data, at, end)
                left = -left
            if left > end - at:  # an item has a byte at least
                raise Unreadable(LONG_LIST)
            if not left:
                yield -1, at
                return
        start = at
        if is_map:
            at = _past_bytes(data, at, end)
        at = _past(data, at, end, part)
        yield start, at
        left -= 1


def _past(data: memoryview, at: int, end: int, part: Reading) -> int:
    """Where the value ends."""
    kind = part.kind
    if kind in ("int", "long", "enum"):
        return varint(data, at, end)[1]
    if kind in ("bytes", "string"):
        return _past_bytes(data, at, end)
    if kind == "record":
        for inner in part.parts:
            at = _past(data, at, end, inner)
        return at
    if kind == "union":
        number, at = varint(data, at, end)
        branch = signed(number)
        if not 0 <= branch < len(part.parts):
            raise Unreadable(NO_BRANCH)
        return _past(data, at, end, part.parts[branch])
    if kind in ("array", "map"):
        *_, (_, stop) = _list(data, at, end, 0, part.parts[0], kind == "map")
        return stop
    return _past_size(at, end, part.size if kind == "fixed" else _SIZES[kind])


def _past_bytes(data: memoryview, at: int, end: int) -> int:
    number, at = varint(data, at, end)
    return _past_size(at, end, signed(number))


def _past_size(at: int, end: int, size: int) -> int:
    if not 0 <= size <= end - at:
        raise Unreadable(ENDS_EARLY)
    return at + size


def message_fields(cursor: Cursor, at: Ints, live: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """The fields of the messages ``at[live]``, in order: whose, key, the bits of a number or where bytes
    begin, how many bytes. The cursor stands at the messages' ends."""
    data = cursor.data.data
    columns = [array("q") for _ in range(4)]
    whose, keys, values, sizes = (column.append for column in columns)
    for row in live.tolist():
        record = int(at[row])
        place, end = int(cursor.at[record]), int(cursor.end[record])
        try:
            while place < end:
                key, place = varint(data, place, end)
                wire, value, size = key & 7, place, 0
                if not 0 < key >> 3 < 1 << 29:
                    raise Unreadable(NO_ENCODING)
                if wire == VARINT:
                    value, place = varint(data, place, end)
                    value -= (value >> 63) << 64
                elif wire == BYTES:
                    size, value = varint(data, place, end)
                    place = _past_size(value, end, size)
                elif wire in (FIXED32, FIXED64):
                    place = _past_size(place, end, 4 if wire == FIXED32 else 8)
                    value = int.from_bytes(data[value:place], "little", signed=wire == FIXED64)
                else:
                    raise Unreadable(NO_ENCODING)
                whose(row), keys(key), values(value), sizes(size)
            cursor.at[record] = end
        except Unreadable as why:
            cursor.fail(at[row : row + 1], str(why))
    whose_, keys_, values_, sizes_ = (np.array(column, np.int64) for column in columns)
    return whose_, keys_, values_, sizes_
