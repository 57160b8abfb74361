"""The driver: what it refuses, limits of state, and what is one tick."""

from __future__ import annotations

import pytest

from tests.support.ticks import (
    QUERY,
    arriving,
    bag,
    check_account,
    plan_of,
    stored_names,
    stream,
)
from watersmeet.errors import EngineError, StateError
from watersmeet.event_time import ENDED
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore
from watersmeet.watermark.lateness import LateBy

BAND = "l.k = r.k AND r.t BETWEEN l.t - 5 AND l.t + 5"
INNER = f"SELECT l.i AS a, r.i AS b FROM l JOIN r ON {BAND}"
LEFT = INNER.replace(" JOIN", " LEFT JOIN")


def row(number, time, key="a"):
    return {"t": time, "k": key, "v": number, "i": number}


def test_a_finished_job_takes_no_more_rows():
    store = MemoryStore()
    LocalJob(plan_of(INNER), store).tick({}, end=True)
    with pytest.raises(StateError, match="finished") as raised:
        LocalJob(plan_of(INNER), store).tick(arriving(l=[row(1, 1)]))
    assert raised.value.code == "job-finished"
    assert raised.value.hint


def test_the_end_releases_all_pads_what_never_matched_and_is_remembered():
    job = LocalJob(plan_of(LEFT), MemoryStore())
    job.tick(arriving(l=[row(1, 1), row(2, 1, "b")], r=[row(1, 2)]))
    last = job.tick({}, end=True)
    assert bag(last) == {(2, None): 1}
    assert last.result.finished
    assert last.result.queries[QUERY].state == {"l": 0, "r": 0}
    assert last.result.queries[QUERY].output_watermarks == {"l.t": ENDED, "r.t": ENDED}
    check_account(last)


def test_too_many_retained_rows_fail_the_tick_and_name_the_sizes():
    job = LocalJob(plan_of(INNER, max_rows=3), MemoryStore())
    job.tick(arriving(l=[row(n, 1) for n in range(3)]))
    with pytest.raises(EngineError, match="l: 3, r: 1") as raised:
        job.tick(arriving(r=[row(1, 1)]))
    assert raised.value.code == "max-rows"
    assert job.driver.tick == 1
    assert job.state[QUERY] == {"l": 3, "r": 0}


def test_rows_are_counted_against_the_limit_after_release():
    job = LocalJob(plan_of(INNER, max_rows=2), MemoryStore())
    output = job.tick(arriving(l=[row(1, 1), row(2, 100)], r=[row(1, 1), row(2, 100)]))
    assert output.result.queries[QUERY].state == {"l": 1, "r": 1}


def test_too_many_bytes_fail_the_tick_and_name_the_sizes():
    """The next run may have another limit."""
    store = MemoryStore()
    LocalJob(plan_of(INNER), store).tick(arriving(l=[row(n, 1) for n in range(3)]))
    kept = sum(store.read(name).size for name in store.names("runs"))
    job = LocalJob(plan_of(INNER, max_bytes=kept), store)
    with pytest.raises(EngineError, match=r"retains .* in files \(l: .*, r: .*\), more than") as raised:
        job.tick(arriving(r=[row(1, 1)]))
    assert raised.value.code == "max-bytes"
    assert job.driver.tick == 1
    again = LocalJob(plan_of(INNER, max_bytes=2 * kept), store)
    assert sum(bag(again.tick(arriving(r=[row(1, 1)]))).values()) == 3


@pytest.mark.parametrize(("most", "fails"), [(3, True), (4, False), (None, False)])
def test_too_many_rows_out_fail_the_tick(most, fails):
    job = LocalJob(plan_of(INNER, max_output_rows_per_tick=most), MemoryStore())
    rows = arriving(l=[row(1, 1), row(2, 1)], r=[row(1, 1), row(2, 1)])
    if not fails:
        assert sum(bag(job.tick(rows)).values()) == 4
        return
    with pytest.raises(EngineError, match="would emit 4 rows in tick 1") as raised:
        job.tick(rows)
    assert (raised.value.code, job.driver.tick) == ("max-output", 0)


def test_an_attempt_at_a_tick_that_is_committed_cannot_commit():
    job = LocalJob(plan_of(INNER), MemoryStore())
    stale = job.driver.begin(0).advance([])
    job.tick(arriving(l=[row(1, 1)]))
    _, report = stale.node_task(QUERY, 0).collect(0, 1)
    stale.settle(QUERY, 0, [report])
    with pytest.raises(StateError) as raised:
        stale.conclude({}).commit()
    assert raised.value.code == "state-fenced"
    assert job.state[QUERY] == {"l": 1, "r": 0}


def test_a_second_driver_over_one_store_is_stopped():
    store = MemoryStore()
    first, second = (LocalJob(plan_of(INNER), store) for _ in range(2))
    for number in range(4):
        first.tick(arriving(l=[row(number, 1)]))
    with pytest.raises(StateError, match="another process") as raised:
        second.tick(arriving(l=[row(9, 1)]))
    assert raised.value.code == "state-fenced"
    assert LocalJob(plan_of(INNER), store).state[QUERY] == {"l": 4, "r": 0}
    first.tick(arriving(l=[row(5, 1)]))


def test_declared_partitions_hold_the_watermark():
    job = LocalJob(plan_of(INNER), MemoryStore())
    job.driver.inputs.declare_partitions({"l": ["p", "q"]})
    first = job.tick(arriving(l=[row(1, 10) | {"_partition": "p"}]))
    assert first.result.queries[QUERY].risen_watermarks == {}
    second = job.tick(arriving(l=[row(1, 8) | {"_partition": "q"}]))
    assert second.result.queries[QUERY].input_watermarks["l.t"] == 8


def test_one_stream_under_two_aliases_has_two_watermark_keys():
    plan = plan_of(INNER.replace("FROM l JOIN r", "FROM s l JOIN s r"), {"s": stream()})
    output = LocalJob(plan, MemoryStore()).tick(arriving(s=[row(1, 10), row(2, 12)]))
    assert bag(output) == {(1, 1): 1, (1, 2): 1, (2, 1): 1, (2, 2): 1}
    assert output.result.queries[QUERY].input_watermarks == {"l.t": 12, "r.t": 12}


def test_rows_of_a_tick_are_judged_by_the_watermark_of_its_start():
    job = LocalJob(plan_of(INNER), MemoryStore())
    first = job.tick(arriving(l=[row(1, 100), row(2, 1)], r=[row(1, 1)]))
    assert bag(first) == {(2, 1): 1}
    second = job.tick(arriving(l=[row(3, 99), row(4, 100)]))
    assert [late["i"] for _, late in second.late] == [3]


def test_matches_come_left_rows_first_as_they_came_then_right_rows_then_pads():
    plan = plan_of(f"SELECT l.i AS a, r.i AS b FROM l FULL JOIN r ON {BAND.replace('l.k = r.k AND ', '')}")
    job = LocalJob(plan, MemoryStore())
    job.tick(arriving(l=[row(1, 10)], r=[row(1, 11)]))
    output = job.tick(arriving(l=[row(3, 14), row(2, 12)], r=[row(2, 15)]))
    pairs = [tuple(each.values()) for each in output.rows[QUERY]]
    assert pairs == [(3, 1), (3, 2), (2, 1), (2, 2), (1, 2)]
    again = job.tick(arriving(l=[row(9, 100)], r=[row(9, 200)]))
    assert [tuple(each.values()) for each in again.rows[QUERY]] == [(9, None)]


def test_the_same_tick_repeats_itself():
    """The same rows in the same order give the same rows in the same order: parts can be written again."""
    found = []
    for _ in range(2):
        job = LocalJob(plan_of(LEFT), MemoryStore(), partitions=3)
        keys = "abcdefgh"
        rows = [row(n, 10 + n % 5, keys[n % 8]) for n in range(200)]
        job.tick(arriving(l=rows[:100], r=rows[50:150]))
        found.append(
            job.tick(arriving(l=[*rows[100:], row(0, 500)], r=[*rows[150:], row(0, 500)])).rows[QUERY]
        )
    assert found[0] == found[1]
    assert len(found[0]) > 100


def test_store_retains_only_files_of_the_two_newest_manifests():
    job = LocalJob(plan_of(LEFT), MemoryStore())
    for number in range(1, 12):
        job.tick(arriving(l=[row(number, 10 * number)], r=[row(number, 10 * number)]))
        manifests = job.store.names("manifests")
        assert len(manifests) == min(number, 2)
    kept = job.driver.manifest.files()
    assert len(kept) < 10
    assert kept <= stored_names(job)
    assert not job.store.names("work")
    assert not job.store.names("aside")


def test_one_job_of_two_queries_reads_a_stream_once_for_both():
    from dataclasses import replace

    first, second = plan_of(INNER).queries[0], plan_of(LEFT).queries[0]
    plan = replace(plan_of(INNER), queries=(first, replace(second, name="p")))
    job = LocalJob(plan, MemoryStore())
    output = job.tick(arriving(l=[row(1, 1), row(2, 1, "b")], r=[row(1, 1)]))
    assert [tuple(each.values()) for each in output.rows["q"]] == [(1, 1)]
    last = job.tick({}, end=True)
    assert [tuple(each.values()) for each in last.rows["p"]] == [(2, None)]
    assert last.rows["q"] == []
    assert job.driver.manifest.queries.keys() == {"q", "p"}


def test_time_in_which_the_job_did_not_run_makes_no_partition_idle():
    second = 1_000_000
    store = MemoryStore()
    plan = plan_of(INNER, {"l": stream(idle_timeout=5), "r": stream()})
    rows = arriving(l=[row(1, 10) | {"_partition": "p"}, row(2, 4) | {"_partition": "q"}])
    LocalJob(plan, store).tick(rows, clock_us=0)
    later = LocalJob(plan, store, clock_us=100 * second)
    more = arriving(l=[row(3, 20) | {"_partition": "p"}])
    assert later.tick(more, clock_us=104 * second).result.queries[QUERY].input_watermarks["l.t"] == 4
    assert later.tick(more, clock_us=105 * second).result.queries[QUERY].input_watermarks["l.t"] == 20


def test_a_run_whose_rows_went_by_different_columns_is_dropped():
    """No one limit is above all of its rows, and yet each is released."""
    declared = {
        name: {
            "columns": {"t": "BIGINT", "u": "BIGINT", "i": "BIGINT"},
            "time": {"t": {"lag": None}, "u": {"lag": None}},
        }
        for name in ("l", "r")
    }
    plan = plan_of("SELECT l.i AS a FROM l JOIN r ON l.t >= r.t AND l.u >= r.u AND r.t >= l.t", declared)
    job = LocalJob(plan, MemoryStore())
    job.tick(arriving(l=[{"t": 1, "u": 9, "i": 1}, {"t": 9, "u": 1, "i": 2}]))
    output = job.tick({}, advances={"r": {"t": 5, "u": 5}})
    assert output.result.queries[QUERY].state == {"l": 0, "r": 0}
    assert job.driver.manifest.queries[QUERY].nodes[0].arrangements["l"].runs == []


def test_lateness_statistics_survive_a_restart():
    store = MemoryStore()
    job = LocalJob(plan_of(INNER), store)
    job.tick(arriving(l=[row(1, 100)], r=[row(1, 100)]))
    first = job.tick(arriving(l=[row(2, 99), row(3, 40)]))
    assert first.result.queries[QUERY].late["l"]["t"].counts == {"<10": 1, "<100": 1}
    again = LocalJob(plan_of(INNER), store)
    late = again.tick(arriving(l=[row(4, 98)])).result.queries[QUERY].late
    assert late == {"l": {"t": LateBy({"<10": 2, "<100": 1}, most=60, integer=True)}}


def test_null_time_fails_the_tick_if_on_null_time_is_fail():
    job = LocalJob(plan_of(INNER, on_null_time="fail"), MemoryStore())
    with pytest.raises(EngineError, match='source "l": a row has no valid t') as raised:
        job.tick(arriving(l=[row(1, 1), row(2, None)]))
    assert raised.value.code == "null-time"
    assert job.driver.tick == 0
