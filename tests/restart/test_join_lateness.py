"""A join by the rule ``lateness = join``, killed anywhere and opened again, goes on as if nothing had
happened; and what may change of the rule between two runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.restart.test_restart import FailingStore, Killed, what_comes_out
from tests.support.effort import at_effort
from tests.support.phases import PHASES, replace_phase
from tests.support.ticks import QUERY, Rows, arriving, bag, check_account, plan_of, stream
from watersmeet.errors import StateError
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

ON = "l.k = r.k AND r.t BETWEEN l.t - 2 AND l.t + 5"
FULL = f"SELECT l.i AS a, r.i AS b FROM l FULL JOIN r ON {ON}"
REOPEN = {"lateness": "join", "allowed_lateness": 4}


def row(number: int, time: int, key: str | None = "a") -> dict[str, Any]:
    return {"t": time, "k": key, "v": 1, "i": number}


def ticks() -> list[Rows]:
    """Reach 5: matches over ticks, a reopened row, pads that waited, a partner that has left, late rows."""
    return [
        arriving(l=[row(1, 20), row(2, 20, "b"), row(3, 21, None)], r=[row(1, 22)]),
        arriving(l=[row(4, 29)], r=[row(2, 29, "c")]),  # W 29, horizon 20
        arriving(r=[row(3, 21, "b"), row(4, 19)]),  # below W: reopens l 2; late
        arriving(),
        arriving(l=[row(5, 40)], r=[row(5, 31)]),  # W 31, horizon 22
        arriving(l=[row(6, 21), row(7, 22)], r=[row(6, 50, "b")]),  # late; meets r 1, that is still kept
        arriving(l=[row(8, 60)], r=[row(7, 61, "c")]),
    ]


def steps() -> list[tuple[Rows, bool]]:
    return [*((rows, False) for rows in ticks()), ({}, True)]


@pytest.fixture(autouse=True)
def merge_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)


@pytest.fixture(scope="module")
def plan() -> JobPlan:
    return plan_of(FULL, {"l": stream(), "r": stream()}, **REOPEN)


@pytest.fixture(scope="module")
def uninterrupted_output(plan: JobPlan) -> list[tuple[Any, ...]]:
    job = LocalJob(plan, MemoryStore(), partitions=2)
    return [what_comes_out(job.tick(rows, end=end)) for rows, end in steps()]


def test_the_run_that_is_interrupted_has_everything(uninterrupted_output: list[tuple[Any, ...]]) -> None:
    total: Counter[Any] = sum((found[0] for found in uninterrupted_output), Counter())
    assert {(1, 1), (2, 3), (7, 1), (3, None), (None, 2)} <= total.keys()
    assert set(total.values()) == {1}
    assert [late for _, late, *_ in uninterrupted_output if late] == [[("r", 4)], [("l", 6)]]


@pytest.mark.parametrize("phase", PHASES)
def test_killed_before_a_phase_of_every_tick(
    plan: JobPlan, uninterrupted_output: list[tuple[Any, ...]], phase: str
) -> None:
    store = MemoryStore()
    for number, (rows, end) in enumerate(steps()):
        job = LocalJob(plan, store, partitions=2)

        def kill_before_phase(*_: Any, **__: Any) -> None:
            raise Killed

        with replace_phase(phase, kill_before_phase), pytest.raises(Killed):
            job.tick(rows, end=end)
        output = LocalJob(plan, store, partitions=1 + number % 3).tick(rows, end=end)
        assert what_comes_out(output) == uninterrupted_output[number]
        check_account(output)


@pytest.mark.parametrize("done_first", [False, True])
def test_killed_at_every_single_change_of_the_store(
    plan: JobPlan, uninterrupted_output: list[tuple[Any, ...]], done_first: bool
) -> None:
    store, deaths, stride = FailingStore(), 0, at_effort(quick=3, full=1)
    for number, (rows, end) in enumerate(steps()):
        survived, change = False, 1 + number % stride
        while not survived:
            before = dict(store.contents)
            job = LocalJob(plan, store, partitions=2)
            store.left, store.done_first = change, done_first
            try:
                job.tick(rows, end=end)
                survived = True
            except Killed:
                deaths += 1
            store.left, store.done_first = 10**9, False
            again = LocalJob(plan, store, partitions=3)
            if again.driver.tick == number:  # not committed: the rows come again
                assert what_comes_out(again.tick(rows, end=end)) == uninterrupted_output[number]
            else:
                assert again.state[QUERY] == uninterrupted_output[number][3]
            if not survived:
                store.contents = before
                change += stride
    assert deaths * stride > 40


def test_the_rules_do_not_take_over_each_others_state(plan: JobPlan) -> None:
    store = MemoryStore()
    LocalJob(plan, store).tick(ticks()[0])
    by_column = plan_of(FULL)
    narrower = plan_of(FULL.replace("+ 5", "+ 4"), **REOPEN)
    for other in (by_column, narrower):
        with pytest.raises(StateError) as raised:
            LocalJob(other, store)
        assert raised.value.code == "changed-query"
        anew = LocalJob(other, store, change_queries=True)
        assert anew.state[QUERY] == {"l": 0, "r": 0}
        assert any('"q" starts over' in said for said in anew.driver.said)
    store = MemoryStore()
    LocalJob(by_column, store).tick(ticks()[0])
    with pytest.raises(StateError):
        LocalJob(plan, store)


@pytest.mark.parametrize(("then", "late"), [(50, [9]), (0, [8, 9])])
def test_another_allowed_lateness_goes_on(plan: JobPlan, then: int, late: list[int]) -> None:
    """More of it brings nothing back: the horizon stays at 20. With less it is at 24."""
    store = MemoryStore()
    job = LocalJob(plan, store)
    for rows in ticks()[:2]:
        job.tick(rows)
    other = plan_of(FULL, {"l": stream(), "r": stream()}, lateness="join", allowed_lateness=then)
    output = LocalJob(other, store).tick(arriving(l=[row(8, 21, "d"), row(9, 19, "d")]))
    assert sorted(late_row["i"] for _, late_row in output.late) == late
    check_account(output)
    assert (8, None) not in bag(output)
