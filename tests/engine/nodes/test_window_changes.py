"""Windows over streams of changes, by hand: what goes out, what is late, what is kept and for how long."""

from __future__ import annotations

from typing import Any

import pytest

import watersmeet
from tests.support.effort import at_effort
from watersmeet import LocalJob, MemoryStore
from watersmeet.errors import EngineError, PlanError, StateError
from watersmeet.spec.model import OutputMode

TABLES = """SET output_mode = changelog;
CREATE TABLE s (t BIGINT, k STRING, v INT, d INT, WATERMARK FOR t AS t - 5)
    WITH ('connector' = 'memory', 'diff.column' = 'd');
CREATE TABLE o (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE p (t TIMESTAMP, k STRING, d INT, WATERMARK FOR t AS t - INTERVAL '1' HOUR)
    WITH ('connector' = 'memory', 'diff.column' = 'd');
"""
MOST = 2**63 - 1


class Job:
    def __init__(self, sql: str, partitions: int = 3, settings: str = "") -> None:
        self.settings, self.partitions, self.store = settings, partitions, MemoryStore()
        self.reopen(sql)

    def reopen(self, sql: str, partitions: int | None = None) -> None:
        plan = watersmeet.plan_job(watersmeet.parse_job(self.settings + TABLES + sql))
        self.job = LocalJob(plan, self.store, partitions=partitions or self.partitions)

    def tick(self, *rows: tuple[Any, ...], stream: str = "s") -> list[tuple[Any, ...]]:
        """The rows with their diffs, those that go first; final ones in order. ``rows``: t, k, v, and diff
        where it is not 1."""
        names = {"s": "tkvd", "o": "tk", "p": "tkd"}[stream]
        given = [({"d": 1, **dict(zip(names, row, strict=False))}, 1) for row in rows]
        if stream == "o":
            given = [({name: row[name] for name in names}, diff) for row, diff in given]
        self.told = self.job.tick({stream: given})
        found = [tuple(v for n, v in row.items() if n != "_tick") for row in self.told.rows["console"]]
        is_final = self.job.plan.queries[0].options.mode is OutputMode.APPEND
        return sorted(found, key=lambda row: (0 if is_final else row[-1], str(row)))

    @property
    def kept(self) -> dict[str, int]:
        """Rows in state, per side."""
        nodes = self.job.driver.manifest.queries["console"].nodes
        return {name: own.retained for node in nodes for name, own in node.arrangements.items()}

    @property
    def account(self) -> dict[str, dict[str, int]]:
        return self.job.driver.manifest.queries["console"].account


def windows(calls: str, kind: str = "TUMBLE", sizes: str = "10", table: str = "s", keys: str = ", k") -> str:
    table = f"TABLE({kind}(TABLE {table}, DESCRIPTOR(t), {sizes}))"
    return f"SELECT window_start{keys}, {calls} FROM {table} GROUP BY window_start, window_end{keys}"


def test_a_window_comes_changes_and_closes() -> None:
    job = Job(windows("count(*) AS n, sum(v) AS s"))
    assert job.tick((1, "a", 5), (2, "a", 6), (3, "b", 1)) == [(0, "a", 2, 11, 1), (0, "b", 1, 1, 1)]
    assert job.tick((2, "a", 6, -1), (12, "a", 1)) == [
        (0, "a", 2, 11, -1),
        (0, "a", 1, 5, 1),
        (10, "a", 1, 1, 1),
    ]
    assert job.tick((8, "b", 1, 1), (8, "b", 1, -1)) == []
    assert job.tick((16, "a", 9)) == [(10, "a", 1, 1, -1), (10, "a", 2, 10, 1)]  # W = 11
    assert job.told.late == []
    assert job.tick((9, "b", 1), (1, "a", 5, -1)) == []
    assert [row["t"] for _, row in job.told.late] == [9, 1]
    assert job.tick((12, "a", 1, -1), (16, "a", 9, -1)) == [(10, "a", 2, 10, -1)]


def test_the_tick_that_closes_a_window_still_changes_it() -> None:
    job = Job(windows("count(*) AS n"))
    job.tick((1, "a"))
    assert job.tick((2, "a"), (99, "a")) == [(0, "a", 1, -1), (0, "a", 2, 1), (90, "a", 1, 1)]
    assert job.kept == {"s": 1, "#1": 1}


def test_min_and_max_are_exact_after_deletes() -> None:
    job = Job(windows("min(v) AS a, max(v) AS b, count(DISTINCT v) AS c", keys=""))
    assert job.tick((1, "a", 5), (2, "b", 7), (2, "c", 7), (3, "d", 1)) == [(0, 1, 7, 3, 1)]
    assert job.tick((3, "d", 1, -1), (2, "b", 7, -1)) == [(0, 1, 7, 3, -1), (0, 5, 7, 2, 1)]
    assert job.tick((2, "c", 7, -1)) == [(0, 5, 7, 2, -1), (0, 5, 5, 1, 1)]
    assert job.tick((1, "a", 5, -1)) == [(0, 5, 5, 1, -1)]


def test_each_row_is_in_all_its_windows_of_a_hop() -> None:
    job = Job(windows("count(*) AS n", "HOP", "6, 9"))
    assert job.tick((1, "a")) == [(-6, "a", 1, 1), (0, "a", 1, 1)]
    assert job.tick((7, "a")) == [(0, "a", 1, -1), (0, "a", 2, 1), (6, "a", 1, 1)]
    assert job.tick((9, "a"), (7, "a", None, -1)) == [(0, "a", 2, -1), (0, "a", 1, 1)]
    assert job.kept["#1"] == 2  # each row once
    assert job.account["#1"] == {"in": 4, "deleted": 2}


@pytest.mark.parametrize(
    "partitions", [pytest.param(1, marks=pytest.mark.full), 2, pytest.param(7, marks=pytest.mark.full)]
)
def test_closed_windows_leave_no_state(partitions: int) -> None:
    job = Job(windows("count(*) AS n, max(v) AS m"), partitions)
    for t in range(0, at_effort(quick=60, full=120), 4):
        job.tick((t, "a", t), (t + 1, "b", None), (t + 1, "c", 7, 2))
        job.tick((t + 1, "b", None, -1))
    assert job.kept["s"] <= 3 * 3
    assert job.kept["#1"] <= 3 * 8
    stored = job.job.driver.manifest.queries["console"].nodes[1].arrangements["#1"].stored
    assert stored <= 4 * 4 * 8
    account = {alias: dict(counts) for alias, counts in job.account.items()}
    assert account["s"].pop("in") == sum(account["s"].values()) + job.kept["s"]
    assert account["#1"].pop("in") == sum(account["#1"].values()) + job.kept["#1"]
    assert not job.job.tick({}, end=True).rows["console"]
    assert job.kept == {"s": 0, "#1": 0}


def test_delete_of_a_missing_row_is_reported_and_ignored() -> None:
    job = Job(windows("count(*) AS n"))
    assert job.tick((1, "a", 5), (2, "a", 6, -1)) == [(0, "a", 1, 1)]
    assert job.account["s"] == {"in": 2, "missing_deletes": 1}
    assert job.told.result.queries["console"].missing_deletes


def test_a_row_without_a_time_is_in_no_window() -> None:
    job = Job(windows("count(*) AS n"))
    assert job.tick((None, "a", 5), (1, "a", 5)) == [(0, "a", 1, 1)]
    assert job.account["s"]["null_time"] == 1


def test_rows_that_only_come_change_windows_too() -> None:
    job = Job(windows("count(*) AS n", table="o"))
    assert job.tick((1, "a"), stream="o") == [(0, "a", 1, 1)]
    assert job.tick((2, "a"), (11, "a"), stream="o") == [(0, "a", 1, -1), (0, "a", 2, 1), (10, "a", 1, 1)]
    assert job.kept == {"o": 3}


def test_times_at_the_ends_of_int64() -> None:
    job = Job(windows("count(*) AS n", "HOP", "4, 6"))
    found = job.tick((-MOST - 1, "a"), (-MOST, "a"), (3, "a"))
    assert sum(number * diff for _, _, number, diff in found) == 5  # two of them begin at the least time
    job = Job(windows("count(*) AS n"))
    assert job.tick((MOST, "a"), (3, "a")) == [(0, "a", 1, 1), (MOST // 10 * 10, "a", 1, 1)]
    assert job.tick((MOST, "a", None, -1)) == [(MOST // 10 * 10, "a", 1, -1)]


def test_windows_of_timestamps() -> None:
    size = "INTERVAL '1' DAY"
    job = Job(windows("count(*) AS n", sizes=size, table="p"))
    assert job.tick(("0001-01-02T10:00:00", "a"), ("0001-01-02T11:00:00", "a", 2), stream="p") == [
        ("0001-01-02T00:00:00", "a", 3, 1)
    ]
    assert job.tick(("0001-01-02T11:00:00", "a", -2), stream="p") == [
        ("0001-01-02T00:00:00", "a", 3, -1),
        ("0001-01-02T00:00:00", "a", 1, 1),
    ]


def test_it_goes_on_in_another_number_of_tasks() -> None:
    sql = windows("count(*) AS n, sum(v) AS s, min(v) AS m")
    job = Job(sql, 1)
    job.tick(*((t, k, t) for t in range(12) for k in "abcdefg"))
    job.reopen(sql, 5)
    found = job.tick(*((t, k, t, -1) for t in range(10, 12) for k in "abcdefg"))
    assert found == [(10, k, 2, 21, 10, -1) for k in "abcdefg"]
    with pytest.raises(StateError):
        job.reopen(windows("count(*) AS n", sizes="20"))


def test_a_stream_of_changes_alone() -> None:
    job = Job("SELECT k, v FROM s")
    assert job.tick((1, "a", 1), (2, "b", 2, 2)) == [("a", 1, 1), ("b", 2, 2)]
    assert job.tick((2, "b", 2, -1), (3, "c", 3, -1), (6, "d", 4)) == [("b", 2, -1), ("d", 4, 1)]
    assert job.kept == {"s": 3}
    assert job.tick((30, "e", 5)) == [("e", 5, 1)]
    assert job.kept == {"s": 1}
    assert job.tick((6, "d", 4, -1)) == []
    account = dict(job.account["s"])
    assert account == {"in": 8, "deleted": 2, "missing_deletes": 1, "released": 3, "late": 1}


def test_what_is_not_summed_is_refused() -> None:
    with pytest.raises(PlanError, match="is not supported yet"):
        Job(windows("stddev(v) AS n"))
    with pytest.raises(PlanError, match="no result is final") as caught:
        Job("SELECT k FROM s EMIT FINAL")
    assert "windows, whose results are final when they close" in str(caught.value)
    with pytest.raises(PlanError, match="is not supported yet"):
        Job(windows("stddev(v) AS n") + " EMIT FINAL")
    join = "SELECT o.t, o.k FROM o LEFT JOIN s ON s.k = o.k AND s.t BETWEEN o.t AND o.t + 1"
    with pytest.raises(PlanError, match='"s" is a stream with retractions in a UNION ALL'):
        Job(f"SELECT u.k FROM (SELECT t, k FROM s UNION ALL {join}) u")


def test_final_rows_go_out_once_when_a_window_closes() -> None:
    job = Job(windows("count(*) AS n, sum(v) AS s, min(v) AS m, count(DISTINCT v) AS c") + " EMIT FINAL")
    assert job.tick((1, "a", 5), (2, "a", 6), (3, "b", 1), (4, None, None)) == []
    assert job.tick((1, "a", 5, -1), (3, "b", 1, -1), (14, "c", 1)) == []  # W = 9: open still
    assert job.tick((9, "a", 4), (15, "c", 2)) == [(0, "a", 2, 10, 4, 2), (0, None, 1, None, None, 0)]
    assert job.told.result.queries["console"].output_watermarks == {"window_start": 0, "window_end": 10}
    assert job.tick((2, "a", 6, -1), (9, "b", 1)) == []
    assert [row["t"] for _, row in job.told.late] == [2, 9]
    assert job.tick((14, "c", 1, -1), (99, "z", 1)) == [(10, "c", 1, 2, 2, 1)]
    assert job.kept == {"s": 1, "#1": 1}


def test_a_window_that_comes_in_the_tick_that_closes_it_goes_out() -> None:
    job = Job(windows("count(*) AS n", "HOP", "3, 9") + " EMIT FINAL")
    assert job.tick((1, "a"), (10, "a"), (11, "a", None, 2), (30, "b")) == [
        (-3, "a", 1), (-6, "a", 1), (0, "a", 1), (3, "a", 3), (6, "a", 3), (9, "a", 3)
    ]  # fmt: skip
    assert job.tick((40, "b")) == [(24, "b", 1)]
    assert job.tick() == []
    assert [row["window_start"] for row in job.job.tick({}, end=True).rows["console"]] == [27, 30, 33, 36, 39]


def test_final_rows_of_one_group_whatever_its_windows() -> None:
    job = Job(windows("max(v) AS m", keys="") + " HAVING max(v) > 2 EMIT FINAL")
    assert job.tick((1, "a", 2), (11, "b", 3), (21, "c", 4, 2), (36, "d", 9)) == [(10, 3), (20, 4)]


def test_final_rows_of_times_at_the_ends_of_int64() -> None:
    job = Job(windows("count(*) AS n", "HOP", "4, 6") + " EMIT FINAL")
    assert job.tick((-MOST - 1, "a"), (-MOST, "a"), (MOST, "a")) == [
        (-MOST - 1, "a", 2),
        (-MOST - 1, "a", 2),
    ]
    rows = job.job.tick({}, end=True).rows["console"]
    assert all(row["n"] == 1 and row["window_start"] > MOST - 8 for row in rows)
    assert rows


def test_final_query_and_changelog_query_share_a_stream() -> None:
    select = windows("count(*) AS n")
    job = Job(
        "CREATE TABLE x WITH ('connector' = 'memory'); CREATE TABLE y WITH ('connector' = 'memory');"
        f" INSERT INTO x {select} EMIT FINAL; INSERT INTO y {select}"
    )
    told = []
    for t, diff in ((1, 1), (2, 2), (2, -1), (30, 1)):
        rows = job.job.tick({"s": [({"t": t, "k": "a", "v": 1, "d": diff}, 1)]}).rows
        told.append(
            tuple([tuple(v for c, v in row.items() if c != "_tick") for row in rows[n]] for n in "xy")
        )
    assert told[:3] == [
        ([], [(0, "a", 1, 1)]),
        ([], [(0, "a", 1, -1), (0, "a", 3, 1)]),
        ([], [(0, "a", 3, -1), (0, "a", 2, 1)]),
    ]
    assert told[3] == ([(0, "a", 2)], [(30, "a", 1, 1)])


def test_final_rows_are_joined_and_windowed_again_as_rows_that_only_come() -> None:
    inner = "SELECT window_start, window_end, k, count(*) AS n FROM"
    grouped = "GROUP BY window_start, window_end, k"
    small = f"({inner} TABLE(TUMBLE(TABLE s, DESCRIPTOR(t), 10)) {grouped})"
    large = (
        f"SELECT window_start, sum(n) AS s, stddev(n) AS d FROM TABLE(TUMBLE({small}, DESCRIPTOR(window_end),"
        " 20)) GROUP BY window_start, window_end EMIT FINAL"
    )
    job = Job(large)
    assert [type(node).__name__ for node in job.job.plan.queries[0].nodes] == [
        "TablePlan",
        "WindowGroupPlan",
        "AggregatePlan",
    ]
    assert [node.changes for node in job.job.plan.queries[0].nodes] == [True, True, False]
    job.tick((1, "a", 5), (2, "a", 6), (11, "b", 6), (2, "a", 6, -1))
    assert job.tick((46, "b")) == [(0, 1, None), (20, 1, None)]
    joined = (
        f"SELECT x.k, x.n, y.k AS other FROM {small} x LEFT JOIN {small} y ON y.k > x.k AND y.window_end ="
        " x.window_end EMIT FINAL"
    )
    job = Job(joined)
    job.tick((1, "a"), (2, "b"), (3, "c"), (3, "c", None, -1))
    assert job.tick((40, "b")) == [("a", 1, "b"), ("b", 1, None)]


def test_final_windows_aggregate_joins_of_changing_streams_and_tables() -> None:
    tables = "CREATE TABLE c (k STRING, x INT, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');"
    job = Job(
        f"{tables} SELECT window_start, count(*) AS n, sum(x) AS x FROM TABLE(TUMBLE((SELECT s.t, c.x FROM s"
        " JOIN o ON o.k = s.k AND o.t BETWEEN s.t AND s.t + 3 JOIN c ON c.k = s.k), DESCRIPTOR(t), 10))"
        " GROUP BY window_start, window_end EMIT FINAL"
    )

    def tick(s: Any = (), o: Any = (), c: Any = ()) -> list[tuple[Any, ...]]:
        given = {"s": [(dict(zip("tkvd", row, strict=True)), 1) for row in s]}
        given["o"] = [(dict(zip("tk", row, strict=True)), 1) for row in o]
        given["c"] = [(dict(zip("kxd", row, strict=True)), 1) for row in c]
        return [tuple(row.values()) for row in job.job.tick(given).rows["console"]]

    assert tick(s=[(1, "a", 0, 1), (2, "b", 0, 1)], o=[(2, "a"), (3, "a"), (2, "b")], c=[("a", 7, 1)]) == []
    assert tick(s=[(2, "b", 0, -1)], c=[("a", 7, -1), ("a", 8, 1)]) == []
    assert tick(s=[(30, "z", 0, 1)], o=[(30, "z")]) == [(0, 2, 16)]


def test_final_rows_over_a_union_of_joins_of_changes() -> None:
    join = "SELECT s.t, s.k FROM s JOIN o ON o.k = s.k AND o.t BETWEEN s.t AND s.t + 3"
    both = f"({join} UNION ALL {join} AND s.v > 1)"
    sql = windows("count(*) AS n", table="s").replace("TABLE s", both) + " EMIT FINAL"
    job = Job(sql)
    assert all(node.changes for node in job.job.plan.queries[0].nodes)

    def tick(s: Any, o: Any) -> list[tuple[Any, ...]]:
        given = {"s": [(dict(zip("tkvd", row, strict=True)), 1) for row in s]}
        given["o"] = [(dict(zip("tk", row, strict=True)), 1) for row in o]
        return sorted(tuple(row.values()) for row in job.job.tick(given).rows["console"])

    rows = [(1, "a", 1, 1), (2, "a", 2, 2), (3, "b", 2, 1)]
    assert tick(rows, [(2, "a"), (3, "a"), (3, "b")]) == []
    assert tick([(2, "a", 2, -1), (3, "b", 2, -1)], []) == []
    job.reopen(sql, 1)
    assert tick([(40, "z", 1, 1)], [(40, "z")]) == [(0, "a", 6)]


def test_final_rows_go_on_in_another_number_of_tasks_but_not_as_changes() -> None:
    sql = windows("count(*) AS n, sum(v) AS s, min(v) AS m")
    job = Job(sql + " EMIT FINAL", 1)
    job.tick(*((t, k, t) for t in range(12) for k in "abcdefg"))
    with pytest.raises(StateError):
        job.reopen(sql)
    job.reopen(sql + " EMIT FINAL", 5)
    found = job.tick((10, "a", 10, -1), *((t, k, t, -1) for t in range(7, 9) for k in "abcdefg"), (15, "z"))
    assert found == [(0, k, 8, 30, 0) for k in "abcdefg"]


def test_a_sum_that_is_too_great_stops_the_job() -> None:
    job = Job(windows("sum(v * 4611686018427387904) AS s"))
    job.tick((1, "a", 1))
    with pytest.raises(EngineError, match="an aggregate failed"):
        job.tick((2, "a", 1))


def check_one_group_does_not_fit(sql: str, says: str) -> None:
    """Windows of a stream ``w`` of wide texts ``k`` stop the job."""
    table = "CREATE TABLE w (t BIGINT, k STRING, d INT, WATERMARK FOR t AS t - 999)"
    table += " WITH ('connector' = 'memory', 'diff.column' = 'd');"
    job = Job(table + sql, 1, "SET max_task_memory = '16 MB';")

    def fill() -> None:
        for first in range(0, 80, 8):
            rows = ({"t": n, "k": f"{n:08}" * 40_000, "d": 1} for n in range(first, first + 8))
            job.job.tick({"w": [(row, 1) for row in rows]})
        job.job.tick({}, end=True)

    with pytest.raises(EngineError, match=says) as caught:
        fill()
    assert caught.value.code == "task-memory"


@pytest.mark.parametrize("emit", [pytest.param("", marks=pytest.mark.full), " EMIT FINAL"])
def test_windows_of_one_group_that_do_not_fit_are_refused_by_name(emit: str) -> None:
    sql = windows("max(k) AS m", sizes="100", table="w", keys="") + emit
    check_one_group_does_not_fit(sql, "the state of the open windows of one group")
