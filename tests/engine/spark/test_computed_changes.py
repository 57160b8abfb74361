"""Columns that a declaration computes, as primary keys, sequences and what says what becomes of rows: Spark
computes them of the records, before a delete loses its other columns."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from tests.engine.spark.running import until_caught_up
from watersmeet.names import DIFF
from watersmeet.observe.row_accounting import InputAccount
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.spark.sources import kafka
from watersmeet.runtime.spark.sources.changes import add_diff_column, add_key_checks
from watersmeet.runtime.spark.sources.columns import BROKEN

pytestmark = pytest.mark.spark

META = "meta STRUCT<id: STRING, op: STRING, at: BIGINT, n: INT>"
JOB = f"""
SET output_mode = changelog; SET broken_output = broken;
CREATE TABLE c ({META}, name STRING, id AS try_cast(meta.id AS BIGINT), op AS upper(meta.op), at AS meta.at,
        digits AS length(CAST(CAST(name AS INT) AS STRING)), PRIMARY KEY (id) NOT ENFORCED)
    WITH ('connector' = 'file', 'path' = '{{folder}}/c', 'format' = 'json', 'op.column' = 'op',
        'sequence.by' = 'at');
CREATE TABLE d ({META}, amount DECIMAL(10, 2), id AS CAST(meta.id AS BIGINT),
        times AS CASE WHEN amount >= 1.5 THEN 77 ELSE meta.n END)
    WITH ('connector' = 'file', 'path' = '{{folder}}/d', 'format' = 'json', 'diff.column' = 'times');
CREATE TABLE s ({META}, name STRING, id AS CAST(meta.id AS BIGINT), PRIMARY KEY (id) NOT ENFORCED)
    WITH ('connector' = 'file', 'path' = '{{folder}}/s', 'format' = 'json', 'changes' = 'snapshot',
        'refresh' = '1 second');
CREATE TABLE out WITH ('connector' = 'file', 'path' = '{{folder}}/out', 'format' = 'json');
CREATE TABLE whole WITH ('connector' = 'file', 'path' = '{{folder}}/whole', 'format' = 'json');
CREATE TABLE broken WITH ('connector' = 'file', 'path' = '{{folder}}/broken', 'format' = 'json');
INSERT INTO out SELECT c.id, c.digits, d.id AS other, s.name FROM c LEFT JOIN d ON d.id = c.id
    LEFT JOIN s ON s.id = c.id;
INSERT INTO whole SELECT * FROM s;
"""


def record(id: Any, op: str | None = "i", at: int | None = 1, n: int = 1, **more: Any) -> dict[str, Any]:
    return {"meta": {"id": id, "op": op, "at": at, "n": n}, **more}


TICKS: Sequence[tuple[Mapping[str, Sequence[dict[str, Any]]], Mapping[tuple[Any, ...], int]]] = [
    (
        {
            "c": [
                record("1", name="1", at=5),
                record("2", name="22"),
                record("1", name="4444", at=4),
                record("3", name="3"),
                record("3", "d", 2, name="no number"),  # nothing is computed of it but its key
            ],
            "d": [record("1", n=2, amount=1.4949999999999999), record("2"), record("1", n=-1)],
            "s": [record("1", name="a"), record("2", name="b"), record("7", name="c"), record("7")],
        },
        {(1, 1, 1, "a"): 1, (2, 2, 2, "b"): 1},
    ),
    (
        {
            "c": [
                record("1", "u", 6, name="333"),
                record("no", name="1"),
                record("2", "?"),
                record("2", at=None),
                record("3", at=1, name="1"),
            ],
            "d": [record("2", "other", 9, n=-1)],
        },
        {(1, 3, 1, "a"): 1, (2, 2, None, "b"): 1},
    ),
]


def sums(folder: Path, *names: str) -> dict[tuple[Any, ...], int]:
    total: Counter[tuple[Any, ...]] = Counter()
    for file in folder.glob("**/*.json"):
        for row in map(json.loads, file.read_text().splitlines()):
            total[tuple(row.get(name) for name in names)] += row["_diff"]
    return {row: diff for row, diff in total.items() if diff}


def test_records_change_a_table_by_what_is_computed_of_them(spark, tmp_path):
    for tick, (tables, wanted) in enumerate(TICKS):
        for name, rows in tables.items():
            (tmp_path / name).mkdir(exist_ok=True)
            file = tmp_path / name / f"{tick}.json"
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.utime(file, (1_700_000_000 + tick,) * 2)
        running = until_caught_up(spark, JOB.format(folder=tmp_path), tmp_path / "checkpoint")
        assert sums(tmp_path / "out", "id", "digits", "other", "name") == wanted
    counts = running.ticks[-1].queries["out"].account
    accounts = {name: InputAccount.of(name, of, of["retained"]) for name, of in counts.items()}
    assert all(account.adds_up() for account in accounts.values()), accounts
    assert (accounts["c.c"].broken, accounts["c.c"].stale) == (3, 2)
    assert sums(tmp_path / "whole", "id", "name") == {(1, "a"): 1, (2, "b"): 1, (7, "c"): 1}
    broken = "".join(file.read_text() for file in tmp_path.glob("broken/**/*.json"))
    assert all(text in broken for text in ('\\"id\\":\\"no\\"', '\\"op\\":\\"?\\"')), broken


KAFKA = """
SET output_mode = changelog;
CREATE TABLE c (k STRING, row STRUCT<op: STRING, at: BIGINT>, name STRING, id AS CAST(k AS BIGINT),
        op AS row.op, at AS row.at, PRIMARY KEY (id) NOT ENFORCED)
    WITH ('connector' = 'kafka', 'topic' = 't', 'bootstrap.servers' = 'x:1', 'format' = 'json',
    'metadata.k' = 'key', 'op.column' = 'op', 'sequence.by' = 'at');
SELECT * FROM c
"""


UPSERTS = """
SET output_mode = changelog;
CREATE TABLE c (id BIGINT, row STRUCT<at: BIGINT>, at AS row.at * 2, PRIMARY KEY (id) NOT ENFORCED)
    WITH ('connector' = 'kafka', 'topic' = 't', 'bootstrap.servers' = 'x:1', 'format' = 'upsert-json',
    'sequence.by' = 'at');
SELECT * FROM c
"""


def test_a_row_without_a_computed_sequence_is_broken_and_a_delete_is_not(spark):
    (source,) = plan_job(parse_job(UPSERTS)).sources
    rows = [('{"id": 1}', '{"row": {"at": 3}}', 0), ('{"id": 1}', None, 0), ('{"id": 2}', '{"row": {}}', 0)]
    raw = spark.createDataFrame(rows, "key STRING, value STRING, partition INT")
    frame = add_key_checks(kafka._parse_by_format(raw, source, F.expr("CAST(partition AS STRING)")), source)
    parts = [(row["id"], row["row"], row[DIFF], row[BROKEN] is None) for row in frame.collect()]
    assert parts == [(1, (3,), 1, True), (1, None, -1, True), (2, (None,), 1, False)]


def test_a_key_is_computed_of_the_key_of_a_topics_record(spark):
    (source,) = plan_job(parse_job(KAFKA)).sources
    rows = [
        ("1", '{"row": {"op": "I", "at": 1}, "name": "a"}'),
        ("2", '{"row": {"op": "D"}, "name": "b"}'),
        (None, '{"row": {"op": "D"}}'),
        ("3", '{"row": {"op": "I"}}'),
        ("x", "no record"),
    ]
    raw = spark.createDataFrame([(*row, 3) for row in rows], "key STRING, value STRING, partition INT")
    frame = kafka._parse_by_format(raw, source, F.expr("CAST(partition AS STRING)"))
    frame = add_key_checks(add_diff_column(frame, source), source)
    parts = [
        (row["k"], row["row"], row["name"], row[DIFF]) if row[BROKEN] is None else row[BROKEN]
        for row in frame.collect()
    ]
    assert parts == [
        ("1", ("I", 1), "a", 1),
        ("2", ("D", None), None, -1),
        '{"row":{"op":"D"}}',
        '{"k":"3","row":{"op":"I"}}',
        "no record",
    ]
