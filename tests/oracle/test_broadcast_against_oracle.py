"""The in-process engine agrees with the oracle, which knows nothing of hints, on joins with BROADCAST.

Random joins of two to four inputs, of all kinds, with bands or without, some over UNION ALLs of joins, while
runs are merged all the time. The account of every input is that of one task without a hint, too.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle.test_engine_against_oracle import check, disagreements
from tests.support.effort import at_effort
from tests.support.random_cases import random_case
from tests.support.random_hints import add_random_hint
from tests.support.random_multiway import random_multiway_case
from tests.support.random_unions import random_union_case
from tests.support.split_keys import settle_without_asking
from watersmeet.runtime.coordinator import merge_policy, retained_runs
from watersmeet.runtime.local import replay
from watersmeet.runtime.operators import broadcast, join
from watersmeet.state.manifest import load_newest
from watersmeet.state.store import MemoryStore

CASES = at_effort(quick=12, full=120)
CHUNKS = 3
PARTITIONS = (2, 3, 7, 1)
KINDS = ("INNER", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI")


@pytest.fixture(autouse=True)
def merging(monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)


def draw(number: int) -> dict[str, Any]:
    if number % 3 == 2:
        return random_union_case(number) if number % 4 == 3 else random_multiway_case(number)
    kind = KINDS[number // 3 % len(KINDS)]
    shape = "plain" if kind in ("LEFT SEMI", "LEFT ANTI") else None
    return random_case(number, bands=number % 2 == 0, kind=kind, shape=shape)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_engine_agrees_with_one_side_whole(seed, chunk):
    first = seed + 9 * 10**6
    for number in range(first + chunk, first + CASES, CHUNKS):
        case = add_random_hint(draw(number), number)
        if case is not None:
            check(case, PARTITIONS[number // 2 % len(PARTITIONS)], "borders" if number % 2 else None)


def test_the_account_is_that_of_one_task(seed, monkeypatch):
    first = seed + 10**7
    for number in range(first, first + CASES // 5):
        plain = draw(number)
        plain["steps"] = [step for step in plain["steps"] if "rescale" not in step]
        case = add_random_hint(plain, number)
        if case is not None:
            accounts = []
            for each, partitions in ((plain, 1), (case, 3)):
                store = MemoryStore()
                monkeypatch.setattr(replay, "MemoryStore", lambda store=store: store)
                replay.replay_case(each, partitions)
                manifest = load_newest(store)
                accounts.append(None if manifest is None else manifest.queries["q"].account)
            assert accounts[0] == accounts[1], case


LEFT_OF_TWO = {
    "case": "matches-in-other-tasks",
    "streams": {
        name: {"columns": {"t": "BIGINT", "k": "STRING"}, "time": {"t": {"lag": lag}}}
        for name, lag in (("x", 0), ("o", 100))
    },
    "query": "SELECT /*+ BROADCAST(x) */ x.t, o.t AS ot FROM x LEFT JOIN o"
    " ON o.k = x.k AND o.t BETWEEN x.t AND x.t + 9",
    "steps": [
        {"rows": [["x", {"t": 10 * n, "k": "a"}] for n in range(4)]},
        {"rows": [["o", {"t": 11, "k": "a"}]]},  # the next tick's first task marks rows around that
        {"rows": [["o", {"t": t, "k": "a"}] for t in (1, 21, 22, 23, 24, 25)]},
        {"rows": [["o", {"t": 31, "k": "a"}], ["x", {"t": 71, "k": "b"}], ["o", {"t": 999, "k": "b"}]]},
    ],
}


@pytest.mark.full
@pytest.mark.parametrize("broken", [None, "marks are not united", "owners do not ask"])
def test_planted_bug_is_found(broken, monkeypatch):
    if broken == "marks are not united":
        settle = broadcast.settle_broadcast_marks

        def as_if_alone(shape, share, side, *more):
            settle(shape, share, side, *more)
            share.report.side(side).together = False

        monkeypatch.setattr(join, "settle_broadcast_marks", as_if_alone)
        monkeypatch.setattr(retained_runs, "overlap", lambda of_tick: False)
    if broken == "owners do not ask":
        monkeypatch.setattr(join, "settle_broadcast_marks", settle_without_asking)
    assert bool(disagreements(LEFT_OF_TWO, 3, None)) == (broken is not None)
