"""Joins by the rule ``lateness = join`` against the oracle: rows, late rows, output watermarks, state.

Two kinds of random joins: those drawn for the edges of that rule (`support.random_lateness`), and those of
`support.random_cases` with the rule asked for, which are of any types, keys and conditions; where the rule
does not define what is asked, both refuse it. Windows over such joins, and tables that their rows meet, are
compared, too.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.oracle.test_engine_against_oracle import PARTITIONS, check, outcomes
from tests.support.effort import at_effort
from tests.support.oracle.windowed import run_windowed_case
from tests.support.random_cases import random_case
from tests.support.random_lateness import late_case
from tests.support.random_lookups import random_lookup_case
from watersmeet.runtime import local
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.testing.cases import compare_step

CASES = at_effort(quick=20, full=920)
CHUNKS = 10


def numbers(chunk: int, seed: int) -> range:
    return range(seed + chunk * (CASES // CHUNKS), seed + (chunk + 1) * (CASES // CHUNKS))


def by_rule(case: dict[str, Any]) -> dict[str, Any]:
    """The case with the rule asked for."""
    options = {**case.get("options", {}), "lateness": "join"}
    options.pop("watermark_rule", None)
    return {**case, "options": options}


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_edges(chunk: int, seed: int) -> None:
    for number in numbers(chunk, seed):
        check(late_case(number), PARTITIONS[number % len(PARTITIONS)], "borders" if number % 2 else None)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_any_join(chunk: int, seed: int) -> None:
    for number in numbers(chunk, seed):
        case = by_rule(random_case(number))
        check(case, PARTITIONS[number % len(PARTITIONS)], "borders" if number % 2 else None)


def with_tables(number: int) -> dict[str, Any]:
    """Rows and pads of a join that meet one table or two as they are in their tick."""
    case, rng = late_case(number), random.Random(f"tables {number}")
    on = rng.choice(["c.k = l.k", "c.v = r.v", "c.k = r.k AND c.v >= l.v", "c.k = l.k AND r.v > 0"])
    kind = rng.choice(["JOIN", "LEFT JOIN", "LEFT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])
    query = case["query"] + f" {kind} a FOR SYSTEM_TIME AS OF PROCTIME() AS c ON {on}"
    if kind in ("JOIN", "LEFT JOIN"):
        query = query.replace(" FROM ", ", c.v AS cv FROM ", 1)
        if rng.random() < 0.3:
            query += " LEFT JOIN a FOR SYSTEM_TIME AS OF PROCTIME() AS d ON d.v = c.v AND d.k = l.k"
            query = query.replace(" FROM ", ", d.k AS dk FROM ", 1)
    held: list[dict[str, Any]] = []
    steps = []
    for step in case["steps"]:
        changes: list[list[Any]] = []
        for _ in range(rng.choice([0, 1, 2]) if "rows" in step else 0):
            held.append({"k": rng.choice(["a", "b", None]), "v": rng.choice([0, 1, 2, None])})
            changes.append(["a", held[-1]])
        if held and changes and rng.random() < 0.5:
            changes.append(["a", held.pop(rng.randrange(len(held))), -1])
        steps.append({**step, "rows": [*changes, *step["rows"]]} if changes else step)
    tables = {"a": {"columns": {"k": "STRING", "v": "BIGINT"}}}
    return {**case, "query": query, "tables": tables, "steps": steps}


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_tables_joined_after_a_join_agree_with_the_oracle(chunk: int, seed: int) -> None:
    for number in numbers(chunk, seed):
        check(with_tables(number), PARTITIONS[number % len(PARTITIONS)], "borders" if number % 2 else None)
        if not number % 4:  # before it, or without one: both refuse it
            check(by_rule(random_lookup_case(number)), 2, None)


@pytest.mark.parametrize("kind", ["INNER", "LEFT", "RIGHT", "FULL"])
@pytest.mark.parametrize("reopens", [False, True])
def test_every_kind_merged_all_the_time(
    kind: str, reopens: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that have left are not met, whether a merge has taken them out of their run or not."""
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)
    for number in range(seed, seed + CASES // 20):
        check(late_case(number, kind=kind, reopens=reopens), 2, "borders")


WINDOWS = (
    "TUMBLE({}, DESCRIPTOR(t), 6)",
    "HOP({}, DESCRIPTOR(t), 3, 9)",
    "SESSION({}, DESCRIPTOR(t), 4)",
)


def build_windowed_case(number: int) -> dict[str, Any]:
    """Windows over a join by the rule, of integer times."""
    case = late_case(number, timed=False, shape="plain")
    head, _, rest = case["query"].partition(" FROM ")
    assert head.startswith("SELECT")
    side = "lr"[number % 2]
    inner = f"(SELECT {side}.t AS t, l.i AS li, r.i AS ri FROM {rest})"
    window = WINDOWS[number % 3].format(inner)
    query = (
        "SELECT window_start, window_end, count(*) AS n, count(li) AS ls, count(ri) AS rs, sum(li) AS li"
        f" FROM TABLE({window}) GROUP BY window_start, window_end"
    )
    return {**case, "query": query}


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_windows_over_the_join(chunk: int, seed: int) -> None:
    for number in list(numbers(chunk, seed))[::3]:
        case = build_windowed_case(number)
        got = local.replay_case(case, partitions=PARTITIONS[number % len(PARTITIONS)])
        want = run_windowed_case(case)
        assert len(got) == len(want), (case, got[-1], want[-1])
        for index, expected in enumerate(want):
            asked = {name: expected[name] for name in ("rows", "late", "watermarks") if name in expected}
            if case["steps"][index].get("end"):
                asked.pop("watermarks")
            assert compare_step(case, index, got[index], asked) == [], (case, index)


@pytest.mark.full
def test_random_cases_cover_each_edge(seed: int) -> None:
    """What is drawn has late rows, pads, matches, rows below the least watermark that are on time."""
    seen = dict.fromkeys(("late", "pads", "matches", "kept", "met", "unmet"), 0)
    for number in range(seed, seed + 100):
        outcome = outcomes(late_case(number), 1, None)
        assert outcome is not None
        with_table = outcomes(with_tables(number), 1, None)
        assert with_table is not None
        for line in with_table[0]:
            seen["met"] += sum(row.get("cv") is not None for row in line["rows"])
            seen["unmet"] += sum("cv" in row and row["cv"] is None for row in line["rows"])
        for line in outcome[0]:
            seen["late"] += len(line["late"])
            seen["pads"] += sum(None in (row["li"], row["ri"]) for row in line["rows"])
            seen["matches"] += sum(None not in (row["li"], row["ri"]) for row in line["rows"])
            seen["kept"] += sum(line["state"].values())
    assert all(found > 100 for found in seen.values()), seen
