"""Debezium's updates that leave a large value out: the table keeps the value of the row that is there.

The oracle is a dict, a record at a time."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.support.effort import at_effort
from watersmeet import LocalJob, MemoryStore, parse_job, plan_job

TEXT = "__debezium_unavailable_value"
LEFT_OUT: dict[str, Any] = {"body": TEXT, "raw": TEXT.encode(), "tags": [TEXT], "marks": [*TEXT.encode()]}
JOB = """
CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED, n INT, body STRING, raw BINARY, tags ARRAY<STRING>,
    marks ARRAY<BIGINT>, other STRING, at INT) WITH ('connector' = 'kafka', 'bootstrap.servers' = 'x:1',
    'topic' = 't', 'format' = 'debezium-json'{more});
CREATE TABLE out WITH ('connector' = 'file', 'path' = 'out', 'format' = 'json');
INSERT INTO out SELECT {columns} FROM t EMIT CHANGES;
"""
SHOWN = ("id", "n", *LEFT_OUT, "at")


def job_of(store: MemoryStore, more: str = "", columns: str = ", ".join(SHOWN)) -> LocalJob:
    return LocalJob(plan_job(parse_job(JOB.format(more=more, columns=columns))), store)


def shown(row: dict[str, Any]) -> str:
    return repr([row.get(name) for name in SHOWN])


def test_an_update_without_a_value_keeps_the_one_that_is_there() -> None:
    job = job_of(MemoryStore(), columns="id, n, length(body) AS size, body")
    first = {"id": 1, "n": 1, "body": "large"}
    job.tick({"t": [(first, 1)]})
    rows = job.tick({"t": [({"id": 1, "n": 2, "body": TEXT}, 1)]}).rows["out"]
    assert [(row["n"], row["size"], row["body"], row["_diff"]) for row in rows] == [
        (1, 5, "large", -1),
        (2, 5, "large", 1),
    ]


def test_an_update_of_a_row_that_nobody_has_is_broken() -> None:
    job = job_of(MemoryStore())
    output = job.tick({"t": [({"id": 1, "n": 1, "body": TEXT}, 1), ({"id": 2, "n": 1, "body": "b"}, 1)]})
    assert [row["id"] for row in output.rows["out"]] == [2]
    account = output.result.queries["out"].account["t.t"]
    assert account["broken"] == 1
    # what is not needed need not be there
    job = job_of(MemoryStore(), columns="id, n")
    assert [row["n"] for row in job.tick({"t": [({"id": 1, "n": 7, "body": TEXT}, 1)]}).rows["out"]] == [7]


@pytest.mark.parametrize("more", ["", ", 'sequence.by' = 'at'"])
def test_values_are_those_of_the_record_before(seed: int, more: str) -> None:
    for number in range(seed, seed + at_effort(quick=3, full=60)):
        draw = random.Random(number)
        table: dict[int, dict[str, Any]] = {}
        greatest: dict[int, int] = {}
        store, found, broken = MemoryStore(), Counter[str](), 0
        job, clock = job_of(store, more), 0
        for _ in range(8):
            records = []
            for _ in range(draw.randrange(9)):
                clock += 1
                row: dict[str, Any] = {"id": draw.randrange(4), "n": clock, "other": "x"}
                row["at"] = clock - draw.choice([0, 0, 0, 6])
                row |= {"body": f"b{clock}", "raw": b"%d" % clock, "tags": [f"t{clock}"], "marks": [clock]}
                row |= {name: value for name, value in LEFT_OUT.items() if draw.random() < 0.4}
                diff = -1 if draw.random() < 0.25 else 1
                records.append((row, diff))
                key = row["id"]
                if more and row["at"] < greatest.get(key, row["at"]):
                    continue
                if diff < 0:
                    table.pop(key, None)
                    greatest[key] = row["at"]
                    continue
                before = table.get(key)
                whole = dict(row)
                for name, value in LEFT_OUT.items():
                    if row[name] == value:
                        whole[name] = None if before is None else before[name]
                if before is None and any(row[name] == value for name, value in LEFT_OUT.items()):
                    broken += 1
                else:
                    table[key], greatest[key] = whole, row["at"]
            job.partitions = draw.choice([1, 2, 3])
            output = job.tick({"t": records})
            for out in output.rows["out"]:
                found.update({shown(out): out["_diff"]})
            assert +found == Counter(map(shown, table.values())), f"random-{number}"
            assert -found == Counter()
            account = output.result.queries["out"].account["t.t"]
            assert account.get("broken", 0) == broken, f"random-{number}"
            if draw.random() < 0.3:
                job = job_of(store, more)
