"""Histories of any length are bounded, have each tick once at any moment, and rolling up loses no amount."""

from __future__ import annotations

import random
import time
from collections import defaultdict

import pyarrow as pa
import pytest

from tests.support.effort import at_effort
from watersmeet.errors import StateError
from watersmeet.history import segments
from watersmeet.history import writer as module
from watersmeet.history.points import END, SCHEMA, Figures
from watersmeet.history.reader import read
from watersmeet.history.segments import FOLDER, HistorySegment, select_segments
from watersmeet.history.writer import HistoryWriter
from watersmeet.state.store import LocalStore, MemoryStore

JOB, MARK = ("job", "duration_us"), ("time/q/a/t", "watermark")


class Looked(MemoryStore):
    """Calls ``look`` after each thing that is done to it: whoever is killed there leaves that."""

    look = staticmethod(lambda: None)

    def write(self, name, data, *, lasting=True, sections=()):
        assert name not in self.contents, "nothing in a store is overwritten"
        super().write(name, data, lasting=lasting)
        self.look()

    def delete(self, name):
        super().delete(name)
        self.look()


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Segments of four ticks, of which two are kept, and two points are rolled up to one."""
    for name, value in {"FULL_TICKS": 4, "MAX_SEGMENTS": 2, "FACTOR": 2, "LEVELS": 3}.items():
        monkeypatch.setattr(module, name, value)


def figures(tick: int) -> Figures:
    level = None if tick == 1 else END if tick == 60 else tick * 10
    told = [("input/q/a", "standstill", f"by {tick // 5}")] if tick % 5 == 0 else []
    return Figures({JOB: tick, ("source/s", "rows_in"): tick * tick}, {MARK: level}, told)


def written(keeping: HistoryWriter, tick: int) -> None:
    """One more tick, and its write waited for."""
    keeping.add(tick, tick * 1_000, figures(tick))
    if keeping._writing is not None:
        keeping._writing.result()


def ticks_in(store) -> dict[int, int]:
    """How often each tick is there."""
    counts = defaultdict(int)
    for first, last in zip(
        *(read(store).series(*JOB).points.column(name).to_pylist() for name in ("first_tick", "last_tick")),
        strict=True,
    ):
        for tick in range(first, last + 1):
            counts[tick] += 1
    return counts


@pytest.mark.parametrize("seed", range(at_effort(quick=1, full=3)))
def test_killed_at_any_step_each_tick_is_there_once(seed):
    """Runs of random lengths; looked at after each step of each write, as a kill there would leave it."""
    rng, store = random.Random(seed), Looked()
    done, seen, looks = 0, {}, 0

    def look():
        nonlocal looks
        looks += 1
        now = ticks_in(store)
        assert set(now.values()) <= {1}, now
        assert set(seen) <= set(now) | forgotten(now), "what was written is gone"

    def forgotten(now):
        return set(range(1, min(now, default=1)))  # the oldest, above the last level

    store.look = look
    while done < 60:
        keeping = HistoryWriter(store, pytest.fail, pause_s=0)
        for _ in range(rng.randint(1, 9)):
            done += 1
            written(keeping, done)
            seen = ticks_in(store)
            assert max(seen) == done
        keeping.close()
    assert looks > 60
    assert min(seen) > 1, "the oldest are to be gone"
    assert len(select_segments(store.names(FOLDER))[0]) <= 3 * 2 + 1


def test_amounts_are_sums_and_levels_the_last_least_and_most():
    store = MemoryStore()
    keeping = HistoryWriter(store, pytest.fail, pause_s=0)
    for tick in range(1, 21):
        written(keeping, tick)
    keeping.close()
    past = read(store)
    rows, marks = past.series("source/s", "rows_in"), past.series(*MARK)
    assert sum(rows.values("total")) == sum(tick * tick for tick in range(1, 21))
    rolled = 0
    for series, of in (
        (rows, lambda tick: tick * tick),
        (marks, lambda tick: None if tick == 1 else tick * 10),
    ):
        for point in series.points.to_pylist():
            ticks = range(point["first_tick"], point["last_tick"] + 1)
            rolled += len(ticks) > 1
            values = [value for tick in ticks if (value := of(tick)) is not None]
            assert point["last"] == (values[-1] if values else None)
            assert point["min"] == min(values, default=None)
            assert point["max"] == max(values, default=None)
            assert (point["first_us"], point["last_us"]) == (ticks[0] * 1_000, ticks[-1] * 1_000)
    assert rolled, "some are to be rolled up"
    assert marks.values("total") == [None] * len(marks)
    assert [text for *_, text in past.told()] == ["by 1", "by 2", "by 3", "by 4"]


def test_a_run_goes_on_with_the_segment_of_the_run_before():
    store = MemoryStore()
    for tick in (1, 2, 3):
        keeping = HistoryWriter(store, pytest.fail, pause_s=1e9)
        keeping.add(tick, tick, figures(tick))
        keeping.close()
    (segment,), held = select_segments(store.names(FOLDER))
    assert (segment.version, held) == (3, [])
    assert sorted(ticks_in(store)) == [1, 2, 3]


def test_what_is_not_due_is_not_written_before_the_end():
    store = MemoryStore()
    keeping = HistoryWriter(store, pytest.fail, pause_s=1e9)
    for tick in range(1, 4):
        keeping.add(tick, tick, figures(tick))
    assert not store.names(FOLDER)
    keeping.close()
    assert sorted(ticks_in(store)) == [1, 2, 3]


def test_what_is_not_due_yet_is_written_though_no_tick_follows():
    store = MemoryStore()
    keeping = HistoryWriter(store, pytest.fail, pause_s=0.05)
    for tick in (1, 2):
        keeping.add(tick, tick, figures(tick))
    until = time.monotonic() + 10
    while sorted(ticks_in(store)) != [1, 2]:
        assert time.monotonic() < until, "a tick waits for the next one"
        time.sleep(0.01)
    keeping.close()


def test_store_failure_is_reported_once_and_later_ticks_are_written():
    class Full(MemoryStore):
        full = True

        def write(self, name, data, *, lasting=True, sections=()):
            if self.full:
                raise StateError("no space left", code="state-not-written")
            super().write(name, data)

    store, said = Full(), []
    keeping = HistoryWriter(store, said.append, pause_s=0)
    written(keeping, 1)
    written(keeping, 2)
    store.full = False
    written(keeping, 3)
    keeping.close()
    (told,) = said
    assert "no space left" in told
    assert sorted(ticks_in(store)) == [1, 2, 3]


@pytest.mark.parametrize("error", [StateError("denied", code="state-not-written"), ValueError("denied")])
def test_where_a_store_takes_nothing_memory_has_an_end(error, monkeypatch):
    monkeypatch.setattr("watersmeet.history.writer.FULL_TICKS", 8)

    class Closed(MemoryStore):
        def write(self, name, data, *, lasting=True, sections=()):
            raise error

    said, most = [], 0
    keeping = HistoryWriter(Closed(), said.append, pause_s=0)
    for tick in range(1, 40):
        written(keeping, tick)
        most = max(most, len(set(keeping._table.column("last_us").to_pylist())))
    keeping.close()
    assert most == 7, "a full one is given up"
    (told,) = said
    assert "denied" in told


@pytest.mark.parametrize("damage", [b"", b"not an Arrow file", None])
def test_damaged_segment_is_reported_and_others_are_read(damage, tmp_path):
    store = LocalStore(tmp_path)
    keeping = HistoryWriter(store, pytest.fail, pause_s=0)
    for tick in range(1, 8):
        written(keeping, tick)
    keeping.close()
    first, _ = select_segments(store.names(FOLDER))[0]
    file = tmp_path / first.name
    file.write_bytes(file.read_bytes()[:-40] if damage is None else damage)
    past = read(store)
    (problem,) = past.problems
    assert first.name in problem
    assert past.series(*JOB).values() == [5, 6, 7]
    again = HistoryWriter(store, pytest.fail, pause_s=0)
    for tick in range(8, 40):  # rolls the damaged one away
        written(again, tick)
    again.close()
    assert not read(store).problems


@pytest.mark.parametrize("place", [2_000, -700, -40, -1])
def test_flipped_bit_in_segment_is_reported_without_a_crash(place, tmp_path):
    """Arrow, which compares no checksums, ends it (`std::length_error`), or gives other figures."""
    store = LocalStore(tmp_path)
    keeping = HistoryWriter(store, pytest.fail, pause_s=0)
    for tick in range(1, 4):
        written(keeping, tick)
    keeping.close()
    ((only,), _) = select_segments(store.names(FOLDER))
    file = tmp_path / only.name
    content = bytearray(file.read_bytes())
    content[place] ^= 4
    file.write_bytes(content)
    (problem,) = read(store).problems
    assert only.name in problem


def test_segment_with_unknown_columns_is_reported_and_history_continues():
    """As a later version might write it."""
    store = MemoryStore()
    later = HistorySegment(0, 1, 1, 1, "0" * 8)
    columns = SCHEMA.append(pa.field("later", pa.int64()))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segments, "SCHEMA", columns)
        segments.write(store, later, columns.empty_table())
    (problem,) = read(store).problems
    assert later.name in problem
    keeping = HistoryWriter(store, pytest.fail, pause_s=0)
    written(keeping, 7)
    keeping.close()
    assert sorted(ticks_in(store)) == [7]


def test_of_a_store_that_fails_for_long_no_more_waits_than_fills_a_segment():
    class Full(MemoryStore):
        full = False

        def write(self, name, data, *, lasting=True, sections=()):
            if self.full:
                raise StateError("no space left", code="state-not-written")
            super().write(name, data)

    store, said = Full(), []
    keeping = HistoryWriter(store, said.append, pause_s=0)
    written(keeping, 1)
    store.full = True
    for tick in range(2, 40):
        written(keeping, tick)
        assert len(set(keeping._table.column("last_tick").to_pylist())) < module.FULL_TICKS
    store.full = False
    written(keeping, 40)
    keeping.close()
    there = ticks_in(store)
    assert {1, 40} <= set(there)
    assert set(there.values()) == {1}
    assert len(said) == 1


def test_history_leaves_foreign_files_untouched():
    store = MemoryStore()
    store.write(f"{FOLDER}/README", b"mine")
    keeping = HistoryWriter(store, pytest.fail, pause_s=0)
    written(keeping, 1)
    keeping.close()
    assert f"{FOLDER}/README" in store.names(FOLDER)
    assert sorted(ticks_in(store)) == [1]


def test_of_two_runs_that_knew_nothing_of_each_other_both_count():
    ours, theirs = HistorySegment(0, 3, 3, 2, "aaaaaaaa"), HistorySegment(0, 3, 3, 1, "bbbbbbbb")
    before = HistorySegment(0, 3, 3, 1, "aaaaaaaa")
    counted, held = select_segments([ours.name, theirs.name, before.name])
    assert (set(counted), held) == ({ours, theirs}, [before.name])
