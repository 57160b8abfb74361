"""Lists of files read: they hold every file once, stay few, cost what is new, and damage is seen."""

from __future__ import annotations

import pytest

from watersmeet.errors import StateError
from watersmeet.state import file_lists
from watersmeet.state.commits import commit
from watersmeet.state.file_lists import FileList, FileRead
from watersmeet.state.garbage_collection import TickRetention
from watersmeet.state.manifest import Manifest
from watersmeet.state.store import MemoryStore


def files(first: int, count: int) -> list[FileRead]:
    return [FileRead(0, first, f"file:///in/ä%20{n}.json", n, n * 7, n) for n in range(first, first + count)]


class CountingStore(MemoryStore):
    written = 0

    def create(self, name, data):
        self.written += len(data)
        return super().create(name, data)


def test_every_file_is_in_them_once_and_they_stay_few():
    store, lists, given = CountingStore(), [], []
    for tick in range(1000):
        new = files(tick * 3, 3)
        given += new
        lists = file_lists.add(store, lists, new)
        assert len(lists) < 3 * file_lists.FAN_IN
    assert list(file_lists.read(store, lists)) == given
    assert sum(each.files for each in lists) == len(given)
    size = sum(len(file_lists._line(each)) for each in given)
    assert store.written <= 3 * size, "a file is written once per level"


def test_a_tick_without_files_adds_nothing():
    store = MemoryStore()
    lists = file_lists.add(store, [], files(0, 2))
    assert file_lists.add(store, lists, []) == lists


def test_the_same_files_make_the_same_lists():
    one, other = MemoryStore(), MemoryStore()
    lists = others = []
    for tick in range(40):
        lists = file_lists.add(one, lists, files(tick, 1))
        file_lists.add(other, others, files(tick, 1))  # an attempt that did not get to its end
        others = file_lists.add(other, others, files(tick, 1))
    assert lists == others
    assert list(file_lists.read(one, lists)) == list(file_lists.read(other, others))


@pytest.mark.parametrize("content", [b"", b'[0, 1, "file:///x", 1, 1, 1]\n', None])
def test_damage_is_refused(content):
    store = MemoryStore()
    lists = file_lists.add(store, [], files(0, 5))
    store.delete(lists[0].name)
    if content is not None:
        store.write(lists[0].name, content)
    with pytest.raises(StateError) as refused:
        list(file_lists.read(store, lists))
    assert refused.value.code == ("state-missing" if content is None else "state-damaged")


def test_garbage_collection_keeps_what_manifests_name():
    store = MemoryStore()
    lists: list[FileList] = []
    manifests = []
    kept = TickRetention(store)
    for tick in range(1, 40):
        lists = file_lists.add(store, lists, files(tick, 1))
        host = {file_lists.KEY: [each.model_dump() for each in lists]}
        manifests.append(Manifest(tick=tick, clock_us=0, fingerprints={}, sources=[], queries={}, host=host))
        commit(store, manifests[-1])
        kept.commit(manifests[-1])
    named = {each.name for m in manifests[-2:] for each in file_lists.lists_of(m.host)}
    assert set(store.names("files")) == named
    assert len(list(file_lists.read(store, lists))) == 39
