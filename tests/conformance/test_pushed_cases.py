"""Every case file by pushes of Arrow tables, in any form that Arrow has for its values: the same rows, late
rows, watermarks and state; and random cases, which rows as mappings and pushed ones have to agree on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.case_files import all_cases
from tests.support.effort import at_effort
from tests.support.pushed import replay_pushed
from tests.support.random_cases import random_case
from tests.support.random_multiway import random_multiway_case
from watersmeet.runtime.local import replay_case
from watersmeet.testing.cases import check_case, compare_step

RANDOM = at_effort(quick=2, full=60)
CASES = all_cases(peers=False)


@pytest.mark.parametrize("partitions", [1, pytest.param(3, marks=pytest.mark.full)])
@pytest.mark.parametrize("case", at_effort(quick=CASES[::2], full=CASES))
def test_case(case: dict[str, Any], partitions: int) -> None:
    seed = sum(case["case"].encode()) + partitions
    assert check_case(case, replay_pushed(case, partitions, seed)) == []


@pytest.mark.parametrize("draw", [random_case, random_multiway_case])
@pytest.mark.parametrize("changes", [False, True])
def test_random_cases(draw: Any, changes: bool, seed: int) -> None:
    played = 0
    for number in range(seed, seed + RANDOM):
        case = draw(number, changes=changes)
        want = replay_case(case, partitions=number % 3 + 1)
        got = replay_pushed(case, number % 3 + 1, number)
        problems = [] if len(want) == len(got) else [f"{len(got)} steps, not {len(want)}"]
        for line, expected in zip(got, want, strict=False):
            if "step" in expected:
                problems += compare_step(case, expected["step"], _once(line), _once(expected))
                played += 1
            elif line != expected:
                problems.append(f"{line} is not {expected}")
        assert not problems, "\n".join([f"seed {number}", json.dumps(case), *problems])
    assert played


def _once(line: dict[str, Any]) -> dict[str, Any]:
    """Equal late rows once: how often for a diff of 2 is unsaid."""
    if "late" not in line:
        return line
    as_text = (json.dumps(item, sort_keys=True).replace("-0.0", "0.0") for item in line["late"])
    return {**line, "late": list(dict(zip(as_text, line["late"], strict=True)).values())}
