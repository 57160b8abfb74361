"""Options of records that have a schema beside them: which it is, and that it becomes the declared columns.

A file that an option names is read when the declaration is: the option then holds what is in it, so that a
job that goes on knows whether that is another one.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from watersmeet.errors import SpecError, WatersmeetError, near_names
from watersmeet.regular_files import read_bytes
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.values import wrong_value
from watersmeet.spec.records.avro import BadSchema, Misfit, fit_avro, parse_avro
from watersmeet.spec.records.protobuf import BadDescriptor, ProtoSchema, fit_protobuf, parse_descriptors
from watersmeet.spec.records.reading import Reading
from watersmeet.spec.secrets import public_option

AVRO, PROTOBUF = "avro", "protobuf"
SCHEMA = "avro.schema"
DESCRIPTOR, MESSAGE = "protobuf.descriptor", "protobuf.message"
REGISTRY = "schema.registry"
REGISTRY_USER, REGISTRY_PASSWORD = "schema.registry.user", "schema.registry.password"
REGISTRY_UNKNOWN = "schema.registry.unknown"
WAIT, BROKEN = "wait", "broken"
"""What becomes of a record whose schema the registry does not have."""
_OF_REGISTRY = (REGISTRY, REGISTRY_USER, REGISTRY_PASSWORD, REGISTRY_UNKNOWN)
HEADER, CONFLUENT = "schema.header", "confluent"
"""What stands before a record in JSON, and is passed over: a byte 0 and the number of its schema."""
OPTIONS = (SCHEMA, DESCRIPTOR, MESSAGE, *_OF_REGISTRY, HEADER)
FORMATS = (AVRO, PROTOBUF)
"""Formats of Kafka's records that are decoded by a schema."""

_JSON = "json"
_IN_BASE64 = "base64:"
_HINTS = {
    SCHEMA: 'use the path of a schema file, or the schema itself: \'{"type": "record", …}\'',
    DESCRIPTOR: "use the path of a file written by `protoc --include_imports --descriptor_set_out=FILE`",
}

Problem = Callable[[str, str | None], WatersmeetError]


def inline_files(options: Mapping[str, str], error: Problem) -> dict[str, str]:
    """Return the options with the content of the files that they name.

    Args:
        error: Builds a problem from a message and a hint.
    """
    given = dict(options)
    for name, value in options.items():
        plain = name.lower()
        if plain not in _HINTS or value.lstrip()[:1] in ("{", "[", '"') or value.startswith(_IN_BASE64):
            continue
        try:
            raw = read_bytes(os.path.expanduser(value))
            given[name] = raw.decode() if plain == SCHEMA else _IN_BASE64 + base64.b64encode(raw).decode()
        except (OSError, ValueError) as cause:
            why = getattr(cause, "strerror", None) or "it is not a text file"
            shown = public_option(name, value)
            raise error(f"option '{name}': \"{shown}\" cannot be read: {why}", _HINTS[plain]) from None
    return given


def value_columns(source: Source) -> list[Column]:
    """Return the columns that the records' values fill, without those that metadata fills."""
    beside = {name.partition(".")[2] for name in source.options if name.startswith("metadata.")}
    return [column for column in source.columns if column.name not in beside]


def record_problems(what: str, source: Source, format_: str) -> Iterator[SpecError]:
    """Yield problems of the options of such a format, and of columns that records cannot fill."""
    for name in source.options:
        prefix = name.partition(".")[0]
        if name in _OF_REGISTRY:
            prefix = AVRO
        if name == HEADER:
            prefix = _JSON
        if name in OPTIONS and prefix != format_:
            message = f'{what}: option "{name}" is for the format {prefix}, but the format is {format_}'
            yield SpecError(
                message, code="unknown-option", hint=f"set 'format' = '{prefix}', or remove the option"
            )
    header = source.options.get(HEADER)
    if header is not None and header.strip().lower() != CONFLUENT:
        hint = f"it can be '{CONFLUENT}': a byte 0, then a schema id of 4 bytes"
        yield wrong_value(what, HEADER, header, hint)
    if format_ not in FORMATS:
        return
    yield from _registry_problems(what, source)
    missing = [
        name
        for name in ((SCHEMA,) if format_ == AVRO else (DESCRIPTOR, MESSAGE))
        if name not in source.options
    ]
    for name in missing:
        message = f'{what} needs the option "{name}": the records do not contain their schema'
        yield SpecError(message, code="missing-option", hint=_HINTS.get(name, f"'{name}' = 'shop.Order'"))
    if missing:
        return
    try:
        reading_of(source, format_)
    except (BadSchema, BadDescriptor) as error:
        name = SCHEMA if format_ == AVRO else DESCRIPTOR
        yield SpecError(f"{what}: option '{name}': {error}", code="wrong-option", hint=_HINTS[name])
    except Misfit as error:
        yield from misfits(what, error.problems)


def _registry_problems(what: str, source: Source) -> Iterator[SpecError]:
    url = source.options.get(REGISTRY)
    if url is None:
        for name in (REGISTRY_USER, REGISTRY_PASSWORD, REGISTRY_UNKNOWN):
            if name in source.options:
                message = f'{what}: option "{name}" needs "{REGISTRY}"'
                yield SpecError(
                    message,
                    code="wrong-option",
                    hint="add 'schema.registry' = 'http://…', or remove the option",
                )
        return
    unknown = source.options.get(REGISTRY_UNKNOWN, WAIT)
    if unknown.strip().lower() not in (WAIT, BROKEN):
        hint = near_names(unknown, (WAIT, BROKEN)) or f"it can be {WAIT} or {BROKEN}"
        yield wrong_value(what, REGISTRY_UNKNOWN, unknown, hint)
    try:
        parts = urlsplit(url.strip())
        fits = (
            parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or parts.fragment)
        )
        named = "@" in parts.netloc
    except ValueError:
        fits, named = False, True
    if not fits or named:
        who = f"set the user with '{REGISTRY_USER}' and '{REGISTRY_PASSWORD}'"
        yield wrong_value(what, REGISTRY, url, f"'http://host:8081', or https; {who}")


def misfits(what: str, problems: Sequence[str]) -> Iterator[SpecError]:
    for problem in problems:
        yield SpecError(
            f"{what}: {problem}",
            code="wrong-types",
            hint="declare the type that the schema has, and cast in a view",
        )


def reading_of(source: Source, format_: str) -> Reading:
    """Return how to read records of the schema that the options declare.

    Raises:
        BadSchema, BadDescriptor: The schema is invalid.
        Misfit: The columns do not fit the schema.
    """
    if format_ == PROTOBUF:
        schema = proto_schema(source.options[DESCRIPTOR])
        return fit_protobuf(schema, message_of(source), value_columns(source))
    written = parse_avro(source.options[SCHEMA])
    return fit_avro(written, value_columns(source), written)


def message_of(source: Source) -> str:
    """Return the full name of the records' message type."""
    return source.options.get(MESSAGE, "").strip().removeprefix(".")


def proto_schema(inlined_text: str) -> ProtoSchema:
    """Parse the schema in the option's value.

    Raises:
        BadDescriptor: The value is not a valid descriptor.
    """
    if not inlined_text.startswith(_IN_BASE64):
        raise BadDescriptor("the file was not read")
    try:
        data = base64.b64decode(inlined_text.removeprefix(_IN_BASE64), validate=True)
    except binascii.Error:
        raise BadDescriptor("it is not base64") from None
    return parse_descriptors(data)
