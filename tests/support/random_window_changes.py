"""Random cases with windows over streams of changes: those of `random_windows`, whose rows go again, too.

Of some streams rows only come. `random_changing_sessions` has sessions alone, and watermarks that leave them
open for longer, so that they merge and fall apart."""

from __future__ import annotations

import random
import re
from typing import Any

from tests.support.random_windows import random_window_case

NEVER_CAME = 9
"""The value of rows that are deleted and never came."""


def random_changing_windows(number: int) -> dict[str, Any]:
    """The case of that number: rows are deleted, most of them rows that came, updated, and doubled."""
    rng = random.Random(f"window-changes-{number}")
    case = random_window_case(number)
    query = case["query"].replace("bit_xor(", "bit_or(")
    changing = [name for name in case["streams"] if rng.random() < 0.8]
    there: list[tuple[str, dict[str, Any]]] = []
    for step in case["steps"]:
        rows: list[list[Any]] = []
        for name, row in step.get("rows", []):
            rows.append([name, row, rng.choice((1, 1, 1, 2)) if name in changing else 1])
            there += [(name, row)] * rows[-1][2] if name in changing else []
        for _ in range(rng.choice((0, 1, 2, 3)) if rows else 0):
            if not there:
                break
            name, row = there.pop(-1 - min(int(rng.expovariate(0.3)), len(there) - 1))
            rows.append([name, row, -1])
            if rng.random() < 0.4:
                rows.append([name, {**row, "v": rng.choice((None, 0, 1, 2, 3))}, 1])
                there.append((name, rows[-1][1]))
            if rng.random() < 0.1:  # with a NULL in a key it would be applied
                rows.append([name, {**row, "v": NEVER_CAME, "k": "b"}, -1])
        rng.shuffle(rows)
        if rows:
            step["rows"] = rows
    streams = {
        name: {**declared, "changes": True} if name in changing else declared
        for name, declared in case["streams"].items()
    }
    options = {**case["options"], "output_mode": "changelog"}
    return {
        **case,
        "case": f"window-changes-{number}",
        "query": query,
        "streams": streams,
        "options": options,
    }


def random_changing_sessions(number: int) -> dict[str, Any]:
    """The case of that number: its windows are sessions, of small gaps. Of joins no rows are deleted that
    never came: where a stream has released rows of that time, that is applied. Nor are windows joined with a
    stream itself, of which rows that it has released may be deleted again."""
    rng = random.Random(f"session-changes-{number}")
    case = random_changing_windows(number)
    while re.search(r"JOIN \w+ b ON", case["query"]):
        case = random_changing_windows(rng.randrange(10**9))
    for step in case["steps"] if "JOIN" in case["query"] else ():
        if "rows" in step:
            step["rows"] = [given for given in step["rows"] if given[1]["v"] != NEVER_CAME]

    def session(found: re.Match[str]) -> str:
        return f"SESSION({found[1]}), {rng.randint(1, 5)})"

    query = re.sub(r"\b(?:TUMBLE|HOP)\((TABLE \w+, DESCRIPTOR\(\w+)\), [\d, ]+\)", session, case["query"])
    # Of a sub-query: what comes after it.
    query = re.sub(r"\b(?:TUMBLE|HOP)\(\(", "SESSION((", query)
    query = re.sub(
        r"(\), DESCRIPTOR\(\w+\)), \d+(?:, \d+)?\)", lambda found: f"{found[1]}, {rng.randint(1, 5)})", query
    )
    if query.count("SESSION(") > 1:
        query = query.replace("avg(", "max(")  # last digits of sums of means depend on their order
    streams = {}
    for name, declared in case["streams"].items():
        lag = declared["time"]["t"]["lag"]
        lag = None if lag is None else lag + rng.choice((0, 4, 8, 15))
        streams[name] = {**declared, "time": {"t": {"lag": lag}}}
    return {**case, "case": f"session-changes-{number}", "query": query, "streams": streams}
