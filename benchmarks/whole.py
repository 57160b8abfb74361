"""A whole run of one system, from the command to its end, as `benchmarks.bars` measures it.

watersmeet is run by its command line, Spark by a script of its own (`benchmarks.spark_own`): same files,
cores and heap, state and result on disk, and neither has an archive of the JVM's classes. Flink, where it is
installed, is run by `benchmarks.flink_own`, which says what it needs: its state is in memory and not durable.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import MappingProxyType

import pyspark

from benchmarks import child, compare, flink_own, measure
from benchmarks.child import CORES, KAFKA_JARS, Arguments, Topics
from benchmarks.ours import job_text
from benchmarks.side_by_side import BENCH, TIMEOUT_S, environment
from benchmarks.workloads import WORKLOADS, Workload, no_rows, prepare

OURS, SPARK = "watersmeet", "spark"
FLINK, FLINK_SQL, FLINK_BATCH = "flink", "flink-sql", "flink-batch"
FLINKS = {FLINK: "default", FLINK_SQL: "sql", FLINK_BATCH: "batch"}
"""Name → variant of `benchmarks.flink_own`."""


@dataclass(frozen=True)
class Whole:
    """``seconds``, ``cpu_s``: from the command to its end, all its processes; ``ticks_s``: of ticks but the
    first (not of Flink); ``peak``: bytes; ``rows_out``: None when not those of DuckDB's batch join."""

    seconds: float
    cpu_s: float
    ticks_s: list[float]
    peak: int
    rows_out: int | None

    def tick(self, workload: Workload) -> float:
        """Median of those after the third."""
        return median(self.ticks_s[max(workload.warm_from - 1, 0) :])


def command(
    system: str, workload: Workload, data: Path, work: Path, kind: str, topics: Topics | None = None
) -> list[str]:
    """What starts it. ``work``: a directory for all that is written; ``topics``: not for Flink."""
    if system == SPARK:
        return child.command("benchmarks.spark_own", workload, data, work, kind, "default", topics=topics)
    if system in FLINKS:
        python = flink_own.python()
        assert python is not None, "`benchmarks.bars` leaves Flink out before"
        return child.command(
            "benchmarks.flink_own", workload, data, work, kind, FLINKS[system], python=str(python)
        )
    arguments = Arguments(workload, data, work, kind, "default", topics)
    (work / "job.sql").write_text(job_text(arguments))
    settings = {name: value for name, value in arguments.conf().items() if name in SETTINGS}
    given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    if topics is not None:
        given += ["--jars", str(KAFKA_JARS)]
    return [
        *(sys.executable, "-m", "watersmeet", "run", str(work / "job.sql"), "--until-caught-up", "--quiet"),
        *("--master", f"local[{CORES}]", "--checkpoint", str(arguments.checkpoint), *given),
    ]


SETTINGS = ("spark.driver.memory", "spark.local.dir", "spark.sql.streaming.minBatchesToRetain")
"""Of those that both have; the others watersmeet sets itself. Ticks are timed by the commits of all batches,
of which it would keep the last twenty."""


def hadoop_classes() -> str:
    """The class path of Hadoop's classes that come with Spark: Flink's reader of Parquet has none itself."""
    return os.pathsep.join(map(str, Path(pyspark.__file__).parent.glob("jars/hadoop-client-*.jar")))


def archives() -> dict[str, dict[str, str]]:
    """By system the variables by which its JVM takes its classes from an archive of them, as `watersmeet
    prepare` makes one: ours of that, Spark's of a run of its own join. They are made, if need be."""
    kept = BENCH / "classes"
    ours = {"XDG_CACHE_HOME": str(kept / "ours")}
    prepare_ours = [sys.executable, "-m", "watersmeet", "prepare"]
    subprocess.run(prepare_ours, env=environment() | ours, check=True, stdout=subprocess.DEVNULL)
    archive, workload = kept / "spark.jsa", WORKLOADS["1k"]
    if not archive.exists():
        making = {"SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={archive} -Xlog:cds*=off"}
        run(SPARK, workload, "left", more=making)
    return {OURS: ours, SPARK: {"SPARK_SUBMIT_OPTS": f"-XX:SharedArchiveFile={archive}"}}


def run(
    system: str,
    workload: Workload,
    kind: str,
    *,
    empty: bool = False,
    more: Mapping[str, str] = MappingProxyType({}),
    topics: Topics | None = None,
) -> Whole:
    """``empty``: the same command with no rows; ``more``: variables of its environment; ``topics``: where the
    rows are records."""
    data = no_rows(BENCH / "data") if empty else prepare(workload, BENCH / "data")
    work = BENCH / "work" / f"whole-{workload.name}-{kind}-{system}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    env = {**environment(), "XDG_CACHE_HOME": str(work / "cache"), **more}
    if system in FLINKS:
        env["HADOOP_CLASSPATH"] = hadoop_classes()
    began = time.monotonic()
    usage = measure.run(
        command(system, workload, data, work, kind, topics), work / "log", env=env, timeout_s=TIMEOUT_S
    )
    seconds = time.monotonic() - began
    ended, rows = [], None
    if not empty:
        if system not in FLINKS:
            commits = work / "checkpoint" / ("commits" if system == SPARK else "spark/commits")
            ended = child.commit_times(commits, workload.all_ticks)
        have = compare.of_files(
            kind, f"{work}/out/*.parquet", f"{work}/out/*/*.parquet", f"{work}/out/part-*[0-9]"
        )
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
