"""Joins over changes whose rows are dealt to tasks by what they hold: without an equality key by ranges of a
band, with the hint BROADCAST by a hash of all. The in-process engine agrees with the oracle, which knows
nothing of tasks, and its sums with DuckDB's joins, while runs are merged all the time. The account of every
input is that of one task.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.oracle.test_changes_against_duckdb import problems
from tests.oracle.test_engine_against_oracle import check, disagreements
from tests.support.duckdb_batch import connect_duckdb
from tests.support.effort import at_effort
from tests.support.random_cases import random_case
from tests.support.random_hints import add_random_hint
from tests.support.random_multiway import random_multiway_case
from watersmeet.errors import WatersmeetError
from watersmeet.parser.case_file import case_job
from watersmeet.plan.model.nodes import JoinPlan
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator import merge_policy, retained_runs
from watersmeet.runtime.local import replay
from watersmeet.runtime.messages.reports import SideReport
from watersmeet.runtime.operators import changelog, repartition
from watersmeet.runtime.operators.repartition import BorderRange
from watersmeet.runtime.tasks import changes
from watersmeet.runtime.tasks import side as equal_rows
from watersmeet.runtime.tasks.side import Nothing
from watersmeet.state.manifest import load_newest
from watersmeet.state.store import MemoryStore

CASES = at_effort(quick=5, full=120)
PARTITIONS = (2, 3, 7)
KINDS = ("INNER", "LEFT", "RIGHT", "FULL")


@pytest.fixture(autouse=True)
def merging(monkeypatch):
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)


@pytest.fixture
def by_content(monkeypatch):
    """Rows that go are told apart by the hash of what they hold, however few there are."""
    monkeypatch.setattr(equal_rows, "FREE_CANDIDATES", -1)
    monkeypatch.setattr(equal_rows, "MAX_CANDIDATES_PER_ROW", 0)


def is_keyless(case: dict[str, Any]) -> bool:
    try:
        plan = plan_job(case_job(case))
    except WatersmeetError:
        return False
    return any(isinstance(node, JoinPlan) and node.by_value for node in plan.queries[0].nodes)


def draw(number: int) -> dict[str, Any] | None:
    """A case without a key; or one with a hint, whatever its keys."""
    if number % 4 == 3:
        case = random_multiway_case(number, changes=True)
    else:
        case = random_case(number, changes=True, bands=number % 2 == 0, kind=KINDS[number // 4 % len(KINDS)])
    return add_random_hint(case, number) if number % 3 == 0 else case if is_keyless(case) else None


def drawn(first: int, wanted: int) -> list[tuple[int, dict[str, Any]]]:
    found: list[tuple[int, dict[str, Any]]] = []
    while len(found) < wanted:
        case = draw(first)
        if case is not None:
            found.append((first, case))
        first += 1
    return found


@pytest.mark.parametrize("chunk", range(3))
def test_engine_agrees(seed, chunk):
    for number, case in drawn(seed + (11 + chunk) * 10**6, CASES // 3):
        check(case, PARTITIONS[number % len(PARTITIONS)], "borders" if number % 2 else None)


def test_engine_agrees_when_rows_are_matched_by_content(seed, by_content):
    for number in range(seed + 14 * 10**6, seed + 14 * 10**6 + CASES // 3):
        case = random_case(number, changes=True, bands=number % 2 == 0, kind=KINDS[number % len(KINDS)])
        check(case, (1, *PARTITIONS)[number % 4], None)


def test_sums_are_the_join(seed):
    """Tables: SEMI and ANTI joins, too, of which the oracle makes no changelog."""
    connection, number, compared = connect_duckdb(), seed + 15 * 10**6, 0
    while compared < CASES:
        case = random_multiway_case(number, changes=True, tables=True, semi=number % 2 == 0)
        case["options"].pop("max_rows", None)
        case = add_random_hint(case, number) if number % 3 == 0 else case if is_keyless(case) else None
        if case is not None:
            found = problems(case, PARTITIONS[number % len(PARTITIONS)], connection)
            compared += found is not None
            assert not found, (found, case)
        number += 1
    connection.close()


def test_the_account_is_that_of_one_task(seed, monkeypatch):
    for _, case in drawn(seed + 16 * 10**6, CASES // 5):
        case["steps"] = [step for step in case["steps"] if "rescale" not in step]
        accounts = []
        for partitions in (1, 3):
            store = MemoryStore()
            monkeypatch.setattr(replay, "MemoryStore", lambda store=store: store)
            replay.replay_case(case, partitions)
            manifest = load_newest(store)
            accounts.append(None if manifest is None else manifest.queries["q"].account)
        assert accounts[0] == accounts[1], case


def churn(query: str, values: int, hint: str = "") -> dict[str, Any]:
    """Tables of ``values`` values in a band, from which as many rows go as come, equal ones among them; every
    third tick on another number of tasks."""
    rng = random.Random(f"{query} {values}")
    held: dict[str, list[dict[str, int]]] = {"l": [], "r": []}
    steps: list[dict[str, Any]] = []
    for tick in range(9):
        rows: list[list[Any]] = []
        for name, own in held.items():
            for _ in range(12):
                if own and rng.random() < 0.45:
                    rows.append([name, own.pop(rng.randrange(len(own))), -1])
                else:
                    own.append({"t": rng.randrange(values), "k": 1, "n": rng.randrange(3)})
                    rows.append([name, own[-1], 1])
        steps.append({"rows": rows})
        if tick % 3 == 2:
            steps.append({"rescale": 2 + tick // 3})
    columns = {"columns": {"t": "BIGINT", "k": "BIGINT", "n": "BIGINT"}}
    select = f"SELECT {hint} l.t AS lt, l.n AS ln, r.t AS rt, r.n AS rn FROM l {query}"
    return {
        "case": "churn",
        "tables": {"l": columns, "r": columns},
        "options": {"output_mode": "changelog"},
        "query": select,
        "steps": steps,
    }


CHURNS = {
    "a band": churn("FULL JOIN r ON r.t BETWEEN l.t - 1 AND l.t + 2", 40),
    "two values": churn("FULL JOIN r ON r.t BETWEEN l.t AND l.t", 2),
    "a hot key": churn("FULL JOIN r ON r.k = l.k AND l.n + r.n < 1", 9, "/*+ BROADCAST(r) */"),
    "two indexes": churn(
        "FULL JOIN r ON r.t BETWEEN l.t - 30 AND l.t + 30 AND r.n BETWEEN l.n AND l.n + 1", 40
    ),
}


class Near(SideReport):
    """Of what is near, which its owner reports."""


def _take_nothing(take):
    def take_unless_near(own, needles, wanted, report, *, final):
        if isinstance(report, Near):
            return np.zeros(0, dtype=np.int64)
        return take(own, needles, wanted, report, final=final)

    return take_unless_near


BUGS = {
    "pairs are found in two ranges": ("a band", BorderRange, "of", lambda self, rows: (0, len(rows))),
    "deletes are judged by owners alone": (
        "two values",
        changes,
        "_retract_rows",
        _take_nothing(changes._retract_rows),
    ),
    "changes near are not seen": (
        "a band",
        repartition,
        "_build_reached_rows",
        lambda shape, own, side: Nothing(),
    ),
    "marks are not united": ("two indexes", retained_runs, "overlap", lambda segments: False),
    "nobody counts": ("a hot key", changelog, "_is_counted", lambda shape, side: False),
    "equal rows are of two tasks": (
        "a hot key",
        repartition,
        "_content_fractions",
        lambda rows, chosen, names: chosen % 7 / 7,
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        "a band",
        pytest.param("two values", marks=pytest.mark.full),
        "a hot key",
        pytest.param("two indexes", marks=pytest.mark.full),
    ],
)
def test_rows_come_and_go(name):
    assert not disagreements(CHURNS[name], 3, None)


@pytest.mark.full
@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_found(bug, monkeypatch):
    name, *broken = BUGS[bug]
    monkeypatch.setattr(merge_policy, "FAN_IN", 1000)
    monkeypatch.setattr(changelog, "SideReport", Near)
    assert not disagreements(CHURNS[name], 3, None)
    monkeypatch.setattr(*broken)
    assert disagreements(CHURNS[name], 3, None)
