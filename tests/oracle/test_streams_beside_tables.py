"""Streams joined with each other and with changing tables, against plain loops over lists.

While both its streams' rows are kept, a result follows the tables; when one of them is released, it stays as
it is: later changes of tables no longer reach it (semantics.md, section 5).
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from tests.support.effort import at_effort
from watersmeet.runtime.local import replay_case

CASES = at_effort(quick=6, full=184)
KEYS = 3
Rows = list[tuple[int, int]]


def random_case(seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    before, after = rng.randrange(4), rng.randrange(6)
    stream = {"columns": {"t": "BIGINT", "k": "BIGINT"}, "time": {"t": {"lag": None}}, "changes": True}
    table = {"columns": {"k": "BIGINT", "v": "BIGINT"}}
    query = (
        "SELECT a.t AS at, b.t AS bt, c.v AS v, d.v AS w FROM a"
        f" JOIN b ON a.k = b.k AND b.t BETWEEN a.t - {before} AND a.t + {after}"
        " JOIN c ON c.k = b.k JOIN d ON d.k = c.v"
    )
    return {
        "case": f"streams-beside-tables-{seed}",
        "streams": {"a": stream, "b": stream},
        "tables": {"c": table, "d": table},
        "query": query,
        "bounds": [before, after],
        "options": {"output_mode": "changelog", "lenient": True},
        "steps": list(steps(rng)),
    }


def steps(rng: random.Random) -> Any:
    held: dict[str, Rows] = {name: [] for name in "abcd"}
    clock = 0
    for _ in range(rng.randint(4, 9)):
        if rng.random() < 0.15:
            yield rng.choice([{"restart": True}, {"rescale": rng.choice([1, 2, 3, 7])}])
        told = []
        for name in "abcd":
            for _ in range(rng.randrange(4)):
                if held[name] and rng.random() < 0.3:
                    row = held[name].pop(rng.randrange(len(held[name])))
                    told.append((name, row, -1))
                    continue
                is_stream = name in "ab"
                row = (
                    (clock + rng.randint(-3, 6), rng.randrange(KEYS))
                    if is_stream
                    else (
                        rng.randrange(KEYS),
                        rng.randrange(KEYS),
                    )
                )
                held[name].append(row)
                told.append((name, row, 1))
        rng.shuffle(told)
        clock += rng.choice([0, 1, 3])
        columns = {"a": ("t", "k"), "b": ("t", "k"), "c": ("k", "v"), "d": ("k", "v")}
        step: dict[str, Any] = {
            "rows": [[name, dict(zip(columns[name], row, strict=True)), diff] for name, row, diff in told]
        }
        step["advance"] = {f"{name}.t": clock - rng.randrange(2) for name in "ab" if rng.random() < 0.7}
        yield step


class Plain:
    """The streams' kept rows and the tables as bags; and results that are final."""

    def __init__(self, before: int, after: int) -> None:
        self.before, self.after = before, after
        self.bags: dict[str, Counter[tuple[int, int]]] = {name: Counter() for name in "abcd"}
        self.final: Counter[tuple[int, ...]] = Counter()
        self.marks = {"a": float("-inf"), "b": float("-inf")}

    def results(self) -> Counter[tuple[int, ...]]:
        found: Counter[tuple[int, ...]] = Counter()
        for (at, ak), many in self.bags["a"].items():
            for (bt, bk), of_b in self.bags["b"].items():
                if ak == bk and at - self.before <= bt <= at + self.after:
                    for (ck, v), of_c in self.bags["c"].items():
                        for (dk, w), of_d in self.bags["d"].items():
                            if ck == bk and dk == v:
                                found[at, bt, v, w] += many * of_b * of_c * of_d
        return found

    def step(self, step: dict[str, Any]) -> Counter[tuple[int, ...]]:
        net: dict[str, Counter[tuple[int, int]]] = {name: Counter() for name in "abcd"}
        for name, row, diff in step.get("rows", ()):
            values = tuple(row.values())
            if name not in "ab" or values[0] >= self.marks[name]:
                net[name][values] += diff
        for name, diffs in net.items():
            for row, diff in diffs.items():
                self.bags[name][row] = max(self.bags[name][row] + diff, 0)
        results = self.results() + self.final
        for key, mark in step.get("advance", {}).items():
            self.marks[key[0]] = max(self.marks[key[0]], mark)
        # b.t >= a.t - before: a row of b goes when W[a] - before has passed it; of a, likewise.
        limits = {"a": self.marks["b"] - self.after, "b": self.marks["a"] - self.before}
        for name, limit in limits.items():
            self.bags[name] = Counter({row: n for row, n in self.bags[name].items() if row[0] >= limit})
        self.final = results - self.results()
        return results


def disagreement(case: dict[str, Any], partitions: int) -> str | None:
    plain = Plain(*case["bounds"])
    lines = replay_case({k: v for k, v in case.items() if k != "bounds"}, partitions=partitions)
    sums: Counter[tuple[int, ...]] = Counter()
    for step, line in zip(case["steps"], lines, strict=True):
        if "error" in line:
            return str(line["error"])
        wanted = plain.step(step) if "rows" in step else None
        for row in line["rows"]:
            sums[row["at"], row["bt"], row["v"], row["w"]] += row["_diff"]
        found = {row: total for row, total in sums.items() if total}
        if wanted is not None and found != {row: total for row, total in wanted.items() if total}:
            return f"step {line['step']}: {found}, wanted {dict(+wanted)}"
    return None


def test_results_follow_tables_until_a_row_is_released(seed: int) -> None:
    for number in range(seed, seed + CASES):
        case = random_case(number)
        found = disagreement(case, (1, 2, 3, 7)[number % 4])
        if found is not None:
            pytest.fail(f"{found}\n{json.dumps(case)}", pytrace=False)
