"""What a tick of a few rows costs: calls are counted, since they do not depend on the machine."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest

from watersmeet import LocalJob, MemoryStore, parse_job, plan_job
from watersmeet.state.manifest import load, manifest_names
from watersmeet.state.store import LocalStore
from watersmeet.state.stored_record import StoredRecord

JOB = """
CREATE TABLE a (t BIGINT, k BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE b (t BIGINT, k BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE c (t BIGINT, k BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
SELECT a.t, b.t AS u, c.t AS v FROM a
 LEFT JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 10
 JOIN c ON c.k = a.k AND c.t BETWEEN a.t - 5 AND a.t + 5
"""
MAX_CALLS = 5_800


class Reads(LocalStore):
    """Which runs were read, and which folders listed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read_runs: list[str] = []
        self.listed: list[str] = []

    def names(self, folder: str) -> list[str]:
        self.listed.append(folder)
        return super().names(folder)

    def read(self, name: str) -> pa.Buffer:
        if name.startswith("runs/"):
            self.read_runs.append(name)
        return super().read(name)


def tick(job: LocalJob, number: int) -> None:
    for source in "abc":
        job.push(source, [{"t": 4 * number, "k": 1}])
    job.tick()


@pytest.fixture
def plan():
    return plan_job(parse_job(JOB))


def test_a_tick_of_one_row_makes_few_calls(plan) -> None:
    job, calls = LocalJob(plan, MemoryStore()), 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    for number in range(10):
        tick(job, number)
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for number in range(10, 18):
            tick(job, number)
    finally:
        sys.setprofile(before)
    assert calls / 8 < MAX_CALLS, calls / 8


def test_a_tick_over_a_directory_reads_no_run(plan, tmp_path: Path) -> None:
    store = Reads(tmp_path)
    job = LocalJob(plan, store)
    for number in range(12):
        tick(job, number)
    assert all(job.state["console"].values()), "rows of earlier ticks are looked up"
    assert store.read_runs == []


def test_a_tick_over_a_directory_searches_no_folder_and_syncs_each_once(
    plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, synced, fsync = Reads(tmp_path), list[str](), os.fsync
    job = LocalJob(plan, store)
    for number in range(10):
        tick(job, number)
    store.listed.clear()

    def record_fsync(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", record_fsync)
    tick(job, 10)
    assert set(store.listed) == {"manifests"}
    folders = [path for path in synced if Path(path).is_dir()]
    assert sorted(folders) == [str(tmp_path / name) for name in ("manifests", "marks", "runs", "work")]
    manifests = map(partial(load, store), manifest_names(store))
    named = {name for manifest in manifests for name in manifest.files()}
    there = {name for folder in ("runs", "marks", "aside", "work") for name in store.names(folder)}
    assert there == named


def test_a_tick_in_memory_writes_no_text(plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its manifest is made into text when somebody reads it, and says the same then."""
    store = MemoryStore()
    job = LocalJob(plan, store)
    tick(job, 0)
    with monkeypatch.context() as patch:
        patch.setattr(StoredRecord, "model_dump_json", lambda *_, **__: pytest.fail("text was written"))
        tick(job, 1)
    assert load(store, manifest_names(store)[-1]) == job.driver.manifest
