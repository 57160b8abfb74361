"""Inner joins in another order than the query's, in stages too: the rows are those of the oracle, which joins
as the query is written.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.oracle.test_engine_against_oracle import PARTITIONS, check
from tests.support.effort import at_effort
from tests.support.oracle.case import run_case_with_account
from tests.support.oracle.windowed import run_windowed_case
from tests.support.random_orders import random_order_case
from watersmeet.parser.case_file import case_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local import replay_case
from watersmeet.testing.cases import row_multiset

CASES = at_effort(quick=8, full=80)
CHUNKS = 4


def run_oracle(case: dict[str, Any]) -> list[dict[str, Any]]:
    return run_windowed_case(case) if case["windowed"] else run_case_with_account(case)[0]


def disagreements(case: dict[str, Any], partitions: int, hash_seed: str | None) -> list[str]:
    """Rows of every step, of windows those of all steps, that are not the oracle's."""
    if not case["steps"]:
        return []
    got, want = replay_case(case, partitions=partitions, hash_seed=hash_seed), run_oracle(case)
    if "step" not in want[0] or "step" not in got[0]:
        return [] if "step" not in want[0] and "step" not in got[0] else [f"{want[0]}\n{got[0]}"]
    assert not any(line.get("late") for line in want)
    found, wanted = (
        [row_multiset(line.get("rows", []), changelog=False) for line in lines] for lines in (got, want)
    )
    if case["windowed"]:
        found, wanted = ([sum(rows, Counter())] for rows in (found, wanted))
    return [
        f"step {step}: {json.dumps(str(own))}, expected {json.dumps(str(rows))}"
        for step, (own, rows) in enumerate(zip(found, wanted, strict=True))
        if own != rows
    ]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_engine_agrees_on_queries_in_another_order(seed: int, chunk: int) -> None:
    for number in range(seed + chunk, seed + CASES, CHUNKS):
        case = random_order_case(number)
        check(
            case,
            PARTITIONS[(number // 2) % len(PARTITIONS)],
            "borders" if number % 2 else None,
            disagreements,
        )


@pytest.mark.full
def test_random_cases_cover_each_kind(seed: int) -> None:
    """Without these kinds, agreement proves little."""
    seen: Counter[str] = Counter()
    for number in range(seed, seed + 40):
        case = random_order_case(number)
        (query,) = plan_job(case_job(case)).queries
        stages = [order for order in query.reordered if all("." in alias for alias in order)]
        seen["in a stage"] += bool(stages)
        seen["in two stages"] += len(stages) > 1
        seen["of the query"] += len(stages) < len(query.reordered)
        seen["not at all"] += not query.reordered
        lines = run_oracle(case)
        seen["rows"] += sum(len(line.get("rows", ())) for line in lines) > 3
        seen["rows of windows"] += case["windowed"] and any(line.get("rows") for line in lines)
    assert seen["not at all"] < 6, seen
    assert all(seen[what] > 2 for what in seen if what != "not at all"), seen
