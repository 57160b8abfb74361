"""SET progress_output into a topic: when a tick's row is there, so are the rows of the tick, in Kafka and in
files; on a repeated tick it comes once more, if at least once is asked for, and is the
same."""

from __future__ import annotations

import json

import pytest

from tests.engine.spark.running import until_caught_up
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.coordinator.tick_phases import ConcludedTick
from watersmeet.sinks.registry import make_sink
from watersmeet.spec.model import Sink

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

JOB = """
CREATE TABLE a (id BIGINT, t TIMESTAMP, WATERMARK FOR t AS t)
  WITH ('connector' = 'kafka', 'topic' = 'progress-in{delivery}', 'bootstrap.servers' = '{servers}',
  'maxOffsetsPerTrigger' = '2');
CREATE TABLE copied
  WITH ('connector' = 'kafka', 'topic' = 'progress-copied{delivery}',
  'delivery' = '{delivery}', 'bootstrap.servers' = '{servers}');
CREATE TABLE kept WITH ('connector' = 'file', 'path' = '{folder}/kept', 'format' = 'json');
CREATE TABLE ticks WITH ('connector' = 'kafka', 'topic' = 'progress-ticks{delivery}',
  'delivery' = '{delivery}', 'bootstrap.servers' = '{servers}',
  'key' = 'tick');
SET progress_output = ticks;
INSERT INTO copied SELECT id FROM a;
INSERT INTO kept SELECT id FROM a;
"""


@pytest.mark.parametrize("delivery", ["exactly-once", pytest.param("at-least-once", marks=pytest.mark.full)])
def test_progress_in_a_topic(spark, tmp_path, kafka_broker, monkeypatch, delivery):
    given, copied, ticks = (f"progress-{name}{delivery}" for name in ("in", "copied", "ticks"))
    for topic in (given, copied, ticks):
        kafka_broker.create_topic(topic)
    again = delivery == "at-least-once"
    kind = type(make_sink(Sink("a", "kafka", {"bootstrap.servers": "x", "topic": "x", "delivery": delivery})))
    rows = [(0, None, json.dumps({"id": n, "t": f"2024-01-01T00:00:0{n}Z"})) for n in range(4)]
    kafka_broker.produce(given, rows)
    text = JOB.replace("{servers}", kafka_broker.bootstrap_servers).replace("{folder}", str(tmp_path))
    text = text.replace("{delivery}", delivery)
    there: list[tuple[int, int, int]] = []
    write, commit = kind.write, ConcludedTick.commit

    def record_output_then_write(self, frame, insert, tick, attempt):
        if insert == "tick-progress":
            parts = list((tmp_path / "kept" / "_ticks").glob("kept-*"))
            there.append((tick, len(kafka_broker.consume_all(copied)), len(parts)))
        write(self, frame, insert, tick, attempt)

    def fail_commit_of_tick_2(self, *others):
        if self.result.tick == 2:
            raise RuntimeError("broken on purpose")
        commit(self, *others)

    monkeypatch.setattr(kind, "write", record_output_then_write)
    monkeypatch.setattr(ConcludedTick, "commit", fail_commit_of_tick_2)
    with pytest.raises(WatersmeetError, match="broken on purpose"):
        until_caught_up(spark, text, tmp_path / "state")
    monkeypatch.setattr(ConcludedTick, "commit", commit)
    until_caught_up(spark, text, tmp_path / "state")
    assert there == [(1, 2, 1), (2, 4, 2), (2, 6 if again else 4, 2)]
    told = [(key, json.loads(value)) for _, key, value in kafka_broker.consume_all(ticks)]
    assert [key for key, _ in told] == [b"1", b"2", *([b"2"] if again else [])]
    assert told[1] == told[-1]
    assert [json.loads(row["rows_out"]) for _, row in told] == [{"copied": 2, "kept": 2}] * len(told)
