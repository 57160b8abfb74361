"""What it costs to look whether records of JSON files run on behind their value, and where one does; and
whether CSV is UTF-8.

    python -m benchmarks.run_on [--pairs N] [--rows N] [--lines KIND]

One job reads files of so many lines each, one a tick, filters them, and writes Parquet. In turn a tick looks
and the next one does not; which of the two of a pair comes first alternates, too. Seconds are those of the
tick; CPU seconds are from one tick's end to the next one's, of the job (driver, JVM, workers). Lines are
objects of plain values (flat), with an object and an array within (nested), with a NaN besides, which a
parser without options does not take (nan), or flat ones of which one in each file runs on (running-on): in
ticks that do not look, its first object is read like others. Or they are the values of flat ones as CSV
(csv).
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.pairs import compared, cpu_seconds, has_it, in_pairs
from benchmarks.side_by_side import BENCH

WARM_UP_TICKS = 4
COLUMNS = "id BIGINT, k BIGINT, at TIMESTAMP, price DECIMAL(9,2), name STRING"


@dataclass(frozen=True)
class Cost:
    """Seconds of one tick."""

    wall: float
    cpu: float


def prepare(folder: Path, rows: int, ticks: int, kind: str) -> None:
    """A file per tick, all with the same lines."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "in").mkdir(parents=True)
    rng = random.Random(1)
    lines = []
    for number in range(rows):
        row: dict[str, Any] = {
            "id": number,
            "k": rng.randrange(10**6),
            "at": f"2024-01-01T{rng.randrange(24):02d}:00:{rng.randrange(60):02d}.000Z",
            "price": rng.randrange(10_000) / 100,
            "name": f"customer {rng.randrange(10**6)}",
        }
        if kind == "nan":
            row["ratio"] = float("nan")
        if kind in ("nested", "nan"):
            row["within"] = {"a": number, "b": [1, 2, 3]}
        lines.append(",".join(map(str, row.values())) if kind == "csv" else json.dumps(row))
    if kind == "running-on":
        lines[rows // 2] += '{"id": 0}'
    content = "\n".join(["id,k,at,price,name", *lines] if kind == "csv" else lines)
    for tick in range(ticks):
        (folder / "in" / f"{tick:04d}.txt").write_text(content)


def measure(folder: Path, rows: int, pairs: int, kind: str) -> list[tuple[Cost, Cost]]:
    """Per pair of ticks what they cost: (looked, did not look)."""
    from watersmeet.parser.statements import parse_job
    from watersmeet.plan.planner import plan_job
    from watersmeet.runtime.coordinator.results import TickResult
    from watersmeet.runtime.spark.job import session
    from watersmeet.runtime.spark.job.run import run_job
    from watersmeet.runtime.spark.job.settings import RunSettings
    from watersmeet.runtime.spark.sources.files.progress import BatchFiles
    from watersmeet.runtime.spark.tick.reading.text_validation import Rereading, TextReread

    ticks = WARM_UP_TICKS + 2 * pairs
    prepare(folder, rows, ticks, kind)
    more = ["within STRUCT<a: BIGINT, b: ARRAY<INT>>"] if kind in ("nested", "nan") else []
    more += ["ratio DOUBLE"] if kind == "nan" else []
    columns = ", ".join([COLUMNS, *more])
    names = ", ".join(["id, k, at, price, name", *(column.split()[0] for column in more)])
    wanted = "csv" if kind == "csv" else "json"
    job = parse_job(
        f"CREATE MAPPING f ({columns}) TYPE File "
        f"OPTIONS ('path' = '{folder / 'in'}', 'format' = '{wanted}', 'maxFilesPerTrigger' = '1');"
        f"CREATE MAPPING out TYPE File OPTIONS ('path' = '{folder / 'out'}', 'format' = 'parquet');"
        f"INSERT INTO out SELECT {names} FROM f WHERE k > 9;"
    )
    costs: list[Cost] = []
    before = [cpu_seconds()]
    own = Rereading.of_batch

    def of_batch(self: Rereading, batch: BatchFiles | None) -> TextReread | None:
        return own(self, batch) if has_it(len(costs)) else None

    def on_tick(result: TickResult, took: float, parts: Mapping[str, float]) -> None:
        now = cpu_seconds()
        costs.append(Cost(took, now - before[0]))
        before[0] = now

    patched: Any = Rereading
    patched.of_batch = of_batch
    try:
        session.start(session.build_session_settings(master="local[2]"))
        run_job(
            job,
            plan_job(job),
            RunSettings(str(folder / "checkpoint"), partitions=2, until_caught_up=True, on_tick=on_tick),
        )
    finally:
        patched.of_batch = own
    if len(costs) != ticks:
        raise SystemExit(f"{len(costs)} of {ticks} ticks")
    return in_pairs(costs, WARM_UP_TICKS)


def told(rows: int, pairs: Sequence[tuple[Cost, Cost]]) -> str:
    """A line per kind of seconds: medians, and of the differences the mean and quartiles."""
    lines = [
        f"{rows:,} rows a tick, {len(pairs)} pairs; s looked, not looked, difference (mean; half between)"
    ]
    for name in ("wall", "cpu"):
        seconds = [(getattr(looked, name), getattr(plain, name)) for looked, plain in pairs]
        lines.append(f"  {name:<5} {compared(seconds, 2)}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run_on", description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--rows", type=int, default=400_000, help="per tick")
    parser.add_argument("--lines", choices=("flat", "nested", "nan", "running-on", "csv"), default="flat")
    asked = parser.parse_args(argv)
    pairs = measure(BENCH / "work" / "run_on", asked.rows, asked.pairs, asked.lines)
    print(f"{asked.lines}: {told(asked.rows, pairs)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
