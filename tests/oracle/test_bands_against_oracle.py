"""The in-process engine and the nested-loop oracle agree on joins with bands over every ordered type.

In half of the cases every task sorts by whatever index it likes for its look-ups, and new runs are sorted by
another one in every tick: rows, pads, watermarks and state do not depend on it.
"""

from __future__ import annotations

import random

import pytest

from tests.oracle.test_engine_against_oracle import PARTITIONS, check
from tests.support.effort import at_effort
from tests.support.random_cases import random_case
from watersmeet.runtime.coordinator import merge_policy, retained_runs
from watersmeet.runtime.operators import ranges

CASES = at_effort(quick=12, full=144)
CHUNKS = 4
KINDS = ("INNER", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI")


@pytest.fixture(params=["by its own choice", "by any"])
def choosing(request, monkeypatch):
    """How indexes are chosen: for so few rows too, or at random."""
    monkeypatch.setattr(ranges, "MIN_ESTIMATED_PAIRS", 0)
    monkeypatch.setattr(retained_runs, "MIN_CANDIDATE_DIFFERENCE", 0)
    monkeypatch.setattr(ranges, "SORTING", 0)
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)
    if request.param == "by any":
        rng = random.Random(7)

        def any_index(layout, index, before, reports):
            names = [each.name for each in layout.indexes]
            return (rng.choice(names) if names else None), {}

        monkeypatch.setattr(retained_runs, "next_index", any_index)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_engine_agrees_on_bands(seed, chunk, choosing):
    first = seed + 3 * 10**6
    for number in range(first + chunk, first + CASES * 5 // 6, CHUNKS):
        kind = KINDS[number // CHUNKS % len(KINDS)]
        case = random_case(
            number, bands=True, kind=kind, shape="plain" if "SEMI" in kind or "ANTI" in kind else None
        )
        check(case, PARTITIONS[number // 3 % len(PARTITIONS)], "borders" if number % 2 else None)


def test_engine_agrees_on_bands_of_changes(seed, choosing):
    first = seed + 4 * 10**6
    for number in range(first, first + CASES // 6):
        check(random_case(number, bands=True, changes=True), PARTITIONS[number % len(PARTITIONS)], None)
