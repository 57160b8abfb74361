"""In which order rows leave a single task: left rows as they came with their matches, right rows, pads.

What is expected is worked out from the rows alone, by loops over them.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.effort import at_effort
from tests.support.ticks import QUERY, arriving, plan_of, stream
from watersmeet.kernel.match import probe
from watersmeet.runtime.coordinator.run_context import TickSettings
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.tasks import matches, results
from watersmeet.runtime.tasks.run_writer import FLUSH_ROWS
from watersmeet.state.store import MemoryStore

Row = dict[str, Any]

KEYED = "l.k = r.k AND r.t BETWEEN l.t - 40 AND l.t + 25"
KEYLESS = "r.t BETWEEN l.t - 3 AND l.t + 2"
LAG = 1000


def meets(condition: str, left: Row, right: Row) -> bool:
    if condition == KEYLESS:
        return left["t"] - 3 <= right["t"] <= left["t"] + 2
    return left["k"] == right["k"] and left["t"] - 40 <= right["t"] <= left["t"] + 25


def ticks_of(rng: np.random.Generator, ticks: int = 5, rows: int = 60) -> list[tuple[list[Row], list[Row]]]:
    """Per tick rows of both sides, numbered by ``i`` as they come, with keys and times in no order."""
    found, numbers = [], (itertools.count(), itertools.count())
    for tick in range(ticks):
        sides = []
        for number in numbers:
            count = int(rng.integers(rows // 2, rows))
            keys = rng.choice(list("abcdefghijklmnopqrstuvwxy"), count).tolist()
            times = (tick * 30 + rng.integers(0, 40, count)).tolist()
            sides.append(
                [{"t": t, "k": k, "v": 0, "i": next(number)} for t, k in zip(times, keys, strict=True)]
            )
        found.append((sides[0], sides[1]))
    return found


def job_of(
    kind: str, on: str, flush_rows: int = FLUSH_ROWS, store: MemoryStore | None = None, **options: Any
) -> LocalJob:
    columns = "l.i AS li" if kind in ("LEFT SEMI", "LEFT ANTI") else "l.i AS li, r.i AS ri"
    plan = plan_of(
        f"SELECT {columns} FROM l {kind} JOIN r ON {on}",
        {"l": stream(lag=LAG), "r": stream(lag=LAG)},
        **options,
    )
    settings = TickSettings(flush_rows=flush_rows)
    return LocalJob(plan, MemoryStore() if store is None else store, settings=settings)


def outputs(job: LocalJob, ticks: Sequence[tuple[list[Row], list[Row]]]) -> list[list[tuple[Any, ...]]]:
    found = [job.tick(arriving(l=left, r=right)) for left, right in ticks]
    found.append(job.tick({}, end=True))
    return [[tuple(row.values()) for row in output.rows[QUERY]] for output in found]


def runs_of(values: Sequence[Any]) -> list[tuple[Any, int]]:
    """Each value with how often it comes in a row."""
    return [(value, len(list(group))) for value, group in itertools.groupby(values)]


@pytest.fixture
def rng(seed) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(params=["in one piece", "in small pieces"])
def small(request, monkeypatch):
    """How many rows a run holds. In small pieces: few candidates at a time, and few bytes in a batch."""
    if request.param == "in one piece":
        return 1_000_000
    monkeypatch.setattr(matches, "CHUNK", 40)
    monkeypatch.setattr(probe, "CHUNK", 9)
    monkeypatch.setattr(results, "max_output_bytes", lambda memory: 100)
    return 17


@pytest.mark.parametrize(
    ("kind", "on"),
    [
        ("INNER", KEYED),
        ("LEFT", KEYLESS),
        ("RIGHT", KEYED),
        ("FULL", KEYLESS),
        pytest.param("INNER", KEYLESS, marks=pytest.mark.full),
        pytest.param("LEFT", KEYED, marks=pytest.mark.full),
        pytest.param("RIGHT", KEYLESS, marks=pytest.mark.full),
        pytest.param("FULL", KEYED, marks=pytest.mark.full),
    ],
)
def test_left_rows_then_right_rows_then_pads(kind, on, small, rng):
    ticks = ticks_of(rng)
    found = outputs(job_of(kind, on, small), ticks)
    seen_left: list[Row] = []
    seen_right: list[Row] = []
    for (left, right), rows in zip(ticks, found, strict=False):
        old = list(seen_left)
        seen_left += left
        seen_right += right
        expected = [[(a["i"], b["i"]) for b in seen_right if meets(on, a, b)] for a in left]
        expected += [[(a["i"], b["i"]) for a in old if meets(on, a, b)] for b in right]
        start = 0
        for pairs in expected:
            assert sorted(rows[start : start + len(pairs)]) == sorted(pairs)
            start += len(pairs)
        assert all(None in row for row in rows[start:])
    _check_pads(kind, on, ticks, found)


def _check_pads(
    kind: str,
    on: str,
    ticks: Sequence[tuple[list[Row], list[Row]]],
    found: Sequence[Sequence[tuple[Any, ...]]],
) -> None:
    left = [row for tick, _ in ticks for row in tick]
    right = [row for _, tick in ticks for row in tick]
    expected = set()
    if kind in ("LEFT", "FULL"):
        expected |= {(a["i"], None) for a in left if not any(meets(on, a, b) for b in right)}
    if kind in ("RIGHT", "FULL"):
        expected |= {(None, b["i"]) for b in right if not any(meets(on, a, b) for a in left)}
    pads = [row for rows in found for row in rows if None in row]
    assert sorted(pads, key=str) == sorted(expected, key=str)


def test_rows_that_wait_for_nothing_are_padded_as_they_came(small, rng):
    """Rows that are released in their own tick; and those that can match nothing."""
    plan = plan_of(
        "SELECT l.i AS li, r.i AS ri FROM l LEFT JOIN r ON l.k = r.k AND r.t = l.t + 1000 AND l.v = 0",
        {"l": stream(lag=LAG), "r": stream(lag=0)},
    )
    job = LocalJob(plan, MemoryStore(), settings=TickSettings(flush_rows=small))
    ((rows, _),) = ticks_of(rng, ticks=1)
    job.tick(arriving(r=[{"t": 100_000, "k": "x", "v": 0, "i": 0}]))
    output = job.tick(arriving(l=[*rows, *({**row, "v": 1, "i": 1000 + row["i"]} for row in rows)]))
    numbers = [row["li"] for row in output.rows[QUERY]]
    assert numbers == [*range(len(rows)), *range(1000, 1000 + len(rows))]


@pytest.mark.parametrize("on", [KEYED, KEYLESS])
def test_semi_joins(on, small, rng):
    ticks = ticks_of(rng)
    found = outputs(job_of("LEFT SEMI", on, small), ticks)
    seen_right: list[Row] = []
    for (left, right), rows in zip(ticks, found, strict=False):
        seen_right += right
        expected = [a["i"] for a in left if any(meets(on, a, b) for b in seen_right)]
        assert [number for (number,) in rows[: len(expected)]] == expected
        assert all(number < left[0]["i"] for (number,) in rows[len(expected) :])


def test_asof_joins(small, rng):
    """What is decided at once: the time of a right row is the left row's."""
    plan = plan_of(
        "SELECT l.i AS li, r.i AS ri FROM l LEFT ASOF JOIN r MATCH_CONDITION (l.t >= r.t) ON l.k = r.k",
        {"l": stream(lag=LAG), "r": stream(lag=LAG)},
    )
    job = LocalJob(plan, MemoryStore(), settings=TickSettings(flush_rows=small))
    for left, right in ticks_of(rng):
        right.append({**left[0], "i": -1})  # at least one left row is decided at once
        rows = [tuple(row.values()) for row in job.tick(arriving(l=left, r=right)).rows[QUERY]]
        new = [li for li, _ in rows if li >= left[0]["i"]]
        assert new
        assert new == sorted(new)
    ended = [tuple(row.values()) for row in job.tick({}, end=True).rows[QUERY]]
    alone = [ri is None for _, ri in ended]
    assert alone == sorted(alone)  # pads come last


def test_chains_of_joins(small, rng):
    """The input order of a join above is the order in which the one beneath puts its rows out."""
    streams = {name: stream(lag=LAG) for name in ("l", "r", "x")}
    plan = plan_of(
        "SELECT l.i AS li, r.i AS ri, x.i AS xi FROM l "
        "LEFT JOIN r ON l.k = r.k AND r.t BETWEEN l.t AND l.t + 9 "
        "LEFT JOIN x ON l.k = x.k AND x.t BETWEEN l.t AND l.t + 9",
        streams,
    )
    job = LocalJob(plan, MemoryStore(), settings=TickSettings(flush_rows=small))
    ((left, right),) = ticks_of(rng, ticks=1)
    output = job.tick(arriving(l=left, r=right, x=[{**row, "t": row["t"] + 1} for row in right]))
    rows = [(row["li"], row["ri"]) for row in output.rows[QUERY]]
    assert rows
    assert [li for li, _ in rows] == sorted(li for li, _ in rows)
    assert len(runs_of(rows)) == len(set(rows))


@pytest.mark.parametrize(
    ("kind", "partitions"),
    [
        ("INNER", 1),
        ("FULL", 3),
        pytest.param("LEFT SEMI", 1, marks=pytest.mark.full),
        pytest.param("LEFT SEMI", 3, marks=pytest.mark.full),
        pytest.param("LEFT ANTI", 1, marks=pytest.mark.full),
        pytest.param("LEFT ANTI", 3, marks=pytest.mark.full),
        pytest.param("INNER", 3, marks=pytest.mark.full),
        pytest.param("FULL", 1, marks=pytest.mark.full),
    ],
)
def test_repeated_tick_emits_rows_in_the_same_order(kind, partitions, small, rng):
    ticks = ticks_of(rng, ticks=at_effort(quick=10, full=12))
    job = job_of(kind, KEYED, small)
    job.partitions = partitions
    for left, right in ticks[:-1]:
        job.tick(arriving(l=left, r=right))
    left, right = ticks[-1]
    again = []
    for _ in range(2):
        repeated = job_of(kind, KEYED, small, copy.deepcopy(job.store))
        repeated.partitions = partitions
        tick = repeated.tick(arriving(l=left, r=right)).rows[QUERY]
        again.append([tick, repeated.tick({}, end=True).rows[QUERY]])
    assert any(again[0])
    assert again[0] == again[1]
