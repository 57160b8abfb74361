"""What small ticks cost in a node's tasks when much is retained: of queries that mark what they retain.

    python -m benchmarks.existence [--kind semi|anti|sessions|changelog] [--rows N] [--ticks N] [--none]

Fills a state through the engine's own tick, in this process and with files as on Spark; then measures the CPU
time of both tasks over ticks of 1,000 rows a side. By SEMI rows of the left side leave with their first
match, by ANTI they are marked. Of a changelog (LEFT JOIN) the first 100 rows of each side's last tick are
deleted besides. Sessions are of the left side alone, and none closes. ``--none``: no row has a match.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from benchmarks.child import Arguments
from benchmarks.ours import job_text
from benchmarks.workloads import EPOCH_US, MINUTE_US, SCHEMA, Workload, condition, minute
from watersmeet.names import DIFF
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.restore.job_state import restore
from watersmeet.runtime.tasks.ingest import IngestWriter
from watersmeet.state.store import LocalStore

TASKS = 2
FILL_ROWS, TICK_ROWS = 100_000, 1_000
LAG_S = 30 * 86_400
"""So long that nothing is released."""
DELETED = 100
QUERIES = {
    "semi": "SELECT l.k AS k, l.t AS t, l.v AS v FROM l LEFT SEMI JOIN r ON {}",
    "anti": "SELECT l.k AS k, l.t AS t, l.v AS v FROM l LEFT ANTI JOIN r ON {}",
    "changelog": "SELECT l.k AS k, l.t AS t, l.v AS v, r.v AS rv FROM l LEFT JOIN r ON {}",
    "sessions": (
        "SELECT window_end, k, sum(v) AS v FROM TABLE("
        "SESSION(TABLE l, DESCRIPTOR(t), INTERVAL '30' SECONDS)) GROUP BY window_start, window_end, k"
    ),
}


def opened(root: Path, kind: str, *, none: bool) -> TickDriver:
    """A driver of the query, with nothing in its state."""
    text = job_text(
        Arguments(Workload("", rows=1, ticks=1, lag_s=LAG_S), root / "in", root, "inner", "default")
    )
    sources = text[: text.index("INSERT INTO")]
    query = QUERIES[kind].format(condition("r") + (" AND r.v < 0" if none else ""))
    settings = {"output_mode": "changelog"} if kind == "changelog" else {}
    plan = plan_job(parse_job(f"{sources}INSERT INTO joined {query};", overrides=settings))
    (planned,) = plan.queries
    schemas = {
        f"{planned.name}/{side.name}": pa.schema([SCHEMA.field(name) for name in side.kept])
        for side in planned.sides
    }
    return TickDriver(restore(plan, schemas, LocalStore(root / "state")))


def ticked(driver: TickDriver, rows: int, *, first: bool = False) -> float:
    """Does a tick of so many rows a side; CPU milliseconds of its tasks. ``first``: of so few."""
    (query,), number, reports = driver.plan.queries, driver.tick, []
    begun = driver.begin(EPOCH_US + number * MINUTE_US)
    for side in query.sides:
        table = minute(Workload("", rows=rows, ticks=1), side.name, number).select(list(side.kept))
        writer = IngestWriter(begun.start, f"{query.name}/{side.name}", 0, driver.store)
        for batch in table.to_batches():
            writer.add(batch)
        if driver.shapes[query.name][-1].changelog and number and rows == TICK_ROWS:
            before = minute(Workload("", rows=FILL_ROWS if first else rows, ticks=1), side.name, number - 1)
            gone = before.select(list(side.kept)).slice(0, DELETED)
            gone = gone.append_column(DIFF, pa.array(np.full(DELETED, -1)))
            for batch in gone.combine_chunks().to_batches():
                writer.add(batch)
        reports.append(writer.finish())
    running = begun.advance(reports)
    spent = 0.0
    for node in query.nodes:
        task = running.node_task(query.name, node.number)
        before = time.process_time()
        told = [task.collect(partition, TASKS)[1] for partition in range(TASKS)]
        spent += time.process_time() - before
        running.settle(query.name, node.number, told)
    concluded = running.conclude({})
    counts = concluded.result.queries[query.name].counts
    assert not any(each.get("missing_deletes") for each in counts.values())
    concluded.commit()
    return spent * 1e3


def retained(driver: TickDriver) -> int:
    assert driver.manifest is not None
    nodes = [node for query in driver.manifest.queries.values() for node in query.nodes]
    return sum(a.retained for node in nodes for a in node.arrangements.values())


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kind", choices=sorted(QUERIES), default="semi")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--ticks", type=int, default=15)
    parser.add_argument("--none", action="store_true")
    asked = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as root:
        driver = opened(Path(root), asked.kind, none=asked.none)
        while driver.manifest is None or retained(driver) < asked.rows:
            ticked(driver, FILL_ROWS)
        held = retained(driver)
        spent = [ticked(driver, TICK_ROWS, first=n == 0) for n in range(asked.ticks)]
        spread = f"{min(spent):.1f} to {max(spent):.1f}"
        print(f"{held:,} rows retained: {median(spent):.1f} ms of CPU a tick ({spread})")


if __name__ == "__main__":
    main()
