"""A join by time alone, without an equality key: ten ticks beside one batch join by DuckDB.

    python -m benchmarks.keyless [--rows N] [--matches N]… [--kind inner|left] [--rounds N] [--tasks]

Both read the same Parquet files and write Parquet; DuckDB has one thread. The rows of both have to be equal,
as bags. Seconds are those of the ticks, from the first one's begin, without the start of Spark; the first
ticks compile code and start workers, so what counts are the warm ones, the median of the rounds. Who does a
tick's work, the driver or tasks on two cores, is watersmeet's to say; ``--tasks``: two tasks do.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.side_by_side import BENCH
from benchmarks.workloads import dated

TICKS = 10
WARM_FROM = 3
CORES = 2
MATCHES = (5, 20, 60, 100)
MINUTE_US = 60_000_000
EPOCH_US = 1_704_067_200_000_000
BAR = 2.5
"""Times DuckDB's batch, of ten ticks at the pace of the warm ones."""


@dataclass(frozen=True)
class Round:
    """Seconds: of DuckDB's batch join, of all ticks, and of as many as the warm ones."""

    batch: float
    ticks: float
    warm: float


def prepare(folder: Path, rows: int) -> None:
    """``<folder>/<side>/<tick>.parquet``: times within the tick's minute, in no order; a sentinel each."""
    shutil.rmtree(folder, ignore_errors=True)
    rng = np.random.default_rng(7)
    for side in ("l", "r"):
        (folder / side).mkdir(parents=True)
        for tick in range(TICKS + 1):
            last = tick == TICKS
            count = 1 if last else rows // TICKS
            minute = (1000 if side == "l" else 2000) if last else tick
            start = EPOCH_US + minute * MINUTE_US
            times = start + rng.integers(0, 1 if last else MINUTE_US, count)
            table = pa.table(
                {"t": pa.array(times, pa.timestamp("us", tz="UTC")), "v": np.arange(count) + tick * rows}
            )
            path = folder / side / f"{tick:04d}.parquet"
            pq.write_table(table, path)
            dated(path, tick)


def band_us(rows: int, matches: int) -> int:
    """The width of the band in which a row has about so many partners."""
    return matches * MINUTE_US // (rows // TICKS)


def ours(folder: Path, kind: str, width_us: int, tasks: int | None) -> list[float]:
    """Seconds per tick."""
    from watersmeet.parser.statements import parse_job
    from watersmeet.plan.planner import plan_job
    from watersmeet.runtime.coordinator.results import TickResult
    from watersmeet.runtime.spark.job import session
    from watersmeet.runtime.spark.job.run import run_job
    from watersmeet.runtime.spark.job.settings import RunSettings

    text = "".join(
        f"CREATE MAPPING {side} (t TIMESTAMP, v BIGINT, WATERMARK FOR t AS t - INTERVAL '1' SECOND) "
        f"TYPE File OPTIONS ('path' = '{folder / side}', 'format' = 'parquet', 'maxFilesPerTrigger' = '1');\n"
        for side in ("l", "r")
    )
    text += f"CREATE MAPPING joined TYPE File OPTIONS ('path' = '{folder / 'ours'}', 'format' = 'parquet');\n"
    text += (
        f"INSERT INTO joined SELECT l.t AS lt, l.v AS lv, r.t AS rt, r.v AS rv FROM l {kind} JOIN r "
        f"ON r.t BETWEEN l.t AND l.t + INTERVAL '{width_us}' MICROSECONDS;\n"
    )
    session.start(session.build_session_settings(master=f"local[{CORES}]"))
    job = parse_job(text)
    seconds: list[float] = []

    def on_tick(result: TickResult, took: float, parts: Mapping[str, float]) -> None:
        seconds.append(took)

    shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    shutil.rmtree(folder / "ours", ignore_errors=True)
    run_job(
        job,
        plan_job(job),
        RunSettings(str(folder / "checkpoint"), partitions=tasks, until_caught_up=True, on_tick=on_tick),
    )
    return seconds[:TICKS]


def duckdbs(folder: Path, kind: str, width_us: int) -> float:
    """Seconds of the batch join, files to file."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        began = time.perf_counter()
        connection.execute(
            f"COPY (SELECT l.t AS lt, l.v AS lv, r.t AS rt, r.v AS rv "
            f"FROM '{folder}/l/*.parquet' l {kind} JOIN '{folder}/r/*.parquet' r "
            f"ON r.t BETWEEN l.t AND l.t + INTERVAL '{width_us}' MICROSECONDS) "
            f"TO '{folder}/batch.parquet' (FORMAT parquet)"
        )
        return time.perf_counter() - began


def rows_of(path: str) -> tuple[int, int, int]:
    """(rows, a sum over them that their order does not change, rows without a partner)."""
    with duckdb.connect() as connection:
        found = connection.execute(
            f"SELECT count(*), sum(hash(lt, lv, rt, rv) % 1000000007), count(*) - count(rv) FROM '{path}'"
        ).fetchone()
    assert found is not None
    return tuple(int(value or 0) for value in found)  # type: ignore[return-value]


def rounds(rows: int, matches: int, kind: str, count: int, tasks: int | None) -> Iterator[Round]:
    """Raises: SystemExit, when the rows are not those of DuckDB."""
    folder = BENCH / "work" / "keyless"
    prepare(folder, rows)
    width = band_us(rows, matches)
    for number in range(count):
        batch = duckdbs(folder, kind, width)
        ticks = ours(folder, kind, width, tasks)
        mine, theirs = rows_of(f"{folder}/ours/*/*.parquet"), rows_of(f"{folder}/batch.parquet")
        if mine != theirs:
            raise SystemExit(f"{matches} matches a row: {mine} is not what DuckDB has: {theirs}")
        found = Round(batch, sum(ticks), sum(ticks[WARM_FROM:]) / len(ticks[WARM_FROM:]) * TICKS)
        print(
            f"{matches} matches, round {number + 1}: {mine[0]:,} rows, equal; DuckDB {batch:.2f} s; ten ticks"
            f" {found.ticks:.2f} s ({found.ticks / batch:.2f}x), at the pace of the warm ones"
            f" {found.warm:.2f} s ({found.warm / batch:.2f}x)",
            flush=True,
        )
        yield found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.keyless", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000, help="per side")
    parser.add_argument("--matches", type=int, action="append", help="per left row, about")
    parser.add_argument("--kind", choices=("inner", "left"), default="inner")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", action="store_true", help="two tasks join, and never the driver")
    asked = parser.parse_args(argv)
    kind, tasks = asked.kind.upper(), CORES if asked.tasks else None
    ratios = {}
    for matches in asked.matches or MATCHES:
        found = list(rounds(asked.rows, matches, kind, asked.rounds, tasks))
        ratios[matches] = median(each.warm / each.batch for each in found)
    for matches, ratio in ratios.items():
        verdict = "met" if ratio <= BAR else "not met"
        print(f"{matches} matches, warm: {ratio:.2f}x; bar: at most {BAR}x: {verdict}")
    print(json.dumps(ratios))
    return 0


if __name__ == "__main__":
    sys.exit(main())
