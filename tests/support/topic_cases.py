"""Cases run in this process whose sources are topics, as far as `why` can tell: their records are written as
Kafka has them, and the history has the offsets that each tick read."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tests.support.recorded_cases import Reached, RecordedCase
from watersmeet.cli.why import topics
from watersmeet.runtime.replay import CaseStep
from watersmeet.spec.model import Source
from watersmeet.topics import RECORDS, SourcePartition, TopicState
from watersmeet.why.rows import Reread
from watersmeet.why.ticks import tick_history

Payload = bytes | None


@dataclass
class Log:
    """A partition. ``records``: by offset, key and value; ``end``: the offset behind the last."""

    records: dict[int, tuple[Payload, Payload]] = field(default_factory=dict)
    end: int = 0
    first: int = 0

    def append(self, key: Any, value: Any) -> None:
        given = tuple(None if own is None else json.dumps(own).encode() for own in (key, value))
        self.records[self.end] = (given[0], given[1])
        self.end += 1

    def compact(self, until: int, rng: random.Random) -> None:
        """As Kafka's cleaner: of each key the last record before an offset stays, unless it has no value and
        is old."""
        last = {key: offset for offset, (key, _) in self.records.items() if offset < until}
        for offset, (key, value) in list(self.records.items()):
            is_last = last.get(key) == offset
            if key is not None and offset < until and (not is_last or (value is None and rng.random() < 0.7)):
                del self.records[offset]


class TopicCase(RecordedCase):
    """A case of which each table is a topic of one partition. ``logs``: per source; ``offsets``: of its
    records in the case, in order. ``spelled``: keys are written in several ways."""

    def __init__(self, case: Mapping[str, Any], rng: random.Random, *, spelled: bool = False) -> None:
        self.logs: dict[str, Log] = {}
        self.offsets: dict[str, list[int]] = defaultdict(list)
        self._rng, self._spelled = rng, spelled
        super().__init__(case)

    def _reached(self, step: CaseStep) -> tuple[Reached, Reached]:
        began: Reached = {}
        read: Reached = {}
        for source in self.plan.sources:
            is_new = source.name not in self.logs
            log = self.logs.setdefault(source.name, Log())
            if is_new:
                began[source.name] = {f"{source.name}/0": 0}
            before = log.end
            self._write(source, log, step.rows.get(source.name, []))
            if is_new or log.end > before:
                read[source.name] = {f"{source.name}/0": log.end}
        return began, read

    def _write(self, source: Source, log: Log, rows: list[Any]) -> None:
        for row, diff in rows:
            self.offsets[source.name].append(log.end)
            if format_of(source) == "upsert-json":
                key = {"id": row["id"]}
                if self._spelled and self._rng.random() < 0.5:  # to Kafka another one
                    key["more"] = self._rng.randrange(2)
                log.append(key, None if diff < 0 else row)
                continue
            event: dict[str, Any] = (
                {"before": None, "after": row, "op": "c"} if diff > 0 else {"before": row, "op": "d"}
            )
            if (sequence := _sequence_of(source)) is not None:  # a delete is in order by its event
                event["source"] = {"lsn": row[sequence]}
            of_key = None if source.primary_key is None else {"id": row["id"]}
            for _ in range(abs(diff)):
                log.append(of_key, {"payload": event})
            if diff < 0 and of_key is not None and self._rng.random() < 0.5:
                log.append(of_key, None)

    def topic(self, source: Source) -> Source:
        """The source as a job would declare it."""
        options = {
            "topic": source.name,
            "bootstrap.servers": "here:1",
            "format": format_of(source),
        }
        if (sequence := _sequence_of(source)) is not None:
            options[f"metadata.{sequence}"] = "source.lsn"
        return replace(source, connector="kafka", options=options)

    def read_again(
        self, monkeypatch: Any, *, is_read: bool = True, ends: Mapping[str, int] | None = None
    ) -> dict[str, Reread]:
        """All sources, by the code that reads topics, from these logs. ``is_read``: whether the state says
        how far; else it says that it begins with no partition. ``ends``: how far; None: all that there is."""
        reread = {}
        for source in self.plan.sources:
            log = self.logs[source.name]
            reader = _Reader(source.name, log)
            monkeypatch.setattr(topics, "TopicReader", lambda _, reader=reader: reader)
            end = log.end if ends is None else ends[source.name]
            read_up_to = {source.name: {"0": end}} if is_read else {}
            host = {
                "sources": [f"kafka {source.name}"],
                "offsets": "\n".join(["v1", "{}", json.dumps(read_up_to)]),
            }
            needed = frozenset(own.name for own in source.columns)
            again = topics.topics_again(
                self.topic(source), host, tick_history(self.past), "UTC", needed, set[str]()
            )
            reread[source.name] = replace(again, source=source)
        return reread


def _sequence_of(source: Source) -> str | None:
    return None if source.primary_key is None else source.primary_key.sequence


def format_of(source: Source) -> str:
    """Records without a value have no sequence: those of Debezium do."""
    key = source.primary_key
    return "upsert-json" if key is not None and key.sequence is None else "debezium-json"


class _Reader:
    """Stands for `TopicReader`: no broker is asked."""

    def __init__(self, topic: str, log: Log) -> None:
        self._topic, self._log = topic, log

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def topics(self) -> dict[str, TopicState]:
        return {self._topic: TopicState("id", {0: (self._log.first, self._log.end)})}

    def records(
        self, spans: Mapping[SourcePartition, tuple[int, int]]
    ) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
        for place, (first, end) in spans.items():
            own = [(at, *kv, 0) for at, kv in sorted(self._log.records.items()) if first <= at < end]
            if own:
                records = [dict(zip(RECORDS.names, record, strict=True)) for record in own]
                yield place, pa.RecordBatch.from_pylist(records, schema=RECORDS)
