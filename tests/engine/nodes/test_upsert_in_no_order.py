"""Records of a key that come in no order: what counts depends on the records of a tick alone.

The oracle is a dict: per key the greatest sequence and the row; of a tick's records one per key and sequence.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import watersmeet as ws
from watersmeet import local

TABLE = """
    CREATE TABLE c (id BIGINT, name STRING, n INT, v DOUBLE, op STRING, PRIMARY KEY (id) NOT ENFORCED)
      TYPE Spark OPTIONS ('format' = 'x', 'op.column' = 'op', 'sequence.by' = 'v', 'tombstones' = '99 days');
"""
QUERIES = ("id, name, n, v", "n, v, id, name")
COUNTED = ("in", "deleted", "missing_deletes", "stale", "unmatchable")


def build_job(columns: str) -> Any:
    text = f"{TABLE} CREATE SINK q WITH ('connector' = 'memory'); INSERT INTO q SELECT {columns} FROM c"
    return local.job(text)


def drawn(draw: random.Random) -> dict[str, Any]:
    return {
        "id": draw.choice([1, 2, 3, None] if draw.random() < 0.1 else [1, 2, 3]),
        "name": draw.choice(["a", "b", None]),
        "n": draw.choice([1, 2, None]),
        "v": draw.choice([float(draw.randrange(9)), float("nan"), -0.0, 0.0, None]),
        "op": draw.choice("IID"),
    }


class Oracle:
    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any] | None] = {}
        self.sequences: dict[int, float] = {}
        self.counts: Counter[str] = Counter()

    def tick(self, records: list[dict[str, Any]]) -> None:
        self.counts["in"] += len(records)
        chosen: dict[tuple[float, int], dict[str, Any]] = {}
        for record in records:
            if record["id"] is None or record["v"] is None:
                self.counts["unmatchable"] += 1
                continue
            place = rank(record["v"]), record["id"]
            other = chosen.setdefault(place, record)
            if other is not record:
                self.counts["stale"] += 1
                chosen[place] = max(record, other, key=weight)
        for (sequence, key), record in sorted(chosen.items(), key=lambda item: item[0]):
            if sequence < self.sequences.get(key, -1):
                self.counts["stale"] += 1
                continue
            self.sequences[key] = sequence
            there = self.rows.get(key) is not None
            self.counts["deleted"] += there
            if record["op"] == "D":
                self.counts["deleted" if there else "missing_deletes"] += 1
            self.rows[key] = None if record["op"] == "D" else record

    def held(self) -> Counter[tuple[Any, ...]]:
        rows = (row for row in self.rows.values() if row is not None)
        return Counter((row["id"], row["name"], row["n"], rank(row["v"])) for row in rows)


def rank(sequence: float) -> float:
    return 1e9 if sequence != sequence else sequence + 0.0


def weight(record: dict[str, Any]) -> tuple[Any, ...]:
    """A row before a delete, then by columns as declared, NULL the greatest."""
    return (record["op"] == "I", *((record[name] is None, record[name] or 0) for name in ("name", "n")))


@pytest.mark.parametrize("columns", QUERIES)
def test_order_of_records_in_a_tick_does_not_decide(columns, seed):
    draw, oracle = random.Random(f"{seed} {columns}"), Oracle()
    jobs = [build_job(columns) for _ in range(2)]
    totals: list[Counter[tuple[Any, ...]]] = [Counter(), Counter()]
    for _ in range(40):
        records = [drawn(draw) for _ in range(draw.randrange(12))]
        oracle.tick(records)
        for job, total in zip(jobs, totals, strict=True):
            draw.shuffle(records)
            for record in records:
                job.push("c", record)
            for row in job.tick().table.to_pylist():
                total[row["id"], row["name"], row["n"], rank(row["v"])] += row["_diff"]
            assert {row: n for row, n in total.items() if n} == oracle.held(), f"seed {seed}"
    for job in jobs:
        (account,) = [one for one in account_of(job) if one.get("stale")]
        assert {name: account.get(name, 0) for name in COUNTED} == {
            name: oracle.counts[name] for name in COUNTED
        }, f"seed {seed}"
    assert min(oracle.counts[name] for name in COUNTED) > 0


def account_of(job: Any) -> list[dict[str, int]]:
    return [dict(one) for query in job.driver.manifest.queries.values() for one in query.account.values()]


def test_equal_sequences_of_two_ticks_are_in_the_order_of_ticks():
    job = build_job(QUERIES[0])
    row = {"id": 1, "name": "b", "n": 1, "v": 5.0, "op": "I"}
    job.push("c", row)
    job.tick()
    job.push("c", {**row, "name": "a"})
    assert sorted((r["name"], r["_diff"]) for r in job.tick().table.to_pylist()) == [("a", 1), ("b", -1)]


def test_rows_that_only_come_need_no_operation():
    job = local.job(
        ws.sql(
            TABLE.replace("'op.column' = 'op', ", "")
            + "CREATE SINK q WITH ('connector' = 'memory'); INSERT INTO q SELECT name FROM c",
        ).plan
    )
    for name, v in (("new", 7.0), ("old", 3.0)):
        job.push("c", {"id": 1, "name": name, "n": 1, "v": v, "op": "D"})
    assert [row["name"] for row in job.tick().table.to_pylist()] == ["new"]
