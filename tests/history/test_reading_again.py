"""Who reads a history again and again has what one who reads it once has, and reads no more than is new."""

from __future__ import annotations

import random

import numpy as np
import pytest

from watersmeet.history import writer as module
from watersmeet.history.points import Figures
from watersmeet.history.reader import HistoryReader, read
from watersmeet.history.writer import HistoryWriter
from watersmeet.state.store import MemoryStore

JOB = ("job", "duration_us")


class Counted(MemoryStore):
    """Counts what is read of it."""

    reads = 0

    def read(self, name):
        self.reads += 1
        return super().read(name)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, value in {"FULL_TICKS": 4, "MAX_SEGMENTS": 3, "FACTOR": 2, "LEVELS": 3}.items():
        monkeypatch.setattr(module, name, value)


def of(past):
    return [(tick, at, clock) for tick, at, clock in zip(*columns(past), strict=True)]


def columns(past):
    return (past.points.column(name).to_pylist() for name in ("first_tick", "last_tick", "last_us"))


@pytest.mark.parametrize("seed", range(5))
def test_as_it_grows_it_is_what_is_read_at_once(seed):
    """Whatever the clock does, and however many ticks pass between two looks."""
    pick = random.Random(seed)
    store, clock = Counted(), 1_000_000
    keeping, reader = HistoryWriter(store, pytest.fail, pause_s=0.0), HistoryReader(store)
    for tick in range(1, 80):
        clock += pick.choice([1_000, 1_000, 1_000, 0, -5_000])
        keeping.add(tick, clock, Figures({JOB: tick}, {("input/q/a", "retained"): tick}))
        keeping._writing.result()
        if pick.random() < 0.5:
            past, whole = reader.read(), read(store)
            assert sorted(of(past)) == sorted(of(whole)), f"seed {seed}, tick {tick}"
            assert (np.diff(past.points.column("last_us")) >= 0).all()
            assert sorted(past.series(*JOB).values()) == sorted(whole.series(*JOB).values())
            ended = np.unique(past.points.column("last_us"))
            assert past.ticks == len(ended)
            for most in (1, 3, 1_000):
                recent = past.recent(most)
                assert np.unique(recent.points.column("last_us")).tolist() == ended[-most:].tolist()
    keeping.close()


def test_what_has_not_changed_is_not_read_again():
    store = Counted()
    keeping, reader = HistoryWriter(store, pytest.fail, pause_s=0.0), HistoryReader(store)
    for tick in range(1, 12):
        keeping.add(tick, tick, Figures({JOB: tick}))
        keeping._writing.result()
    past, reads = reader.read(), store.reads
    assert reader.read() is past
    assert store.reads == reads
    keeping.add(12, 12, Figures({JOB: 12}))
    keeping._writing.result()
    assert reader.read().until_us == 12
    assert store.reads == reads + 1
    keeping.close()


def test_what_cannot_be_read_is_tried_again():
    store = Counted()
    keeping = HistoryWriter(store, pytest.fail, pause_s=0.0)
    keeping.add(1, 1, Figures({JOB: 1}))
    keeping.close()
    name = store.names("history")[0]
    content = store.read(name)
    store.contents[name] = bytes(content[:-1])
    reader = HistoryReader(store)
    assert len(reader.read().problems) == 1
    store.contents[name] = content
    assert reader.read().problems == []
    assert reader.read().until_us == 1


def test_none_is_none():
    past = HistoryReader(MemoryStore()).read()
    assert not past
    assert (past.ticks, past.recent(5).ticks, past.series(*JOB).values()) == (0, 0, [])
