"""The random joins of many inputs are the same for the same seed, varied, and known to the oracle."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from typing import Any

import pytest

from tests.support.oracle.case import Oracle, Refused, run_case
from tests.support.oracle.query import read_query
from tests.support.random_multiway import random_multiway_case

pytestmark = pytest.mark.full

CASES = 400


def generate_accepted_cases(count: int, **profile: Any) -> list[dict[str, Any]]:
    found = []
    for seed in range(count):
        case = random_multiway_case(seed, **profile)
        try:
            read_query(case)
        except Refused:
            continue
        found.append(case)
    return found


@cache
def plain() -> list[dict[str, Any]]:
    """Drawn and read once; nobody changes them."""
    return generate_accepted_cases(CASES)


def test_same_seed_same_case() -> None:
    for seed in range(50):
        one, other = random_multiway_case(seed), random_multiway_case(seed)
        assert json.dumps(one) == json.dumps(other)
    assert len({random_multiway_case(seed)["query"] for seed in range(50)}) > 45


def test_nearly_all_are_planned() -> None:
    """None is beyond the oracle, which would raise `Unsupported`; few are refused."""
    assert len(plain()) > 0.9 * CASES


def test_queries_are_varied() -> None:
    seen: Counter[str] = Counter()
    for case in plain():
        plan, text = read_query(case), case["query"]
        kinds = {join.kind for join in plan.joins}
        seen[f"{len(plan.inputs)} inputs"] += 1
        seen.update(kinds)
        seen["kinds mixed"] += len(kinds) > 1
        seen["right side in parentheses"] += any(join.feeds[1] is not None for join in plan.joins)
        seen["derived bounds"] += any(pair not in j.links for j in plan.joins for pair in j.bounds)
        seen["join without own bounds"] += any(not join.links for join in plan.joins)
        seen["filter sunk to an input"] += any(plan.filters)
        seen["filter above the last join"] += bool(plan.where)
        seen["WHERE"] += " WHERE " in text
        seen["USING"] += " USING " in text
        seen["union"] += "UNION ALL" in text
        seen["null-safe key"] += "<=>" in text
        seen["key of two inputs"] += bool(re.search(r"coalesce\(\w+\.k, \w+\.k\) =", text))
        seen["computed key"] += bool(re.search(r"\.n [-+%] |abs\(", text))
        streams = case["streams"].values()
        seen["several event times"] += any(len(stream["time"]) > 1 for stream in streams)
        seen["self join"] += len(case["streams"]) < len(plan.inputs)
        seen["idle timeout"] += any("idle_timeout" in stream for stream in streams)
        seen["explicit advances"] += any("advance" in step for step in case["steps"])
        for what in ("restart", "rescale", "end"):
            seen[what] += any(what in step for step in case["steps"])
        seen.update(case.get("options", {}).keys())
        seen.update({kind for stream in streams for kind in stream["columns"].values()})
    wanted = """3 inputs,4 inputs,INNER,LEFT,RIGHT,FULL,SEMI,ANTI,kinds mixed,
        right side in parentheses,derived bounds,
        join without own bounds,filter sunk to an input,filter above the last join,WHERE,USING,union,
        null-safe key,key of two inputs,computed key,several event times,self join,idle timeout,
        explicit advances,restart,rescale,end,watermark_rule,allowed_lateness,plan,BIGINT,TIMESTAMP,DATE"""
    for what in wanted.split(","):
        assert seen[what.strip()] >= 8, (what.strip(), seen)


def test_cases_are_not_idle() -> None:
    """Results of all inputs, pads of rows that matched in an earlier join, late rows."""
    seen: Counter[str] = Counter()
    for case in plain():
        oracle = Oracle(case)
        times = [name for name, _, _ in oracle.query.outputs if name.endswith("_t")]
        found: set[str] = set()
        for step in case["steps"]:
            try:
                line = oracle.step(step)
            except Refused:
                break
            for row in line["rows"]:
                there = sum(row[name] is not None for name in times)
                found.add("all" if there == len(times) else "some" if there > 1 else "one")
            if line["late"]:
                found.add("late")
        seen.update(found)
    assert seen["all"] > 0.35 * CASES
    assert seen["some"] > 0.12 * CASES
    assert seen["one"] > 0.12 * CASES
    assert seen["late"] > 0.4 * CASES


def test_profiles_fix_a_draw() -> None:
    for seed in range(30):
        case = random_multiway_case(
            seed, inputs=4, kinds=["LEFT"], time="DATE", shape="plain", plan="cascade"
        )
        assert case["query"].count("LEFT") == 3
        assert len(case["streams"]) == 4
        assert {s["columns"]["t"] for s in case["streams"].values()} == {"DATE"}
        assert case["options"]["plan"] == "cascade"
        assert not re.search("SEMI|ANTI", case["query"])
        assert not re.search("SEMI|ANTI", random_multiway_case(seed, semi=False)["query"])


def test_rows_of_semi_and_anti_joins() -> None:
    """Of two inputs and of more; nothing of a right side is named above, or the oracle would refuse."""
    for inputs in (2, 3, 4):
        seen: Counter[str] = Counter()
        for case in generate_accepted_cases(
            CASES // 4, inputs=inputs, kinds=["SEMI", "ANTI", "INNER", "LEFT"]
        ):
            plan = read_query(case)
            for number, join in enumerate(plan.joins):
                above = [j.kind for j in plan.joins[number + 1 :] if number in j.feeds]
                seen.update(f"{join.kind} beneath {kind}" for kind in above)
                seen["with USING"] += join.left_only and " USING " in case["query"]
            left_only = {join.kind for join in plan.joins if join.left_only}
            lines = run_case(case)
            if any(line.get("rows") for line in lines) and left_only:
                seen.update(left_only)
        assert min(seen["SEMI"], seen["ANTI"]) >= 8, seen
        assert seen["with USING"]
        for one in ("SEMI", "ANTI") if inputs > 2 else ():
            for other in ("SEMI", "ANTI", "INNER", "LEFT"):
                assert seen[f"{one} beneath {other}"], seen
                assert seen[f"{other} beneath {one}"], seen
