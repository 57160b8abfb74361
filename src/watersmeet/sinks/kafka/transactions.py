"""Transactions of one sink: opened, tried again, and fenced against other runs.

A client that begins initialises the transactional id: whatever an older client of this id left open is
aborted, and the older client sends no more. Then it reads the control topic to its end, and only then does it
send. Where a transaction fails, or nobody knows whether it was committed, all of that is done anew: so what
the control topic says then is what came of it.

Runs by other ids, of this sink or of one by another name that sent to the topic, are fenced by a run that
begins: it says first that it has the sink, then fences all that it reads of, then reads what they sent. So of
two that begin at once one finds that the other one has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from watersmeet.errors import EngineError
from watersmeet.sinks.kafka.client import LOG, Client, library
from watersmeet.sinks.kafka.control_topic import Control, ProducerRun, TickMarks, run_in
from watersmeet.spec.options.kafka import is_another_topic

Record = tuple[bytes | None, bytes | None]
"""Key and value."""

_REQUEST_S, _METADATA_S = 30.0, 5.0
_MADE_S = 5.0
"""So soon brokers that make topics by themselves have made one."""
TOPIC_READY_S = 10.0
"""Seconds within which all brokers know a new topic; until then "unknown topic" is retried."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
POLL_ROWS = 2_000
"""Records to send between two polls for delivery failures."""
_MAX_TIMEOUTS = 2
"""So often a transaction may be given up by the brokers for its time, which they may have been away."""


class TransactionalProducer:
    """See the module.

    Args:
        run: which run this is, and its transactional id.
        timeout_ms: after which brokers give up a transaction.
    """

    def __init__(self, client: Client, control: Control, run: ProducerRun, timeout_ms: int) -> None:
        self._client, self.control, self._run, self._timeout_ms = client, control, run, timeout_ms
        self._producer: Any = None
        self._failed: list[Any] = []
        self._slow = 0
        self._topic_id: str | None = None
        self._has_warned = False
        self.marks = TickMarks()

    def begin(self, wait_s: float, beside: Collection[str] = ()) -> bool:
        """Take the sink over for this run, and create the control topic if necessary.

        Args:
            wait_s: Maximum seconds to wait for the brokers.
            beside: Runs of other sinks of the job, which continue.

        Returns:
            True if the control topic has all ticks that earlier runs sent. If False, runs that begin later
            also get False, until `go_on`.

        Raises:
            EngineError: The brokers do not answer, or refuse, or another run has begun in the meantime.
        """
        older, had = set[str](), list[bool]()

        def take() -> None:
            self.control.ensure()
            self._initialise()
            self._find_topic(self._producer)
            before = self.marks
            self._warn_if_recreated()
            others = {sink: told for sink, told in before.others.items() if told["run"] not in beside}
            for run in (before.run, *map(run_in, others.values())):
                older.update(() if run is None else run.ids)
            had.append(before.has_all)
            unfenced = older - {self._run.transactional_id}
            self.record_run(has_all=before.has_all, unfenced=unfenced, others=others)
            self._refresh_marks()
            for run in self.marks.every.values():
                older.update(run.ids if run.run not in before.every else ())
            unfenced = older - {self._run.transactional_id}
            if unfenced:
                for transactional_id in sorted(unfenced):
                    self._fence(transactional_id)
                self._refresh_marks()
                self.record_run(has_all=before.has_all)

        self._retry_work(take, wait_s)
        return had[-1]

    def _refresh_marks(self) -> None:
        """Read the current marks from the control topic.

        Raises:
            EngineError: Another run has begun.
        """
        self.marks = self.control.read(self._timeout_ms / 1000 + _REQUEST_S)
        if self.marks.run != self._run:
            raise self._build_fencing_error()

    def go_on(self, wait_s: float) -> None:
        """Record that from now on the control topic has all ticks that are sent.

        Raises:
            EngineError: As `begin`.
        """

        def note() -> None:
            if self._producer is None:
                self._initialise()
                if self.marks.run != self._run:
                    raise self._build_fencing_error()
            self.record_run(has_all=True)

        self._retry_work(note, wait_s)

    def record_run(
        self,
        *,
        has_all: bool,
        unfenced: Collection[str] = (),
        others: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:
        """Record in the control topic that this run has the sink.

        Args:
            has_all: whether the topic has all ticks that earlier runs sent.
            unfenced: transactional ids of earlier runs that may still send.
            others: records of sinks by other names, whose runs this one replaces.
        """
        run = replace(self._run, unfenced=tuple(sorted(unfenced)))
        records = [self.control.superseded_record(run, sink, told) for sink, told in others.items()]
        records.append(self.control.run_record(run, self.marks, has_all=has_all, topic_id=self._topic_id))
        self.run_transaction(self._producer, iter(()), records)

    def look(self, wait_s: float) -> TickMarks:
        """Read the marks of the control topic once no transaction is open; record no run."""

        def look() -> None:
            self.control.ensure()
            self._initialise()

        self._retry_work(look, wait_s)
        self.close()
        return self.marks

    def send(
        self,
        records: Callable[[], Iterator[Record]],
        mark: Record,
        is_there: Callable[[TickMarks], bool],
        wait_s: float,
    ) -> None:
        """Send ``records`` with ``mark`` in one transaction, unless they already arrived.

        Args:
            records: Function that returns the records for the topic; called for each attempt.
            mark: Record for the control topic.
            is_there: Function that returns True if the records arrived, according to the control topic's
                marks. It is called before each attempt that follows one with an unknown outcome.
            wait_s: Maximum seconds to wait for the brokers.

        Raises:
            EngineError: Another run has the sink, the brokers are unreachable for too long, the brokers
                refuse a record, or ``is_there`` raises it.
        """

        def send() -> None:
            if self._producer is None:
                self._initialise()
                if self.marks.run != self._run:
                    raise self._build_fencing_error()
                self._warn_if_recreated()
                if is_there(self.marks):
                    return
            began = time.monotonic()
            try:
                self.run_transaction(self._producer, records(), [mark])
            except library().KafkaException:
                if (time.monotonic() - began) * 1000 >= self._timeout_ms:
                    self._slow += 1
                raise
            self._slow = 0

        self._retry_work(send, wait_s)

    def close(self) -> None:
        """Give up what is open."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            producer.abort_transaction(_REQUEST_S / 3)
        except library().KafkaException as error:  # none is open, or it is aborted by who comes next
            LOG.debug("aborting: %s", self._client.words(error))
        producer.purge()

    def _initialise(self) -> None:
        self.close()
        self._failed = []
        self._producer = self._create_producer(self._run.transactional_id)
        self._producer.init_transactions(_REQUEST_S)
        self.marks = self.control.read(self._timeout_ms / 1000 + _REQUEST_S)

    def _warn_if_recreated(self) -> None:
        """Warn, once, when the topic is not the one that earlier ticks were sent to."""
        self._topic_id = self.control.topic_id()
        is_new = is_another_topic(self.marks.topic_id, self._topic_id)
        if self._has_warned or not self.marks.ticks or not is_new:
            return
        self._has_warned = True
        LOG.warning(
            'sink "%s": the topic "%s" was deleted and created again: it lacks the records of earlier ticks'
            " (%s). The job goes on; to send all rows again, use an empty checkpoint and another topic",
            self._client.sink,
            self.control.topic,
            ", ".join(f'{tick} of "{insert}"' for insert, (tick, _) in sorted(self.marks.ticks.items())),
        )

    def _find_topic(self, producer: Any) -> None:
        """Check that the topic exists, and wait for brokers that create it on request.

        Raises:
            EngineError: There is no topic, and the brokers create none.
            KafkaException: The brokers report another error for the topic.
        """
        topic, until = self.control.topic, time.monotonic() + _MADE_S
        while (error := producer.list_topics(topic, timeout=_METADATA_S).topics[topic].error) is not None:
            if time.monotonic() > until:
                if "UNKNOWN" not in error.name():
                    raise library().KafkaException(error)
                raise EngineError(
                    f'Kafka sink "{self._client.sink}": the topic "{topic}" does not exist',
                    code="topic-missing",
                    hint="create it with the number of partitions that you need",
                )
            time.sleep(0.1)

    def _fence(self, transactional_id: str) -> None:
        """Prevent another transactional id from sending, and abort its open transaction."""
        self._create_producer(transactional_id).init_transactions(_REQUEST_S)

    def _create_producer(self, transactional_id: str) -> Any:
        return self._client.producer(**{
            "transactional.id": transactional_id,
            "transaction.timeout.ms": str(self._timeout_ms),
            "partitioner": "murmur2_random",  # that of Java's client: keys stay in their partitions
            "delivery.report.only.error": True,
            "on_delivery": self._not_delivered,
        })  # fmt: skip

    def _not_delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def run_transaction(self, producer: Any, records: Iterator[Record], marks: Sequence[Record]) -> None:
        """Send ``records`` to the topic and ``marks`` to the control topic in one transaction, without retry.

        Raises:
            KafkaException: the transaction failed, or nobody knows whether it was committed.
        """
        self._failed.clear()
        producer.begin_transaction()
        topic, send = self.control.topic, self._sender(producer)
        for number, (key, value) in enumerate(records):
            send(topic, value, key)
            if number % POLL_ROWS == 0:
                producer.poll(0)
                if self._failed:
                    break
        for key, value in marks if not self._failed else ():
            send(self.control.name, value, key, partition=0)
        producer.commit_transaction(max(_REQUEST_S, self._timeout_ms / 1000))

    def _sender(self, producer: Any) -> Callable[..., None]:
        produce, poll = producer.produce, producer.poll

        def send(topic: str, value: bytes | None, key: bytes | None, **more: int) -> None:
            while True:
                try:
                    produce(topic, value, key, **more)
                    return
                except BufferError:  # the queue is full: let it drain
                    if not len(producer):
                        raise self._too_large_error(len(key or b"") + len(value or b"")) from None
                    poll(0.1)

        return send

    def _retry_work(self, work: Callable[[], None], wait_s: float) -> None:
        """Do ``work``, again while the brokers are away."""
        away_since, pause_s = time.monotonic(), _FIRST_PAUSE_S
        self._client.forget()
        while True:
            try:
                return work()
            except library().KafkaException as error:
                self._client.listen()
                away_s = time.monotonic() - away_since
                refusal = self._client.refusal(error, self._failed, soon=away_s + pause_s < TOPIC_READY_S)
                text = self._client.last_words(error)
                self.close()
                if refusal is not None:
                    raise refusal from None
                if self._slow > _MAX_TIMEOUTS:
                    raise self._too_slow_error(text) from None
                if away_s + pause_s > wait_s:
                    raise self._unreachable_error(away_s, text) from None
                LOG.warning(
                    'sink "%s": a transaction failed (%s); it is tried again in %.1f s, for %.0f s in all',
                    self._client.sink, text, pause_s, wait_s,
                )  # fmt: skip
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            except BaseException:
                self.close()
                raise

    def _build_fencing_error(self) -> EngineError:
        return EngineError(
            f'another run of this job now writes to topic "{self.control.topic}" (sink'
            f' "{self._client.sink}"): this run published nothing',
            code="sink-taken",
            hint="stop the other run and run again, which repeats the tick; check for a copy of the"
            f' checkpoint, or a recreated control topic "{self.control.name}"',
        )

    def _unreachable_error(self, away_s: float, text: str) -> EngineError:
        return EngineError(
            f'the brokers of sink "{self._client.sink}" have not answered for {away_s:.0f} s: {text}',
            code="sink-unreachable",
            hint="check 'bootstrap.servers', the login options and the brokers, then run again: no row"
            " is lost. The option 'max_wait' sets how long the job retries",
        )

    def _too_large_error(self, size: int) -> EngineError:
        return EngineError(
            f'a record of {size:,} bytes is larger than the client\'s buffer (sink "{self._client.sink}")',
            code="sink-refused",
            hint="raise or remove 'queue.buffering.max.kbytes', and run again, which repeats the tick;"
            " nothing of it is visible",
        )

    def _too_slow_error(self, text: str) -> EngineError:
        return EngineError(
            "sending the rows of a tick took longer than the transaction timeout (sink"
            f' "{self._client.sink}"): {text}',
            code="sink-too-slow",
            hint=f"raise 'transaction.timeout.ms' (now {self._timeout_ms}) up to the brokers'"
            " transaction.max.timeout.ms, or read less per tick",
        )
