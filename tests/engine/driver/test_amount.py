"""In how many tasks a node is run: by what comes, what goes and what is merged, and not by what is kept."""

from __future__ import annotations

from typing import Any

import pytest

from watersmeet import LocalJob, MemoryStore, parse_job, plan_job
from watersmeet.runtime.coordinator.node_cost import (
    INPUT_MEMORY_SHARE,
    MAX_TASK_ROWS,
    MAX_TASKS,
    MIN_TASK_ROWS,
    CostEstimate,
    estimate_cost,
)
from watersmeet.runtime.operators.task import NodeTask

GB = 1 << 30

JOB = """
CREATE TABLE l (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 0) WITH ('connector' = 'memory');
CREATE TABLE r (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 0) WITH ('connector' = 'memory');
CREATE TABLE out WITH ('connector' = 'memory');
INSERT INTO out SELECT l.k FROM l LEFT JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 1000 AND l.t + 1000;
"""


def amount(rows: int, nbytes: int = 0, pairs: float = 0.0) -> CostEstimate:
    return CostEstimate(rows=rows, nbytes=nbytes, pairs=pairs, memory=GB, few=None)


@pytest.mark.parametrize("cores", [1, 2, 3, 8, 100])
def test_few_rows_are_one_task_and_more_are_shared_by_the_cores(cores: int) -> None:
    assert amount(0).tasks(cores, 1.0) == 1
    assert amount(MIN_TASK_ROWS // 2).tasks(cores, 1.0) == 1
    assert amount(MIN_TASK_ROWS * 4 * cores).tasks(cores, 1.0) == cores
    many = [
        amount(rows).tasks(cores, 1.0) for rows in range(0, MIN_TASK_ROWS * 2 * cores, MIN_TASK_ROWS // 3)
    ]
    assert many == sorted(many)
    assert many[-1] == cores


@pytest.mark.parametrize("cores", [1, 3, 8])
def test_there_are_more_tasks_than_cores_where_one_would_have_too_much(cores: int) -> None:
    most = int(GB * INPUT_MEMORY_SHARE)
    for times in (1.5, 7, 40):
        by_bytes = amount(10, nbytes=int(most * cores * times)).tasks(cores, 0.0)
        by_rows = amount(int(MAX_TASK_ROWS * cores * times)).tasks(cores, 0.0)
        assert by_bytes == by_rows
        assert by_bytes % cores == 0  # all cores have as many
        assert cores * times <= by_bytes < cores * times * 2
    assert amount(10**15).tasks(cores, 1.0) <= MAX_TASKS * 2


def test_rows_that_find_many_are_more_work() -> None:
    assert amount(10_000).tasks(4, 1.0) == 1
    assert amount(10_000).tasks(4, 1_000.0) == 4
    assert amount(10_000, pairs=10e6).tasks(4, 1.0) == 4  # known before they are found
    assert amount(10_000, pairs=10e12).tasks(4, 1.0) == 4  # a guess makes no thousands of tasks


class Told:
    """Per tick, how much its node had to do."""

    def __init__(self) -> None:
        self.amounts: list[CostEstimate] = []
        self.job: Any = None

    def began(self, start: Any) -> None: ...

    def judged(self, *_: Any) -> None: ...

    def ran(self, query: str, task: NodeTask) -> None:
        (node,) = self.job.driver.plan.queries[0].nodes
        self.amounts.append(estimate_cost(node, task.shape, task.work))


def test_cost_counts_new_and_released_rows_but_not_retained_ones() -> None:
    told = Told()
    job = told.job = LocalJob(plan_job(parse_job(JOB)), MemoryStore(), watcher=told)

    def tick(first: int, count: int, key: int | None = None) -> CostEstimate:
        rows = [({"k": n if key is None else key, "t": n}, 1) for n in range(first, first + count)]
        job.tick({"l": rows, "r": rows})
        return told.amounts[-1]

    loaded = tick(0, 900)
    assert (loaded.rows, loaded.pairs) == (1800, 0.0)
    assert tick(900, 5).rows == 10  # 1,800 are kept, and nothing of them goes
    moved = tick(1_950, 5)  # what is below 950 can go
    assert 1_400 < moved.rows < 1_900
    assert moved.nbytes > loaded.nbytes // 2
    assert tick(1_955, 5).rows < 40
    assert tick(1_960, 500, key=7).pairs >= 500 * 500


def test_runs_that_are_merged_count() -> None:
    told = Told()
    job = told.job = LocalJob(plan_job(parse_job(JOB)), MemoryStore(), watcher=told)
    for n in range(30):
        job.tick({"l": [({"k": n, "t": n}, 1)], "r": []})
    assert {1} < {each.rows for each in told.amounts}
