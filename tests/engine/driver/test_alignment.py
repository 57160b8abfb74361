"""max_drift over ticks: whoever is ahead is not read, the result stays the same, and the state small."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.support.ticks import QUERY, arriving, bag, check_account, plan_of, stream
from watersmeet.errors import WatersmeetError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.explain import explain
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore
from watersmeet.watermark.holders import SourceDrift

S = 1_000_000
SKEW = 20
LEFT = "SELECT l.i AS a, r.i AS b FROM l LEFT JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 5 AND l.t + 5"
CHAIN = (
    "SELECT l.i AS a, r.i AS b, m.i AS c FROM l JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 5 AND l.t + 5"
    " LEFT JOIN m ON m.k = r.k AND m.t BETWEEN r.t - 3 AND r.t + 3"
)
UNION = (
    "SELECT u.i AS a, r.i AS b FROM (SELECT i, k, t FROM l UNION ALL SELECT i, k, t FROM m) u"
    " LEFT JOIN r ON u.k = r.k AND r.t BETWEEN u.t - 5 AND u.t + 5"
)


class Backlogs:
    """Rows that are there to be read, per source in their order; ``paces``: how many a tick takes."""

    def __init__(self, rows: dict[str, list[dict[str, Any]]], paces: dict[str, int], store=None) -> None:
        self.rows, self.paces = {name: list(of) for name, of in rows.items()}, paces
        self.store = MemoryStore() if store is None else store
        self.out: Counter[tuple[Any, ...]] = Counter()
        self.most = Counter[str]()
        self.clock = 0

    def start(self, plan) -> None:
        self.job = LocalJob(plan, self.store, clock_us=self.clock)
        self.job.driver.inputs.mark_ended(name for name, rows in self.rows.items() if not rows)

    def tick(self) -> dict[str, SourceDrift]:
        """As Spark's query does it: what is held gives no row."""
        self.clock += S
        held = self.job.driver.held()
        given: dict[str, list[dict[str, Any]]] = {}
        for name, rows in self.rows.items():
            if name not in held:
                given[name], self.rows[name] = rows[: self.paces[name]], rows[self.paces[name] :]
        assert any(given.values()), f"nobody goes on: {held}"
        output = self.job.tick(arriving(**given), clock_us=self.clock)
        check_account(output)
        self.out += bag(output)
        assert not any("late" in counts for counts in output.result.queries[QUERY].counts.values())
        self.most |= Counter(output.result.queries[QUERY].state)
        self.job.driver.inputs.mark_ended(name for name, rows in self.rows.items() if not rows)
        return dict(output.result.held)

    def run(self, plan, restarts: random.Random | None = None) -> None:
        self.start(plan)
        while any(self.rows.values()):
            self.tick()
            if restarts is not None and restarts.random() < 0.2:
                self.start(plan)
        self.clock += S
        self.out += bag(self.job.tick({}, clock_us=self.clock, end=True))


def build_rows(count: int, first: int, draw: random.Random) -> list[dict[str, Any]]:
    return [{"t": first + n, "k": draw.choice("ab"), "v": 0, "i": n} for n in range(count)]


@pytest.mark.parametrize("query", [LEFT, CHAIN, UNION])
@pytest.mark.parametrize(
    "run", [0, pytest.param(1, marks=pytest.mark.full), pytest.param(2, marks=pytest.mark.full)]
)
def test_aligned_sources_give_the_same_rows_with_bounded_state(seed, query, run):
    """One source is far ahead, and is read faster: of it no more is kept than the skew, a tick's rows and the
    bounds of the join make. Runs end and begin anew meanwhile."""
    draw = random.Random(seed * 3 + run)
    names = ["l", "r"] if query == LEFT else ["l", "r", "m"]
    fast = draw.choice(names)
    rows = {name: build_rows(200, 100 if name == fast else 0, draw) for name in names}
    paces = {name: 40 if name == fast else draw.randint(8, 12) for name in names}
    streams = {name: stream() for name in names}

    aligned, free = Backlogs(rows, paces), Backlogs(rows, paces)
    aligned.run(plan_of(query, streams, max_drift=SKEW), restarts=draw)
    free.run(plan_of(query, streams))
    assert aligned.out == free.out
    alias = "u" if query == UNION and fast != "r" else fast
    # what is used up is waited for by nobody: the rest of the fast one, which nothing meets any more
    tail = 100 - SKEW
    assert aligned.most[alias] <= SKEW + 40 + 2 * 12 + tail + 12 * (alias == "u")
    assert free.most[alias] >= 190


def test_one_that_waits_is_read_again_when_the_other_has_caught_up():
    draw = random.Random(0)
    backlogs = Backlogs({"l": build_rows(20, 100, draw), "r": build_rows(200, 0, draw)}, {"l": 5, "r": 10})
    backlogs.start(plan_of(LEFT, max_drift=SKEW))
    told = [backlogs.tick().get("l") for _ in range(12)]
    assert told[0] == SourceDrift("r", 104 - 9)
    assert [ahead.by if ahead else None for ahead in told] == [95, 85, 75, 65, 55, 45, 35, 25, None, None] + [
        None
    ] * 2


@pytest.mark.parametrize("timeout", [3, None])
def test_a_silent_one_is_waited_for_until_it_is_idle(timeout):
    store = MemoryStore()
    declared = {"l": stream(idle_timeout=2), "r": stream(idle_timeout=timeout)}
    job = LocalJob(plan_of(LEFT, declared, max_drift=SKEW), store)
    tick = job.tick(arriving(l=[row(100)], r=[row(0)]), clock_us=0).result
    assert tick.held == {"l": SourceDrift("r", 100)}
    for clock in range(1, 3):
        assert not job.driver.is_due(clock * S), "l is held, so it is not idle, though its timeout is over"
        assert job.driver.held(), clock
    result = job.tick({}, clock_us=3 * S).result
    assert not result.queries[QUERY].idle if timeout is None else result.queries[QUERY].idle == ("r",)
    assert bool(result.held) == (timeout is None)
    assert job.driver.is_due(6 * S) == (timeout is not None), "read again, l may be silent"
    again = LocalJob(plan_of(LEFT, declared, max_drift=SKEW), store, clock_us=6 * S)
    assert again.driver.held() == result.held


def test_idle_partition_stays_idle_while_its_source_is_paused():
    declared = {"l": stream(idle_timeout=2, partitions=["0", "1"]), "r": stream()}
    job = LocalJob(plan_of(LEFT, declared, max_drift=SKEW), MemoryStore())
    job.tick(arriving(l=[row(1, "0")], r=[row(0)]), clock_us=0)
    job.tick(arriving(l=[row(2, "0")]), clock_us=2 * S)
    ahead = job.tick(arriving(l=[row(200, "0")]), clock_us=3 * S).result
    assert ahead.held == {"l": SourceDrift("r", 200)}
    assert job.tick(arriving(r=[row(190)]), clock_us=90 * S).result.held == {}
    assert job.driver.manifest is not None
    partitions = job.driver.manifest.queries[QUERY].inputs["l"].branches[0].partitions
    assert {name: p.idle for name, p in partitions.items()} == {"0": False, "1": True}


def row(time: int, partition: str = "") -> dict[str, Any]:
    return {"t": time, "k": "a", "v": 0, "i": 0, **({"_partition": partition} if partition else {})}


TEXT = """
CREATE TABLE l (k BIGINT, t {type}, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
CREATE TABLE r (k BIGINT, t {type}, WATERMARK FOR t AS t) WITH ('connector' = 'memory'{timeout});
SET max_drift = {skew};
SELECT l.k FROM l JOIN r ON l.k = r.k AND l.t = r.t
"""


@pytest.mark.parametrize(
    ("type_", "skew", "says"),
    [
        ("BIGINT", "INTERVAL '1' HOUR", 'max_drift is an interval, but the event time "l.t" is an integer'),
        ("TIMESTAMP", "3600", 'max_drift is a number, but the event time "l.t" is not an integer'),
        ("TIMESTAMP", "'0 seconds'", "max_drift must be above zero"),
        ("TIMESTAMP", "INTERVAL '1' MONTH", "max_drift: INTERVAL '1' MONTH has no fixed length"),
        ("BIGINT", "-3", "max_drift must not be negative"),
    ],
)
def test_what_it_cannot_be(type_, skew, says):
    with pytest.raises(WatersmeetError, match=says) as caught:
        parse_job(TEXT.format(type=type_, timeout="", skew=skew))
    assert caught.value.code == "bad-setting"
    assert caught.value.hint or "negative" in says


@pytest.mark.parametrize(
    ("type_", "skew", "most"),
    [
        ("BIGINT", "20", 20),
        ("TIMESTAMP", "INTERVAL '1' HOUR", 3600 * S),
        ("DATE", "'2 days'", 2 * 86400 * S),
        ("DATE", "none", None),
    ],
)
def test_what_it_can_be(type_, skew, most):
    assert parse_job(TEXT.format(type=type_, timeout="", skew=skew)).options.max_drift == most


def test_explain_says_who_is_waited_for_when_it_is_silent():
    def explain_with_timeout(timeout: str) -> str:
        return explain(plan_job(parse_job(TEXT.format(type="DATE", timeout=timeout, skew="'1 day'"))))

    line = "a source that is more than 1 d ahead of another one is not read until that has caught up"
    assert line in explain_with_timeout("")
    assert "without an idle_timeout, a silent source is waited for: l, r\n" in explain_with_timeout("")
    assert "without an idle_timeout, a silent source is waited for: l\n" in explain_with_timeout(
        ", 'idle_timeout' = '1 min'"
    )
