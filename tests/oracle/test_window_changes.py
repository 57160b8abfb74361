"""Windows over streams of changes: the engine puts out in every step what the oracle does.

The oracle keeps rows in a list and computes all open windows anew, before a tick's changes and after.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.oracle.test_engine_against_oracle import check, differences
from tests.support.effort import at_effort
from tests.support.oracle.windowed import run_windowed_case
from tests.support.random_window_changes import random_changing_sessions, random_changing_windows
from watersmeet.runtime.local import replay_case
from watersmeet.testing.cases import compare_step

CASES = at_effort(quick=4, full=120)
CHUNKS = at_effort(quick=1, full=6)
PARTITIONS = (1, 2, 3, 7)


def disagreements(case: dict[str, Any], partitions: int, hash_seed: str | None) -> list[str]:
    if not case["steps"]:
        return []
    wanted = [_normalize_line(line) for line in run_windowed_case(case)]
    got = [_normalize_line(line) for line in replay_case(case, partitions=partitions, hash_seed=hash_seed)]
    return differences(case, wanted, got, compare_step)


def _normalize_line(line: dict[str, Any]) -> dict[str, Any]:
    """Late rows once; of streams of changes more is kept than what is in windows."""
    late = {json.dumps(row, sort_keys=True): row for row in line.get("late", ())}
    return {name: value for name, value in line.items() if name != "state"} | {"late": list(late.values())}


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_engine_agrees(seed: int, chunk: int) -> None:
    for number in range(seed + chunk, seed + CASES, CHUNKS):
        partitions = PARTITIONS[(number // 2) % len(PARTITIONS)]
        check(random_changing_windows(number), partitions, "borders" if number % 2 else None, disagreements)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_engine_agrees_on_final_rows(seed: int, chunk: int) -> None:
    for number in range(seed + chunk, seed + CASES, CHUNKS):
        partitions = PARTITIONS[(number // 2) % len(PARTITIONS)]
        final = _final(random_changing_windows(number))
        check(final, partitions, "borders" if number % 2 else None, disagreements)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_engine_agrees_on_sessions(seed: int, chunk: int) -> None:
    for number in range(seed + chunk, seed + CASES, CHUNKS):
        partitions = PARTITIONS[(number // 2) % len(PARTITIONS)]
        case = random_changing_sessions(number)
        for each in (case, _final(case)):
            check(each, partitions, "borders" if number % 2 else None, disagreements)


def _final(case: dict[str, Any]) -> dict[str, Any]:
    """The same case, of which final rows are asked."""
    return {
        **case,
        "case": f"final-{case['case']}",
        "options": {**case["options"], "output_mode": "append"},
    }
