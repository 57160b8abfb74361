"""Delta joins: at every tick the sums of all diffs are the join of what the inputs hold then.

DuckDB joins tables anew after every tick, the nested-loop oracle says it of streams, also in append mode;
runs are merged all the time, so that look-ups meet them in the tick in which they are.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.oracle.test_changes_against_duckdb import problems
from tests.oracle.test_engine_against_oracle import check
from tests.support.duckdb_batch import connect_duckdb
from tests.support.effort import at_effort
from tests.support.random_multiway import random_multiway_case
from watersmeet.errors import WatersmeetError
from watersmeet.parser.case_file import case_job
from watersmeet.plan.model.nodes import ArrangePlan
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator import merge_policy

CASES = at_effort(quick=32, full=1840)
CHUNKS = at_effort(quick=1, full=4)
PARTITIONS = (1, 2, 3, 7)


@pytest.fixture(autouse=True)
def merging(monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)


def drawn(number: int, **profile: Any) -> dict[str, Any] | None:
    """A case of three to five inputs that is run as a delta join; None: it is not."""
    rng = random.Random(number)
    kinds = rng.choice([["INNER"], ["INNER"], ["INNER", "INNER", "LEFT"]])
    case = random_multiway_case(
        number, inputs=rng.choice([3, 3, 4, 5]), plan="delta", kinds=kinds, semi=False, **profile
    )
    case["options"].pop("max_rows", None)
    try:
        plan = plan_job(case_job(case))
    except WatersmeetError:  # what is refused is for other tests
        return None
    return case if plan.queries[0].every(ArrangePlan) else None


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_sums_of_changes_are_the_join_of_the_tables(seed: int, chunk: int) -> None:
    connection, compared = connect_duckdb(), 0
    first = seed + 10**7
    for number in range(first + chunk, first + CASES // 8, CHUNKS):
        case = drawn(number, changes=True, tables=True)
        if case is None:
            continue
        found = problems(case, PARTITIONS[number // CHUNKS % len(PARTITIONS)], connection)
        compared += found is not None
        assert not found, (found, json.dumps(case))
    connection.close()
    assert compared > CASES // CHUNKS // 24


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_rows_of_streams_are_those_of_the_oracle(seed: int, chunk: int, changes: bool) -> None:
    """Rows that go when no other stream can bring a partner; deletes, late rows, restarts."""
    compared, first = 0, seed + 2 * 10**7
    for number in range(first + chunk, first + CASES // 12, CHUNKS):
        case = drawn(number, changes=changes, tables=False)
        if case is not None:
            compared += 1
            check(case, PARTITIONS[number // CHUNKS % len(PARTITIONS)], "borders" if number % 2 else None)
    assert compared > CASES // CHUNKS // 36
