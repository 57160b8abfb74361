"""Kafka topics as sources, with text or schema formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from watersmeet.errors import raise_all
from watersmeet.names import PARTITION, ours
from watersmeet.runtime.records.decoding import VALUE, Decoding, build_decoder, build_registry
from watersmeet.runtime.spark import lazy_functions as F
from watersmeet.runtime.spark.errors import ErrorSealingTask
from watersmeet.runtime.spark.json_object import (
    extract_object,
    is_not_whole,
    lacks_column,
    parse_whole_json,
)
from watersmeet.runtime.spark.read_types import cast_to_declared, use_read_types
from watersmeet.runtime.spark.rounded_decimals import TopicRecord
from watersmeet.runtime.spark.sources import debezium
from watersmeet.runtime.spark.sources.changes import read_upserts
from watersmeet.runtime.spark.sources.columns import BROKEN
from watersmeet.runtime.spark.sql_text import literal, only_utf8, options_map, quote_name
from watersmeet.spec.model import Source
from watersmeet.spec.options.changes import DEBEZIUM, UPSERT
from watersmeet.spec.options.kafka import (
    READER,
    SOURCE_OURS,
    metadata_of,
    parser_of,
    records_of,
    servers_text,
    topics_in,
)
from watersmeet.spec.options.names import source_option_problems
from watersmeet.spec.options.records import FORMATS as WITH_SCHEMA
from watersmeet.spec.options.records import HEADER
from watersmeet.spec.options.records import OPTIONS as OF_SCHEMAS
from watersmeet.spec.records.text_records import JsonNames
from watersmeet.types.sql_type import SqlType

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession


# Frames of Kafka's records that have a schema beside them: decoded by tasks, in Arrow.


def decode_records(
    raw: DataFrame, source: Source, partition: SparkColumn, filled: Mapping[str, SparkColumn]
) -> DataFrame:
    """Decode Kafka records with the source's decoder.

    Args:
        filled: columns whose values do not come from the record's value.

    Returns:
        The declared columns, `PARTITION` and `BROKEN`.
    """
    plain = raw.select(F.col("value").alias(VALUE), *filled.values(), partition.alias(PARTITION))
    names = (*(column.name for column in source.columns), PARTITION)
    types = {column.name: str(column.type.nullable) for column in source.columns} | {PARTITION: "STRING"}
    schema = ", ".join(f"{quote_name(name)} {types[name]}" for name in names)
    task = Decoding(build_decoder(source, build_registry(source)), names, BROKEN)
    return plain.mapInArrow(ErrorSealingTask(task), f"{schema}, {quote_name(BROKEN)} STRING")


# Kafka topics as sources: value formats ``json``, ``csv``, ``raw``, ``debezium-json``, ``upsert-json``
# and those with a schema beside them, per-partition watermarks.
#
# Options: ``bootstrap.servers``, ``topic`` (several with commas), ``format`` (json), ``startingOffsets``
# (earliest), ``maxOffsetsPerTrigger``; ``metadata.<column>`` = key | topic | partition | offset |
# timestamp fills a column from the record and not from its value; ``csv.<name>`` / ``json.<name>`` go to
# the parser; any other with a dot is Kafka's own. Records of transactions that were aborted are not read,
# unless ``isolation.level`` says ``read_uncommitted``. In format raw the column ``value`` (or the only
# one that is not metadata) is the value, and columns named like metadata are metadata.

_PARSED, _CORRUPT = map(ours, ("parsed", "corrupt"))

OFFSETS_PER_TICK = 500_000
FETCH_WAIT_MS = "20"
"""How long a broker waits for rows that are not there: only those that are there are asked for. By Kafka's
own 500 each task of a partition took half a second."""

_VALUE_AFTER_HEADER = (
    "IF(substring(value, 1, 1) = X'00' AND length(value) >= 5, CAST(substring(value, 6) AS STRING), NULL)"
)
"""A record without the header is none."""

_SPARKS = {name.lower(): name for name in READER}


def read(spark: SparkSession, source: Source, sources: int) -> DataFrame:
    """Return the streaming frame of a Kafka source; see `sources`."""
    topics = topics_in(source.options)
    options = {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(max(1, OFFSETS_PER_TICK // sources)),
        "kafka.fetch.max.wait.ms": FETCH_WAIT_MS,
    }
    options |= reader_options(source)
    raw = spark.readStream.format("kafka").options(**options).option("subscribe", ",".join(topics)).load()
    return parse_records(raw, source)


def parse_records(raw: DataFrame, source: Source) -> DataFrame:
    """Parse Kafka's records into the form of `sources.frames.read`."""
    partition = F.expr("CAST(partition AS STRING)")
    if len(topics_in(source.options)) > 1:
        partition = F.expr("concat(topic, '/', CAST(partition AS STRING))")
    return cast_to_declared(_parse_by_format(raw, use_read_types(source), partition), source)


def partition_names(source: Source, partitions: dict[str, list[int]]) -> tuple[str, ...]:
    """Return the names of partitions (given per topic) that rows have in `PARTITION`."""
    if len(topics_in(source.options)) == 1:
        return tuple(str(number) for numbers in partitions.values() for number in sorted(numbers))
    return tuple(f"{topic}/{number}" for topic in sorted(partitions) for number in sorted(partitions[topic]))


def reader_options(source: Source) -> dict[str, str]:
    """Build the options of Spark's Kafka reader.

    Spark passes options that start with ``kafka.`` to Kafka.

    Raises:
        SpecError: an option is wrong.
    """
    raise_all(source_option_problems(source))
    options = {
        "kafka.bootstrap.servers": servers_text(source.options),
        "kafka.isolation.level": "read_committed",
    }
    for name, value in source.options.items():
        if name in (*SOURCE_OURS, *OF_SCHEMAS) or name.startswith(
            ("metadata.", "csv.", "json.", "debezium.")
        ):
            continue
        if name.lower() in _SPARKS:
            options[_SPARKS[name.lower()]] = value
        else:
            options[name if name.startswith("kafka.") else f"kafka.{name}"] = value
    return options


def _parse_by_format(raw: DataFrame, source: Source, partition: SparkColumn) -> DataFrame:
    wanted = records_of(source.options)
    metadata = metadata_of(source)
    values = [column for column in source.columns if column.name not in metadata]
    by_name = {
        column.name: F.expr(f"CAST({metadata[column.name]} AS {column.type})").alias(column.name)
        for column in source.columns
        if column.name in metadata
    }
    tail = [partition.alias(PARTITION)]
    if wanted == "raw":
        by_name |= {c.name: F.expr(f"CAST(value AS {c.type})").alias(c.name) for c in values}
        columns = [by_name[column.name] for column in source.columns]
        return raw.select(*columns, *tail, F.lit(None).cast("string").alias(BROKEN))
    if wanted in WITH_SCHEMA:
        return decode_records(raw, source, partition, by_name)
    prefix = f"{parser_of(wanted)}."
    parser = {k.removeprefix(prefix): v for k, v in source.options.items() if k.startswith(prefix)}
    if wanted == DEBEZIUM:
        return debezium.read_changes(raw, source, partition, parser)
    if wanted == UPSERT:
        filled = {
            c.name: f"CAST({metadata[c.name]} AS {c.type})" for c in source.columns if c.name in metadata
        }
        return read_upserts(raw, source, partition, parser, filled)
    text = _VALUE_AFTER_HEADER if HEADER in source.options else "CAST(value AS STRING)"
    shown = f"coalesce({text}, CAST(value AS STRING), '')"
    types = {column.name: column.type for column in values}

    def parse(types: Mapping[str, SqlType]) -> str:
        if wanted == "json":
            fields = ", ".join(f"{quote_name(name)}: {own}" for name, own in types.items())
            names = JsonNames.of(types.items())
            return parse_whole_json(text, fields, parser, names, lambda row: lacks_column(row, types))
        options = {**parser, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        schema = ", ".join(f"{quote_name(name)} {own}" for name, own in types.items())
        schema = literal(f"{schema}, {_CORRUPT} STRING")
        return f"from_{wanted}({only_utf8(text)}, {schema}, {options_map(options)})"

    def row_in(parsed: str) -> str:
        return extract_object(parsed) if wanted == "json" else parsed

    def broken_in(parsed: str) -> str:
        if wanted == "json":
            return f"IF({is_not_whole(parsed)}, {shown}, NULL)"
        return f"IF({parsed} IS NULL, {shown}, {parsed}.{_CORRUPT})"

    carried = [quote_name(name) for name in sorted(set(metadata.values()) | {"value"})]
    record = TopicRecord(source, types, _PARSED, row_in)
    told = record.parse(parse, by_place=wanted == "csv")
    frame = raw.select(F.expr(told).alias(_PARSED), *map(F.col, carried), *tail)
    by_name |= {name: F.expr(record.value(name)).alias(name) for name in types}
    broken = broken_in(record.first)
    if record.second is not None:
        broken = f"coalesce({broken}, IF({record.second} IS NULL, NULL, {broken_in(record.second)}))"
    columns = [by_name[column.name] for column in source.columns]
    return frame.select(*columns, F.col(PARTITION), F.expr(broken).alias(BROKEN), *record.rounded_columns())
