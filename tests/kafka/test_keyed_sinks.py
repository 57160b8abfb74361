"""Sinks with a PRIMARY KEY on a real Kafka: one record per key and tick, in order, after every tick."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import watersmeet
from tests.engine.spark.running import until_caught_up
from tests.support.effort import at_effort
from watersmeet.plan.explain import explain

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

TICKS = at_effort(quick=2, full=4)

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


def compute_expected_join(
    customers: dict[int, str], orders: dict[int, tuple[int, float | None]]
) -> dict[int, Any]:
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
    for tick in range(TICKS):
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
        assert {row["nr"]: row for row in table.values()} == compute_expected_join(customers, orders)

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
        of_events = compute_expected_join(customers, orders)
        for row in of_events.values():
            row["name"] = "none" if row["name"] is None else row["name"]
        assert {row["nr"]: row for row in told.values()} == of_events
    assert all(count > at_effort(quick=12, full=30) for count in read.values())


@pytest.mark.full
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


SECOND = """
CREATE TABLE o (nr BIGINT, text STRING, amount DECIMAL(12,2), at TIMESTAMP, wall TIMESTAMP_NTZ, day DATE,
    yes BOOLEAN, real DOUBLE, bytes BINARY, d INT)
    WITH ('connector' = 'file', 'path' = '{folder}/o', 'format' = 'json', 'diff.column' = 'd');
CREATE SINK rows (PRIMARY KEY (nr) NOT ENFORCED) WITH ('connector' = 'kafka',
    'bootstrap.servers' = '{servers}', 'topic' = '{topic}', 'format' = '{format}');
INSERT INTO rows SELECT nr, text, upper(text) AS louder, amount * 2 AS amount, at, wall, day, yes, real,
    hex(bytes) AS bytes FROM o WHERE nr > 0 AND soundex(text) IS DISTINCT FROM 'X';
"""

FULL = {
    "text": "ü", "amount": "1.50", "at": "2024-02-29T12:00:00.123456Z", "wall": "2024-02-29T12:00:00.5",
    "day": "2024-02-29", "yes": False, "real": 1e300, "bytes": "YWI=",
}  # fmt: skip
"""A row but for its number, as it comes."""

SENT = {
    "text": "ü", "louder": "Ü", "amount": 3.0, "at": "2024-02-29T12:00:00.123456Z",
    "wall": "2024-02-29T12:00:00.500000", "day": "2024-02-29", "yes": False, "real": 1e300, "bytes": "6162",
}  # fmt: skip
"""And as it goes out."""


@pytest.mark.parametrize("records", [pytest.param("upsert-json", marks=pytest.mark.full), "debezium-json"])
def test_a_second_row_of_a_key_in_a_later_tick_stops_the_job(spark, kafka_broker, tmp_path, records):
    """Nothing says that there is one: `nr` is no primary key."""
    topic = f"second-{records}"
    kafka_broker.create_topic(topic)
    job = SECOND.format(folder=tmp_path, servers=kafka_broker.bootstrap_servers, topic=topic, format=records)
    plan = watersmeet.plan_job(watersmeet.parse_job(job))
    assert "and a second row of a key stops the job" in explain(plan)
    empty = dict.fromkeys(FULL)
    waves: list[list[tuple[int, dict[str, Any], int]]] = [
        [(1, FULL, 1), (2, empty, 1)],
        [(1, FULL, -1), (1, {**FULL, "text": "v"}, 1), (2, empty, -1), (3, FULL, 1)],
        [(2, FULL, 1), (0, FULL, 1), (0, FULL, 1), (4, FULL, 2), (4, FULL, -1)],
    ]
    for tick, wave in enumerate(waves):
        write(tmp_path, "o", tick, [{"nr": nr, **row, "d": d} for nr, row, d in wave])
        until_caught_up(spark, job, tmp_path / "checkpoint")
    told: dict[Any, Any] = {}
    for _, key, value in kafka_broker.consume_all(topic):
        row = None if value is None else json.loads(value)
        if records == "debezium-json":
            assert told.get(key) == row["before"]
            row = row["after"]
        told[key] = row
    louder = {**SENT, "text": "v", "louder": "V"}
    rows = {1: louder, 2: SENT, 3: SENT, 4: SENT}
    assert [row for row in told.values() if row is not None] == [
        {"nr": json.loads(key)["nr"], **rows[json.loads(key)["nr"]]} for key in told
    ]
    sent = len(kafka_broker.consume_all(topic))

    write(tmp_path, "o", 3, [{"nr": 3, **FULL, "text": "another", "d": 1}, {"nr": 9, **FULL, "d": 1}])
    for _ in range(2):  # and again when it is started again
        with pytest.raises(Exception, match=r'"rows": the PRIMARY KEY \{"nr":3\} has 2 rows at once'):
            until_caught_up(spark, job, tmp_path / "checkpoint")
    more = [json.loads(key) for _, key, _ in kafka_broker.consume_all(topic)[sent:] if key is not None]
    assert {"nr": 3} not in more


KNOWN = """
CREATE TABLE o (nr BIGINT, c BIGINT, PRIMARY KEY (nr) NOT ENFORCED)
    WITH ('connector' = 'kafka', 'bootstrap.servers' = 'x:1', 'topic' = 'o', 'format' = 'upsert-json');
CREATE TABLE c (id BIGINT, name STRING {key}) WITH ('connector' = 'kafka', 'bootstrap.servers' = 'x:1',
    'topic' = 'c', {format});
CREATE SINK rows (PRIMARY KEY (nr) NOT ENFORCED) WITH ('connector' = 'kafka',
    'bootstrap.servers' = 'x:1', 'topic' = 'rows', 'format' = 'upsert-json');
INSERT INTO rows SELECT o.nr, {name} AS name FROM o LEFT JOIN c ON c.id = o.c;
"""
WITH_KEY = {"key": ", PRIMARY KEY (id) NOT ENFORCED", "format": "'format' = 'upsert-json'"}
WITHOUT = {"key": ", op STRING", "format": "'op.column' = 'op'"}


def test_where_primary_keys_say_that_there_is_one_row_nothing_is_counted():
    def plan_known_query(told: dict[str, str], name: str = "c.name") -> watersmeet.JobPlan:
        return watersmeet.plan_job(watersmeet.parse_job(KNOWN.format(name=name, **told)))

    known, counted = plan_known_query(WITH_KEY), plan_known_query(WITHOUT)
    assert len(counted.queries[0].nodes) == len(known.queries[0].nodes)  # one for the key of c, one to count
    assert "one: it covers the primary keys" in explain(known)
    assert "counted, for nothing else says" in explain(counted)
    assert [plan.queries[0].warnings for plan in (known, counted)] == [(), ()]
    columns = [output.name for output in counted.queries[0].outputs]
    assert columns == [output.name for output in known.queries[0].outputs] == ["nr", "name"]


def test_primary_key_of_final_rows_is_unchecked_with_a_warning():
    job = """
        CREATE TABLE a (id BIGINT, t TIMESTAMP, WATERMARK FOR t AS t) WITH ('connector' = 'kafka',
            'bootstrap.servers' = 'x:1', 'topic' = 'a');
        CREATE SINK rows (PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'kafka',
            'bootstrap.servers' = 'x:1', 'topic' = 'rows', 'format' = 'upsert-json');
        INSERT INTO rows """
    (warning,) = watersmeet.plan_job(watersmeet.parse_job(job + "SELECT id FROM a")).queries[0].warnings
    assert (
        'several rows per (id), the PRIMARY KEY of "rows", which the job does not check (final rows'
        in warning
    )
    windows = """SELECT count(*) AS n, window_start, id FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(t),
        INTERVAL '1' HOUR)) GROUP BY window_start, window_end, id"""
    by_window = job.replace("(id) NOT", "(id, window_start) NOT") + windows
    assert not watersmeet.plan_job(watersmeet.parse_job(by_window)).queries[0].warnings


def test_primary_key_over_an_array_column_is_unchecked_with_a_warning():
    job = KNOWN.format(name="c.name", **WITHOUT).replace("name STRING", "name ARRAY<STRING>")
    (warning,) = watersmeet.plan_job(watersmeet.parse_job(job)).queries[0].warnings
    assert 'the job does not check (the column "name" is made of ARRAY<STRING>' in warning
