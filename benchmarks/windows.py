"""What windows cost: rows per second through ingest and the aggregation, and what is held until they close.

    python -m benchmarks.windows [--rows N] [--ticks N] [--keys N] [--hop N] [--partitions N]

In this process, with files as on Spark. Every tick brings as many rows as a second of the clock, of as many
keys; the windows are as long as all ticks together but one tick in the middle, so that none closes before the
last tick, but for HOP windows, which begin ``--hop`` times as often. Rows are made beforehand, and not timed.
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

from watersmeet.engine.step.driver import TickDriver
from watersmeet.engine.step.ingest import IngestWriter
from watersmeet.front.sql import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.state.store import LocalStore

SECOND_US = 1_000_000
QUERY, SIDE = "console", "console/s"
FUNCTIONS = {
    "TUMBLE": "TUMBLE(TABLE s, DESCRIPTOR(t), INTERVAL '{size}' SECONDS)",
    "HOP": "HOP(TABLE s, DESCRIPTOR(t), INTERVAL '{slide}' SECONDS, INTERVAL '{size}' SECONDS)",
}
CALLS = {"sums": "count(*), sum(v)", "many": "count(*), sum(v), avg(v), max(v), max_by(v, t)"}


def job_text(function: str, calls: str) -> str:
    return f"""
        CREATE TABLE s (t TIMESTAMP, k BIGINT, v BIGINT, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
        SELECT window_start, k, {calls} FROM TABLE({function}) GROUP BY window_start, window_end, k"""


def rows_of(tick: int, rows: int, keys: int) -> pa.RecordBatch:
    """The rows of one second, in disorder."""
    rng = np.random.default_rng(tick)
    times = tick * SECOND_US + rng.integers(0, SECOND_US, rows)
    return pa.record_batch(
        {
            "t": pa.array(times, pa.timestamp("us", tz="UTC")),
            "k": rng.integers(0, keys, rows),
            "v": rng.integers(0, 1000, rows),
        }
    )


def run(asked: argparse.Namespace, function: str, calls: str, folder: Path) -> dict[str, float]:
    size = asked.ticks
    text = FUNCTIONS[function].format(size=size, slide=max(size // asked.hop, 1))
    plan = plan_job(parse_job(job_text(text, CALLS[calls])))
    schema = rows_of(0, 1, 1).schema
    kept = plan.queries[0].sides[0].kept
    store = LocalStore(folder)
    driver = TickDriver.open(plan, {SIDE: pa.schema([schema.field(name) for name in kept])}, store)
    seconds, held, out = [], 0, 0
    for tick in range(2 * size + 1):
        batch = rows_of(tick, asked.rows, asked.keys).select(kept)
        began = time.perf_counter()
        start = driver.begin(tick)
        writer = IngestWriter(start, SIDE, 0, store)
        writer.add(batch)
        driver.advance(start, [writer.finish()])
        task, reports = driver.node_task(QUERY, 0), []
        for partition in range(asked.partitions):
            *_, last = task.run(partition, asked.partitions)
            reports.append(last.column("_control")[0].as_py())
        driver.settle(QUERY, 0, reports)
        result = driver.conclude().queries[QUERY]
        driver.commit()
        seconds.append(time.perf_counter() - began)
        held, out = max(held, result.state_bytes), out + result.rows_out
    return {
        "rows/s": asked.rows * len(seconds) / sum(seconds),
        "median ms": median(seconds) * 1000,
        "greatest ms": max(seconds) * 1000,
        "most held KB": held / 1000,
        "rows out": out,
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.windows", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="per tick")
    parser.add_argument("--ticks", type=int, default=60, help="in a window; twice as many are run")
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--hop", type=int, default=6, help="HOP windows that hold a row")
    parser.add_argument("--partitions", type=int, default=2)
    asked = parser.parse_args(argv)
    for function in FUNCTIONS:
        for calls in CALLS:
            with tempfile.TemporaryDirectory(prefix="windows-") as folder:
                found = run(asked, function, calls, Path(folder))
            print(
                f"{function} {calls}: " + ", ".join(f"{name} {value:,.0f}" for name, value in found.items())
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
