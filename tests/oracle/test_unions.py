"""UNION ALL of joins: the in-process engine and the nested-loop oracle agree on random cases.

Branches that join and branches that do not, beneath and above joins, one within the other; streams and
partitions that are idle, and rows of a branch that was idle and comes back; other task counts, restarts.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.oracle.test_engine_against_oracle import run_chunk
from tests.support.effort import at_effort
from tests.support.oracle.case import run_case_with_account
from tests.support.random_unions import random_union_case
from watersmeet.observe.row_accounting import InputAccount
from watersmeet.runtime.local import replay_case
from watersmeet.trace.record import TickTrace
from watersmeet.trace.recorder import Tracer

CASES = at_effort(quick=4, full=76)
CHUNKS = 4


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_engine_agrees_on_unions(seed: int, chunk: int) -> None:
    run_chunk(range(seed + chunk, seed + CASES, CHUNKS), random_union_case)


@pytest.mark.parametrize("chunk", range(2))
def test_engine_agrees_on_unions_of_changes(seed: int, chunk: int) -> None:
    """Joins above UNION ALLs of joins, of streams and of tables with deletes."""
    first = seed + 10**6
    run_chunk(range(first + chunk, first + CASES, 2), random_union_case, changes=True)


@pytest.mark.full
def test_random_cases_cover_each_kind(seed: int) -> None:
    """Without these kinds, agreement proves little."""
    seen: Counter[str] = Counter()
    for number in range(seed, seed + 150):
        case = random_union_case(number)
        lines, account = run_case_with_account(case)
        seen["refused"] += "step" not in lines[0]
        rows = sum(len(line.get("rows", ())) for line in lines)
        seen["rows"] += rows > 3
        unions = {alias for alias in account if any(other.startswith(f"{alias}.") for other in account)}
        late = {item["stream"] for line in lines for item in line.get("late", ())}
        seen["late of a branch that joins"] += bool(late & unions)
        seen["in a branch"] += any(account[alias]["in"] for alias in unions)
        seen["retained of a union"] += any(
            line.get("state", {}).get(alias) for line in lines for alias in unions
        )
        seen["union in a union"] += any("." in alias for alias in unions)
        seen["watermark of a union"] += any(
            key.rsplit(".", 1)[0] in unions for line in lines for key in line.get("watermarks", {})
        )
    assert seen["refused"] < 30, seen
    assert all(seen[what] > 2 for what in seen if what != "refused"), seen


@pytest.mark.parametrize("changes", [False, True])
def test_accounts_agree_and_add_up(seed: int, changes: bool) -> None:
    """Every row of a source, and every row that a branch gives to its union, is in one place; what came in
    and what was late is the oracle's. So is every change: what was deleted, and the delete."""
    for number in range(seed, seed + at_effort(quick=3, full=12)):
        case = random_union_case(number, changes=changes)
        tracer = Tracer()
        replay_case(case, partitions=2, tracer=tracer)
        ticks = (
            [entry for entry in tracer.trace.entries if isinstance(entry, TickTrace)] if tracer.trace else []
        )
        lines, wanted = run_case_with_account(case)
        if not ticks or any("error" in line for line in lines):
            continue
        result = ticks[-1].output.result
        assert set(result.account) == set(wanted)
        for alias, counts in result.account.items():
            assert InputAccount.of(alias, counts, counts["retained"]).adds_up(), (number, alias, counts)
            if changes:  # the oracle sums equal rows of a tick before it looks at them
                continue
            late = result.late.get(alias, {})
            assert sum(sum(by.counts.values()) for by in late.values()) == counts.get("late", 0)
            for what in ("in", "late", "null_time", "retained"):
                assert counts.get(what, 0) == wanted[alias][what], (number, alias, what)
        for alias, found in wanted.items() if not changes else ():
            assert found["in"] == sum(n for what, n in found.items() if what not in ("in", "not_there")), (
                alias
            )
