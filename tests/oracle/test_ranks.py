"""The first rows of partitions: at every tick the sum of all diffs is what ROW_NUMBER makes of the contents.

Two judges that share no code: DuckDB, and the oracle, which sorts the whole bag anew after every step.
"""

from __future__ import annotations

import json

import pytest

from tests.oracle.test_groups_against_duckdb import problems
from tests.support.effort import at_effort
from tests.support.oracle.ranked import run_ranked_case
from tests.support.random_ranks import random_rank_case, random_rank_query
from watersmeet.runtime.local import replay_case
from watersmeet.testing.cases import row_multiset

CASES = at_effort(quick=2, full=32)
CHUNKS = at_effort(quick=2, full=4)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_sums_of_changes_are_the_first_rows(seed: int, chunk: int) -> None:
    """Over joins, unions, groups; joined and grouped above; every tick in another number of partitions, in a
    job that begins anew, and repeated."""
    for number in range(seed + chunk, seed + CASES, CHUNKS):
        case = random_rank_query(number)
        found = problems(case, ((1, 2), (3, 7), (2, 5))[number % 3])
        assert not found, (number, found, case.query)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_step_puts_out_what_the_oracle_does(seed: int, chunk: int) -> None:
    """Not only the sums: nothing that stays goes out."""
    for number in range(seed + chunk, seed + CASES, CHUNKS):
        case = random_rank_case(number)
        wanted = [row_multiset(line["rows"], changelog=True) for line in run_ranked_case(case)]
        lines = replay_case(case, partitions=(1, 2, 3)[number % 3])
        found = [row_multiset(line["rows"], changelog=True) for line in lines]
        assert found == wanted, (number, json.dumps(case))
