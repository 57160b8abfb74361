"""Laws that the oracle alone must obey, so that it can be trusted where no given case is."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable
from typing import Any

import duckdb
import pytest

from tests.support.duckdb_batch import answer, connect_duckdb, fill
from tests.support.oracle.case import Oracle, run_case, run_case_with_account
from tests.support.random_cases import random_case
from tests.support.random_multiway import random_multiway_case
from watersmeet.testing.cases import check_case, row_multiset

pytestmark = pytest.mark.full

CASES = 150
Case = dict[str, Any]
Draw = Callable[..., Case]
both = pytest.mark.parametrize(
    "draw", [pytest.param(random_case, id="two"), pytest.param(random_multiway_case, id="many")]
)


def on_time(seed: int, count: int, draw: Draw, **profile: Any) -> list[Case]:
    """Random cases whose watermarks stand still, so that no row is late."""
    found = []
    while len(found) < count:
        seed += 1
        case = draw(seed, **profile)
        for stream in case["streams"].values():
            stream["time"] = {t: {"lag": None} for t in stream["time"]}
            for setting in ("idle_timeout", "on_idle", "partitions"):
                stream.pop(setting, None)
        case["steps"] = [{"rows": s["rows"]} for s in case["steps"] if s.get("rows")]
        for setting in ("output_mode", "max_rows"):
            case.get("options", {}).pop(setting, None)
        if case["steps"] and "step" in run_case(case)[0]:
            found.append(case)
    return found


def all_rows(outputs: list[dict[str, Any]]) -> Any:
    return row_multiset([row for line in outputs for row in line["rows"]], changelog=False)


@both
def test_cuts_of_ticks_do_not_change_results(seed: int, draw: Draw) -> None:
    rng = random.Random(seed)
    for case in on_time(seed, CASES, draw):
        rows = [row for step in case["steps"] for row in step["rows"]]
        rng.shuffle(rows)
        cut = []
        while rows:
            take = rng.randint(0, 5)
            cut.append({"rows": rows[:take]})
            rows = rows[take:]
        other = {**case, "steps": [*cut, {"restart": True}, {"end": True}]}
        case["steps"].append({"end": True})
        assert all_rows(run_case(case)) == all_rows(run_case(other)), case


def swap_inputs(case: Case) -> Case | None:
    """The same query with its inputs the other way round."""
    found = re.fullmatch(
        r"(SELECT .* FROM )([\w ]+?)( (?:LEFT |RIGHT |FULL )?(?:OUTER |INNER )?JOIN )([\w ]+?)( ON .*)",
        case["query"],
    )
    if found is None:
        return None
    head, left, join, right, rest = found.groups()
    turned = {"LEFT": "RIGHT", "RIGHT": "LEFT"}
    join = re.sub("LEFT|RIGHT", lambda m: turned[m.group()], join)
    return {**case, "query": head + right + join + left + rest}


def test_swapped_sides_give_the_same(seed: int) -> None:
    """Step by step: rows, late rows, watermarks and state do not know left from right."""
    tried = 0
    for number in range(seed, seed + 2 * CASES):
        case = random_case(number, shape="plain")
        other = swap_inputs(case)
        if other is None:
            continue
        tried += 1
        want = run_case(case)
        if "step" not in want[0]:
            assert "step" not in run_case(other)[0]
        else:
            assert check_case({**other, "expect": want}, run_case(other)) == [], case
    assert tried > CASES


def test_shifted_time_shifts_everything(seed: int) -> None:
    """All integer times later by one constant: the same rows, late rows and state."""
    for number in range(seed, seed + CASES):
        case = random_case(number, time="BIGINT")
        shifted = copy.deepcopy(case)
        by = 1_000_003
        for step in shifted["steps"]:
            for row in step.get("rows", []):
                for column in ("t", "u"):
                    if row[1].get(column) is not None:
                        row[1][column] += by
            step["advance"] = {k: v + by for k, v in step.get("advance", {}).items()}
        want, got = run_case(case), run_case(shifted)
        if "step" not in want[0]:
            continue
        for a, b in zip(want, got, strict=True):
            times = [n for row in b["rows"] for n in row if re.fullmatch(r"\w_[tu]|t", n)]
            for row in b["rows"]:
                for name in set(times):
                    row[name] = None if row[name] is None else row[name] - by
            b["watermarks"] = {k: v - by for k, v in b["watermarks"].items()}
            for item in b["late"]:
                for column in ("t", "u"):
                    if item["row"].get(column) is not None:
                        item["row"][column] -= by
            assert check_case({**case, "steps": [{}], "expect": [a]}, [b]) == [], case


def test_changelog_sums_to_the_append_result(seed: int) -> None:
    """Without deletes, eager pads and their retractions sum to what append mode puts out by the end."""
    for number in range(seed, seed + 2 * CASES):
        case = random_case(number)
        case["steps"] = [s for s in case["steps"] if "end" not in s] + [{"end": True}]
        case["options"] = {k: v for k, v in case.get("options", {}).items() if k != "output_mode"}
        append = run_case(case)
        if "step" not in append[0]:
            continue
        case["options"]["output_mode"] = "changelog"
        rows = [row for line in run_case(case) for row in line["rows"]]
        assert row_multiset(rows, changelog=True) == all_rows(append), case


def without_watermarks(case: Case, outputs: list[dict[str, Any]]) -> Case:
    """The rows of a case that were not late, in one tick, and then the end."""
    rows = []
    for step, line in zip(case["steps"], outputs, strict=True):
        late = list(line["late"])
        for item in step.get("rows", []):
            columns = case["streams"][item[0]]["columns"]
            shown = {"stream": item[0], "row": {c: item[1].get(c) for c in columns}}
            if shown in late:
                late.remove(shown)
            else:
                rows.append(item)
        assert late == []
    streams = {
        name: {"columns": stream["columns"], "time": {t: {"lag": None} for t in stream["time"]}}
        for name, stream in case["streams"].items()
    }
    return {**case, "streams": streams, "steps": [{"rows": rows}, {"end": True}]}


@both
def test_releasing_rows_loses_nothing(seed: int, draw: Draw) -> None:
    """Whatever the watermarks: the result is that of all rows that were not late, in one tick."""
    compared = 0
    for number in range(seed, seed + 2 * CASES):
        case = draw(number)
        options = {k: v for k, v in case.get("options", {}).items() if k not in ("output_mode", "max_rows")}
        case = {**case, "options": options}
        case["steps"] = [s for s in case["steps"] if "end" not in s] + [{"end": True}]
        outputs = run_case(case)
        if "step" not in outputs[0]:
            continue
        compared += any(line["rows"] for line in outputs)
        assert all_rows(outputs) == all_rows(run_case(without_watermarks(case, outputs))), case
    assert compared > CASES


@pytest.mark.parametrize("rule", ["tight", "limit"])
def test_nothing_is_retained_for_ever(seed: int, rule: str) -> None:
    """Of a query that is not refused, all rows go when all watermarks move on, also those between joins."""
    far = {"BIGINT": 2**63 - 1, "INT": 2**63 - 1, "DATE": "9000-01-01", "TIMESTAMP": "9000-01-01T00:00:00"}
    retained = 0
    for case in on_time(seed, CASES, random_multiway_case, rule=rule):
        if str(2**63 - 1)[:15] in str(case["steps"]):
            continue  # rows at the end of time: no watermark is far enough
        oracle = Oracle(case)
        for step in case["steps"]:
            oracle.step(step)
        retained += sum(join.retained() for join in oracle.joins)
        marks = {
            f"{name}.{t}": far[stream["columns"][t]]
            for name, stream in case["streams"].items()
            for t in stream["time"]
        }
        oracle.step({"advance": marks})
        assert [join.retained() for join in oracle.joins] == [0] * len(oracle.joins), case
    assert retained > CASES


@both
def test_watermarks_are_true(seed: int, draw: Draw) -> None:
    """No output row of an append query has a time below a watermark put out before it."""
    for number in range(seed, seed + 2 * CASES):
        case = draw(number)
        if case.get("options", {}).get("output_mode") == "changelog":
            continue
        outputs = [line for line in run_case(case) if "rows" in line]
        promised: dict[str, Any] = {}
        for line in outputs:
            for key, mark in promised.items():
                name = key.replace(".", "_")
                times = [row[name] for row in line["rows"] if row[name] is not None]
                assert all(t >= mark for t in times), (key, case)
            for key, mark in line["watermarks"].items():
                assert key not in promised or mark > promised[key], (key, case)
            promised |= line["watermarks"]


@both
def test_account_adds_up(seed: int, draw: Draw) -> None:
    for number in range(seed, seed + 2 * CASES):
        case = draw(number)
        if {"output_mode", "max_rows"} & set(case.get("options", {})):
            continue
        for counts in run_case_with_account(case)[1].values():
            assert counts["in"] == sum(n for what, n in counts.items() if what not in ("in", "not_there")), (
                case
            )


@both
@pytest.mark.parametrize("time", ["BIGINT", "TIMESTAMP", "DATE", "MIXED"])
def test_ended_join_equals_duckdbs_batch_join(seed: int, draw: Draw, time: str) -> None:
    """Nothing late, input ended: the result is the batch join of all rows."""
    connection = connect_duckdb()
    compared = 0
    for case in on_time(seed, CASES // 2, draw, time=time):
        case["steps"].append({"end": True})
        got = all_rows(run_case(case))
        event_times = {name: list(stream["time"]) for name, stream in case["streams"].items()}
        for name, stream in case["streams"].items():
            arrived = [
                row for step in case["steps"] for source, row, *_ in step.get("rows", []) if source == name
            ]
            timed = [row for row in arrived if all(row.get(t) is not None for t in event_times[name])]
            fill(connection, name, stream["columns"], timed)
        try:
            rows = answer(connection, case["query"])
        except duckdb.BinderException:
            continue
        compared += 1
        assert row_multiset(rows, changelog=False) == got, case
    connection.close()
    assert compared > CASES // 10
