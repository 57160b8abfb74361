"""Protobuf's schemas for tests, made without ``protoc``."""

from __future__ import annotations

from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)

REPEATED, REQUIRED, OPTIONAL = 3, 2, 1
_KINDS = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
}
IMPORTS = (timestamp_pb2, wrappers_pb2, duration_pb2)


def file_of(messages: dict[str, list[Any]], *, syntax: str = "proto3", name: str = "t.proto") -> Any:
    """A file of messages: per name its fields (name, number, kind, flags …), and enums (name, values).

    ``kind``: as Protobuf calls it, a message's or an enum's full name behind a dot, or ``map:K:V``. Flags:
    ``repeated``, ``required``, ``optional``, ``unpacked``, ``oneof``.
    """
    file = descriptor_pb2.FileDescriptorProto(name=name, package="t", syntax=syntax)
    file.dependency.extend(each.DESCRIPTOR.name for each in IMPORTS)
    for title, members in messages.items():
        if members and isinstance(members[0], str):
            enum = file.enum_type.add(name=title)
            for number, word in enumerate(members):
                enum.value.add(name=word, number=number - (1 if word == "MINUS" else 0) * (number + 1))
            continue
        message = file.message_type.add(name=title)
        if any("oneof" in flags for _, _, _, *flags in members):
            message.oneof_decl.add(name="choice")
        for field, number, kind, *flags in members:
            _add(message, field, number, kind, flags, syntax)
    return file


def _add(message: Any, name: str, number: int, kind: str, flags: list[str], syntax: str) -> None:
    if kind.startswith("map:"):
        _, key, value = kind.split(":")
        entry = message.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        _add(entry, "key", 1, key, [], syntax)
        _add(entry, "value", 2, value, [], syntax)
        kind, flags = f".t.{message.name}.{entry.name}", ["repeated"]
    label = REPEATED if "repeated" in flags else REQUIRED if "required" in flags else OPTIONAL
    field = message.field.add(name=name, number=number, label=label)
    if kind.startswith("."):
        field.type_name = kind
        field.type = _KINDS["enum" if kind.endswith("Enum") else "message"]
    else:
        field.type = _KINDS[kind]
    if "unpacked" in flags:
        field.options.packed = False
    if "oneof" in flags:
        field.oneof_index = 0
    if "optional" in flags and syntax == "proto3":
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


def classes(file: Any) -> dict[str, Any]:
    """Google's own classes of the messages, by name."""
    pool = descriptor_pool.DescriptorPool()
    for each in IMPORTS:
        pool.AddSerializedFile(each.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    found = message_factory.GetMessageClassesForFiles([file.name], pool)
    return {name.removeprefix("t."): made for name, made in found.items()}


def descriptors(*files: Any) -> bytes:
    """As ``protoc --descriptor_set_out`` writes them."""
    return bytes(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())
