"""Two versions of the engine, tick by tick in turn: CPU seconds of a tick of 100,000 rows a side.

    python -m benchmarks.paired --other PATH [--kind KIND] [--rounds N] [--ticks N] [--partitions N]
                                [--ordered] [--profile]

``--other``: the ``src`` folder of the other version. A round is one process of each version; both play the
same stream (see `benchmarks.workloads`) in this machine's memory or on its disk (TMPDIR), with files as on
Spark, and take turns: one tick here, one there. So what else the machine does falls on both. A round's ratio
is (CPU seconds of the other version's median warm tick) / (of this one's): above 1 this one is faster. With
this version's own folder as the other one, the spread is the noise.
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
from typing import Any

import pyarrow as pa

from benchmarks.workloads import KINDS, WARM_UP_TICKS, WORKLOADS, Workload, minute

ROOT = Path(__file__).resolve().parent.parent
QUERY = "console"
GO = "go"


def table_of(alias: str) -> str:
    return (
        f"CREATE TABLE {alias} (k BIGINT, t TIMESTAMP, v BIGINT, s STRING, "
        f"WATERMARK FOR t AS t - INTERVAL '{WORKLOADS['100k'].lag_s}' SECONDS) WITH ('connector' = 'memory');"
    )


def play(kind: str, rows: int, partitions: int, folder: Path, *, ordered: bool, profile: bool) -> None:
    """A tick for each line that comes in, and its CPU seconds and rows out as a line; ends with the input."""
    from watersmeet.parser.statements import parse_job
    from watersmeet.plan.planner import plan_job
    from watersmeet.runtime.coordinator.driver import TickDriver
    from watersmeet.runtime.coordinator.restore.job_state import restore
    from watersmeet.runtime.tasks.ingest import IngestWriter
    from watersmeet.state.store import LocalStore

    sides = KINDS[kind].sides
    select = KINDS[kind].select({side: side for side in sides})
    plan = plan_job(parse_job("".join(map(table_of, sides)) + select))
    workload = Workload("paired", rows=rows, ticks=1)
    schemas = {
        f"{QUERY}/{side.name}": pa.schema([minute(workload, side.name, 0).schema.field(c) for c in side.kept])
        for side in plan.queries[0].sides
        if side.sources
    }
    store = LocalStore(folder)
    driver = TickDriver(restore(plan, schemas, store))
    profiler: Any = None
    for tick, _ in enumerate(sys.stdin):
        given = {
            name: minute(workload, name.split("/")[1], tick).select(schema.names).to_batches()
            for name, schema in schemas.items()
        }
        if profile and tick == WARM_UP_TICKS:
            import cProfile

            profiler = cProfile.Profile()
        if profiler is not None:
            profiler.enable()
        began, out, batches = time.process_time(), 0, 0
        begun, written = driver.begin(tick, ordered=ordered), []
        for name, found in given.items():
            writer = IngestWriter(begun.start, name, 0, store)
            for batch in found:
                writer.add(batch)
            written.append(writer.finish())
        running = begun.advance(written)
        for node in plan.queries[0].nodes:
            task, reports = running.node_task(QUERY, node.number), []
            for partition in range(partitions):
                leaving, report = task.collect(partition, partitions)
                out, batches = out + sum(batch.num_rows for batch in leaving), batches + len(leaving) + 1
                reports.append(report)
            running.settle(QUERY, node.number, reports)
        running.conclude({}).commit()
        took = time.process_time() - began
        if profiler is not None:
            profiler.disable()
        print(took, out, flush=True)
    if profiler is not None:
        profiler.dump_stats(os.environ["WATERSMEET_PROFILE"])


class Player:
    """A version in a process of its own."""

    def __init__(
        self, source: Path, asked: argparse.Namespace, kind: str, profile: str | None = None
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="paired-")
        command = [sys.executable, "-m", "benchmarks.paired", "--play", self._folder.name, "--kind", kind]
        command += ["--rows", str(asked.rows), "--partitions", str(asked.partitions)]
        environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
        if asked.ordered and source == ROOT / "src":
            command.append("--ordered")
        if profile is not None:
            command.append("--profile")
            environment["WATERSMEET_PROFILE"] = profile
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
        )

    def tick(self) -> tuple[float, int]:
        """CPU seconds, and rows that came out."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{GO}\n")
        self._process.stdin.flush()
        took, out = self._process.stdout.readline().split()
        return float(took), int(out)

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()


def compare(asked: argparse.Namespace, kind: str) -> list[tuple[float, float]]:
    """Per round the median CPU seconds of a warm tick: (this version's, the other's)."""
    found = []
    for number in range(asked.rounds):
        players = [Player(ROOT / "src", asked, kind), Player(asked.other, asked, kind)]
        seconds: tuple[list[float], list[float]] = ([], [])
        for tick in range(WARM_UP_TICKS + asked.ticks):
            counts = [0, 0]
            for each in (0, 1) if (tick + number) % 2 else (1, 0):
                took, counts[each] = players[each].tick()
                if tick >= WARM_UP_TICKS:
                    seconds[each].append(took)
            if counts[0] != counts[1]:
                raise SystemExit(f"{kind}, tick {tick}: {counts[0]:,} rows here, {counts[1]:,} there")
        for player in players:
            player.end()
        found.append((median(seconds[0]), median(seconds[1])))
        print(f"{kind}, round {number + 1}: {found[-1][1] / found[-1][0]:.3f}", flush=True)
    return found


def profile(asked: argparse.Namespace, kind: str) -> None:
    """The functions that take most of the time in each version."""
    import pstats

    for source in (ROOT / "src", asked.other):
        with tempfile.NamedTemporaryFile(suffix=".prof") as file:
            player = Player(source, asked, kind, file.name)
            for _ in range(WARM_UP_TICKS + asked.ticks):
                player.tick()
            player.end()
            print(f"\n{source}: {kind}, {asked.ticks} ticks")
            pstats.Stats(file.name).sort_stats("tottime").print_stats(30)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paired", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--other", type=lambda text: Path(text).resolve(), help="src folder of the other version"
    )
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="default: inner and left")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--ticks", type=int, default=12, help="warm ones in a round")
    parser.add_argument("--rows", type=int, default=100_000, help="per side and tick")
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--ordered", action="store_true", help="this version: rows leave as they came")
    parser.add_argument("--profile", action="store_true", help="show where the time goes instead")
    parser.add_argument("--play", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    kinds = asked.kind or ["inner", "left"]
    if asked.play is not None:
        play(kinds[0], asked.rows, asked.partitions, asked.play, ordered=asked.ordered, profile=asked.profile)
        return 0
    if asked.other is None:
        parser.error("--other is needed")
    for kind in kinds:
        if asked.profile:
            profile(asked, kind)
            continue
        found = compare(asked, kind)
        ratios = sorted(other / this for this, other in found)
        print(
            f"{kind}: median ratio {median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}, "
            f"{len(ratios)} rounds); CPU s a tick {median(this for this, _ in found):.4f} here, "
            f"{median(other for _, other in found):.4f} there",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
