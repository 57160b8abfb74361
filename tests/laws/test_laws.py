"""Laws that every join obeys, on thousands of random rows: run another way, it gives the same bag of rows.

Columns ``i`` number the rows, so that bags of pairs tell everything. The seed is the run's (``--seed``).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tests.support.effort import at_effort
from tests.support.ticks import (
    QUERY,
    arriving,
    bag,
    check_account,
    plan_of,
    stream,
)
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.coordinator.run_context import TickSettings
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.tasks import merge
from watersmeet.state.store import MemoryStore

Row = dict[str, Any]
Bag = Counter[tuple[Any, ...]]

KINDS = ["INNER", "LEFT", "RIGHT", "FULL"]
COUNT = at_effort(quick=800, full=1500)
"""Rows of each stream."""
KEYED = "l.k = r.k AND r.t BETWEEN l.t - 40 AND l.t + 25"
KEYLESS = "r.t >= l.t - 2 AND r.t < l.t + 2 AND l.v <> r.v"
RICH = "l.k <=> r.k AND r.t > l.t AND r.t <= l.t + 60 AND l.v > 1 AND (l.v + r.v) % 3 <> 0"


def query(kind: str, on: str) -> str:
    return f"SELECT l.i AS li, r.i AS ri FROM l {kind} JOIN r ON {on}"


def random_rows(rng: np.random.Generator, count: int, disorder: int) -> list[Row]:
    """Times rise with disorder; some keys are NULL, some rows come twice."""
    times = np.arange(count) + rng.integers(-disorder, disorder + 1, count)
    keys = rng.choice(["a", "b", "c", "d", "e", None], count, p=[0.4, 0.2, 0.2, 0.1, 0.05, 0.05])
    values = rng.integers(0, 10, count)
    return [
        {"t": int(t), "k": k, "v": int(v), "i": i}
        for i, (t, k, v) in enumerate(zip(times, keys, values, strict=True))
    ]


def cut(rng: np.random.Generator, rows: Sequence[Row], ticks: int) -> list[Sequence[Row]]:
    """The rows in ticks of random sizes, empty ones too."""
    borders = [0, *np.sort(rng.integers(0, len(rows) + 1, ticks - 1)).tolist(), len(rows)]
    return [rows[a:b] for a, b in itertools.pairwise(borders)]


def run(
    text: str,
    left: Sequence[Sequence[Row]],
    right: Sequence[Sequence[Row]],
    *,
    lag: int = 100,
    partitions: int = 1,
    restart: bool = False,
    settings: TickSettings | None = None,
    **options: Any,
) -> Bag:
    """All rows that come out until the end of input; the account is checked in every tick."""
    plan = plan_of(text, {"l": stream(lag), "r": stream(lag)}, **options)
    store = MemoryStore()
    job = LocalJob(plan, store, partitions=partitions, settings=settings)
    found: Bag = Counter()
    for l_rows, r_rows in zip(left, right, strict=True):
        if restart:
            job = LocalJob(plan, store, partitions=partitions, settings=settings)
        output = job.tick(arriving(l=l_rows, r=r_rows))
        assert not output.late
        check_account(output)
        found += bag(output)
    output = job.tick({}, end=True)
    check_account(output)
    assert output.result.queries[QUERY].state == {"l": 0, "r": 0}
    return found + bag(output)


class Streams:
    """Two random streams and how they are cut by default."""

    def __init__(self, seed: int, count: int = COUNT, ticks: int = 8) -> None:
        self.rng = np.random.default_rng(seed)
        self.left, self.right = (random_rows(self.rng, count, 40) for _ in range(2))
        self.ticks = ticks

    def cut(self, ticks: int | None = None) -> tuple[list[Sequence[Row]], list[Sequence[Row]]]:
        ticks = ticks or self.ticks
        return cut(self.rng, self.left, ticks), cut(self.rng, self.right, ticks)


@pytest.fixture
def streams(seed: int) -> Streams:
    return Streams(seed)


def batch_join(text: str, left: Sequence[Row], right: Sequence[Row]) -> Bag:
    """The same query by DuckDB, over everything at once."""
    connection = duckdb.connect()
    schema = pa.schema([("t", pa.int64()), ("k", pa.string()), ("v", pa.int64()), ("i", pa.int64())])
    for name, rows in (("l", left), ("r", right)):
        connection.register(name, pa.Table.from_pylist(list(rows), schema=schema))
    spelled = text.replace("<=>", "IS NOT DISTINCT FROM")
    return Counter(tuple(row) for row in connection.execute(spelled).fetchall())


@pytest.mark.parametrize(
    ("kind", "on"),
    [
        pytest.param(kind, on, id=f"{kind}-{name}", marks=() if number % 3 == place else pytest.mark.full)
        for number, kind in enumerate(KINDS)
        for place, (name, on) in enumerate([("keyed", KEYED), ("keyless", KEYLESS), ("rich", RICH)])
    ],
)
def test_a_batch_join_gives_the_same(streams: Streams, kind: str, on: str) -> None:
    found = run(query(kind, on), *streams.cut(), partitions=3)
    assert found == batch_join(query(kind, on), streams.left, streams.right)


@pytest.mark.parametrize("kind", at_effort(quick=["FULL"], full=KINDS))
def test_other_tick_cuts(streams: Streams, kind: str) -> None:
    results = [run(query(kind, KEYED), *streams.cut(ticks)) for ticks in (1, 5, 20)]
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    ("kind", "swapped"),
    at_effort(quick=[("LEFT", "RIGHT")], full=[("INNER", "INNER"), ("LEFT", "RIGHT"), ("FULL", "FULL")]),
)
def test_swapped_sides(streams: Streams, kind: str, swapped: str) -> None:
    left, right = streams.cut()
    other = f"SELECT l.i AS li, r.i AS ri FROM r {swapped} JOIN l ON {KEYED}"
    assert run(query(kind, KEYED), left, right) == run(other, left, right)


@pytest.mark.parametrize("by", at_effort(quick=[2**62], full=[1, -750, 10**15, -(2**62), 2**62]))
def test_shifted_times(streams: Streams, by: int) -> None:
    left, right = streams.cut()
    moved = [[[row | {"t": row["t"] + by} for row in rows] for rows in ticks] for ticks in (left, right)]
    assert run(query("FULL", KEYED), left, right) == run(query("FULL", KEYED), *moved)


@pytest.mark.parametrize("kind", at_effort(quick=["FULL"], full=["INNER", "FULL"]))
def test_numbers_of_partitions(streams: Streams, kind: str) -> None:
    left, right = streams.cut()
    first, *others = (
        run(query(kind, KEYED), left, right, partitions=count)
        for count in at_effort(quick=(1, 2, 10), full=(1, 2, 3, 7, 10))
    )
    assert all(other == first for other in others)


@pytest.mark.parametrize("on", [KEYED, KEYLESS], ids=["keyed", "keyless"])
def test_a_restart_after_every_tick(streams: Streams, on: str) -> None:
    left, right = streams.cut()
    text = query("FULL", on)
    assert run(text, left, right) == run(text, left, right, restart=True, partitions=2)


def test_ingest_flushed_every_few_rows(seed: int) -> None:
    streams = Streams(seed, count=300, ticks=5)
    left, right = streams.cut()
    text = query("FULL", KEYED)
    assert run(text, left, right) == run(text, left, right, settings=TickSettings(flush_rows=3), partitions=3)


def test_runs_merged_in_every_tick(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = streams.cut(16)
    first = run(query("FULL", KEYED), left, right, partitions=2)
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)
    monkeypatch.setattr(merge_policy, "SMALL_ROWS", 100)
    assert run(query("FULL", KEYED), left, right, partitions=2) == first
    monkeypatch.setattr(merge, "GROUP_ROWS", 300)
    assert run(query("FULL", KEYED), left, right, partitions=3) == first


@pytest.mark.parametrize(("kind", "lateness"), [("INNER", 0), ("LEFT", 30), ("RIGHT", 30), ("FULL", 0)])
def test_rows_that_are_not_late_join_as_in_a_batch_and_all_are_accounted_for(
    seed: int, kind: str, lateness: int
) -> None:
    """Much disorder, little lag: late rows are left out of the batch join, and of nothing else."""
    rng = np.random.default_rng(seed)
    rows = {name: random_rows(rng, 1000, 60) for name in ("l", "r")}
    for name in rows:
        for row in rows[name]:
            if rng.random() < 0.02:
                row["t"] = None
            elif rng.random() < 0.02:
                row["t"] += 10**7
    declared = {name: stream(20, max_ahead=5) for name in rows}
    job = LocalJob(
        plan_of(query(kind, RICH), declared, allowed_lateness=lateness), MemoryStore(), partitions=2
    )
    ticks = {name: cut(rng, each, 12) for name, each in rows.items()}
    found: Bag = Counter()
    dropped = {"l": set(), "r": set()}
    for l_rows, r_rows in zip(ticks["l"], ticks["r"], strict=True):
        output = job.tick(arriving(l=l_rows, r=r_rows))
        check_account(output)
        found += bag(output)
        for name, row in output.late:
            dropped[name].add(row["i"])
    output = job.tick({}, end=True)
    check_account(output)
    found += bag(output)
    on_time = {
        name: [row for row in each if row["t"] is not None and row["i"] not in dropped[name]]
        for name, each in rows.items()
    }
    assert found == batch_join(query(kind, RICH), on_time["l"], on_time["r"])
    for alias, counts in output.result.queries[QUERY].account.items():
        assert counts["in"] == 1000
        assert counts["late"] == len(dropped[alias]) > 0
        assert counts["null_time"] > 0
        assert "ahead" not in counts, "numbers have no place on the clock"
        assert counts["retained"] == 0


def test_state_is_what_may_still_match_and_no_more(streams: Streams) -> None:
    """After each tick a side holds exactly its rows at or above the limit."""
    job = LocalJob(
        plan_of(query("FULL", KEYED), {"l": stream(50), "r": stream(50)}), MemoryStore(), partitions=3
    )
    seen: dict[str, list[Row]] = {"l": [], "r": []}
    greatest = {"l": -(10**9), "r": -(10**9)}
    for l_rows, r_rows in zip(*streams.cut(15), strict=True):
        late_below = {name: top - 50 for name, top in greatest.items()}
        output = job.tick(arriving(l=l_rows, r=r_rows))
        for name, rows in (("l", l_rows), ("r", r_rows)):
            seen[name] += [row for row in rows if row["t"] >= late_below[name] and row["k"] is not None]
            greatest[name] = max([greatest[name], *(row["t"] for row in rows)])
        limits = {"l": greatest["r"] - 50 - 25, "r": greatest["l"] - 50 - 40}
        expected = {name: sum(row["t"] >= limits[name] for row in seen[name]) for name in seen}
        assert output.result.queries[QUERY].state == expected
