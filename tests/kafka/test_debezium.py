"""Debezium's events through a real Kafka into a join: with and without schema, deletes, broken events."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

import watersmeet
from tests.engine.spark.running import until_caught_up
from watersmeet.errors import WatersmeetError
from watersmeet.observe.account import InputAccount
from watersmeet.plan.explain import explain

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

JOB = """
SET output_mode = changelog; SET broken_output = broken;
CREATE TABLE customers (id BIGINT, name STRING, since DATE) WITH ('connector' = 'kafka',
    'bootstrap.servers' = '{servers}', 'topic' = '{topic}', 'format' = 'debezium-json');
CREATE TABLE orders (id BIGINT, customer BIGINT, op STRING) WITH ('connector' = 'kafka',
    'bootstrap.servers' = '{servers}', 'topic' = '{topic}-orders', 'op.column' = 'op');
CREATE TABLE out WITH ('connector' = 'file', 'path' = '{folder}/out', 'format' = 'json');
CREATE TABLE broken WITH ('connector' = 'file', 'path' = '{folder}/broken', 'format' = 'json');
INSERT INTO out SELECT o.id, c.name, c.since FROM orders o LEFT JOIN customers c ON o.customer = c.id;
"""


def event(op: str, before: Any = None, after: Any = None, *, schema: bool = False) -> str:
    told = {
        "before": before,
        "after": after,
        "op": op,
        "ts_ms": 1,
        "source": {"lsn": 5, "table": "customers"},
    }
    return json.dumps({"schema": {"type": "struct", "fields": []}, "payload": told} if schema else told)


def customer(number: int, name: str) -> dict[str, Any]:
    return {"id": number, "name": name, "since": "2024-02-29", "more": {"nested": [1]}}


ADA, ADA_L, BOB, EVE = customer(1, "Ada"), customer(1, "Ada L."), customer(2, "Bob"), customer(3, "Eve")
WAVES: list[tuple[list[str | None], list[str], dict[tuple[Any, ...], int]]] = [
    (
        [event("r", None, ADA), event("c", None, BOB, schema=True), None],
        [json.dumps({"id": 10, "customer": 1, "op": "c"}), json.dumps({"id": 11, "customer": 3, "op": "c"})],
        {(10, "Ada", "2024-02-29"): 1, (11, None, None): 1},
    ),
    (
        [
            event("u", ADA, ADA_L),
            event("d", BOB, schema=True),
            None,
            event("c", None, EVE),
            event("u", None, EVE),  # without the row before: no REPLICA IDENTITY FULL
            event("t"),
            '{"before": null, "after": {"id": "no number"}, "op": "c"}',
            "no JSON",
        ],
        [json.dumps({"id": 12, "customer": 2, "op": "c"})],
        {(10, "Ada L.", "2024-02-29"): 1, (11, "Eve", "2024-02-29"): 1, (12, None, None): 1},
    ),
]


def test_events_become_changes(spark, kafka_broker, tmp_path):
    for topic in ("cdc", "cdc-orders"):
        kafka_broker.create_topic(topic)
    job = JOB.format(servers=kafka_broker.bootstrap_servers, topic="cdc", folder=tmp_path)
    for events, orders, wanted in WAVES:
        kafka_broker.produce("cdc", [(0, None, value) for value in events])
        kafka_broker.produce("cdc-orders", [(0, None, value) for value in orders])
        running = until_caught_up(spark, job, tmp_path / "checkpoint")
        sums: Counter[tuple[Any, ...]] = Counter()
        for file in tmp_path.glob("out/**/*.json"):
            for row in map(json.loads, file.read_text().splitlines()):
                sums[row["id"], row.get("name"), row.get("since")] += row["_diff"]
        assert {row: diff for row, diff in sums.items() if diff} == wanted
    counts = running.ticks[-1].queries["out"].account["c"]
    told = InputAccount.of("c", counts, counts["retained"])
    assert (told.adds_up(), told.broken, told.deleted, told.retained) == (True, 4, 4, 2)
    broken = "".join(file.read_text() for file in tmp_path.glob("broken/**/*.json"))
    assert all(text in broken for text in ("no number", "no JSON", "Eve"))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (", 'op.column' = 'name'", "says what changes by its format, and by"),
        (", 'metadata.id' = 'offset'", "a row that goes equals the row that came"),
        (", 'metadata.id' = 'key'", "columns of Debezium's records are those of the table"),
        (", 'csv.sep' = ';'", "is for the format csv"),
    ],
)
def test_what_does_not_go_with_it_is_refused(more, words):
    job = JOB.format(servers="localhost:1", topic="t", folder="x").replace(
        "'debezium-json'", f"'debezium-json'{more}"
    )
    with pytest.raises(WatersmeetError) as caught:
        watersmeet.plan_job(watersmeet.parse_job(job))
    assert words in str(caught.value)


def test_explain_says_so():
    job = JOB.format(servers="localhost:1", topic="t", folder="x")
    assert "changes: as Debezium tells them" in explain(watersmeet.plan_job(watersmeet.parse_job(job)))
