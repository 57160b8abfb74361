"""The same job on a cluster of two executors with a core each, and in one process with two cores, in turn.

    python -m benchmarks.cluster [--rows N] [--ticks N] [--rounds N] [--kind inner|left] [--directory]

Every run is a process of its own, over the same files, with its state in an S3 server on this machine, of
which each executor has a cache of its own (``--directory``: in a directory). What counts is the ratio within
a round, of rows per second after the third tick; every other round begins with the other one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.task_counts import text
from benchmarks.workloads import Workload, prepare
from tests.support.s3 import KEYS, make_bucket, s3_server

MASTERS = {"one process": "local[2]", "cluster": "local-cluster[2,1,1024]"}
WARM_TICKS = 3
PATIENCE_S = 120


def run(data: Path, folder: Path, kind: str, ticks: int, master: str, store: str | None) -> None:
    """One run of the job, in this process; prints the seconds of its ticks as JSON."""
    from watersmeet.engine.driver.driver import TickResult
    from watersmeet.engine.spark.job import session
    from watersmeet.engine.spark.job.job import run_job
    from watersmeet.front.sql import parse_job
    from watersmeet.objects.setting import store_of
    from watersmeet.plan.planner import plan_job

    conf = {
        "spark.driver.memory": "1g",
        "spark.executor.memory": "1g",
        "spark.local.dir": str(folder / "tmp"),
    }
    spark = session.start(session.settings(master=master, conf=conf))
    context: Any = spark.sparkContext
    executors, until = context._jsc.sc(), time.monotonic() + PATIENCE_S
    while "cluster" in master and executors.getExecutorMemoryStatus().size() < 3 and time.monotonic() < until:
        time.sleep(0.1)
    sql = text(data, folder / "out", kind)
    if store is not None:
        sql = "".join(f"SET {name} = '{value}';\n" for name, value in json.loads(store).items()) + sql
    took: list[float] = []
    parts: list[dict[str, float]] = []
    ended: list[float] = []

    def on_tick(result: TickResult, seconds: float, of_parts: Mapping[str, float]) -> None:
        took.append(seconds)
        ended.append(time.perf_counter())
        parts.append({name: round(value, 4) for name, value in of_parts.items()})

    job = parse_job(sql)
    run_job(
        job,
        plan_job(job),
        checkpoint=str(folder / "checkpoint"),
        until_caught_up=True,
        store=store_of(job.run),
        on_tick=on_tick,
    )
    warm = ended[ticks - 1] - ended[WARM_TICKS - 1]
    print(json.dumps({"warm": warm, "ticks": took, "parts": parts}))
    spark.stop()


@dataclass(frozen=True)
class Told:
    """By a run: seconds after the first ticks, of each tick, and of its parts."""

    warm: float
    ticks: list[float]
    parts: list[dict[str, float]]


def in_a_process(command: Sequence[str], folder: Path) -> Told:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "temporary").mkdir(parents=True)  # the cache is there
    environment = {**os.environ, **KEYS, "TMPDIR": str(folder / "temporary"), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    return Told(**json.loads(done.stdout.splitlines()[-1]))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster")
    parser.add_argument("--rows", type=int, default=100_000, help="of a side and tick")
    parser.add_argument("--ticks", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kind", default="left", choices=("inner", "left"))
    parser.add_argument("--directory", action="store_true", help="state in a directory, not in an S3 server")
    parser.add_argument("--parts", action="store_true", help="print what the parts of ticks took, too")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    if asked.run is not None:
        data, folder, master = asked.run
        run(Path(data), Path(folder), asked.kind, asked.ticks, master, asked.store)
        return 0
    ratios = []
    with tempfile.TemporaryDirectory(prefix="ws-") as name:
        folder = Path(name)
        data = prepare(Workload(f"{asked.rows}", asked.rows, asked.ticks), folder / "data")
        for number in range(asked.rounds):
            rates: dict[str, float] = {}
            for place in list(MASTERS)[:: -1 if number % 2 else 1]:
                command = [sys.executable, "-m", "benchmarks.cluster", "--kind", asked.kind]
                command += ["--ticks", str(asked.ticks)]
                command += ["--run", str(data), str(folder / "run"), MASTERS[place]]
                with nullcontext("") if asked.directory else s3_server() as endpoint:
                    if endpoint:
                        store = {"state_store": f"s3://{make_bucket(endpoint)}/job"}
                        store |= {"state_store_endpoint": endpoint, "state_store_allow_http": "true"}
                        command += ["--store", json.dumps(store)]
                    told = in_a_process(command, folder / "run")
                rates[place] = 2 * asked.rows * (asked.ticks - WARM_TICKS) / told.warm
                tick = median(told.ticks[WARM_TICKS : asked.ticks])
                print(f"{place}: {rates[place]:,.0f} rows/s, tick {tick:.2f} s", flush=True)
                if asked.parts:
                    warm = told.parts[WARM_TICKS : asked.ticks]
                    names = dict.fromkeys(name for each in warm for name in each)
                    told_of = {name: median(each.get(name, 0.0) for each in warm) for name in names}
                    print("   ", ", ".join(f"{name} {value:.3f} s" for name, value in told_of.items()))
            ratios.append(rates["cluster"] / rates["one process"])
    spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
    print(f"cluster to one process: {median(ratios):.2f} x {spread}, {len(ratios)} rounds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
