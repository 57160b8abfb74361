"""The cache: what was read or written is not fetched again, and no damage to it gives anything else."""

from __future__ import annotations

import os
import pickle
import random
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.s3 import Proxy, store_at
from watersmeet.objects import cache as cache_module
from watersmeet.objects.cache import Cache
from watersmeet.objects.object_store import ObjectStore


@pytest.fixture
def cache(tmp_path):
    cache_module.verified_files.clear()
    return Cache("s3://bucket/state", 1 << 20, str(tmp_path / "cache"))


def files(cache):
    return sorted(Path(cache.folder).glob("*.object"))


def test_what_was_written_or_read_is_not_fetched_again(endpoint, bucket, cache):
    with Proxy(endpoint) as proxy:
        store = ObjectStore(store_at(proxy.endpoint, bucket).place, cache)
        store.write("runs/a", b"abc" * 1000)
        store.write("runs/empty", b"")
        assert bytes(store.read("runs/a")) == b"abc" * 1000
        assert bytes(pickle.loads(pickle.dumps(store)).read("runs/empty")) == b""
        assert not proxy.requests["GET", "runs"]
        store_at(endpoint, bucket).write("runs/other", b"another's")
        assert [bytes(store.read("runs/other")) for _ in range(3)] == [b"another's"] * 3
        assert proxy.requests["GET", "runs"] == 1


def test_manifests_are_always_those_that_are_there(endpoint, bucket, cache):
    store = ObjectStore(store_at(endpoint, bucket).place, cache)
    store.create("manifests/1", b"first")
    store.read("manifests/1")
    assert not files(cache) if os.path.isdir(cache.folder) else True


@pytest.mark.parametrize(
    "damage", ["cut", "changed", "emptied", "replaced", "gone", "a directory", "no folder"]
)
def test_damage_is_a_miss_and_mends_itself(cache, damage):
    cache.add("runs/a", pa.py_buffer(b"abc" * 100))
    cache.add("runs/b", pa.py_buffer(b"xyz" * 100))
    path, other = (Path(cache._path(name)) for name in ("runs/a", "runs/b"))
    data = path.read_bytes()
    if damage == "cut":
        path.write_bytes(data[:-1])
    elif damage == "changed":
        path.write_bytes(b"b" + data[1:])
    elif damage == "emptied":
        path.write_bytes(b"")
    elif damage == "replaced":
        path.write_bytes(other.read_bytes())
    elif damage == "gone":
        path.unlink()
    elif damage == "a directory":
        path.unlink()
        path.mkdir()
    else:
        for file in files(cache):
            file.unlink()
        os.rmdir(cache.folder)
    assert cache.read("runs/a") is None
    cache.add("runs/a", pa.py_buffer(b"abc" * 100))
    if damage != "a directory":
        assert bytes(cache.read("runs/a")) == b"abc" * 100


def test_what_is_read_stays_readable_when_it_is_deleted(cache):
    cache.add("runs/a", pa.py_buffer(b"abc" * 100))
    content = cache.read("runs/a")
    cache.drop("runs/a")
    assert bytes(content) == b"abc" * 100


def test_another_store_has_other_files(cache):
    cache.add("runs/a", pa.py_buffer(b"abc"))
    assert Cache("s3://bucket/other", cache.limit, cache.root).read("runs/a") is None


def test_it_is_for_its_owner_alone(cache):
    os.makedirs(cache.folder, 0o755)
    cache.add("runs/a", pa.py_buffer(b"abc"))
    assert stat.S_IMODE(os.stat(cache.folder).st_mode) == 0o700
    assert stat.S_IMODE(files(cache)[0].stat().st_mode) == 0o600


def test_a_link_in_its_place_is_not_followed(cache, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", cache.folder)
    cache.add("runs/a", pa.py_buffer(b"abc"))
    assert not list((tmp_path / "elsewhere").iterdir())


def test_the_least_recently_read_go_first(cache):
    part = pa.py_buffer(os.urandom(cache.limit // 10))
    for number in range(9):
        cache.add(f"runs/{number}", part)
        os.utime(cache._path(f"runs/{number}"), (number, number))
    assert cache.read("runs/0") is not None
    cache.add("runs/new", part)
    cache.add("runs/newer", part)
    assert cache.read("runs/0") is not None
    assert cache.read("runs/1") is None
    assert sum(file.stat().st_size for file in files(cache)) <= cache.limit


def test_entry_as_large_as_the_cache_is_not_cached(cache):
    cache.add("runs/large", pa.py_buffer(bytes(cache.limit)))
    assert cache.read("runs/large") is None


def test_many_that_add_read_and_evict_get_nothing_wrong(cache):
    contents = {f"runs/{n}": random.Random(n).randbytes(cache.limit // 40) for n in range(80)}

    def use(seed):
        drawn, own, hits = random.Random(seed), Cache(cache.place, cache.limit, cache.root), 0
        for _ in range(60):
            name = drawn.choice(list(contents))
            content = own.read(name)
            if content is None:
                own.add(name, pa.py_buffer(contents[name]))
            else:
                assert bytes(content) == contents[name]
                hits += 1
            if drawn.random() < 0.02:
                own.drop(drawn.choice(list(contents)))
        return hits

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(use, range(6))) > 60
    assert sum(file.stat().st_size for file in files(cache)) <= cache.limit * 1.3


def test_what_is_of_one_tick_goes_with_it(tmp_path):
    cache = Cache("here", root=str(tmp_path / "cache"))
    names = ["work/passing-3-a-b.arrow", "work/3-a-0-0.json", "runs/a-1.arrow"]
    for name in names:
        cache.add(name, pa.py_buffer(b"content"))
    cache.drop_tick_files([*names, "work/passing-3-never.arrow"])
    assert [cache.read(name) is not None for name in names] == [False, True, True]
