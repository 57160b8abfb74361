"""A greedy shrinker of failing cases: steps, rows, options, conjuncts go as long as the case still fails."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

Case = dict[str, Any]


def split_conjuncts(text: str) -> list[str]:
    """A condition cut at its top-level ANDs; the AND of a BETWEEN is none."""
    parts: list[str] = []
    current: list[str] = []
    depth, between = 0, False
    for token in re.split(r"(\s+|\(|\))", text):
        depth += {"(": 1, ")": -1}.get(token, 0)
        if depth == 0 and token == "BETWEEN":
            between = True
        if depth == 0 and token == "AND" and not between:
            parts.append("".join(current).strip())
            current = []
            continue
        if depth == 0 and token == "AND":
            between = False
        current.append(token)
    return [*parts, "".join(current).strip()]


def conditions(query: str) -> list[tuple[int, int]]:
    """Where the conditions of a query stand, last first: from behind each ON or WHERE to what ends it."""
    spans = []
    for found in re.finditer(r" (?:ON|WHERE) ", query):
        depth, end = 0, len(query)
        for token in re.finditer(
            r"\(|\)| (?:JOIN|INNER|LEFT|RIGHT|FULL|ON|WHERE|UNION) ", query[found.end() :]
        ):
            depth += {"(": 1, ")": -1}.get(token.group(), 0)
            if depth < 0 or (depth == 0 and token.group().strip() not in ("(", ")")):
                end = found.end() + token.start()
                break
        spans.append((found.end(), end))
    return spans[::-1]


def smaller(case: Case) -> Iterator[Case]:
    """The case with one thing less, in every way, the greatest first."""
    for i in reversed(range(len(case["steps"]))):
        yield {**case, "steps": case["steps"][:i] + case["steps"][i + 1 :]}
    for i, step in enumerate(case["steps"]):
        for name in step:
            if name != "rows" and len(step) > 1:
                yield _with_step(case, i, {k: v for k, v in step.items() if k != name})
        rows = step.get("rows", [])
        for size in (len(rows) // 2, 1):
            for at in range(0, len(rows), size) if size else ():
                yield _with_step(case, i, {**step, "rows": rows[:at] + rows[at + size :]})
    for name in case.get("options", {}):
        yield {**case, "options": {k: v for k, v in case["options"].items() if k != name}}
    for start, end in conditions(case["query"]):
        parts = split_conjuncts(case["query"][start:end])
        for i in range(len(parts) if len(parts) > 1 else 0):
            rest = " AND ".join(parts[:i] + parts[i + 1 :])
            yield {**case, "query": case["query"][:start] + rest + case["query"][end:]}
    head, _, tail = case["query"].partition(" FROM ")
    outputs = head.removeprefix("SELECT ").split(", ")
    for i in range(len(outputs)):
        if len(outputs) > 1 and "(" not in head:
            yield {**case, "query": f"SELECT {', '.join(outputs[:i] + outputs[i + 1 :])} FROM {tail}"}
    for i, step in enumerate(case["steps"]):
        for j, row in enumerate(step.get("rows", [])):
            for column in row[1]:
                rows = copy.deepcopy(step["rows"])
                del rows[j][1][column]
                yield _with_step(case, i, {**step, "rows": rows})


def _with_step(case: Case, index: int, step: dict[str, Any]) -> Case:
    return {**case, "steps": [*case["steps"][:index], step, *case["steps"][index + 1 :]]}


def shrink(case: Case, fails: Callable[[Case], bool], tries: int = 400) -> Case:
    """A smaller case for which ``fails`` still holds; at most ``tries`` runs of it."""
    again = True
    while again and tries > 0:
        again = False
        for candidate in smaller(case):
            tries -= 1
            if tries <= 0:
                break
            if fails(candidate):
                case, again = candidate, True
                break
    return case
