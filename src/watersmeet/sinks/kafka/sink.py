"""A Kafka topic: exactly once, or at least once."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from weakref import WeakKeyDictionary

from watersmeet.errors import EngineError
from watersmeet.sinks.base import (
    Files,
    Frame,
    KeyedRecords,
    RowPrinter,
    Schema,
    Sink,
    Topic,
    staged_folder,
)
from watersmeet.sinks.kafka.client import Client, library
from watersmeet.sinks.kafka.control_topic import Control, ProducerRun, TickMarks
from watersmeet.sinks.kafka.records import KafkaPart, TopicRecords, records_in
from watersmeet.sinks.kafka.transactions import TransactionalProducer
from watersmeet.sinks.part_mark import Identity, Resumed, check_same, newer_parts
from watersmeet.sinks.staging import StagedFilesSink
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.spec.options.kafka import SINK_OURS
from watersmeet.spec.options.kafka_delivery import (
    TRANSACTION_TIMEOUT_MS,
    DeliveryOptions,
    client_settings,
    is_exactly_once,
)
from watersmeet.spec.options.model import BEGINS_AFTER

# A Kafka topic: at least once. Rows leave with ``write``, by Spark's tasks and client; a repeated tick
# sends them again.
#
# With ``id.header`` each record has an id in a header: INSERT, tick, a digest of key and value, and which
# of equal ones it is. It is the same when the tick is repeated.


class AtLeastOnceSink(Sink):
    """See the module."""

    idempotent = False
    tells_rows = False

    def __init__(self, spec: SinkSpec) -> None:
        self._records = TopicRecords(spec)
        self._header = DeliveryOptions.of(spec.options).id_header
        self._settings = {
            name if name.startswith("kafka.") else f"kafka.{name}": value
            for name, value in spec.options.items()
            if name not in SINK_OURS
        }

    @property
    def appends_to(self) -> Topic:
        plain = {name.removeprefix("kafka."): value for name, value in self._settings.items()}
        return Topic(self._records.topic, tuple(sorted(plain.items())))

    @property
    def keyed(self) -> KeyedRecords | None:
        return self._records.keyed

    def prepare(self, schema: Schema, owner: str | None = None) -> None:
        self._records.check(schema)

    def write(self, frame: Frame, insert: str, tick: int, attempt: str) -> None:
        records = self._records.of(frame)
        if self._header is not None:
            records = records.selectExpr("*", self._headers(records.columns, insert, tick))
        writer = records.write.format("kafka").options(**self._settings)
        writer.option("topic", self._records.topic).save()

    def _headers(self, columns: list[str], insert: str, tick: int) -> str:
        """Build the column of record headers, as Spark SQL."""
        parts = [f"coalesce(md5(CAST({name} AS BINARY)), '')" for name in columns]
        digest = f"md5(CAST(concat_ws(' ', {', '.join(parts)}) AS BINARY))"
        names = ", ".join(columns)
        # By a key there is one record of each; else equal ones are told apart by a number.
        nth = "1" if self.keyed else f"row_number() OVER (PARTITION BY {names} ORDER BY {names})"
        row_id = f"concat_ws(' ', {_text(insert)}, '{tick}', {digest}, {nth})"
        assert self._header is not None
        return f"array(struct({_text(self._header)} AS key, CAST({row_id} AS BINARY) AS value)) AS headers"

    def staged_rows(self, insert: str, tick: int, attempt: str) -> int:
        raise NotImplementedError("rows are sent, not staged")

    def publish(self, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        """Return False: the records are already sent, and there is no part to inspect."""
        return False

    def discard(self, attempt: str) -> None:
        """Do nothing: sent records cannot be withdrawn."""


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


# A Kafka topic: exactly once, for readers of committed records.
#
# Tasks stage a tick's records beside the job's state (`staged`), and the driver sends them in one
# transaction, with the mark that says that the tick came (`control`). A repeated tick of the same
# identity finds that, and sends nothing; of an attempt that was killed while it sent, the transaction is
# aborted by who comes next (`producing`). So it does not matter how a tick was cut into tasks, nor
# whether its rows come to the last digit as they did: there is one transaction per INSERT and tick, and
# it is there or not.
#
# Rows of others in the topic stay as they are, and a topic need not be this job's alone.

_FIRST_WAIT_S = 30.0
"""Brokers are waited for no longer before the first tick."""

_RUNS: MutableMapping[Files, set[str]] = WeakKeyDictionary()
"""By where they stage: what sinks of one run of a job call theirs."""

_RESTORE = (
    "restore the checkpoint and the topics from copies of one moment, or start over with an empty checkpoint"
    " and another topic"
)


def kafka_sink(spec: SinkSpec, console: RowPrinter | None = None) -> Sink:
    """Create the Kafka sink for the delivery guarantee that its options select."""
    return KafkaSink(spec) if is_exactly_once(spec.options) else AtLeastOnceSink(spec)


class KafkaSink(StagedFilesSink):
    """Sink that writes to a Kafka topic exactly once (see the module).

    Options: those of `TopicRecords`, ``control.topic``, ``begins_after_tick``, ``max_wait``.
    """

    def __init__(self, spec: SinkSpec) -> None:
        super().__init__(spec)
        self._records = TopicRecords(spec)
        settings = client_settings(spec.options, SINK_OURS)
        self._own_id = settings.pop("transactional.id", "").strip()
        self._timeout_ms = int(settings.pop("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS))
        self._client = Client(settings, spec.name)
        options = DeliveryOptions.of(spec.options)
        self._control = options.control_topic
        self._begins_after = options.begins_after_tick
        self._wait_s = float(options.max_wait)
        self._run = uuid.uuid4().hex
        self._producing: TransactionalProducer | None = None
        self._has_all = False
        self._last: dict[str, tuple[int, Identity]] = {}

    @property
    def keyed(self) -> KeyedRecords | None:
        return self._records.keyed

    def prepare(self, schema: Schema, owner: str | None = None) -> None:
        self._records.check(schema)
        library()
        if owner is None or self._producing is not None:
            return
        wait_s = min(self._wait_s, _FIRST_WAIT_S)
        producing = self._build_producer(owner)
        beside = _RUNS.setdefault(self._there(), set())
        beside.add(self._run)
        self._has_all = producing.begin(wait_s, beside)
        self._last = dict(producing.marks.ticks)
        self._producing = producing

    def check_target(self, owner: str | None, wait_s: float | None) -> None:
        """Check that the client library is installed; see `ChecksTarget`.

        `runtime.spark.preflight.servers` contacts the brokers for this check.
        """
        library()

    def resume(self, inserts: Sequence[str], resumed: Resumed) -> list[str]:
        parts = {(insert, tick): identity for insert, (tick, identity) in self._last.items()}
        try:
            newer_parts(
                self._spec.name,
                self._place,
                parts,
                inserts,
                lambda insert, tick: parts[insert, tick],
                replace(resumed, set_aside=False),
            )
        except EngineError as error:
            if error.code == "sink-ahead":
                error.hint = (
                    f"records of a topic cannot be set aside: {_RESTORE}. To send rows of these ticks again,"
                    f" name another 'control.topic', and say '{BEGINS_AFTER}' = '{resumed.committed}'"
                )
            raise
        begins_after = self._begins_after or 0
        for insert in inserts:
            last, there = (resumed.last_parts or {}).get(insert), self._last.get(insert)
            if last is not None and last[0] > begins_after and (there is None or there[0] < last[0]):
                raise self._build_missing_tick_error(insert, there, last[0], resumed.committed)
        if resumed.pending and not self._has_all and not self._is_admitted(resumed.committed):
            raise EngineError(
                f"it is unknown whether {self._place} has rows of the interrupted tick"
                f' {resumed.committed + 1} (sink "{self._spec.name}"): the control topic'
                f' "{self._control}" has no record of this job. Nothing was written',
                code="sink-behind",
                hint=f"restore the control topic; or set '{BEGINS_AFTER}' = '{resumed.committed}' in the"
                " sink's options to send that tick's rows, perhaps a second time",
            )
        if self._producing is not None and not self._has_all:
            self._producing.go_on(min(self._wait_s, _FIRST_WAIT_S))
            self._has_all = True
        return []

    def _is_admitted(self, tick: int) -> bool:
        """Return True if the user declared that rows up to this tick are elsewhere.

        The sink then sends the rows of later ticks.
        """
        return self._begins_after is not None and self._begins_after >= tick

    def write(self, frame: Frame, insert: str, tick: int, attempt: str) -> None:
        super().write(self._records.of(frame), insert, tick, attempt)

    def _part(self, insert: str, tick: int, attempt: str) -> KafkaPart:
        return KafkaPart(self._there(), staged_folder(tick, attempt))

    def has_part(self, insert: str, tick: int, owner: str | None = None) -> bool:
        """Return True if the topic has, or may have, rows of this tick.

        It may have them where no run was allowed to continue on the basis of the control topic.
        """
        if self._producing is not None:
            marks = TickMarks(self._last, ProducerRun(self._run, ""), has_all=True)
        elif owner is None:
            return True
        else:
            marks = self._build_producer(owner).look(min(self._wait_s, _FIRST_WAIT_S))
        if not marks.has_all and not self._is_admitted(tick - 1):
            return True
        last = marks.ticks.get(insert)
        return last is not None and last[0] >= tick

    def check(self, insert: str, tick: int, identity: Identity) -> None:
        self._is_there(insert, tick, identity, self._last)

    def publish(self, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        staged = self._staged.get((insert, tick, attempt))
        if self._is_there(insert, tick, identity, self._last):
            self._remove((insert, tick, attempt))
            return True
        if staged is None or self._producing is None:
            raise EngineError(
                f'nothing was staged for tick {tick} of "{insert}" (sink "{self._spec.name}")',
                code="staged-rows-gone",
                hint="run again, which repeats the tick, and please report this bug",
            )
        if not staged:
            return False
        confirmed = self._last.get(insert)

        def is_there(marks: TickMarks) -> bool:
            now = marks.ticks.get(insert)
            if confirmed is not None and (now is None or now[0] < confirmed[0]):
                raise self._build_missing_tick_error(insert, now, confirmed[0], tick - 1)
            return self._is_there(insert, tick, identity, marks.ticks)

        control = self._producing.control
        self._producing.send(
            lambda: records_in(self._there(), staged, self._spec.name),
            control.tick_record(insert, tick, identity),
            is_there,
            self._wait_s,
        )
        self._last[insert] = tick, dict(identity)
        self._remove((insert, tick, attempt))
        return True

    def close(self) -> None:
        if self._producing is not None:
            self._producing.close()
        self._client.close()

    @property
    def _place(self) -> str:
        return f'the topic "{self._records.topic}"'

    def _build_producer(self, owner: str) -> TransactionalProducer:
        control = Control(self._client, self._control, self._records.topic, owner)
        named = "\0".join((owner, self._records.topic, self._spec.name))
        digest = blake2b(named.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()
        run = ProducerRun(self._run, self._own_id or f"watersmeet-{digest}")
        return TransactionalProducer(self._client, control, run, self._timeout_ms)

    def _is_there(
        self, insert: str, tick: int, identity: Identity, ticks: Mapping[str, tuple[int, Identity]]
    ) -> bool:
        """Return True if the topic has the tick.

        Raises:
            EngineError: As `check`.
        """
        last = ticks.get(insert)
        if last is None or last[0] < tick:
            return False
        if last[0] > tick:
            raise EngineError(
                f'{self._place} already has tick {last[0]} of "{insert}", but this run is at tick'
                f' {tick} (sink "{self._spec.name}"): another run of this job is active. Nothing was'
                " published",
                code="sink-taken",
                hint="stop one of the runs; the other one continues from the last tick",
            )
        hint = f"was the checkpoint restored from a copy? Then {_RESTORE}"
        check_same(self._spec.name, self._place, insert, tick, last[1], identity, hint)
        return True

    def _build_missing_tick_error(
        self, insert: str, there: tuple[int, Identity] | None, tick: int, committed: int
    ) -> EngineError:
        has = "no ticks" if there is None else f"tick {there[0]}"
        return EngineError(
            f'the control topic "{self._control}" has {has} of "{insert}" for {self._place}, but the'
            f' checkpoint has tick {tick} (sink "{self._spec.name}"): the control topic lost records or'
            " was recreated, or earlier rows went to another place. Nothing was published",
            code="sink-behind",
            hint=f"{_RESTORE}. If earlier rows are in the right place, set '{BEGINS_AFTER}' ="
            f" '{committed}' in the sink's options",
        )
