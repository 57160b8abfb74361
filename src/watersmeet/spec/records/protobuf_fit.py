"""How records of a Protobuf message become the declared columns, or why they do not.

A column takes what its type holds exactly: an unsigned number of 64 bits is no BIGINT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from watersmeet.spec.model import Column
from watersmeet.spec.records.avro_fit import Misfit, named_among
from watersmeet.spec.records.protobuf import TIMESTAMP, WRAPPERS, ProtoField, ProtoMessage, ProtoSchema
from watersmeet.spec.records.reading import Reading
from watersmeet.types.sql_type import Field, SqlType, struct

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
    """How records of ``message`` are read into ``columns``. Raises: Misfit."""
    if message not in schema.messages:
        names = ", ".join(sorted(n for n in schema.messages if not n.startswith("google.protobuf.")))
        raise Misfit([f'there is no message "{message}"; there are {names or "none"}'])
    problems: list[str] = []
    target = struct([Field(column.name, column.type) for column in columns])
    reading = _message(schema, schema.messages[message], target, "", problems)
    if problems:
        raise Misfit(problems)
    return reading


def _message(
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
        _field(schema, item, to.fields[place_of[item.name]], path, problems)
        if item.name in place_of
        else _described(item, Reading(item.kind))
        for item in message.fields
    ]
    places = tuple(place_of.get(item.name, -1) for item in message.fields)
    return Reading("message", to, parts=tuple(parts), places=places)


def _field(schema: ProtoSchema, item: ProtoField, wanted: Field, path: str, problems: list[str]) -> Reading:
    whole, to = f"{path}.{wanted.name}" if path else wanted.name, wanted.type
    inner = schema.messages.get(item.refers)
    is_map = item.repeated and inner is not None and inner.is_entry
    reading: Reading | None
    if is_map and inner is not None:
        entry = to.entry
        if entry is not None:
            pair = struct([Field("key", entry[0]), Field("value", entry[1])])
            return _described(item, _message(schema, inner, pair, whole, problems), to, "map")
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
    return _described(item, reading, to)


def _described(item: ProtoField, reading: Reading, to: SqlType | None = None, logical: str = "") -> Reading:
    """With what the field is of its message. ``to``: of the whole, where values are repeated."""
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
    """None: the type does not hold such values."""
    if item.kind == "message":
        message = schema.messages.get(item.refers)
        if message is None:
            problems.append(f'the message "{item.refers}" is not in the descriptor (--include_imports?)')
            return Reading("message", to)
        if to.is_struct:
            return _message(schema, message, to, path, problems)
        if item.refers == TIMESTAMP and to.name == "TIMESTAMP":
            return Reading("message", to, "timestamp")
        if item.refers in WRAPPERS:
            inner = _value(schema, message.fields[0], to, path, problems)
            return (
                None
                if inner is None
                else Reading(
                    "message", to, "wrapper", parts=(_described(message.fields[0], inner),), places=(0,)
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
