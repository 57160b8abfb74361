"""Random sub-queries that join, in one another, with filters and computed columns: all rows are DuckDB's."""

from __future__ import annotations

import random

import pytest

from tests.conformance.test_subqueries import STREAMS, bag, of_duckdb, random_case
from tests.support.effort import at_effort
from watersmeet.runtime.local import replay_case

COLUMNS = ("t", "u", "k", "v", "i", "j")
"""Of every sub-query: two event times (``t`` is of a side that it does not pad), a key, a value, two ids."""
KINDS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")


def random_select(chance: random.Random, depth: int) -> str:
    """A SELECT of one join; each side a stream, or with some luck such a SELECT."""
    left, a = random_side(chance, depth, "l")
    right, b = random_side(chance, depth, "r")
    kind = chance.choice(KINDS)
    on = [f"{b['t']} BETWEEN {a['t']} - 2 AND {a['t']} + 2"]
    if chance.random() < 0.7:
        on.append(f"{a['k']} = {b['k']}")
    if chance.random() < 0.4:
        on.append(chance.choice([f"{b['v']} >= {a['v']}", f"{b['v']} > 0", f"coalesce({a['v']}, 1) > 0"]))
    times = (b["t"], a["t"]) if kind == "RIGHT JOIN" else (a["t"], b["t"])
    key = chance.choice([a["k"], b["k"], f"coalesce({a['k']}, {b['k']}, 1)"])
    values = [
        b["v"],
        f"{a['v']} + {b['v']}",
        "1",
        f"coalesce({b['v']}, 0)",
        f"CASE WHEN {b['v']} IS NULL THEN 2 ELSE {a['v']} END",
    ]
    found = (*times, key, chance.choice(values), a["i"], b["j"])
    columns = ", ".join(f"{expr} AS {name}" for expr, name in zip(found, COLUMNS, strict=True))
    filters = [
        f"{b['v']} > 0",
        f"{a['v']} < 3",
        f"{b['v']} IS NULL OR {b['v']} > 1",
        f"coalesce({a['v']}, {b['v']}, 1) > 0",
        f"{a['i']} IS NULL OR {b['i']} IS NULL OR {a['i']} <> {b['i']}",
    ]
    where = f" WHERE {chance.choice(filters)}" if chance.random() < 0.6 else ""
    return f"SELECT {columns} FROM {left} {kind} {right} ON {' AND '.join(on)}{where}"


def random_side(chance: random.Random, depth: int, alias: str) -> tuple[str, dict[str, str]]:
    """A FROM item, and how each column of it is written."""
    if depth and chance.random() < 0.6:
        return f"({random_select(chance, depth - 1)}) {alias}", {c: f"{alias}.{c}" for c in COLUMNS}
    own = dict(zip(COLUMNS, ("t", "t", "k", "v", "id", "id"), strict=True))
    return f"{chance.choice(STREAMS)} {alias}", {name: f"{alias}.{column}" for name, column in own.items()}


@pytest.mark.parametrize("seed", range(at_effort(quick=4, full=30)))
def test_all_rows_are_duckdbs(seed: int) -> None:
    chance = random.Random(seed)
    sql = random_select(chance, 2)
    case = random_case(sql, seed)
    case["steps"].insert(chance.randrange(len(case["steps"])), {"restart": True})
    outputs = replay_case(case, chance.choice([1, 3]))
    assert not any("error" in output for output in outputs), (sql, outputs)
    assert bag([row for output in outputs for row in output["rows"]]) == of_duckdb(sql, seed), sql
