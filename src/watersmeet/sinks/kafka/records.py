"""Rows of a tick as records of a Kafka topic, staged until they are sent."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import IO, Any

import pyarrow as pa
import tenacity

from watersmeet.errors import EngineError, SpecError, near_names, raise_all
from watersmeet.names import CHANGE_COLUMNS
from watersmeet.sinks.base import (
    Files,
    Frame,
    KeyedRecords,
    Schema,
    StagedPart,
    check_key_is_there,
    check_unique_names,
    columns_of,
    text_options_sql,
)
from watersmeet.sinks.kafka.client import Client, library
from watersmeet.sinks.read_hints import unreadable_error
from watersmeet.sinks.staging import RowsPart, Staged, batches_in
from watersmeet.spec.model import Sink
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.spec.options.changes import DEBEZIUM
from watersmeet.spec.options.files import check_written
from watersmeet.spec.options.kafka import (
    JSON,
    KEYED,
    RAW,
    SINK_OURS,
    key_format,
    records_of,
    sink_problems,
    topics_in,
)
from watersmeet.spec.options.kafka_delivery import client_settings
from watersmeet.types.sql_type import BINARY, STRING, SqlType

# Rows of a tick as records of a Kafka topic, for either delivery.
#
# Values: ``json`` (one object a row, NULLs included), ``csv`` (one line a row), ``raw`` (the one column
# that is not the key, as text or bytes). ``key`` names the column whose text (or bytes) is the record's
# key; it stays in json and csv values. With a PRIMARY KEY values are rows by their keys (``upsert-json``)
# or events with the row before and after (``debezium-json``), one record per key and tick:
# `KeyedRecords`. Kafka's own settings go by their names, with or without the prefix ``kafka.``.


class TopicRecords:
    """See the module. Options: ``bootstrap.servers``, ``topic``, ``format`` (json), ``key``."""

    def __init__(self, spec: SinkSpec) -> None:
        self._spec = spec
        raise_all(list(sink_problems(spec)))
        self._format = records_of(spec.options)
        self.topic = spec.options["topic"].strip()
        self._key = spec.options.get("key")

    @property
    def keyed(self) -> KeyedRecords | None:
        """See `Sink.keyed`."""
        if self._format not in KEYED:
            return None
        plain = key_format(self._spec.options) == RAW
        return KeyedRecords(self._spec.primary_key, self._format == DEBEZIUM, plain)

    def check(self, schema: Schema) -> None:
        """Check that records can be made of the columns.

        Raises:
            SpecError: No records can be made of some column.
        """
        columns = columns_of(schema)
        check_unique_names(columns, self._spec)
        if self._format in KEYED:
            check_written(self._spec, "json", columns)
            check_key_is_there(columns, self._spec)
            return
        check_written(self._spec, self._format, columns)
        self._expressions([(c.name, c.type) for c in columns])

    def of(self, frame: Frame) -> Frame:
        """Select the frame's rows as columns ``key`` (if there are keys) and ``value``."""
        if self._format in KEYED:
            return frame
        key, value = self._expressions([(c.name, c.type) for c in columns_of(frame.schema)])
        return frame.selectExpr(*([f"{key} AS key"] if key else []), f"{value} AS value")

    def _expressions(self, columns: list[tuple[str, SqlType]]) -> tuple[str | None, str]:
        """Return a record's key and value as Spark SQL."""
        types = dict(columns)
        key = None
        if self._key is not None:
            if self._key not in types:
                raise SpecError(
                    f'\'key\' of kafka sink "{self._spec.name}" is the column "{self._key}", which'
                    " the result does not have",
                    code="unknown-column",
                    hint=near_names(self._key, types),
                )
            key = _text(self._key, types[self._key])
        if self._format == "json":
            return key, f"to_json(struct(*), {text_options_sql('json')})"
        if self._format == "csv":
            return key, f"to_csv(struct(*), {text_options_sql('csv')})"
        if all(name in types for name in CHANGE_COLUMNS):
            raise SpecError(
                f'format raw of kafka sink "{self._spec.name}" cannot hold'
                f" {' and '.join(CHANGE_COLUMNS)}, which tell inserts from deletes",
                code="raw-of-changes",
                hint="use format json or csv",
            )
        values = [name for name in types if name != self._key]
        if len(values) != 1:
            raise SpecError(
                f'format raw of kafka sink "{self._spec.name}" writes one column besides the key, but'
                f" the result has {len(values)}",
                code="raw-needs-one-column",
                hint="use format json or csv, or set the key column: 'key' = '…'",
            )
        return key, _text(values[0], types[values[0]])


def _text(column: str, kind: SqlType) -> str:
    quoted = "`" + column.replace("`", "``") + "`"
    return quoted if kind in (STRING, BINARY) else f"CAST({quoted} AS STRING)"


# Records of a tick until they are sent: staged rows with the columns ``key`` and ``value``.

_COLUMNS = ("key", "value")
_SCHEMA = pa.schema([(name, pa.large_binary()) for name in _COLUMNS])


@dataclass(frozen=True)
class KafkaPart:
    """Stages the records of partitions: rows with the columns ``key``, if there are keys, and ``value``.

    Args:
        files, folder: as of `RowsPart`, which it tells the same as.
    """

    files: Files = field(repr=False)
    folder: str

    def write(self, partition: int, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> StagedPart:
        """Stage all records of a partition, in order."""
        return RowsPart(self.files, self.folder).write(partition, _SCHEMA, map(_records, rows))


def records_in(files: Files, staged: Sequence[Staged], sink: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield the key and value of all records of the staged files, in order.

    Raises:
        EngineError: A file no longer has the number of rows that was staged.
    """
    for name, rows in staged:
        for batch in batches_in(files, name, rows, sink):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _records(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        batch.column(name).cast(pa.large_binary())
        if name in batch.schema.names
        else pa.nulls(batch.num_rows, pa.large_binary())
        for name in _COLUMNS
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


_ANSWER_S = 30.0
_BATCH_RECORDS = 10_000


def write_lines(sink: Sink, file: str) -> None:
    """Write all values to a file, a line each.

    Raises:
        SpecError: they are no JSON objects, one for each row.
        EngineError: the topic cannot be read, or a value is none of a row.
    """

    wanted = records_of(sink.options)
    if wanted != JSON:
        raise SpecError(
            f'"{sink.name}": diff cannot read records of format {wanted}',
            code="not-compared",
            hint=f"use the format {JSON}, or also write the rows to files and pass them with --output",
        )
    client = Client(client_settings(sink.options, SINK_OURS), sink.name)
    try:
        with closing(client.reader()) as consumer, open(file, "wb") as lines:
            _read(sink, client, consumer, topics_in(sink.options)[0], lines)
    except library().KafkaException as error:
        raise unreadable_error(sink, client.words(error), "topic") from None


def _read(sink: Sink, client: Client, consumer: Any, topic: str, lines: IO[bytes]) -> None:
    from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

    described = consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
    if described.error is not None:
        raise KafkaException(described.error)
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(
            lambda error: isinstance(error, KafkaException) and client.refusal(error) is None
        ),
        stop=tenacity.stop_after_delay(_ANSWER_S),
        wait=tenacity.wait_fixed(0.2),
        reraise=True,
    )
    ends = {
        partition: retrying(
            consumer.get_watermark_offsets, TopicPartition(topic, partition), timeout=_ANSWER_S
        )[1]
        for partition in described.partitions
    }
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in ends])
    heard = time.monotonic()
    while ends:
        for message in consumer.consume(_BATCH_RECORDS, timeout=0.2):
            heard = time.monotonic()
            error, partition = message.error(), message.partition()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if partition not in ends:
                continue
            if error is None and message.offset() < ends[partition]:
                lines.write(_line(sink, message) + b"\n")
            if error is not None or message.offset() + 1 >= ends[partition]:
                del ends[partition]
        if time.monotonic() - heard > _ANSWER_S:
            raise unreadable_error(sink, f"no broker has answered for {_ANSWER_S:.0f} s", "topic")


def _line(sink: Sink, message: Any) -> bytes:
    value: bytes | None = message.value()
    if value is None or b"\n" in value:
        raise EngineError(
            f'"{sink.name}": the record at offset {message.offset()} of partition {message.partition()}'
            f" {'has no value' if value is None else 'has several lines'}, so it is not a row of this"
            " job",
            code="not-compared",
            hint="check whether other programs write to the topic",
        )
    return value
