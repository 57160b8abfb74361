"""Joins of which every task has one side whole: what several tasks found counts once."""

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
)
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.coordinator.tick_phases import RunningTick
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

HINT = "/*+ BROADCAST(x) */ "
"""``x`` are rows of the stream r."""
KEYED = "x.k = l.k AND l.t BETWEEN x.t AND x.t + 10"
KEYLESS = "l.t BETWEEN x.t AND x.t + 10"
FAR = {"t": 10_000, "k": "far"}
"""Moves the watermark of its stream beyond all others."""


def build_query(kind="RIGHT", on=KEYED, hint=HINT):
    columns = "l.t AS lt, l.v AS lv" + (
        "" if kind in ("LEFT SEMI", "LEFT ANTI") else ", x.t AS xt, x.v AS xv"
    )
    return f"SELECT {hint}{columns} FROM l {kind} JOIN r x ON {on}"


def build_flipped_query(kind, hint=HINT):
    """With the broadcast side first."""
    columns = "x.t AS xt, x.v AS xv" + ("" if kind in ("LEFT SEMI", "LEFT ANTI") else ", l.t AS lt")
    return f"SELECT {hint}{columns} FROM r x {kind} JOIN l ON {KEYED}"


def job(query, partitions=3, store=None):
    return LocalJob(plan_of(query), MemoryStore() if store is None else store, partitions=partitions)


def rows(*times, k="a", v=0):
    return [{"t": t, "k": k, "v": v + n} for n, t in enumerate(times)]


def marks_of(found):
    """Segments of marks per run, of both sides."""
    (node,) = found.driver.manifest.queries[QUERY].nodes
    return {
        live.run.name: live.marks["matched"]
        for arrangement in node.arrangements.values()
        for live in arrangement.runs
        if "matched" in live.marks
    }


@pytest.mark.parametrize(
    ("query", "who"),
    [
        (build_query(), 0),
        (build_query(on=KEYLESS), 3),
        (build_flipped_query("LEFT"), 5),
        (build_flipped_query("LEFT ANTI"), 3),
        *(
            pytest.param(query, who, marks=pytest.mark.full)
            for query, others in (
                (build_query(), (3, 5)),
                (build_query(on=KEYLESS), (0, 5)),
                (build_flipped_query("LEFT"), (0, 3)),
                (build_flipped_query("LEFT ANTI"), (0, 5)),
            )
            for who in others
        ),
    ],
)
def test_a_row_is_padded_once_or_never_whoever_found_its_match(query, who):
    """Six rows of x, of which one has a match: found by another task than the one that releases it, a tick
    before it is released, in that very tick, or in the tick in which it comes and goes."""
    x, partner = rows(*range(10, 130, 20), k="x"), [{"t": 15 + 20 * who, "k": "x", "v": 9}]
    others = rows(*[3] * 7, k="other")
    for steps in (
        [arriving(r=x), arriving(l=others + partner), arriving(l=[FAR])],
        [arriving(r=x), arriving(l=[*others, *partner, FAR])],
        [arriving(l=others + partner), arriving(r=x, l=[FAR])],
        [arriving(r=x, l=[*partner, *others, FAR])],
    ):
        counts = []
        for partitions in (1, 3, 7):
            running, found = job(query, partitions), Counter()
            for step in steps:
                found += bag(output := running.tick(step))
                check_account(output)
            counts.append((found, output.result.queries[QUERY].account))
        assert all(each == counts[0] for each in counts), counts
        padded = sum(n for row, n in counts[0][0].items() if None in row or len(row) == 2)
        assert padded == 5


@pytest.mark.parametrize("query", [build_query("LEFT SEMI"), build_flipped_query("LEFT SEMI")])
def test_a_semi_join_gives_each_row_once(query):
    twice = [
        arriving(l=rows(5, 5, 6), r=rows(0, 1)),
        arriving(l=rows(6, 7), r=rows(2)),
        arriving(l=[FAR]),
    ]
    for partitions in (1, 2, 3, 7):
        running, found = job(query, partitions), Counter()
        for step in twice:
            found += bag(running.tick(step))
        wanted = [(5, 0), (5, 1), (6, 2), (6, 0), (7, 1)] if "FROM l" in query else [(0, 0), (1, 1), (2, 0)]
        assert set(found) == set(wanted)
        assert set(found.values()) == {1}


def test_marks_of_several_tasks_are_one_segment_a_run():
    """However many ticks and tasks added to them."""
    running = job(build_query())
    running.tick(arriving(r=rows(*range(0, 900, 10), k="x")))
    for first in range(12):
        times = [5 + 10 * n for n in range(first, 90, 12)]
        running.tick(arriving(l=rows(*random.Random(first).sample(times, len(times)), k="x")))
        (own,) = (segments for name, segments in marks_of(running).items() if ".x-" in name)
        assert len(own) == 1
    found = bag(running.tick(arriving(l=[FAR])))
    assert not any(None in row for row in found)


def test_what_is_known_is_not_written_again():
    running = job(build_query("INNER"))
    running.tick(arriving(r=rows(0, k="x"), l=rows(1, 2, 3, k="x")))
    before = {name: segments for name, segments in marks_of(running).items() if ".x-" in name}
    running.tick(arriving(l=rows(4, 5, 6, k="x")))
    assert before
    assert {name: segments for name, segments in marks_of(running).items() if ".x-" in name} == before


def test_an_older_state_stays_whole():
    """The tick before can be run again from its own manifest, and does the same."""
    store, steps = MemoryStore(), [arriving(r=rows(0, 20, 40, k="x"))]
    steps += [arriving(l=rows(5, 25, k="x")), arriving(l=rows(45, k="x")), arriving(l=[FAR])]
    running = job(build_query(), store=store)
    outputs = [bag(running.tick(step)) for step in steps]
    store.delete("manifests/000000000004.json")
    assert bag(job(build_query(), 2, store).tick(steps[3])) == outputs[3]


@pytest.mark.parametrize(
    "query",
    [build_query(), build_query(on=KEYLESS), build_flipped_query("LEFT"), build_flipped_query("LEFT ANTI")],
)
def test_merged_runs_have_the_marks_of_all_tasks(query, monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)
    for partitions in at_effort(quick=(3,), full=(2, 3, 7)):
        running, plain = job(query, partitions), job(query.replace(HINT, ""), 1)
        for tick in range(6):
            step = arriving(
                r=rows(*range(40 * tick, 40 * tick + 40, 10), k="x"),
                l=rows(40 * tick - 35, 40 * tick + 5, k="x"),
            )
            assert bag(running.tick(step)) == bag(plain.tick(step))
        assert bag(running.tick(arriving(l=[FAR]))) == bag(plain.tick(arriving(l=[FAR])))


def record_matches(monkeypatch):
    """Matches per task, of every tick that follows."""
    found, settle = [], RunningTick.settle

    def settle_and_record(self, query, number, reports, **counted):
        told = list(reports)
        found.append([report.matches for report in told])
        settle(self, query, number, told, **counted)

    monkeypatch.setattr(RunningTick, "settle", settle_and_record)
    return found


@pytest.mark.parametrize("on", [KEYED, KEYLESS, "x.v <> l.v AND l.t <= x.t + 10 AND l.t >= x.t"])
def test_rows_of_one_key_are_spread_evenly(on, monkeypatch):
    found = record_matches(monkeypatch)
    for hint in ("", HINT):
        running = job(build_query("INNER", on, hint), 4)
        running.tick(arriving(r=rows(0, 0, 0, v=10)))
        running.tick(arriving(l=rows(*[5] * 100, v=100)))
    assert sorted(found[3]) == [75, 75, 75, 75]
    if on == KEYED:
        assert sorted(found[1]) == [0, 0, 0, 300]


def test_without_key_and_band_rows_are_spread_too(monkeypatch):
    found = record_matches(monkeypatch)
    query = (
        "SELECT {}l.v AS lv, x.v AS xv FROM l JOIN r x ON l.v <> x.v"
        " JOIN l c ON c.t BETWEEN l.t AND l.t + 5 AND c.t BETWEEN x.t AND x.t + 5"
    )
    outputs = []
    for hint in ("", HINT):
        running = job(query.format(hint), 4)
        outputs.append(bag(running.tick(arriving(r=rows(0, 0, v=100), l=rows(*[1] * 40)))))
    assert outputs[0] == outputs[1]
    assert sorted(found[0]) == [0, 0, 0, 80]
    assert found[2] == [20, 20, 20, 20]


@pytest.mark.parametrize("kind", ["INNER", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI"])
def test_the_hint_may_change_between_runs(kind, seed):
    """The state is the same with it and without: rows, watermarks and counts do not tell."""
    rng = random.Random(seed)
    store = MemoryStore()
    plans = [build_query(kind, hint=hint) for hint in ("", HINT)]
    assert len({plan_of(plan).queries[0].fingerprint for plan in plans}) == 1
    plain = job(plans[0], 1)
    for tick in range(at_effort(quick=7, full=14)):
        times = [rng.randint(4 * tick - 8, 4 * tick + 4) for _ in range(12)]
        step = arriving(l=rows(*times[:8], k=rng.choice("ab")), r=rows(*times[8:], k=rng.choice("ab")))
        running = job(plans[rng.random() < 0.6], rng.choice([1, 2, 3]), store)
        want, got = plain.tick(step), running.tick(step)
        assert bag(got) == bag(want)
        assert got.result.queries[QUERY].output_watermarks == want.result.queries[QUERY].output_watermarks
        assert got.result.queries[QUERY].account == want.result.queries[QUERY].account
