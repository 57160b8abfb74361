"""Record in a control topic the last tick of each INSERT, and the running run.

The topic is compacted, so the last record of each key remains as long as the topic exists. Only its first
partition is used. Keys name the job's state (``owner``), the target topic and the INSERT; for runs, the
sink. A tick's record is sent in the transaction of the tick's rows, a run's record in one of its own.
Records of other jobs are skipped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from watersmeet.errors import EngineError
from watersmeet.sinks.kafka.client import LOG, Client, library
from watersmeet.sinks.part_mark import Identity

_PARTITION = 0
_REQUEST_S, _METADATA_S = 30.0, 5.0
_PAUSE_S = 0.05
_CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(16 << 20),  # what is not in the newest segment is compacted
    "segment.ms": str(24 * 3600 * 1000),
}


@dataclass(frozen=True)
class ProducerRun:
    """A run that took over the sink, and the transactional id with which it sends.

    Args:
        unfenced: Transactional ids of earlier runs that this run may not have fenced yet.
    """

    run: str
    transactional_id: str
    unfenced: tuple[str, ...] = field(default=(), compare=False)

    @property
    def ids(self) -> frozenset[str]:
        return frozenset({self.transactional_id, *self.unfenced})


@dataclass
class TickMarks:
    """Records of the control topic about one sink of a job.

    These are the last tick that was sent per INSERT, and the last run.

    Args:
        has_all: True if a run was allowed to continue on the basis of the topic, so a tick that is
            missing here was not sent.
        others: Records of the last runs of sinks with other names that send to the topic.
        every: Runs of this sink, as far as the topic has records of them.
        ticks_before: The last ticks that the last run saw.
        topic_id: The brokers' id of the rows' topic when the last run began.
    """

    ticks: dict[str, tuple[int, Identity]] = field(default_factory=dict)
    run: ProducerRun | None = None
    has_all: bool = False
    others: dict[str, dict[str, Any]] = field(default_factory=dict)
    every: dict[str, ProducerRun] = field(default_factory=dict)
    ticks_before: dict[str, int] = field(default_factory=dict)
    topic_id: str | None = None

    def lacks(self) -> bool:
        """Return True if marks that existed when the last run began are missing.

        Other marks may be missing too.
        """
        return any(self.ticks.get(insert, (0,))[0] < tick for insert, tick in self.ticks_before.items())


@dataclass(frozen=True)
class Control:
    """Control topic of one sink of a job.

    Args:
        name: Name of the control topic.
        topic: Topic to which the rows are sent.
        owner: Owner of the job's state.
    """

    client: Client
    name: str
    topic: str
    owner: str

    def tick_record(self, insert: str, tick: int, identity: Identity) -> tuple[bytes, bytes]:
        """Return the key and value of the record that a tick was sent."""
        return self._key(insert=insert), _bytes({"tick": tick, "identity": dict(identity)})

    def run_record(
        self, run: ProducerRun, marks: TickMarks, *, has_all: bool, topic_id: str | None = None
    ) -> tuple[bytes, bytes]:
        """Return the key and value of the record that a run, which read ``marks``, is active.

        Args:
            has_all: See `TickMarks`.
        """
        value = {
            "run": run.run,
            "transactional.id": run.transactional_id,
            "unfenced": sorted(run.unfenced),
            "has_all": has_all,
            "ticks": {insert: tick for insert, (tick, _) in marks.ticks.items()},
            "topic_id": topic_id or marks.topic_id,
        }
        return self._key(sink=self.client.sink), _bytes(value)

    def superseded_record(self, run: ProducerRun, sink: str, value: Mapping[str, Any]) -> tuple[bytes, bytes]:
        """Return the key and value of a record that ``run`` replaces the run of another sink.

        Args:
            sink: Name of the other sink.
            value: The record of the other sink's run.
        """
        return self._key(sink=sink), _bytes({**value, "run": run.run})

    def _key(self, **names: str) -> bytes:
        return _bytes({"owner": self.owner, "topic": self.topic, **names})

    def topic_id(self) -> str | None:
        """Ask the brokers for the id of the topic of the rows.

        A topic that was deleted and created again has another id.

        Returns:
            The id; None if the brokers do not report it.
        """
        from confluent_kafka import TopicCollection

        topics = TopicCollection([self.topic])
        try:
            asked = self.client.admin().describe_topics(topics, request_timeout=_REQUEST_S)
            return str(asked[self.topic].result(_REQUEST_S).topic_id)
        except (library().KafkaException, TimeoutError) as error:
            LOG.debug("asking for the id of %s: %s", self.topic, self.client.words(error))
            return None

    def ensure(self) -> None:
        """Create the topic if it does not exist, and check that it retains its records.

        Raises:
            EngineError: it does not, or cannot be created.
            KafkaException: error of the brokers.
        """
        from confluent_kafka.admin import ConfigResource, NewTopic

        admin = self.client.admin()
        if self.name not in admin.list_topics(timeout=_METADATA_S).topics:
            new = NewTopic(self.name, num_partitions=1, replication_factor=-1, config=_CONFIG)
            try:
                admin.create_topics([new], request_timeout=_REQUEST_S)[self.name].result(_REQUEST_S)
            except library().KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    if self.client.refusal(error) is None:
                        raise
                    raise EngineError(
                        f'the control topic "{self.name}" does not exist and cannot be created (sink'
                        f' "{self.client.sink}"): {self.client.words(error)}',
                        code="control-topic",
                        hint="create it with one partition and cleanup.policy=compact, or use another:"
                        " 'control.topic' = '…'",
                    ) from None
            self._await(lambda: self.name in admin.list_topics(timeout=_METADATA_S).topics)
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.name)
        try:
            described = admin.describe_configs([resource], request_timeout=_REQUEST_S)[resource].result(
                _REQUEST_S
            )
            policy = described["cleanup.policy"].value
        except library().KafkaException as error:
            if "AUTHORIZATION" not in error.args[0].name():
                raise
            LOG.warning(
                'sink "%s": whether the control topic "%s" is compacted cannot be asked (%s): see that it is',
                self.client.sink, self.name, self.client.words(error),
            )  # fmt: skip
            return
        if policy.strip() != "compact":
            raise EngineError(
                f'the control topic "{self.name}" would delete records about ticks (sink'
                f' "{self.client.sink}"): its cleanup.policy is {policy}',
                code="control-topic",
                hint="set its cleanup.policy to compact",
            )

    def read(self, wait_s: float) -> TickMarks:
        """Read all records of the sink up to the topic's current end.

        If a transaction of another sink is open there, wait for its end.

        Args:
            wait_s: Maximum seconds to wait.

        Raises:
            EngineError: The transaction stays open for longer.
            KafkaException: The brokers reported an error.
        """
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        end = self._end(committed=False)
        self._await(lambda: self._end(committed=True) >= end, wait_s)
        marks = TickMarks()
        with closing(self.client.reader()) as consumer:
            consumer.assign([TopicPartition(self.name, _PARTITION, OFFSET_BEGINNING)])
            last_heard = time.monotonic()
            while True:
                messages = consumer.consume(5_000, timeout=0.2)
                for message in messages:
                    last_heard = time.monotonic()
                    error = message.error()
                    if error is None:
                        self._take(marks, message)
                    elif error.code() != library().KafkaError._PARTITION_EOF:
                        raise library().KafkaException(error)
                    elif message.offset() >= end:
                        marks.has_all = marks.has_all and not marks.lacks()
                        return marks
                if time.monotonic() - last_heard > _REQUEST_S:
                    raise library().KafkaException(library().KafkaError(library().KafkaError._TIMED_OUT))

    def _end(self, *, committed: bool) -> int:
        """Return the end offset of the partition, or where its first open transaction begins.

        Args:
            committed: If True, return the offset at which the first open transaction begins, if any.
        """
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        place = TopicPartition(self.name, _PARTITION)
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked = self.client.admin().list_offsets(
            {place: latest}, isolation_level=level, request_timeout=_REQUEST_S
        )
        return int(asked[place].result(_REQUEST_S).offset)

    def _take(self, marks: TickMarks, message: Any) -> None:
        try:
            key = json.loads(message.key())
            value = None if message.value() is None else json.loads(message.value())
        except (TypeError, ValueError):  # none of ours
            return
        if not isinstance(key, dict) or (key.get("owner"), key.get("topic")) != (self.owner, self.topic):
            return
        if value is None:  # somebody deleted it
            self._forget(marks, key)
            return
        if "insert" in key:
            marks.ticks[key["insert"]] = int(value["tick"]), dict(value["identity"])
            return
        if key.get("sink") != self.client.sink:
            marks.others[str(key.get("sink"))] = value
            return
        marks.run = run_in(value)
        marks.every[marks.run.run] = marks.run
        marks.has_all = value.get("has_all") is not False
        marks.ticks_before = {insert: int(tick) for insert, tick in value.get("ticks", {}).items()}
        marks.topic_id = value.get("topic_id")

    def _forget(self, marks: TickMarks, key: Mapping[str, Any]) -> None:
        if "insert" in key:
            marks.ticks.pop(key["insert"], None)
        elif key.get("sink") == self.client.sink:
            marks.run, marks.has_all = None, False
        else:
            marks.others.pop(str(key.get("sink")), None)

    def _await(self, condition: Callable[[], bool], wait_s: float = _REQUEST_S) -> None:
        until = time.monotonic() + wait_s
        while not condition():
            if time.monotonic() > until:
                raise EngineError(
                    f'the control topic "{self.name}" cannot be read to its end (sink'
                    f' "{self.client.sink}"): it has an open transaction',
                    code="sink-unreachable",
                    hint="run again after the client's transaction.timeout.ms, when the brokers abort the"
                    " transaction",
                )
            time.sleep(_PAUSE_S)


def run_in(value: Mapping[str, Any]) -> ProducerRun:
    """Return the run that a record describes."""
    return ProducerRun(value["run"], value["transactional.id"], tuple(value.get("unfenced", ())))


def _bytes(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
