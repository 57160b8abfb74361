"""A driver that slept while others went on, or went back and on: it creates no manifest over theirs, and
deletes nothing of what is theirs, whatever the numbers of the ticks."""

from __future__ import annotations

import pytest

from tests.support.s3 import ClientWith
from watersmeet.errors import StateError
from watersmeet.objects.object_store import ObjectLocation
from watersmeet.state import garbage_collection
from watersmeet.state.checksums import add_checksum
from watersmeet.state.commits import commit
from watersmeet.state.garbage_collection import TickRetention
from watersmeet.state.manifest import Manifest, load, load_newest, manifest_name, manifest_names
from watersmeet.state.store import MemoryStore


class Driver:
    """What a driver does with a store, tick by tick: each writes a run, and keeps it."""

    def __init__(self, store, who, keep=3):
        self.store, self.who, self.kept = store, who, TickRetention(store, keep)
        self.newest = load_newest(store)

    def write(self, tick):
        name = f"runs/{self.who}-{tick}-00ff.arrow"
        if not self.store.has(name):
            self.store.write(name, b"rows")
        return name

    def make(self):
        """The manifest of the next tick, not yet committed."""
        tick, follows = (1, "") if self.newest is None else (self.newest.tick + 1, self.newest.writer)
        host = {"files": [{"name": self.write(tick), "files": 1}]}
        return Manifest(
            tick=tick, clock_us=0, fingerprints={}, sources=[], queries={}, host=host, follows=follows
        )

    def commit(self, manifest=None):
        self.newest = commit(self.store, manifest or self.make())

    def tick(self):
        self.commit()
        self.kept.commit(self.newest)
        self.kept.settle()


def ticks(store):
    return [int(name[10:22]) for name in manifest_names(store)]


def back_to(store, tick):
    for name in manifest_names(store)[::-1]:
        if name > manifest_name(tick):
            store.delete(name)


def is_whole(store):
    return all(store.has(name) for tick in manifest_names(store) for name in load(store, tick).files())


@pytest.mark.parametrize(
    "others", [1, pytest.param(2, marks=pytest.mark.full), pytest.param(5, marks=pytest.mark.full)]
)
def test_a_first_commit_whose_driver_slept_deletes_nothing_of_those_who_went_on(store, others):
    for _ in range(2):
        Driver(store, "before").tick()
    sleeper = Driver(store, "sleeper", keep=100)
    sleeper.commit()  # and it sleeps before it deletes
    other = Driver(store, "other", keep=100)
    for _ in range(others):
        other.tick()
    other.write(4 + others)  # a tick that is under way
    store.write(f"begun/{4 + others:012d}.json", b"{}")
    sleeper.kept.commit(sleeper.newest)
    assert ticks(store)[-1] == 3 + others
    assert is_whole(store)
    assert store.has(f"runs/other-{4 + others}-00ff.arrow")
    assert store.has(f"begun/{4 + others:012d}.json")


@pytest.mark.parametrize("begins", [True, False])
def test_one_that_slept_deletes_nothing_once_others_went_back(store, begins, monkeypatch):
    """Their ticks have its numbers again: the search must not take what they made for garbage."""
    for _ in range(4):
        Driver(store, "before", keep=100).tick()
    sleeper = Driver(store, "sleeper", keep=2)
    if not begins:
        sleeper.tick()
    for _ in range(4):
        sleeper.commit()
    back_to(store, 3)
    other = Driver(store, "other", keep=100)
    for _ in range(3):
        other.tick()
    monkeypatch.setattr(garbage_collection, "SEARCH_TICKS", 1)  # it searches
    sleeper.kept.commit(sleeper.newest)
    sleeper.kept.settle()
    assert load_newest(store) == other.newest
    assert is_whole(store)
    assert other.newest.tick == (6 if begins else 3)  # back to tick 3, or to the beginning


@pytest.mark.parametrize("others", [pytest.param(2, marks=pytest.mark.full), 3, 4])
def test_one_that_slept_does_not_commit_over_those_who_went_back(store, others):
    for _ in range(6):
        Driver(store, "before", keep=100).tick()
    sleeper = Driver(store, "sleeper", keep=100)
    sleeping = sleeper.make()
    back_to(store, 4)
    other = Driver(store, "other", keep=100)
    for _ in range(others):
        other.tick()
    with pytest.raises(StateError, match="another process") as raised:
        sleeper.commit(sleeping)
    assert raised.value.code == "state-fenced"
    assert ticks(store) == [*range(1, 5 + others)]
    assert load_newest(store) == other.newest


@pytest.mark.parametrize("of_kind", ["objects", "memory"])
def test_a_manifest_that_came_late_is_refused_by_name(store, of_kind):
    """The driver died when it had created it, before it saw that it had been passed."""
    store = store if of_kind == "objects" else MemoryStore()
    for _ in range(6):
        Driver(store, "before", keep=100).tick()
    late = Driver(store, "sleeper").make()
    back_to(store, 4)
    other = Driver(store, "other", keep=100)
    for _ in range(2):
        other.tick()
    name = manifest_name(7)
    store.create(name, add_checksum(name, late.model_dump_json()))
    with pytest.raises(StateError, match=name) as raised:
        load_newest(store)
    assert raised.value.code == "state-forked"
    assert "--tick 6" in raised.value.hint
    back_to(store, 6)
    assert load_newest(store) == other.newest


def test_transient_read_error_never_deletes_a_retained_tick(store, monkeypatch):
    for _ in range(4):
        Driver(store, "before", keep=100).tick()
    driver, really = Driver(store, "again", keep=100), type(store).read
    driver.commit()

    def away(self, name):
        if name == manifest_name(2):
            raise StateError("the store is away", code="store-away", hint="run again")
        return really(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "read", away)
        assert driver.kept.commit(driver.newest) > 0
    assert ticks(store) == [1, 2, 3, 4, 5]
    driver.tick()
    assert ticks(store) == [1, 2, 3, 4, 5, 6]
    assert is_whole(store)


def test_older_manifests_go_first_and_nothing_after_one_that_cannot_go(store, monkeypatch):
    for _ in range(5):
        Driver(store, "before", keep=100).tick()
    driver, client = Driver(store, "again", keep=2), store.place.client()
    driver.commit()

    def stuck(names):
        if manifest_name(2) in names:
            raise StateError("the store is away", code="store-away", hint="run again")
        client.delete(names)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectLocation, "client", lambda _: ClientWith(client, delete=stuck))
        assert driver.kept.commit(driver.newest) > 0
    assert ticks(store) == [2, 3, 4, 5, 6]
    assert is_whole(store)
    driver.tick()
    assert ticks(store) == [6, 7]
