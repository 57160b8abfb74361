"""Laws of shedding at max_bytes, against a plain join: as `test_shedding`, where the rows that go are the
oldest, or those of whole keys, and what stays counts no more bytes than it may, a row as those of its file
have on average."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.effort import at_effort
from tests.support.shed_joins import Plain, check, plan_shedding_join, shed_in
from tests.support.split_keys import split_every_key
from tests.support.ticks import arriving
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

SHED = ["shed_oldest", "shed_heaviest"]
MOST = 100_000
LIMIT = f"SET max_bytes = {MOST};"


def files_of(job):
    """Of each run that the join keeps: bytes, rows, rows that are gone."""
    (node,) = job.driver.manifest.queries["q"].nodes
    return [
        (live.run.nbytes, live.run.rows, live.released)
        for kept in node.arrangements.values()
        for live in kept.runs
    ]


def measure_retained_bytes(job):
    return sum(nbytes * (rows - gone) / rows for nbytes, rows, gone in files_of(job))


def whole_cuts(at_limit):
    def judge(plain, shed):
        every = [row for own in plain.kept.values() for row in own]
        if at_limit == "shed_oldest":
            last = max((row["t"] for row in every if row["i"] in shed), default=None)
            assert shed == {row["i"] for row in every if last is not None and row["t"] <= last}
        else:
            keys = {row["k"] for row in every if row["i"] in shed}
            assert shed == {row["i"] for row in every if row["k"] in keys}

    return judge


def within(job, output):
    assert measure_retained_bytes(job) <= MOST


@pytest.mark.parametrize("at_limit", at_effort(quick=["shed_heaviest"], full=SHED))
@pytest.mark.parametrize(
    "kind", at_effort(quick=["FULL"], full=["INNER", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI"])
)
def test_rows_are_those_of_the_join_without_shed_rows(kind, at_limit, seed):
    plan = plan_shedding_join(kind, at_limit, limits=LIMIT)
    judge = whole_cuts(at_limit)
    # so wide that every kind sheds rows, LEFT SEMI too, which releases left rows at their first match
    assert check(plan, Plain(kind, True), at_limit, seed, judge=judge, width=2_000, after=within) > 0


@pytest.mark.parametrize("at_limit", at_effort(quick=["shed_oldest"], full=SHED))
@pytest.mark.parametrize("kind", at_effort(quick=["LEFT ANTI"], full=["LEFT", "LEFT ANTI"]))
def test_a_repeated_tick_sheds_the_same_by_other_tasks(kind, at_limit, seed, monkeypatch):
    """Whose files have other sizes. What was decided first is gone by."""
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    split_every_key(monkeypatch)
    plan, judge = plan_shedding_join(kind, at_limit, limits=LIMIT), whole_cuts(at_limit)
    assert check(plan, Plain(kind, True), at_limit, seed, judge=judge, width=1_000, crashes=True) > 0


def wide(*numbers, time=0):
    return [{"k": "k" * 2_000, "t": time, "i": number} for number in numbers]


@pytest.mark.parametrize("at_limit", SHED)
def test_what_is_shed_leaves_the_files_and_nothing_is_shed_for_it_again(at_limit):
    """Much more than the limit comes at once; then ticks without rows, and ticks with a few."""
    store, plan = MemoryStore(), plan_shedding_join("FULL", at_limit, limits=LIMIT)
    rows = [row | {"k": f"{i % 40} {'k' * 2_000}", "t": i // 10} for i, row in enumerate(wide(*range(400)))]
    first = LocalJob(plan, store, partitions=3)
    output = first.tick(arriving(l=rows[:300], r=rows[300:]))
    assert 300 < len(output.shed) < 400
    assert measure_retained_bytes(first) <= MOST
    assert sum(nbytes for nbytes, _, _ in files_of(first)) > 2 * MOST, "the files are as they were"
    for number in range(4):
        job = LocalJob(plan, store, partitions=2)
        more = len(
            job.tick({}).shed
        )  # files that are written anew have heads of their own: of one key, or time
        assert not more or (number == 0 and more <= 10)
        assert sum(nbytes for nbytes, _, _ in files_of(job)) <= 1.2 * MOST
    for number in range(30):
        job = LocalJob(plan, store, partitions=2)
        output = job.tick(arriving(l=wide(1_000 + number, time=40), r=[]))
        assert at_limit == "shed_heaviest" or len(output.shed) <= 20  # of one time, all
        assert measure_retained_bytes(job) <= MOST


@pytest.mark.parametrize("at_limit", at_effort(quick=["shed_heaviest"], full=SHED))
def test_files_exceed_the_byte_limit_by_at_most_a_fifth(at_limit, seed):
    """Whatever comes, and goes by limits or by shedding: what has gone by the last tick is cleared away in
    this one, but for a fifth of what may be kept."""
    random, store, plan = (
        np.random.default_rng(seed),
        MemoryStore(),
        plan_shedding_join("LEFT", at_limit, limits=LIMIT),
    )
    number, cleared = 0, 0
    for tick in range(40):
        rows = {"l": [], "r": []}
        for own in rows.values():
            for _ in range(int(random.choice([0, 5, 30]))):
                number += 1
                key = f"{int(random.zipf(1.5)) % 7} {'x' * int(random.integers(0, 6_000))}"
                own.append({"k": key, "t": tick + int(random.integers(0, 9)), "i": number})
        job = LocalJob(plan, store, partitions=int(random.integers(1, 4)))
        job.tick(arriving(**rows))
        assert measure_retained_bytes(job) <= MOST, tick
        job.tick({})
        held = sum(nbytes for nbytes, _, _ in files_of(job))
        assert held <= 1.2 * MOST, tick
        cleared += held > MOST
    assert number > 500
    assert cleared, "files never had rows that are gone, beside as many as may be kept"


def test_a_limit_that_no_row_fits_into_sheds_all(seed):
    """A file has some bytes whatever is in it. The job goes on."""
    job = LocalJob(plan_shedding_join("LEFT", "shed_oldest", limits="SET max_bytes = 1;"), MemoryStore())
    output = job.tick(arriving(l=wide(1, 2), r=wide(3)))
    assert shed_in(output.shed) == [("l", 1), ("l", 2), ("r", 3)]
    assert output.rows["q"] == [{"li": 1, "ri": 3}, {"li": 2, "ri": 3}]
    assert not files_of(job)
