"""A Kafka sink without Spark: rows staged as an attempt does, and transactions that stop at a point."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.sinks.postgres_frames import ArrowFrame
from tests.support.columns import column
from watersmeet.sinks.kafka.client import Client
from watersmeet.sinks.kafka.sink import KafkaSink
from watersmeet.sinks.part_mark import Resumed
from watersmeet.spec.model import Sink
from watersmeet.state.store import LocalStore

KeyValue = tuple[str, str | None]
COLUMNS = [column("k", "STRING"), column("v", "STRING")]


def identity_of(tick: int) -> dict[str, str]:
    return {"rows": f"of tick {tick}"}


def sink_of(servers: str, topic: str, name: str = "out", /, **options: str) -> KafkaSink:
    given = {"bootstrap.servers": servers, "topic": topic, "format": "upsert-json", "key.format": "raw"}
    given |= {"max_wait": "60 s", "transaction.timeout.ms": "5000", "control.topic": f"{topic}-ticks"}
    return KafkaSink(Sink(name, "kafka", given | options, None, ("k",)))


def prepare_sink(sink: KafkaSink, files: Path, owner: str = "the job", *, begins: bool = True) -> KafkaSink:
    """``begins``: a job without ticks, if the sink knows of no run."""
    sink.stage_in(LocalStore(files))
    sink.prepare(COLUMNS, owner)
    if begins and not sink._has_all:
        sink.resume([], Resumed(0))
    return sink


def stage(sink: KafkaSink, tick: int, rows: Sequence[KeyValue], partitions: int, insert: str = "q") -> str:
    """Stage rows as an attempt does, whose name is returned."""
    attempt = uuid.uuid4().hex
    columns = [pa.array([row[n] for row in rows], pa.string()) for n in range(2)]
    frame = ArrowFrame(pa.table(columns, names=["key", "value"]), ["STRING", "STRING"], partitions)
    sink.write(frame, insert, tick, attempt)
    assert sink.staged_rows(insert, tick, attempt) == len(rows)
    return attempt


def stopping_at(
    point: str,
    control: str,
    records: int,
    is_time: Callable[[], bool],
    stop: Callable[[], None],
    *,
    flush: bool = True,
) -> Callable[[], None]:
    """Let all producers of this process call ``stop`` at a point (`tests.kills.kafka_ticks`), when it is
    time; ``half-sent``: after so many ``records``. ``flush``: what was sent is at the
    broker then. What ends that is returned."""
    made = Client.producer

    def stopping(self: Client, **more: Any) -> Any:
        return _Stopping(made(self, **more), point, control, records, is_time, stop, flush)

    def end() -> None:
        Client.producer = made  # type: ignore[method-assign]

    Client.producer = stopping  # type: ignore[method-assign]
    return end


class _Stopping:
    def __init__(
        self, inner: Any, point: str, control: str, records: int, is_time: Any, stop: Any, flush: bool
    ) -> None:
        self._inner, self._control, self._records = inner, control, records
        self._point, self._is_time, self._stop = point, is_time, stop
        self._sent, self._flushes = 0, flush

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _at(self, point: str, is_there: bool = True) -> None:
        if point == self._point and is_there and self._is_time():
            if self._flushes and point not in ("initialising", "initialised", "answered"):
                self._inner.flush(30)
            self._stop()

    def init_transactions(self, timeout: float) -> None:
        self._at("initialising")
        self._inner.init_transactions(timeout)
        self._at("initialised")

    def begin_transaction(self) -> None:
        self._inner.begin_transaction()
        self._sent = 0

    def produce(self, topic: str, value: bytes, key: bytes, **more: Any) -> None:
        self._at("sent", topic == self._control)
        self._inner.produce(topic, value, key, **more)
        self._sent += 1
        self._at("half-sent", self._sent == self._records)

    def commit_transaction(self, timeout: float) -> None:
        self._at("marked")
        self._inner.commit_transaction(timeout)
        self._at("answered")
