"""Where requests take long a tick waits for one, that creates its manifest; whether that may stay is known
later, and until then nothing comes of it."""

from __future__ import annotations

import threading

import pytest

from tests.support.far_store import FarStore
from tests.support.ticks import arriving, plan_of
from watersmeet.errors import StateError
from watersmeet.runtime.coordinator.commit import StagedParts
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.local.tick import SinkStaging
from watersmeet.state.commits import Commits, commit
from watersmeet.state.garbage_collection import TickRetention
from watersmeet.state.manifest import Manifest, manifest_name, manifest_names

QUERY = "SELECT l.i AS a, r.i AS b FROM l LEFT JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 5 AND l.t + 5"
PATIENCE_S = 30


class SlowStore(FarStore):
    """``answers``: whether what is asked for a manifest is answered. ``asked``: something was."""

    def __init__(self):
        super().__init__()
        self.answers, self.asked = threading.Event(), threading.Event()
        self.answers.set()

    def read(self, name):
        if name.startswith("manifests/"):
            self.asked.set()
            assert self.answers.wait(PATIENCE_S)
        return super().read(name)


def manifest(tick, follows=""):
    return Manifest(tick=tick, clock_us=0, fingerprints={}, sources=[], queries={}, host={}, follows=follows)


@pytest.fixture
def store():
    return SlowStore()


def is_fenced(work):
    with pytest.raises(StateError, match="committed by another process") as raised:
        work()
    return raised.value.code == "state-fenced"


def test_a_commit_waits_for_one_request(store):
    commits = Commits(store)
    first = commits.commit(manifest(1))
    commits.check()
    store.answers.clear()
    second = commits.commit(manifest(2, first.writer))
    assert store.asked.wait(PATIENCE_S)  # and yet it is committed
    assert manifest_names(store) == [manifest_name(1), manifest_name(2)]
    store.answers.set()
    commits.check()
    commits.close()
    assert second.follows == first.writer


@pytest.mark.parametrize("passed_by", ["garbage", "somebody who went back", "somebody who went back and on"])
def test_fenced_commit_fails_every_check_and_removes_its_manifest(store, passed_by):
    writers = [""]
    for tick in (1, 2, 3):
        writers.append(commit(store, manifest(tick, writers[-1])).writer)
    for tick in (2, 3) if passed_by.startswith("somebody") else (1, 2, 3):
        store.delete(manifest_name(tick))
    if passed_by == "somebody who went back and on":
        follows = writers[1]
        for tick in (2, 3):
            follows = commit(store, manifest(tick, follows)).writer
    elif passed_by == "garbage":
        for tick in (8, 9):
            store.create(manifest_name(tick), b"of others")
    there = manifest_names(store)
    commits = Commits(store)
    commits.commit(manifest(4, writers[3]))
    assert is_fenced(commits.check)
    assert is_fenced(commits.check)
    assert is_fenced(lambda: commits.commit(manifest(5, writers[3])))
    commits.close()
    assert manifest_names(store) == there


def test_unavailable_store_does_not_confirm_a_commit(store, monkeypatch):
    first = commit(store, manifest(1))
    commits = Commits(store)

    def away(self, name):
        raise StateError("the store is away", code="store-away", hint="run again")

    with monkeypatch.context() as patch:
        patch.setattr(SlowStore, "read", away)
        commits.commit(manifest(2, first.writer))
        with pytest.raises(StateError, match="away"):
            commits.check()
    with pytest.raises(StateError, match="away"):
        commits.commit(manifest(3))
    commits.close()
    assert manifest_names(store) == [manifest_name(1), manifest_name(2)]


def test_nothing_is_deleted_before_it_is_known(store):
    commits, kept = Commits(store), TickRetention(store, 2)
    newest = commits.commit(manifest(1))
    kept.commit(newest, commits.check)
    for tick in (2, 3):
        newest = commits.commit(manifest(tick, newest.writer))
        commits.check()
        store.answers.clear()
        kept.commit(newest, commits.check)
        store.answers.set()
    kept.settle()
    assert manifest_names(store) == [manifest_name(2), manifest_name(3)]
    store.answers.clear()
    newest = commits.commit(manifest(4, newest.writer))
    kept.commit(newest, commits.check)
    assert manifest_names(store) == [manifest_name(2), manifest_name(3), manifest_name(4)]
    store.delete(manifest_name(3))  # others were faster
    store.answers.set()
    kept.settle()
    assert is_fenced(commits.check)
    assert manifest_names(store) == [manifest_name(2)]


def rows(tick):
    row = {"t": 4 * tick, "k": "a", "v": tick, "i": tick}
    return arriving(l=[row], r=[row])


class Ends:
    """Ends ticks without asking whether their manifests may stay, as where sinks are."""

    def __init__(self, job):
        self.job = job

    def tick(self, number):
        to_sinks = SinkStaging(lambda tick, rows: StagedParts(), host={"clock_us": 0})
        self.job.tick(rows(number), to_sinks=to_sinks)


def test_of_the_next_tick_no_node_is_run_before_it_is_known(store):
    job = LocalJob(plan_of(QUERY), store)
    ends = Ends(job)
    for number in range(3):
        ends.tick(number)
    job.driver.ledger.settle()
    store.answers.clear()
    ends.tick(3)  # it ends
    store.delete(manifest_name(3))
    store.answers.set()
    before = set(store.names("work"))
    assert is_fenced(lambda: ends.tick(4))
    assert is_fenced(job.driver.ledger.check)
    assert set(store.names("work")) == before
    job.driver.close()
    assert manifest_name(4) not in manifest_names(store)


def test_a_tick_of_this_process_that_has_come_back_is_known_to_stay(store):
    job = LocalJob(plan_of(QUERY), store)
    for number in range(3):
        job.tick(rows(number))
    create = store.create

    def delete_then_create(name, data):
        store.delete(manifest_name(3))
        return create(name, data)

    store.create = delete_then_create
    assert is_fenced(lambda: job.tick(rows(3)))
