"""What a tick's retention work costs when much is retained and nothing is to be released.

    python -m benchmarks.retention [--rows N] [--kind KIND]… [--partitions N] [--repeats N]
    python -m benchmarks.retention --grown [--rows N]… [--kind KIND] [--partitions N] [--repeats N]

Fills a state through the engine's own tick, in this process and with files as on Spark; then measures, per
hash range, what a join task does about retention: find the rows that the tick's limits release, and the least
times of those that stay. With it: opening the runs, and the driver's choice of merges.

Limits: ``below`` all rows; ``within`` the rows, a third released in earlier ticks, and standing still;
``moving``, which release the rows of one more minute, for comparison.

``--grown``: whole ticks of 100,000 rows a side instead, with ``--rows`` rows retained and with a million in
turn: medians, and their ratio. Ticks that merge runs are among them; the larger the runs, the fewer.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import pyarrow as pa

from benchmarks.child import Arguments
from benchmarks.ours import job_text
from benchmarks.side_by_side import BENCH
from benchmarks.workloads import EPOCH_US, KINDS, MINUTE_US, SCHEMA, Workload, minute
from watersmeet.event_time import Side
from watersmeet.kernel.slots import borders
from watersmeet.parser.statements import parse_job
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.merge_policy import choose_merges
from watersmeet.runtime.coordinator.restore.job_state import restore
from watersmeet.runtime.messages.reports import NodeReport, SideReport
from watersmeet.runtime.messages.shapes import JoinShape
from watersmeet.runtime.messages.work import NodeWork, SideWork
from watersmeet.runtime.operators.join import _release, _report_min_times
from watersmeet.runtime.tasks.ingest import IngestWriter
from watersmeet.runtime.tasks.side import HashRange, SideSlice, TaskPartition
from watersmeet.state.manifest import LiveRun
from watersmeet.state.store import LocalStore

ROWS = 10_000_000
ROWS_PER_TICK = 100_000
LAG_S = 30 * 86_400
"""So long that the fill releases nothing."""
BAR_MS = 20.0
BASE_ROWS, GROWN_ROWS = 1_000_000, 100_000_000
GROWN_BAR = 1.2
"""A tick with many rows retained, by one with `BASE_ROWS`."""


@dataclass
class Clock:
    """Milliseconds of wall time and of CPU time per part."""

    wall: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.wall[part] = self.wall.get(part, 0.0) + (time.perf_counter() - wall) * 1e3
        self.cpu[part] = self.cpu.get(part, 0.0) + (time.process_time() - cpu) * 1e3

    def retention(self) -> float:
        return self.wall["release"] + self.wall["least"]


Took = tuple[float, float]
"""Seconds of wall time and of CPU time."""


@dataclass
class Growing:
    """A driver of a state that grows tick by tick."""

    driver: TickDriver
    query: QueryPlan
    workload: Workload
    partitions: int

    @classmethod
    def empty(cls, kind: str, partitions: int, root: Path) -> Growing:
        workload = Workload("retention", rows=ROWS_PER_TICK, ticks=1, lag_s=LAG_S)
        plan = plan_job(parse_job(job_text(Arguments(workload, root / "in", root, kind, "default"))))
        (query,) = plan.queries
        schemas = {
            f"{query.name}/{side.name}": pa.schema([SCHEMA.field(name) for name in side.kept])
            for side in query.sides
        }
        driver = TickDriver(restore(plan, schemas, LocalStore(root / "state")))
        return cls(driver, query, workload, partitions)

    @property
    def retained(self) -> int:
        return 0 if self.driver.manifest is None else retained(self.driver)

    def to(self, rows: int) -> None:
        """Until so many rows are retained, at least."""
        while self.retained < rows:
            self.tick()

    def tick(self) -> Took:
        """One more; its rows are made before."""
        driver, query, number = self.driver, self.query, self.driver.tick
        tables = {
            side.name: minute(self.workload, side.name, number).combine_chunks() for side in query.sides
        }
        wall, cpu = time.perf_counter(), time.process_time()
        begun = driver.begin(EPOCH_US + number * MINUTE_US)
        reports = []
        for side in query.sides:
            table = tables[side.name]
            for part in range(self.partitions):  # as many ingest tasks
                low, high = (table.num_rows * p // self.partitions for p in (part, part + 1))
                writer = IngestWriter(begun.start, f"{query.name}/{side.name}", 0, driver.store)
                for batch in table.select(list(side.kept)).slice(low, high - low).to_batches():
                    writer.add(batch)
                reports.append(writer.finish())
        running = begun.advance(reports)
        for node in query.nodes:
            task = running.node_task(query.name, node.number)
            partitions = range(self.partitions)
            told = [task.collect(partition, self.partitions)[1] for partition in partitions]
            running.settle(query.name, node.number, told)
        running.conclude({}).commit()
        return time.perf_counter() - wall, time.process_time() - cpu


def filled(kind: str, rows: int, partitions: int, root: Path) -> TickDriver:
    """A driver whose state retains at least ``rows`` rows."""
    growing = Growing.empty(kind, partitions, root)
    growing.to(rows)
    return growing.driver


def grown(kind: str, rows: Sequence[int], partitions: int, ticks: int) -> float:
    """Whole ticks with ever more rows retained, in turn with those of a state that begins with `BASE_ROWS`.
    The greatest ratio of their CPU seconds, by medians."""
    worst, work = 0.0, BENCH / "work"
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work) as root:
        growing = Growing.empty(kind, partitions, Path(root) / "grown")
        for aim in sorted(rows):
            growing.to(aim)
            base = Growing.empty(kind, partitions, Path(root) / f"{aim}")
            base.to(BASE_ROWS)
            retained, of_both = growing.retained, ((growing, list[Took]()), (base, list[Took]()))
            for turn in range(ticks):
                for state, took in of_both[:: -1 if turn % 2 else 1]:
                    took.append(state.tick())
            (wall, cpu), (of_base, cpu_of_base) = (
                [median(seconds) for seconds in zip(*took, strict=True)] for _, took in of_both
            )
            worst = max(worst, cpu / cpu_of_base)
            print(
                f"{kind}: {retained:,} rows retained, tick {wall * 1e3:.0f} ms, {cpu * 1e3:.0f} CPU ms; of"
                f" {BASE_ROWS:,} {of_base * 1e3:.0f} ms, {cpu_of_base * 1e3:.0f} CPU ms:"
                f" {wall / of_base:.2f}x, CPU {cpu / cpu_of_base:.2f}x",
                flush=True,
            )
    return worst


def runs_of(driver: TickDriver, shape: JoinShape, side: Side) -> list[LiveRun]:
    assert driver.manifest is not None
    join = driver.manifest.queries[shape.query].nodes[shape.number]
    return join.arrangements[shape.side(side).name].runs


def retained(driver: TickDriver) -> int:
    assert driver.manifest is not None
    return sum(
        a.retained
        for query in driver.manifest.queries.values()
        for node in query.nodes
        for a in node.arrangements.values()
    )


def limits_of(driver: TickDriver, case: str) -> tuple[int, int]:
    """The limits of all releasing columns before the tick and after it."""
    within = EPOCH_US + driver.tick // 3 * MINUTE_US
    return {
        "below": (EPOCH_US - 2 * MINUTE_US, EPOCH_US - MINUTE_US),
        "within": (within, within),
        "moving": (within, within + MINUTE_US),
    }[case]


def measured(driver: TickDriver, case: str, partition: int, partitions: int) -> Clock:
    """The retention work of all of a query's joins in one hash range, and the driver's choice of merges."""
    clock = Clock()
    (shapes,) = driver.shapes.values()
    hashes = HashRange(*borders(partitions)[partition : partition + 2])
    old, new = limits_of(driver, case)
    for shape in shapes:
        assert isinstance(shape, JoinShape)
        for side in Side:
            task, runs = shape.side(side), runs_of(driver, shape, side)
            work = SideWork(
                runs=runs,
                new_runs=[],
                pads=[],
                old_limits=dict.fromkeys(task.layout.releasing, old),
                new_limits=dict.fromkeys(task.layout.releasing, new),
            )
            told = NodeReport(partition=partition, sides=[SideReport() for _ in Side])
            of_node = NodeWork(tick=driver.tick, sides=[work for _ in Side])
            share = TaskPartition(driver.store, driver.tick, of_node, told, partition, partitions)
            report = told.side(side)
            with clock.of("choose"):
                choose_merges(runs)
            with clock.of("open"):
                own = SideSlice(task, work, driver.store, hashes, hashes)
            with clock.of("release"):
                for _ in _release(shape, side, own, share):
                    pass
            with clock.of("least"):
                _report_min_times(own, report, partition, partitions)
            assert case == "moving" or not report.released
    return clock


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, action="append", help=f"default: {ROWS:,}; grown, {GROWN_ROWS:,}")
    parser.add_argument("--grown", action="store_true", help="whole ticks, with ever more rows")
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args(argv)
    if arguments.grown:
        (kind,) = arguments.kind or ["inner"]
        ratio = grown(kind, arguments.rows or [GROWN_ROWS], arguments.partitions, arguments.repeats)
        print(f"at most {ratio:.2f}x; bar: {GROWN_BAR}x: {'met' if ratio <= GROWN_BAR else 'NOT MET'}")
        print(json.dumps(ratio))
        return 0
    met = True
    (rows,) = arguments.rows or [ROWS]
    for kind in arguments.kind or ["left", "inner3", "left3"]:
        with tempfile.TemporaryDirectory() as root:
            driver = filled(kind, rows, arguments.partitions, Path(root))
            _print_state(driver, kind)
            for case in ("below", "within", "moving"):
                met &= _print_case(driver, case, arguments.partitions, arguments.repeats)
    return 0 if met else 1


def _print_state(driver: TickDriver, kind: str) -> None:
    print(f"{kind}: {retained(driver):,} rows retained after {driver.tick} ticks")
    (shapes,) = driver.shapes.values()
    for shape in shapes:
        assert isinstance(shape, JoinShape)
        for side in Side:
            task, runs = shape.side(side), runs_of(driver, shape, side)
            by = ", ".join(task.layout.releasing) or "nothing"
            rows = sum(live.run.rows for live in runs)
            print(f"  join {shape.number + 1}, {task.name}: {rows:,} rows in {len(runs)} runs, by {by}")


def _print_case(driver: TickDriver, case: str, partitions: int, repeats: int) -> bool:
    """Medians over the repeats of the hash range that takes longest; whether the bar is met."""
    slowest: list[Clock] = []
    for partition in range(partitions):
        clocks = [measured(driver, case, partition, partitions) for _ in range(repeats)]
        if not slowest or median(map(Clock.retention, clocks)) > median(map(Clock.retention, slowest)):
            slowest = clocks
    parts = []
    for part in slowest[0].wall:
        wall, cpu = median(c.wall[part] for c in slowest), median(c.cpu[part] for c in slowest)
        parts.append(f"{part} {wall:.2f} ms ({cpu:.2f} CPU)")
    value = median(map(Clock.retention, slowest))
    met = value < BAR_MS or case == "moving"
    verdict = "" if case == "moving" else f" {'met' if met else 'NOT MET'} (< {BAR_MS:g} ms)"
    print(f"  limits {case}: release and least {value:.2f} ms{verdict}; {'; '.join(parts)}", flush=True)
    return met


if __name__ == "__main__":
    sys.exit(main())
