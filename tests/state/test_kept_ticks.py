"""Which manifests stay, and with them all that they name, whatever was asked for when they were written."""

from __future__ import annotations

import os
import pickle
import random

import pytest

from tests.state.test_manifest import live, manifest
from watersmeet.state.commits import commit
from watersmeet.state.garbage_collection import TickRetention
from watersmeet.state.manifest import load, manifest_name, manifest_names
from watersmeet.state.store import LocalStore, MemoryStore


def history(seed, ticks=40):
    """Manifests whose runs come, stay for a while and go."""
    rng = random.Random(seed)
    runs = []
    for tick in range(1, ticks + 1):
        runs = [name for name in runs if rng.random() < 0.8]
        runs += [f"runs/{tick}-{n}" for n in range(rng.randrange(3))]
        yield manifest(tick, *(live(name) for name in runs))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [2, 3, 7, 100])
def test_newest_manifests_and_their_files_are_retained(seed, count):
    """Over restarts, too, of which each begins with what the last one left."""
    rng, store, kept, before = random.Random(seed), MemoryStore(), None, []
    for each in history(seed):
        for name in each.files() - set(store.names("runs")):
            store.write(name, b"x")
        store.write(f"runs/attempt-{each.tick}", b"of an attempt that never committed")
        each = commit(store, each)
        before.append(each)
        if kept is None or rng.random() < 0.3:
            kept = TickRetention(store, count)
        assert kept.commit(each) == 0
        assert manifest_names(store) == [manifest_name(m.tick) for m in before[-count:]]
        assert set(store.names("runs")) == set().union(*(m.files() for m in before[-count:]))
        assert [load(store, name) for name in manifest_names(store)] == before[-count:]


def test_retention_follows_the_requested_tick_count():
    store, counts = MemoryStore(), []
    for each, count in zip(history(1, 12), [5] * 6 + [2] * 2 + [4] * 4, strict=True):
        commit(store, each)
        TickRetention(store, count).commit(each)
        counts.append(len(manifest_names(store)))
    assert counts == [1, 2, 3, 4, 5, 5, 2, 2, 3, 4, 4, 4]


@pytest.mark.parametrize("why", ["another process wrote it", "it could not be deleted"])
def test_what_is_left_goes_with_the_next_tick(why, tmp_path, monkeypatch):
    store = LocalStore(tmp_path)
    first, second, third = history(1, 3)
    kept = TickRetention(store)
    assert kept.commit(commit(store, first)) == 0
    if why == "another process wrote it":
        pickle.loads(pickle.dumps(store)).write("runs/orphan", b"x")
    else:
        store.write("runs/orphan", b"x")
        stored = commit(store, second)
        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", deny_unlink)
            assert kept.commit(stored) == 1
        second = third
    assert kept.commit(commit(store, second)) == 0
    assert "runs/orphan" not in store.names("runs")


def deny_unlink(path):
    raise PermissionError(13, "held open elsewhere", path)


def test_unreadable_manifest_is_not_retained():
    store = MemoryStore()
    for each in history(2, 3):
        commit(store, each)
    store.delete(manifest_name(2))
    store.create(manifest_name(2), b"damaged")
    last = list(history(2, 4))[-1]
    commit(store, last)
    TickRetention(store, 3).commit(last)
    assert manifest_names(store) == [manifest_name(3), manifest_name(4)]
