"""Delta joins that order their look-ups by the rows counted of each input.

Every order gives the same rows in a tick, and after each tick the sums of all changes equal the join of what
the tables hold. A star and a chain of four tables, with keys of many rows and of few; a new job, which has
only the stored state, runs each tick.
"""

from __future__ import annotations

import random
from collections import Counter
from copy import deepcopy
from itertools import product
from typing import Any

import pytest

from tests.support.effort import at_effort
from watersmeet import LocalJob, MemoryStore, parse_job, plan_job
from watersmeet.kernel.match import probe
from watersmeet.plan.model.nodes import DeltaPlan
from watersmeet.runtime.coordinator.restore import plan_for_state as opening

JOINS = {
    "star": "FROM f JOIN a ON a.k = f.k JOIN b ON b.m = f.m JOIN e ON e.n = f.n",
    "chain": "FROM a JOIN f ON f.k = a.k JOIN b ON b.m = f.m AND b.k = a.m JOIN e ON e.n = b.n",
}
TABLES = "".join(
    f"CREATE TABLE {name} (k BIGINT, m BIGINT, n BIGINT, d INT)"
    " WITH ('connector' = 'memory', 'diff.column' = 'd');"
    for name in "fabe"
)
SEEDS = at_effort(quick=2, full=4)
Row = tuple[int, ...]
Bags = dict[str, Counter[Row]]


def meets(join: str, f: Row, a: Row, b: Row, e: Row) -> bool:
    if join == "star":
        return a[0] == f[0] and b[1] == f[1] and e[2] == f[2]
    return f[0] == a[0] and b[1] == f[1] and b[0] == a[1] and e[2] == b[2]


def compute_expected_join(join: str, bags: Bags) -> Counter[Row]:
    found = Counter[Row]()
    for (f, nf), (a, na), (b, nb), (e, ne) in product(*(bags[name].items() for name in "fabe")):
        if meets(join, f, a, b, e):
            found[f + a + b + e] += nf * na * nb * ne
    return found


def changes(rng: random.Random, bags: Bags, wide: int) -> dict[str, list[Any]]:
    """Records of a tick; the bags hold what they say from then on. Column number ``wide`` has many values."""
    told: dict[str, list[Any]] = {}
    for name, bag in bags.items():
        for _ in range(rng.choice([0, 1, 3])):
            goes = bool(bag) and rng.random() < 0.3
            drawn = tuple(rng.randrange(9 if place == wide else 2) for place in range(3))
            row = rng.choice(sorted(bag)) if goes else drawn
            bag[row] += -1 if goes else 1
            bags[name] = bag = Counter(+bag)
            told.setdefault(name, []).append(
                ({**dict(zip("kmn", row, strict=True)), "d": -1 if goes else 1}, 1)
            )
    return told


def sum_changes(rows: Any) -> Counter[Row]:
    sums = Counter[Row]()
    for row in next(iter(rows.values())):
        diff = row.pop("_diff")
        row.pop("_tick")
        sums[tuple(row.values())] += diff
    return Counter({row: diff for row, diff in sums.items() if diff})


@pytest.mark.parametrize(
    ("join", "bits"),
    [
        ("star", 16),
        pytest.param("star", 32, marks=pytest.mark.full),
        pytest.param("chain", 16, marks=pytest.mark.full),
        ("chain", 32),
    ],
)
def test_sums_are_the_join_and_ticks_the_same_in_any_order(
    seed: int, join: str, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "MAX_ROWS_16_BITS", 1 << 16 if bits == 16 else 0)
    columns = ", ".join(f"{name}.{column} AS {name}{column}" for name in "fabe" for column in "kmn")
    job = f"SET output_mode = changelog; {TABLES} SELECT {columns} {JOINS[join]}"
    plan, orders, most = plan_job(parse_job(job)), set(), 0
    for number in range(10 * SEEDS):
        if number >= SEEDS and len(orders) > 2:
            break
        rng, store = random.Random(seed + number), MemoryStore()
        bags: Bags = {name: Counter() for name in "fabe"}
        sums, wide = Counter[Row](), number % 3
        for _ in range(12):
            records = changes(rng, bags, wide)
            with monkeypatch.context() as patch:
                patch.setattr(opening, "counts_of", lambda plan, manifest: {})
                as_planned = LocalJob(plan, deepcopy(store), partitions=2)
            counted = LocalJob(plan, store, partitions=1 + number % 3)
            (query,) = counted.plan.queries
            assert as_planned.plan.queries[0].uncounted is None
            assert query.fingerprint == plan.queries[0].fingerprint
            steps = query.every(DeltaPlan)
            orders.add(tuple(tuple(look.join.right.name for look in step.lookups) for step in steps))
            rows = sum_changes(counted.tick(records).rows)
            assert rows == sum_changes(as_planned.tick(records).rows), (seed + number, join)
            sums.update(rows)
            wanted = compute_expected_join(join, bags)
            assert {row: total for row, total in sums.items() if total} == wanted, (seed + number, join)
            most = max(most, len(wanted))
    assert most
    assert len(orders) > 2
