"""A job whose files were moved goes on with them if its user says so; else it is refused."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from watersmeet.errors import EngineError, StateError, WatersmeetError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.identity.source_location import place_of
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator.restore.changed_queries import check_same_job, identify_queries
from watersmeet.runtime.files.listing import read_file_stat
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.runtime.spark.checkpoint.moved_files import (
    MovedSources,
    find_moved_sources,
    unknown_move_errors,
)
from watersmeet.runtime.spark.checkpoint.remote_checkpoint import TickIntent
from watersmeet.runtime.spark.checkpoint.spark_log import log_lines, log_text
from watersmeet.state import file_lists
from watersmeet.state.file_lists import FileRead
from watersmeet.state.manifest import Manifest
from watersmeet.state.store import MemoryStore

TEXT = """
CREATE TABLE s (k STRING, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
  WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'json'{more});
CREATE TABLE r (k STRING, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
  WITH ('connector' = 'memory');
CREATE SINK o WITH ('connector' = 'memory');
INSERT INTO o
  SELECT s.k, s.t FROM s JOIN r ON s.k = r.k AND r.t BETWEEN s.t AND s.t + INTERVAL '{span}' SECONDS;
"""


def plan_moved_job(path: str, *moved: str, more: str = "", span: int = 5) -> JobPlan:
    return replace(plan_job(parse_job(TEXT.format(path=path, more=more, span=span))), moved=frozenset(moved))


class State:
    """The state of a job that has read files in ``old``, which were then moved to ``new``."""

    def __init__(self, root: Path, path: str, files: Mapping[str, str]) -> None:
        self.old, self.new, self.store = root / "old", root / "ä new", MemoryStore()
        read = []
        for name, text in files.items():
            at = self.old / name
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_text(text)
            size, changed_ns = read_file_stat(str(at))
            url = f"file://{str(at).replace(' ', '%20')}"
            read.append(FileRead(0, 0, url, changed_ns // 1_000_000, size, changed_ns))
        lists = [one.model_dump() for one in file_lists.add(self.store, [], read)]
        plan = plan_moved_job(path)
        self.manifest = Manifest(
            tick=1,
            clock_us=0,
            sources=[source.name for source in plan.sources],
            places={source.name: place_of(source) for source in plan.sources},
            queries={},
            host={file_lists.KEY: lists},
            **identify_queries(plan),
        )
        if files:
            self.old.rename(self.new)

    def lists(self, files: Sequence[FileRead]) -> list[list[dict]]:
        """Of the first file, and of all, each read in a batch of its own."""
        numbered = [file._replace(batch=number) for number, file in enumerate(files)]
        return [
            [one.model_dump() for one in file_lists.add(self.store, [], numbered[: number + 1])]
            for number in range(len(numbered))
        ]

    def moves(self, plan: JobPlan) -> MovedSources:
        return find_moved_sources(self.manifest, plan, self.store)

    def files(self, host: Mapping) -> list[FileRead]:
        return list(file_lists.read(self.store, file_lists.lists_of(host)))

    def list_accepted_paths(self, plan: JobPlan) -> list[str]:
        """The paths of the files by which the job goes on."""
        host = self.moves(plan).relocate(self.manifest.host, self.store)
        assert [file._replace(path="") for file in self.files(host)] == [
            file._replace(path="") for file in self.files(self.manifest.host)
        ]
        return [file.path for file in self.files(host)]

    def refused(self, plan: JobPlan) -> WatersmeetError:
        with pytest.raises(WatersmeetError) as caught:
            self.moves(plan)
        return caught.value


LAYOUTS = [
    ("in", ["in/a.json", "in/k=1/b c.json"]),
    ("../old/in", ["in/a.json"]),
    (".", ["a.json"]),
    ("in/*.json", ["in/a.json", "in/b.json"]),
    ("*/in", ["x/in/a.json"]),
    ("in/a.json", ["in/a.json"]),
    ("in", ["in/k=1/in/a.json"]),
    ("in", ["in/in/a.json", "in/b.json"]),
]


@pytest.mark.parametrize(("path", "names"), LAYOUTS)
def test_moved_relative_paths_match_the_same_files(tmp_path, monkeypatch, path, names):
    state = State(tmp_path, path, {name: name for name in names})
    now = tmp_path / "there" / "old"
    now.parent.mkdir()
    state.new.rename(now)
    monkeypatch.chdir(now)
    found = state.refused(plan_moved_job(path))
    assert (found.code, "--accept-moved s;" in found.hint) == ("source-moved", True)
    expected = [f"file://{now}/{name}".replace(" ", "%20") for name in names]
    assert state.list_accepted_paths(plan_moved_job(path, "s")) == expected


def test_files_may_move_into_a_directory_below(tmp_path, monkeypatch):
    """A run that was killed in between finds new paths, which stay."""
    state = State(tmp_path, ".", {"a.json": "x"})
    state.old.mkdir()
    state.new.rename(state.old / "b")
    monkeypatch.chdir(state.old / "b")
    (path,) = state.list_accepted_paths(plan_moved_job(".", "s"))
    assert path == f"file://{state.old}/b/a.json"
    (moved,) = state.moves(plan_moved_job(".", "s")).sources.values()
    assert moved.path_of(path) == path


@pytest.mark.parametrize("before", ["{old}/in", "file:{old}/in", "in", "{old}/in/*.json"])
@pytest.mark.parametrize("span", [5, 9])
def test_a_path_that_is_written_otherwise_keeps_the_query(tmp_path, monkeypatch, before, span):
    """Unless the query changed, too."""
    old = tmp_path / "old"
    state = State(tmp_path, before.format(old=old), {"in/a.json": "x"})
    monkeypatch.chdir(tmp_path)
    path = before.format(old=state.new) if "old" in before else str(state.new / "in")
    with pytest.raises(StateError) as caught:
        check_same_job(state.manifest, plan_moved_job(path, span=span))
    assert caught.value.code == "changed-query"
    assert f'the path of "s" was "{before.format(old=old)}", now it is "{path}"' in caught.value.message
    assert "run with --accept-moved s. Otherwise" in caught.value.hint
    plan = plan_moved_job(path, "s", span=span)
    if span == 5:
        check_same_job(state.manifest, plan)
        assert state.list_accepted_paths(plan) == [f"file://{tmp_path}/ä%20new/in/a.json"]
        return
    for may_change in (False, True):
        with pytest.raises(StateError) as caught:
            check_same_job(state.manifest, plan, may_change=may_change)
        assert caught.value.code == "changed-query"
    assert "first, then change it with --change-queries" in caught.value.hint


@pytest.mark.parametrize("path", ["in", "in/*.json", "in/[ab].json", "in/{a,b}.json", "in/a.json", "/"])
@pytest.mark.parametrize("was_read", [True, False])
def test_files_that_went_where_they_were_read_are_no_move(tmp_path, monkeypatch, path, was_read):
    state = State(tmp_path, path, {"in/a.json": "x"} if was_read else {})
    state.new.mkdir(exist_ok=True)
    state.new.rename(state.old if was_read else tmp_path / "other")
    monkeypatch.chdir(state.old if was_read else tmp_path / "other")
    for file in state.old.glob("in/*"):
        file.unlink()
    assert not state.moves(plan_moved_job(path))


def test_files_that_were_not_moved_may_be_written_with_an_absolute_path(tmp_path, monkeypatch):
    state = State(tmp_path, "in", {"in/a.json": "x"})
    state.new.rename(state.old)
    plan = plan_moved_job(str(state.old / "in"), "s")
    check_same_job(state.manifest, plan)
    assert not state.moves(plan)


@pytest.mark.parametrize("more", ["", ", 'on_changed_file' = 'warn'"])
def test_files_that_are_missing_or_differ_are_refused(tmp_path, monkeypatch, more):
    """Or counted, as for files that changed in their place."""
    state = State(tmp_path, "in", {"in/a.json": "x", "in/b.json": "x", "in/c.json": "x"})
    monkeypatch.chdir(state.new)
    (state.new / "in" / "a.json").unlink()
    (state.new / "in" / "b.json").write_text("xyz")
    plan = plan_moved_job("in", "s", more=more)
    texts = [f"{state.new}/in/a.json is missing", "b.json has another size than when it was read"]
    if more:
        (moved,) = state.moves(plan).sources.values()
        assert all(text in moved.note for text in texts)
        assert list(moved.same) == [f"{state.new}/in/c.json"]
        return
    found = state.refused(plan)
    assert found.code == "source-moved"
    assert all(text in found.message for text in texts)
    assert "on_changed_file" in found.hint


def test_new_modification_times_replace_the_stored_ones(tmp_path, monkeypatch):
    """As after `cp -r`: the files are known by these from then on."""
    state = State(tmp_path, "in", {"in/a.json": "x"})
    monkeypatch.chdir(state.new)
    os.utime("in/a.json", ns=(5, 5))
    (file,) = state.files(state.moves(plan_moved_job("in", "s")).relocate(state.manifest.host, state.store))
    (before,) = state.files(state.manifest.host)
    assert (file.changed_ns, file.time_ms) == (5, before.time_ms)


@pytest.mark.parametrize("path", ["other", "in/*.csv", "in/k=1"])
def test_other_files_are_refused(tmp_path, monkeypatch, path):
    state = State(tmp_path, "in/*.json", {"in/k=1/a.json": "x"})
    (state.new / "other").mkdir()
    monkeypatch.chdir(state.new)
    assert state.refused(plan_moved_job(path, "s")).code == "source-moved"


def test_files_that_may_be_several_are_refused(tmp_path, monkeypatch):
    state = State(tmp_path, ".", {"in/a.json": "x"})
    monkeypatch.chdir(state.new)
    shutil.copy("in/a.json", "a.json")
    assert "clearly the same" in state.refused(plan_moved_job(".", "s")).message


def test_only_sources_of_local_files_are_accepted():
    plan = plan_moved_job("s3a://bucket/in", "s", "r", "t")
    assert [error.message.split(":")[0] for error in unknown_move_errors(plan)] == [
        f"--accept-moved {name}" for name in "rst"
    ]
    assert unknown_move_errors(plan_moved_job("in", "s")) == []


def spark_log(checkpoint: Checkpoint, steps: Sequence[Sequence[FileRead]], compacted: int) -> None:
    """Spark's list of the files of source 0."""
    folder = checkpoint.spark / "sources" / "0"
    folder.mkdir(parents=True)
    entries = [
        [{"path": file.path, "timestamp": file.time_ms, "batchId": step} for file in files]
        for step, files in enumerate(steps)
    ]
    before = [entry for step in entries[: compacted + 1] for entry in step]
    (folder / f"{compacted}.compact").write_text(log_text(before))
    for step in range(compacted + 1, len(steps)):
        (folder / str(step)).write_text(log_text(entries[step]))
    (folder / f".{len(steps) - 1}.crc").write_bytes(b"\xff")
    (checkpoint.spark / "metadata").write_text("m")


def test_the_lists_of_spark_get_the_new_paths(tmp_path, monkeypatch):
    """Also of a tick that was interrupted, which is then known by what it was; once more changes nothing."""
    state = State(tmp_path, "in", {f"in/{n} %.json": "x" for n in range(4)})
    read = [file._replace(path=file.path.replace("%.", "%25.")) for file in state.files(state.manifest.host)]
    state.manifest.host[file_lists.KEY] = [o.model_dump() for o in file_lists.add(state.store, [], read[:3])]
    monkeypatch.chdir(state.new)
    checkpoint = Checkpoint(tmp_path / "state")
    spark_log(checkpoint, [[file] for file in read], compacted=1)
    offsets = f'v1\n{{"batchTimestampMs":0}}\n{json.dumps({"logOffset": 2})}'
    host = {**state.manifest.host, "offsets": offsets, "batch": 2}
    moves = state.moves(plan_moved_job("in", "s"))
    os.utime("in/3 %.json", ns=(5, 5))
    before = sorted(path.read_bytes() for path in checkpoint.spark.rglob("*") if path.is_file())
    with pytest.raises(EngineError, match=r"in the middle of a tick.*another modification time"):
        moves.move_log(checkpoint, host)
    assert before == sorted(path.read_bytes() for path in checkpoint.spark.rglob("*") if path.is_file())
    os.utime("in/3 %.json", ns=(0, read[3].changed_ns))
    assert "moved to" in moves.move_log(checkpoint, host)
    assert moves.move_log(checkpoint, host) is None
    logs = [checkpoint.spark / "sources" / "0" / name for name in ("1.compact", "2", "3")]
    lines = [line for log in logs for line in log_lines(log)]
    assert [line["path"] for line in lines] == [
        f"file://{tmp_path}/ä%20new/in/{n}%20%25.json" for n in range(4)
    ]
    assert [line["timestamp"] for line in lines] == [file.time_ms for file in read]
    again = [FileRead(0, n, line["path"], *read[n][3:]) for n, line in enumerate(lines)]
    assert [moves.to_old_path(file)[2:] for file in again] == [file[2:] for file in read]
    assert not list(checkpoint.spark.rglob(".*.crc"))
    assert (checkpoint.spark / "metadata").read_text() == "m"


def test_a_damaged_list_of_spark_is_named(tmp_path, monkeypatch):
    state = State(tmp_path, "in", {"in/a.json": "x"})
    monkeypatch.chdir(state.new)
    checkpoint = Checkpoint(tmp_path / "state")
    spark_log(checkpoint, [state.files(state.manifest.host)], compacted=0)
    (checkpoint.spark / "sources" / "0" / "0.compact").write_text("v1\n{")
    moves = state.moves(plan_moved_job("in", "s"))
    with pytest.raises(StateError) as caught:
        moves.move_log(checkpoint, {"offsets": 'v1\n{"batchTimestampMs":0}\n-', "batch": 0})
    assert caught.value.code == "spark-checkpoint-damaged"


def test_a_state_in_a_store_begins_with_the_new_paths(tmp_path, monkeypatch):
    """On another machine, also with a tick that was interrupted there."""
    state = State(tmp_path, "in", {"in/a.json": "x", "in/b.json": "x"})
    read = state.files(state.manifest.host)
    monkeypatch.chdir(state.new)
    plan = plan_moved_job("in", "s")
    offsets = [f'v1\n{{"batchTimestampMs":0}}\n{{"logOffset":{step}}}\n-' for step in (0, 1)]
    sources = ["file s", "memory r"]
    hosts = [
        {"query_id": "q", "batch": batch, "offsets": text, "sources": sources, file_lists.KEY: lists}
        for batch, (text, lists) in enumerate(zip(offsets, state.lists(read), strict=True))
    ]
    manifest = state.manifest.model_copy(update={"host": hosts[0], "writer": "w"})
    store = SimpleNamespace(place=SimpleNamespace(url="s3://b/p"))
    checkpoint = Checkpoint(tmp_path / "state", store)
    checkpoint.root.mkdir()
    monkeypatch.setattr(Checkpoint, "store", state.store)
    monkeypatch.setattr(Checkpoint, "check_not_lost", lambda self: None)
    monkeypatch.setattr(checkpoint.stored_job, "begun", lambda tick, follows: hosts[1])
    moves = find_moved_sources(manifest, plan, state.store)
    moved = manifest.model_copy(update={"host": moves.relocate(manifest.host, state.store)})
    assert "which the next run repeats" in TickIntent(checkpoint).fit(2, moved, plan, 10, moves)[0]
    assert [log_lines(checkpoint.spark / "sources" / "0" / name)[0]["path"] for name in "01"] == [
        f"file://{tmp_path}/ä%20new/in/{name}.json" for name in "ab"
    ]
    os.utime("in/b.json", ns=(5, 5))
    with pytest.raises(EngineError, match="another modification time"):
        TickIntent(checkpoint).fit(2, moved, plan, 10, moves)
