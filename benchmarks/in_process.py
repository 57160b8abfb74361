"""Ticks in this process, beside the same step as tasks on Spark do it, without Spark's own cost.

    python -m benchmarks.in_process [--rows 100000] [--ticks 12]

The join of `workloads`: a key and a band of two minutes, as many rows a side and tick, over a directory.
Three ways take the same Arrow batches, in turns, tick by tick:

    step    what tasks of Spark run and its driver decides, called one after the other: batches of evaluated
            columns → runs → the join's task → control reports → manifest. No JVM, no sink, no projection
    pushed  `LocalJob`: push, tick: the same with columns checked and evaluated, and the result's columns made
    kept    the same, what goes out is stored with the tick, too, as `watersmeet.local.job` does

Figures are of the ticks after the third: rows of both sides per second of the clock and of the CPU.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from benchmarks.workloads import BAND_MINUTES, EPOCH_US, MINUTE_US, SCHEMA, WARM_UP_TICKS
from watersmeet import LocalJob, local
from watersmeet.local.join_spec import JOINED
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.restore.job_state import restore
from watersmeet.runtime.tasks.ingest import IngestWriter
from watersmeet.state.store import LocalStore

SIDES = ("l", "r")
COLUMNS = {"k": "BIGINT", "t": "TIMESTAMP", "v": "BIGINT", "s": "STRING"}
LAG = "10 seconds"
Tick = Callable[[Sequence[pa.Table]], int]
"""Takes the rows of both sides; how many rows go out."""


def spec() -> local.JoinSpec:
    """The join."""
    return local.JoinSpec(
        left=COLUMNS,
        right=COLUMNS,
        left_times={"t": LAG},
        right_times={"t": LAG},
        names=SIDES,
        condition=local.AllOf(
            local.Equal(local.left("k"), local.right("k")),
            local.Between(local.right("t"), local.left("t"), local.left("t") + f"{BAND_MINUTES} minutes"),
        ),
    )


def rows_of(tick: int, count: int, rng: np.random.Generator) -> pa.Table:
    """Of one side in one minute."""
    letters = np.array([f"{number:06}" for number in range(1_000)])
    columns = {
        "k": rng.integers(0, count, count),
        "t": EPOCH_US + tick * MINUTE_US + rng.integers(-5_000_000, MINUTE_US, count),
        "v": np.arange(count) + tick * count,
        "s": letters[rng.integers(0, len(letters), count)],
    }
    return pa.table({name: pa.array(values) for name, values in columns.items()}).cast(SCHEMA)


def step(folder: Path) -> Tick:
    """The step alone."""
    store, plan = LocalStore(folder), spec().plan
    kept = {side.name: side.kept for side in plan.queries[0].sides}
    schemas = {
        f"{JOINED}/{name}": pa.schema([SCHEMA.field(column) for column in kept[name]]) for name in SIDES
    }
    driver = TickDriver(restore(plan, schemas, store))

    def tick(tables: Sequence[pa.Table]) -> int:
        begun = driver.begin(0, ordered=True)
        reports = []
        for name, table in zip(SIDES, tables, strict=True):
            writer = IngestWriter(begun.start, f"{JOINED}/{name}", 0, store)
            for batch in table.select(list(kept[name])).to_batches(max_chunksize=driver.settings.flush_rows):
                writer.add(batch)
            reports.append(writer.finish())
        running = begun.advance(reports)
        rows, report = running.node_task(JOINED, 0).collect(0, 1)
        count = int(sum(batch.num_rows for batch in rows))
        running.settle(JOINED, 0, [report], rows_out=count)
        running.conclude({}).commit({"clock_us": 0})
        return count

    return tick


def in_process(folder: Path, *, keep: bool) -> Tick:
    """`LocalJob`; ``keep``: with what goes out."""
    job = LocalJob(spec().plan, LocalStore(folder), given=True, keep_output=keep)

    def tick(tables: Sequence[pa.Table]) -> int:
        for name, table in zip(SIDES, tables, strict=True):
            job.push(name, table)
        return int(job.tick().table.num_rows)

    return tick


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="a side and tick")
    parser.add_argument("--ticks", type=int, default=12)
    arguments = parser.parse_args(argv)
    rng = np.random.default_rng(1)
    walls: dict[str, list[float]] = {}
    cpus: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as root:
        ways = {
            "step": step(Path(root, "step")),
            "pushed": in_process(Path(root, "pushed"), keep=False),
            "kept": in_process(Path(root, "kept"), keep=True),
        }
        for number in range(arguments.ticks):
            tables = [rows_of(number, arguments.rows, rng) for _ in SIDES]
            counts = set()
            names = list(ways)
            for name in names[number % 3 :] + names[: number % 3]:
                began, cpu = time.perf_counter(), time.process_time()
                counts.add(ways[name](tables))
                walls.setdefault(name, []).append(time.perf_counter() - began)
                cpus.setdefault(name, []).append(time.process_time() - cpu)
            if len(counts) != 1:
                raise AssertionError(f"tick {number}: the ways put out {sorted(counts)} rows")
    rows = 2 * arguments.rows
    base = {
        "wall": median(walls["step"][WARM_UP_TICKS:]),
        "cpu": median(cpus["step"][WARM_UP_TICKS:]),
    }
    print(f"{arguments.rows:,} rows a side and tick, medians of {arguments.ticks - WARM_UP_TICKS} ticks")
    print("way      tick s   rows/s   of the step's   CPU s   rows/CPU s   of the step's")
    for name in walls:
        wall, cpu = median(walls[name][WARM_UP_TICKS:]), median(cpus[name][WARM_UP_TICKS:])
        print(
            f"{name:7} {wall:7.3f} {rows / wall:8,.0f} {base['wall'] / wall:12.0%}"
            f" {cpu:11.3f} {rows / cpu:12,.0f} {base['cpu'] / cpu:12.0%}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
