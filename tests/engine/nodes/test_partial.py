"""What windows keep instead of rows: how much of it, until when, and that it comes to the same."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.support.effort import at_effort
from tests.support.ticks import QUERY, arriving, check_account, plan_of
from watersmeet.errors import EngineError, StateError
from watersmeet.event_time import MAX_TIME, MIN_TIME
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

TWO = {
    "l": {
        "columns": {"t": "BIGINT", "u": "BIGINT", "k": "STRING"},
        "time": {"t": {"lag": 0}, "u": {"lag": 0}},
    }
}


def windows(function, calls="count(*) AS n, sum(v) AS s", size="10"):
    return (
        f"SELECT window_start AS a, window_end AS b, k, {calls}"
        f" FROM TABLE({function}(TABLE l, DESCRIPTOR(t), {size})) GROUP BY window_start, window_end, k"
    )


def arrangement(job):
    return job.driver.manifest.queries[QUERY].nodes[0].arrangements["l"]


@pytest.mark.parametrize(
    ("function", "size", "panes", "partitions"),
    [
        ("TUMBLE", "1000", 1, 1),
        ("HOP", "100, 1000", 10, 3),
        pytest.param("TUMBLE", "1000", 1, 3, marks=pytest.mark.full),
        pytest.param("HOP", "100, 1000", 10, 1, marks=pytest.mark.full),
    ],
)
def test_partial_aggregates_grow_with_groups_and_not_with_rows(function, size, panes, partitions):
    """At most four times one row per pane and group, whatever comes: `COMBINING_FAN_IN`."""
    job = LocalJob(plan_of(windows(function, size=size)), MemoryStore(), partitions=partitions)
    most, came, counted = 0, 0, 0
    for tick in range(at_effort(quick=25, full=50)):
        rows = [{"t": tick * 20 + n % 20, "k": "abcde"[n % 5], "v": 1} for n in range(200)]
        output = job.tick(arriving(l=rows))
        came += len(rows)
        check_account(output)
        assert output.result.queries[QUERY].state == {"l": came}, "rows are counted all the same"
        groups = 5 * min(panes, tick // 5 + 1)
        assert groups <= arrangement(job).stored <= merge_policy.COMBINING_FAN_IN * groups
        counted += sum(row["n"] for row in output.rows[QUERY])
        most = max(most, output.result.queries[QUERY].state_bytes)
    assert most < came * 8, "bytes"
    last = job.tick(arriving(l=[{"t": 100_000, "k": "z"}]))
    assert last.result.queries[QUERY].state == {"l": 1}
    assert counted + sum(row["n"] for row in last.rows[QUERY]) == came * panes


def test_groups_of_one_row_come_to_what_rows_come_to(seed):
    """Many keys, of which some come again: in the same tick, in later ones, and in several windows."""
    random.seed(seed)
    calls = "count(*) AS n, sum(v) AS s, avg(v) AS m, min(v) AS lo, max_by(v, t) AS last, count(v) AS there"
    found = []
    batches = [
        [
            {
                "t": tick * 7 + random.randint(0, 9),
                "k": str(random.randint(0, 400)),
                "v": random.choice([None, -1, 5]),
            }
            for _ in range(random.choice((1, 60, 200)))
        ]
        for tick in range(8)
    ]
    for also in ("", ", count(DISTINCT v) AS d"):
        job = LocalJob(
            plan_of(windows("HOP", calls + also, "5, 20"), allowed_lateness=100), MemoryStore(), partitions=2
        )
        bag = Counter()
        for number, rows in enumerate(batches, 1):
            for row in job.tick(arriving(l=rows), end=number == len(batches)).rows[QUERY]:
                row.pop("d", None)
                bag[tuple(row.values())] += 1
        found.append(bag)
    assert found[0] == found[1]
    assert len(found[0]) > 1000


@pytest.mark.parametrize("call", ["count(DISTINCT v)", "stddev_pop(v)"])
def test_rows_are_retained_for_aggregates_that_need_them(call):
    job = LocalJob(plan_of(windows("TUMBLE", f"count(*) AS n, {call} AS x")), MemoryStore())
    for _ in range(3):
        job.tick(arriving(l=[{"t": 1, "k": "a", "v": 1}] * 10))
    assert arrangement(job).stored == 30


def test_rows_of_windows_that_close_in_their_tick_are_never_written():
    job = LocalJob(plan_of(windows("TUMBLE")), MemoryStore())
    output = job.tick(arriving(l=[{"t": 3, "k": "a", "v": 5}, {"t": 4, "k": "a"}, {"t": 10, "k": "b"}]))
    assert output.rows[QUERY] == [{"a": 0, "b": 10, "k": "a", "n": 2, "s": 5}]
    (live,) = arrangement(job).runs
    assert (live.run.rows, live.run.stands_for) == (1, 1)
    assert output.result.queries[QUERY].account["l"] == {"in": 3, "grouped": 2, "retained": 1}


def test_max_rows_limits_retained_partial_aggregates():
    job = LocalJob(plan_of(windows("TUMBLE", size="1000"), max_rows=5), MemoryStore())
    job.tick(arriving(l=[{"t": n, "k": "ab"[n % 2]} for n in range(100)]))
    with pytest.raises(EngineError, match="retains 14 rows"):
        job.tick(arriving(l=[{"t": 99, "k": str(n % 12)} for n in range(100)]))


def test_other_aggregates_are_other_state():
    """Of rows that are kept anything can be had; of partial aggregates no other ones."""
    store = MemoryStore()
    LocalJob(plan_of(windows("TUMBLE", "sum(v) AS x")), store).tick(arriving(l=[{"t": 1, "k": "a", "v": 1}]))
    with pytest.raises(StateError, match=r"lack max\(l\.v\)"):
        LocalJob(plan_of(windows("TUMBLE", "max(v) AS x")), store)
    with pytest.raises(StateError, match="differs from the stored state"):  # rows, not partial aggregates
        LocalJob(plan_of(windows("TUMBLE", "count(DISTINCT v) AS x")), store)
    store = MemoryStore()
    rows = arriving(l=[{"t": 1, "k": "a", "v": 1}, {"t": 2, "k": "a", "v": 2}])
    LocalJob(plan_of(windows("TUMBLE", "count(DISTINCT v) AS x")), store).tick(rows)
    again = LocalJob(plan_of(windows("TUMBLE", "sum(DISTINCT v) AS x")), store)
    assert again.tick({}, end=True).rows[QUERY] == [{"a": 0, "b": 10, "k": "a", "x": 3}]


def test_only_the_whole_sum_of_a_window_can_be_too_great():
    job = LocalJob(plan_of(windows("TUMBLE", "sum(v) AS s")), MemoryStore())
    for value in (2**63 - 1, 1, -1, None):
        job.tick(arriving(l=[{"t": 1, "k": "a", "v": value}]))
    assert job.tick({}, end=True).rows[QUERY] == [{"a": 0, "b": 10, "k": "a", "s": 2**63 - 1}]


CALLS = "count(*) AS n, min(t) AS lo, max(t) AS hi, max_by(u, t) AS last, min(u) AS u"


@pytest.mark.parametrize(
    ("window", "base"),
    [
        ("TUMBLE {} 10", MIN_TIME),
        ("HOP {} 4, 10", -20),
        ("HOP {} 5, 15", MAX_TIME - 40),
        ("HOP {} 7, 7", -20),
        ("HOP {} 5, 15", MIN_TIME),
        *(
            pytest.param(window, base, marks=pytest.mark.full)
            for window, base in (
                ("TUMBLE {} 10", -20),
                ("TUMBLE {} 10", MAX_TIME - 40),
                ("HOP {} 4, 10", MIN_TIME),
                ("HOP {} 4, 10", MAX_TIME - 40),
                ("HOP {} 5, 15", -20),
                ("HOP {} 7, 7", MIN_TIME),
                ("HOP {} 7, 7", MAX_TIME - 40),
            )
        ),
    ],
)
def test_rows_and_partial_aggregates_give_the_same_results(seed, window, base, monkeypatch):
    """At the ends of int64, too, and with another event time; in any ticks, with any number of tasks."""
    monkeypatch.setattr(merge_policy, "COMBINING_FAN_IN", 2)
    random.seed(f"{seed} {window} {base}")
    function, _, size = window.partition(" {} ")
    by_parts = plan_of(windows(function, CALLS, size), TWO)
    by_rows = plan_of(windows(function, f"{CALLS}, count(DISTINCT t) AS d", size), TWO)
    stores, found = (MemoryStore(), MemoryStore()), (Counter(), Counter())
    times = sorted(base + random.randint(0, 40) for _ in range(40))
    while times:
        count = random.randint(1, 6)
        rows = [
            {"t": t, "u": t + random.randint(0, 3) if t < 0 else t, "k": random.choice("ab")}
            for t in times[:count]
        ]
        times, partitions = times[count:], random.choice((1, 2, 3, 7))
        states = []
        for plan, store, bag in zip((by_parts, by_rows), stores, found, strict=True):
            output = LocalJob(plan, store, partitions=partitions).tick(arriving(l=rows), end=not times)
            for row in output.rows[QUERY]:
                row.pop("d", None)
                bag[tuple(row.values())] += 1
            result = output.result.queries[QUERY]
            states.append((result.state, result.output_watermarks, result.account))
        assert states[0] == states[1]
    assert found[0] == found[1]
    assert found[0]
