"""Debezium's updates that leave a large value out: the table keeps the value of the row that is there.

The oracle is a dict, a record at a time."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.effort import at_effort
from watersmeet import LocalJob, MemoryStore, parse_job, plan_job
from watersmeet.runtime.operators import tables

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


def format_row(row: dict[str, Any]) -> str:
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
                found.update({format_row(out): out["_diff"]})
            assert +found == Counter(map(format_row, table.values())), f"random-{number}"
            assert -found == Counter()
            account = output.result.queries["out"].account["t.t"]
            assert account.get("broken", 0) == broken, f"random-{number}"
            if draw.random() < 0.3:
                job = job_of(store, more)


def test_each_record_that_nobody_can_fill_is_broken_and_makes_no_other_one_stale() -> None:
    """Of one key: only those that are older than what counts are stale."""
    records = [
        *[({"id": 1, "n": 1, "body": TEXT, "at": 9}, 1), ({"id": 1, "n": 2, "body": "a", "at": 3}, 1)],
        *[({"id": 1, "n": 3, "body": "b", "at": 2}, 1), ({"id": 1, "n": 4, "at": 4}, -1)],
        *[({"id": 1, "n": 5, "body": TEXT, "at": 8}, 1), ({"id": 1, "n": 6, "body": "c", "at": 5}, 1)],
        ({"id": 1, "n": 7, "body": "d", "at": 4}, 1),
    ]
    output = job_of(MemoryStore(), ", 'sequence.by' = 'at'").tick({"t": records})
    assert [(row["n"], row["body"]) for row in output.rows["out"]] == [(6, "c")]
    account = output.result.queries["out"].account["t.t"]
    assert {name: account.get(name, 0) for name in ("broken", "stale", "deleted", "missing_deletes")} == {
        "broken": 2, "stale": 2, "deleted": 2, "missing_deletes": 0,
    }  # fmt: skip


def test_records_of_other_keys_are_judged_twice_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []

    class Counting(tables.KnownValues):
        def __init__(self, records: Any, *more: Any) -> None:
            judged.append(len(records.order))
            super().__init__(records, *more)

    monkeypatch.setattr(tables, "KnownValues", Counting)
    records: list[Any] = [({"id": n, "n": n, "body": "b", "at": n}, 1) for n in range(2, 1_000)]
    for at in range(100, 0, -2):  # each is unknown once the one before does not count
        records += [({"id": 1, "n": at, "body": TEXT, "at": at}, 1), ({"id": 1, "n": at, "at": 1}, -1)]
    output = job_of(MemoryStore(), ", 'sequence.by' = 'at'").tick({"t": records})
    account = output.result.queries["out"].account["t.t"]
    assert (account["broken"], account.get("stale", 0)) == (50, 0)
    assert len(judged) > 20
    assert sum(judged) < 2 * 1_100 + len(judged) * 100


@pytest.mark.parametrize("texts", [["a", TEXT], ["a", TEXT, TEXT], ["A", "a", TEXT]])
def test_of_equal_sequences_in_no_order_a_value_is_that_of_the_last_that_has_it(texts: list[str]) -> None:
    """None is lost: an update that leaves a value out has it from the row with its own sequence."""
    n = len(texts)
    zeros = np.zeros(n, dtype=np.int64)
    batch = pa.RecordBatch.from_pydict({"body": texts, "at": [5] * n})
    records = tables._Records(batch, np.arange(n), zeros, np.array([0]), zeros > 0, zeros)
    before = tables._KeyState(np.array([-1]), np.array([0]), np.array([False]))
    sequences = tables._build_sequences("at", SimpleNamespace(old=[]), records, before)  # type: ignore[arg-type]
    shape: Any = SimpleNamespace(in_order=False, placeholders=[("body", [TEXT])])
    applies, filled = tables._judge_records(shape, records, sequences, before)
    last_text = max(place for place, text in enumerate(texts) if text != TEXT)
    assert applies.tolist() == [place >= last_text for place in range(n)]
    assert not filled.unknown.any()
    last = np.array([n - 1])
    rows = filled.rows(last, batch.slice(n - 1), lambda column, keys: [])
    assert rows.column("body").to_pylist() == [texts[last_text]]
