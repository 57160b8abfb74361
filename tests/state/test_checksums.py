"""Bytes of a state are compared with their checksums once, and again when they may be others."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from watersmeet.errors import StateError
from watersmeet.objects import cache as cache_module
from watersmeet.objects.cache import Cache
from watersmeet.state import checksums
from watersmeet.state.checksums import read_verified
from watersmeet.state.store import LocalStore

NAME, WRITTEN, OTHER = "runs/a", b"what was written", b"what came there "
CHECKSUM = zlib.crc32(WRITTEN)


class Remote:
    """A store of objects that somebody overwrites."""

    def __init__(self, cache: Cache | None) -> None:
        self.cache, self.content = cache, WRITTEN

    def read(self, name: str) -> pa.Buffer:
        kept = None if self.cache is None else self.cache.read(name)
        if kept is not None:
            return kept
        fetched = pa.py_buffer(self.content)
        if self.cache is not None:
            self.cache.add(name, fetched)
        return fetched


def read(store) -> pa.Buffer:
    return read_verified(store, NAME, lambda: store.read(NAME), CHECKSUM, "run")


@pytest.mark.parametrize("cached", [True, False])
def test_an_object_that_is_overwritten_is_found_by_who_read_it_before(tmp_path: Path, cached: bool) -> None:
    store = Remote(Cache("s3://b", root=str(tmp_path)) if cached else None)
    for _ in range(3):
        assert read(store) == pa.py_buffer(WRITTEN)
    store.content = OTHER
    if store.cache is not None:
        assert read(store) == pa.py_buffer(WRITTEN)  # of the copy
        store.cache.drop(NAME)
    for _ in range(2):
        with pytest.raises(StateError, match="it is not what was written"):
            read(store)


@pytest.fixture
def inodes_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ext4 does: a new file has the inode of the one that was just deleted."""

    fstat = os.fstat

    def of_one_inode(handle: int) -> os.stat_result:
        mode, _, *others = fstat(handle)
        return os.stat_result((mode, 7, *others))

    monkeypatch.setattr(os, "fstat", of_one_inode)


@pytest.mark.usefixtures("inodes_are_used_again")
def test_replaced_copy_with_the_same_inode_fails_its_checksum(tmp_path: Path) -> None:
    store = Remote(Cache("s3://b", root=str(tmp_path)))
    for _ in range(3):
        read(store)
    store.content = OTHER
    assert len(OTHER) == len(WRITTEN)
    store.cache.drop(NAME)
    for _ in range(3):
        with pytest.raises(StateError, match="it is not what was written"):
            read(store)
        assert store.cache.read(NAME) is None
    store.content = WRITTEN  # mended in the store
    assert read(store) == pa.py_buffer(WRITTEN)


@pytest.mark.usefixtures("inodes_are_used_again")
def test_a_copy_that_is_evicted_while_it_is_read_is_compared(tmp_path: Path) -> None:
    store = Remote(Cache("s3://b", root=str(tmp_path)))
    for _ in range(2):
        read(store)
    store.content = OTHER

    def evict_then_read() -> pa.Buffer:
        store.cache.drop(NAME)
        return store.read(NAME)

    with pytest.raises(StateError, match="it is not what was written"):
        read_verified(store, NAME, evict_then_read, CHECKSUM, "run")


@pytest.mark.usefixtures("inodes_are_used_again")
def test_a_damaged_copy_of_another_process_with_the_same_inode_is_a_miss(tmp_path: Path) -> None:
    cache = Cache("s3://b", root=str(tmp_path))
    cache.add(NAME, pa.py_buffer(WRITTEN))
    assert cache.read(NAME) == pa.py_buffer(WRITTEN)
    path = Path(cache._path(NAME))
    other = cache_module.checksum(str(path), pa.py_buffer(WRITTEN[::-1]))
    staged = tmp_path / "staged"
    staged.write_bytes(OTHER + other)
    os.replace(staged, path)
    assert cache.read(NAME) is None


def test_a_copy_is_compared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Remote(Cache("s3://b", root=str(tmp_path)))
    read(store)  # which fetches it
    read(store)
    with monkeypatch.context() as patched:
        patched.setattr(checksums.zlib, "crc32", lambda *_: pytest.fail("compared again"))
        assert read(store) == pa.py_buffer(WRITTEN)


def test_a_local_file_is_compared_again_when_it_has_changed(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.write(NAME, WRITTEN)
    for _ in range(2):
        read(store)
    staged = tmp_path / "staged"
    staged.write_bytes(OTHER)
    os.replace(staged, tmp_path / NAME)
    with pytest.raises(StateError, match="it is not what was written"):
        read(store)
