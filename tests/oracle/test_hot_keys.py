"""The in-process engine agrees with the oracle, which knows nothing of tasks, while every key is split.

Random joins of two to four inputs, of all kinds, with bands or without, some over UNION ALLs of joins, while
runs are merged all the time, with numbers of tasks that change from step to step. The account of every input
is that of one task, too.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle.test_engine_against_oracle import check
from tests.support.effort import at_effort
from tests.support.random_cases import random_case
from tests.support.random_multiway import random_multiway_case
from tests.support.random_unions import random_union_case
from tests.support.split_keys import Splits, split_every_key
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.local import replay
from watersmeet.state.manifest import load_newest
from watersmeet.state.store import MemoryStore

CASES = at_effort(quick=9, full=180)
CHUNKS = 3
PARTITIONS = (2, 3, 7)
KINDS = ("INNER", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI")


@pytest.fixture(autouse=True)
def splits(monkeypatch) -> Splits:
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)
    return split_every_key(monkeypatch)


def draw(number: int) -> dict[str, Any]:
    if number % 3 == 2:
        return random_union_case(number) if number % 4 == 3 else random_multiway_case(number)
    kind = KINDS[number // 3 % len(KINDS)]
    shape = "plain" if kind in ("LEFT SEMI", "LEFT ANTI") else None
    return random_case(number, bands=number % 2 == 0, kind=kind, shape=shape)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_engine_agrees_with_every_key_split(seed, chunk, splits):
    first = seed + 12 * 10**6
    for number in range(first + chunk, first + CASES, CHUNKS):
        partitions = PARTITIONS[number // 2 % len(PARTITIONS)]
        check(draw(number), partitions, "borders" if number % 2 else None)
    assert splits.keys


def test_the_account_is_that_of_one_task(seed, monkeypatch):
    first = seed + 13 * 10**6
    for number in range(first, first + CASES // 3):
        case = draw(number)
        case["steps"] = [step for step in case["steps"] if "rescale" not in step]
        accounts = []
        for partitions in (1, 3):
            store = MemoryStore()
            monkeypatch.setattr(replay, "MemoryStore", lambda store=store: store)
            replay.replay_case(case, partitions)
            manifest = load_newest(store)
            accounts.append(None if manifest is None else manifest.queries["q"].account)
        assert accounts[0] == accounts[1], case
