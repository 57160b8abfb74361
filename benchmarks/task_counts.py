"""Ticks of a join on Spark by the number of tasks: fixed ones and the chosen one, in turn within one run.

    python -m benchmarks.task_counts [--rows N] [--ticks N] [--kind inner|left] [--master M] [--ways 1 2 auto]
                                     [--memory]

Files of N rows a side come in each tick; which way a tick is run changes from tick to tick, and what is
printed are medians of its join and of all of it, after the first three rounds. ``--memory``: each way in a
process of its own, and the most memory that its Python processes had together.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from unittest.mock import patch

from benchmarks import measure
from benchmarks.workloads import KINDS, Workload, format_in, prepare
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator.node_cost import CostEstimate
from watersmeet.runtime.coordinator.results import TickResult
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.runtime.spark.job import session
from watersmeet.runtime.spark.job.run import JobRun, build_outputs
from watersmeet.runtime.spark.job.settings import RunSettings
from watersmeet.runtime.spark.tick.task_placement import TaskCounts

WARM_ROUNDS = 3


def text(data: Path, out: Path, kind: str) -> str:
    statements = [
        f"CREATE TABLE {side} (k BIGINT, t TIMESTAMP, v BIGINT, s STRING, "
        "WATERMARK FOR t AS t - INTERVAL '10' SECONDS) "
        f"WITH ('connector' = 'File', 'path' = '{data / side}', 'format' = '{format_in(data, side)}', "
        "'maxFilesPerTrigger' = '1');\n"
        for side in "lr"
    ]
    sink = f"CREATE TABLE joined WITH ('connector' = 'File', 'path' = '{out}', 'format' = 'parquet');\n"
    return f"{''.join(statements)}{sink}INSERT INTO joined {KINDS[kind].select({'l': 'l', 'r': 'r'})};\n"


def _measured(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [sys.executable, "-m", "benchmarks.task_counts", *arguments]
        usage = measure.run(command, log, env=dict(os.environ), timeout_s=3_600)
        print(*(line for line in log.read_text().splitlines() if "tasks: " in line), sep="\n")
    most = {kind: max(sample.memory[kind] for sample in usage.samples) for kind in measure.KINDS}
    print("      most memory:", *(f"{kind} {held / 1e6:,.0f} MB" for kind, held in most.items()), flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.task_counts")
    parser.add_argument("--rows", type=int, default=100_000, help="of a side and tick")
    parser.add_argument("--ticks", type=int, default=30)
    parser.add_argument("--kind", default="left", choices=("inner", "left"))
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--ways", nargs="+", default=["1", "2", "auto"], help="numbers of tasks")
    parser.add_argument("--memory", action="store_true", help="each way in a process of its own")
    asked = parser.parse_args(argv)
    if asked.memory:
        for number in asked.ways:
            of_way = ["--rows", asked.rows, "--ticks", asked.ticks, "--kind", asked.kind, "--ways", number]
            _measured([*map(str, of_way), "--master", asked.master])
        return 0
    folder = Path(tempfile.mkdtemp(prefix="watersmeet-bench-"))
    try:
        data = prepare(Workload(f"{asked.rows}", asked.rows, asked.ticks), folder / "data")
        conf = {"spark.ui.enabled": "false", "spark.driver.memory": "2g"}
        spark = session.start(session.build_session_settings(master=asked.master, conf=conf))
        job = parse_job(text(data, folder / "out", asked.kind))
        plan = plan_job(job)
        warm = WARM_ROUNDS * len(asked.ways) if len(asked.ways) > 1 else 1
        took: dict[str, list[tuple[float, float]]] = defaultdict(list)

        kinds, next_way = TaskCounts.of, [str(asked.ways[0])]

        def by_turn(self: TaskCounts, query: str, node: int, amount: CostEstimate) -> int:
            """As many as the way says whose turn it is; what is chosen, where it says none."""
            count, number = kinds(self, query, node, amount), next_way[0]
            return count if number == "auto" else int(number)

        def on_tick(result: TickResult, seconds: float, parts: Mapping[str, float]) -> None:
            if warm < result.tick <= asked.ticks:
                took[asked.ways[(result.tick - 1) % len(asked.ways)]].append(
                    (parts["join and write"], seconds)
                )
            next_way[0] = str(asked.ways[result.tick % len(asked.ways)])

        settings = RunSettings(str(folder / "checkpoint"), until_caught_up=True, on_tick=on_tick)
        checkpoint = Checkpoint(folder / "checkpoint", settings.store)
        if len(asked.ways) == 1:
            settings = replace(settings, partitions=None if asked.ways == ["auto"] else int(asked.ways[0]))
        with patch.object(TaskCounts, "of", by_turn):
            JobRun(spark, plan, settings, build_outputs(job, plan, settings), checkpoint).execute()
        print(f"{asked.rows:,} rows a side, {asked.kind}, {asked.master}")
        for name, ticks in took.items():
            join, whole = (sorted(seconds) for seconds in zip(*ticks, strict=True))
            print(
                f"{name:>5} tasks: join {median(join) * 1000:.0f} ms ({join[0] * 1000:.0f} to "
                f"{join[-1] * 1000:.0f}), tick {median(whole) * 1000:.0f} ms; {len(ticks)} ticks",
                flush=True,
            )
        spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
