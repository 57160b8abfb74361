"""How many bytes the tasks of a tick fetch from an object store: of runs in sections, and of whole ones.

    python -m benchmarks.fetched [--rows N] [--ticks N] [--tasks N]... [--kind inner|left] [--cache]

The stream of `benchmarks.workloads`, without Spark, in one process. As on a cluster, each task has a store of
its own, and is on another machine in each tick; ``--cache``: each machine has a cache. Both ways play the
same ticks over an S3 server in this process, in turn; printed are medians of ticks after the first ones:
bytes that a task fetched, at most and all together, what the tick asked of the store in all, and its seconds
and CPU, those of the server among them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import pyarrow as pa

from benchmarks.paired import QUERY, table_of
from benchmarks.workloads import KINDS, WARM_UP_TICKS, Workload, minute
from tests.support.s3 import KEYS, make_bucket, s3_server, store_at
from watersmeet.objects.cache import Cache
from watersmeet.objects.object_store import ObjectStore
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.restore.job_state import restore
from watersmeet.runtime.tasks.ingest import IngestWriter
from watersmeet.state.runs import writer as written

WAYS = {"whole": 1 << 40, "sections": written.SECTION_BYTES}


class Player:
    """One way. ``folder``: of the caches."""

    def __init__(self, endpoint: str, asked: argparse.Namespace, tasks: int, way: str, folder: Path) -> None:
        sides = KINDS[asked.kind].sides
        select = KINDS[asked.kind].select({side: side for side in sides})
        self._plan = plan_job(parse_job("".join(map(table_of, sides)) + select))
        self._workload = Workload("fetched", rows=asked.rows, ticks=1)
        self._schemas = {
            f"{QUERY}/{side.name}": pa.schema(
                [minute(self._workload, side.name, 0).schema.field(column) for column in side.kept]
            )
            for side in self._plan.queries[0].sides
            if side.sources
        }
        self._place = store_at(endpoint, make_bucket(endpoint), timeout_s=60, patience_s=60).place
        self._caches = [
            Cache(self._place.url, root=str(folder / f"{way}-{machine}")) if asked.cache else None
            for machine in range(tasks)
        ]
        self._driver = TickDriver(restore(self._plan, self._schemas, ObjectStore(self._place)))
        self._tasks, self._way, self._ticks = tasks, way, 0

    def tick(self) -> dict[str, float]:
        written.SECTION_BYTES, self._ticks = WAYS[self._way], self._ticks + 1
        given = {
            name: minute(self._workload, name.split("/")[1], self._ticks).select(schema.names)
            for name, schema in self._schemas.items()
        }
        began, cpu = time.perf_counter(), time.process_time()
        driver, reports = self._driver, []
        begun = driver.begin(self._ticks, tasks=self._tasks)
        for name, table in given.items():
            for machine in range(self._tasks):
                low, high = (table.num_rows * part // self._tasks for part in (machine, machine + 1))
                writer = IngestWriter(begun.start, name, 0, self._store(machine), machine)
                for batch in table.slice(low, high - low).to_batches():
                    writer.add(batch)
                reports.append(writer.finish())
        running = begun.advance(reports)
        for node in self._plan.queries[0].nodes:
            told, reports_of_node = running.node_task(QUERY, node.number), []
            for partition in range(self._tasks):
                task = replace(told, store=self._store((partition + self._ticks) % self._tasks))
                reports_of_node.append(task.collect(partition, self._tasks)[1])
            running.settle(QUERY, node.number, reports_of_node)
        concluded = running.conclude({})
        concluded.commit()
        result = concluded.result
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        driver.ledger.settle()
        of_node = result.traffic[f"{QUERY}/{self._plan.queries[0].root.number}"]
        every = [of_task for of_tasks in result.traffic.values() for of_task in of_tasks]
        return {
            "most": max(of_task.fetched for of_task in of_node),
            "tasks": sum(of_task.fetched for of_task in of_node),
            "fetched": sum(of_task.fetched for of_task in every),
            "cached": sum(of_task.cached for of_task in every),
            "written": sum(of_task.written for of_task in every),
            "requests": sum(of_task.requests for of_task in every),
            "seconds": took,
            "cpu": cpu,
        }

    def _store(self, machine: int) -> ObjectStore:
        return ObjectStore(self._place, self._caches[machine])


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fetched")
    parser.add_argument("--rows", type=int, default=100_000, help="of a side and tick")
    parser.add_argument("--ticks", type=int, default=8, help="after the first ones")
    parser.add_argument("--tasks", type=int, action="append", help="default: 2 and 4")
    parser.add_argument("--kind", default="left", choices=("inner", "left"))
    parser.add_argument("--cache", action="store_true", help="each machine has one")
    asked = parser.parse_args(argv)
    os.environ.update(KEYS)
    for tasks in asked.tasks or (2, 4):
        with s3_server() as endpoint, tempfile.TemporaryDirectory(prefix="fetched-") as folder:
            players = {way: Player(endpoint, asked, tasks, way, Path(folder)) for way in WAYS}
            ticks: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
            for turn in range(WARM_UP_TICKS + asked.ticks):
                for way in list(WAYS)[:: -1 if turn % 2 else 1]:
                    ticks[way].append(players[way].tick())
        for way, all_ticks in ticks.items():
            told = {name: median(tick[name] for tick in all_ticks[WARM_UP_TICKS:]) for name in all_ticks[0]}
            print(
                f"{tasks} tasks, {way}: a task fetched at most {told['most'] / 1e6:.2f} MB, all together "
                f"{told['tasks'] / 1e6:.2f} MB; the tick fetched {told['fetched'] / 1e6:.2f} MB, found "
                f"{told['cached'] / 1e6:.2f} MB in caches, wrote {told['written'] / 1e6:.2f} MB, "
                f"{told['requests']:.0f} requests; {told['seconds']:.2f} s, {told['cpu']:.2f} CPU s",
                flush=True,
            )


if __name__ == "__main__":
    main()
