"""What windows cost: rows per second through ingest and the aggregation, and what is held until they close.

    python -m benchmarks.windows [--rows N] [--ticks N] [--keys N] [--hop N] [--partitions N] [--spark]

Every tick brings the rows of one second of event time. Windows are as long as ``--ticks`` of them, and HOP
windows begin ``--hop`` times as often; twice as many ticks are run, and one more. In this process, with files
as on Spark; or on Spark, from Parquet to Parquet. Making the rows is not timed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.workloads import dated
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.restore.job_state import restore
from watersmeet.runtime.coordinator.results import TickResult
from watersmeet.runtime.tasks.ingest import IngestWriter
from watersmeet.state.store import LocalStore

SECOND_US = 1_000_000
QUERY, SIDE = "console", "console/s"
FUNCTIONS = {
    "TUMBLE": "TUMBLE(TABLE s, DESCRIPTOR(t), INTERVAL '{size}' SECONDS)",
    "HOP": "HOP(TABLE s, DESCRIPTOR(t), INTERVAL '{slide}' SECONDS, INTERVAL '{size}' SECONDS)",
}
CALLS = {
    "sums": "count(*) AS c0, sum(v) AS c1",
    "many": "count(*) AS c0, sum(v) AS c1, avg(v) AS c2, max(v) AS c3, max_by(v, t) AS c4",
}


def select(asked: argparse.Namespace, function: str, calls: str) -> str:
    windows = FUNCTIONS[function].format(size=asked.ticks, slide=max(asked.ticks // asked.hop, 1))
    return (
        f"SELECT window_start, k, {CALLS[calls]} FROM TABLE({windows}) GROUP BY window_start, window_end, k"
    )


def table(connector: str) -> str:
    return f"CREATE TABLE s (t TIMESTAMP, k BIGINT, v BIGINT, WATERMARK FOR t AS t) WITH ({connector});"


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
    plan = plan_job(parse_job(table("'connector' = 'memory'") + select(asked, function, calls)))
    schema = rows_of(0, 1, 1).schema
    kept = plan.queries[0].sides[0].kept
    store = LocalStore(folder)
    driver = TickDriver(restore(plan, {SIDE: pa.schema([schema.field(name) for name in kept])}, store))
    seconds, held, out = [], 0, 0
    for tick in range(2 * asked.ticks + 1):
        batch = rows_of(tick, asked.rows, asked.keys).select(kept)
        began = time.perf_counter()
        begun = driver.begin(tick)
        writer = IngestWriter(begun.start, SIDE, 0, store)
        writer.add(batch)
        running = begun.advance([writer.finish()])
        task, partitions = running.node_task(QUERY, 0), asked.partitions
        running.settle(QUERY, 0, [task.collect(number, partitions)[1] for number in range(partitions)])
        concluded = running.conclude({})
        concluded.commit()
        result = concluded.result.queries[QUERY]
        seconds.append(time.perf_counter() - began)
        held, out = max(held, result.state_bytes), out + result.rows_out
    return figures_of(asked, seconds, held, out)


def on_spark(asked: argparse.Namespace, function: str, calls: str, folder: Path) -> dict[str, float]:
    """The first five ticks, which compile code and start workers, are not counted."""
    from watersmeet.runtime.spark.job import session
    from watersmeet.runtime.spark.job.run import run_job
    from watersmeet.runtime.spark.job.settings import RunSettings

    (folder / "s").mkdir()
    for tick in range(2 * asked.ticks + 1):
        rows = pa.Table.from_batches([rows_of(tick, asked.rows, asked.keys)])
        path = folder / "s" / f"{tick:04d}.parquet"
        pq.write_table(rows, path)
        dated(path, tick)
    of_file = (
        f"'connector' = 'file', 'path' = '{folder / 's'}', 'format' = 'parquet', 'maxFilesPerTrigger' = '1'"
    )
    text = (
        f"{table(of_file)} CREATE MAPPING o TYPE File OPTIONS "
        f"('path' = '{folder / 'o'}', 'format' = 'parquet');"
        f"INSERT INTO o {select(asked, function, calls)}"
    )
    session.start(session.build_session_settings(master=f"local[{asked.partitions}]"))
    job = parse_job(text)
    seconds, held, out = [], [0], [0]

    def on_tick(result: TickResult, took: float, parts: Mapping[str, float]) -> None:
        (query,) = result.queries.values()
        seconds.append(took)
        held.append(query.state_bytes)
        out.append(query.rows_out)

    run_job(
        job,
        plan_job(job),
        RunSettings(
            str(folder / "checkpoint"), partitions=asked.partitions, until_caught_up=True, on_tick=on_tick
        ),
    )
    return figures_of(asked, seconds[5:], max(held), sum(out))


def figures_of(asked: argparse.Namespace, seconds: Sequence[float], held: int, out: int) -> dict[str, float]:
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
    parser.add_argument("--spark", action="store_true")
    asked = parser.parse_args(argv)
    for function in FUNCTIONS:
        for calls in CALLS:
            with tempfile.TemporaryDirectory(prefix="windows-") as folder:
                figures = (on_spark if asked.spark else run)(asked, function, calls, Path(folder))
            shown = ", ".join(f"{name} {value:,.0f}" for name, value in figures.items())
            print(f"{function} {calls}: {shown}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
