"""The records of the topics that sinks write: their values as lines of JSON, as readers of committed records
see them from the beginning of each partition to its end as it is now."""

from __future__ import annotations

import time
from typing import IO, Any

import tenacity

from watersmeet.errors import EngineError, SpecError
from watersmeet.sinks.kafka.client import Client, library
from watersmeet.sinks.read_hints import unreadable_error
from watersmeet.spec.model import Sink
from watersmeet.spec.options.kafka import JSON, SINK_OURS, records_of, topics_in
from watersmeet.spec.options.kafka_delivery import client_settings

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
        consumer = client.reader()
        try:
            with open(file, "wb") as lines:
                _read(sink, client, consumer, topics_in(sink.options)[0], lines)
        finally:
            consumer.close()
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
