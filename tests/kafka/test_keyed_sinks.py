"""Sinks with a PRIMARY KEY on a real Kafka: one record per key and tick, in order, after every tick."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.engine.spark.running import until_caught_up

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

JOB = """
CREATE TABLE c (id BIGINT, name STRING, d INT)
    WITH ('connector' = 'file', 'path' = '{folder}/c', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE o (nr BIGINT, c BIGINT, price DOUBLE, d INT)
    WITH ('connector' = 'file', 'path' = '{folder}/o', 'format' = 'json', 'diff.column' = 'd');
CREATE SINK rows (nr BIGINT, name STRING, price DOUBLE, PRIMARY KEY (nr) NOT ENFORCED)
    WITH ('connector' = 'kafka', 'bootstrap.servers' = '{servers}', 'topic' = '{topic}rows',
    'format' = 'upsert-json');
CREATE SINK events (PRIMARY KEY (name, nr) NOT ENFORCED) WITH ('connector' = 'kafka',
    'bootstrap.servers' = '{servers}', 'topic' = '{topic}events', 'format' = 'debezium-json');
INSERT INTO rows SELECT o.nr, c.name, o.price FROM o LEFT JOIN c ON o.c = c.id EMIT CHANGES;
INSERT INTO events SELECT o.nr, coalesce(c.name, 'none') AS name, o.price FROM o LEFT JOIN c ON o.c = c.id;
"""


def write(folder: Path, table: str, tick: int, rows: list[dict[str, Any]]) -> None:
    (folder / table).mkdir(exist_ok=True)
    (folder / table / f"{tick}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def wanted(customers: dict[int, str], orders: dict[int, tuple[int, float | None]]) -> dict[int, Any]:
    """The join, by the order's number."""
    return {nr: {"nr": nr, "name": customers.get(c), "price": price} for nr, (c, price) in orders.items()}


def test_what_readers_hold_is_the_join_after_every_tick(spark, kafka_broker, tmp_path):
    """Readers of a compacted topic and of events, in one partition after the other: any order of them."""
    for topic in ("rows", "events"):
        kafka_broker.create_topic(topic, partitions=3)
    draw = random.Random(20130101)
    customers: dict[int, str] = {}
    orders: dict[int, tuple[int, float | None]] = {}
    read = {"rows": 0, "events": 0}
    for tick in range(4):
        changes: dict[str, list[dict[str, Any]]] = {"c": [], "o": []}
        for number in draw.sample(range(6), 4):
            if number in customers:
                changes["c"].append({"id": number, "name": customers.pop(number), "d": -1})
            if draw.random() < 0.7:
                customers[number] = draw.choice(["Ada", 'B"ö\n', "", "Eve"])
                changes["c"].append({"id": number, "name": customers[number], "d": 1})
        for nr in draw.sample(range(30), 12):
            if nr in orders:
                c, price = orders.pop(nr)
                changes["o"].append({"nr": nr, "c": c, "price": price, "d": -1})
            if draw.random() < 0.7:
                orders[nr] = draw.randrange(6), draw.choice([None, 0.5, 1e300])
                changes["o"].append(dict(zip(("nr", "c", "price", "d"), (nr, *orders[nr], 1), strict=True)))
        for table, rows in changes.items():
            write(tmp_path, table, tick, rows)
        job = JOB.format(folder=tmp_path, servers=kafka_broker.bootstrap_servers, topic="")
        until_caught_up(spark, job, tmp_path / "checkpoint")

        records = {topic: kafka_broker.consume_all(topic) for topic in read}
        for topic, of_topic in records.items():
            fresh = Counter(key for _, key, _ in of_topic)
            assert len(of_topic) - read[topic] <= len(fresh)
            read[topic] = len(of_topic)
        table: dict[Any, Any] = {}
        for _, key, value in records["rows"]:
            if value is None:
                del table[key]  # a tombstone is of what was there
            else:
                assert json.loads(key) == {"nr": json.loads(value)["nr"]}
                table[key] = json.loads(value)
        assert {row["nr"]: row for row in table.values()} == wanted(customers, orders)

        told: dict[Any, Any] = {}
        for _, key, value in records["events"]:
            event = json.loads(value)
            assert told.pop(key, None) == event["before"]
            assert (
                event["op"]
                == {(True, False): "c", (False, True): "d", (False, False): "u"}[
                    event["before"] is None, event["after"] is None
                ]
            )
            if event["after"] is not None:
                assert json.loads(key) == {name: event["after"][name] for name in ("name", "nr")}
                told[key] = event["after"]
        of_events = wanted(customers, orders)
        for row in of_events.values():
            row["name"] = "none" if row["name"] is None else row["name"]
        assert {row["nr"]: row for row in told.values()} == of_events
    assert all(count > 30 for count in read.values())


def test_two_rows_of_a_key_at_once_and_null_stop_the_job(spark, kafka_broker, tmp_path):
    for topic in ("rows", "events"):
        kafka_broker.create_topic(f"twice-{topic}")
    job = JOB.format(folder=tmp_path, servers=kafka_broker.bootstrap_servers, topic="twice-")
    write(tmp_path, "c", 1, [{"id": 1, "name": "Ada", "d": 1}, {"id": 1, "name": "Eve", "d": 1}])
    write(tmp_path, "o", 1, [{"nr": 7, "c": 1, "price": 1.5, "d": 1}])
    with pytest.raises(Exception, match=r'"rows": the PRIMARY KEY \{"nr":7\} has 2 rows at once'):
        until_caught_up(spark, job, tmp_path / "checkpoint")
    assert not kafka_broker.consume_all("twice-rows")
    write(tmp_path, "o", 1, [{"nr": None, "c": 9, "price": 1.5, "d": 1}])
    with pytest.raises(Exception, match=r'"rows": NULL in the PRIMARY KEY \{"nr":null\}'):
        until_caught_up(spark, job, tmp_path / "other")
