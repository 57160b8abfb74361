"""Manifests: all that is remembered, created once, and what may be deleted."""

from __future__ import annotations

import pytest

from watersmeet.errors import StateError
from watersmeet.event_time import ENDED, MAX_TIME, MIN_TIME, NEVER
from watersmeet.state.manifest import (
    Arrangement,
    LiveRun,
    Manifest,
    NodeState,
    QueryState,
    collect_garbage,
    commit,
    load_newest,
    manifest_name,
)
from watersmeet.state.marks import Segment
from watersmeet.state.run import Run
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
    commit(store, written)
    read = load_newest(store)
    assert read == written
    assert read.queries["q"].inputs["l"].branches[0].partitions["p/0"].greatest == {"t": MIN_TIME, "u": NEVER}
    assert isinstance(read.queries["q"].nodes[0].emitted["r.t"], int)


def test_there_is_none_before_the_first_tick():
    assert load_newest(MemoryStore()) is None


def test_the_newest_is_loaded_also_beyond_nine():
    store = MemoryStore()
    for tick in (9, 10, 11, 2):
        store.create(manifest_name(tick), manifest(tick).model_dump_json().encode())
    newest = load_newest(store)
    assert newest is not None
    assert newest.tick == 11


def test_a_second_process_cannot_commit_the_same_tick():
    store = MemoryStore()
    commit(store, manifest(4))
    with pytest.raises(StateError, match="another process") as raised:
        commit(store, manifest(4, live("runs/other")))
    assert raised.value.code == "state-fenced"
    assert load_newest(store) == manifest(4)


def test_nor_can_one_that_is_many_ticks_behind():
    """By then the manifest of its tick has been deleted: its name is free again."""
    store = MemoryStore()
    commit(store, manifest(7))
    collect_garbage(store, [manifest(7)])
    with pytest.raises(StateError, match="another process"):
        commit(store, manifest(4))
    assert store.names("manifests") == [manifest_name(7)]


@pytest.mark.parametrize("text", [b"", b"{", b'{"tick": 1}', b"\xff\xfe", b'{"state_version": 1}'])
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
def test_deletion_spares_the_kept_manifests_and_all_that_they_name(kind, tmp_path):
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
    collect_garbage(store, history[1:])
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
