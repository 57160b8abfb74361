"""The nested-loop oracle agrees with an engine that merges all its runs in every tick."""

from __future__ import annotations

import pytest

from tests.oracle.test_engine_against_oracle import PARTITIONS, check
from tests.oracle.test_windows_against_oracle import disagreements
from tests.support.effort import at_effort
from tests.support.random_cases import random_case
from tests.support.random_multiway import random_multiway_case
from tests.support.random_windows import random_window_case
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.tasks import merge

CASES = at_effort(quick=24, full=600)
CHUNKS = 4


@pytest.mark.parametrize("group_rows", [10**9, 6])
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_merging_engine_agrees(seed, chunk, group_rows, monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)
    monkeypatch.setattr(merge_policy, "SMALL_ROWS", 10**9)
    monkeypatch.setattr(merge, "GROUP_ROWS", group_rows)
    for number in range(seed + 2 * 10**6 + chunk, seed + 2 * 10**6 + CASES // 2, CHUNKS):
        many = number // CHUNKS % 3 == 1
        case = random_case(number, changes=number % 3 == 0)
        if many:
            case = random_multiway_case(number, asof=number % 2 == 0)
        check(case, PARTITIONS[number % len(PARTITIONS)], "borders" if number % 2 else None)


@pytest.mark.parametrize("group_rows", [10**9, 3])
def test_merging_windows_agree(seed, group_rows, monkeypatch):
    """Of partial aggregates, too: those of one pane and group are combined in every tick, in parts."""
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)
    monkeypatch.setattr(merge_policy, "COMBINING_FAN_IN", 2)
    monkeypatch.setattr(merge_policy, "SMALL_ROWS", 10**9)
    monkeypatch.setattr(merge, "GROUP_ROWS", group_rows)
    for number in range(seed + 3 * 10**6, seed + 3 * 10**6 + CASES // 6):
        placing = "borders" if number % 3 == 1 else None
        check(random_window_case(number), PARTITIONS[number % len(PARTITIONS)], placing, disagreements)
