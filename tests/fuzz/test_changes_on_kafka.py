"""Random histories of a table, as Debezium's events in a topic and in files and as rows that say what was
done: updates of rows that are not there, values that are left out, deletes by key alone, older events again,
tombstones, heartbeats, and records that are none. A dict is the oracle."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.engine.spark.running import until_caught_up
from watersmeet.observe.row_accounting import InputAccount
from watersmeet.sinks.memory import MemorySink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.full]

HISTORIES = 25
COUNT, TICKS = 80, 4
LEFT_OUT = "__debezium_unavailable_value"
WRONG = ["no JSON", "{}", "[]", '{"op": "c"}', '{"op": "x", "after": {"id": 1}}', '{"op": "u", "after": 5}']
BESIDE = [
    {"op": "m", "message": {"prefix": "p", "content": "eA=="}},
    {"ts_ms": 1},
    {"ts_ms": 1, "ts_us": 2, "ts_ns": 3},
    {"status": "BEGIN", "id": "571", "event_count": None, "data_collections": None, "ts_ms": 1},
    {"status": "END", "id": "571", "event_count": 2, "data_collections": [{"data_collection": "t"}]},
]

Row = dict[str, Any]


@dataclass(frozen=True)
class Event:
    """A change, or what is none. ``key``: of Kafka's record; ``text`` None: a tombstone."""

    text: str | None
    key: str | None = None
    what: str = "change"
    op: str = ""
    place: int | None = None
    before: Row | None = None
    after: Row | None = None
    left_out: bool = False


@dataclass
class Table:
    """What the rows are, by a dict: per key the place in the log of its last change, and its row."""

    has_keys: bool
    last: dict[int, tuple[int, Row | None]] = field(default_factory=dict)
    broken: int = 0
    skipped: int = 0
    records: int = 0
    unclear: int = 0
    """Records that may be broken, or stale."""
    left_out: set[int | None] = field(default_factory=set)
    """Places of updates whose value nobody has."""

    def apply(self, event: Event) -> None:
        if event.text is None:
            return
        self.records += 1
        key_of_record = json.loads(event.key)["id"] if self.has_keys and event.key else None
        old = event.before["id"] if event.before else key_of_record
        if event.what != "change":
            self.broken += event.what == "broken"
            self.skipped += event.what == "skipped"
        elif event.op == "d":
            if old is None:
                self.broken += 1
            else:
                self._put(old, event.place, None)
        else:
            assert event.after is not None
            new = event.after["id"]
            if event.op == "u" and event.before and old != new:
                self.records += 1  # a row that goes and one that comes
                self._put(old, event.place, None)
            row = dict(event.after)
            if event.left_out:
                place, there = self.last.get(new, (-1, None))
                before = (event.before or {}).get("s", LEFT_OUT)
                if before != LEFT_OUT:
                    row["s"] = before
                elif event.op != "u":
                    self.broken += 1
                    return
                elif event.place is not None and event.place < place:
                    self.unclear += there is None  # stale, and nobody has the value
                    return
                elif there is None:
                    self.unclear += event.place in self.left_out
                    self.broken += event.place not in self.left_out
                    self.left_out.add(event.place)
                    return
                else:
                    row["s"] = there["s"]
            self._put(new, event.place, row)

    def _put(self, key: int, place: int | None, row: Row | None) -> None:
        last, _ = self.last.get(key, (-1, None))
        if place is None or place >= last:
            self.last[key] = last if place is None else place, row

    @property
    def rows(self) -> Counter[str]:
        return Counter(str((row["id"], row["n"], row["s"])) for _, row in self.last.values() if row)


def history(rng: random.Random) -> Iterator[Event]:
    """Draw events in the order of a topic."""
    there, drawn = set[int](), list[Event]()
    for place in range(1, COUNT + 1):
        how = rng.random()
        if how < 0.08:
            event = Event(rng.choice(WRONG), what="broken")
        elif how < 0.16:
            event = Event(json.dumps(rng.choice(BESIDE)), what="skipped")
        elif how < 0.2:
            event = Event(None, json.dumps({"id": rng.randrange(6)}))
        elif how < 0.3 and drawn:
            event = rng.choice(drawn)  # again, as after a crash
        else:
            event = _change(rng, place, there)
            drawn.append(event)
        yield event


def _change(rng: random.Random, place: int, there: set[int]) -> Event:
    number = rng.randrange(6)
    after = {"id": number, "n": rng.choice([-128, 0, 127, None]), "s": rng.choice(["a", "ä\n", "", None])}
    op = rng.choice("uuuud") if number in there else rng.choice("ccrrud")
    before: Row | None = None
    left_out = op in "ucr" and rng.random() < (0.4 if op == "u" else 0.05)
    if left_out:
        after["s"] = LEFT_OUT
    if op in "ud" and rng.random() < 0.5:
        own = number if op == "d" or rng.random() < 0.7 else rng.randrange(6)
        before = {"id": own} | rng.choice([{}, {"n": 5, "s": "of before"}, {"s": LEFT_OUT}])
    (there.discard if op == "d" else there.add)(number)
    key = json.dumps({"id": number}) if rng.random() < 0.9 else None
    told: dict[str, Any] = {"before": before, "op": op, "source": {"lsn": place, "table": "t"}}
    what = "change"
    if op != "d":
        told["after"] = {"s": after["s"], "n": after["n"], "id": number}
        odd = rng.random()
        if odd < 0.1:  # rows before and after have the same names
            names = {name: rng.choice([name, name.upper()]) for name in told["after"]}
            for part in ("before", "after"):
                row = told[part]
                told[part] = row and {names[name]: own for name, own in row.items()}
        elif odd < 0.15:
            told["after"], what = {"ID": number, "Id": number, "n": 1, "s": "x"}, "broken"
        elif odd < 0.25:
            told["after"]["n"], what = rng.choice([128, 200, 255, 256, -129, 1.5, "x", [1]]), "broken"
    text = json.dumps({"schema": {}, "payload": told} if rng.random() < 0.3 else told)
    is_after = None if op == "d" else after
    return Event(text, key, what, op, place, before, is_after, left_out)


JOB = """
SET output_mode = changelog;
CREATE TABLE topic (id INT PRIMARY KEY NOT ENFORCED, n TINYINT, s STRING, lsn BIGINT) WITH (
    'connector' = 'kafka', 'bootstrap.servers' = '{servers}', 'topic' = '{topic}', 'format' = 'debezium-json',
    'maxOffsetsPerTrigger' = '{per_tick}', 'sequence.by' = 'lsn', 'metadata.lsn' = 'source.lsn');
CREATE TABLE files (id INT PRIMARY KEY NOT ENFORCED, n TINYINT, s STRING, lsn BIGINT) WITH (
    'connector' = 'file', 'path' = '{folder}', 'format' = 'debezium-json', 'maxFilesPerTrigger' = '1',
    'sequence.by' = 'lsn', 'metadata.lsn' = 'source.lsn');
CREATE TABLE o_topic WITH ('connector' = 'memory');
CREATE TABLE o_files WITH ('connector' = 'memory');
INSERT INTO o_topic SELECT id, n, s FROM topic;
INSERT INTO o_files SELECT id, n, s FROM files;
"""


def write_event_files(folder: Path, events: list[Event], per_file: int) -> None:
    folder.mkdir()
    lines = [event.text for event in events if event.text is not None]
    for number, first in enumerate(range(0, len(lines), per_file)):
        file = folder / f"{number}.json"
        file.write_text("".join(line + "\n" for line in lines[first : first + per_file]))
        os.utime(file, (1_700_000_000 + number,) * 2)


@pytest.mark.parametrize("number", range(HISTORIES))
def test_a_table_of_changes_is_what_a_dict_makes_of_them(spark, kafka_broker, seed, tmp_path, number):
    rng = random.Random(f"{seed} {number}")
    events, per_tick = list(history(rng)), rng.choice([COUNT // TICKS, COUNT])
    topic = f"changes-{seed}-{number}"
    kafka_broker.create_topic(topic)
    records = [(event.key and event.key.encode(), event.text and event.text.encode()) for event in events]
    kafka_broker.produce(topic, [(0, key, text) for key, text in records])
    write_event_files(tmp_path / "in", events, per_tick)
    MemorySink.clear()
    text = JOB.format(
        servers=kafka_broker.bootstrap_servers, topic=topic, folder=tmp_path / "in", per_tick=per_tick
    )
    run = until_caught_up(spark, text, tmp_path / "state")
    for source in ("topic", "files"):
        table = Table(has_keys=source == "topic")
        for event in events:
            table.apply(event)
        found = Counter[str]()
        for row in MemorySink.rows(f"o_{source}"):
            found[str((row["id"], row["n"], row["s"]))] += row["_diff"]
        assert {row: times for row, times in found.items() if times} == table.rows, (source, number)
        check_account(run.ticks[-1].queries[f"o_{source}"].account, table, source)


def check_account(account: Mapping[str, Any], table: Table, source: str) -> None:
    """Every record is counted, and those that are broken as such."""
    (counts,) = account.values()
    told = InputAccount.of(source, counts, counts["retained"])
    assert told.adds_up(), told
    assert (told.rows_in, told.skipped) == (table.records, table.skipped), told
    assert 0 <= told.broken - table.broken <= table.unclear, (told, table.broken, table.unclear)
