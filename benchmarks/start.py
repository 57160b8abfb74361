"""A small job from its command to its end: with the classes that `watersmeet prepare` keeps, and without.

    python -m benchmarks.start [--pairs N]

Two orders and a delivery in CSV, a LEFT JOIN, the console. CPU seconds are those of all processes of the job,
read ten times a second. ``watersmeet prepare`` has to have run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import psutil

from watersmeet.engine.spark.job.class_archive import place

JOB = """
CREATE TABLE a (id BIGINT, t TIMESTAMP, v STRING, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
  WITH ('connector' = 'file', 'path' = '{folder}/a', 'format' = 'csv');
CREATE TABLE b (id BIGINT, t TIMESTAMP, w STRING, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
  WITH ('connector' = 'file', 'path' = '{folder}/b', 'format' = 'csv');
CREATE TABLE out WITH ('connector' = 'console');
INSERT INTO out SELECT a.id, v, w FROM a LEFT JOIN b
  ON a.id = b.id AND b.t BETWEEN a.t AND a.t + INTERVAL '1' MINUTE;
"""
ROWS = {
    "a": "id,t,v\n1,2024-01-01T00:00:00Z,a\n2,2024-01-01T00:00:05Z,b\n",
    "b": "id,t,w\n1,2024-01-01T00:00:03Z,x\n",
}


def run(folder: Path, number: int, *, prepared: bool) -> tuple[float, float]:
    """Seconds, and seconds of CPU."""
    environment = dict(os.environ)
    if not prepared:
        environment["XDG_CACHE_HOME"] = str(folder / "nothing")
    flags = [
        "--until-caught-up",
        "--finish",
        "--quiet",
        "--checkpoint",
        str(folder / f"state{number}{prepared}"),
    ]
    command = [sys.executable, "-m", "watersmeet", "run", str(folder / "job.sql"), *flags]
    started, used = time.monotonic(), dict[int, float]()
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as job:
        process = psutil.Process(job.pid)
        while job.poll() is None:
            try:
                for one in (process, *process.children(recursive=True)):
                    times = one.cpu_times()
                    used[one.pid] = times.user + times.system
            except psutil.Error:
                pass
            time.sleep(0.1)
    if job.returncode:
        raise SystemExit(f"the job failed: {job.returncode}")
    return time.monotonic() - started, sum(used.values())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start")
    parser.add_argument("--pairs", type=int, default=5)
    asked = parser.parse_args(argv)
    path = place()
    if path is None or not path.exists():
        parser.error("run `watersmeet prepare` first")
    ratios: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side, text in ROWS.items():
            (folder / side).mkdir()
            (folder / side / "1.csv").write_text(text)
        (folder / "job.sql").write_text(JOB.format(folder=folder))
        for number in range(asked.pairs):
            (s, cpu_s), (s_bare, cpu_s_bare) = (run(folder, number, prepared=on) for on in (True, False))
            print(
                f"prepared {s:.1f} s, {cpu_s:.1f} CPU s; not {s_bare:.1f} s, {cpu_s_bare:.1f} CPU s",
                flush=True,
            )
            ratios.append((s_bare / s, cpu_s_bare / cpu_s))
    for what, each in zip(("time", "CPU"), zip(*ratios, strict=True), strict=True):
        print(f"not prepared to prepared, {what}: {median(each):.2f} x ({min(each):.2f} to {max(each):.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
