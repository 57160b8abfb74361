"""How long a restart takes: from when Spark is up to the end of the first tick, over so many retained rows.

    python -m benchmarks.restart [--rows N] [--runs N] [--s3]

Two streams whose rows all stay retained are read once; then a few rows come, and the job is started again and
again. Each run is a process of its own, by the directory's page cache as warm as a restart after a crash
finds it. ``--s3``: the state is in an S3 server on this machine, and no run has a cache of it.
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
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.workloads import dated
from tests.support.s3 import KEYS, make_bucket, s3_server

JOB = """
CREATE TABLE l (k BIGINT, t TIMESTAMP, v BIGINT, s STRING, WATERMARK FOR t AS t - INTERVAL '0' SECONDS)
  WITH ('connector' = 'File', 'path' = '{folder}/l', 'format' = 'parquet');
CREATE TABLE r (k BIGINT, t TIMESTAMP, v BIGINT, s STRING, WATERMARK FOR t AS t - INTERVAL '0' SECONDS)
  WITH ('connector' = 'File', 'path' = '{folder}/r', 'format' = 'parquet');
CREATE TABLE out WITH ('connector' = 'File', 'path' = '{folder}/out', 'format' = 'parquet');
INSERT INTO out SELECT l.k, l.v, r.s FROM l LEFT JOIN r
  ON l.k = r.k AND r.t BETWEEN l.t - INTERVAL '30' DAYS AND l.t + INTERVAL '30' DAYS;
"""
CORES = 2
BEGAN_US = 1_700_000_000_000_000
FEW = 1_000
IN_A_FILE = 1_000_000


def write(folder: Path, number: int, rows: int) -> None:
    """Of each side so many rows, a microsecond after each other."""
    at = np.arange(rows, dtype=np.int64) + number * IN_A_FILE
    for side, shift in (("l", 0), ("r", 1)):
        table = pa.table(
            {
                "k": at * 2 + shift * (at % 10 != 0),  # one in ten has a partner
                "t": pa.array(BEGAN_US + at, pa.timestamp("us", "UTC")),
                "v": at,
                "s": pa.array([f"{side}{value:015d}" for value in at.tolist()]),
            }
        )
        (folder / side).mkdir(exist_ok=True)
        path = folder / side / f"{number:05d}.parquet"
        parquet.write_table(table, path)
        dated(path, number)


def run(folder: Path, store: str | None) -> None:
    """One run of the job, in this process; prints what it took as JSON."""
    from watersmeet.parser.statements import parse_job
    from watersmeet.plan.planner import plan_job
    from watersmeet.runtime.coordinator.results import TickResult
    from watersmeet.runtime.spark.job import session
    from watersmeet.runtime.spark.job.run import run_job
    from watersmeet.runtime.spark.job.settings import RunSettings

    conf = {"spark.master": f"local[{CORES}]", "spark.ui.enabled": "false", "spark.driver.memory": "2g"}
    spark = session.start(session.build_session_settings(conf=conf))
    spark.range(1).collect()
    started = time.perf_counter()
    ticks: list[float] = []
    kept: list[int] = []

    def on_tick(result: TickResult, seconds: float, parts: object) -> None:
        ticks.append(time.perf_counter() - started)
        kept.append(sum(result.queries["out"].state.values()))

    text = JOB.format(folder=folder)
    if store is not None:
        text = "".join(f"SET {name} = '{value}';\n" for name, value in json.loads(store).items()) + text
    job = parse_job(text)
    run_job(
        job,
        plan_job(job),
        RunSettings(str(folder / "checkpoint"), partitions=CORES, until_caught_up=True, on_tick=on_tick),
    )
    print(json.dumps({"first": ticks[0], "all": time.perf_counter() - started, "kept": kept[-1]}))


def in_a_process(folder: Path, store: str | None) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.restart", "--run", str(folder)]
    command += [] if store is None else ["--store", store]
    temporary = folder / "temporary"  # the cache is there
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    environment = {**os.environ, **KEYS, "TMPDIR": str(temporary)}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.restart")
    parser.add_argument("--rows", type=int, default=10_000_000, help="retained, of both sides together")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--s3", action="store_true", help="state in an S3 server, with a cold cache")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    if asked.run is not None:
        run(asked.run, asked.store)
        return 0
    server = s3_server() if asked.s3 else nullcontext("")
    with tempfile.TemporaryDirectory() as name, server as endpoint:
        folder, store = Path(name), None
        if endpoint:
            where = {"state_store": f"s3://{make_bucket(endpoint)}/job"}
            where["state_store_endpoint"] = endpoint
            store = json.dumps(where | {"state_store_allow_http": "true"})
        of_a_side = asked.rows // 2
        for number, low in enumerate(range(0, of_a_side, IN_A_FILE)):
            write(folder, number, min(IN_A_FILE, of_a_side - low))
        loaded = in_a_process(folder, store)
        print(f"{loaded['kept']:,} rows retained after {loaded['all']:.1f} s", flush=True)
        firsts = []
        for number in range(asked.runs):
            write(folder, 10_000 + number, FEW)
            told = in_a_process(folder, store)
            firsts.append(told["first"])
            print(f"restart: the first tick ends {told['first']:.2f} s after Spark is up", flush=True)
        print(f"median {median(firsts):.2f} s ({min(firsts):.2f} to {max(firsts):.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
