"""Tables with a primary key through a real Kafka: upsert-json with keys as JSON and as text, Debezium's
events without rows before, sequences, and what is set aside."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import watersmeet
from tests.engine.spark.running import until_caught_up
from watersmeet.errors import WatersmeetError
from watersmeet.observe.row_accounting import InputAccount

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

JOB = """
SET output_mode = changelog; SET broken_output = broken;
CREATE TABLE customers (id BIGINT, city STRING, name STRING, since DATE, PRIMARY KEY (id, city) NOT ENFORCED)
    WITH ('connector' = 'kafka', 'bootstrap.servers' = '{servers}', 'topic' = 'customers',
    'format' = 'upsert-json');
CREATE TABLE people (id BIGINT, name STRING, nr INT PRIMARY KEY NOT ENFORCED, at BIGINT)
    WITH ('connector' = 'kafka', 'bootstrap.servers' = '{servers}', 'topic' = 'people',
    'format' = 'debezium-json', 'sequence.by' = 'at');
CREATE TABLE levels (name STRING PRIMARY KEY, level INT) WITH ('connector' = 'kafka',
    'bootstrap.servers' = '{servers}', 'topic' = 'levels', 'format' = 'upsert-json', 'key.format' = 'raw');
CREATE TABLE out WITH ('connector' = 'file', 'path' = '{folder}/out', 'format' = 'json');
CREATE TABLE broken WITH ('connector' = 'file', 'path' = '{folder}/broken', 'format' = 'json');
INSERT INTO out SELECT c.id, c.city, c.name, p.nr, l.level FROM customers c LEFT JOIN people p ON p.id = c.id
    LEFT JOIN levels l ON l.name = p.name;
"""


def key(number: Any, city: Any = "Ulm") -> str:
    return json.dumps({"id": number, "city": city})


def row(number: int, name: str, city: str = "Ulm") -> str:
    return json.dumps({"id": number, "city": city, "name": name, "since": "2024-02-29"})


def event(op: str, before: Any = None, after: Any = None) -> str:
    return json.dumps({"payload": {"before": before, "after": after, "op": op}})


def person(nr: int, number: int, name: str, at: int | None) -> dict[str, Any]:
    return {"nr": nr, "id": number, "name": name, "at": at}


def of_record(nr: int) -> str:
    return json.dumps({"schema": {}, "payload": {"nr": nr}})


Records = list[tuple[int, str | None, str | None]]
WAVES: list[tuple[Records, Records, Records, dict[tuple[Any, ...], int]]] = [
    (
        [
            (0, key(1), row(1, "Ada")),
            (0, key(2), row(2, "Bob")),
            (0, key(2, "Bonn"), json.dumps({"name": "Bo"})),  # the key's columns are in the key alone
            (0, None, row(3, "Cem")),  # in the value alone
            (0, key(1), row(1, "Ada L.")),
        ],
        [
            (0, of_record(7), event("c", None, person(7, 1, "a", 1))),
            (0, of_record(7), event("u", None, person(7, 2, "b", 5))),  # no row before
            (0, of_record(7), event("u", None, person(7, 1, "c", 4))),  # stale
            (0, of_record(8), event("r", None, person(8, 3, "a", 1))),
        ],
        [(0, "a", '{"level": 5}'), (0, "b", '{"name": "b", "level": 6}')],
        {
            (1, "Ulm", "Ada L.", None, None): 1,
            (2, "Ulm", "Bob", 7, 6): 1,
            (2, "Bonn", "Bo", 7, 6): 1,
            (3, "Ulm", "Cem", 8, 5): 1,
        },
    ),
    (
        [
            (0, key(1), None),
            (0, key(9), None),  # of nothing
            (0, key(2), row(3, "other key")),
            (0, key(None), row(4, "x")),
            (0, key(4), "no JSON"),
            (0, "no JSON", None),
            (0, None, None),
            (0, key(3), row(3, "Cem K.")),
        ],
        [
            (0, of_record(7), event("u", {"nr": 7}, person(17, 2, "a", 6))),  # another key
            (0, of_record(7), None),
            (0, of_record(8), event("d", None, None)),  # not even the key, but in the record's
            (0, None, event("d", None, None)),  # broken
            (0, of_record(9), event("c", None, person(9, 1, "a", None))),  # broken: no sequence
        ],
        [(0, "a", None), (0, "c", '{"name": "other", "level": 1}')],
        {
            (2, "Ulm", "Bob", 17, None): 1,
            (2, "Bonn", "Bo", 17, None): 1,
            (3, "Ulm", "Cem K.", None, None): 1,
        },
    ),
    (
        [(0, key(1), row(1, "Ada again"))],
        [
            (0, of_record(7), event("c", None, person(7, 1, "a", 5))),
            (0, of_record(8), event("c", None, person(8, 1, "b", 1))),
        ],
        [],
        {
            (1, "Ulm", "Ada again", 8, 6): 1,
            (2, "Ulm", "Bob", 17, None): 1,
            (2, "Bonn", "Bo", 17, None): 1,
            (3, "Ulm", "Cem K.", None, None): 1,
        },
    ),
]


def sums(folder: Path) -> dict[tuple[Any, ...], int]:
    total: Counter[tuple[Any, ...]] = Counter()
    for file in folder.glob("out/**/*.json"):
        for told in map(json.loads, file.read_text().splitlines()):
            total[tuple(told.get(name) for name in ("id", "city", "name", "nr", "level"))] += told["_diff"]
    return {row: diff for row, diff in total.items() if diff}


def test_records_are_rows_by_their_keys(spark, kafka_broker, tmp_path):
    topics = ("customers", "people", "levels")
    for topic in topics:
        kafka_broker.create_topic(topic)
    job = JOB.format(servers=kafka_broker.bootstrap_servers, folder=tmp_path)
    for *waves, wanted in WAVES:
        for topic, records in zip(topics, waves, strict=True):
            kafka_broker.produce(topic, records)
        running = until_caught_up(spark, job, tmp_path / "checkpoint")
        assert sums(tmp_path) == wanted
    told = {
        name: InputAccount.of(name, counts, counts["retained"])
        for name, counts in running.ticks[-1].queries["out"].account.items()
    }
    assert all(account.adds_up() for account in told.values()), told
    customers, people = told["c.customers"], told["p.people"]
    assert (customers.broken, customers.missing_deletes, customers.retained) == (5, 1, 4)
    # The change that moved nr 7 to 17 is remembered with its own sequence, 6: so 5 is stale.
    assert (people.broken, people.stale, people.retained) == (2, 2, 2)
    assert told["l.levels"].broken == 1
    broken = "".join(file.read_text() for file in tmp_path.glob("broken/**/*.json"))
    assert all(text in broken for text in ("other key", "no JSON", '\\"nr\\":9'))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("'key.format' = 'raw'", "'key.format' = 'csv'"), "option 'key.format' is 'csv'"),
        (("'format' = 'upsert-json');", "'format' = 'upsert-json', 'key.format' = 'raw');"), "one column"),
        (("'sequence.by' = 'at'", "'key.format' = 'json'"), "it is for the format upsert-json"),
        ((", PRIMARY KEY (id, city) NOT ENFORCED", ""), "format upsert-json needs a PRIMARY KEY"),
        (("'upsert-json');", "'upsert-json', 'metadata.id' = 'key');"), "in the primary key"),
        (("'sequence.by' = 'at'", "'op.column' = 'name'"), "tells inserts from deletes both by its format"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_it_is_refused(change, words):
    job = JOB.format(servers="localhost:1", folder="x")
    assert change[0] in job
    with pytest.raises(WatersmeetError) as caught:
        watersmeet.plan_job(watersmeet.parse_job(job.replace(*change, 1)))
    assert words in str(caught.value)
