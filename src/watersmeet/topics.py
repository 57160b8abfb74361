"""Read records of Kafka topics by partition and offset, as a job's own reader sees them."""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import pyarrow as pa

from watersmeet.errors import WatersmeetError
from watersmeet.sinks.kafka.client import Client, library
from watersmeet.spec.model import Source
from watersmeet.spec.options.kafka import servers_text, topics_in
from watersmeet.spec.options.kafka_delivery import client_settings, first_unsupported, plain_name

# What librdkafka is told to reach the brokers of a source as Kafka's client in Java does: where they are,
# and who asks. How much that client fetches, and how it waits, is not the other's matter.

_REACHING = ("bootstrap.servers", "client.dns.lookup", "client.id", "security.protocol")
_ANY_OF = ("sasl.", "ssl.")


def reading_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Return the librdkafka settings, by its names, among a source's options."""
    return client_settings(_connection_options(options), ())


def unsupported_reader_option(options: Mapping[str, str]) -> str | None:
    """Return an option for reaching brokers that librdkafka lacks; None: it has them all."""
    return first_unsupported(_connection_options(options))


def isolation_of(options: Mapping[str, str]) -> str:
    """Return the isolation level of reads: the option's value, or ``read_committed``."""
    given = {plain_name(name): value for name, value in options.items()}
    return given.get("isolation.level", "read_committed").strip().lower()


def _connection_options(options: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in options.items()
        if plain_name(name) in _REACHING or plain_name(name).startswith(_ANY_OF)
    }


# Records of a source's topics, by partition and offset, as a job's own reader sees them.
#
# Partitions are assigned: no group is joined, and nothing is committed. Brokers that do not answer are
# not waited for longer than `ANSWER_S`, and for all records no longer than `MAX_READ_S`.

ANSWER_S = 8.0
MAX_READ_S = 30.0
OFFSET, KEY, VALUE, TIMESTAMP = "offset", "key", "value", "timestamp"
RECORDS = pa.schema([(OFFSET, pa.int64()), (KEY, pa.binary()), (VALUE, pa.binary()), (TIMESTAMP, pa.int64())])
"""``timestamp``: in ms since 1970, NULL where the record has none."""
_BATCH_RECORDS = 5_000
_SILENT = ("_TIMED_OUT", "_TRANSPORT", "_RESOLVE", "_ALL_BROKERS_DOWN")
_GROUP = "watersmeet-why"
"""librdkafka wants a name; it is used for nothing."""


Answer = TypeVar("Answer")


class TopicReadError(Exception):
    """Reason why topics cannot be read, for people."""


class SilentBrokers(TopicReadError):
    """Error: the brokers of the topics do not answer."""


class SourcePartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    @property
    def name(self) -> str:
        """Name of the partition, as in `TickResult.read`."""
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True)
class TopicState:
    """Identity and offsets of a topic.

    Attributes:
        id: A topic that was created again with the same name has another id.
        ends: Per partition, its first available offset, and the offset after its last one.
    """

    id: str
    ends: Mapping[int, tuple[int, int]]


class TopicReader:
    """Reader of one source's topics; the caller must close it.

    Raises:
        TopicReadError: librdkafka cannot reach its brokers as Kafka's Java client can.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        lacking = unsupported_reader_option(source.options)
        if lacking is not None:
            raise TopicReadError(f"'{lacking}' is for Kafka's client in Java alone")
        self._client = Client(reading_settings(source.options), source.name, "source")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def topics(self) -> dict[str, TopicState]:
        """Return the source's existing topics, by name.

        Raises:
            TopicReadError: the topics cannot be read.
        """
        return self._call_brokers(self._describe_topics)

    def records(
        self, spans: Mapping[SourcePartition, tuple[int, int]]
    ) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
        """Yield all records from the first offset up to, excluding, the second (`RECORDS`).

        The records of a partition are in order.

        Raises:
            TopicReadError: the topics cannot be read; also while the caller iterates.
        """
        consumer = self._call_brokers(
            lambda: self._client.reader(
                **{
                    "group.id": _GROUP,
                    "isolation.level": isolation_of(self._source.options),
                    "queued.max.messages.kbytes": 16 << 10,
                }
            )
        )
        try:
            yield from self._read(
                consumer, {place: span for place, span in spans.items() if span[0] < span[1]}
            )
        finally:
            consumer.close()

    def _call_brokers(self, what: Callable[[], Answer]) -> Answer:
        """Return the result of a call to the brokers.

        Raises:
            TopicReadError: the call fails.
        """
        try:
            return what()
        except WatersmeetError as error:  # the library is not there, or does not take the settings
            raise TopicReadError(error.message) from None
        except TimeoutError:
            raise self._silent() from None
        except library().KafkaException as error:
            self._client.listen()
            if error.args[0].name() in _SILENT and not self._client.is_refused:
                raise self._silent() from None
            raise TopicReadError(self._words(error)) from None

    def _silent(self) -> TopicReadError:
        if self._client.is_refused:
            return TopicReadError(self._words(TimeoutError("the records did not arrive")))
        return SilentBrokers(f"no broker answers at {servers_text(self._source.options)}")

    def _words(self, error: BaseException) -> str:
        servers = servers_text(self._source.options)
        return f"the broker at {servers} does not give them: {self._client.last_words(error)}"

    def _describe_topics(self) -> dict[str, TopicState]:
        from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
        from confluent_kafka import admin as library_admin

        admin, limit = self._client.admin(), ANSWER_S + 1
        asked = admin.describe_topics(
            TopicCollection(topics_in(self._source.options)), request_timeout=ANSWER_S
        )
        there: dict[str, Any] = {}
        for name, answer in asked.items():
            try:
                there[name] = answer.result(limit)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
        places = [
            TopicPartition(name, partition.id)
            for name, told in there.items()
            for partition in told.partitions
        ]
        ends: list[dict[SourcePartition, int]] = []
        offset_spec: Any = library_admin.OffsetSpec
        for spec in (offset_spec.earliest(), offset_spec.latest()):
            answers = (
                admin.list_offsets(dict.fromkeys(places, spec), request_timeout=ANSWER_S) if places else {}
            )
            ends.append(
                {
                    SourcePartition(p.topic, p.partition): answer.result(limit).offset
                    for p, answer in answers.items()
                }
            )
        first, last = ends
        return {
            name: TopicState(
                _id_text(told.topic_id),
                {
                    p.id: (first[SourcePartition(name, p.id)], last[SourcePartition(name, p.id)])
                    for p in told.partitions
                },
            )
            for name, told in there.items()
        }

    def _read(
        self, consumer: Any, spans: dict[SourcePartition, tuple[int, int]]
    ) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
        from confluent_kafka import TopicPartition

        consumer.assign([TopicPartition(*place, first) for place, (first, _) in spans.items()])
        waited = silent = 0.0  # what is done with records in between counts for nothing
        while spans:
            asked = time.monotonic()
            messages = consumer.consume(_BATCH_RECORDS, timeout=0.1)
            took = time.monotonic() - asked
            waited, silent = waited + took, 0.0 if messages else silent + took
            taken: dict[SourcePartition, list[Any]] = {}
            for message in messages:
                place = SourcePartition(message.topic(), message.partition())
                if message.error() is not None:
                    self._check(message.error())
                elif place in spans and message.offset() < spans[place][1]:
                    taken.setdefault(place, []).append(message)
                if place in spans and self._is_at_end(message, spans[place][1]):
                    del spans[place]
                    consumer.pause([TopicPartition(*place)])
            for place, own in taken.items():
                yield place, _batch(own)
            if spans and silent > ANSWER_S:
                raise self._silent()
            if spans and waited > MAX_READ_S:
                raise TopicReadError(f"the brokers would take more than {MAX_READ_S:.0f} s")

    @staticmethod
    def _is_at_end(message: Any, end: int) -> bool:
        from confluent_kafka import KafkaError

        error = message.error()
        if error is None:
            return bool(message.offset() >= end - 1)
        return bool(error.code() == KafkaError._PARTITION_EOF)

    def _check(self, error: Any) -> None:
        """Check an error that the consumer reports.

        Errors of consumer groups do not matter: the consumer joins none.

        Raises:
            TopicReadError: The error is permanent, or records were deleted while they were read.
        """
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise TopicReadError("some have gone while they were read: ask again")
        if error.code() != KafkaError._PARTITION_EOF and error.name() in (
            "TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION",
            "_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED",
        ):  # fmt: skip
            raise TopicReadError(self._words(library().KafkaException(error)))


def _id_text(own: Any) -> str:
    """Format a topic's id as Kafka's Java client writes it."""
    halves = (own.get_most_significant_bits(), own.get_least_significant_bits())
    return base64.urlsafe_b64encode(struct.pack(">qq", *halves)).decode().rstrip("=")


def _batch(messages: list[Any]) -> pa.RecordBatch:
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

    stamps = [message.timestamp() for message in messages]
    return pa.record_batch(
        [
            [message.offset() for message in messages],
            [message.key() for message in messages],
            [message.value() for message in messages],
            [None if kind == TIMESTAMP_NOT_AVAILABLE else ms for kind, ms in stamps],
        ],
        schema=RECORDS,
    )
