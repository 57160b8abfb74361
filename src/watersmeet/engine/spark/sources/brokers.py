"""What Kafka's brokers are asked beside Spark's reading: which partitions there are, which have unread rows.

By the client's admin calls, in Spark's Java process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from watersmeet.engine.spark.checkpoint.host import NOTHING_READ
from watersmeet.engine.spark.sources import kafka
from watersmeet.errors import EngineError, near_names
from watersmeet.spec.model import Source
from watersmeet.spec.options.kafka import servers_text, topics_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADMIN_TIMEOUT_MS = 15_000
LOOK_TIMEOUT_MS = 2_000
ANSWER_TIMEOUT_MS = 4_000
"""After which it is said that brokers do not answer."""

_PARTITION = re.compile(r"\(partition=(\d+), leader=")

Offsets = dict[tuple[str, int], int]
"""(topic, partition) -> the offset of the first row that was not read."""


class Brokers:
    """The brokers of a job's Kafka sources; other sources are passed over."""

    def __init__(self, spark: SparkSession, sources: Sequence[Source]) -> None:
        self._spark = spark
        self._sources = sources

    def partitions(self) -> dict[str, tuple[str, ...]]:
        """Per source the partitions that its topics have now. Raises: EngineError as `find_partitions`."""
        return {source.name: find_partitions(self._spark, source) for source in self._kafka(self._sources)}

    def away(self) -> bool:
        """Whether one of the brokers does not answer."""
        return any(_not_empty(self._spark, source) is None for source in self._kafka(self._sources))

    def silent(self) -> dict[str, list[str]]:
        """Of which none answers, whatever topics it has: servers -> names of the sources."""
        by_servers: dict[str, list[Source]] = {}
        for source in self._kafka(self._sources):
            by_servers.setdefault(servers_text(source.options), []).append(source)
        return {
            servers: [source.name for source in sources]
            for servers, sources in by_servers.items()
            if not _answers(self._spark, sources[0])
        }

    def unread(self, names: Collection[str], offsets: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Of the sources so named, those partitions that have rows behind what was read; see `unread`.

        Args:
            offsets: Spark's text per source of the job, in the plan's order.
        """
        return {
            source.name: self._never_read(source)
            if text == NOTHING_READ
            else unread(self._spark, source, text)
            for source, text in zip(self._sources, offsets, strict=True)
            if source.name in names and source.traits.log
        }

    def _never_read(self, source: Source) -> tuple[str, ...]:
        """Of a source that came to the job."""
        partitions = _not_empty(self._spark, source)
        return tuple(topics_in(source.options)) if partitions is None else partitions

    def to_be_read(self, offsets: Sequence[str] | None) -> dict[str, tuple[str, ...]]:
        """Per source the partitions that have rows for a run that begins now. A source is left out when that
        cannot be told.

        Args:
            offsets: as for `unread`; None: nothing was read yet.
        """
        partitions_to_read: dict[str, tuple[str, ...]] = {}
        for number, source in enumerate(self._sources):
            if not source.traits.log:
                continue
            start = kafka.reader_options(source).get("startingOffsets", "earliest").strip().lower()
            if offsets is not None and offsets[number] != NOTHING_READ:
                partitions_to_read[source.name] = unread(self._spark, source, offsets[number])
            elif start == "earliest" and "startingTimestamp" not in kafka.reader_options(source):
                partitions = _not_empty(self._spark, source)
                if partitions is not None:
                    partitions_to_read[source.name] = partitions
        return partitions_to_read

    def in_offsets(self, offsets: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Per source the partitions that Spark's offsets name: those that it reads, new ones among them."""
        return {
            source.name: tuple(_names(source, _parsed(text)))
            for source, text in zip(self._sources, offsets, strict=True)
            if source.traits.log and text != NOTHING_READ
        }

    @staticmethod
    def _kafka(sources: Iterable[Source]) -> list[Source]:
        return [source for source in sources if source.traits.log]


def find_partitions(spark: SparkSession, source: Source) -> tuple[str, ...]:
    """The partitions that the broker has, as rows name them.

    Raises:
        EngineError: the broker does not answer, or a topic is not there; both are named.
    """
    topics = topics_in(source.options)
    servers = servers_text(source.options)
    jvm: Any = spark.sparkContext._jvm
    asked = properties(jvm, source, ADMIN_TIMEOUT_MS)
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(asked)
    except TypeError:
        raise EngineError(
            "Spark's Kafka connector is not loaded",
            code="kafka-connector-missing",
            hint="add its jars: --jars DIR, SET jars = 'DIR', or the environment variable"
            " WATERSMEET_SPARK_JARS",
        ) from None
    except Exception as error:
        raise unreachable(source, servers, str(error)) from None
    try:
        topic_names = [str(name) for name in admin.listTopics().names().get()]
        for topic in topics:
            if topic not in topic_names:
                raise EngineError(
                    f'Kafka source "{source.name}": the topic "{topic}" does not exist at {servers}',
                    code="topic-missing",
                    hint=near_names(topic, topic_names) or "the broker has no topics",
                )
        partitions = _described(jvm, admin, topics)
    except EngineError:
        raise
    except Exception as error:
        raise unreachable(source, servers, str(error)) from None
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(1))
    return tuple(_names(source, dict.fromkeys(partitions, 0)))


def unread(spark: SparkSession, source: Source, offsets: str) -> tuple[str, ...]:
    """The partitions that have rows behind ``offsets`` (Spark's JSON of the source), as rows name them; also
    those that it does not name yet. When the broker does not answer: all, for they may have some."""
    read = _parsed(offsets)
    jvm: Any = spark.sparkContext._jvm
    client = jvm.org.apache.kafka
    try:
        admin = client.clients.admin.AdminClient.create(properties(jvm, source, LOOK_TIMEOUT_MS))
    except Exception:
        return tuple(_names(source, read))
    try:
        wanted = jvm.java.util.HashMap()
        for topic, number in read:
            wanted.put(client.common.TopicPartition(topic, number), client.clients.admin.OffsetSpec.latest())
        ends = admin.listOffsets(wanted).all().get()
        behind = {
            (topic, number): end
            for (topic, number), end in read.items()
            if ends.get(client.common.TopicPartition(topic, number)).offset() > end
        }
        new = [
            partition
            for partition in _described(jvm, admin, topics_in(source.options))
            if partition not in read
        ]
        return tuple(_names(source, behind | dict.fromkeys(new, 0)))
    except Exception:
        return tuple(_names(source, read))
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(0))


def _answers(spark: SparkSession, source: Source) -> bool:
    jvm: Any = spark.sparkContext._jvm
    try:
        asked = properties(jvm, source, ANSWER_TIMEOUT_MS)
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(asked)
    except Exception:
        return False
    try:
        admin.describeCluster().clusterId().get()
    except Exception:
        return False
    else:
        return True
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(0))


def _not_empty(spark: SparkSession, source: Source) -> tuple[str, ...] | None:
    """The partitions that have rows; None when the broker does not answer."""
    jvm: Any = spark.sparkContext._jvm
    client = jvm.org.apache.kafka
    try:
        admin = client.clients.admin.AdminClient.create(properties(jvm, source, LOOK_TIMEOUT_MS))
    except Exception:
        return None
    try:
        partitions = _described(jvm, admin, topics_in(source.options))
        ends: list[list[int]] = []
        for spec in (client.clients.admin.OffsetSpec.earliest(), client.clients.admin.OffsetSpec.latest()):
            wanted = jvm.java.util.HashMap()
            for topic, number in partitions:
                wanted.put(client.common.TopicPartition(topic, number), spec)
            got = admin.listOffsets(wanted).all().get()
            ends.append(
                [got.get(client.common.TopicPartition(*partition)).offset() for partition in partitions]
            )
        full = [partition for partition, first, last in zip(partitions, *ends, strict=True) if last > first]
        return _names(source, dict.fromkeys(full, 0))
    except Exception:
        return None
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(0))


def _described(jvm: Any, admin: Any, topics: Sequence[str]) -> list[tuple[str, int]]:
    descriptions = admin.describeTopics(java_list(jvm, topics)).allTopicNames().get()
    return [(topic, number) for topic in topics for number in partitions_of(descriptions.get(topic))]


def java_list(jvm: Any, texts: Sequence[str]) -> Any:
    made = jvm.java.util.ArrayList()
    for text in texts:
        made.add(text)
    return made


def partitions_of(description: Any) -> list[int]:
    """The numbers of a topic's partitions, as its description has them. They are not iterated over: that ends
    with an exception of Java's, about which PySpark asks Java seventy times. They are taken from what the
    description says of itself, or one by one, should another client say it in other words."""
    partitions = description.partitions()
    numbers = [int(number) for number in _PARTITION.findall(partitions.toString())]
    if len(numbers) == partitions.size():
        return numbers
    return [int(partitions.get(place).partition()) for place in range(partitions.size())]


def _parsed(offsets: str) -> Offsets:
    return {
        (topic, int(number)): int(end)
        for topic, ends in json.loads(offsets).items()
        for number, end in ends.items()
    }


def _names(source: Source, partitions: Offsets) -> tuple[str, ...]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    return kafka.partition_names(source, by_topic)


def properties(jvm: Any, source: Source, timeout_ms: int) -> Any:
    """What an admin client for the source is told."""
    properties = jvm.java.util.Properties()
    for name, value in kafka.reader_options(source).items():
        if name.startswith("kafka."):
            properties.setProperty(name.removeprefix("kafka."), value)
    properties.setProperty("request.timeout.ms", str(timeout_ms))
    properties.setProperty("default.api.timeout.ms", str(timeout_ms))
    return properties


def unreachable(source: Source, servers: str, detail: str) -> EngineError:
    """For an admin call that failed with ``detail``."""
    reason = "does not answer" if "Timeout" in detail else "cannot be used"
    return EngineError(
        f'Kafka source "{source.name}": the broker at {servers} {reason}',
        code="kafka-unreachable",
        hint="check 'bootstrap.servers', and that the broker is running and reachable",
    )
