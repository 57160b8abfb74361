"""Changes beside rows that only come: the same join in output_mode changelog and in append mode.

    python -m benchmarks.changes [--join key|band|hot] [--rows N] [--ticks N] [--tasks 1 2 4] [--share 0.1]

In this process with files as on Spark, one task after the other; medians of warm ticks. Of a tick's rows a
side the share are deletes of rows of the tick before, half of them with a row that comes instead (updates).
``key``: a key and two minutes (the 100 K join of `benchmarks.side_by_side`); ``band``: time alone, about 20
matches a row; ``hot``: one key for all rows, the right side small and BROADCAST. "CPU" is all of a tick, with
reading in and the driver; "longest" has of the tasks the slowest one alone: the tick with a core for each.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from benchmarks.workloads import EPOCH_US, MINUTE_US
from watersmeet.names import DIFF
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.restore.job_state import restore
from watersmeet.runtime.tasks.ingest import IngestWriter
from watersmeet.state.store import LocalStore

QUERY = "console"
US = pa.timestamp("us", tz="UTC")
SMALL = 40
"""Rows of the small side per tick, of ``hot``."""
MATCHES = 20
WARM_UP = 4


def query(join: str, rows: int, mode: str, kind: str) -> str:
    table = "(k BIGINT, t TIMESTAMP, v BIGINT, s STRING, WATERMARK FOR t AS t - INTERVAL '10' SECONDS)"
    sources = "".join(f"CREATE TABLE {name} {table} WITH ('connector' = 'memory');" for name in "lr")
    width = MATCHES * MINUTE_US // rows
    band = {
        "key": "l.k = r.k AND r.t BETWEEN l.t - INTERVAL '2' MINUTES AND l.t + INTERVAL '2' MINUTES",
        "band": f"r.t BETWEEN l.t AND l.t + INTERVAL '{width}' MICROSECONDS",
        "hot": "l.k = r.k AND l.t BETWEEN r.t AND r.t + INTERVAL '1' MINUTE",
    }[join]
    hint = "/*+ BROADCAST(r) */ " if join == "hot" else ""
    return (
        f"SET output_mode = {mode};{sources}"
        f"SELECT {hint}l.k, l.t, l.v, l.s, r.t AS rt, r.v AS rv FROM l {kind} JOIN r ON {band}"
    )


def minute(join: str, rows: int, side: str, tick: int, share: float) -> pa.Table:
    """The tick's rows of a side, with their diffs. The first of a tick's rows are those that go in the next
    one, where there is one."""
    count = SMALL if join == "hot" and side == "r" else rows
    goes = int(count * share) if tick else 0
    came = _inserts(join, count - goes, side, tick)
    if not goes:
        return came.append_column(DIFF, pa.array(np.ones(count, dtype=np.int64)))
    gone = _inserts(join, count - (int(count * share) if tick > 1 else 0), side, tick - 1).slice(0, goes)
    updated = gone.slice(0, goes // 2)
    updated = updated.set_column(2, "v", pa.array(updated.column("v").to_numpy() + 1_000_000_000))
    rest = came.slice(0, count - goes - updated.num_rows)
    diffs = np.repeat([1, -1], [rest.num_rows + updated.num_rows, goes])
    return pa.concat_tables([rest, updated, gone]).append_column(DIFF, pa.array(diffs)).combine_chunks()


def _inserts(join: str, count: int, side: str, tick: int) -> pa.Table:
    rng = np.random.default_rng((tick, side == "l"))
    keys = np.zeros(count, np.int64) if join == "hot" else rng.integers(0, max(count, 1), count)
    times = EPOCH_US + tick * MINUTE_US + rng.integers(0, MINUTE_US, count)
    values = np.arange(count) + tick * count
    texts = pa.array([f"{value:016d}" for value in range(count)])
    return pa.table({"k": keys, "t": pa.array(times, US), "v": values, "s": texts})


def measured(
    join: str, rows: int, ticks: int, tasks: int, *, share: float | None, kind: str, folder: Path
) -> tuple[float, float, list[int]]:
    """(CPU seconds of a tick, the same with the longest task alone, rows out per tick). ``share``: of
    deletes; None: append mode."""
    mode = "append" if share is None else "changelog"
    plan = plan_job(parse_job(query(join, rows, mode, kind)))
    (planned,) = plan.queries
    tables = {tick: {s: minute(join, rows, s, tick, share or 0.0) for s in "lr"} for tick in range(ticks)}
    schema = tables[0]["l"].schema
    schemas = {
        f"{QUERY}/{side.name}": pa.schema([schema.field(name) for name in side.kept])
        for side in planned.sides
    }
    store = LocalStore(folder)
    driver = TickDriver(restore(plan, schemas, store))
    spent, longest, out = [], [], []
    for tick in range(ticks):
        began = time.process_time()
        begun, reports = driver.begin(EPOCH_US + tick * MINUTE_US), []
        for side in planned.sides:
            names = [*side.kept, *([] if share is None else [DIFF])]
            writer = IngestWriter(begun.start, f"{QUERY}/{side.name}", 0, store)
            for batch in tables[tick][side.name].select(names).to_batches():
                writer.add(batch)
            reports.append(writer.finish())
        running = begun.advance(reports)
        task, controls, seconds, count = running.node_task(QUERY, 0), [], [], 0
        for partition in range(tasks):
            of_task = time.process_time()
            leaving, report = task.collect(partition, tasks)
            count += 1 + sum(batch.num_rows for batch in leaving)
            controls.append(report)
            seconds.append(time.process_time() - of_task)
        running.settle(QUERY, 0, controls)
        running.conclude({}).commit()
        spent.append(time.process_time() - began)
        longest.append(spent[-1] - sum(seconds) + max(seconds))
        out.append(count - tasks)
    return median(spent[WARM_UP:]), median(longest[WARM_UP:]), out


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.changes", description=__doc__.splitlines()[0])
    parser.add_argument("--join", choices=("key", "band", "hot"), default="key")
    parser.add_argument("--kind", choices=("INNER", "LEFT", "RIGHT", "FULL"), default="INNER")
    parser.add_argument("--rows", type=int, default=100_000, help="per side and tick")
    parser.add_argument("--ticks", type=int, default=10, help="warm ones")
    parser.add_argument("--tasks", type=int, nargs="+", default=[2])
    parser.add_argument("--share", type=float, default=0.1, help="of deletes among the changes")
    asked = parser.parse_args(argv)
    for tasks in asked.tasks:
        speeds: dict[str, float] = {}
        for name, share in (("append", None), ("changes that only come", 0.0), ("changes", asked.share)):
            with tempfile.TemporaryDirectory(prefix="changes-") as folder:
                spent, longest, out = measured(
                    asked.join,
                    asked.rows,
                    WARM_UP + asked.ticks,
                    tasks,
                    share=share,
                    kind=asked.kind,
                    folder=Path(folder),
                )
            brought = asked.rows + (SMALL if asked.join == "hot" else asked.rows)
            speeds[name] = brought / spent
            print(
                f"{asked.join}, {asked.kind}, {tasks} tasks, {name}: {spent * 1e3:.0f} ms of CPU a tick,"
                f" longest {longest * 1e3:.0f} ms; {brought / spent:,.0f} rows per CPU second,"
                f" {brought / longest:,.0f} with a core for each task; {median(out[WARM_UP:]):,.0f} rows out;"
                f" {speeds[name] / speeds['append']:.2f} x append",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
