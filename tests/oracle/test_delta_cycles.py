"""Delta joins whose equalities form a cycle: a look-up uses some of them and tests the others on its rows.

After each tick the sums of all changes equal the join of what the tables hold.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from typing import Any

import pytest

from tests.support.effort import at_effort
from watersmeet import LocalJob, MemoryStore, parse_job, plan_job
from watersmeet.event_time import Side
from watersmeet.plan.model.nodes import DeltaPlan

COLUMNS = {
    "e": ("id", "nation"),
    "o": ("no", "cust"),
    "i": ("no", "supplier"),
    "s": ("id", "nation"),
    "n": ("id", "name"),
}
QUERY = (
    "SELECT e.id AS e, o.no AS o, i.supplier AS s, n.name FROM e, o, i, s, n WHERE e.id = o.cust"
    " AND i.no = o.no AND i.supplier = s.id AND e.nation = s.nation AND s.nation = n.id"
)
REOPEN_EVERY = at_effort(quick=5, full=1)
"""Ticks; opening a job plans its joins again, by what was counted of its inputs."""
Row = tuple[int, ...]
Bags = dict[str, Counter[Row]]


def job(keyed: str) -> str:
    """``keyed``: the tables with a primary key, their first column."""
    lines = ["SET output_mode = changelog;"]
    for name, columns in COLUMNS.items():
        typed = ", ".join(f"{column} BIGINT" for column in columns)
        change, says = ("op", "op STRING") if name in keyed else ("diff", "op INT")
        key = f", PRIMARY KEY ({columns[0]}) NOT ENFORCED" if name in keyed else ""
        options = f"'connector' = 'memory', '{change}.column' = 'op'"
        lines.append(f"CREATE TABLE {name} ({typed}, {says}{key}) WITH ({options});")
    return "\n".join([*lines, QUERY])


def compute_expected_join(bags: Bags) -> Counter[Row]:
    found = Counter[Row]()
    for rows in product(*(bag.items() for bag in bags.values())):
        ((e, nation), en), ((no, cust), on), ((of, supplier), il), ((s, at), sn), ((n, name), nn) = rows
        if e == cust and of == no and supplier == s and nation == at == n:
            found[e, no, s, name] += en * on * il * sn * nn
    return found


def changes(rng: random.Random, bags: Bags, keyed: str) -> dict[str, list[Any]]:
    """Return the records of a tick, which the bags hold from then on. Those of the first tick join."""
    told: dict[str, list[Any]] = {}
    is_first = not any(bags.values())
    for name, bag in bags.items():
        for _ in range(1 if is_first else rng.choice([0, 0, 2, 4])):
            row = (0, 0) if is_first else (rng.randrange(3), rng.randrange(2))
            if name in keyed:
                old = [other for other in bag if other[0] == row[0]]
                goes = bool(old) and rng.random() < 0.4
                bag -= Counter(old)
                bag += Counter([] if goes else [row])
                said, change = dict(zip(COLUMNS[name], row, strict=True)), "d" if goes else "c"
            else:
                goes = bool(bag) and rng.random() < 0.4
                row = rng.choice(sorted(bag)) if goes else row
                bag += Counter({row: -1 if goes else 1})
                bag = Counter(+bag)
                said, change = dict(zip(COLUMNS[name], row, strict=True)), -1 if goes else 1
            bags[name] = bag = Counter(+bag)
            told.setdefault(name, []).append(({**said, "op": change}, 1))
    return told


@pytest.mark.parametrize(
    "keyed",
    ["", pytest.param("s", marks=pytest.mark.full), "os", pytest.param("eosn", marks=pytest.mark.full)],
)
def test_sums_of_changes_are_the_join(seed: int, keyed: str) -> None:
    plan = plan_job(parse_job(job(keyed)))
    fewer = [
        lookup.join.right.name
        for step in plan.queries[0].every(DeltaPlan)
        for lookup, held in zip(step.lookups, step.met_arranged, strict=True)
        if len(held.keys_of(lookup.by)) < len({key.column(Side.RIGHT) for key in lookup.join.keys})
    ]
    assert "i" in fewer
    assert not keyed or "s" in fewer
    for number in range(3):
        rng, store = random.Random(seed + number), MemoryStore()
        bags: Bags = {name: Counter() for name in COLUMNS}
        sums = Counter[Row]()
        for tick in range(10):
            records = changes(rng, bags, keyed)
            if tick % REOPEN_EVERY == 0:
                played = LocalJob(plan, store, partitions=1 + number % 3)
            rows = played.tick(records).rows
            for row in next(iter(rows.values())):
                sums[row["e"], row["o"], row["s"], row["name"]] += row["_diff"]
            wanted = compute_expected_join(bags)
            assert wanted or tick
            assert {row: total for row, total in sums.items() if total} == wanted, (seed + number, keyed)
