"""Match marks: segments over segments read like one plain array."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tests.support.far_store import FarStore
from watersmeet.errors import StateError
from watersmeet.state import marks as marks_module
from watersmeet.state.marks import (
    MarkWriter,
    damaged_marks,
    marks_at,
    overlap,
    overlay,
    read_marks,
    unite,
)
from watersmeet.state.store import AT_ONCE, LocalStore, MemoryStore

ROWS = 100


def write(store, kind, parts, tick=1):
    """Segments of one task that marks rows [start, …) of run "r" per part."""
    writer = MarkWriter()
    for start, marks in parts:
        writer.add("r", kind, start, np.asarray(marks))
    return writer.write(store, tick).get("r", {}).get(kind, ())


@pytest.mark.parametrize("kind", ["matched", "count", "gone"])
def test_segments_read_like_a_plain_array(seed, kind):
    """Every tick another number of tasks, each of which rewrites the slices that it touched."""
    rng = np.random.default_rng((seed, len(kind)))
    for _ in range(30):
        store, segments = MemoryStore(), ()
        model = np.zeros(ROWS, dtype=np.int32 if kind == "count" else bool)
        for tick in range(8):
            cuts = sorted({0, ROWS, *rng.integers(0, ROWS, rng.integers(0, 7)).tolist()})
            for start, stop in pairwise(cuts):
                if rng.random() < 0.4:
                    continue
                slice_marks = read_marks(store, kind, segments, start, stop)
                assert (slice_marks == model[start:stop]).all(), seed
                touched = rng.random(stop - start) < 0.3
                if kind == "count":
                    slice_marks[touched] += rng.integers(-3, 4, touched.sum()).astype(np.int32)
                else:
                    slice_marks[touched] = True
                segments = overlay(segments, write(store, kind, [(start, slice_marks)], tick))
                model[start:stop] = slice_marks
            assert (read_marks(store, kind, segments, 0, ROWS) == model).all(), seed
            low, high = sorted(rng.integers(0, ROWS, 2, endpoint=True).tolist())
            assert (read_marks(store, kind, segments, low, high) == model[low:high]).all(), seed
        spans = [(segment.low, segment.high) for segment in segments]
        assert all(a[1] <= b[0] for a, b in pairwise(spans)), "segments overlap"


@pytest.mark.parametrize("share", [1 / 64, 0.5])
def test_lists_add_to_what_is_known(seed, share, monkeypatch):
    """Few rows are marked in a tick, by another number of tasks in each; now and then a task writes all."""
    monkeypatch.setattr(marks_module, "MAX_LISTED_SHARE", share)
    rng = np.random.default_rng((seed, 11))
    rows_of_run, most = 2_000, 0
    for _ in range(4):
        store, segments, model = MemoryStore(), (), np.zeros(rows_of_run, dtype=bool)
        for tick in range(40):
            before, older = segments, model.copy()
            cuts = sorted({0, rows_of_run, *rng.integers(0, rows_of_run, tick % 3).tolist()})
            for start, stop in pairwise(cuts):
                rows = np.unique(rng.integers(start, stop, rng.integers(0, 30)))
                rows = rows[~marks_at(store, "gone", segments, rows)]
                assert not model[rows].any(), seed
                writer = MarkWriter()
                if rng.random() < 0.05:
                    own = read_marks(store, "gone", segments, start, stop)
                    own[rows - start] = True
                    writer.add("r", "gone", start, own)
                else:
                    writer.add_rows(store, "r", "gone", segments, start, stop, rows)
                segments = overlay(segments, writer.write(store, tick).get("r", {}).get("gone", ()))
                model[rows] = True
            assert (read_marks(store, "gone", segments, 0, rows_of_run) == model).all(), seed
            assert (read_marks(store, "gone", before, 0, rows_of_run) == older).all(), seed
            asked = rng.integers(0, rows_of_run, 50)
            assert (marks_at(store, "gone", segments, asked) == model[asked]).all(), seed
            most = max(most, sum(segment.listed is not None for segment in segments))
    assert 1 < most < 30


@pytest.mark.parametrize("share", [1 / 64, 1])
def test_lists_of_counts_add_up(seed, share, monkeypatch):
    """As above, of counts that rise and fall, of some rows again and again."""
    monkeypatch.setattr(marks_module, "MAX_LISTED_COUNTS_SHARE", share)
    rng = np.random.default_rng((seed, 12))
    rows_of_run, most = 2_000, 0
    for _ in range(4):
        store, segments, model = MemoryStore(), (), np.zeros(rows_of_run, dtype=np.int32)
        for tick in range(40):
            before, older = segments, model.copy()
            cuts = sorted({0, rows_of_run, *rng.integers(0, rows_of_run, tick % 3).tolist()})
            for start, stop in pairwise(cuts):
                rows = np.unique(np.minimum(rng.integers(0, 50, rng.integers(0, 30)) ** 2 + start, stop - 1))
                changes = rng.integers(-3, 4, len(rows))
                assert (marks_at(store, "count", segments, rows) == model[rows]).all(), seed
                writer = MarkWriter()
                if rng.random() < 0.05:
                    own = read_marks(store, "count", segments, start, stop)
                    own[rows - start] += changes.astype(np.int32)
                    writer.add("r", "count", start, own)
                else:
                    writer.add_rows(store, "r", "count", segments, start, stop, rows, changes)
                segments = overlay(segments, writer.write(store, tick).get("r", {}).get("count", ()))
                model[rows] += changes.astype(np.int32)
            assert (read_marks(store, "count", segments, 0, rows_of_run) == model).all(), seed
            assert (read_marks(store, "count", before, 0, rows_of_run) == older).all(), seed
            most = max(most, sum(segment.listed is not None for segment in segments))
    assert 1 < most < 30


def test_a_mark_is_written_again_when_its_list_has_doubled(monkeypatch):
    """Of one slice: after n ticks of a few marks each there are about log n lists, and n log n marks were
    written."""
    monkeypatch.setattr(marks_module, "MAX_LISTED_SHARE", 1)
    store, segments, written = MemoryStore(), (), 0
    for tick in range(256):
        writer = MarkWriter()
        writer.add_rows(store, "r", "matched", segments, 0, 10_000, np.array([tick, 9_999 - tick]))
        new = writer.write(store, tick)["r"]["matched"]
        written += sum(segment.nbytes // 4 for segment in new)
        segments = overlay(segments, new)
        assert len(segments) <= 9
    assert written <= 2 * 256 * 9
    assert read_marks(store, "matched", segments, 0, 10_000).sum() == 512


def test_marks_of_several_tasks_are_united(seed):
    """Every tick some tasks mark rows anywhere, with no regard of each other or of what is stored."""
    rng = np.random.default_rng((seed, 7))
    for _ in range(10):
        store, segments, model = MemoryStore(), (), np.zeros(ROWS, dtype=bool)
        for tick in range(6):
            before, older = segments, model.copy()
            found = []
            for _task in range(rng.integers(0, 5)):
                low, high = sorted(rng.integers(0, ROWS, 2, endpoint=True).tolist())
                own = rng.random(high - low) < 0.1
                model[low:high] |= own
                found += write(store, "matched", [(low, own)], tick)
            if found:
                segments = unite(store, tick, {("r", "matched"): (ROWS, segments, found)})["r"]["matched"]
                assert len(segments) == 1
            assert (read_marks(store, "matched", segments, 0, ROWS) == model).all(), seed
            assert (read_marks(store, "matched", before, 0, ROWS) == older).all(), seed


def test_nothing_to_unite_writes_nothing():
    store = MemoryStore()
    assert unite(store, 1, {}) == {}
    assert store.names("marks") == []


def test_older_segments_stay_whole_for_an_older_manifest():
    store = MemoryStore()
    old = write(store, "matched", [(0, [True, False, True])])
    new = overlay(old, write(store, "matched", [(0, [True, True, True])]))
    assert read_marks(store, "matched", old, 0, 3).tolist() == [True, False, True]
    assert read_marks(store, "matched", new, 0, 3).tolist() == [True, True, True]


def test_a_segment_in_the_middle_leaves_both_ends_of_the_older_one():
    store = MemoryStore()
    old = write(store, "count", [(0, np.arange(20))])
    found = overlay(old, write(store, "count", [(5, np.full(4, 99))]))
    assert [(s.low, s.high, s.first) for s in found] == [(0, 5, 0), (5, 9, 5), (9, 20, 0)]
    assert read_marks(store, "count", found, 0, 20).tolist() == [*range(5), 99, 99, 99, 99, *range(9, 20)]


def test_rows_without_a_segment_have_no_marks():
    segments = write(MemoryStore(), "matched", [])
    assert segments == ()
    assert read_marks(MemoryStore(), "matched", (), 3, 6).tolist() == [False] * 3
    assert read_marks(MemoryStore(), "count", (), 3, 6).tolist() == [0] * 3


def test_nothing_is_stored_when_nothing_was_marked():
    store = MemoryStore()
    writer = MarkWriter()
    writer.add("r", "matched", 0, np.zeros(0, dtype=bool))
    assert writer.write(store, 1) == {}
    assert store.names("marks") == []


def test_marks_of_several_runs_share_one_file():
    store = MemoryStore()
    writer = MarkWriter()
    writer.add("a", "matched", 8, np.array([True, False, True]))
    writer.add("b", "count", 0, np.array([4, -2]))
    writer.add("b", "gone", 0, np.array([False, True]))
    found = writer.write(store, 7)
    assert len(store.names("marks")) == 1
    assert read_marks(store, "matched", found["a"]["matched"], 8, 11).tolist() == [True, False, True]
    assert read_marks(store, "count", found["b"]["count"], 0, 2).tolist() == [4, -2]
    assert read_marks(store, "gone", found["b"]["gone"], 0, 2).tolist() == [False, True]


def test_a_truncated_file_of_marks_is_damaged(tmp_path):
    store = LocalStore(tmp_path)
    (segment,) = write(store, "count", [(0, np.arange(50))])
    path = tmp_path / segment.file
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StateError, match="damaged") as raised:
        read_marks(store, "count", (segment,), 0, 50)
    assert raised.value.code == "state-damaged"


def test_marks_that_are_replaced_while_they_are_held_are_damaged(tmp_path):
    store = LocalStore(tmp_path)
    (segment,) = write(store, "count", [(0, np.arange(50))])
    for _ in range(2):
        assert marks_at(store, "count", (segment,), np.array([3, 9])).tolist() == [3, 9]
    path = tmp_path / segment.file
    path.write_bytes(b"\1" + path.read_bytes()[1:])
    with pytest.raises(StateError, match="damaged"):
        marks_at(store, "count", (segment,), np.array([3]))


def test_changed_marks_are_found_by_their_checksum(tmp_path):
    store = LocalStore(tmp_path)
    (segment,) = write(store, "count", [(0, np.arange(50))])
    (other,) = write(store, "count", [(0, np.arange(9))])
    assert list(damaged_marks(store, [segment, other])) == []
    path = tmp_path / segment.file
    path.write_bytes(b"\1" + path.read_bytes()[1:])
    (error,) = damaged_marks(store, [other, segment])
    assert error.code == "state-damaged"
    assert segment.file in error.message
    assert "not what was written" in error.message
    path.write_bytes(path.read_bytes()[:100])
    (tmp_path / other.file).unlink()
    errors = list(damaged_marks(store, [other, segment, segment]))
    assert [error.code for error in errors] == ["state-missing", "state-damaged"]


@pytest.mark.parametrize("broken", [None, "missing", "changed"])
def test_marks_of_a_remote_store_are_compared_together(broken):
    """By few requests, though each tick and task has a file of its own."""
    store, asked = FarStore(), []
    segments = [write(store, "count", [(0, np.arange(n))])[0] for n in range(1, 151)]
    assert len({segment.file for segment in segments}) == len(segments)
    if broken is not None:
        content = store.read(segments[70].file)
        store.delete(segments[70].file)
        if broken == "changed":
            store.write(segments[70].file, b"\1" + bytes(content)[1:])
    read_all = store.read_all
    store.read_all = lambda names: asked.append(len(names)) or read_all(names)
    errors = list(damaged_marks(store, segments))
    assert [segments[70].file in error.message for error in errors] == [True] * (broken is not None)
    assert sum(asked) == len(segments) + (AT_ONCE if broken == "missing" else 0)
    assert len([count for count in asked if count > 1]) == 3


def test_counts_of_several_tasks_are_added_up(seed):
    """Each task adds to counts of rows of its own, in lists or arrays, in between those of others."""
    rng = np.random.default_rng((seed, 8))
    for _ in range(10):
        store, segments, model = MemoryStore(), (), np.zeros(ROWS, dtype=np.int32)
        for tick in range(6):
            owners, told = rng.integers(0, 3, ROWS), []
            for task in range(3):
                own = np.flatnonzero(owners == task)
                rows = np.sort(rng.choice(own, rng.integers(0, len(own)), replace=False))
                changes = rng.integers(1, 5, len(rows))
                model[rows] += changes.astype(np.int32)
                writer = MarkWriter()
                writer.add_rows(store, "r", "count", segments, 0, ROWS, rows, changes)
                told += writer.write(store, tick).get("r", {}).get("count", ())
            if told:
                assert overlap(told) == (len(told) > 1)
                segments = unite(store, tick, {("r", "count"): (ROWS, segments, told)})["r"]["count"]
            assert (read_marks(store, "count", segments, 0, ROWS) == model).all(), seed
