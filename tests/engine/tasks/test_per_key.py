"""max_rows_per_key, against counting the rows that a job without it keeps."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from tests.support.effort import at_effort
from tests.support.ticks import QUERY, arriving, bag, plan_of, stream
from watersmeet.errors import EngineError, PlanError
from watersmeet.runtime.coordinator.run_context import TickSettings
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.tasks import key_limits
from watersmeet.state.marks import read_marks
from watersmeet.state.store import MemoryStore

BAND = "l.i = r.i AND r.t BETWEEN l.t - 30 AND l.t + 30"


def count_retained_rows_by_key(job: LocalJob) -> dict[str, Counter[int]]:
    """Per side how many rows of each key are kept, by reading all of them."""
    counters = {}
    (node,) = job.driver.manifest.queries[QUERY].nodes
    for name, kept in node.arrangements.items():
        counters[name] = Counter()
        shape = next(side for side in job.driver.shapes[QUERY][0].sides if side.name == name)
        for live in kept.runs:
            rows = pa.ipc.open_file(pa.BufferReader(job.store.read(live.run.name))).read_all().to_pylist()
            gone = read_marks(job.store, "gone", live.marks.get("gone", ()), 0, len(rows))
            for row, is_gone in zip(rows, gone, strict=True):
                released = any(
                    row[column] < limit
                    for column, limit in kept.limits.items()
                    if column in shape.layout.releasing
                )
                counters[name][row["i"]] += not released and not is_gone
    return counters


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN", "FULL JOIN", "LEFT ANTI JOIN"])
@pytest.mark.parametrize("seed", range(at_effort(quick=2, full=6)))
def test_the_tick_that_would_keep_more_is_the_one_that_fails(kind, seed):
    rng = np.random.default_rng(seed)
    columns = "l.t AS lt" if "ANTI" in kind else "l.t AS lt, r.t AS rt"
    query = f"SELECT {columns} FROM l {kind} r ON {BAND}"
    partitions, most = int(rng.integers(1, 4)), int(rng.integers(3, 30))
    free = LocalJob(plan_of(query), MemoryStore(), partitions=partitions)
    held = LocalJob(plan_of(query, max_rows_per_key=most), MemoryStore(), partitions=partitions)
    for tick in range(15):
        rows = {
            name: [
                {"i": int(rng.random() ** 3 * 12), "t": tick * 10 + int(rng.integers(0, 10))}
                for _ in range(int(rng.integers(0, 30)))
            ]
            for name in "lr"
        }
        expected = free.tick(arriving(**rows))
        over = {
            (name, key): count
            for name, counts in count_retained_rows_by_key(free).items()
            for key, count in counts.items()
            if count > most
        }
        if not over:
            assert bag(held.tick(arriving(**rows))) == bag(expected), f"seed {seed}"
            continue
        with pytest.raises(EngineError) as raised:
            held.tick(arriving(**rows))
        assert raised.value.code == "max-rows-per-key"
        assert held.driver.tick == tick
        named = raised.value.message.split("keys: ", 1)[1]
        assert any(f"i = {key} of {name}: {count}" in named for (name, key), count in over.items()), (
            f"seed {seed}"
        )
        return
    assert most > 8, "some seeds reach their limits"


def test_keys_of_one_bucket_are_counted_apart():
    """All keys in one place of the hash space: together they are more than the limit, none of them alone."""
    query = f"SELECT l.t AS lt FROM l JOIN r ON {BAND}"
    job = LocalJob(
        plan_of(query, max_rows_per_key=5), MemoryStore(), settings=TickSettings(placing=np.zeros_like)
    )
    job.tick(arriving(l=[{"i": key, "t": 1} for key in range(10) for _ in range(5)]))
    with pytest.raises(
        EngineError, match=r"max_rows_per_key = 5 rows for each of these keys: i = 3 of l: 6\nHint"
    ):
        job.tick(arriving(l=[{"i": 3, "t": 1}]))
    assert job.tick(arriving(l=[{"i": 11, "t": 1}])).result.tick == 2


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_after_the_limit_was_lowered_only_keys_of_new_rows_are_looked_at(partitions):
    """Whatever the number of partitions, and however many runs of other shares there are."""
    query = f"SELECT l.t AS lt FROM l JOIN r ON {BAND}"
    store = MemoryStore()
    job = LocalJob(plan_of(query), store, partitions=partitions)
    for key in range(8):
        job.tick(arriving(l=[{"i": key, "t": 1}] * 9))
    job = LocalJob(plan_of(query, max_rows_per_key=5), store, partitions=partitions)
    for key in range(10, 20):
        job.tick(arriving(l=[{"i": key, "t": 1}]))
    with pytest.raises(EngineError, match="keys: i = 3 of l: 10"):
        job.tick(arriving(l=[{"i": 3, "t": 1}]))


def test_rows_that_were_released_cost_no_look_at_keys(monkeypatch):
    """They are counted for all keys at once."""
    query = f"SELECT l.t AS lt FROM l JOIN r ON {BAND}"
    job = LocalJob(plan_of(query, max_rows_per_key=5), MemoryStore())
    monkeypatch.setattr(key_limits, "hash_columns", None)
    for t in (0, 100, 200):
        job.tick(arriving(l=[{"i": key, "t": t} for key in range(50)] * 4, r=[{"i": -1, "t": t}]))


def test_key_limit_error_reads_only_the_keys_it_reports(monkeypatch):
    read, hashed = [], key_limits.hash_columns
    monkeypatch.setattr(key_limits, "hash_columns", lambda *keys: read.append(keys) or hashed(*keys))
    job = LocalJob(plan_of(f"SELECT l.t AS lt FROM l JOIN r ON {BAND}", max_rows_per_key=5), MemoryStore())
    with pytest.raises(EngineError, match=r"keys: i = 49 of l: 55, .*, .* of l: 53, and at least one more"):
        job.tick(arriving(l=[{"i": key, "t": 1} for key in range(50) for _ in range(6 + key)]))
    assert len(read) == 4


def test_max_rows_per_key_is_refused_with_retractions():
    with pytest.raises(PlanError, match="max_rows_per_key is not supported"):
        plan_of(f"SELECT l.t AS lt FROM l JOIN r ON {BAND}", output_mode="changelog", max_rows_per_key=5)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT l.t AS lt FROM l JOIN r ON r.t BETWEEN l.t - 30 AND l.t + 30",
        "SELECT count(*) AS n FROM TABLE(TUMBLE(TABLE l, DESCRIPTOR(t), 10))"
        " GROUP BY window_start, window_end",
    ],
)
def test_it_is_refused_where_nothing_has_a_key(query):
    plan_of(query)
    with pytest.raises(PlanError, match="stores no rows by key"):
        plan_of(query, max_rows_per_key=5)


def test_max_rows_per_key_has_no_effect_on_stateless_queries():
    """Other queries of the job may keep rows."""
    plan_of("SELECT l.t AS lt FROM l WHERE l.i > 3", max_rows_per_key=5)


def test_it_is_refused_in_delta_joins():
    """There rows on their way are not kept, and copies of sides are."""
    streams = {name: stream() for name in "lrs"}
    query = (
        f"SELECT l.t AS lt FROM l JOIN r ON {BAND} JOIN s ON s.i = l.i AND s.t BETWEEN l.t - 30 AND l.t + 30"
    )
    plan_of(query, streams, max_rows_per_key=5)
    plan_of(query, streams, plan="delta")
    with pytest.raises(PlanError, match="delta joins"):
        plan_of(query, streams, plan="delta", max_rows_per_key=5)
