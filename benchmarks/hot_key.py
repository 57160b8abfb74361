"""A join with a hot key: how the work falls on tasks.

    python -m benchmarks.hot_key [--rows N] [--ticks N] [--kind inner|left|right|full] [--tasks 2 8]
        [--share 0.3] [--keys 10000]

``--share`` of the rows have one key; the others have as many as ``--keys``. Rows of the small side lie so
that each row of the large one has as many partners, whichever its key. It is run with the key split over the
tasks, by the key's hash alone, with the hint BROADCAST (where there is one key), and as a job without a hot
key. In this process, one task after the other; CPU seconds of each task, summed over the ticks. "longest" is
what the ticks would take on as many cores as there are tasks: the slowest task of each, summed. All ways have
to put out as many rows in every tick, but for the job without a hot key.
"""

from __future__ import annotations

import argparse
import gc
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from unittest import mock

import numpy as np
import pyarrow as pa

from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.operators import repartition
from watersmeet.runtime.operators.task import NodeTask
from watersmeet.state.store import MemoryStore

MINUTE = 60_000_000
SMALL = 40
"""Rows of the small side per tick and key."""
HINT = "/*+ BROADCAST(x) */ "


def query(kind: str, hint: str) -> str:
    columns = "k BIGINT, t BIGINT, n BIGINT, WATERMARK FOR t AS t - 1000000"
    return (
        f"CREATE TABLE o ({columns}) WITH ('connector' = 'memory');"
        f"CREATE TABLE x ({columns}) WITH ('connector' = 'memory');"
        f"SELECT {hint}o.n AS ono, x.n AS xno FROM o {kind} JOIN x"
        f" ON o.k = x.k AND o.t BETWEEN x.t AND x.t + {MINUTE}"
    )


@dataclass(frozen=True)
class Rows:
    """``share`` of the ``large`` rows per tick have key 0, the others one of ``keys``; of the small side each
    key has ``small``."""

    large: int
    small: int
    share: float
    keys: int

    def given(self, rng: np.random.Generator, tick: int) -> dict[str, list[tuple[dict[str, int], int]]]:
        others = rng.integers(1, self.keys + 1, self.large)
        o = np.where(rng.random(self.large) < self.share, 0, others)
        x = np.repeat(np.arange(self.keys + 1) if self.share < 1 else np.zeros(1, dtype=np.int64), self.small)
        given = {}
        for name, keys in (("o", o), ("x", x)):
            times = tick * MINUTE + rng.integers(0, MINUTE, len(keys))
            rows = enumerate(zip(keys.tolist(), times.tolist(), strict=True))
            given[name] = [({"k": k, "t": t, "n": n}, 1) for n, (k, t) in rows]
        return given


@dataclass(frozen=True)
class Way:
    """How it is run: with a ``hint`` in the query, or with keys split or not."""

    name: str
    hint: str = ""
    splits: bool = True


def measured(kind: str, way: Way, rows: Rows, ticks: int, tasks: int) -> tuple[np.ndarray, list[int]]:
    """(CPU seconds per tick and task, rows out per tick)."""
    seconds = np.zeros((ticks, tasks))
    out = [0] * ticks
    run, tick = NodeTask.run, 0

    def timed(self: NodeTask, partition: int, partitions: int) -> Iterator[pa.RecordBatch]:
        gc.disable()  # a collection of the whole process would count as work of one task
        began = time.process_time()
        found = list(run(self, partition, partitions))
        seconds[tick, partition] += time.process_time() - began
        gc.enable()
        out[tick] += found[-1].rows_out
        yield found[-1]  # what a sink makes of the rows is not measured

    rng = np.random.default_rng(5)
    job = LocalJob(plan_job(parse_job(query(kind, way.hint))), MemoryStore(), partitions=tasks)
    least = repartition.MIN_SPLIT_SHARE if way.splits else math.inf
    with mock.patch.object(NodeTask, "run", timed), mock.patch.object(repartition, "MIN_SPLIT_SHARE", least):
        for tick in range(ticks):
            job.tick(rows.given(rng, tick))
    return seconds, out


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hot_key", description="A join with a hot key")
    parser.add_argument("--rows", type=int, default=50_000, help="of the large side, per tick")
    parser.add_argument("--ticks", type=int, default=6)
    parser.add_argument("--kind", choices=("inner", "left", "right", "full"), default="right")
    parser.add_argument("--tasks", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--share", type=float, default=1.0, help="of the large side's rows, with one key")
    parser.add_argument("--keys", type=int, default=1_000, help="of the other rows")
    parser.add_argument("--small", type=int, default=SMALL, help="rows of the small side, per tick and key")
    asked = parser.parse_args(argv)
    rows = Rows(asked.rows, asked.small, asked.share, asked.keys)
    ways = [(Way("by the key's hash", splits=False), rows), (Way("split"), rows)]
    if asked.share == 1:
        ways.append((Way("BROADCAST", HINT), rows))
    else:
        ways.append((Way("without a hot key"), replace(rows, share=0.0)))
    for tasks in asked.tasks:
        outputs, longest = [], []
        for way, given in ways:
            seconds, out = measured(asked.kind.upper(), way, given, asked.ticks, tasks)
            longest.append(float(seconds.max(axis=1).sum()))
            if given is rows:
                outputs.append(out)
            total, share = seconds.sum(), seconds.sum(axis=0).max() / seconds.sum()
            print(
                f"{tasks} tasks, {way.name}: {sum(out):,} rows out, {total:.2f} CPU s in all, the busiest"
                f" task has {share:.0%}; longest {longest[-1]:.2f} s"
            )
        if asked.share < 1:
            before, after = longest[0] / longest[2], longest[1] / longest[2]
            print(f"{tasks} tasks, against no hot key: {before:.2f}x by the key's hash, {after:.2f}x split")
        if any(out != outputs[0] for out in outputs):
            print(f"NOT EQUAL: {outputs}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
