"""A key and a band over numbers beside the same key and the same band over times: ticks of both, in turn.

    python -m benchmarks.bands [--rows N] [--keys N] [--rounds N] [--wide MINUTES]
                               [--band SECONDS] [--keyless] [--only time|numbers]

Every row has a time and the same time as a number (``p``, in ms). ``time`` joins by the key and a band
of time; ``numbers`` by the key, the same band of ``p``, and a time bound that is wider (``--wide``), as
retention needs one. Both give the same rows. With few keys the time bound of ``numbers`` leaves many
candidates: there looking up by numbers is what counts; ``--keyless`` leaves the key out. Watermarks lag so
that both retain about as many rows.

Seconds and CPU seconds (JVM, Python, its workers) are those of the warm ticks; a ratio is taken within a
round.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.pairs import cpu_seconds
from benchmarks.side_by_side import BENCH
from benchmarks.workloads import dated

TICKS = 12
WARM_FROM = 4
TASKS = 2
MINUTE_MS = 60_000
EPOCH_MS = 1_704_067_200_000
BAND_S = 120
BAR = 1.3
KINDS = ("time", "numbers")


@dataclass(frozen=True)
class Found:
    """Of one run: medians of its warm ticks, and the result: its count and a sum that no order changes."""

    seconds: float
    cpu_seconds: float
    rows: tuple[int, int]


def prepare(folder: Path, rows: int, keys: int) -> None:
    """``<folder>/<side>/<tick>.parquet``: a minute each, in no order; last one row far ahead."""
    shutil.rmtree(folder, ignore_errors=True)
    rng = np.random.default_rng(7)
    for side in ("l", "r"):
        (folder / side).mkdir(parents=True)
        for tick in range(TICKS + 1):
            last = tick == TICKS
            count = 1 if last else rows
            minute = (10_000 if side == "l" else 20_000) if last else tick
            moments = EPOCH_MS + minute * MINUTE_MS + rng.integers(0, 1 if last else MINUTE_MS, count)
            table = pa.table(
                {
                    "k": rng.integers(0, keys, count),
                    "t": pa.array(moments, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC")),
                    "p": pa.array(moments),
                    "v": np.arange(count) + tick * rows,
                }
            )
            path = folder / side / f"{tick:04d}.parquet"
            pq.write_table(table, path)
            dated(path, tick)


def job_text(folder: Path, kind: str, asked: argparse.Namespace) -> str:
    """The job; ``time`` has the lag that makes up for its narrower bound."""
    wide, band_s = asked.wide, asked.band
    lag = (wide * 60 - band_s) // 2 + 10 if kind == "time" else 10
    text = "".join(
        f"CREATE MAPPING {side} (k BIGINT, t TIMESTAMP, p BIGINT, v BIGINT, "
        f"WATERMARK FOR t AS t - INTERVAL '{lag}' SECONDS) "
        f"TYPE File OPTIONS ('path' = '{folder / side}', 'format' = 'parquet', 'maxFilesPerTrigger' = '1');\n"
        for side in ("l", "r")
    )
    seconds = band_s if kind == "time" else wide * 60
    on = "" if asked.keyless else "r.k = l.k AND "
    on += f"r.t BETWEEN l.t AND l.t + INTERVAL '{seconds}' SECONDS"
    if kind == "numbers":
        on += f" AND r.p BETWEEN l.p AND l.p + {band_s * 1000}"
    out = folder / kind
    text += f"CREATE MAPPING joined TYPE File OPTIONS ('path' = '{out}', 'format' = 'parquet');\n"
    return (
        text
        + f"INSERT INTO joined SELECT l.v AS lv, l.t AS lt, r.v AS rv, r.t AS rt FROM l JOIN r ON {on};\n"
    )


def run(folder: Path, kind: str, asked: argparse.Namespace) -> Found:
    from watersmeet.parser.statements import parse_job
    from watersmeet.plan.planner import plan_job
    from watersmeet.runtime.coordinator.results import TickResult
    from watersmeet.runtime.spark.job import session
    from watersmeet.runtime.spark.job.run import run_job
    from watersmeet.runtime.spark.job.settings import RunSettings

    session.start(session.build_session_settings(master=f"local[{TASKS}]"))
    job = parse_job(job_text(folder, kind, asked))
    seconds: list[float] = []
    used = [cpu_seconds()]

    def on_tick(result: TickResult, took: float, parts: Mapping[str, float]) -> None:
        seconds.append(took)
        used.append(cpu_seconds())

    for old in (folder / "checkpoint", folder / kind):
        shutil.rmtree(old, ignore_errors=True)
    run_job(
        job,
        plan_job(job),
        RunSettings(str(folder / "checkpoint"), partitions=TASKS, until_caught_up=True, on_tick=on_tick),
    )
    cpu = [after - before for before, after in pairwise(used)]
    with duckdb.connect() as connection:
        rows = connection.execute(
            f"SELECT count(*), sum(hash(lv, rv) % 1000000007) FROM '{folder / kind}/*/*.parquet'"
        ).fetchone()
    assert rows is not None
    warm = slice(WARM_FROM, TICKS)
    return Found(median(seconds[warm]), median(cpu[warm]), (int(rows[0]), int(rows[1] or 0)))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bands", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="per side and tick")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--wide", type=int, default=10, help="minutes of the time bound beside the numbers")
    parser.add_argument("--band", type=int, default=BAND_S, help="seconds of the band")
    parser.add_argument("--keyless", action="store_true", help="without the key")
    parser.add_argument("--only", choices=KINDS, help="this kind alone")
    asked = parser.parse_args(argv)
    folder = BENCH / "work" / "bands"
    prepare(folder, asked.rows, asked.keys)
    ratios = []
    run(folder, asked.only or KINDS[0], asked)  # compiles code, starts workers
    for number in range(asked.rounds):
        kinds = (asked.only,) if asked.only else KINDS if number % 2 == 0 else KINDS[::-1]
        found = {}
        for kind in kinds:
            began = time.perf_counter()
            found[kind] = run(folder, kind, asked)
            each = found[kind]
            print(
                f"round {number + 1}, {kind}: tick {each.seconds:.2f} s, {each.cpu_seconds:.2f} CPU s; "
                f"{each.rows[0]:,} rows; whole run {time.perf_counter() - began:.1f} s",
                flush=True,
            )
        if len(found) == len(KINDS):
            if found["time"].rows != found["numbers"].rows:
                print("the rows differ")
                return 1
            ratios.append(
                (
                    found["numbers"].seconds / found["time"].seconds,
                    found["numbers"].cpu_seconds / found["time"].cpu_seconds,
                )
            )
    if ratios:
        by_time, by_cpu = (median(each[n] for each in ratios) for n in (0, 1))
        print(
            f"numbers by time, medians of rounds: {by_time:.2f}x in seconds, {by_cpu:.2f}x in CPU seconds; "
            f"bar {BAR}x: {'met' if by_time <= BAR else 'not met'}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
