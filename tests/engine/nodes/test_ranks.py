"""The first rows of partitions, by hand: order, ties, numbers, what stays, what is too much."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

import watersmeet
from watersmeet import LocalJob, MemoryStore
from watersmeet.errors import EngineError, StateError
from watersmeet.runtime.operators import groups

TABLES = """SET output_mode = changelog;
CREATE TABLE a (k STRING, v INT, x DOUBLE, s STRING, d INT)
    WITH ('connector' = 'memory', 'diff.column' = 'd');
"""


class Job:
    def __init__(self, sql: str, partitions: int = 3, settings: str = "") -> None:
        self.settings, self.partitions, self.store = settings, partitions, MemoryStore()
        self.reopen(sql)

    def reopen(self, sql: str) -> None:
        plan = watersmeet.plan_job(watersmeet.parse_job(self.settings + TABLES + sql))
        self.job = LocalJob(plan, self.store, partitions=self.partitions)

    def tick(self, *rows: dict[str, Any]) -> list[tuple[Any, ...]]:
        """The rows with their diffs, those that go first; a row comes unless it says otherwise (``d``)."""
        put_out = self.job.tick({"a": [({"d": 1, **row}, 1) for row in rows]}).rows["console"]
        found = [tuple(v for name, v in row.items() if name != "_tick") for row in put_out]
        return sorted(found, key=lambda row: (row[-1], str(row)))


def first(order: str, most: int, listed: str = "k, v", by: str = "PARTITION BY k") -> str:
    number = f"ROW_NUMBER() OVER ({by} ORDER BY {order}) AS rn"
    return f"SELECT {listed} FROM (SELECT k, v, {number} FROM a) r WHERE rn <= {most}"


def test_rows_come_up_and_go_down() -> None:
    job = Job(first("v DESC", 2))
    assert job.tick({"k": "p", "v": 1}) == [("p", 1, 1)]
    assert job.tick({"k": "p", "v": 3}, {"k": "q", "v": 7}) == [("p", 3, 1), ("q", 7, 1)]
    assert job.tick({"k": "p", "v": 2}) == [("p", 1, -1), ("p", 2, 1)]
    assert job.tick({"k": "p", "v": 0}) == []
    assert job.tick({"k": "p", "v": 3, "d": -1}) == [("p", 3, -1), ("p", 1, 1)]
    assert job.tick({"k": "p", "v": 2, "d": -1}, {"k": "p", "v": 1, "d": -1}) == [
        ("p", 1, -1),
        ("p", 2, -1),
        ("p", 0, 1),
    ]
    assert job.tick({"k": "p", "v": 0, "d": -1}, {"k": "q", "v": 7, "d": -1}) == [("p", 0, -1), ("q", 7, -1)]


def test_new_row_changes_the_ranks_of_the_rows_after_it() -> None:
    job = Job(first("v", 3, "v, rn", by=""))
    assert job.tick({"v": 5}, {"v": 6}) == [(5, 1, 1), (6, 2, 1)]
    assert job.tick({"v": 4}) == [(5, 1, -1), (6, 2, -1), (4, 1, 1), (5, 2, 1), (6, 3, 1)]
    assert job.tick({"v": 7}) == []
    assert job.tick({"v": 5, "d": -1}) == [(5, 2, -1), (6, 3, -1), (6, 2, 1), (7, 3, 1)]


def test_equal_rows_take_a_number_each() -> None:
    job = Job(first("v", 3, "v, rn", by=""))
    assert job.tick({"v": 5, "d": 2}) == [(5, 1, 1), (5, 2, 1)]
    assert job.tick({"v": 5, "d": 7}) == [(5, 3, 1)]
    assert job.tick({"v": 5, "d": -7}, {"v": 1}) == [(5, 1, -1), (1, 1, 1)]
    job = Job(first("v", 3, by=""))
    assert job.tick({"v": 5, "d": 9}) == [(None, 5, 3)]
    assert job.tick({"v": 5, "d": -7}) == [(None, 5, -1)]


def test_many_equal_rows_are_one() -> None:
    job = Job(first("v", 2_000_000_000, by=""))
    assert job.tick({"v": 5, "d": 3_000_000}, {"v": 4}) == [(None, 4, 1), (None, 5, 3_000_000)]


def test_many_numbers_are_emitted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "CHUNK_ROWS", 2_000)
    job = Job(first("v", 5_000, "v, rn", by=""))
    found = job.tick({"v": 5, "d": 4_500}, {"v": 4})
    assert len(found) == 4_501
    assert {row[1] for row in found} == set(range(1, 4_502))
    assert sorted(job.tick({"v": 4, "d": -1})) == [(4, 1, -1), (5, 1, 1), (5, 4_501, -1)]


@pytest.mark.parametrize(
    ("way", "wanted"),
    [
        ("", [None, -math.inf, -1.0, 0.0, 2.0, math.inf, "NaN"]),
        ("NULLS LAST", [-math.inf, -1.0, 0.0, 2.0, math.inf, "NaN", None]),
        ("DESC", ["NaN", math.inf, 2.0, 0.0, -1.0, -math.inf, None]),
        ("DESC NULLS FIRST", [None, "NaN", math.inf, 2.0, 0.0, -1.0, -math.inf]),
    ],
)
def test_the_order_is_sparks(way: str, wanted: list[Any]) -> None:
    """Both zeros are one value, NULLs are less than all, NaN is greater."""
    number = f"ROW_NUMBER() OVER (ORDER BY x {way}) AS rn"
    job = Job(f"SELECT x, rn FROM (SELECT x, {number} FROM a) r WHERE rn <= 9")
    values = [2.0, math.nan, None, -0.0, -1.0, math.inf, -math.inf]
    found = job.tick(*({"x": value} for value in values))
    in_order = [row[0] for row in sorted(found, key=lambda row: row[1])]
    assert ["NaN" if x is not None and x != x else x for x in in_order] == wanted
    zero = wanted.index(0.0) + 1
    assert job.tick({"x": 0.0, "d": -1}, {"x": -0.0}) == []
    assert (0.0, zero, -1) in job.tick({"x": 0.0, "d": -1})


def test_texts_are_ordered_by_their_bytes() -> None:
    number = "ROW_NUMBER() OVER (ORDER BY s) AS rn"
    job = Job(f"SELECT s, rn FROM (SELECT s, {number} FROM a) r WHERE rn <= 9")
    texts = ["é", "z", "Z", "", "\U0001f600", "\uffee", "a\x00", "a"]
    found = job.tick(*({"s": text} for text in texts))
    assert [row[0] for row in sorted(found, key=lambda row: row[1])] == sorted(texts, key=str.encode)


@pytest.mark.parametrize(
    "partitions", [pytest.param(1, marks=pytest.mark.full), 2, pytest.param(7, marks=pytest.mark.full)]
)
def test_ties_are_decided_by_the_other_columns(partitions: int) -> None:
    """Whatever came first, and wherever it lies."""
    rows = [{"k": "p", "v": v, "s": s} for v in (2, 1) for s in ("b", "a", None)]
    for order in (rows, rows[::-1]):
        job = Job(
            "SELECT s, v, rn FROM (SELECT s, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY k) AS rn FROM a) r"
            " WHERE rn <= 3",
            partitions,
        )
        sums: Counter[tuple[Any, ...]] = Counter()
        for row in order:
            for *values, diff in job.tick(row):
                sums[tuple(values)] += diff
        assert +sums == Counter({(None, 1, 1): 1, (None, 2, 2): 1, ("a", 1, 3): 1})


def test_delete_of_a_missing_row_is_reported_and_ignored() -> None:
    job = Job(first("v", 1))
    assert job.tick({"k": "p", "v": 2}, {"k": "p", "v": 1, "d": -1}) == [("p", 2, 1)]
    assert job.job.driver.manifest.queries["console"].account["r.a"] == {"in": 2, "missing_deletes": 1}


def test_what_came_and_went_leaves_nothing() -> None:
    job = Job(first("v", 2), partitions=1)
    for _ in range(8):
        job.tick({"k": "p", "v": 1})
        job.tick({"k": "p", "v": 1, "d": -1})
    kept = job.job.driver.manifest.queries["console"].nodes[1].arrangements["#1"]
    assert kept.retained == 0
    assert kept.stored <= 8


def test_one_partition_that_does_not_fit_is_refused_by_name() -> None:
    number = "ROW_NUMBER() OVER (PARTITION BY k ORDER BY s) AS rn"
    sql = f"SELECT k, s FROM (SELECT k, s, {number} FROM a) r WHERE rn = 1"

    def fill(key: str | None) -> None:
        job = Job(sql, 1, "SET max_task_memory = '16 MB';")
        for start in range(0, 80, 8):
            numbers = range(start, start + 8)
            job.tick(*({"k": key or str(n), "s": f"{n:08}" * 40_000} for n in numbers))

    fill(None)
    with pytest.raises(EngineError, match="the state of one partition") as caught:
        fill("p")
    assert caught.value.code == "task-memory"


def test_another_number_of_rows_is_another_query() -> None:
    job = Job(first("v", 2))
    job.tick({"k": "p", "v": 1})
    with pytest.raises(StateError):
        job.reopen(first("v", 3))
    job.reopen(first("v", 2))
    assert job.tick({"k": "p", "v": 0}, {"k": "p", "v": 0}) == [("p", 1, -1), ("p", 0, 2)]
