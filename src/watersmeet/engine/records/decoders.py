"""Which decoder a source's records take, and which registry tells what they are."""

from __future__ import annotations

from watersmeet.engine.records.decoding import AvroDecoder, Decoder, ProtobufDecoder, RegistryDecoder
from watersmeet.engine.records.registry import Registry
from watersmeet.spec.model import Source
from watersmeet.spec.options.kafka import records_of
from watersmeet.spec.options.records import (
    AVRO,
    BROKEN,
    REGISTRY,
    REGISTRY_PASSWORD,
    REGISTRY_UNKNOWN,
    REGISTRY_USER,
    SCHEMA,
    reading_of,
    value_columns,
)
from watersmeet.spec.secrets import Secret


def decoder_of(source: Source, registry: Registry | None) -> Decoder:
    """``registry``: that of the source."""
    format_ = records_of(source.options)
    if registry is not None:
        return RegistryDecoder(registry, tuple(value_columns(source)), source.options[SCHEMA])
    reading = reading_of(source, format_)
    return AvroDecoder(reading) if format_ == AVRO else ProtobufDecoder(reading)


def registry_of(source: Source) -> Registry | None:
    """The registry that tells what its records are, if one does."""
    url = source.options.get(REGISTRY)
    if url is None:
        return None
    user, password = (source.options.get(name, "") for name in (REGISTRY_USER, REGISTRY_PASSWORD))
    unknown = source.options.get(REGISTRY_UNKNOWN, "").strip().lower()
    return Registry(url.strip(), user, Secret(password), unknown_is_broken=unknown == BROKEN)
