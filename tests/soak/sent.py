"""What is sent to the job: two topics of Kafka that go on for as long as the soak does, and a record of it.

Rows are made in beats of a quarter of a second, the same ones by the same seed; event time goes faster than
the clock, so that what is kept comes and goes many times in half an hour. A row is up to 20 s of event time
older than others before it, which is within the lag: none is late. A few have no key, a few come twice, a few
are no JSON.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from pyarrow import parquet

TOPICS = ("orders", "deliveries")
PARTITIONS = 3
BEAT_S = 0.25
EVENT_S = 5
"""Seconds of event time in a beat: twenty times as fast as the clock."""
OUT_OF_ORDER_S, LAG_S = 20, 30
DAYS_BACK = 2
"""So long ago event time begins: nothing is ahead of the clock."""
BURST = 60
"""So many beats at once."""


class Sender:
    """A thread that sends until it is told to stop. ``rows_per_s``: to each topic."""

    def __init__(self, folder: Path, servers: str, seed: int, rows_per_s: int) -> None:
        self._folder = folder
        self._draw = random.Random(seed)
        self._per_beat = max(1, round(rows_per_s * BEAT_S))
        self._began = datetime.now(UTC).replace(microsecond=0) - timedelta(days=DAYS_BACK)
        self._failures: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 20,
                "delivery.timeout.ms": 600_000,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,  # that brokers go away is what is wanted
            }
        )
        self._beats = self._owed = 0
        self._rows: dict[str, list[tuple[Any, ...]]] = {topic: [] for topic in TOPICS}
        self.sent, self.broken = Counter[str](), Counter[str]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._go, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def burst(self) -> None:
        """Much at once, with the event time that belongs to it."""
        self._owed += BURST

    def end(self) -> None:
        """Stop, with all that was sent confirmed by the broker, and written down. Raises: AssertionError."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(120)
        assert not left, f"{left} records did not reach the broker"
        assert not self._failures, self._failures[:3]
        for topic in TOPICS:
            self._write_down(topic)

    def files(self) -> dict[str, str]:
        """What was sent, per topic as a table expression of DuckDB."""
        return {topic: f"read_parquet('{self._folder}/{topic}-*.parquet')" for topic in TOPICS}

    def _go(self) -> None:
        began, due = time.monotonic(), 0
        while not self._stop.is_set():
            due = int((time.monotonic() - began) / BEAT_S) + self._owed
            while self._beats < due:
                self._beat()
                self._beats += 1
            self._producer.poll(0)
            self._stop.wait(BEAT_S / 2)

    def _beat(self) -> None:
        for topic in TOPICS:
            for row in self._made(topic):
                key, number, moment, value = row
                at = moment.isoformat().replace("+00:00", "Z")
                self._send(topic, json.dumps({"k": key, "n": number, "at": at, "v": value}))
                self._rows[topic].append(row)
                self.sent[topic] += 1
            if self._draw.random() < 0.02:
                self._send(topic, '{"k": 1, "n": ')
                self.broken[topic] += 1
            if len(self._rows[topic]) >= 50_000:
                self._write_down(topic)

    def _made(self, topic: str) -> Iterator[tuple[Any, ...]]:
        draw = self._draw
        newest = self._began + timedelta(seconds=self._beats * EVENT_S)
        for index in range(self._per_beat):
            # of this minute or five, so that it has about one partner; or of a few that have many
            key = self._beats // 64 * 100_000 + draw.randrange(self._per_beat * 64)
            if draw.random() < 0.05:
                key = -draw.randrange(1, 200)
            older = timedelta(microseconds=draw.randrange(OUT_OF_ORDER_S * 1_000_000))
            number = self._beats * 1000 + index
            row = (None if draw.random() < 0.02 else key, number, newest - older, draw.randrange(1000))
            yield row
            if draw.random() < 0.01:
                yield row

    def _send(self, topic: str, text: str) -> None:
        partition = self._draw.randrange(PARTITIONS)
        while True:
            try:
                self._producer.produce(topic, text, partition=partition, on_delivery=self._told)
                return
            except BufferError:
                self._producer.poll(0.2)

    def _told(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failures.append(str(error))

    def _write_down(self, topic: str) -> None:
        rows = self._rows[topic]
        if not rows:
            return
        keys, numbers, times, values = zip(*rows, strict=True)
        table = pa.table(
            {
                "k": pa.array(keys, pa.int64()),
                "n": pa.array(numbers, pa.int64()),
                "at": pa.array(times, pa.timestamp("us", tz="UTC")),
                "v": pa.array(values, pa.int64()),
            }
        )
        parquet.write_table(table, self._folder / f"{topic}-{self._beats:09d}.parquet")
        rows.clear()
