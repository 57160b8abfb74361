"""Idleness over ticks, pauses, restarts and repeated ticks."""

from __future__ import annotations

from functools import partial

import pytest

from tests.support.ticks import (
    QUERY,
    arriving,
    bag,
    plan_of,
    stream,
)
from watersmeet.errors import EngineError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.tick_phases import ConcludedTick
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

S = 1_000_000
HOUR = 3600
TIMEOUT = 10
LEFT = "SELECT l.i AS a, r.i AS b FROM l LEFT JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 5 AND l.t + 5"
PLAN = plan_of(LEFT, {"l": stream(idle_timeout=TIMEOUT), "r": stream(idle_timeout=TIMEOUT)})


def row(time, partition="p", number=0):
    return {"t": time, "k": "a", "v": 0, "i": number, "_partition": partition}


class Job:
    """A job that is looked after like one on Spark: a look before each tick."""

    def __init__(self, store, started: int, plan=PLAN, *, repeats=False):
        self.local = LocalJob(plan, store, clock_us=started * S, drive=partial(TickDriver, repeats=repeats))
        self.driver = self.local.driver

    def tick(self, clock, looked=None, **rows):
        self.driver.look((clock if looked is None else looked) * S)
        return self.local.tick(arriving(**rows), clock_us=clock * S)

    def left(self, clock, looked=None, **rows):
        return self.tick(clock, looked, **rows).result.queries[QUERY].input_watermarks["l.t"]


def test_one_long_tick_makes_nothing_idle():
    job = Job(MemoryStore(), 0)
    assert job.left(0, l=[row(10), row(4, "q")]) == 4
    assert job.left(HOUR, l=[row(20)]) == 4, "the tick before took an hour"
    assert job.left(2 * HOUR, l=[row(30)]) == 30, "silent when two ticks looked for its rows"


def test_looks_between_ticks_count():
    job = Job(MemoryStore(), 0)
    assert job.left(0, l=[row(10), row(4, "q")]) == 4
    for clock in range(0, TIMEOUT, 2):
        job.driver.look(clock * S)
        assert not job.driver.is_due(clock * S)
    job.driver.look(TIMEOUT * S)
    assert job.driver.is_due(TIMEOUT * S)
    assert job.left(TIMEOUT, l=[row(20)]) == 20


def test_a_machine_that_slept_between_looks():
    job = Job(MemoryStore(), 0)
    job.left(0, l=[row(10), row(4, "q")])
    job.driver.look(2 * S)
    job.driver.look(HOUR * S)
    assert not job.driver.is_due(HOUR * S)
    assert job.left(HOUR + 1, l=[row(20)]) == 4
    assert job.left(HOUR + 4, l=[row(30)]) == 30, "2 s and half a timeout before, 3 s after"


def test_a_job_that_was_down_makes_nothing_idle():
    store = MemoryStore()
    Job(store, 0).tick(0, l=[row(10), row(4, "q")])
    again = Job(store, HOUR)
    assert not again.driver.is_due(HOUR * S)
    assert again.left(HOUR + 9, l=[row(20)]) == 4
    assert again.left(HOUR + 13, l=[row(30)]) == 4
    assert again.left(HOUR + 14, l=[row(40)]) == 40, "of the first 9 s half a timeout counts"


def test_a_batch_of_before_the_job_went_down_makes_nothing_idle():
    store = MemoryStore()
    Job(store, 0).tick(0, l=[row(10), row(4, "q")])
    again = Job(store, HOUR)
    assert again.left(30, looked=HOUR, l=[row(20)]) == 4
    assert again.left(HOUR + 1, r=[row(1)]) == 4, "nor in the tick after"


def test_a_clock_that_is_set_back_takes_no_silence_away():
    """Not in the run that sees it, by looks or by ticks alone, and not in one that is started after it."""
    store = MemoryStore()
    job = Job(store, HOUR)
    assert job.left(HOUR, l=[row(10), row(4, "q")]) == 4
    assert job.left(HOUR + 4, l=[row(11)]) == 4
    job.driver.look(0)
    for clock in range(TIMEOUT - 4):
        job.driver.look(clock * S)
        assert not job.driver.is_due(clock * S)
    job.driver.look((TIMEOUT - 4) * S)
    assert job.driver.is_due((TIMEOUT - 4) * S), "4 s before it was set back, 6 s after"
    assert job.left(TIMEOUT - 4, l=[row(20)]) == 20

    ticks = LocalJob(PLAN, MemoryStore(), clock_us=HOUR * S)
    for clock, mark in ((HOUR, 4), (1, 4), (TIMEOUT, 4), (TIMEOUT + 1, 50)):
        rows = arriving(l=[row(10), row(4, "q")] if clock == HOUR else [row(50)])
        assert ticks.tick(rows, clock_us=clock * S).result.queries[QUERY].input_watermarks["l.t"] == mark

    Job(store := MemoryStore(), HOUR).tick(HOUR, l=[row(10), row(4, "q")])
    again = Job(store, 0)
    assert again.left(TIMEOUT - 1, l=[row(20)]) == 4
    assert [again.left(TIMEOUT + extra, l=[row(30)]) for extra in (3, 4)] == [4, 30], "half of the 9 s counts"


def test_a_clock_that_is_set_back_before_the_first_tick():
    job = Job(MemoryStore(), HOUR)
    job.left(0, l=[row(10), row(4, "q")])
    for clock in range(1, TIMEOUT):
        assert job.left(clock, l=[row(20)]) == 4
    assert job.left(TIMEOUT, l=[row(30)]) == 30


def test_watermark_holder_is_reported_after_the_clock_is_set_back():
    job = LocalJob(plan_of(LEFT), MemoryStore(), clock_us=HOUR * S)
    job.tick(arriving(l=[row(10), row(4, "q")]), clock_us=HOUR * S)
    for clock in (0, 10):
        found = job.tick(arriving(l=[row(20)]), clock_us=clock * S).result.queries[QUERY].holding["l"]
    assert [(each.partition, each.since_us) for each in found] == [("q", 0)]


def test_a_source_of_one_partition_goes_idle_without_ever_a_row():
    """A directory that stays empty: from the start it holds the watermark, by name, and then it does not."""
    declared = "".join(
        f"CREATE TABLE {name} (t BIGINT, k STRING, WATERMARK FOR t AS t) WITH "
        f"('connector' = '{connector}', 'idle_timeout' = '{TIMEOUT} seconds' {more});"
        for name, connector, more in (
            ("a", "file", ", 'path' = 'a', 'format' = 'json'"),
            ("b", "generator", ""),
            ("c", "file", ", 'path' = 'c', 'format' = 'json'"),
        )
    )
    union = " UNION ALL ".join(f"SELECT t, k FROM {name}" for name in "abc")
    windows = f"SELECT count(*) AS n FROM TABLE(TUMBLE(TABLE ({union}), DESCRIPTOR(t), 10)) u"
    job = Job(MemoryStore(), 0, plan_job(parse_job(f"{declared} {windows} GROUP BY u.window_start;")))
    found = {}
    for clock in range(0, 2 * TIMEOUT, 2):
        given = {"a": [{"t": clock, "k": "x"}]} if clock < TIMEOUT else {}
        found[clock] = job.tick(clock, **given, b=[{"t": clock, "k": "y"}])
    results = {clock: output.result.queries["console"] for clock, output in found.items()}
    assert [held.source for held in results[TIMEOUT - 2].holding["u"]] == ["c"]
    assert not results[TIMEOUT].holding["u"]
    marks = [results[clock].input_watermarks["u.t"] for clock in (TIMEOUT - 2, TIMEOUT, 2 * TIMEOUT - 2)]
    assert marks == [float("-inf"), TIMEOUT - 2, 2 * TIMEOUT - 2]
    assert [row["n"] for output in found.values() for row in output.rows["console"]] == [10]


def test_sources_without_a_timeout_never_become_idle():
    job = LocalJob(plan_of(LEFT), MemoryStore())
    assert job.driver.begin(HOUR * S).find_idling_sources([]) == frozenset()


def test_sources_about_to_become_idle_are_found():
    job = Job(MemoryStore(), 0)
    job.tick(0, l=[row(10), row(4, "q")], r=[row(10)])
    job.tick(7, l=[row(11)], r=[row(11)])
    driver = job.driver
    for clock, sources in ((9, set()), (12, {"l"}), (30, {"l", "r"})):
        assert driver.begin(clock * S).find_idling_sources([]) == sources


def test_busy_partitions_hold_in_a_tick_with_rows():
    job = Job(MemoryStore(), 0)
    job.tick(0, l=[row(10), row(4, "q")])
    running = job.driver.begin(TIMEOUT * S).advance([], busy={"l": ("q",)})
    _, report = running.node_task(QUERY, 0).collect(0, 1)
    running.settle(QUERY, 0, [report])
    concluded = running.conclude({})
    assert concluded.result.queries[QUERY].input_watermarks["l.t"] == 4
    concluded.commit()
    assert job.left(TIMEOUT + 9, l=[row(50)]) == 4, "its time starts anew"


@pytest.mark.parametrize("repeated", [True, False])
def test_a_repeated_tick_decides_as_the_attempt_before(repeated, monkeypatch):
    """Its pads may be out: they must come in the same tick again, though the clock of the run is another."""
    store = MemoryStore()
    job = Job(store, 0)
    job.tick(0, l=[row(10, number=1)], r=[row(1, "p"), row(2, "q")])
    job.tick(5, l=[row(11, number=2)], r=[row(40)])
    with monkeypatch.context() as patched:

        def dies(*_):
            raise EngineError("killed", code="test")

        patched.setattr(ConcludedTick, "commit", dies)
        with pytest.raises(EngineError, match="killed"):
            job.tick(TIMEOUT, r=[row(41)])
    again = Job(store, HOUR, repeats=repeated)
    again.driver.inputs.declare_partitions({"l": ["new"]})
    output = again.tick(TIMEOUT, r=[row(41)])
    assert output.result.queries[QUERY].input_watermarks["r.t"] == (41 if repeated else 2)
    assert bag(output) == ({(1, None): 1, (2, None): 1} if repeated else {})
    assert output.result.queries[QUERY].input_watermarks["l.t"] == 11
    after = again.tick(HOUR + 1, l=[row(60)])
    assert after.result.queries[QUERY].input_watermarks["l.t"] == 11, (
        "the new partition holds from the next tick on"
    )
