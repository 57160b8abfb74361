"""Stores: what is written is whole, nothing is overwritten, names are what there is."""

from __future__ import annotations

import os
import pickle
import stat
from pathlib import Path

import pytest

from watersmeet.errors import StateError
from watersmeet.state.store import LocalStore, MemoryStore


@pytest.fixture(params=["memory", "directory"])
def store(request, tmp_path):
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "state")


def test_what_is_written_is_read(store):
    store.write("runs/a", b"abc")
    store.write("runs/empty", b"")
    assert bytes(store.read("runs/a")) == b"abc"
    assert bytes(store.read("runs/empty")) == b""


def test_create_never_overwrites(store):
    assert store.create("manifests/1", b"first")
    assert not store.create("manifests/1", b"second")
    assert bytes(store.read("manifests/1")) == b"first"
    assert store.names("manifests") == ["manifests/1"]


def test_names_are_those_of_the_folder_in_order(store):
    for name in ("runs/b", "runs/a", "marks/c", "runs/deep/d"):
        store.write(name, b"x")
    assert [name for name in store.names("runs") if "deep" not in name] == ["runs/a", "runs/b"]
    assert store.names("marks") == ["marks/c"]
    assert store.names("nothing") == []


def test_deleting_twice_is_deleting_once(store):
    store.write("runs/a", b"x")
    store.delete("runs/a")
    store.delete("runs/a")
    assert store.names("runs") == []


def test_what_is_missing_is_a_state_error_with_a_hint(store):
    with pytest.raises(StateError, match="runs/gone") as raised:
        store.read("runs/gone")
    assert raised.value.code == "state-missing"
    assert raised.value.hint


def test_what_is_written_together_is_on_disk_when_that_ends(tmp_path, monkeypatch):
    """Not in the block, in which it is read all the same; and every folder once, after its files' names."""
    store, synced = LocalStore(tmp_path), []
    fsync = os.fsync

    def record_fsync(handle):
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    store.write("runs/first", b"x")
    monkeypatch.setattr(os, "fsync", record_fsync)
    with store.together():
        with store.together():
            store.write("runs/a", b"abc")
        store.write("runs/b", b"b")
        store.write("runs/passing", b"p", lasting=False)
        assert bytes(store.read("runs/a")) == b"abc"
        assert str(tmp_path / "runs") not in synced
        assert pickle.loads(pickle.dumps(store))._waiting is None
    assert sorted(synced) == sorted(str(tmp_path / name) for name in ("runs/a", "runs/b", "runs"))
    assert synced.count(str(tmp_path / "runs")) == 1
    synced.clear()
    store.write("runs/c", b"c")
    assert synced[-1] == str(tmp_path / "runs")
    assert len(synced) == 2


def test_what_does_not_get_to_the_disk_fails_the_block(tmp_path, monkeypatch):
    store = LocalStore(tmp_path)
    store.write("runs/first", b"x")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateError, match="No space left on device"), store.together():
        store.write("runs/a", b"abc")
    monkeypatch.undo()
    store.write("runs/b", b"b")  # waited for by itself again
    assert bytes(store.read("runs/b")) == b"b"


def test_a_directory_store_travels_to_another_process(tmp_path):
    store = LocalStore(tmp_path)
    store.write("runs/a", b"abc")
    assert bytes(pickle.loads(pickle.dumps(store)).read("runs/a")) == b"abc"


def test_what_was_read_outlives_its_deletion(tmp_path):
    store = LocalStore(tmp_path)
    store.write("runs/a", b"abc")
    data = store.read("runs/a")
    store.delete("runs/a")
    assert bytes(data) == b"abc"


@pytest.fixture
def calls(monkeypatch):
    """The file-system calls that durability is made of, in order: (call, last part of the path)."""
    seen: list[tuple[str, str]] = []
    opened: dict[int, str] = {}

    def watch(name, describe):
        real = getattr(os, name)

        def call(*arguments, **named):
            result = real(*arguments, **named)
            seen.append((name, describe(arguments, result)))
            return result

        monkeypatch.setattr(os, name, call)

    def opening(arguments, handle):
        opened[handle] = "folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else kind(arguments[0])
        return opened[handle]

    def kind(path):
        return "staged" if str(path).endswith(".tmp") else "final"

    watch("open", opening)
    watch("fsync", lambda arguments, _: opened[arguments[0]])
    watch("rename", lambda arguments, _: f"{kind(arguments[0])} to {kind(arguments[1])}")
    watch("link", lambda arguments, _: f"{kind(arguments[0])} to {kind(arguments[1])}")
    return seen


@pytest.mark.parametrize(("how", "publish"), [("write", "rename"), ("create", "link")])
def test_bytes_are_synced_before_the_name_appears_and_the_folder_after(tmp_path, calls, how, publish):
    getattr(LocalStore(tmp_path), how)("runs/a", b"abc")
    assert [call for call in calls if call[0] != "open"] == [
        ("fsync", "folder"),  # the one above a new folder
        ("fsync", "staged"),
        (publish, "staged to final"),
        ("fsync", "folder"),
    ]


@pytest.mark.parametrize("how", ["write", "create"])
@pytest.mark.parametrize("failing", ["write", "fsync"])
def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch, how, failing):
    store = LocalStore(tmp_path)
    store.write("runs/old", b"x")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, full)
        with pytest.raises(StateError, match="No space") as raised:
            getattr(store, how)("runs/a", b"abc")
        assert raised.value.code == "state-not-written"
    assert store.names("runs") == ["runs/old"]
    assert [file.name for file in Path(tmp_path).rglob("*") if file.is_file()] == ["old"]


def test_sweeping_removes_what_was_staged_however_new_and_nothing_else(tmp_path):
    store = LocalStore(tmp_path)
    store.write("runs/a", b"x")
    for name in ("old", "fresh"):
        (tmp_path / "runs" / f"{name}.1234.tmp").write_bytes(b"half")
    os.utime(tmp_path / "runs" / "old.1234.tmp", (0, 0))
    (tmp_path / "runs" / "held.tmp").mkdir()  # stands for one that cannot be removed
    store.sweep()
    assert sorted(file.name for file in (tmp_path / "runs").iterdir()) == ["a", "held.tmp"]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277])
def test_state_files_are_private_to_their_owner(tmp_path, umask):
    before = os.umask(umask)
    try:
        store = LocalStore(tmp_path / "made" / "state")
        store.write("runs/a", b"x")
        store.create("manifests/1", b"x")
    finally:
        os.umask(before)
    modes = {
        str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")
    }
    assert modes == {
        "made": 0o700,
        "made/state": 0o700,
        "made/state/runs": 0o700,
        "made/state/manifests": 0o700,
        "made/state/runs/a": 0o600,
        "made/state/manifests/1": 0o600,
    }


def test_what_was_open_to_others_is_closed(tmp_path):
    store = LocalStore(tmp_path / "state")
    (tmp_path / "state").mkdir(mode=0o755)
    store.check()
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert list((tmp_path / "state").iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code"), [(1, "no-hard-links"), (95, "no-hard-links"), (28, "state-not-written")]
)
def test_a_place_without_hard_links_is_refused_before_anything_goes_out(tmp_path, monkeypatch, error, code):
    def refuse(*_):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StateError) as raised:
        LocalStore(tmp_path).check()
    assert raised.value.code == code
    assert raised.value.hint
    assert list(tmp_path.iterdir()) == []


def test_staged_files_are_never_seen(tmp_path):
    store = LocalStore(tmp_path)
    store.write("runs/a", b"x")
    (tmp_path / "runs" / "b.1234.tmp").write_bytes(b"half")
    assert store.names("runs") == ["runs/a"]
    assert store.create("manifests/1", b"x")
    assert not store.create("manifests/1", b"y")
    assert [file.name for file in (tmp_path / "manifests").iterdir()] == ["1"]
