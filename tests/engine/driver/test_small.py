"""What a delta join does not do: paths that come to nothing are not begun, and nodes with few rows are run by
the driver, to the same end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from watersmeet import LocalJob, MemoryStore, parse_job, plan_job
from watersmeet.engine.driver import driver as driver_module
from watersmeet.engine.messages.shapes import CONTROL
from watersmeet.engine.messages.work import read_work
from watersmeet.engine.nodes.task import NodeTask

JOB = """SET output_mode = changelog; SET plan = delta;
CREATE TABLE c (id BIGINT, name STRING, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
CREATE TABLE o (no BIGINT, cust BIGINT, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
CREATE TABLE l (no BIGINT, item BIGINT, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
"""
ROWS = "SELECT c.name, o.no, l.item FROM c, o, l WHERE c.id = o.cust AND l.no = o.no"
GROUPS = "SELECT c.name, count(*) AS lines FROM c, o, l WHERE c.id = o.cust AND l.no = o.no GROUP BY c.name"

COLUMNS = {"c": ("id", "name"), "o": ("no", "cust"), "l": ("no", "item")}
Bags = dict[str, Counter[tuple[Any, ...]]]


class Works:
    """A watcher: per tick what the tasks of each node were told."""

    def __init__(self) -> None:
        self.ticks: list[list[Any]] = []

    def began(self, start: Any) -> None:
        self.ticks.append([])

    def judged(self, *_: Any) -> None: ...

    def ran(self, query: str, task: NodeTask) -> None:
        self.ticks[-1].append(read_work(task.store, task.work))

    def of(self, tick: int) -> tuple[list[int], list[list[int]]]:
        """The paths that were closed, and per step how many rows came along each."""
        arranged, *steps = self.ticks[tick]
        return arranged.closed, [
            [sum(run.rows for run in side.new_runs) for side in step.sides] for step in steps
        ]


class HandedOver(LocalJob):
    """Runs what is small as the engine on Spark does; ``alone``: of how many nodes that was so."""

    alone = 0

    def _run(self, query: Any) -> Any:
        driver = self.driver
        node_task = driver.node_task

        def handed(name: str, number: int) -> Any:
            task = node_task(name, number)
            if number == query.root.number:
                return task
            ran = driver.run_small(name, number, task)
            self.alone += ran is not None
            return task if ran is None else Told(task, ran.texts)

        driver.node_task = handed  # type: ignore[method-assign]
        try:
            return super()._run(query)
        finally:
            driver.node_task = node_task  # type: ignore[method-assign]


class Told:
    """A task that was run: its control texts."""

    def __init__(self, task: NodeTask, texts: list[str]) -> None:
        self.schema, self.tick, self.texts = task.schema, task.tick, texts

    def run(self, partition: int, partitions: int) -> Iterator[pa.RecordBatch]:
        assert partitions == 1
        yield pa.record_batch({CONTROL: self.texts})


def changed(rng: random.Random, bags: Bags, most: int) -> dict[str, list[tuple[dict[str, Any], int]]]:
    """Random changes of a tick, and the bags after it."""
    given: dict[str, list[tuple[dict[str, Any], int]]] = {}
    for name, columns in COLUMNS.items():
        for _ in range(rng.randrange(most)):
            bag = bags[name]
            if bag and rng.random() < 0.4:
                row, diff = rng.choice(sorted(bag)), -1
            else:
                row, diff = (rng.randrange(4), rng.randrange(4)), 1
                if name == "c":
                    row = (row[0], f"n{row[1]}")
            bag[row] += diff
            bags[name] = +bag
            given.setdefault(name, []).append((dict(zip(columns, row, strict=True)) | {"d": diff}, 1))
    return given


def joined(bags: Bags) -> Counter[tuple[Any, ...]]:
    rows: Counter[tuple[Any, ...]] = Counter()
    for (of, name), customers in bags["c"].items():
        for (no, cust), orders in bags["o"].items():
            for (of_line, item), lines in bags["l"].items():
                if of == cust and no == of_line:
                    rows[name, no, item] += customers * orders * lines
    return rows


def rows(name: str, *rows: tuple[Any, ...]) -> dict[str, list[tuple[dict[str, Any], int]]]:
    return {name: [(dict(zip(COLUMNS[name], row, strict=True)) | {"d": 1}, 1) for row in rows]}


def test_a_first_load_takes_the_last_path_alone():
    works = Works()
    job = LocalJob(plan_job(parse_job(JOB + ROWS)), MemoryStore(), watcher=works)
    loaded = job.tick(rows("c", (1, "Ada")) | rows("o", (7, 1)) | rows("l", (7, 3), (8, 3)))
    assert loaded.rows["console"] == [{"name": "Ada", "no": 7, "item": 3, "_diff": 1, "_tick": 1}]
    assert works.of(0) == ([0, 1], [[0, 0, 2], [0, 0, 1]])
    job.tick(rows("o", (8, 1)))
    assert works.of(1) == ([0, 2], [[0, 1, 0], [0, 1, 0]])


def test_a_path_is_open_as_soon_as_the_others_can_have_partners():
    """c came first, then l: changes of c find nothing while o is empty; those of o see l as it was before."""
    works = Works()
    job = LocalJob(plan_job(parse_job(JOB + ROWS)), MemoryStore(), watcher=works)
    job.tick(rows("c", (1, "Ada")))
    job.tick(rows("l", (7, 3)))
    assert [works.of(tick)[0] for tick in (0, 1)] == [[0, 1, 2], [0, 1, 2]]
    out = job.tick(rows("c", (1, "Bea")) | rows("o", (7, 1)))
    assert works.of(2) == ([0, 2], [[0, 1, 0], [0, 1, 0]])
    assert sorted(row["name"] for row in out.rows["console"]) == ["Ada", "Bea"]


@pytest.mark.parametrize("most", [2_000_000, 12, 0])
@pytest.mark.parametrize("seed", range(4))
def test_what_the_driver_runs_comes_to_the_join(seed: int, most: int, monkeypatch: pytest.MonkeyPatch):
    """``most``: matches after which it gives up; all ticks, some, and none are handed over."""
    monkeypatch.setattr(driver_module, "MOST_MATCHES", most)
    rng, bags = random.Random(seed), {name: Counter[tuple[Any, ...]]() for name in COLUMNS}
    job = HandedOver(plan_job(parse_job(JOB + ROWS)), MemoryStore())
    job.driver.small_rows = 14
    sums: Counter[tuple[Any, ...]] = Counter()
    for _ in range(25):
        out = job.tick(changed(rng, bags, 9))
        for row in out.rows["console"]:
            sums[row["name"], row["no"], row["item"]] += row["_diff"]
        assert +sums == joined(bags), (seed, out.result.tick)
        assert min(sums.values(), default=0) >= 0
    assert 0 < job.alone < 50, job.alone


def test_groups_above_take_what_the_driver_ran():
    job = HandedOver(plan_job(parse_job(JOB + GROUPS)), MemoryStore())
    out = job.tick(rows("c", (1, "Ada")) | rows("o", (7, 1)) | rows("l", (7, 3), (7, 4)))
    assert [(row["name"], row["lines"]) for row in out.rows["console"]] == [("Ada", 2)]
    assert job.alone == 3


class Passing(MemoryStore):
    """A store that knows what was not to last."""

    def __init__(self) -> None:
        super().__init__()
        self.passing: set[str] = set()

    def write(self, name: str, data: pa.Buffer | bytes, *, lasting: bool = True) -> None:
        if not lasting:
            self.passing.add(name)
        super().write(name, data, lasting=lasting)


@pytest.mark.parametrize("plan", ["delta", "cascade"])
def test_state_holds_nothing_that_was_not_to_last(plan: str):
    """And what brings rows within a tick, from step to step, does not wait for the disk."""
    store, rng, bags = Passing(), random.Random(5), {name: Counter[tuple[Any, ...]]() for name in COLUMNS}
    job = LocalJob(plan_job(parse_job(JOB.replace("delta", plan) + GROUPS)), store, partitions=2)
    for _ in range(20):
        job.tick(changed(rng, bags, 9))
        manifest = job.driver.manifest
        assert manifest is not None
        assert not manifest.files() & store.passing
        assert all(
            live.run.name not in store.passing
            for node in manifest.queries["console"].nodes
            for kept in node.arrangements.values()
            for live in kept.runs
        )
    assert {name.split("/")[0] for name in store.passing} == {"runs", "work"}


@pytest.mark.parametrize(("few", "is_alone"), [(14, True), (1, False)])
def test_few_rows_that_another_query_made_go_out_by_the_driver(few: int, is_alone: bool):
    sinks = "".join(f"CREATE TABLE out{n} WITH ('connector' = 'memory'); " for n in range(2))
    inserts = "".join(f"INSERT INTO out{n} {ROWS}; " for n in range(2))
    job = LocalJob(plan_job(parse_job(JOB + sinks + inserts)), MemoryStore())
    job.driver.small_rows = few
    node_task, alone = job.driver.node_task, []

    def handed(name: str, number: int) -> NodeTask:
        task = node_task(name, number)
        if name == "out1":
            alone.append(job.driver.run_small(name, number, task))
        return task

    job.driver.node_task = handed  # type: ignore[method-assign]
    out = job.tick(rows("c", (1, "Ada")) | rows("o", (7, 1)) | rows("l", (7, 3), (7, 4)))
    assert len(out.rows["out1"]) == 2
    assert [ran is not None for ran in alone] == [is_alone]
    if is_alone:
        assert sum(batch.num_rows for batch in alone[0].rows) == 2
