"""Protobuf messages, and how they become the declared columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from watersmeet.errors import SpecError
from watersmeet.spec.model import Column
from watersmeet.spec.records.avro import Misfit, named_among
from watersmeet.spec.records.reading import Reading
from watersmeet.types.sql_type import BIGINT, INT, Field, SqlType, struct

# Protobuf's messages as values, of what ``protoc --include_imports --descriptor_set_out`` writes.
#
# Such a file is a message itself (FileDescriptorSet). Source: ``google/protobuf/descriptor.proto``.

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

_OPTIONAL, _REQUIRED, _REPEATED = 1, 2, 3


def load_protobuf() -> Any:
    """Import Google's library and return its package.

    Raises:
        SpecError: The library is not installed.
    """
    try:
        from google import protobuf
        from google.protobuf import (  # noqa: F401
            descriptor_pb2,
            descriptor_pool,
            message,
            message_factory,
            unknown_fields,
        )
    except ImportError:
        raise SpecError(
            "the format protobuf needs the library protobuf, which is not installed",
            code="missing-library",
            hint="run `pip install 'watersmeet[protobuf]'`, also where Spark's Python workers run",
        ) from None
    return protobuf


class BadDescriptor(ValueError):
    """The bytes are no descriptor, or one that is not read here."""


@dataclass(frozen=True)
class ProtoField:
    """Field of a Protocol Buffers message.

    Attributes:
        presence: ``explicit``: the field can be absent; ``implicit``: absent means zero or empty; or
            ``required``.
        oneof: the number of its oneof in the message; -1 if it has none.
        refers: the full name of the message or enum that is its type.
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
        BadDescriptor: The data is invalid, or there are no files.
        SpecError: Google's library is not installed.
    """
    protobuf, schema = load_protobuf(), well_known()
    try:
        files = protobuf.descriptor_pb2.FileDescriptorSet.FromString(data).file
        for file in files:
            _file(file, schema)
    except (protobuf.message.DecodeError, UnicodeDecodeError):
        raise BadDescriptor("it is not a descriptor, or ends early") from None
    if not files:
        raise BadDescriptor("it has no files")
    return schema


def _file(file: Any, schema: ProtoSchema) -> None:
    syntax = file.syntax or "proto2"
    if syntax not in ("proto2", "proto3"):
        raise BadDescriptor(f"{file.name} has {syntax}; proto2 and proto3 are supported")
    for message in file.message_type:
        _message(message, file.package, syntax == "proto3", schema)
    for enum in file.enum_type:
        _enum(enum, file.package, schema)


def _message(message: Any, space: str, is_proto3: bool, schema: ProtoSchema) -> None:
    name = ".".join(filter(None, (space, message.name)))
    for inner in message.nested_type:
        _message(inner, name, is_proto3, schema)
    for enum in message.enum_type:
        _enum(enum, name, schema)
    fields = [_field(item, is_proto3) for item in message.field]
    is_entry = message.options.map_entry
    if is_entry:
        fields = [replace(item, presence="implicit") for item in fields]
    schema.messages[name] = ProtoMessage(name, tuple(fields), is_entry)


def _field(item: Any, is_proto3: bool) -> ProtoField:
    if not item.HasField("type"):
        raise BadDescriptor(f'field "{item.name}" has no type')
    kind = item.Type.Name(item.type).removeprefix("TYPE_").lower()
    oneof = item.oneof_index if item.HasField("oneof_index") else -1
    explicit = not is_proto3 or oneof >= 0 or item.proto3_optional or kind in ("message", "group")
    presence = "required" if item.label == _REQUIRED else "explicit" if explicit else "implicit"
    return ProtoField(
        item.name,
        item.number,
        kind,
        item.label == _REPEATED,
        presence,
        oneof,
        item.type_name.removeprefix("."),
    )


def _enum(enum: Any, space: str, schema: ProtoSchema) -> None:
    values = tuple((value.number, value.name) for value in enum.value)
    schema.enums[".".join(filter(None, (space, enum.name)))] = values


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
    try:
        message_class(reading)
    except (TypeError, ValueError) as error:
        raise Misfit([f'the message "{message}" is not valid: {error}']) from None
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


# The class with which Google's library parses the records.
#
# It has the numbers of the message's fields, and types with the same encoding that lose nothing: numbers of
# 32 bits are parsed as 64, so that one out of range is known, and texts as bytes, so that one that is not
# UTF-8 is known, too.

TIMESTAMP_PARTS = (
    Reading("int64", BIGINT, name="seconds", number=1, presence="implicit"),
    Reading("int32", INT, name="nanos", number=2, presence="implicit"),
)
_PARSED_AS = {
    **dict.fromkeys(("int32", "uint32", "bool", "enum"), "int64"),
    "sint32": "sint64",
    "string": "bytes",
}


@lru_cache(maxsize=256)
def message_class(reading: Reading) -> Any:
    """Return the library's class for a message; its fields are named by `parsed_name`.

    Each field records its presence.

    Raises:
        TypeError: The message is not valid.
    """
    protobuf = load_protobuf()
    file = protobuf.descriptor_pb2.FileDescriptorProto(name="records.proto")
    _declare(file.message_type.add(name="Record"), reading.parts)
    pool = protobuf.descriptor_pool.DescriptorPool()
    pool.Add(file)
    return protobuf.message_factory.GetMessageClass(pool.FindMessageTypeByName("Record"))


def parsed_name(part: Reading) -> str:
    """Return the name of a field in its `message_class`."""
    return f"f{part.number}"


def _declare(message: Any, parts: Sequence[Reading]) -> None:
    """Declare the fields; a message that no column needs is bytes, which are not looked at."""
    oneofs: dict[int, int] = {}
    for part in parts:
        kind = _PARSED_AS.get(part.kind, part.kind)
        if kind == "message" and part.to is None:
            kind = "bytes"
        name, label = parsed_name(part), _OPTIONAL if part.repeated is None else _REPEATED
        item = message.field.add(name=name, number=part.number, label=label)
        item.type = item.Type.Value(f"TYPE_{kind.upper()}")
        if kind in ("message", "group"):
            item.type_name = f"Of_{name}"
            inner = TIMESTAMP_PARTS if part.logical == "timestamp" else part.parts
            _declare(message.nested_type.add(name=item.type_name), inner)
        if part.oneof >= 0:
            item.oneof_index = oneofs.setdefault(part.oneof, len(oneofs))
            if item.oneof_index == len(message.oneof_decl):
                message.oneof_decl.add(name=f"oneof_{part.oneof}")
