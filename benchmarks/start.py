"""How soon there is a first row: a small job with the classes that `watersmeet prepare` keeps, without, and a
bare script of PySpark.

    python -m benchmarks.start [--rounds N] [--format csv|parquet]

Two orders and a delivery in files, a LEFT JOIN, the console; the script starts a session and counts ten rows.
They take turns, every other round in the opposite order. CPU seconds are those of all processes to the end,
read ten times a second. ``watersmeet prepare`` has to have run.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import IO, cast

import psutil
import pyarrow as pa
from pyarrow import csv, parquet

from watersmeet.runtime.spark.job.class_archive import archive_path

JOB = """
CREATE TABLE a (id BIGINT, t TIMESTAMP, v STRING, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
  WITH ('connector' = 'file', 'path' = '{folder}/a', 'format' = '{kind}');
CREATE TABLE b (id BIGINT, t TIMESTAMP, w STRING, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
  WITH ('connector' = 'file', 'path' = '{folder}/b', 'format' = '{kind}');
CREATE TABLE out WITH ('connector' = 'console');
INSERT INTO out SELECT a.id, v, w FROM a LEFT JOIN b
  ON a.id = b.id AND b.t BETWEEN a.t AND a.t + INTERVAL '1' MINUTE;
"""
SCRIPT = """
from pyspark.sql import SparkSession
print("row", SparkSession.builder.master("local[2]").getOrCreate().range(10).count(), flush=True)
"""
ROW = b" 1"
"""In the first line with a row; before it none but the heading has it, which says which tick it is of."""
ROWS = {
    "a": "id,t,v\n1,2024-01-01T00:00:00Z,a\n2,2024-01-01T00:00:05Z,b\n",
    "b": "id,t,w\n1,2024-01-01T00:00:03Z,x\n",
}


PREPARED, NOT, BARE = "prepared", "not prepared", "bare PySpark"


@dataclass(frozen=True)
class Started:
    """Seconds to the first row, to the end, and of CPU to the end."""

    first_s: float
    end_s: float
    cpu_s: float


def run(what: str, folder: Path, number: int) -> Started:
    environment = dict(os.environ)
    if what == NOT:
        environment["XDG_CACHE_HOME"] = str(folder / "nothing")
    flags = ["--until-caught-up", "--finish", "--quiet", "--checkpoint", str(folder / f"{what} {number}")]
    ours = ["-m", "watersmeet", "run", str(folder / "job.sql"), *flags]
    command = [sys.executable, *(["-c", SCRIPT] if what == BARE else ours)]
    started, used, first = time.monotonic(), dict[int, float](), list[float]()
    out: IO[bytes]
    with (
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as job,
        cast("IO[bytes]", job.stdout) as out,
    ):
        seeing = threading.Thread(target=_see, args=(out, first))
        seeing.start()
        process = psutil.Process(job.pid)
        while job.poll() is None:
            try:
                for one in (process, *process.children(recursive=True)):
                    times = one.cpu_times()
                    used[one.pid] = times.user + times.system
            except psutil.Error:
                pass
            time.sleep(0.1)
        ended = time.monotonic()
        seeing.join()
    if job.returncode or not first:
        raise SystemExit(f"{what}: it failed with {job.returncode}, and put out {'a' if first else 'no'} row")
    return Started(first[0] - started, ended - started, sum(used.values()))


def _write(file: Path, text: str) -> None:
    if file.suffix == ".csv":
        file.write_text(text)
        return
    rows = csv.read_csv(io.BytesIO(text.encode()))
    times = rows.column("t").cast(pa.timestamp("us", "UTC"))
    parquet.write_table(rows.set_column(1, "t", times), file)


def _see(out: IO[bytes], first: list[float]) -> None:
    """Note when the first line with a row comes."""
    for line in out:
        if ROW in line and b"tick" not in line and not first:
            first.append(time.monotonic())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--format", choices=["csv", "parquet"], default="csv", help="of the files")
    asked = parser.parse_args(argv)
    path = archive_path()
    if path is None or not path.exists():
        parser.error("run `watersmeet prepare` first")
    rounds: list[dict[str, Started]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side, text in ROWS.items():
            (folder / side).mkdir()
            _write(folder / side / f"1.{asked.format}", text)
        (folder / "job.sql").write_text(JOB.format(folder=folder, kind=asked.format))
        for number in range(asked.rounds):
            turns = (PREPARED, NOT, BARE) if number % 2 == 0 else (BARE, NOT, PREPARED)
            rounds.append({what: run(what, folder, number) for what in turns})
            for what, it in rounds[-1].items():
                print(
                    f"{what}: first row {it.first_s:.1f} s, end {it.end_s:.1f} s, {it.cpu_s:.1f} CPU s",
                    flush=True,
                )
    for one, other in ((PREPARED, BARE), (NOT, BARE), (PREPARED, NOT)):
        for figure in fields(Started):
            ratios = [getattr(each[one], figure.name) / getattr(each[other], figure.name) for each in rounds]
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
            print(f"{one} / {other}, {figure.name}: {median(ratios):.2f} x ({spread})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
