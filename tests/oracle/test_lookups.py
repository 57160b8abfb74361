"""The in-process engine and the oracle agree on random joins with tables as of the tick."""

from __future__ import annotations

import pytest

from tests.oracle.test_engine_against_oracle import PARTITIONS, check, disagreements
from tests.support.effort import at_effort
from tests.support.oracle.case import run_case, run_case_with_account
from tests.support.random_lookups import random_lookup_case
from watersmeet.runtime.values import InMemoryTables

CASES = at_effort(quick=18, full=402)
CHUNKS = 6


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_engine_agrees_on_tables(seed, chunk):
    for number in range(seed + chunk, seed + CASES, CHUNKS):
        check(
            random_lookup_case(number),
            PARTITIONS[number % len(PARTITIONS)],
            "borders" if number % 2 else None,
        )


@pytest.mark.full
def test_most_random_cases_return_rows(seed):
    """Most are run, find something, and are told by the oracle without a failure."""
    outputs = [run_case(random_lookup_case(number)) for number in range(seed, seed + 60)]
    assert sum("error" in lines[-1] for lines in outputs) < 25
    assert sum(any(line.get("rows") for line in lines) for lines in outputs) > 20


@pytest.mark.full
def test_account_of_the_oracle_adds_up(seed):
    for number in range(seed, seed + 60):
        for counts in run_case_with_account(random_lookup_case(number))[1].values():
            assert counts["in"] == sum(
                rows for what, rows in counts.items() if what not in ("in", "not_there")
            )


@pytest.mark.full
def test_stale_copy_of_a_table_is_found(seed, monkeypatch):
    """An engine that never reads a table twice does otherwise than the oracle."""
    monkeypatch.setattr(InMemoryTables, "version", lambda self, source: "always")
    assert any(disagreements(random_lookup_case(number), 2, None) for number in range(seed, seed + 60))
