"""Manifests: all that is remembered, created once, and what may be deleted."""

from __future__ import annotations

import pytest

from watersmeet.errors import StateError
from watersmeet.event_time import ENDED, MAX_TIME, MIN_TIME, NEVER
from watersmeet.state.checksums import add_checksum
from watersmeet.state.commits import commit
from watersmeet.state.garbage_collection import TickRetention
from watersmeet.state.manifest import (
    Arrangement,
    LiveRun,
    Manifest,
    NodeState,
    QueryState,
    load_newest,
    manifest_name,
    manifest_names,
)
from watersmeet.state.marks import Segment
from watersmeet.state.runs.layout import Run
from watersmeet.state.store import LocalStore, MemoryStore
from watersmeet.watermark.tracker import BranchState, InputState, PartitionState


def live(name, *mark_files):
    run = Run(
        name=name, rows=3, nbytes=9, checksum=1, tick=1, index="t", base=0, shift=0, low=-1, high=1,
        spans={"t": (MIN_TIME, MAX_TIME)}, group=name,
    )  # fmt: skip
    segments = tuple(
        Segment(file=file, offset=0, nbytes=1, checksum=0, first=0, low=0, high=3) for file in mark_files
    )
    return LiveRun(run=run, released=1, marks={"matched": segments} if segments else {})


def serialize_manifest(written):
    return add_checksum(manifest_name(written.tick), written.model_dump_json())


def manifest(tick, *runs, **changes):
    query = QueryState(nodes=[NodeState(arrangements={"l": Arrangement(runs=list(runs))})])
    fields = {
        "tick": tick,
        "clock_us": 5,
        "fingerprints": {"q": "f"},
        "sources": ["s"],
        "queries": {"q": query},
    }
    return Manifest(**{**fields, **changes})


def test_everything_comes_back_infinities_too():
    partition = PartitionState(greatest={"t": MIN_TIME, "u": NEVER}, idle=True, active_at_us=None)
    state = QueryState(
        inputs={
            "l": InputState([BranchState({"p/0": partition}, {"t": MAX_TIME})], {"t": ENDED, "u": NEVER})
        },
        nodes=[
            NodeState(
                arrangements={
                    "l": Arrangement(
                        runs=[live("runs/a", "marks/m")], limits={"t": NEVER, "u": ENDED}, retained=2
                    )
                },
                emitted={"l.t": ENDED, "r.t": 2**62 + 1},
            )
        ],
        account={"l": {"in": 3}},
        rows_out=7,
    )
    written = manifest(3, queries={"q": state}, host={"offsets": {"a": [1, None]}}, finished=True)
    store = MemoryStore()
    committed = commit(store, written)
    read = load_newest(store)
    assert read == committed == written.model_copy(update={"writer": committed.writer})
    assert read.queries["q"].inputs["l"].branches[0].partitions["p/0"].greatest == {"t": MIN_TIME, "u": NEVER}
    assert isinstance(read.queries["q"].nodes[0].emitted["r.t"], int)


def test_there_is_none_before_the_first_tick():
    assert load_newest(MemoryStore()) is None


def test_the_newest_is_loaded_also_beyond_nine():
    store = MemoryStore()
    for tick in (9, 10, 11, 2):
        store.create(manifest_name(tick), serialize_manifest(manifest(tick)))
    newest = load_newest(store)
    assert newest is not None
    assert newest.tick == 11


def test_a_second_process_cannot_commit_the_same_tick():
    store = MemoryStore()
    first = commit(store, manifest(4))
    with pytest.raises(StateError, match="another process") as raised:
        commit(store, manifest(4, live("runs/other")))
    assert raised.value.code == "state-fenced"
    assert load_newest(store) == first


def test_stale_writer_cannot_reuse_a_deleted_manifest_name():
    """By then the manifest of its tick has been deleted: its name is free again."""
    store = MemoryStore()
    commit(store, manifest(7))
    TickRetention(store).commit(manifest(7))
    with pytest.raises(StateError, match="another process"):
        commit(store, manifest(4))
    assert store.names("manifests") == [manifest_name(7)]


@pytest.mark.parametrize("remote", [True, False])
@pytest.mark.parametrize("tick", [1, 2])
def test_one_that_slept_since_its_manifest_was_created_leaves_it_to_who_went_on_from_it(tick, remote):
    """It comes to look whether it was far behind when the next tick is committed, and older ones are gone."""

    class Sleeping(MemoryStore):
        is_remote = remote

        def create(self, name, data):
            created = super().create(name, data)
            if name == manifest_name(tick):
                own = load_newest(self)
                commit(self, manifest(tick + 1, follows=own.writer))
                if tick > 1:
                    self.delete(manifest_name(tick - 1))
            return created

    store = Sleeping()
    follows = commit(store, manifest(tick - 1)).writer if tick > 1 else ""
    commit(store, manifest(tick, follows=follows))
    assert manifest_names(store) == [manifest_name(tick), manifest_name(tick + 1)]
    with pytest.raises(StateError, match="another process"):
        commit(store, manifest(tick))


def catch_state_error(store):
    with pytest.raises(StateError) as raised:
        load_newest(store)
    assert raised.value.hint
    return raised.value


def test_any_changed_digit_is_damage():
    """A number that is another number parses as well as the right one."""
    whole = serialize_manifest(
        manifest(1, live("runs/a", "marks/m"), host={"batch": 7}, clock_us=1_700_000_000_000_000)
    )
    digits = [place for place, byte in enumerate(whole) if chr(byte).isdigit()]
    assert len(digits) > 60
    for place in digits:
        store = MemoryStore()
        other = ord("1") if whole[place] == ord("9") else whole[place] + 1
        store.create(manifest_name(1), whole[:place] + bytes([other]) + whole[place + 1 :])
        assert catch_state_error(store).code == "state-damaged"


def test_any_cut_and_any_flipped_bit_is_damage():
    whole = serialize_manifest(manifest(1, live("runs/a")))
    for place in range(len(whole)):
        for data in (whole[:place], whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]):
            store = MemoryStore()
            store.create(manifest_name(1), data)
            assert catch_state_error(store).code == "state-damaged"


def test_a_manifest_under_the_name_of_another_is_damage():
    store = MemoryStore()
    store.create(manifest_name(2), serialize_manifest(manifest(1)))
    assert catch_state_error(store).code == "state-damaged"


def test_damaged_newest_manifest_is_not_replaced_by_an_older_one():
    store = MemoryStore()
    commit(store, manifest(1))
    store.create(manifest_name(2), serialize_manifest(manifest(2))[:-1])
    error = catch_state_error(store)
    assert "manifests/000000000002.json" in error.message
    assert "tick 1 is whole" in str(error.hint)


def test_files_of_others_among_the_manifests_are_left_alone(tmp_path):
    store = LocalStore(tmp_path)
    for tick in (1, 2, 3):
        commit(store, manifest(tick))
    others = ["notes.txt", "zzz", "000000000009.json.swp", "000000000001.json~", ".nfs000012"]
    for name in others:
        (tmp_path / "manifests" / name).write_text("{")
    newest = load_newest(store)
    assert newest.tick == 3
    commit(store, manifest(4))
    TickRetention(store).commit(manifest(4))
    left = {file.name for file in (tmp_path / "manifests").iterdir()}
    assert left == {*others, "000000000003.json", "000000000004.json"}


def test_what_cannot_be_deleted_is_counted_and_tried_again(tmp_path):
    store = LocalStore(tmp_path)
    (tmp_path / "runs" / "a-directory").mkdir(parents=True)
    store.write("runs/orphan", b"x")
    store.write("runs/.nfs0001", b"x")
    assert TickRetention(store).commit(manifest(1)) == 1
    assert sorted(file.name for file in (tmp_path / "runs").iterdir()) == [".nfs0001", "a-directory"]


def test_a_manifest_of_before_checksums_is_of_an_older_format():
    store = MemoryStore()
    store.create(manifest_name(1), manifest(1, state_version=4).model_dump_json().encode())
    assert catch_state_error(store).code == "state-version"


@pytest.mark.parametrize("text", [b"", b"{", b'{"tick": 1}', b"\xff\xfe", b"[]", b'"a"', b"null"])
def test_a_damaged_manifest_is_a_state_error_with_a_hint(text):
    store = MemoryStore()
    store.create(manifest_name(1), text)
    with pytest.raises(StateError, match=r"manifests/000000000001\.json") as raised:
        load_newest(store)
    assert raised.value.code == "state-damaged"
    assert raised.value.hint


def test_a_newer_format_is_refused():
    store = MemoryStore()
    commit(store, manifest(1, state_version=999))
    with pytest.raises(StateError, match="999") as raised:
        load_newest(store)
    assert raised.value.code == "state-version"


@pytest.mark.parametrize("kind", ["memory", "directory"])
def test_garbage_collection_spares_files_of_retained_manifests(kind, tmp_path):
    store = MemoryStore() if kind == "memory" else LocalStore(tmp_path)
    names = [
        "runs/a",
        "runs/b",
        "runs/c",
        "runs/orphan",
        "marks/m1",
        "marks/m2",
        "marks/orphan",
        "aside/x",
        "work/1",
    ]
    for name in names:
        store.write(name, b"x")
    history = [
        manifest(1, live("runs/a")),
        manifest(2, live("runs/a", "marks/m1"), live("runs/b")),
        manifest(3, live("runs/b", "marks/m2"), live("runs/c")),
    ]
    for each in history:
        commit(store, each)
    TickRetention(store).commit(history[-1])
    left = {
        name for folder in ("manifests", "runs", "marks", "aside", "work") for name in store.names(folder)
    }
    assert left == {
        manifest_name(2),
        manifest_name(3),
        "runs/a",
        "runs/b",
        "runs/c",
        "marks/m1",
        "marks/m2",
    }
    assert history[2].files() == {"runs/b", "runs/c", "marks/m2"}
