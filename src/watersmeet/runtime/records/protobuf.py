"""Decode Protobuf messages into columns; Google's library parses each record.

If a field occurs several times, the last value counts and messages are merged; of a oneof the last field
counts. Undeclared fields are skipped, but a record that has none of the declared fields is broken. So is a
record in which a field is encoded as another type, which the library alone would skip. Source: Protobuf's
documentation, "Encoding".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.runtime.records.cursor import (
    NOT_UTF8,
    BytesCursor,
    Ints,
    build_list_array,
    build_map_array,
)
from watersmeet.runtime.records.values import NO_DAY, OUT_OF_RANGE, convert_integers, to_arrow_type
from watersmeet.spec.records.protobuf import TIMESTAMP_PARTS, load_protobuf, message_class, parsed_name
from watersmeet.spec.records.reading import Reading
from watersmeet.types.sql_type import TIMESTAMP, Field, struct

NO_MESSAGE = "it ends early, a number is too long, or it has a field with an unsupported wire type"
NONE_OF_ITS_FIELDS = "none of its fields is in the message"

_RANGES = {
    **dict.fromkeys(("int32", "sint32", "enum"), (-(2**31), 2**31 - 1)),
    "uint32": (0, 2**32 - 1),
    "bool": (0, 1),
}
_SECOND_US, _BILLION = 1_000_000, 1_000_000_000
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799


def decode_protobuf(cursor: BytesCursor, at: Ints, reading: Reading) -> pa.StructArray:
    """Decode the columns of the records ``at``; mark records that cannot be read."""
    protobuf, made = load_protobuf(), message_class(reading)
    data, messages = cursor.data.data, []
    for record in at.tolist():
        message = made()
        body = bytes(data[cursor.at[record] : cursor.end[record]])
        try:
            message.ParseFromString(body)
            if _has_no_field(protobuf, message, body, reading.parts):
                cursor.fail(np.array([record]), NONE_OF_ITS_FIELDS)
        except protobuf.message.DecodeError:
            cursor.fail(np.array([record]), NO_MESSAGE)
            message = made()
        messages.append(message)
    cursor.at[at] = cursor.end[at]
    return _read_message(cursor, at, reading, messages)


def _has_no_field(protobuf: Any, message: Any, body: bytes, parts: Sequence[Reading]) -> bool:
    """Return True if all bytes are of fields that the message does not have."""
    unknown = {item.field_number for item in protobuf.unknown_fields.UnknownFieldSet(message)}
    if not unknown or message.ListFields() or message.ByteSize() != len(body):
        return False
    return unknown.isdisjoint(part.number for part in parts)


def _fail_wrong_types(
    cursor: BytesCursor, at: Ints, parts: Sequence[Reading], messages: Sequence[Any]
) -> None:
    """Mark the records in which a field has another encoding than its type's; parsers pass over it."""
    wanted = {part.number: part.name for part in parts if part.to is not None}
    unknown_fields = load_protobuf().unknown_fields.UnknownFieldSet
    for row, message in enumerate(messages):
        for item in unknown_fields(message):
            if item.field_number in wanted:
                cursor.fail(at[row : row + 1], f'"{wanted[item.field_number]}" has another type')


def _read_message(cursor: BytesCursor, at: Ints, reading: Reading, messages: Sequence[Any]) -> pa.StructArray:
    _fail_wrong_types(cursor, at, reading.parts, messages)
    assert reading.to is not None
    type_ = to_arrow_type(reading.to)
    arrays: dict[int, pa.Array] = {}
    for part, place in zip(reading.parts, reading.places, strict=True):
        if part.presence == "required":
            missing = np.array([not message.HasField(parsed_name(part)) for message in messages], np.bool_)
            cursor.fail(at[missing], f'"{part.name}" is required, and is missing')
        if place >= 0:
            read = _read_single if part.repeated is None else _read_repeated
            arrays[place] = read(cursor, at, part, messages)
    return pa.StructArray.from_arrays([arrays[n] for n in range(len(type_))], fields=list(type_))


def _read_single(cursor: BytesCursor, at: Ints, part: Reading, messages: Sequence[Any]) -> pa.Array:
    """Read the values of a field that is not repeated; NULL where the message does not have it."""
    name = parsed_name(part)
    if part.presence == "implicit":
        return _read_values(cursor, at, part, [getattr(message, name) for message in messages])
    there = np.array([message.HasField(name) for message in messages], np.bool_)
    values = [getattr(messages[row], name) for row in np.flatnonzero(there).tolist()]
    array = _read_values(cursor, at[there], part, values)
    return array.take(pa.array(np.cumsum(there) - 1, mask=~there))


def _read_repeated(cursor: BytesCursor, at: Ints, part: Reading, messages: Sequence[Any]) -> pa.Array:
    """Read the values of a repeated field or of a map."""
    assert part.repeated is not None
    name = parsed_name(part)
    lists = [getattr(message, name) for message in messages]
    owners = np.repeat(np.arange(len(lists)), np.array([len(values) for values in lists], np.int64))
    array = _read_values(cursor, at[owners], part, [value for values in lists for value in values])
    type_ = to_arrow_type(part.repeated)
    if part.logical == "map":
        kept = _last_keys(owners, array.field(0))
        owners, array = owners[kept], array.take(pa.array(kept))
    offsets = np.zeros(len(at) + 1, np.int64)
    np.cumsum(np.bincount(owners, minlength=len(at)), out=offsets[1:])
    if part.logical == "map":
        return build_map_array(offsets, array.field(0), array.field(1), type_)
    return build_list_array(offsets, array, type_)


def _last_keys(owners: Ints, keys: pa.Array) -> Ints:
    """Select the last of the entries with the same key."""
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    pairs = owners * (len(keys) + 1) + codes
    _, from_behind = np.unique(pairs[::-1], return_index=True)
    return np.sort(len(pairs) - 1 - from_behind)


def _read_values(cursor: BytesCursor, at: Ints, part: Reading, values: Sequence[Any]) -> pa.Array:
    """Convert values as the library parses them.

    Args:
        at: the records that own them.
    """
    to, kind = part.to, part.kind
    assert to is not None
    if part.logical == "timestamp":
        return _read_timestamps(cursor, at, values)
    if part.logical == "wrapper":
        whole = Reading("message", struct([Field("value", to)]), parts=part.parts, places=(0,))
        return _read_message(cursor, at, whole, values).field(0)
    if kind == "message":
        return _read_message(cursor, at, part, values)
    if kind == "string":
        return pa.array(_decode_texts(cursor, at, values), pa.string())
    if kind in ("bytes", "float", "double"):
        return pa.array(values, to_arrow_type(to))
    if kind in ("uint64", "fixed64"):
        return pa.array(values, pa.uint64()).cast(pa.decimal128(20, 0)).cast(to_arrow_type(to))
    numbers = np.array(values, np.int64)
    if kind in _RANGES:
        least, most = _RANGES[kind]
        wrong = (numbers < least) | (numbers > most)
        cursor.fail(at[wrong], OUT_OF_RANGE)
        numbers = np.where(wrong, 0, numbers)
    if kind == "bool":
        return pa.array(numbers == 1)
    if kind == "enum" and to.name == "STRING":
        return _read_enum(cursor, at, numbers, part)
    return convert_integers(cursor, at, numbers, to, "")


def _decode_texts(cursor: BytesCursor, at: Ints, values: Iterable[bytes]) -> list[str]:
    texts = []
    for record, value in zip(at, values, strict=True):
        try:
            texts.append(value.decode())
        except UnicodeDecodeError:
            cursor.fail(np.array([record]), NOT_UTF8)
            texts.append("")
    return texts


def _read_timestamps(cursor: BytesCursor, at: Ints, values: Sequence[Any]) -> pa.Array:
    _fail_wrong_types(cursor, at, TIMESTAMP_PARTS, values)
    seconds, nanos = (
        np.array([getattr(value, name) for value in values], np.int64)
        for name in map(parsed_name, TIMESTAMP_PARTS)
    )
    wrong = (seconds < _FIRST_SECOND) | (seconds > _LAST_SECOND) | (nanos < 0) | (nanos >= _BILLION)
    cursor.fail(at[wrong], NO_DAY)
    micros = np.where(wrong, 0, seconds) * _SECOND_US + np.where(wrong, 0, nanos) // 1000
    return pa.array(micros).cast(to_arrow_type(TIMESTAMP))


def _read_enum(cursor: BytesCursor, at: Ints, values: Ints, part: Reading) -> pa.Array:
    numbers = np.array(part.numbers, np.int64)
    places = np.minimum(np.searchsorted(numbers, values), max(len(numbers) - 1, 0))
    wrong = numbers[places] != values if len(numbers) else np.ones(len(values), np.bool_)
    cursor.fail(at[wrong], f'the enum of "{part.name}" has no such number')
    return pa.array(part.words or ("",), pa.string()).take(pa.array(places))
