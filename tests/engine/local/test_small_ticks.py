"""What a tick of a few rows costs: calls are counted, since they do not depend on the machine."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest

from watersmeet import LocalJob, MemoryStore, parse_job, plan_job
from watersmeet.state.store import LocalStore

JOB = """
CREATE TABLE a (t BIGINT, k BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE b (t BIGINT, k BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE c (t BIGINT, k BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
SELECT a.t, b.t AS u, c.t AS v FROM a
 LEFT JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 10
 JOIN c ON c.k = a.k AND c.t BETWEEN a.t - 5 AND a.t + 5
"""
MAX_CALLS = 7_000


class Reads(LocalStore):
    """Which runs were read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read_runs: list[str] = []

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
