"""Whether sinks took the rows that they were given: what their files hold, and by how much topics have grown.

Of a topic its brokers tell, and others may write to it: so it has grown by so many records at least. What all
replicas have acknowledged is seen at once; what the leader alone has, a little later, and is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from watersmeet.engine.spark.sources.brokers import ADMIN_TIMEOUT_MS
from watersmeet.errors import EngineError
from watersmeet.sinks.base import LeftOut, Sink, Topic

_WAIT_S, _PAUSE_S = 5.0, 0.1


@dataclass(frozen=True)
class Took:
    """So many rows; ``at_least``: those of others may be among them."""

    rows: int
    at_least: bool = False


class Takings:
    """Of a job's sinks. Its connections stay open: `close` them."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._admins: dict[tuple[tuple[str, str], ...], Any] = {}

    def close(self) -> None:
        for admin in self._admins.values():
            admin.close(self._jvm.java.time.Duration.ofSeconds(0))
        self._admins.clear()

    def of(
        self,
        sink: Sink,
        insert: str,
        tick: int,
        attempt: str,
        write: Callable[[], object],
        given: Callable[[], int],
    ) -> Took | None:
        """What ``sink`` took while it did ``write``; None: it does not tell.

        Args:
            given: how many rows it should have taken, asked for when it has.
        """
        topic = sink.appends_to
        if topic is None:
            write()
            return Took(sink.staged_rows(insert, tick, attempt)) if sink.tells_rows else None
        before = self._end_of(topic)
        write()
        until, wanted = time.monotonic() + _WAIT_S, given()
        try:
            while (rows := self._end_of(topic) - before) < wanted and time.monotonic() < until:
                time.sleep(_PAUSE_S)
        except EngineError as error:
            raise EngineError(
                f"{error.message}. The rows of this tick were sent, and it is repeated: they come again",
                code=error.code,
                hint=error.hint,
            ) from None
        return Took(rows, at_least=True)

    def _end_of(self, topic: Topic) -> int:
        """How many records the topic ever had, about: the sum of its partitions' ends. 0: it is not there."""
        client = self._jvm.org.apache.kafka
        try:
            admin = self._admin(topic)
            wanted = self._jvm.java.util.HashMap()
            asked = self._jvm.java.util.Collections.singletonList(topic.name)
            for each in admin.describeTopics(asked).allTopicNames().get().get(topic.name).partitions():
                place = client.common.TopicPartition(topic.name, each.partition())
                wanted.put(place, client.clients.admin.OffsetSpec.latest())
            ends = admin.listOffsets(wanted).all().get()
            return sum(int(end.offset()) for end in ends.values())
        except Exception as error:
            if "UnknownTopicOrPartition" in str(error):
                return 0
            raise EngineError(
                f'how many rows topic "{topic.name}" has cannot be asked of its brokers: {error}',
                code="kafka-unreachable",
                hint="check 'bootstrap.servers', and that the broker runs and can be reached",
            ) from None

    def _admin(self, topic: Topic) -> Any:
        if topic.settings not in self._admins:
            properties = self._jvm.java.util.Properties()
            timeouts = {
                name: str(ADMIN_TIMEOUT_MS) for name in ("request.timeout.ms", "default.api.timeout.ms")
            }
            for name, value in {**dict(topic.settings), **timeouts}.items():
                properties.setProperty(name, value)
            self._admins[topic.settings] = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(
                properties
            )
        return self._admins[topic.settings]


def check_taken(
    insert: str, took: Took | None, given: int, *, left_out: LeftOut | None = None, cut: bool = False
) -> None:
    """Whether a sink took the rows that it was given.

    Args:
        left_out: what the sink may leave out of them.
        cut: Spark leaves some of them out, or groups them.

    Raises:
        EngineError: it did not: nothing of the tick is published.
    """
    if took is None or took.rows == given or (took.at_least and took.rows > given):
        return
    if took.rows < given and cut:
        return
    message = f'the sink of "{insert}" took {took.rows:,} rows where it was given {given:,}'
    if took.rows < given and left_out is not None:
        raise EngineError(f"{message}: {left_out.what}", code="rows-left-out", hint=left_out.hint)
    if took.at_least:
        raise EngineError(
            f"{message}: rows were lost on the way to the topic",
            code="internal-rows",
            hint="was the topic deleted, or did a replica without its newest records take over? Run again: "
            "the tick is repeated. If it was not, this is a bug: please report it",
        )
    raise EngineError(
        f"{message}; nothing of the tick is published",
        code="internal-rows",
        hint="does something else write to the sink's directory? If not, this is a bug: please report it",
    )
