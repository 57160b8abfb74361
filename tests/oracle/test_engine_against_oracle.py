"""The in-process engine and the nested-loop oracle agree on random joins: rows, late rows, watermarks, state.

Task counts 1, 2, 3, 7 and 10, with and without key hashes pushed to the borders of the tasks. A failure
prints the seed and a shrunk case.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.effort import at_effort
from tests.support.oracle.case import Unsupported, run_case_with_account
from tests.support.random_cases import random_case
from tests.support.random_multiway import random_multiway_case
from tests.support.shrink import shrink
from watersmeet.runtime.local import replay_case
from watersmeet.testing.cases import compare_step

CASES = at_effort(quick=40, full=1840)
MANY = at_effort(quick=20, full=CASES * 17 // 10)
CHUNKS = 20
PARTITIONS = (1, 2, 3, 2, 7, 1, 3, 10, 2)


def disagreements(case: dict[str, Any], partitions: int, hash_seed: str | None) -> list[str]:
    """What the engine does otherwise than the oracle; nothing if the oracle has no opinion."""
    outcome = outcomes(case, partitions, hash_seed)
    return [] if outcome is None else differences(case, *outcome, _compare_normalized_step)


Lines = list[dict[str, Any]]


def outcomes(case: dict[str, Any], partitions: int, hash_seed: str | None) -> tuple[Lines, Lines] | None:
    """What the oracle says and what the engine does; None: the oracle has no opinion."""
    if not case["steps"]:
        return None
    want, account = run_case_with_account(case)
    if any(counts["not_there"] for counts in account.values()):
        return None  # a delete of what is not there: reported, not applied; how is the surface's matter
    return want, replay_case(case, partitions=partitions, hash_seed=hash_seed)


def differences(
    case: dict[str, Any],
    want: list[dict[str, Any]],
    got: list[dict[str, Any]],
    compared: Callable[[dict[str, Any], int, dict[str, Any], dict[str, Any]], list[str]],
) -> list[str]:
    """What was got otherwise than wanted; ``compared`` says it of one step, of what was got and wanted."""
    if "step" not in want[0]:  # refused at plan time
        refused = len(got) == 1 and "error" in got[0]
        return [] if refused else [f"should be refused: {want[0]['error']}"]
    if "error" in got[0] and "step" not in got[0]:
        return [f"refused: {got[0]['error']}"]
    problems = []
    for index, expected in enumerate(want):
        if index >= len(got):
            return [*problems, f"no output for step {index}"]
        if case["steps"][index].get("end"):  # +∞ has no form in a case file
            expected = {k: v for k, v in expected.items() if k != "watermarks"}
        if "error" in expected:  # that the step fails; the words are the engine's own
            expected = {"error": ""}
        problems += compared(case, index, got[index], expected)
    return problems


def _compare_normalized_step(
    case: dict[str, Any], index: int, line: dict[str, Any], expected: dict[str, Any]
) -> list[str]:
    if case.get("options", {}).get("output_mode") == "changelog":  # how often for a diff of 2 is unsaid
        line, expected = (
            {
                **each,
                "late": list({_as_one(item): item for item in each["late"]}.values()),
            }
            if "late" in each
            else each
            for each in (line, expected)
        )
    if _may_be_delta(case):  # it may put out lower watermarks than a cascade
        expected = {name: value for name, value in expected.items() if name != "watermarks"}
    return compare_step(case, index, line, _limit_late_rows_to_retained_columns(case, line, expected))


def _as_one(item: Any) -> str:
    """As text, the same for equal rows: of zeros there is one."""
    return json.dumps(item, sort_keys=True).replace("-0.0", "0.0")


def _may_be_delta(case: dict[str, Any]) -> bool:
    options = case.get("options", {})
    changes = options.get("output_mode") == "changelog"
    plan = options.get("plan", "auto")
    return plan == "delta" or (plan == "auto" and changes)


def _limit_late_rows_to_retained_columns(
    case: dict[str, Any], line: dict[str, Any], expected: dict[str, Any]
) -> dict[str, Any]:
    """Late rows of stages with those columns alone that the engine has: what the query keeps."""
    if not line.get("late") or "late" not in expected:
        return expected
    kept = {
        item["stream"]: set(item["row"]) for item in line["late"] if item["stream"] not in case["streams"]
    }
    late = [
        {**item, "row": {c: v for c, v in item["row"].items() if c in kept.get(item["stream"], {c})}}
        for item in expected["late"]
    ]
    return {**expected, "late": late}


def _where_supported(case: dict[str, Any], partitions: int, hash_seed: str | None) -> list[str]:
    try:
        return disagreements(case, partitions, hash_seed)
    except Unsupported:
        return []


def check(
    case: dict[str, Any],
    partitions: int,
    hash_seed: str | None,
    disagreeing: Callable[[dict[str, Any], int, str | None], list[str]] = _where_supported,
) -> None:
    """Fail with the shrunk case if engine and oracle disagree; ``disagreeing`` says in what."""

    def fails(candidate: dict[str, Any]) -> bool:
        try:
            return bool(disagreeing(candidate, partitions, hash_seed))
        except Exception:
            return True

    if not fails(case):
        return
    small = shrink(case, fails)
    try:
        problems = disagreeing(small, partitions, hash_seed)
    except Exception as failure:
        problems = [f"{type(failure).__name__}: {failure}"]
    pytest.fail(
        f"{case['case']} with partitions={partitions}, hash_seed={hash_seed!r}\n"
        + "\n".join(problems)
        + f"\nshrunk to:\n{json.dumps(small)}\n",
        pytrace=False,
    )


def run_chunk(numbers: range, draw: Callable[..., dict[str, Any]], **profile: Any) -> None:
    for number in numbers:
        case = draw(number, **profile)
        check(case, PARTITIONS[(number // 2) % len(PARTITIONS)], "borders" if number % 2 else None)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_engine_agrees(seed: int, chunk: int) -> None:
    run_chunk(range(seed + chunk, seed + CASES, CHUNKS), random_case)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_engine_agrees_on_many_inputs(seed: int, chunk: int) -> None:
    """Chains and trees of joins of every kind, with bounds, keys and conditions between any of them."""
    run_chunk(range(seed + chunk, seed + MANY, CHUNKS), random_multiway_case)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_engine_agrees_on_changes(seed: int, chunk: int) -> None:
    """Streams and tables with deletes, as a changelog."""
    first = seed + 10**6
    run_chunk(range(first + chunk, first + CASES, CHUNKS), random_case, changes=True)


@pytest.mark.parametrize("chunk", range(4))
def test_engine_agrees_on_changes_of_many_inputs(seed: int, chunk: int) -> None:
    """Chains and trees of joins over streams and tables with deletes.

    Output watermarks may lag behind the oracle's: a pair of joins beneath that comes to no result may stay
    until it is released, where its row was released before it was deleted (`kernel.match.pairs`).
    """
    first = seed + 2 * 10**6
    for number in range(first + chunk, first + CASES // 2, CHUNKS):
        case = random_multiway_case(number, changes=True)
        check(case, PARTITIONS[(number // 2) % len(PARTITIONS)], "borders" if number % 2 else None, _lagging)


def _lagging(case: dict[str, Any], partitions: int, hash_seed: str | None) -> list[str]:
    """What the engine does otherwise than the oracle, but for watermarks that lag."""
    outcome = outcomes(case, partitions, hash_seed)
    if outcome is None:
        return []
    want, got = outcome
    ahead = []
    reached: dict[str, Any] = {}
    expected: dict[str, Any] = {}
    for line, wanted in zip(got, want, strict=False):
        reached |= line.get("watermarks", {})
        expected |= wanted.get("watermarks", {})
        ahead += [
            f"step {wanted['step']}: the watermark of {key} is {mark}, not {expected.get(key)}"
            for key, mark in reached.items()
            if "watermarks" in wanted and not case["steps"][wanted["step"]].get("end")
            if key not in expected or mark > expected[key]
        ]
    rows = [{k: v for k, v in line.items() if k != "watermarks"} for line in want]
    return ahead + differences(case, rows, got, _compare_normalized_step)
