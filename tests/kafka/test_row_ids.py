"""Ids of rows in a header, of records that are sent at least once: what comes again is known by them."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.engine.spark.running import until_caught_up
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.coordinator.tick_phases import ConcludedTick

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

JOB = """
CREATE TABLE f (k STRING, t BIGINT, WATERMARK FOR t AS t)
  WITH ('connector' = 'file', 'path' = '{folder}/in', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE TABLE out WITH ('connector' = 'kafka', 'bootstrap.servers' = '{servers}', 'topic' = 'row-ids',
  'key' = 'k', 'delivery' = 'at-least-once', 'id.header' = 'row''id');
INSERT INTO out SELECT k, t FROM f;
"""


def test_a_repeated_tick_has_the_same_ids(spark, tmp_path, kafka_broker, monkeypatch):
    kafka_broker.create_topic("row-ids", partitions=2)
    (tmp_path / "in").mkdir()
    rows = [
        {"k": "a", "t": 1},
        {"k": "a", "t": 1},
        {"k": None, "t": 1},
        {"k": None, "t": 1},
        {"k": "b", "t": 1},
    ]
    for number in range(2):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "in" / f"{number}.json").write_text(text)
    job = JOB.format(folder=tmp_path, servers=kafka_broker.bootstrap_servers)
    commit = ConcludedTick.commit

    def fail_commit_of_tick_2(self, *others):
        if self.result.tick == 2:
            raise RuntimeError("broken on purpose")
        commit(self, *others)

    monkeypatch.setattr(ConcludedTick, "commit", fail_commit_of_tick_2)
    with pytest.raises(WatersmeetError, match="broken on purpose"):
        until_caught_up(spark, job, tmp_path / "state")
    monkeypatch.setattr(ConcludedTick, "commit", commit)
    until_caught_up(spark, job, tmp_path / "state")

    ids: dict[bytes, Counter[tuple[bytes | None, bytes | None]]] = {}
    for headers, key, value in records(kafka_broker.bootstrap_servers, "row-ids", 3 * len(rows)):
        ((name, row_id),) = headers
        assert name == "row'id"
        ids.setdefault(row_id, Counter())[key, value] += 1
    assert len(ids) == 2 * len(rows), "equal rows, and those of other ticks, are others"
    assert all(len(of_id) == 1 for of_id in ids.values())
    assert Counter(sum(of_id.values()) for of_id in ids.values()) == {1: len(rows), 2: len(rows)}


def records(servers, topic, count):
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "ids", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
        found = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), timeout=20)
            assert messages, f"{len(found)} of {count} came"
            found += [(message.headers(), message.key(), message.value()) for message in messages]
        return found
    finally:
        consumer.close()
