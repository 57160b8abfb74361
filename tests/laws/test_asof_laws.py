"""ASOF joins on thousands of random rows: as DuckDB's over everything at once, and however they are run.

Which of several right rows with one time is taken DuckDB does not say; there only times are compared. The
laws compare rows: the one that came first is taken, whatever ticks, tasks, merges and restarts there are.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tests.laws.test_laws import Bag, Row, Streams, run
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.coordinator.run_context import TickSettings
from watersmeet.runtime.local.evaluate import move_to_borders

CONDITIONS = {
    "backward": ("l.t >= r.t", None),
    "strict": ("l.t > r.t", None),
    "shifted": ("l.t >= r.t + 7", None),
    "tolerance": ("l.t >= r.t", "r.t >= l.t - 3"),
    "forward": ("l.t <= r.t", "r.t <= l.t + 60"),
    "strict-forward": ("l.t < r.t", "r.t < l.t + 4"),
}
KEYS = {"keyed": "l.k = r.k", "keyless": None}


@pytest.fixture
def streams(seed: int) -> Streams:
    return Streams(seed, 900)


def query(kind: str, match: str, tolerance: str | None, key: str | None, columns: str) -> str:
    on = " AND ".join(filter(None, [key, tolerance]))
    text = f"SELECT l.i AS li, {columns} FROM l {kind} JOIN r MATCH_CONDITION ({match})"
    return f"{text} ON {on}" if on else text


def by_duckdb(kind: str, match: str, tolerance: str | None, key: str | None, streams: Streams) -> Bag:
    """(left row, time of its nearest right row). The nearest row within the tolerance is the nearest one, if
    it is within the tolerance."""
    connection = duckdb.connect()
    schema = pa.schema([("t", pa.int64()), ("k", pa.string()), ("v", pa.int64()), ("i", pa.int64())])
    for name, rows in (("l", streams.left), ("r", streams.right)):
        connection.register(name, pa.Table.from_pylist(list(rows), schema=schema))
    near = f"CASE WHEN {tolerance or 'TRUE'} THEN r.t END"
    on = " AND ".join(filter(None, [key, match]))
    text = f"SELECT l.i, {near} FROM l ASOF LEFT JOIN r ON {on}"
    found = [tuple(row) for row in connection.execute(text).fetchall()]
    return Bag(row for row in found if kind == "LEFT ASOF" or row[1] is not None)


@pytest.mark.parametrize(
    ("kind", "condition", "key"),
    [
        pytest.param(kind, condition, key, marks=() if number % 4 == place else pytest.mark.full)
        for number, condition in enumerate(CONDITIONS)
        for place, (kind, key) in enumerate(product(("ASOF", "LEFT ASOF"), KEYS))
    ],
)
def test_duckdb_gives_the_same(streams: Streams, kind: str, condition: str, key: str) -> None:
    match, tolerance = CONDITIONS[condition]
    text = query(kind, match, tolerance, KEYS[key], "r.t AS rt")
    found = run(text, *streams.cut(), partitions=3)
    assert sum(found.values()) > 100
    assert found == by_duckdb(kind, match, tolerance, KEYS[key], streams)


@pytest.mark.parametrize(
    ("condition", "key"),
    [
        pytest.param("shifted", "keyed", marks=pytest.mark.full),
        ("tolerance", "keyed"),
        pytest.param("strict-forward", "keyed", marks=pytest.mark.full),
        pytest.param("backward", "keyless", marks=pytest.mark.full),
    ],
)
def test_however_it_is_run(
    streams: Streams, condition: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other ticks, numbers of tasks, restarts, merges after every other tick: the same pairs of rows."""
    match, tolerance = CONDITIONS[condition]
    text = query("LEFT ASOF", match, tolerance, KEYS[key], "r.i AS ri")
    first = run(text, *streams.cut(1))
    assert first == run(text, *streams.cut(5), partitions=2)
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)
    cut = streams.cut(12)
    assert first == run(text, *cut, partitions=3)
    assert first == run(
        text, *cut, partitions=7, restart=True, settings=TickSettings(placing=move_to_borders)
    )


@pytest.mark.parametrize("match", ["l.t >= r.t", "l.t <= r.t AND r.t <= l.t + 50"])
def test_first_of_rows_with_equal_times_is_matched(seed: int, match: str) -> None:
    """Few times and one key: nearly every row has ties; worked out by one pass over the rows."""
    rng = np.random.default_rng(seed)
    left, right = (_few_times(rng, 300) for _ in range(2))
    text = query("LEFT ASOF", match, None, None, "r.i AS ri")
    want: dict[int, int] = {}
    for row in reversed(right):
        want[row["t"]] = row["i"]
    ticks = [left[n : n + 20] for n in range(0, 300, 20)], [right[n : n + 20] for n in range(0, 300, 20)]
    for partitions in (1, 3):
        for l_row, r_row in run(text, *ticks, partitions=partitions):
            time = left[l_row]["t"]
            times = [
                t for t in want if (t <= time if ">=" in match.split("AND")[0] else time <= t <= time + 50)
            ]
            best = (max if ">=" in match.split("AND")[0] else min)(times, default=None)
            assert r_row == (None if best is None else want[best])


def _few_times(rng: np.random.Generator, count: int) -> list[Row]:
    times: list[Any] = np.sort(rng.integers(0, 12, count)).tolist()
    return [{"t": 5 * t, "k": "a", "v": 0, "i": i} for i, t in enumerate(times)]
