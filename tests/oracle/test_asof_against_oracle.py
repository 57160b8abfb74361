"""Random ASOF joins, alone and among other joins: the in-process engine against the oracle.

As `test_engine_against_oracle`: rows, late rows, watermarks and state of every step, on 1 to 10 tasks, keys
pushed to the borders of tasks in every other case.
"""

from __future__ import annotations

import pytest

from tests.oracle.test_engine_against_oracle import CASES, run_chunk
from tests.support.oracle.case import run_case_with_account
from tests.support.random_multiway import random_multiway_case

HERE = CASES // 12
CHUNKS = 4


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_engine_agrees_on_asof_joins(seed: int, chunk: int) -> None:
    first = seed + 2 * 10**6
    run_chunk(range(first + chunk, first + HERE, CHUNKS), random_multiway_case, asof=True)


@pytest.mark.full
def test_random_cases_cover_each_kind(seed: int) -> None:
    """Both kinds and both directions, with rows found, rows padded, and refusals, but not too many."""
    refused = found = padded = 0
    queries = []
    for number in range(seed, seed + 60):
        case = random_multiway_case(number, asof=True, inputs=2)
        queries.append(case["query"])
        lines, account = run_case_with_account(case)
        refused += "step" not in lines[0]
        if account:
            left = next(iter(account.values()))
            found, padded = found + left["matched"], padded + left["padded"]
    assert all("ASOF" in query for query in queries)
    assert any("MATCH_CONDITION" not in query for query in queries)
    assert refused < 10
    assert found > 200
    assert padded > 100
