"""Protobuf messages, and how they become the declared columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from watersmeet.spec.model import Column
from watersmeet.spec.records.avro import Misfit, named_among
from watersmeet.spec.records.reading import Reading
from watersmeet.types.sql_type import Field, SqlType, struct

# Protobuf's messages as values, of what ``protoc --include_imports --descriptor_set_out`` writes.
#
# Such a file is a message itself (FileDescriptorSet). Source: ``google/protobuf/descriptor.proto``;
# "Encoding" of Protobuf's documentation.

KINDS = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool",
    9: "string", 10: "group", 11: "message", 12: "bytes", 13: "uint32", 14: "enum", 15: "sfixed32",
    16: "sfixed64", 17: "sint32", 18: "sint64",
}  # fmt: skip
"""By the numbers of FieldDescriptorProto.Type."""

TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = {
    "google.protobuf.DoubleValue": "double",
    "google.protobuf.FloatValue": "float",
    "google.protobuf.Int64Value": "int64",
    "google.protobuf.UInt64Value": "uint64",
    "google.protobuf.Int32Value": "int32",
    "google.protobuf.UInt32Value": "uint32",
    "google.protobuf.BoolValue": "bool",
    "google.protobuf.StringValue": "string",
    "google.protobuf.BytesValue": "bytes",
}
"""Messages that hold one value, so that it can be absent."""

_REQUIRED, _REPEATED = 2, 3


class BadDescriptor(ValueError):
    """The bytes are no descriptor, or one that is not read here."""


@dataclass(frozen=True)
class ProtoField:
    """
    Attributes:
        presence: ``explicit``: it can be absent; ``implicit``: absent is zero or empty; or ``required``.
        oneof: which of its message it is of; -1: none.
        refers: to a message or an enum, by its full name.
    """

    name: str
    number: int
    kind: str
    repeated: bool = False
    presence: str = "implicit"
    oneof: int = -1
    refers: str = ""

    def __str__(self) -> str:
        what = f"{self.kind} {self.refers}" if self.refers else self.kind
        return f"repeated {what}" if self.repeated else what


@dataclass(frozen=True)
class ProtoMessage:
    name: str
    fields: tuple[ProtoField, ...]
    is_entry: bool = False
    """Of a map."""


@dataclass
class ProtoSchema:
    """Messages, and enums as (number, name), by full names."""

    messages: dict[str, ProtoMessage] = field(default_factory=dict)
    enums: dict[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)


Parts = dict[int, list[int | bytes]]


def well_known() -> ProtoSchema:
    """Return the schema of the messages with a predefined meaning."""
    schema = ProtoSchema()
    for name, kind in WRAPPERS.items():
        schema.messages[name] = ProtoMessage(name, (ProtoField("value", 1, kind),))
    seconds, nanos = ProtoField("seconds", 1, "int64"), ProtoField("nanos", 2, "int32")
    for name in (TIMESTAMP, "google.protobuf.Duration"):
        schema.messages[name] = ProtoMessage(name, (seconds, nanos))
    return schema


def parse_descriptors(data: bytes) -> ProtoSchema:
    """Parse all declarations of a FileDescriptorSet.

    Raises:
        BadDescriptor: The data is invalid.
    """
    return parse_files(_several(_fields(data), 1))


def parse_files(files: Iterable[bytes]) -> ProtoSchema:
    """Parse all declarations of these FileDescriptorProtos.

    Raises:
        BadDescriptor: A file is invalid, or there are no files.
    """
    schema = well_known()
    count = 0
    for file in files:
        _file(file, schema)
        count += 1
    if not count:
        raise BadDescriptor("it has no files")
    return schema


def _file(data: bytes, schema: ProtoSchema) -> None:
    parts = _fields(data)
    syntax = _text(parts, 12) or "proto2"
    if syntax not in ("proto2", "proto3"):
        raise BadDescriptor(f"{_text(parts, 1)} has {syntax}; proto2 and proto3 are supported")
    package = _text(parts, 2)
    for message in _several(parts, 4):
        _message(message, package, syntax == "proto3", schema)
    for enum in _several(parts, 5):
        _enum(enum, package, schema)


def _message(data: bytes, space: str, is_proto3: bool, schema: ProtoSchema) -> None:
    parts = _fields(data)
    name = ".".join(filter(None, (space, _text(parts, 1))))
    for inner in _several(parts, 3):
        _message(inner, name, is_proto3, schema)
    for enum in _several(parts, 4):
        _enum(enum, name, schema)
    options = _fields(b"".join(_several(parts, 7)))
    fields = [_field(item, is_proto3) for item in _several(parts, 2)]
    is_entry = bool(_number(options, 7))
    if is_entry:
        fields = [replace(item, presence="implicit") for item in fields]
    schema.messages[name] = ProtoMessage(name, tuple(fields), is_entry)


def _field(data: bytes, is_proto3: bool) -> ProtoField:
    parts = _fields(data)
    label, kind = _number(parts, 4), KINDS.get(_number(parts, 5))
    if kind is None:
        raise BadDescriptor(f'field "{_text(parts, 1)}" has no type')
    oneof = _number(parts, 9) if 9 in parts else -1
    explicit = not is_proto3 or oneof >= 0 or bool(_number(parts, 17)) or kind in ("message", "group")
    presence = "required" if label == _REQUIRED else "explicit" if explicit else "implicit"
    return ProtoField(
        _text(parts, 1),
        _number(parts, 3),
        kind,
        label == _REPEATED,
        presence,
        oneof,
        _text(parts, 6).removeprefix("."),
    )


def _enum(data: bytes, space: str, schema: ProtoSchema) -> None:
    parts = _fields(data)
    values = []
    for value in _several(parts, 2):
        inner = _fields(value)
        number = _number(inner, 2)
        values.append((number - (1 << 64) if number >> 63 else number, _text(inner, 1)))
    schema.enums[".".join(filter(None, (space, _text(parts, 1))))] = tuple(values)


def _fields(data: bytes) -> Parts:
    """Return a message's values by their field numbers, in order."""
    parts: Parts = {}
    for number, value in _values(data):
        parts.setdefault(number, []).append(value)
    return parts


def _values(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if wire not in (1, 2, 5):
            raise BadDescriptor("it is not a descriptor")
        size, at = _varint(data, at) if wire == 2 else (8 if wire == 1 else 4, at)
        if at + size > len(data):
            raise BadDescriptor("it is not a descriptor, or ends early")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise BadDescriptor("it is not a descriptor, or ends early")


def _several(parts: Parts, number: int) -> list[bytes]:
    return [value for value in parts.get(number, []) if isinstance(value, bytes)]


def _text(parts: Parts, number: int) -> str:
    texts = _several(parts, number)
    try:
        return texts[-1].decode() if texts else ""
    except UnicodeDecodeError:
        raise BadDescriptor("it is not a descriptor") from None


def _number(parts: Parts, number: int) -> int:
    numbers = [value for value in parts.get(number, []) if isinstance(value, int)]
    return numbers[-1] if numbers else 0


# How records of a Protobuf message become the declared columns, or why they do not.
#
# A column takes what its type holds exactly: an unsigned number of 64 bits is no BIGINT.

_TYPES = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), ("INT", "BIGINT", "DOUBLE")),
    **dict.fromkeys(("uint32", "fixed32"), ("BIGINT", "DOUBLE")),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), ("BIGINT",)),
    **dict.fromkeys(("uint64", "fixed64"), ()),
    "double": ("DOUBLE",),
    "float": ("FLOAT", "DOUBLE"),
    "bool": ("BOOLEAN",),
    "string": ("STRING",),
    "bytes": ("BINARY",),
    "enum": ("STRING", "INT"),
}
_DIGITS = {
    **dict.fromkeys(("int32", "sint32", "sfixed32", "uint32", "fixed32"), 10),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), 19),
    **dict.fromkeys(("uint64", "fixed64"), 20),
}


def fit_protobuf(schema: ProtoSchema, message: str, columns: Sequence[Column]) -> Reading:
    """Return how to read records of ``message`` into ``columns``.

    Raises:
        Misfit: The records cannot be read into the columns.
    """
    if message not in schema.messages:
        names = ", ".join(sorted(n for n in schema.messages if not n.startswith("google.protobuf.")))
        raise Misfit([f'there is no message "{message}"; there are {names or "none"}'])
    problems: list[str] = []
    target = struct([Field(column.name, column.type) for column in columns])
    reading = _fit_message(schema, schema.messages[message], target, "", problems)
    if problems:
        raise Misfit(problems)
    return reading


def _fit_message(
    schema: ProtoSchema, message: ProtoMessage, to: SqlType, path: str, problems: list[str]
) -> Reading:
    names = [item.name for item in message.fields]
    place_of: dict[str, int] = {}
    for place, wanted in enumerate(to.fields):
        name = named_among(wanted.name, names)
        if name is not None and name not in place_of:
            place_of[name] = place
            continue
        whole = f"{path}.{wanted.name}" if path else wanted.name
        what = f'column "{whole}"' if "." not in whole else f'"{whole}"'
        others = ", ".join(item for item in names if item not in place_of) or "none"
        problems.append(f'{what} is not in the message "{message.name}", which has {others}')
    parts = [
        _fit_field(schema, item, to.fields[place_of[item.name]], path, problems)
        if item.name in place_of
        else _add_field_properties(item, Reading(item.kind))
        for item in message.fields
    ]
    places = tuple(place_of.get(item.name, -1) for item in message.fields)
    return Reading("message", to, parts=tuple(parts), places=places)


def _fit_field(
    schema: ProtoSchema, item: ProtoField, wanted: Field, path: str, problems: list[str]
) -> Reading:
    whole, to = f"{path}.{wanted.name}" if path else wanted.name, wanted.type
    inner = schema.messages.get(item.refers)
    is_map = item.repeated and inner is not None and inner.is_entry
    reading: Reading | None
    if is_map and inner is not None:
        entry = to.entry
        if entry is not None:
            pair = struct([Field("key", entry[0]), Field("value", entry[1])])
            return _add_field_properties(item, _fit_message(schema, inner, pair, whole, problems), to, "map")
        reading = None
    elif item.repeated:
        element = to.element
        reading = None if element is None else _value(schema, item, element, whole, problems)
    else:
        reading = _value(schema, item, to, whole, problems)
    if reading is None:
        what = f'column "{whole}"' if "." not in whole else f'"{whole}"'
        problems.append(f"{what} is declared {to}, but the message has {'map' if is_map else item}")
        reading = Reading(item.kind)
    return _add_field_properties(item, reading, to)


def _add_field_properties(
    item: ProtoField, reading: Reading, to: SqlType | None = None, logical: str = ""
) -> Reading:
    """Add the properties of the field in its message to a reading.

    Args:
        to: The type of the whole field, if its values are repeated.
    """
    return replace(
        reading,
        logical=logical or reading.logical,
        name=item.name,
        number=item.number,
        repeated=to if item.repeated else None,
        presence=item.presence,
        oneof=item.oneof,
    )


def _value(
    schema: ProtoSchema, item: ProtoField, to: SqlType, path: str, problems: list[str]
) -> Reading | None:
    """Return how to read a value, or None if ``to`` does not hold such values."""
    if item.kind == "message":
        message = schema.messages.get(item.refers)
        if message is None:
            problems.append(f'the message "{item.refers}" is not in the descriptor (--include_imports?)')
            return Reading("message", to)
        if to.is_struct:
            return _fit_message(schema, message, to, path, problems)
        if item.refers == TIMESTAMP and to.name == "TIMESTAMP":
            return Reading("message", to, "timestamp")
        if item.refers in WRAPPERS:
            inner = _value(schema, message.fields[0], to, path, problems)
            return (
                None
                if inner is None
                else Reading(
                    "message",
                    to,
                    "wrapper",
                    parts=(_add_field_properties(message.fields[0], inner),),
                    places=(0,),
                )
            )
        return None
    if item.kind == "group":
        return None
    fits = to.name in _TYPES[item.kind] or (to.is_decimal and to.whole_digits >= _DIGITS.get(item.kind, 99))
    if not fits:
        return None
    if item.kind != "enum":
        return Reading(item.kind, to)
    listed = schema.enums.get(item.refers)
    if not listed:
        problems.append(f'the enum "{item.refers}" is not in the descriptor (--include_imports?)')
        return Reading(item.kind, to)
    values = dict(reversed(listed))  # of several names of a number the first
    numbers = sorted(values)
    words = tuple(values[n] for n in numbers)
    return Reading(item.kind, to, words=words, numbers=tuple(numbers))
