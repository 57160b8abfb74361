"""Rows that come and go over as many that stay: what of them is left on disk.

    python -m benchmarks.churn [--live N] [--churn N] [--tick N] [--tasks N]

Two tables joined by a key, in this process with files as on Spark. When ``--live`` rows are there,
``--churn`` changes follow: half of each tick's are deletes of rows of any age, and half rows that come
instead. Live bytes are those of the live rows in runs that hold nothing else. The bar: after every tick the
files of runs and marks that the newest manifest names have at most 1.5 times as many. (The files of the
manifest before it are there besides until they are deleted.) The right side's rows are few, and stay.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.names import DIFF
from watersmeet.parser.case_file import case_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.restore.job_state import restore
from watersmeet.runtime.tasks.ingest import IngestWriter
from watersmeet.state.store import LocalStore

QUERY = "q"
BAR = 1.5
RIGHT_ROWS = 100
COLUMNS = {"k": "BIGINT", "n": "BIGINT", "s": "STRING"}


def opened(folder: Path) -> TickDriver:
    case = {
        "case": "churn",
        "tables": {"l": {"columns": COLUMNS}, "r": {"columns": COLUMNS}},
        "options": {"output_mode": "changelog"},
        "query": "SELECT l.n, l.s, r.n AS rn FROM l LEFT JOIN r ON r.k = l.k",
    }
    plan = plan_job(case_job(case))
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("s", pa.string())])
    schemas = {
        f"{QUERY}/{side.name}": pa.schema([schema.field(name) for name in side.kept])
        for side in plan.queries[0].sides
    }
    return TickDriver(restore(plan, schemas, LocalStore(folder)))


def rows(numbers: npt.NDArray[np.int64], diffs: npt.NDArray[np.int64]) -> pa.Table:
    """The rows of these numbers: a key of each is that of few rows of the other side, if of any."""
    texts = pa.array([f"{number:012d}" for number in numbers.tolist()])
    return pa.table({"k": numbers % 1_000_003, "n": numbers, "s": texts, DIFF: diffs})


def ticks(live: int, churn: int, tick: int) -> Iterator[pa.Table]:
    rng, held = np.random.default_rng(3), np.arange(live)
    for low in range(0, live, tick):
        numbers = held[low : low + tick]
        yield rows(numbers, np.ones(len(numbers), dtype=np.int64))
    following = live
    for low in range(0, churn, tick):
        goes = min(tick, churn - low) // 2
        places = rng.choice(live, goes, replace=False)
        fresh = np.arange(following, following + goes)
        gone, held[places] = held[places], fresh
        following += goes
        yield rows(np.concatenate([gone, fresh]), np.repeat(np.array([-1, 1]), goes))


def ticked(driver: TickDriver, left: pa.Table, tasks: int) -> None:
    number = driver.tick
    begun, reports = driver.begin(number), []
    right = np.arange(RIGHT_ROWS) if number == 0 else np.zeros(0, dtype=np.int64)
    for name, table in (("l", left), ("r", rows(right, np.ones(len(right), dtype=np.int64)))):
        writer = IngestWriter(begun.start, f"{QUERY}/{name}", 0, driver.store)
        kept = driver.plan.queries[0].sides[name == "r"].kept
        for batch in table.select([*kept, DIFF]).combine_chunks().to_batches():
            writer.add(batch)
        reports.append(writer.finish())
    running = begun.advance(reports)
    task = running.node_task(QUERY, 0)
    running.settle(QUERY, 0, [task.collect(partition, tasks)[1] for partition in range(tasks)])
    concluded = running.conclude({})
    counts = concluded.result.queries[QUERY].counts
    assert not counts["l"].get("missing_deletes"), counts
    concluded.commit()


def stored_bytes(driver: TickDriver) -> tuple[int, int, int]:
    """(bytes of the files, those of live rows, live rows)."""
    assert driver.manifest is not None
    runs = list(driver.manifest.runs())
    files = sum(live.run.nbytes for live in runs)
    files += sum(s.nbytes for live in runs for segments in live.marks.values() for s in segments)
    rows_stored = sum(live.run.rows for live in runs)
    live_rows = sum(live.retained for live in runs)
    return files, sum(live.run.nbytes for live in runs) * live_rows // rows_stored, live_rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.churn", description=__doc__.splitlines()[0])
    parser.add_argument("--live", type=int, default=200_000)
    parser.add_argument("--churn", type=int, default=10_000_000)
    parser.add_argument("--tick", type=int, default=40_000, help="changes a tick")
    parser.add_argument("--tasks", type=int, default=2)
    asked = parser.parse_args(argv)
    began, spent = time.perf_counter(), time.process_time()
    worst, ratios = 0.0, []
    with tempfile.TemporaryDirectory(prefix="churn-") as folder:
        driver = opened(Path(folder))
        for number, table in enumerate(ticks(asked.live, asked.churn, asked.tick)):
            ticked(driver, table, asked.tasks)
            files, live_bytes, live_rows = stored_bytes(driver)
            ratios.append(files / live_bytes)
            worst = max(worst, ratios[-1])
            if number % 25 == 0:
                print(
                    f"tick {number}: {live_rows:,} live rows, {files:,} bytes, {ratios[-1]:.2f} x", flush=True
                )
    cpu = time.process_time() - spent
    print(
        f"{asked.churn:,} changes over {asked.live:,} live rows: at most {worst:.2f} x the live bytes, median"
        f" {float(np.median(ratios)):.2f} x, last {ratios[-1]:.2f} x; {time.perf_counter() - began:.0f} s,"
        f" {asked.churn / cpu:,.0f} changes per CPU second"
    )
    print(f"bar: at most {BAR} x, after every tick: {'met' if worst <= BAR else 'not met'}")
    return 0 if worst <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
