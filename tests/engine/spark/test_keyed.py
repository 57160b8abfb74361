"""Tables with a primary key over files on Spark: the order of files, what is broken, Debezium's events in
lines; and cases of them, which Spark plays as this process does."""

from __future__ import annotations

import json
import os
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from pyspark.sql import functions as F

from tests.engine.spark.running import until_caught_up
from watersmeet.names import DIFF
from watersmeet.observe.row_accounting import InputAccount
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local.replay import replay_case as replay_here
from watersmeet.runtime.spark.replay import replay_case as replay_on_spark
from watersmeet.runtime.spark.sources import kafka
from watersmeet.runtime.spark.sources.changes import add_key_checks
from watersmeet.runtime.spark.sources.columns import BROKEN

pytestmark = pytest.mark.spark

JOB = """
SET output_mode = changelog; SET broken_output = broken;
CREATE TABLE c (id BIGINT PRIMARY KEY NOT ENFORCED, name STRING, at TIMESTAMP, op STRING)
    WITH ('connector' = 'file', 'path' = '{folder}/c', 'format' = 'json', 'op.column' = 'op');
CREATE TABLE o (number BIGINT, customer BIGINT, at BIGINT, PRIMARY KEY (number) NOT ENFORCED)
    WITH ('connector' = 'file', 'path' = '{folder}/o', 'format' = 'debezium-json', 'sequence.by' = 'at');
CREATE TABLE out WITH ('connector' = 'file', 'path' = '{folder}/out', 'format' = 'json');
CREATE TABLE broken WITH ('connector' = 'file', 'path' = '{folder}/broken', 'format' = 'json');
INSERT INTO out SELECT o.number, c.name, length(CAST(CAST(c.name AS INT) AS STRING)) AS digits
    FROM o LEFT JOIN c ON c.id = o.customer;
"""


def event(op: str, after: Any = None, before: Any = None) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after}


def order(number: int, customer: int, at: int) -> dict[str, Any]:
    return {"number": number, "customer": customer, "at": at}


TICKS: list[tuple[dict[str, list[list[dict[str, Any]]]], dict[tuple[Any, ...], int]]] = [
    (
        {
            # Spark reads the second file first, for it is larger.
            "c": [
                [{"id": 1, "name": "1", "op": "c"}, {"id": 2, "name": "2", "op": "c"}],
                [
                    *({"id": 100 + n, "name": str(n), "op": "c"} for n in range(50)),
                    {"id": 1, "name": "11", "op": "c"},
                    {"id": 2, "name": "no number", "op": "d"},  # nothing is computed of it
                ],
            ],
            "o": [[event("c", order(7, 1, 1)), event("c", order(8, 2, 1)), event("u", order(7, 2, 0))]],
        },
        {(7, "11", 2): 1, (8, None, None): 1},
    ),
    (
        {
            "c": [
                [{"id": None, "name": "3", "op": "c"}],
                [{"id": 2, "name": "222", "op": "c"}, {"id": 1, "op": "?"}],
            ],
            "o": [[event("d", None, {"number": 7}), event("c", {"number": 9, "customer": 1})]],
        },
        {(8, "222", 3): 1},
    ),
]  # fmt: skip


def sums(folder: Path) -> dict[tuple[Any, ...], int]:
    total: Counter[tuple[Any, ...]] = Counter()
    for file in folder.glob("out/**/*.json"):
        for row in map(json.loads, file.read_text().splitlines()):
            total[row["number"], row.get("name"), row.get("digits")] += row["_diff"]
    return {row: diff for row, diff in total.items() if diff}


def test_files_count_in_their_order(spark, tmp_path):
    clock = 1_700_000_000
    for tick, (files, wanted) in enumerate(TICKS):
        for name, of_table in files.items():
            (tmp_path / name).mkdir(exist_ok=True)
            for number, rows in enumerate(of_table):
                file = tmp_path / name / f"{tick}-{9 - number}.json"
                file.write_text("".join(json.dumps(row) + "\n" for row in rows))
                clock += 1
                os.utime(file, (clock, clock))
        running = until_caught_up(spark, JOB.format(folder=tmp_path), tmp_path / "checkpoint")
        assert sums(tmp_path) == wanted
    counts = running.ticks[-1].queries["out"].account
    told = {name: InputAccount.of(name, of, of["retained"]) for name, of in counts.items()}
    assert all(account.adds_up() for account in told.values()), told
    assert (told["c.c"].broken, told["o.o"].broken, told["o.o"].stale) == (2, 1, 1)
    broken = "".join(file.read_text() for file in tmp_path.glob("broken/**/*.json"))
    assert all(text in broken for text in ('\\"name\\":\\"3\\"', '\\"op\\":\\"?\\"', '\\"number\\":9'))


FILES = """
CREATE TABLE c (id BIGINT PRIMARY KEY NOT ENFORCED, name STRING, s DOUBLE) WITH ('connector' = 'file',
    'path' = '{folder}/c', 'format' = '{format}');
CREATE TABLE out WITH ('connector' = 'file', 'path' = '{folder}/out', 'format' = 'json');
INSERT INTO out SELECT id AS number, name, s AS digits FROM c WHERE id > 0;
"""


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_of_every_format_count_in_their_order(spark, tmp_path, kind):
    (tmp_path / "c").mkdir()
    older = pa.table({"id": [1, 2], "name": ["old", "two"], "s": [0.5, 0.5]})
    newer = pa.table(
        {"id": [*range(-99, 0), 1], "name": [*("pad" for _ in range(99)), "new"], "s": [1.5] * 100}
    )
    for number, rows in enumerate((older, newer)):
        file = tmp_path / "c" / f"{9 - number}.{kind}"
        (csv.write_csv if kind == "csv" else parquet.write_table)(rows, file)
        os.utime(file, (1_700_000_000 + number,) * 2)
    until_caught_up(spark, FILES.format(folder=tmp_path, format=kind), tmp_path / "checkpoint")
    assert sums(tmp_path) == {(1, "new", 1.5): 1, (2, "two", 0.5): 1}


KAFKA = """
SET output_mode = changelog;
CREATE TABLE c (id BIGINT PRIMARY KEY NOT ENFORCED, name STRING, at TIMESTAMP, part INT)
    WITH ('connector' = 'kafka', 'topic' = 't', 'bootstrap.servers' = 'x:1', 'format' = 'upsert-json',
    'sequence.by' = 'at', 'metadata.at' = 'timestamp', 'metadata.part' = 'partition');
SELECT * FROM c
"""
RECORDS = [
    ('{"id": 1, "more": 2}', '{"name": "a", "part": 9}'),
    ('{"id": 1}', None),
    ('{"id": "1"}', None),
    ('{"id": 1.5}', None),
    ("[1]", None),
    ("", None),
    ('{"id": 2}', "null"),
    ('{"id": 2}', ""),
]


def test_what_fills_columns_from_records_orders_deletes_too(spark):
    (source,) = plan_job(parse_job(KAFKA)).sources
    rows = [(key, value, datetime(2024, 7, 1, 10, n), 3) for n, (key, value) in enumerate(RECORDS)]
    raw = spark.createDataFrame(rows, "key STRING, value STRING, timestamp TIMESTAMP, partition INT")
    frame = add_key_checks(kafka._parse_by_format(raw, source, F.expr("CAST(partition AS STRING)")), source)
    found = [
        (row["id"], row["name"], None if row["at"] is None else row["at"].minute, row["part"], row[DIFF])
        if row[BROKEN] is None
        else row[BROKEN]
        for row in frame.collect()
    ]
    assert found == [
        (1, "a", 0, 3, 1),
        (1, None, 1, None, -1),
        '{"id": "1"}',
        '{"id": 1.5}',
        "[1]",
        "",
        "null",
        "",
    ]


DAY = {"id": 1, "day": "2024-07-01"}
CASE = {
    "case": "upserts",
    "query": "SELECT c.name, o.number FROM o FULL JOIN c ON c.id = o.customer AND c.day = o.day",
    "options": {"output_mode": "changelog"},
    "tables": {
        "c": {
            "columns": {"id": "BIGINT", "day": "DATE", "name": "STRING", "at": "TIMESTAMP"},
            "primary_key": ["day", "id"],
            "sequence_by": "at",
            "tombstones": 10,
        },
        "o": {"columns": {"number": "INT", "customer": "BIGINT", "day": "DATE"}, "primary_key": ["number"]},
    },
    "steps": [
        {
            "rows": [
                ["c", {"id": 1, "day": "2024-07-01", "name": "a", "at": "2024-07-01T10:00:00"}],
                ["c", {"id": 1, "day": "2024-07-01", "name": "b", "at": "2024-07-01T11:00:00"}],
                ["c", {"id": 1, "day": "2024-07-01", "name": "late", "at": "2024-07-01T10:30:00"}],
                ["c", {"id": 1, "day": None, "name": "no key", "at": "2024-07-01T10:30:00"}],
                ["c", {"id": 2, "day": "2024-07-01", "name": "no sequence"}],
                ["o", {"number": 7, "customer": 1, "day": "2024-07-01"}],
                ["o", {"number": 8, "customer": 2, "day": "2024-07-01"}],
            ]
        },
        {"rows": [["c", DAY, -1], ["o", {"number": 9}, -1], ["o", {"number": 8}, -1]]},
        {"restart": True},
        {"rows": [["c", {**DAY, "name": "stale", "at": "2024-07-01T10:59:59"}]]},
        {"rescale": 3},
        {"rows": [["c", {**DAY, "name": "c", "at": "2024-07-01T11:00:00"}]], "clock": 11},
        {"rows": [["o", {"number": 7, "customer": 1, "day": "2024-07-02"}]]},
    ],
}  # fmt: skip


def test_a_case_is_played_on_spark_as_here():
    here, there = replay_here(CASE), replay_on_spark(CASE)
    assert [sorted(map(repr, step.pop("rows"))) for step in there] == [
        sorted(map(repr, step.pop("rows"))) for step in here
    ]
    assert there == here
    assert here[1]["missing_deletes"] == [{"stream": "o.o", "row": {"number": 9}}]
