"""Laws of shedding at max_rows_per_key, against a plain join: as `test_shedding`, where the rows that go are
those of keys with more rows on a side than they may have there, before the ones that ``max_rows`` takes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.effort import at_effort
from tests.support.shed_joins import MOST, Plain, check, plan_shedding_join, shed_in
from tests.support.split_keys import split_every_key
from tests.support.ticks import arriving
from watersmeet.errors import EngineError
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.coordinator.run_context import TickSettings
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

SHED = ["shed_oldest", "shed_heaviest"]
PER_KEY = "SET max_rows_per_key = 4;"


def by_keys(at_limit):
    def judge(plain, shed):
        assert shed == plain.crowding(at_limit, 4)

    return judge


@pytest.mark.parametrize("at_limit", at_effort(quick=["shed_oldest"], full=SHED))
@pytest.mark.parametrize(
    "kind", at_effort(quick=["FULL"], full=["INNER", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI"])
)
def test_rows_are_those_of_the_join_without_shed_rows(kind, at_limit, seed, monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    plan = plan_shedding_join(kind, at_limit, limits=PER_KEY)
    assert check(plan, Plain(kind, True), at_limit, seed, judge=by_keys(at_limit)) > 0


@pytest.mark.parametrize("at_limit", at_effort(quick=["shed_heaviest"], full=SHED))
@pytest.mark.parametrize("kind", at_effort(quick=["LEFT ANTI"], full=["LEFT", "LEFT ANTI"]))
def test_with_crashes_and_split_keys(kind, at_limit, seed, monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    split_every_key(monkeypatch)
    plan = plan_shedding_join(kind, at_limit, limits=PER_KEY)
    assert check(plan, Plain(kind, True), at_limit, seed, judge=by_keys(at_limit), crashes=True) > 0


@pytest.mark.parametrize("at_limit", SHED)
def test_and_then_at_max_rows(at_limit, seed, monkeypatch):
    """Of what the keys leave, as many rows as a join may keep."""
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    most, both = MOST - 3, []

    def judge(plain, shed):
        crowding = plain.crowding(at_limit, 4)
        assert crowding <= shed
        rest = Plain(plain.kind, True)
        rest.kept = {name: list(own) for name, own in plain.kept.items()}
        rest.shed(crowding)
        if at_limit == "shed_oldest":
            assert shed - crowding == rest.oldest(most)
        else:
            rest.check_heaviest(shed - crowding, most)
        both.append(bool(crowding) and bool(shed - crowding))

    plan = plan_shedding_join("FULL", at_limit, limits=f"{PER_KEY} SET max_rows = {most};")
    assert check(plan, Plain("FULL", True), at_limit, seed, judge=judge) > 0
    assert any(both), "no tick came to both limits"


@pytest.mark.parametrize("at_limit", SHED)
def test_keys_in_one_hash_bucket_are_limited_separately(at_limit):
    """All keys in one place of the hash space: together they are more than the limit, one of them alone."""
    job = LocalJob(
        plan_shedding_join("LEFT", at_limit, limits=PER_KEY),
        MemoryStore(),
        partitions=2,
        settings=TickSettings(placing=np.zeros_like),
    )
    rows = [{"k": f"k{key}", "t": time, "i": 10 * key + time} for key in range(5) for time in range(3)]
    output = job.tick(arriving(l=rows, r=[]))
    assert not output.shed
    more = [{"k": "k3", "t": time, "i": 30 + time} for time in (3, 4)]
    output = job.tick(arriving(l=more, r=[]))
    gone = [30] if at_limit == "shed_oldest" else [30, 31, 32, 33, 34]
    assert shed_in(output.shed) == [("l", number) for number in gone]
    assert output.result.queries["q"].state["l"] == 17 - len(gone)


@pytest.mark.parametrize("at_limit", SHED)
def test_after_the_limit_was_lowered_a_key_is_looked_at_when_a_row_of_it_comes(at_limit):
    store = MemoryStore()
    rows = [{"k": key, "t": time, "i": 10 * time + int(key)} for key in "12" for time in range(9)]
    LocalJob(plan_shedding_join("LEFT", at_limit, limits="SET max_rows_per_key = 9;"), store).tick(
        arriving(l=rows, r=[])
    )
    job = LocalJob(plan_shedding_join("LEFT", at_limit, limits=PER_KEY), store, partitions=2)
    assert not job.tick(arriving(l=[{"k": "3", "t": 8, "i": 83}], r=[])).shed
    output = job.tick(arriving(l=[{"k": "2", "t": 9, "i": 92}], r=[]))
    gone = [10 * time + 2 for time in (range(6) if at_limit == "shed_oldest" else range(10))]
    assert shed_in(output.shed) == [("l", number) for number in gone]
    check_account_of(output)


def check_account_of(output):
    counts = output.result.queries["q"].account["l"]
    assert counts["in"] == counts["retained"] + counts["shed"]


@pytest.mark.parametrize("at_limit", SHED)
def test_what_pairs_of_such_a_tick_may_come_to_is_for_another_limit(at_limit):
    """They are all put out, unless that is more than max_output_rows_per_tick."""
    rows = [{"k": "k", "t": 1, "i": number} for number in range(1, 31)]
    job = LocalJob(plan_shedding_join("INNER", at_limit, limits=PER_KEY), MemoryStore())
    assert len(job.tick(arriving(l=rows, r=rows)).rows["q"]) == 900
    limits = f"{PER_KEY} SET max_output_rows_per_tick = 899;"
    job = LocalJob(plan_shedding_join("INNER", at_limit, limits=limits), MemoryStore())
    with pytest.raises(EngineError) as raised:
        job.tick(arriving(l=rows, r=rows))
    assert raised.value.code == "max-output"
    assert job.driver.tick == 0


def test_what_it_costs_goes_by_rows_of_such_keys(monkeypatch):
    """No run is opened by the driver where no limit is come to, and none is looked through."""
    from watersmeet.runtime.coordinator import load_shedding

    limits = f"{PER_KEY} SET max_rows = 100; SET max_job_rows = 100;"
    job = LocalJob(plan_shedding_join("LEFT", "shed_oldest", limits=limits), MemoryStore())
    monkeypatch.setattr(load_shedding, "RetainedRun", None)
    output = job.tick(arriving(l=[{"k": f"k{i}", "t": 1, "i": i} for i in range(100)], r=[]))
    assert output.result.queries["q"].state["l"] == 100
