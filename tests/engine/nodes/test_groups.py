"""Groups whose rows come and go, by hand: what adds up, what is too great, what is not there."""

from __future__ import annotations

import math
from typing import Any

import pytest

import watersmeet
from tests.support.effort import at_effort
from watersmeet import LocalJob, MemoryStore
from watersmeet.errors import EngineError, StateError

TABLES = """SET output_mode = changelog;
CREATE TABLE a (k STRING, v INT, n BIGINT, p DECIMAL(38,0), x DOUBLE, d INT)
    WITH ('connector' = 'memory', 'diff.column' = 'd');
CREATE TABLE b (k STRING, w STRING, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
"""


class Job:
    def __init__(self, sql: str, partitions: int = 3, settings: str = "") -> None:
        self.settings, self.partitions, self.store = settings, partitions, MemoryStore()
        self.reopen(sql)

    def reopen(self, sql: str) -> None:
        """Another run of the job, of the query as it is now."""
        plan = watersmeet.plan_job(watersmeet.parse_job(self.settings + TABLES + sql))
        self.job = LocalJob(plan, self.store, partitions=self.partitions)

    def tick(self, *a: dict[str, Any], b: tuple[dict[str, Any], ...] = ()) -> list[tuple[Any, ...]]:
        """The rows with their diffs, those that go first; a row comes unless it says otherwise (``d``)."""
        given = {"a": [({"d": 1, **row}, 1) for row in a], "b": [({"d": 1, **row}, 1) for row in b]}
        rows = self.job.tick(given).rows["console"]
        put_out = [tuple(v for name, v in row.items() if name != "_tick") for row in rows]
        return sorted(put_out, key=lambda row: (row[-1], str(row)))


def test_a_group_comes_changes_and_goes() -> None:
    job = Job("SELECT k, count(*) AS n, sum(v) AS s FROM a GROUP BY k")
    assert job.tick({"k": "p", "v": 1}, {"k": None, "v": None}) == [("p", 1, 1, 1), (None, 1, None, 1)]
    assert job.tick({"k": "p", "v": 2}) == [("p", 1, 1, -1), ("p", 2, 3, 1)]
    assert job.tick({"k": "p", "v": 0}, {"k": "p", "v": 0, "d": -1}) == []
    assert job.tick({"k": "p", "v": 1, "d": -1}, {"k": "p", "v": 2, "d": -1}) == [("p", 2, 3, -1)]
    assert job.tick({"k": None, "v": None, "d": -1}, {"k": "p", "v": 5}) == [
        (None, 1, None, -1),
        ("p", 1, 5, 1),
    ]


def test_unchanged_result_is_not_emitted() -> None:
    job = Job("SELECT k, max(v) AS m FROM a GROUP BY k")
    assert job.tick({"k": "p", "v": 5}) == [("p", 5, 1)]
    assert job.tick({"k": "p", "v": 3}, {"k": "p", "v": 5}) == []
    assert job.tick({"k": "p", "v": 5, "d": -1}) == []
    assert job.tick({"k": "p", "v": 5, "d": -1}) == [("p", 5, -1), ("p", 3, 1)]


@pytest.mark.parametrize(
    "partitions", [pytest.param(1, marks=pytest.mark.full), 2, pytest.param(7, marks=pytest.mark.full)]
)
def test_the_aggregate_of_no_rows_is_one_row(partitions: int) -> None:
    job = Job("SELECT count(*) AS c, sum(v) AS s, count(DISTINCT v) AS d, min(k) AS m FROM a", partitions)
    assert job.tick() == [(0, None, 0, None, 1)]
    assert job.tick() == []
    assert job.tick({"k": "p", "v": 1}) == [(0, None, 0, None, -1), (1, 1, 1, "p", 1)]
    assert job.tick({"k": "p", "v": 1, "d": -1}) == [(1, 1, 1, "p", -1), (0, None, 0, None, 1)]
    for _ in range(9):  # merged, it is still there
        assert job.tick() == []
        assert len(job.tick({"k": "p", "v": 1})) == 2
        assert len(job.tick({"k": "p", "v": 1, "d": -1})) == 2


def test_delete_of_a_missing_row_is_reported_and_ignored() -> None:
    job = Job("SELECT k, sum(v) AS s FROM a GROUP BY k")
    assert job.tick({"k": "p", "v": 1}, {"k": "p", "v": 2, "d": -1}) == [("p", 1, 1)]
    account = job.job.driver.manifest.queries["console"].account["a"]
    assert account == {"in": 2, "missing_deletes": 1}


def test_a_sum_that_is_too_great_stops_the_job() -> None:
    job = Job("SELECT k, sum(n) AS s FROM a GROUP BY k")
    job.tick({"k": "p", "n": 2**63 - 1})
    with pytest.raises(EngineError, match="an aggregate failed"):
        job.tick({"k": "p", "n": 1})
    job = Job("SELECT k, sum(n) AS s FROM a GROUP BY k")  # one in between is none
    assert job.tick({"k": "p", "n": 2**63 - 1, "d": 4}, {"k": "p", "n": 2 - 2**63, "d": 4}) == [("p", 4, 1)]
    job = Job("SELECT k, sum(p) AS s FROM a GROUP BY k")
    job.tick({"k": "p", "p": "9" * 38})
    with pytest.raises(EngineError, match="an aggregate failed"):
        job.tick({"k": "p", "p": "1"})


def test_floating_point_sums_leave_no_residue() -> None:
    job = Job("SELECT k, sum(x) AS s, avg(x) AS m FROM a GROUP BY k")
    assert job.tick({"k": "p", "x": 0.1}, {"k": "p", "x": 1e300}) == [("p", 1e300, 5e299, 1)]
    assert job.tick({"k": "p", "x": 1e300, "d": -1}) == [("p", 1e300, 5e299, -1), ("p", 0.1, 0.1, 1)]
    values = [0.1 * n for n in range(1, 30)] + [5e-324, -1.7976931348623157e308]
    job.tick(*({"k": "p", "x": x} for x in values))
    (_, (_, total, mean, _)) = job.tick({"k": "p", "x": 0.0})
    assert total == math.fsum([0.1, *values])
    assert mean == total / 33
    (_, (_, total, mean, _)) = job.tick({"k": "p", "x": float("inf")})
    assert (total, mean) == (math.inf, math.inf)
    (_, (_, total, _, _)) = job.tick({"k": "p", "x": float("-inf")})
    assert math.isnan(total)
    job.tick(*({"k": "p", "x": x, "d": -1} for x in (float("inf"), float("-inf"))))
    (_, (_, total, _, _)) = job.tick(*({"k": "p", "x": x, "d": -1} for x in values))
    assert total == 0.1


def test_emptied_group_retains_no_rows() -> None:
    job = Job("SELECT k, max(v) AS m, sum(x) AS s FROM a GROUP BY k", partitions=1)
    for _ in range(8):
        row = {"k": "p", "v": 1, "x": 0.1}
        job.tick(row)
        job.tick({**row, "d": -1})
    groups = job.job.driver.manifest.queries["console"].nodes[1].arrangements["#1"]
    assert groups.retained == 0
    assert groups.stored <= 4 * 2  # of one tier of runs that is still to be merged


def test_deleted_values_of_the_group_of_all_rows_leave_no_state() -> None:
    job = Job("SELECT min(v) AS m, sum(x) AS s FROM a", partitions=2)
    assert job.tick() == [(None, None, 1)]
    for v in range(0, 40, at_effort(quick=3, full=1)):
        row = {"k": "p", "v": v, "x": 2.0 ** (40 * v - 800)}
        assert job.tick(row) == [(None, None, -1), (v, row["x"], 1)]
        assert job.tick({**row, "d": -1}) == [(v, row["x"], -1), (None, None, 1)]
    groups = job.job.driver.manifest.queries["console"].nodes[1].arrangements["#1"]
    assert groups.retained == 0
    assert groups.stored <= 2 * 4 * 2  # of two tiers of runs that are still to be merged


def test_one_group_that_does_not_fit_is_refused_by_name() -> None:
    job = Job(
        "SELECT k, max(w) AS m FROM b GROUP BY k",
        partitions=1,
        settings="SET max_task_memory = '16 MB';",
    )

    def fill() -> None:
        for first in range(0, 80, 8):
            job.tick(b=tuple({"k": "p", "w": f"{number:08}" * 40_000} for number in range(first, first + 8)))

    with pytest.raises(EngineError, match="the state of one group") as caught:
        fill()
    assert caught.value.code == "task-memory"


def test_many_wide_groups_go_out_in_parts() -> None:
    job = Job(
        "SELECT k, max(w) AS m FROM b GROUP BY k",
        partitions=1,
        settings="SET max_task_memory = '16 MB';",
    )
    for first in range(0, 80, 8):
        wide = tuple({"k": str(number), "w": f"{number:08}" * 40_000} for number in range(first, first + 8))
        assert len(job.tick(b=wide)) == 8
    assert len(job.tick(b=tuple({"k": str(number), "w": "9"} for number in range(80)))) == 160


@pytest.mark.parametrize(
    "sql",
    ["SELECT m, count(*) AS n FROM c GROUP BY m", "SELECT k, count(DISTINCT m) AS n FROM c GROUP BY k"],
)
def test_values_without_an_equality_are_refused_before_the_first_tick(sql: str) -> None:
    table = "CREATE TABLE c (k STRING, m MAP<STRING, INT>, d INT)"
    with pytest.raises(EngineError, match="cannot be compared for equality"):
        Job(f"{table} WITH ('connector' = 'memory', 'diff.column' = 'd'); {sql}")


def test_sums_of_a_changed_query_are_found_by_what_they_sum() -> None:
    """Computed columns are numbered, so the same number may be another column's then."""
    job = Job("SELECT k, sum(p * 2) AS two, sum(p * 3) AS three FROM a GROUP BY k")
    assert job.tick({"k": "p", "p": "1"}) == [("p", "2", "3", 1)]
    job.reopen("SELECT k, sum(p * 3) AS three, sum(p * 2) AS two FROM a GROUP BY k")
    assert job.tick({"k": "p", "p": "10"}) == [("p", "3", "2", -1), ("p", "33", "22", 1)]
    job.reopen("SELECT k, sum(p * 2) AS two FROM a GROUP BY k")
    assert job.tick({"k": "p", "p": "10"}) == [("p", "22", -1), ("p", "42", 1)]
    with pytest.raises(StateError, match="lack"):
        job.reopen("SELECT k, sum(p * 4) AS four FROM a GROUP BY k")
