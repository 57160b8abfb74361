"""The planner and the oracle read the same bounds out of random conditions, and refuse the same queries."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.effort import at_effort
from tests.support.oracle.case import Refused
from tests.support.oracle.query import read_query
from tests.support.random_cases import random_case
from watersmeet.errors import WatersmeetError
from watersmeet.parser.case_file import case_job
from watersmeet.plan.planner import plan_job

CASES = at_effort(quick=40, full=400)


def oracles_bounds(case: dict[str, Any]) -> Any:
    try:
        return {(".".join(a), ".".join(b)): c for (a, b), c in read_query(case).bounds.items()}
    except Refused:
        return "refused"


def planned_bounds(case: dict[str, Any]) -> Any:
    try:
        join = plan_job(case_job(case)).queries[0].root
    except WatersmeetError:
        return "refused"
    return {(bound.evicted, bound.by): bound.c for bound in join.bounds}


@pytest.mark.parametrize(
    "profile",
    [{}, {"changes": True, "tables": False}, {"changes": True, "tables": True}],
    ids=["streams", "streams-with-deletes", "tables"],
)
def test_same_bounds(seed: int, profile: dict[str, Any]) -> None:
    for number in range(seed, seed + CASES):
        case = random_case(number, **profile)
        assert planned_bounds(case) == oracles_bounds(case), f"random_case({number}): {case['query']}"
