"""Where a tick's time goes in watersmeet: the driver's parts, Python in the tasks, the threads of the JVM.

    python -m benchmarks.tick_profile [--workload NAME] [--kind KIND]

Runs the workload once, with clocks and a profiler in the tasks (which cost a tenth or so). Figures are of
the warm ticks only.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from benchmarks import child, measure
from benchmarks.child import Report
from benchmarks.side_by_side import BENCH, TIMEOUT_S, environment
from benchmarks.workloads import KINDS, WORKLOADS, prepare

TOP = 14
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Profiled:
    """A task's function, timed: seconds that it waited for input, worked, and waited for its output to be
    taken."""

    inner: Callable[[Batches], Batches]
    kind: str
    folder: str

    def __call__(self, batches: Batches) -> Batches:
        profile = cProfile.Profile()
        clock = {"in": 0.0, "work": 0.0, "out": 0.0, "rows": 0.0}

        def timed() -> Batches:
            while True:
                profile.disable()
                before = time.perf_counter()
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                finally:
                    clock["in"] += time.perf_counter() - before
                    profile.enable()
                yield batch

        started = time.perf_counter()
        profile.enable()
        try:
            for batch in self.inner(timed()):
                profile.disable()
                before = time.perf_counter()
                clock["rows"] += batch.num_rows
                yield batch
                clock["out"] += time.perf_counter() - before
                profile.enable()
        finally:
            profile.disable()
            clock["work"] = time.perf_counter() - started - clock["in"] - clock["out"]
            stem = os.path.join(self.folder, f"{self.kind}-{os.getpid()}-{time.time_ns()}")
            profile.dump_stats(f"{stem}.prof")
            Path(f"{stem}.json").write_text(json.dumps({"kind": self.kind, "at": time.time(), **clock}))


def install(folder: Path) -> None:
    """Have the engine's tasks profiled, in this process's session."""
    from watersmeet.runtime.spark.tick import ingest, nodes

    folder.mkdir(parents=True)
    for place, name in ((ingest, "IngestTask"), (nodes, "ToNode"), (nodes, "ToSink")):
        task: Any = getattr(place, name)
        setattr(place, name, lambda *given, task=task, name=name: Profiled(task(*given), name, str(folder)))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workload", default="100k", choices=list(WORKLOADS))
    parser.add_argument("--kind", default="inner", choices=list(KINDS))
    arguments = parser.parse_args(argv)
    workload = WORKLOADS[arguments.workload]
    data = prepare(workload, BENCH / "data")
    work = BENCH / "work" / f"{workload.name}-{arguments.kind}-profile"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    command = child.command("benchmarks.ours", workload, data, work, arguments.kind, "profile")
    usage = measure.run(command, work / "log", env=environment(), timeout_s=TIMEOUT_S, threads=True)
    report = Report.read(work)
    moments = [report.started, *report.ended]
    start, end = moments[workload.warm_from], moments[-1]
    ticks = workload.all_ticks - workload.warm_from
    walls = [b - a for a, b in pairwise(moments)][workload.warm_from :]
    million = workload.rows_of(workload.all_ticks - 1, len(KINDS[arguments.kind].sides)) * ticks / 1e6
    print(f"{workload.name}, {arguments.kind}: {ticks} warm ticks, median {median(walls):.3f} s\n")
    _print_parts(report.parts[workload.warm_from :], walls)
    _print_tasks(work / "profile", start, end, ticks)
    _print_cpu(usage, start, end, million)
    return 0


def _print_parts(parts: Sequence[Mapping[str, float]], walls: Sequence[float]) -> None:
    print("seconds of a tick, medians:")
    for name in dict.fromkeys(name for each in parts for name in each if name != "tick"):
        print(f"  {median(each.get(name, 0.0) for each in parts):7.3f}  {name}")
    around = median(wall - each["tick"] for wall, each in zip(walls, parts, strict=True))
    print(f"  {around:7.3f}  around it: Spark's listing of files, offsets, planning, commit\n")


def _print_tasks(folder: Path, start: float, end: float, ticks: int) -> None:
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    stats: dict[str, pstats.Stats] = {}
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text())
        if not start <= found["at"] <= end:
            continue
        kind = found["kind"]
        for name in ("in", "work", "out", "rows"):
            sums[kind][name] += found[name]
        sums[kind]["tasks"] += 1
        profile = str(path.with_suffix(".prof"))
        if kind in stats:
            stats[kind].add(profile)
        else:
            stats[kind] = pstats.Stats(profile)
    print("Python in the tasks, seconds per tick, all tasks together:")
    for kind, of in sums.items():
        print(
            f"  {kind:<7} {of['work'] / ticks:.3f} at work, {of['in'] / ticks:.3f} waiting for rows, "
            f"{of['out'] / ticks:.3f} handing rows out; {of['tasks'] / ticks:.0f} tasks"
        )
    for kind, each in stats.items():
        print(f"\n{kind}, seconds per tick in the function itself (with those that it calls):")
        rows = sorted(each.stats.items(), key=lambda item: -item[1][2])[:TOP]  # type: ignore[attr-defined]
        for (file, line, name), (_, calls, own, whole, _) in rows:
            where = name if file == "~" else f"{'/'.join(Path(file).parts[-2:])}:{line} {name}"
            print(f"  {own / ticks:7.4f} ({whole / ticks:7.4f})  {calls / ticks:8.1f} ×  {where}")


def _print_cpu(usage: measure.Usage, start: float, end: float, million: float) -> None:
    print("\nCPU seconds per million rows in:")
    for kind, seconds in usage.cpu_s(start, end).items():
        print(f"  {seconds / million:6.2f}  {kind}")
    print("of the JVM, by threads:")
    threads = usage.thread_cpu_s(start, end)
    for name, seconds in sorted(threads.items(), key=lambda item: -item[1]):
        if seconds / million >= 0.02:
            print(f"  {seconds / million:6.2f}  {name}")


if __name__ == "__main__":
    sys.exit(main())
