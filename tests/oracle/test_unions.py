"""UNION ALL of joins: the in-process engine and the nested-loop oracle agree on random cases.

Branches that join and branches that do not, beneath and above joins, one within the other; streams and
partitions that are idle, and rows of a branch that was idle and comes back; other task counts, restarts.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.oracle.test_engine_against_oracle import run_chunk
from watersmeet.testing.oracle import run_case, run_case_with_account
from watersmeet.testing.random_unions import random_union_case

CASES = int(os.environ.get("WATERSMEET_RANDOM_CASES", "1840")) // 5
CHUNKS = 8


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_engine_agrees_on_unions(seed: int, chunk: int) -> None:
    run_chunk(range(seed + chunk, seed + CASES, CHUNKS), random_union_case)


def test_what_is_drawn(seed: int) -> None:
    """The draws reach what they are for; else agreement would say little."""
    seen: Counter[str] = Counter()
    for number in range(seed, seed + 120):
        case = random_union_case(number)
        lines, account = run_case_with_account(case)
        seen["refused"] += "step" not in lines[0]
        rows = sum(len(line.get("rows", ())) for line in lines)
        seen["rows"] += rows > 3
        unions = {alias for alias in account if any(other.startswith(f"{alias}.") for other in account)}
        seen["late of a branch"] += any(account[alias]["late"] for alias in unions)
        seen["in a branch"] += any(account[alias]["in"] for alias in unions)
        seen["retained of a union"] += any(
            line.get("state", {}).get(alias) for line in lines for alias in unions
        )
        seen["union in a union"] += any("." in alias for alias in unions)
        seen["watermark of a union"] += any(
            key.rsplit(".", 1)[0] in unions for line in lines for key in line.get("watermarks", {})
        )
    assert seen["refused"] < 30, seen
    assert all(seen[what] > 4 for what in seen if what != "refused"), seen


def test_account_adds_up(seed: int) -> None:
    for number in range(seed, seed + 60):
        for counts in run_case_with_account(random_union_case(number))[1].values():
            assert counts["in"] == sum(n for what, n in counts.items() if what not in ("in", "not_there"))


__all__ = ["run_case"]
