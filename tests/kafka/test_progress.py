"""SET progress_output into a topic: when a tick's row is there, so are the rows of the tick, in Kafka and in
files; on a repeated tick it comes once more, and is the same."""

from __future__ import annotations

import json

import pytest

from tests.engine.spark.running import until_caught_up
from watersmeet.engine.driver.driver import TickDriver
from watersmeet.errors import WatersmeetError
from watersmeet.sinks.kafka import KafkaSink

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

JOB = """
CREATE TABLE a (id BIGINT, t TIMESTAMP, WATERMARK FOR t AS t)
  WITH ('connector' = 'kafka', 'topic' = 'progress-in', 'bootstrap.servers' = '{servers}',
  'maxOffsetsPerTrigger' = '2');
CREATE TABLE copied
  WITH ('connector' = 'kafka', 'topic' = 'progress-copied', 'bootstrap.servers' = '{servers}');
CREATE TABLE kept WITH ('connector' = 'file', 'path' = '{folder}/kept', 'format' = 'json');
CREATE TABLE ticks WITH ('connector' = 'kafka', 'topic' = 'progress-ticks', 'bootstrap.servers' = '{servers}',
  'key' = 'tick');
SET progress_output = ticks;
INSERT INTO copied SELECT id FROM a;
INSERT INTO kept SELECT id FROM a;
"""


def test_progress_in_a_topic(spark, tmp_path, kafka_broker, monkeypatch):
    for topic in ("progress-in", "progress-copied", "progress-ticks"):
        kafka_broker.create_topic(topic)
    rows = [(0, None, json.dumps({"id": n, "t": f"2024-01-01T00:00:0{n}Z"})) for n in range(4)]
    kafka_broker.produce("progress-in", rows)
    text = JOB.replace("{servers}", kafka_broker.bootstrap_servers).replace("{folder}", str(tmp_path))
    there: list[tuple[int, int, int]] = []
    write, commit = KafkaSink.write, TickDriver.commit

    def watched(self, frame, insert, tick, attempt):
        if insert == "tick-progress":
            parts = list((tmp_path / "kept").glob("kept-*"))
            there.append((tick, len(kafka_broker.consume_all("progress-copied")), len(parts)))
        write(self, frame, insert, tick, attempt)

    def stopped(self, *others):
        if self.tick == 1:
            raise RuntimeError("broken on purpose")
        commit(self, *others)

    monkeypatch.setattr(KafkaSink, "write", watched)
    monkeypatch.setattr(TickDriver, "commit", stopped)
    with pytest.raises(WatersmeetError, match="broken on purpose"):
        until_caught_up(spark, text, tmp_path / "state")
    monkeypatch.setattr(TickDriver, "commit", commit)
    until_caught_up(spark, text, tmp_path / "state")
    assert there == [(1, 2, 1), (2, 4, 2), (2, 6, 2)]  # what is sent again is there twice
    told = [(key, json.loads(value)) for _, key, value in kafka_broker.consume_all("progress-ticks")]
    assert [key for key, _ in told] == [b"1", b"2", b"2"]
    assert told[1] == told[2]
    assert [json.loads(row["rows_out"]) for _, row in told] == [{"copied": 2, "kept": 2}] * 3
