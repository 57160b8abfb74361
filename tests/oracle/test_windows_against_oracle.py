"""The in-process engine and the plain oracle agree on random queries with windows.

Task counts 1, 2, 3 and 7, with and without key hashes pushed to the borders of the tasks. A failure prints a
shrunk case.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle.test_engine_against_oracle import check, differences
from tests.support.effort import at_effort
from tests.support.oracle.windowed import run_windowed_case
from tests.support.random_windows import random_window_case
from watersmeet.runtime.local import replay_case
from watersmeet.testing.cases import compare_step

CASES = at_effort(quick=20, full=400)
CHUNKS = 10
PARTITIONS = (1, 2, 3, 7)


def disagreements(case: dict[str, Any], partitions: int, hash_seed: str | None) -> list[str]:
    if not case["steps"]:
        return []
    want = run_windowed_case(case)
    got = replay_case(case, partitions=partitions, hash_seed=hash_seed)
    return differences(case, want, got, compare_step)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_engine_agrees(seed: int, chunk: int) -> None:
    for number in range(seed + chunk, seed + CASES, CHUNKS):
        partitions = PARTITIONS[(number // 2) % len(PARTITIONS)]
        check(random_window_case(number), partitions, "borders" if number % 2 else None, disagreements)
