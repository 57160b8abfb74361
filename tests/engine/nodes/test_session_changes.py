"""Sessions over streams of changes, by hand: how they merge, fall apart, shrink and go, when they close, what
is late, what is kept and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.nodes.test_window_changes import MOST, Job, check_one_group_does_not_fit
from tests.engine.nodes.test_window_changes import windows as windows_of
from tests.support.effort import at_effort
from watersmeet.errors import EngineError, StateError
from watersmeet.runtime.coordinator import merge_policy

ENDS = "SELECT window_start, window_end"


def sessions(calls: str, gap: str = "3", table: str = "s", keys: str = ", k") -> str:
    return windows_of(calls, "SESSION", gap, table, keys).replace("SELECT window_start", ENDS)


def test_sessions_merge_and_fall_apart() -> None:
    job = Job(sessions("count(*) AS n, sum(v) AS s"))
    assert job.tick((1, "a", 5), (5, "a", 6), (3, "b", 1)) == [
        (1, 4, "a", 1, 5, 1),
        (3, 6, "b", 1, 1, 1),
        (5, 8, "a", 1, 6, 1),
    ]
    assert job.tick((3, "a", 7)) == [(1, 4, "a", 1, 5, -1), (5, 8, "a", 1, 6, -1), (1, 8, "a", 3, 18, 1)]
    assert job.tick((3, "a", 7, -1)) == [(1, 8, "a", 3, 18, -1), (1, 4, "a", 1, 5, 1), (5, 8, "a", 1, 6, 1)]
    assert job.tick((1, "a", 5, -1)) == [(1, 4, "a", 1, 5, -1)]
    assert job.kept == {"s": 2, "#1": 2}


def test_rows_exactly_the_gap_apart_are_one_session() -> None:
    job = Job(sessions("count(*) AS n"))
    assert job.tick((1, "a"), (4, "a"), (8, "a")) == [(1, 7, "a", 2, 1), (8, 11, "a", 1, 1)]
    assert job.tick((5, "a")) == [(1, 7, "a", 2, -1), (8, 11, "a", 1, -1), (1, 11, "a", 4, 1)]


def test_unchanged_session_is_not_emitted() -> None:
    job = Job(sessions("count(*) AS n, sum(v) AS s, max(v) AS m"))
    job.tick((1, "a", 5), (2, "a", 5), (6, "a", 1))
    assert job.tick((1, "a", 5, -1), (1, "a", 5)) == []
    assert job.tick((2, "a", 5, -1), (2, "a", 4), (1, "a", 5, -1), (1, "a", 6)) == [
        (1, 5, "a", 2, 10, 5, -1),
        (1, 5, "a", 2, 10, 6, 1),
    ]
    job = Job(
        windows_of("max(v) AS m", "SESSION", "3", keys="").replace("SELECT window_start", "SELECT 1 AS x")
    )
    assert job.tick((1, "a", 5)) == [(1, 5, 1)]
    assert job.tick((2, "a", 5)) == []  # a longer session, and the same row
    assert job.tick((6, "a", 5)) == [(1, 5, 1)]
    job = Job(sessions("max(v) AS m"))
    assert job.tick((1, "a", 5)) == [(1, 4, "a", 5, 1)]
    assert job.tick((3, "a", 5)) == [(1, 4, "a", 5, -1), (1, 6, "a", 5, 1)]


def test_a_session_is_final_when_the_watermark_is_beyond_its_end() -> None:
    job = Job(sessions("count(*) AS n"))
    job.tick((1, "a"), (2, "a"))
    assert job.tick((10, "b")) == [(10, 13, "b", 1, 1)]  # W = 5, the session's end: open still
    assert job.kept == {"s": 1, "#1": 3}
    assert job.tick((5, "a")) == [(1, 5, "a", 2, -1), (1, 8, "a", 3, 1)]
    assert job.tick((5, "a", None, -1), (11, "c")) == [
        (1, 8, "a", 3, -1),
        (1, 5, "a", 2, 1),
        (11, 14, "c", 1, 1),
    ]
    assert job.kept["#1"] == 2  # W = 6: it closed in the tick in which it shrank
    assert job.account["#1"] == {"in": 6, "deleted": 2, "grouped": 2}
    assert job.tick((6, "a")) == [(6, 9, "a", 1, 1)]
    assert job.tick((5, "a"), (2, "a", None, -1)) == []
    assert [row["t"] for _, row in job.told.late] == [5, 2]


def test_final_rows_of_parts_of_a_session_that_fell_apart() -> None:
    job = Job(sessions("count(*) AS n, sum(v) AS s, min(v) AS m, count(DISTINCT v) AS c") + " EMIT FINAL")
    assert job.tick((1, "a", 5), (3, "a", 6), (6, "a", 7), (8, "a", 7)) == []
    assert job.tick((10, "b", 1)) == []  # W = 5
    assert job.tick((6, "a", 7, -1), (11, "b", 1)) == []  # W = 6, where the part before ends
    assert job.told.result.queries["console"].output_watermarks == {"window_start": 1, "window_end": 6}
    assert job.tick((8, "a", 7, -1), (9, "a", 2), (12, "b", 1)) == [(1, 6, "a", 2, 11, 5, 2)]
    assert job.tick((9, "a", 2, -1)) == []
    assert job.tick((50, "z", 1)) == [(10, 15, "b", 3, 3, 1, 1)]
    assert job.told.result.queries["console"].output_watermarks == {"window_start": 45, "window_end": 45}
    assert job.kept == {"s": 1, "#1": 1}
    assert job.account["#1"] == {"in": 12, "deleted": 6, "grouped": 5}


def test_one_tick_merges_splits_and_closes() -> None:
    job = Job(sessions("count(*) AS n") + " EMIT FINAL")
    job.tick((20, "a"), (23, "a"), (26, "a"))
    assert job.tick((23, "a", None, -1), (30, "a"), (32, "a"), (60, "z")) == [
        (20, 23, "a", 1),
        (26, 29, "a", 1),
        (30, 35, "a", 2),
    ]
    assert job.tick((56, "a"), (58, "a"), (55, "a", None, -1)) == []
    rows = job.job.tick({}, end=True).rows["console"]
    assert sorted(tuple(row.values()) for row in rows) == [(56, 61, "a", 2), (60, 63, "z", 1)]
    assert job.kept == {"s": 0, "#1": 0}


def test_min_and_max_and_exact_sums_are_exact_after_deletes() -> None:
    calls = "min(v) AS a, max(v) AS b, count(DISTINCT v) AS c, sum(CAST(v AS DOUBLE) / 10) AS f"
    job = Job(sessions(calls, keys=""))
    assert job.tick((1, "a", 1), (2, "b", 2), (2, "c", 2), (4, "d", 3)) == [(1, 7, 1, 3, 3, 0.8, 1)]
    assert job.tick((2, "b", 2, -1), (5, "e", None)) == [(1, 7, 1, 3, 3, 0.8, -1), (1, 8, 1, 3, 3, 0.6, 1)]
    assert job.tick((2, "c", 2, -1)) == [(1, 8, 1, 3, 3, 0.6, -1), (1, 8, 1, 3, 2, 0.4, 1)]
    assert job.tick((4, "d", 3, -1)) == [
        (1, 8, 1, 3, 2, 0.4, -1),
        (1, 4, 1, 1, 1, 0.1, 1),
        (5, 8, None, None, 0, None, 1),
    ]


@pytest.mark.parametrize(
    ("partitions", "emit"),
    [
        (1, " EMIT FINAL"),
        (2, ""),
        pytest.param(1, "", marks=pytest.mark.full),
        pytest.param(2, " EMIT FINAL", marks=pytest.mark.full),
        pytest.param(7, "", marks=pytest.mark.full),
        pytest.param(7, " EMIT FINAL", marks=pytest.mark.full),
    ],
)
def test_closed_sessions_leave_no_state(partitions: int, emit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_policy, "COMBINING_FAN_IN", 2 + partitions % 3)
    job = Job(sessions("count(*) AS n, max(v) AS m") + emit, partitions)
    for t in range(0, at_effort(quick=64, full=120), 8):
        job.tick((t, "a", t), (t + 1, "b", None), (t + 1, "c", 7, 2), (t + 2, "d", 1))
        job.tick((t + 1, "b", None, -1), (t + 2, "c", 7))
        job.tick((t + 2, "c", 7, -1), (t + 2, "d", 1, -1))
    assert job.kept["s"] <= 5
    assert job.kept["#1"] <= 2 * 3
    stored = job.job.driver.manifest.queries["console"].nodes[1].arrangements["#1"].stored
    assert stored <= 2 * 3  # of a and c; nothing of b and d is left behind
    account = {alias: dict(counts) for alias, counts in job.account.items()}
    assert account["s"].pop("in") == sum(account["s"].values()) + job.kept["s"]
    assert account["#1"].pop("in") == sum(account["#1"].values()) + job.kept["#1"]
    rows = job.job.tick({}, end=True).rows["console"]
    assert len(rows) == (2 if emit else 0)
    assert job.kept == {"s": 0, "#1": 0}


def test_the_start_of_open_sessions_holds_the_watermark_back() -> None:
    job = Job(sessions("count(*) AS n"))

    def get_output_watermarks() -> dict[str, Any]:
        return dict(job.told.result.queries["console"].output_watermarks)

    job.tick((1, "a"))
    assert get_output_watermarks() == {"window_start": -4, "window_end": -4}
    job.tick((3, "a"), (6, "a"), (8, "a"), (2, "b"), (7, "b"))
    assert get_output_watermarks() == {"window_start": 1, "window_end": 3}
    job.tick((10, "c"))  # W = 5: the session of b that ends then is open, and that of a
    assert get_output_watermarks() == {"window_start": 1, "window_end": 5}
    job.tick((6, "a", None, -1), (11, "c"))
    assert get_output_watermarks() == {"window_start": 1, "window_end": 6}
    job.tick((12, "c"))
    assert get_output_watermarks() == {"window_start": 7, "window_end": 7}


def test_deleted_row_no_longer_delays_the_output_watermark() -> None:
    job = Job(sessions("count(*) AS n"))
    job.tick((7, "a"), (8, "b"))
    job.tick((7, "a", None, -1), (20, "c"))
    assert job.told.result.queries["console"].output_watermarks == {"window_start": 15, "window_end": 15}


def test_times_at_the_ends_of_int64() -> None:
    job = Job(sessions("count(*) AS n", gap="4"))
    assert job.tick((-MOST - 1, "a"), (-MOST, "a")) == [(-MOST - 1, -MOST + 4, "a", 2, 1)]
    assert job.tick((MOST, "a"), (MOST - 3, "a"), (3, "a")) == [
        (3, 7, "a", 1, 1),
        (MOST - 3, MOST, "a", 2, 1),
    ]
    assert job.tick((MOST, "a", None, -1)) == [(MOST - 3, MOST, "a", 2, -1), (MOST - 3, MOST, "a", 1, 1)]
    job = Job(sessions("count(*) AS n", gap=str(MOST)) + " EMIT FINAL")
    job.tick((-MOST - 1, "a"), (-1, "a"), (MOST, "b"))
    rows = job.job.tick({}, end=True).rows["console"]
    assert sorted(row["n"] for row in rows) == [1, 2]


def test_sessions_of_timestamps_and_of_rows_that_only_come() -> None:
    job = Job(sessions("count(*) AS n", gap="INTERVAL '2' HOURS", table="p"))
    assert job.tick(("0001-01-02T10:00:00", "a"), ("0001-01-02T12:00:00", "a", 2), stream="p") == [
        ("0001-01-02T10:00:00", "0001-01-02T14:00:00", "a", 3, 1)
    ]
    assert job.tick(("0001-01-02T12:00:00", "a", -2), stream="p") == [
        ("0001-01-02T10:00:00", "0001-01-02T14:00:00", "a", 3, -1),
        ("0001-01-02T10:00:00", "0001-01-02T12:00:00", "a", 1, 1),
    ]
    job = Job(sessions("count(*) AS n", table="o"))
    assert job.tick((1, "a"), (None, "a"), stream="o") == [(1, 4, "a", 1, 1)]
    assert job.tick((3, "a"), (9, "a"), stream="o") == [
        (1, 4, "a", 1, -1),
        (1, 6, "a", 2, 1),
        (9, 12, "a", 1, 1),
    ]


@pytest.mark.parametrize("emit", ["", " EMIT FINAL"])
def test_it_goes_on_in_another_number_of_tasks(emit: str) -> None:
    sql = sessions("count(*) AS n, sum(v) AS s, min(v) AS m") + emit
    job = Job(sql, 1)
    job.tick(*((t, k, t) for t in (5, 6, 8, 10) for k in "abcdefg"))
    job.reopen(sql, 5)
    found = job.tick(*((8, k, 8, -1) for k in "abcdefg"), (21, "z", 1))
    if emit:
        assert sorted(found) == [(5, 9, k, 2, 11, 5) for k in "abcdefg"] + [
            (10, 13, k, 1, 10, 10) for k in "abcdefg"
        ]
    else:
        gone = [(5, 13, k, 4, 29, 5, -1) for k in "abcdefg"]
        come = [(5, 9, k, 2, 11, 5, 1) for k in "abcdefg"] + [(10, 13, k, 1, 10, 10, 1) for k in "abcdefg"]
        assert sorted(found) == sorted([*gone, *come, (21, 24, "z", 1, 1, 1, 1)])
    assert job.kept["#1"] == 1
    for other in (sessions("count(*) AS n", gap="4") + emit, windows_of("count(*) AS n") + emit):
        with pytest.raises(StateError):
            job.reopen(other)


def test_two_modes_of_one_query_do_not_share_a_checkpoint() -> None:
    job = Job(sessions("count(*) AS n"))
    job.tick((1, "a"))
    with pytest.raises(StateError):
        job.reopen(sessions("count(*) AS n") + " EMIT FINAL")


def test_max_rows_limits_retained_session_rows() -> None:
    job = Job(sessions("count(*) AS n"), settings="SET max_rows = 3;")
    job.tick((1, "a"), (2, "a"), (3, "a"))
    job.tick((4, "b"), (1, "a", None, -1))
    with pytest.raises(EngineError, match="more than max_rows = 3"):
        job.tick((5, "a"))


@pytest.mark.parametrize("emit", [pytest.param("", marks=pytest.mark.full), " EMIT FINAL"])
def test_hash_range_in_parts_gives_the_same_sessions(emit: str) -> None:
    """A task whose rows exceed its memory processes its hash range in parts."""
    table = "CREATE TABLE w (t BIGINT, k STRING, d INT, WATERMARK FOR t AS t - 3)"
    table += " WITH ('connector' = 'memory', 'diff.column' = 'd');"
    query = windows_of("count(*) AS n, max(k) AS m", "SESSION", "3", "w")
    told = []
    for memory in ("16 MB", "2 GB"):
        job = Job(table + query + emit, 1, f"SET max_task_memory = '{memory}';")
        found = []
        for t in range(0, 30, 5):
            rows = [{"t": t + n % 2, "k": f"{n % 7}" * 200_000, "d": 1} for n in range(14)]
            if t:  # of each key the first row that came a tick before goes
                rows += [{**row, "t": t - 5, "d": -1} for row in rows[::2]]
            output = job.job.tick({"w": [(row, 1) for row in rows]}, end=t == 25)
            found.append(
                sorted(str({**row, "k": row["k"][0], "m": row["m"][0]}) for row in output.rows["console"])
            )
            found.append([str(output.result.queries["console"].output_watermarks)])
        told.append((found, job.kept))
    assert told[0] == told[1]


@pytest.mark.parametrize("emit", ["", pytest.param(" EMIT FINAL", marks=pytest.mark.full)])
def test_sessions_of_one_group_that_do_not_fit_are_refused_by_name(emit: str) -> None:
    sql = windows_of("max(k) AS m", "SESSION", "100", "w", "") + emit
    check_one_group_does_not_fit(sql, "rows in the state of")
