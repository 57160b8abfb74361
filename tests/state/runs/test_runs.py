"""Runs: sorted rows on disk, and which of them the limits release."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.errors import StateError
from watersmeet.event_time import ENDED, MAX_TIME, MIN_TIME, NEVER
from watersmeet.kernel.slots import encode
from watersmeet.measure import Measured
from watersmeet.state.runs.layout import RunLayout, whole_run_released
from watersmeet.state.runs.reader import OpenRun
from watersmeet.state.runs.writer import sort_rows, write_run
from watersmeet.state.store import SMALL_BYTES, LocalStore, MemoryStore

NAMES = ("t", "u", "w")


def layout(times=1, releasing=1, index="t"):
    return RunLayout(
        indexes=() if index is None else (Measured(index),),
        event_times=NAMES[:times],
        releasing=NAMES[:releasing],
    )


def rows_of(rng, shape, count, low=-20, high=20):
    columns = {name: pa.array(rng.integers(low, high, count, endpoint=True)) for name in shape.event_times}
    columns["n"] = pa.array(np.arange(count))
    return pa.RecordBatch.from_pydict(columns)


def store_run(shape, batch, hashes=None, store=None):
    store = MemoryStore() if store is None else store
    values = np.zeros(batch.num_rows, dtype=np.int64) if hashes is None else hashes
    rows, _ = sort_rows(batch, values, shape)
    return store, write_run(store, "q/l", rows, shape, tick=1)


def open_stored_run(shape, batch, hashes=None):
    store, run = store_run(shape, batch, hashes)
    return OpenRun.open(store, run, shape)


def test_rows_are_sorted_by_slot_and_keep_their_columns(seed):
    rng = np.random.default_rng(seed)
    shape = layout(times=2)
    batch = rows_of(rng, shape, 200)
    hashes = rng.integers(MIN_TIME, MAX_TIME, 200)
    run = open_stored_run(shape, batch, hashes)
    rows = run.sorted_rows
    assert (np.diff(rows.slots) >= 0).all()
    assert rows.batch.schema.names == ["t", "u", "n"]
    back = rows.batch.column("n").to_numpy()
    assert rows.batch.to_pydict() == batch.take(pa.array(back)).to_pydict()
    assert (rows.slots == encode(hashes[back], rows.times("t"), rows.base, rows.shift)).all()
    assert run.run.low == rows.slots[0]
    assert run.run.high == rows.slots[-1]
    assert run.run.spans == {
        name: (min(batch.column(name).to_pylist()), max(batch.column(name).to_pylist()))
        for name in ("t", "u")
    }


def test_sorting_says_where_each_row_was(seed):
    rng = np.random.default_rng(seed)
    batch = rows_of(rng, layout(), 50)
    rows, order = sort_rows(batch, rng.integers(MIN_TIME, MAX_TIME, 50), layout())
    assert (rows.batch.column("n").to_numpy() == order).all()


def test_equal_slots_keep_their_order():
    batch = pa.RecordBatch.from_pydict({"t": pa.array([5, 5, 5]), "n": pa.array([0, 1, 2])})
    assert sort_rows(batch, np.zeros(3, dtype=np.int64), layout())[1].tolist() == [0, 1, 2]


def test_a_column_may_have_the_name_of_an_internal_one():
    batch = pa.RecordBatch.from_pydict({"t": pa.array([1, 2]), "#id": pa.array(["a", "b"])})
    assert open_stored_run(layout(), batch).sorted_rows.batch.to_pydict() == {"t": [1, 2], "#id": ["a", "b"]}


def test_without_an_index_column_slots_hold_hashes_only():
    shape = layout(index=None)
    batch = pa.RecordBatch.from_pydict({"t": pa.array([7, 3, 5])})
    rows, _ = sort_rows(batch, np.array([2, 1, 0]) << 40, shape)
    assert (rows.base, rows.shift, rows.greatest) == (0, 0, 0)
    assert rows.slots.tolist() == [0, 1 << 40, 2 << 40]


LIMITS = [NEVER, MIN_TIME, -21, -20, -19, -1, 0, 7, 20, 21, MAX_TIME, ENDED]


@pytest.mark.parametrize("limit", LIMITS)
def test_below_counts_times_below_the_limit(seed, limit):
    batch = rows_of(np.random.default_rng(seed), layout(), 100)
    expected = sum(time < limit for time in batch.column("t").to_pylist())
    assert open_stored_run(layout(), batch).below("t", limit) == expected


def risings(rng, columns, steps):
    """A random sequence of limits, none going back, from nothing to the end of input."""
    levels = {name: sorted(rng.choice([NEVER, *range(-25, 26)], steps).tolist()) for name in columns}
    for step in range(steps):
        yield {name: values[step] for name, values in levels.items() if values[step] > NEVER or step % 2}
    yield dict.fromkeys(columns, ENDED)


@pytest.mark.parametrize("releasing", [1, 2, 3])
def test_each_row_is_released_once_by_any_sequence_of_limits(seed, releasing):
    rng = np.random.default_rng((seed, releasing))
    shape = layout(times=3, releasing=releasing)
    for _ in range(25):
        batch = rows_of(rng, shape, int(rng.integers(1, 60)))
        run = open_stored_run(shape, batch, rng.integers(MIN_TIME, MAX_TIME, batch.num_rows))
        times = {name: run.sorted_rows.times(name) for name in shape.event_times}
        before: dict[str, float] = {}
        gone = np.zeros(batch.num_rows, dtype=bool)
        for after in risings(rng, shape.releasing, 6):
            after = {name: max(after.get(name, NEVER), before.get(name, NEVER)) for name in shape.releasing}
            expected = np.zeros(batch.num_rows, dtype=bool)
            for name in shape.releasing:
                expected |= np.array([time < after[name] for time in times[name].tolist()])
            found = run.newly_released(before, after)
            assert sorted(found.tolist()) == np.flatnonzero(expected & ~gone).tolist(), seed
            assert (run.live(after, 0, batch.num_rows) == ~expected).all(), seed
            gone, before = expected, after
        assert gone.all()


@pytest.mark.parametrize("releasing", [0, 1, 2, 3])
def test_least_is_that_of_the_rows_that_are_left(seed, releasing):
    rng = np.random.default_rng((seed, releasing))
    shape = layout(times=3, releasing=releasing)
    for _ in range(25):
        batch = rows_of(rng, shape, int(rng.integers(1, 60)))
        run = open_stored_run(shape, batch, rng.integers(MIN_TIME, MAX_TIME, batch.num_rows))
        for after in risings(rng, shape.releasing, 6):
            left = [
                row
                for row in batch.to_pylist()
                if all(row[name] >= after.get(name, NEVER) for name in shape.releasing)
            ]
            expected = {name: min(row[name] for row in left) for name in shape.event_times} if left else None
            assert run.least(after) == expected, seed


def test_live_evaluates_only_the_requested_slice(seed):
    batch = rows_of(np.random.default_rng(seed), layout(), 40)
    run = open_stored_run(layout(), batch)
    assert (run.live({"t": 0}, 10, 25) == (run.sorted_rows.times("t")[10:25] >= 0)).all()


def test_times_at_the_extremes_are_released_in_order():
    batch = pa.RecordBatch.from_pydict({"t": pa.array([MAX_TIME, MIN_TIME, 0])})
    run = open_stored_run(layout(), batch)
    assert run.below("t", MIN_TIME) == 0
    assert run.below("t", MIN_TIME + 1) == 1
    assert run.below("t", MAX_TIME) == 2
    assert run.below("t", MAX_TIME + 1) == 3
    assert len(run.newly_released({}, {"t": ENDED})) == 3


def test_a_run_is_dropped_unread_when_one_limit_is_above_all_its_rows():
    _, run = store_run(layout(times=2, releasing=2), pa.RecordBatch.from_pydict({"t": [1, 9], "u": [5, 6]}))
    assert not whole_run_released(run, ("t", "u"), {"t": 9, "u": 6})
    assert whole_run_released(run, ("t", "u"), {"t": 10})
    assert whole_run_released(run, ("t", "u"), {"u": 7})
    assert not whole_run_released(run, ("t",), {"u": 7})


@pytest.fixture
def on_disk(tmp_path):
    store = LocalStore(tmp_path)
    _, run = store_run(layout(), pa.RecordBatch.from_pydict({"t": pa.array(range(1000))}), store=store)
    return store, run, tmp_path / run.name


def test_a_missing_run_is_named(on_disk):
    store, run, path = on_disk
    path.unlink()
    with pytest.raises(StateError, match=run.name) as raised:
        _ = OpenRun.open(store, run, layout()).sorted_rows
    assert raised.value.code == "state-missing"


@pytest.mark.parametrize("keep", [0, 1, 0.5, 0.999])
def test_a_truncated_run_is_damaged(on_disk, keep):
    store, run, path = on_disk
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data)) if keep < 1 else -1])
    with pytest.raises(StateError, match="damaged") as raised:
        _ = OpenRun.open(store, run, layout()).sorted_rows
    assert raised.value.code == "state-damaged"
    assert raised.value.hint


def test_a_run_whose_directory_is_damaged_cannot_be_opened(on_disk):
    store, run, path = on_disk
    data = bytearray(path.read_bytes())
    data[-64:] = b"\xff" * 64
    path.write_bytes(data)
    with pytest.raises(StateError, match="damaged"):
        _ = OpenRun.open(store, run, layout()).sorted_rows


def test_a_small_run_is_not_read_by_the_process_that_wrote_it(tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    shape = layout(times=2)
    batch = rows_of(rng, shape, 40)
    store, run = store_run(shape, batch, store=LocalStore(tmp_path))
    elsewhere = OpenRun.open(LocalStore(tmp_path), run, shape).sorted_rows
    monkeypatch.setattr(LocalStore, "read", None)
    for other in (shape, replace(shape, counts_keys=True)):
        own = OpenRun.open(store, run, other).sorted_rows
        assert own.batch.equals(elsewhere.batch)
        assert own.slots.tolist() == elsewhere.slots.tolist()
    assert pickle.loads(pickle.dumps(store)).opened == {}
    store.delete(run.name)
    assert store.opened == {}


def test_a_large_run_does_not_stay_in_memory(tmp_path):
    batch = pa.RecordBatch.from_pydict({"t": pa.array(range(SMALL_BYTES // 8))})
    store, run = store_run(layout(), batch, store=LocalStore(tmp_path))
    assert len(OpenRun.open(store, run, layout()).sorted_rows) == batch.num_rows
    assert store.opened == {}


def test_run_replaced_on_disk_is_detected_as_damaged(on_disk):
    store, run, path = on_disk
    assert len(OpenRun.open(store, run, layout()).sorted_rows) == 1_000
    data = path.read_bytes()
    path.write_bytes(data[:500] + b"\7" + data[501:])
    with pytest.raises(StateError, match="damaged"):
        _ = OpenRun.open(store, run, layout()).sorted_rows
    path.write_bytes(data)
    assert len(OpenRun.open(store, run, layout()).sorted_rows) == 1_000


def test_run_is_not_read_when_no_row_is_needed(on_disk):
    store, run, path = on_disk
    path.unlink()
    opened = OpenRun.open(store, run, layout())
    assert opened.below("t", 0) == 0
    assert opened.below("t", 1_000) == 1_000
    assert opened.least({}) == {"t": 0}
    with pytest.raises(StateError, match=run.name):
        opened.below("t", 500)
