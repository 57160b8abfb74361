"""Whether Kafka's topics still are those that a job has read, and still have what it is to read next.

A topic that was deleted and made again has the old one's name and another id: offsets mean other rows in it.
Rows go before they are read when they expire, and when a broker comes back without the newest ones. Each is
refused, with how many rows are gone; whoever says so (``--accept-loss``) goes on without them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from watersmeet.engine.spark.checkpoint.host import NOTHING_READ
from watersmeet.engine.spark.sources import brokers
from watersmeet.errors import EngineError, WatersmeetError
from watersmeet.spec.model import Source
from watersmeet.spec.options.kafka import is_another_topic, servers_text, topics_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GONE = ("topic-missing", "offsets-expired")
"""Codes of what Spark says when it cannot read rows any more; the brokers know more of it."""

TopicIds = dict[str, dict[str, str]]
"""Source -> topic -> id."""


@dataclass(frozen=True)
class Loss:
    """Rows of a source that the job can read no more. ``error``: the refusal; ``offsets``: Spark's text from
    which the source goes on without them."""

    source: str
    error: EngineError
    offsets: str


class Topics:
    """Of a job's Kafka sources. Its connections stay open: `close` them."""

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
        """What the topics are now. Raises: EngineError when a broker does not answer or a topic is gone."""
        return {
            source.name: {topic: described[0] for topic, described in self._described(source).items()}
            for _, source in self._sources
        }

    def check(self, seen: Mapping[str, Mapping[str, str]]) -> None:
        """Whether the topics are those that were ``seen`` before their rows were read.

        Raises:
            EngineError: one was deleted, and made again or not.
        """
        for _, source in self._sources:
            ids = {topic: described[0] for topic, described in self._described(source).items()}
            replaced = _replaced(seen.get(source.name, {}), ids)
            if replaced:
                raise _made_again(
                    source, replaced, "while the job was running; nothing of this tick was written"
                )

    def losses(self, seen: Mapping[str, Mapping[str, str]], offsets: Sequence[str]) -> list[Loss]:
        """What of the sources is gone before it was read, and how each could go on.

        Args:
            offsets: Spark's text per source of the job, in the plan's order.

        Raises:
            EngineError: a broker does not answer, or a topic is not there.
        """
        losses = []
        for number, source in self._sources:
            if offsets[number] == NOTHING_READ:
                continue
            read: dict[str, dict[str, int]] = json.loads(offsets[number])
            described = self._described(source)
            replaced = _replaced(
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
                error = _made_again(source, replaced, "since the last run of the job")
            elif gone:
                error = _gone(source, gone)
            if error is not None:
                losses.append(Loss(source.name, error, json.dumps(go_on, separators=(",", ":"))))
        return losses

    def told(
        self,
        error: WatersmeetError,
        seen: Mapping[str, Mapping[str, str]],
        offsets: Sequence[str] | None,
    ) -> WatersmeetError:
        """``error``, or what the brokers know of it where Spark could not read rows: topics, and how many.
        Arguments as of `losses`; None: nothing was read yet."""
        if error.code not in _GONE:
            return error
        try:
            if offsets is None:
                self.check(seen)
            else:
                accepted(self.losses(seen, offsets), ())
        except WatersmeetError as more:
            return more
        return error

    def _described(self, source: Source) -> dict[str, tuple[str, list[int]]]:
        """Topic -> its id and partitions. Asked again for a while when a broker does not answer."""
        topics, servers = topics_in(source.options), servers_text(source.options)
        until = time.monotonic() + brokers.ADMIN_TIMEOUT_MS / 1000
        if source.name not in self._wanted:
            self._wanted[source.name] = brokers.java_list(self._jvm, topics)
        wanted = self._wanted[source.name]
        while True:
            try:
                descriptions = self._admin(source).describeTopics(wanted).allTopicNames().get()
                of_topics = [descriptions.get(topic) for topic in topics]
                told = [(str(of.topicId().toString()), brokers.partitions_of(of)) for of in of_topics]
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
                    raise brokers.unreachable(source, servers, str(error)) from None

    def _ends(
        self, source: Source, partitions: Mapping[str, Sequence[int]]
    ) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
        """The first and the last offsets of partitions."""
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
                raise brokers.unreachable(source, servers_text(source.options), str(error)) from None
            ends.append(
                {place: int(got.get(client.common.TopicPartition(*place)).offset()) for place in places}
            )
        return ends[0], ends[1]

    def _admin(self, source: Source) -> Any:
        if source.name not in self._admins:
            properties = brokers.properties(self._jvm, source, brokers.ADMIN_TIMEOUT_MS)
            self._admins[source.name] = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(
                properties
            )
        return self._admins[source.name]


def accepted(losses: Sequence[Loss], sources: Collection[str]) -> dict[str, str]:
    """Of the sources whose losses were accepted, from where they go on. Raises: the other losses."""
    refused = [loss.error for loss in losses if loss.source not in sources]
    if refused:
        raise refused[0]
    return {loss.source: loss.offsets for loss in losses}


def _replaced(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [topic for topic, was in before.items() if is_another_topic(was, now.get(topic))]


def _made_again(source: Source, topics: Sequence[str], when: str) -> EngineError:
    return EngineError(
        f'Kafka source "{source.name}": topic "{", ".join(topics)}" was deleted and created again {when};'
        " the job's offsets are those of the old one",
        code="topic-made-again",
        hint=f"run with --accept-loss {source.name} to read the new topic from its beginning (unread"
        " rows of the old topic are lost, and rows below the watermark count as late); or start"
        " over with a new checkpoint directory and an empty sink",
    )


def _gone(source: Source, what: Sequence[str]) -> EngineError:
    return EngineError(
        f'Kafka source "{source.name}": Kafka deleted rows before the job read them: {"; ".join(what)}',
        code="offsets-expired",
        hint=f"restore the topic and run again; or run with --accept-loss {source.name}, which"
        " continues without those rows. To prevent this, raise the topic's retention or run the"
        " job more often",
    )
