"""Frames of Kafka's records that have a schema beside them: decoded by tasks, in Arrow."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.engine.records.decoding import (
    VALUE,
    AvroDecoder,
    Decoder,
    Decoding,
    ProtobufDecoder,
    RegistryDecoder,
)
from watersmeet.engine.records.registry import Registry
from watersmeet.engine.spark.carried import Carrying
from watersmeet.engine.spark.sources.views import BROKEN
from watersmeet.engine.spark.text import quoted
from watersmeet.names import PARTITION
from watersmeet.spec.model import Source
from watersmeet.spec.options.kafka import records_of
from watersmeet.spec.options.records import (
    AVRO,
    REGISTRY,
    REGISTRY_PASSWORD,
    REGISTRY_UNKNOWN,
    REGISTRY_USER,
    SCHEMA,
    reading_of,
    value_columns,
)
from watersmeet.spec.options.records import BROKEN as BAD
from watersmeet.spec.secrets import Secret


def decoded(
    raw: DataFrame, source: Source, partition: SparkColumn, filled: Mapping[str, SparkColumn]
) -> DataFrame:
    """The declared columns, `PARTITION` and `BROKEN`.

    Args:
        filled: columns that are filled from beside the value.
    """
    plain = raw.select(F.col("value").alias(VALUE), *filled.values(), partition.alias(PARTITION))
    names = (*(column.name for column in source.columns), PARTITION)
    types = {column.name: str(column.type.nullable) for column in source.columns} | {PARTITION: "STRING"}
    schema = ", ".join(f"{quoted(name)} {types[name]}" for name in names)
    task = Decoding(decoder_of(source), names, BROKEN)
    return plain.mapInArrow(Carrying(task), f"{schema}, {quoted(BROKEN)} STRING")


def decoder_of(source: Source) -> Decoder:
    format_ = records_of(source.options)
    registry = registry_of(source)
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
    return Registry(url.strip(), user, Secret(password), unknown_is_broken=unknown == BAD)
