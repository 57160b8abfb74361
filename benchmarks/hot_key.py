"""A join all of whose rows have one key: how the work falls on tasks, with the hint BROADCAST and without.

    python -m benchmarks.hot_key [--rows N] [--ticks N] [--kind inner|left|right|full] [--tasks 2 8]

In this process, one task after the other; CPU seconds of each task, summed over the ticks. "longest" is what
the ticks would take on as many cores as there are tasks: the slowest task of each, summed. Both ways have to
put out as many rows in every tick.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from unittest import mock

import numpy as np
import pyarrow as pa

from watersmeet.engine.local import LocalJob
from watersmeet.engine.nodes.task import NodeTask
from watersmeet.front.sql import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.state.store import MemoryStore

MINUTE = 60_000_000
SMALL = 40
"""Rows of the small side per tick."""
HINT = "/*+ BROADCAST(x) */ "


def query(kind: str, hint: str) -> str:
    columns = "k BIGINT, t BIGINT, n BIGINT, WATERMARK FOR t AS t - 1000000"
    return (
        f"CREATE TABLE o ({columns}) WITH ('connector' = 'memory');"
        f"CREATE TABLE x ({columns}) WITH ('connector' = 'memory');"
        f"SELECT {hint}o.n AS ono, x.n AS xno FROM o {kind} JOIN x"
        f" ON o.k = x.k AND o.t BETWEEN x.t AND x.t + {MINUTE}"
    )


def measured(kind: str, hint: str, rows: int, ticks: int, tasks: int) -> tuple[np.ndarray, list[int]]:
    """(CPU seconds per tick and task, rows out per tick)."""
    seconds = np.zeros((ticks, tasks))
    run, tick = NodeTask.run, 0

    def timed(self: NodeTask, partition: int, partitions: int) -> Iterator[pa.RecordBatch]:
        began = time.process_time()
        found = list(run(self, partition, partitions))
        seconds[tick, partition] += time.process_time() - began
        yield found[-1]  # what a sink makes of the rows is not measured

    rng = np.random.default_rng(5)
    job = LocalJob(plan_job(parse_job(query(kind, hint))), MemoryStore(), partitions=tasks)
    out = []
    with mock.patch.object(NodeTask, "run", timed):
        for tick in range(ticks):
            given = {}
            for name, count in (("o", rows), ("x", SMALL)):
                times = (tick * MINUTE + rng.integers(0, MINUTE, count)).tolist()
                given[name] = [({"k": 1, "t": t, "n": n}, 1) for n, t in enumerate(times)]
            found = job.tick(given).result
            out.append(next(iter(found.queries.values())).rows_out)
    return seconds, out


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hot_key", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=50_000, help="of the large side, per tick")
    parser.add_argument("--ticks", type=int, default=6)
    parser.add_argument("--kind", choices=("inner", "left", "right", "full"), default="right")
    parser.add_argument("--tasks", type=int, nargs="+", default=[2, 8])
    asked = parser.parse_args(argv)
    for tasks in asked.tasks:
        outputs = []
        for name, hint in (("by the key's hash", ""), ("BROADCAST", HINT)):
            seconds, out = measured(asked.kind.upper(), hint, asked.rows, asked.ticks, tasks)
            outputs.append(out)
            total, share = seconds.sum(), seconds.sum(axis=0).max() / seconds.sum()
            print(
                f"{tasks} tasks, {name}: {sum(out):,} rows out, {total:.2f} CPU s in all, the busiest task"
                f" has {share:.0%}; longest {seconds.max(axis=1).sum():.2f} s"
            )
        if outputs[0] != outputs[1]:
            print(f"NOT EQUAL: {outputs}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
