"""Random cases with windows over streams of changes: those of `random_windows`, whose rows go again, too.

Of some streams rows only come."""

from __future__ import annotations

import random
import re
from typing import Any

from tests.support.random_windows import random_window_case


def random_changing_windows(number: int) -> dict[str, Any]:
    """The case of that number: rows are deleted, most of them rows that came, updated, and doubled."""
    rng = random.Random(f"window-changes-{number}")
    case = random_window_case(number)
    query = re.sub(r"\bSESSION\(", "TUMBLE(", case["query"]).replace("bit_xor(", "bit_or(")
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
            if rng.random() < 0.1:  # one that never came; with a NULL in a key it would be applied
                rows.append([name, {**row, "v": 9, "k": "b"}, -1])
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
