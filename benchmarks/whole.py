"""A whole run of either system, from the command to its end, as `benchmarks.bars` measures it.

watersmeet is run by its command line, Spark by a script of its own (`benchmarks.spark_own`): same files,
cores and heap, state and result on disk, and neither has an archive of the JVM's classes.
"""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks import child, compare, measure
from benchmarks.child import CORES, Arguments
from benchmarks.ours import job_text
from benchmarks.side_by_side import BENCH, TIMEOUT_S, environment
from benchmarks.workloads import Workload, no_rows, prepare

OURS, SPARK = "watersmeet", "spark"


@dataclass(frozen=True)
class Whole:
    """``seconds``, ``cpu_s``: from the command to its end, all its processes; ``ticks_s``: of ticks but the
    first; ``peak``: bytes; ``rows_out``: None when they are not those of DuckDB's batch join."""

    seconds: float
    cpu_s: float
    ticks_s: list[float]
    peak: int
    rows_out: int | None

    def tick(self, workload: Workload) -> float:
        """Median of those after the third."""
        return median(self.ticks_s[max(workload.warm_from - 1, 0) :])


def command(system: str, workload: Workload, data: Path, work: Path, kind: str) -> list[str]:
    """What starts it. ``work``: a directory for all that is written."""
    if system == SPARK:
        return child.command("benchmarks.spark_own", workload, data, work, kind, "default")
    arguments = Arguments(workload, data, work, kind, "default")
    (work / "job.sql").write_text(job_text(arguments))
    settings = {name: value for name, value in arguments.conf().items() if name in SETTINGS}
    given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    return [
        *(sys.executable, "-m", "watersmeet", "run", str(work / "job.sql"), "--until-caught-up", "--quiet"),
        *("--master", f"local[{CORES}]", "--checkpoint", str(arguments.checkpoint), *given),
    ]


SETTINGS = ("spark.driver.memory", "spark.local.dir", "spark.sql.streaming.minBatchesToRetain")
"""Of those that both have; the others watersmeet sets itself. Ticks are timed by the commits of all batches,
of which it would keep the last twenty."""


def run(system: str, workload: Workload, kind: str, *, empty: bool = False) -> Whole:
    """``empty``: the same command with no rows."""
    data = no_rows(BENCH / "data") if empty else prepare(workload, BENCH / "data")
    work = BENCH / "work" / f"whole-{workload.name}-{kind}-{system}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    env = {**environment(), "XDG_CACHE_HOME": str(work / "cache")}
    began = time.monotonic()
    usage = measure.run(
        command(system, workload, data, work, kind), work / "log", env=env, timeout_s=TIMEOUT_S
    )
    seconds = time.monotonic() - began
    ended, rows = [], None
    if not empty:
        commits = work / "checkpoint" / ("commits" if system == SPARK else "spark/commits")
        ended = child.commit_times(commits, workload.all_ticks)
        have = compare.of_files(kind, f"{work}/out/*.parquet", f"{work}/out/*/*.parquet")
        rows = have.rows if have == compare.expected(data, kind) else None
    last = usage.samples[-1]
    found = Whole(
        seconds,
        sum(last.cpu_s.values()),
        [after - before for before, after in pairwise(ended)],
        usage.peak(last.at).total,
        rows,
    )
    shutil.rmtree(work, ignore_errors=True)  # a JVM that outlives its command takes its own files away
    return found
