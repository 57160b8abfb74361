"""Windows within the tick: the account, what is kept on disk, merges, and that each result comes out once."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.support.effort import at_effort
from tests.support.ticks import (
    QUERY,
    arriving,
    bag,
    check_account,
    plan_of,
    stored_names,
    stream,
)
from watersmeet.errors import EngineError, PlanError
from watersmeet.observe.reports import account_of
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

ROWS = at_effort(quick=100, full=300)
BY = "GROUP BY window_start, window_end"
JOIN = (
    "(SELECT l.t AS lt, r.t AS rt, l.k AS k FROM l LEFT JOIN r"
    " ON l.k = r.k AND r.t BETWEEN l.t - 1 AND l.t + 1)"
)


def windows(function, keys=", k"):
    return f"SELECT window_start, window_end{keys}, count(*) AS n FROM TABLE({function}) {BY}{keys}"


def test_the_account_of_an_input_adds_up():
    job = LocalJob(plan_of(windows("TUMBLE(TABLE l, DESCRIPTOR(t), 10)", ", k")), MemoryStore(), partitions=3)
    ticks = (
        [{"t": 3, "k": "a"}, {"t": None}, {"t": 9, "k": "b"}],
        [{"t": 12, "k": "a"}, {"t": 30}],
        [{"t": 2}],
    )
    for rows in ticks:
        output = job.tick(arriving(l=rows))
        check_account(output)
        assert account_of(output.result).adds_up()
    counts = output.result.queries[QUERY].account["l"]
    assert counts == {"in": 6, "null_time": 1, "late": 1, "grouped": 3, "retained": 1}


def test_rows_of_a_join_have_an_account_of_their_own():
    """Of the padded ones without a time, too."""
    job = LocalJob(plan_of(windows(f"TUMBLE({JOIN}, DESCRIPTOR(rt), 10)")), MemoryStore(), partitions=2)
    job.tick(arriving(l=[{"t": 3, "k": "a"}, {"t": 5, "k": "b"}, {"t": 8, "k": "a"}], r=[{"t": 4, "k": "a"}]))
    output = job.tick(arriving(l=[{"t": 40, "k": "z"}], r=[{"t": 40, "k": "z"}]))
    check_account(output)
    counts = output.result.queries[QUERY].account["#1"]
    assert counts == {"in": 4, "null_time": 2, "grouped": 1, "retained": 1}
    names = [row.input for row in account_of(output.result).inputs]
    assert names == ["l", "r", "rows of join 1"]


@pytest.mark.parametrize("function", ["TUMBLE", "SESSION"])
def test_closed_windows_leave_nothing_on_disk(function):
    store = MemoryStore()
    job = LocalJob(plan_of(windows(f"{function}(TABLE l, DESCRIPTOR(t), 10)")), store)
    for t in range(0, 400, 7):
        job.tick(arriving(l=[{"t": t, "k": "ab"[t % 2]}, {"t": t, "k": f"once {t}"}]))
    held = [name for name in stored_names(job) if name.startswith("runs")]
    output = job.tick(arriving(l=[{"t": 1000, "k": "z"}]))
    assert output.result.queries[QUERY].state == {"l": 1}
    job.tick({})  # the manifest before the last is kept, and what it names
    assert len(held) < 30, "runs are merged"
    assert len([name for name in stored_names(job) if name.startswith("runs")]) == 1


@pytest.mark.parametrize("function", ["TUMBLE({}, 10)", "HOP({}, 10, 3)", "SESSION({}, 4)"])
def test_many_ticks_and_restarts_give_the_rows_of_one_tick(seed, function):
    """Every window once, whatever the ticks, the tasks and the merges in between."""
    random.seed(seed)
    rows = [{"t": t + random.randint(-5, 0), "k": random.choice("abc")} for t in range(ROWS)]
    plan = plan_of(windows(function.format("TABLE l, DESCRIPTOR(t)")), {"l": stream(6)})
    whole = LocalJob(plan, MemoryStore()).tick(arriving(l=rows), end=True)
    store, found, first = MemoryStore(), Counter(), 0
    job = LocalJob(plan, store)
    while first < len(rows):
        job = LocalJob(plan, store) if random.random() < 0.2 else job
        job.partitions = random.choice((1, 2, 3, 7))
        size = random.randint(1, 6)
        found += bag(job.tick(arriving(l=rows[first : first + size])))
        first += size
    output = job.tick({}, end=True)
    check_account(output)
    assert found + bag(output) == bag(whole)
    assert output.result.queries[QUERY].state == {"l": 0}


def test_what_only_spark_computes_is_refused_by_name():
    sql = f"SELECT window_end, percentile_approx(v, 0.5) FROM TABLE(TUMBLE(TABLE l, DESCRIPTOR(t), 10)) {BY}"
    with pytest.raises(EngineError, match=r"PERCENTILE_APPROX\(l.v, 0.5\)"):
        LocalJob(plan_of(sql), MemoryStore())
    beneath = f"SELECT x.p FROM ({sql.replace('0.5)', '0.5) AS p')}) x JOIN r ON r.t = x.window_end"
    with pytest.raises(PlanError, match="only the last step of a query can compute it"):
        plan_of(beneath)


@pytest.mark.parametrize("function", ["first", "last", "first_value"])
def test_rows_have_no_order_but_their_times(function):
    sql = f"SELECT {function}(v) FROM TABLE(TUMBLE(TABLE l, DESCRIPTOR(t), 10)) {BY}"
    with pytest.raises(PlanError) as caught:
        plan_of(sql)
    assert "(value, time)" in str(caught.value)


def test_a_sum_that_is_too_great_fails_the_tick():
    plan = plan_of(f"SELECT sum(v) FROM TABLE(TUMBLE(TABLE l, DESCRIPTOR(t), 10)) {BY}")
    job = LocalJob(plan, MemoryStore())
    with pytest.raises(EngineError, match="an aggregate failed"):
        job.tick(arriving(l=[{"t": 1, "v": 2**63 - 1}, {"t": 2, "v": 1}, {"t": 20}]))


def test_windows_whose_time_has_no_watermark_are_refused():
    """By the rule ``limit`` a join puts out watermarks of those times alone that it bounds."""
    columns = {"t": "BIGINT", "u": "BIGINT", "k": "STRING"}
    two = {"columns": columns, "time": {"t": {"lag": 0}, "u": {"lag": 0}}}
    join = "(SELECT l.u AS lu, l.k AS k FROM l JOIN r ON l.k = r.k AND r.t BETWEEN l.t AND l.t + 9)"
    sql, streams = windows(f"TUMBLE({join}, DESCRIPTOR(lu), 10)"), {"l": two, "r": stream()}
    plan_of(sql, streams)
    with pytest.raises(PlanError, match=r"TUMBLE windows over l.u would never close"):
        plan_of(sql, streams, watermark_rule="limit")
