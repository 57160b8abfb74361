"""What Kafka's brokers say of the topics of a job, and whether these are still the ones it read."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from watersmeet.errors import EngineError, WatersmeetError, near_names
from watersmeet.runtime.spark.checkpoint.spark_positions import NOTHING_READ
from watersmeet.runtime.spark.sources import kafka
from watersmeet.spec.model import Source
from watersmeet.spec.options.kafka import is_another_topic, servers_text, topics_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# What Kafka's brokers are asked beside Spark's reading: which partitions there are, which have unread
# rows.
#
# By the client's admin calls, in Spark's Java process.

ADMIN_TIMEOUT_MS = 15_000
POLL_TIMEOUT_MS = 2_000
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
        """Return per source the current partitions of its topics.

        Raises:
            EngineError: as `find_partitions`.
        """
        return {source.name: find_partitions(self._spark, source) for source in self._kafka(self._sources)}

    def away(self) -> bool:
        """Return True if one of the brokers does not answer."""
        return any(
            _find_non_empty_partitions(self._spark, source) is None for source in self._kafka(self._sources)
        )

    def list_silent_servers(self) -> dict[str, list[str]]:
        """Return the servers of which none answers, with the names of their sources.

        The check does not depend on topics.
        """
        by_servers: dict[str, list[Source]] = {}
        for source in self._kafka(self._sources):
            by_servers.setdefault(servers_text(source.options), []).append(source)
        return {
            servers: [source.name for source in sources]
            for servers, sources in by_servers.items()
            if not _is_reachable(self._spark, sources[0])
        }

    def unread(self, names: Collection[str], offsets: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return the partitions of the named sources that have unread rows.

        See `find_unread_partitions`.

        Args:
            offsets: Spark's text per source of the job, in the plan's order.
        """
        return {
            source.name: self._list_new_partitions(source)
            if text == NOTHING_READ
            else find_unread_partitions(self._spark, source, text)
            for source, text in zip(self._sources, offsets, strict=True)
            if source.name in names and source.traits.log
        }

    def _list_new_partitions(self, source: Source) -> tuple[str, ...]:
        """List the partitions with rows of a source that was added to the job.

        If the broker does not answer, return the names of the topics.
        """
        partitions = _find_non_empty_partitions(self._spark, source)
        return tuple(topics_in(source.options)) if partitions is None else partitions

    def list_unread_at_start(self, offsets: Sequence[str] | None) -> dict[str, tuple[str, ...]]:
        """Return per source the partitions that have rows for a run that begins now.

        A source is omitted if this is unknown.

        Args:
            offsets: as for `find_unread_partitions`; None: the job has read nothing yet.
        """
        partitions_to_read: dict[str, tuple[str, ...]] = {}
        for number, source in enumerate(self._sources):
            if not source.traits.log:
                continue
            start = kafka.reader_options(source).get("startingOffsets", "earliest").strip().lower()
            if offsets is not None and offsets[number] != NOTHING_READ:
                partitions_to_read[source.name] = find_unread_partitions(self._spark, source, offsets[number])
            elif start == "earliest" and "startingTimestamp" not in kafka.reader_options(source):
                partitions = _find_non_empty_partitions(self._spark, source)
                if partitions is not None:
                    partitions_to_read[source.name] = partitions
        return partitions_to_read

    def list_read_partitions(self, offsets: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return per source the partitions in Spark's offsets: all that it reads, also new ones."""
        return {
            source.name: tuple(_name_partitions(source, _parse_offsets(text)))
            for source, text in zip(self._sources, offsets, strict=True)
            if source.traits.log and text != NOTHING_READ
        }

    @staticmethod
    def _kafka(sources: Iterable[Source]) -> list[Source]:
        return [source for source in sources if source.traits.log]


def find_partitions(spark: SparkSession, source: Source) -> tuple[str, ...]:
    """Return the partitions that the broker has, named as in rows.

    Raises:
        EngineError: the broker does not answer, or a topic does not exist; the message names it.
    """
    topics = topics_in(source.options)
    servers = servers_text(source.options)
    jvm: Any = spark.sparkContext._jvm
    asked = admin_properties(jvm, source, ADMIN_TIMEOUT_MS)
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
        raise unreachable_error(source, servers, str(error)) from None
    try:
        topic_names = [str(name) for name in admin.listTopics().names().get()]
        for topic in topics:
            if topic not in topic_names:
                raise EngineError(
                    f'Kafka source "{source.name}": the topic "{topic}" does not exist at {servers}',
                    code="topic-missing",
                    hint=near_names(topic, topic_names) or "the broker has no topics",
                )
        partitions = _list_partitions(jvm, admin, topics)
    except EngineError:
        raise
    except Exception as error:
        raise unreachable_error(source, servers, str(error)) from None
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(1))
    return tuple(_name_partitions(source, dict.fromkeys(partitions, 0)))


def find_unread_partitions(spark: SparkSession, source: Source, offsets: str) -> tuple[str, ...]:
    """Return the partitions with rows after ``offsets``, named as in rows.

    ``offsets`` is Spark's JSON of the source. Partitions that it does not contain yet count, too. If
    the
    broker does not answer, return all partitions, because they may have rows.
    """
    read = _parse_offsets(offsets)
    with suppress(Exception), _open_admin(spark, source, POLL_TIMEOUT_MS) as (jvm, admin):
        ends = _list_offsets(jvm, admin, list(read), "latest")
        behind = {partition: read[partition] for partition, end in ends.items() if end > read[partition]}
        every = _list_partitions(jvm, admin, topics_in(source.options))
        new = dict.fromkeys((partition for partition in every if partition not in read), 0)
        return tuple(_name_partitions(source, behind | new))
    return tuple(_name_partitions(source, read))


def _is_reachable(spark: SparkSession, source: Source) -> bool:
    with suppress(Exception), _open_admin(spark, source, ANSWER_TIMEOUT_MS) as (_, admin):
        admin.describeCluster().clusterId().get()
        return True
    return False


def _find_non_empty_partitions(spark: SparkSession, source: Source) -> tuple[str, ...] | None:
    """Return the partitions that have rows; None if the broker does not answer."""
    with suppress(Exception), _open_admin(spark, source, POLL_TIMEOUT_MS) as (jvm, admin):
        partitions = _list_partitions(jvm, admin, topics_in(source.options))
        first, last = (_list_offsets(jvm, admin, partitions, spec) for spec in ("earliest", "latest"))
        full = [partition for partition in partitions if last[partition] > first[partition]]
        return _name_partitions(source, dict.fromkeys(full, 0))
    return None


@contextmanager
def _open_admin(spark: SparkSession, source: Source, timeout_ms: int) -> Iterator[tuple[Any, Any]]:
    """Open Kafka's client for administration in Spark's JVM, for the block; yield the JVM and the client."""
    jvm: Any = spark.sparkContext._jvm
    create = jvm.org.apache.kafka.clients.admin.AdminClient.create
    admin = create(admin_properties(jvm, source, timeout_ms))
    try:
        yield jvm, admin
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(0))


def _list_offsets(
    jvm: Any, admin: Any, partitions: Sequence[tuple[str, int]], spec: str
) -> dict[tuple[str, int], int]:
    """Return an offset of each partition.

    Args:
        spec: ``earliest``: of its first record; ``latest``: behind its last one.
    """
    client, wanted = jvm.org.apache.kafka, jvm.java.util.HashMap()
    offset = getattr(client.clients.admin.OffsetSpec, spec)()
    places = {partition: client.common.TopicPartition(*partition) for partition in partitions}
    for place in places.values():
        wanted.put(place, offset)
    ends = admin.listOffsets(wanted).all().get()
    return {partition: ends.get(place).offset() for partition, place in places.items()}


def _list_partitions(jvm: Any, admin: Any, topics: Sequence[str]) -> list[tuple[str, int]]:
    descriptions = admin.describeTopics(to_java_list(jvm, topics)).allTopicNames().get()
    return [(topic, number) for topic in topics for number in list_partition_numbers(descriptions.get(topic))]


def to_java_list(jvm: Any, texts: Sequence[str]) -> Any:
    made = jvm.java.util.ArrayList()
    for text in texts:
        made.add(text)
    return made


def list_partition_numbers(description: Any) -> list[int]:
    """List the numbers of a topic's partitions from its description.

    Iterating over the Java list would end with a Java exception, about which PySpark makes seventy
    calls
    to the JVM. Instead this parses the text of the list, or, if the text of another client version does
    not fit, reads the elements one by one.
    """
    partitions = description.partitions()
    numbers = [int(number) for number in _PARTITION.findall(partitions.toString())]
    if len(numbers) == partitions.size():
        return numbers
    return [int(partitions.get(place).partition()) for place in range(partitions.size())]


def _parse_offsets(offsets: str) -> Offsets:
    return {
        (topic, int(number)): int(end)
        for topic, ends in json.loads(offsets).items()
        for number, end in ends.items()
    }


def _name_partitions(source: Source, partitions: Offsets) -> tuple[str, ...]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    return kafka.partition_names(source, by_topic)


def admin_properties(jvm: Any, source: Source, timeout_ms: int) -> Any:
    """Build the properties of an admin client for the source."""
    properties = jvm.java.util.Properties()
    for name, value in kafka.reader_options(source).items():
        if name.startswith("kafka."):
            properties.setProperty(name.removeprefix("kafka."), value)
    properties.setProperty("request.timeout.ms", str(timeout_ms))
    properties.setProperty("default.api.timeout.ms", str(timeout_ms))
    return properties


def unreachable_error(source: Source, servers: str, detail: str) -> EngineError:
    """Build the error for an admin call that failed with ``detail``."""
    reason = "does not answer" if "Timeout" in detail else "cannot be used"
    return EngineError(
        f'Kafka source "{source.name}": the broker at {servers} {reason}',
        code="kafka-unreachable",
        hint="check 'bootstrap.servers', and that the broker is running and reachable",
    )


# Whether Kafka's topics still are those that a job has read, and still have what it is to read next.
#
# A topic that was deleted and made again has the old one's name and another id: offsets mean other rows
# in it. Rows go before they are read when they expire, and when a broker comes back without the newest
# ones. Each is refused, with how many rows are gone; whoever says so (``--accept-loss``) goes on without
# them.

_LOST_ROWS_CODES = ("topic-missing", "offsets-expired")
"""Codes of what Spark says when it cannot read rows any more; the brokers know more of it."""

TopicIds = dict[str, dict[str, str]]
"""Source -> topic -> id."""


@dataclass(frozen=True)
class Loss:
    """Rows of a source that the job can no longer read.

    Attributes:
        error: the error that rejects the run.
        offsets: Spark's text of the offsets from which the source continues without the rows.
    """

    source: str
    error: EngineError
    offsets: str


class Topics:
    """Topics of a job's Kafka sources. Its connections stay open until `close`."""

    def __init__(self, spark: SparkSession, sources: Sequence[Source]) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._sources = [(n, source) for n, source in enumerate(sources) if source.traits.log]
        self._admins: dict[str, Any] = {}
        self._wanted: dict[str, Any] = {}
        """Names of topics as Java has them: what is asked for is the same each time."""

    def __bool__(self) -> bool:
        return bool(self._sources)

    def close(self) -> None:
        for admin in self._admins.values():
            admin.close(self._jvm.java.time.Duration.ofSeconds(0))
        self._admins.clear()

    def ids(self) -> TopicIds:
        """Return the current ids of the topics.

        Raises:
            EngineError: a broker does not answer or a topic is gone.
        """
        return {
            source.name: {topic: described[0] for topic, described in self._describe_topics(source).items()}
            for _, source in self._sources
        }

    def check(self, seen: Mapping[str, Mapping[str, str]]) -> None:
        """Check that the topics are those ``seen`` before their rows were read.

        Raises:
            EngineError: a topic was deleted, whether or not it was created again.
        """
        for _, source in self._sources:
            ids = {topic: described[0] for topic, described in self._describe_topics(source).items()}
            replaced = _find_recreated_topics(seen.get(source.name, {}), ids)
            if replaced:
                raise _topic_recreated_error(
                    source, replaced, "while the job was running; nothing of this tick was written"
                )

    def losses(self, seen: Mapping[str, Mapping[str, str]], offsets: Sequence[str]) -> list[Loss]:
        """Return the rows that were deleted before the job read them.

        Each loss contains the offsets from which its source could continue.

        Args:
            offsets: Spark's text per source of the job, in the plan's order.

        Raises:
            EngineError: a broker does not answer, or a topic does not exist.
        """
        losses = []
        for number, source in self._sources:
            if offsets[number] == NOTHING_READ:
                continue
            read: dict[str, dict[str, int]] = json.loads(offsets[number])
            described = self._describe_topics(source)
            replaced = _find_recreated_topics(
                seen.get(source.name, {}), {t: description[0] for t, description in described.items()}
            )
            first, last = self._ends(
                source, {topic: description[1] for topic, description in described.items()}
            )
            gone, go_on = [], {}
            for topic, ends in read.items():
                if topic in replaced or topic not in described:
                    go_on[topic] = {str(n): first[topic, n] for n in described.get(topic, ("", []))[1]}
                    continue
                go_on[topic] = {}
                for name, end in ends.items():
                    place = topic, int(name)
                    if place not in first:
                        gone.append(f"partition {name} of {topic} no longer exists")
                    elif first[place] > end:
                        rows = first[place] - end
                        gone.append(
                            f"partition {name} of {topic} begins at offset {first[place]:,}, but the"
                            f" job has only read up to {end:,}: {rows:,} rows have expired"
                        )
                        go_on[topic][name] = first[place]
                    elif last[place] < end:
                        gone.append(
                            f"partition {name} of {topic} ends at offset {last[place]:,}, but the job"
                            f" has read up to {end:,}: the broker has lost its last"
                            f" {end - last[place]:,} rows, and new rows get their offsets"
                        )
                        go_on[topic][name] = last[place]
                    else:
                        go_on[topic][name] = end
            error = None
            if replaced:
                error = _topic_recreated_error(source, replaced, "since the last run of the job")
            elif gone:
                error = EngineError(
                    f'Kafka source "{source.name}": Kafka deleted rows before the job read them:'
                    f" {'; '.join(gone)}",
                    code="offsets-expired",
                    hint=f"restore the topic and run again; or run with --accept-loss {source.name}, which"
                    " continues without those rows. To prevent this, raise the topic's retention or run the"
                    " job more often",
                )
            if error is not None:
                losses.append(Loss(source.name, error, json.dumps(go_on, separators=(",", ":"))))
        return losses

    def told(
        self,
        error: WatersmeetError,
        seen: Mapping[str, Mapping[str, str]],
        offsets: Sequence[str] | None,
    ) -> WatersmeetError:
        """Return ``error``, or the brokers' reason if Spark could not read rows.

        The reason names the topics and the number of lost rows. The arguments are those of `losses`;
        ``offsets`` None: the job has read nothing yet.
        """
        if error.code not in _LOST_ROWS_CODES:
            return error
        try:
            if offsets is None:
                self.check(seen)
            else:
                accept_losses(self.losses(seen, offsets), ())
        except WatersmeetError as more:
            return more
        return error

    def _describe_topics(self, source: Source) -> dict[str, tuple[str, list[int]]]:
        """Return the id and the partitions of each topic.

        If a broker does not answer, this retries for a while.
        """
        topics, servers = topics_in(source.options), servers_text(source.options)
        until = time.monotonic() + ADMIN_TIMEOUT_MS / 1000
        if source.name not in self._wanted:
            self._wanted[source.name] = to_java_list(self._jvm, topics)
        wanted = self._wanted[source.name]
        while True:
            try:
                descriptions = self._admin(source).describeTopics(wanted).allTopicNames().get()
                of_topics = [descriptions.get(topic) for topic in topics]
                told = [(str(of.topicId().toString()), list_partition_numbers(of)) for of in of_topics]
                return dict(zip(topics, told, strict=True))
            except Exception as error:
                if "UnknownTopicOrPartition" in str(error):
                    raise EngineError(
                        f'Kafka source "{source.name}": a topic of {", ".join(topics)} no longer'
                        f" exists at {servers}",
                        code="topic-missing",
                        hint="check whether the topic was deleted. Once it is created again,"
                        f" --accept-loss {source.name} continues with the new one. Nothing of this"
                        " tick was written, and the state is intact",
                    ) from None
                if time.monotonic() > until:
                    raise unreachable_error(source, servers, str(error)) from None

    def _ends(
        self, source: Source, partitions: Mapping[str, Sequence[int]]
    ) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
        """Return the first and the last offsets of partitions."""
        client = self._jvm.org.apache.kafka
        ends: list[dict[tuple[str, int], int]] = []
        for spec in (client.clients.admin.OffsetSpec.earliest(), client.clients.admin.OffsetSpec.latest()):
            wanted = self._jvm.java.util.HashMap()
            places = [(topic, number) for topic, numbers in partitions.items() for number in numbers]
            for topic, number in places:
                wanted.put(client.common.TopicPartition(topic, number), spec)
            try:
                got = self._admin(source).listOffsets(wanted).all().get()
            except Exception as error:
                raise unreachable_error(source, servers_text(source.options), str(error)) from None
            ends.append(
                {place: int(got.get(client.common.TopicPartition(*place)).offset()) for place in places}
            )
        return ends[0], ends[1]

    def _admin(self, source: Source) -> Any:
        if source.name not in self._admins:
            properties = admin_properties(self._jvm, source, ADMIN_TIMEOUT_MS)
            self._admins[source.name] = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(
                properties
            )
        return self._admins[source.name]


def accept_losses(losses: Sequence[Loss], sources: Collection[str]) -> dict[str, str]:
    """Return the offsets from which the sources with accepted losses continue.

    Raises:
        EngineError: the first loss that is not accepted.
    """
    refused = [loss.error for loss in losses if loss.source not in sources]
    if refused:
        raise refused[0]
    return {loss.source: loss.offsets for loss in losses}


def _find_recreated_topics(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [topic for topic, was in before.items() if is_another_topic(was, now.get(topic))]


def _topic_recreated_error(source: Source, topics: Sequence[str], when: str) -> EngineError:
    return EngineError(
        f'Kafka source "{source.name}": topic "{", ".join(topics)}" was deleted and created again {when};'
        " the job's offsets are those of the old one",
        code="topic-made-again",
        hint=f"run with --accept-loss {source.name} to read the new topic from its beginning (unread"
        " rows of the old topic are lost, and rows below the watermark count as late); or start"
        " over with a new checkpoint directory and an empty sink",
    )
