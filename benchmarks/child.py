"""What both systems' processes share: arguments, the session's neutral settings, and what they report.

When a tick ended is read from the modification times of Spark's commit files, in both systems: the file of
batch n is written when all of batch n is done, and looking costs the run nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.workloads import KINDS, Workload, prepared

CORES = 2
KAFKA_JARS = Path(__file__).resolve().parents[1] / ".jars" / "spark-kafka"
"""Spark's connector."""
NEUTRAL = {
    "spark.master": f"local[{CORES}]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.minBatchesToRetain": "100",
    "spark.sql.streaming.numRecentProgressUpdates": "200",
}
"""Settings that are the same in both. The number of batches to keep is Spark's default."""


@dataclass(frozen=True)
class Topics:
    """Where a workload's rows are records. ``names``: what the names of its topics begin with."""

    servers: str
    names: str

    def of(self, side: str) -> str:
        return f"{self.names}-{side}"


@dataclass(frozen=True)
class Arguments:
    """``topics``: None: rows are read from the files."""

    workload: Workload
    data: Path
    work: Path
    kind: str
    variant: str
    topics: Topics | None = None

    @property
    def out(self) -> Path:
        return self.work / "out"

    @property
    def checkpoint(self) -> Path:
        return self.work / "checkpoint"

    def conf(self) -> dict[str, str]:
        """The session's settings that are the same in both systems."""
        local = {
            "spark.local.dir": str(self.work / "tmp"),
            "spark.sql.warehouse.dir": str(self.work / "warehouse"),
        }
        if self.topics is not None:
            local["spark.jars"] = ",".join(str(jar) for jar in KAFKA_JARS.glob("*.jar"))
        return {**NEUTRAL, **local, "spark.driver.memory": self.workload.heap}


@dataclass
class Report:
    """``started``: wall clock right before the query was built and started; ``ended``: per tick, without the
    sentinel's. ``retained``: rows at the end of the last tick; ``state_bytes``: on disk then. ``parts``: per
    tick the seconds (ours) or milliseconds (Spark's) of its parts."""

    started: float
    ended: list[float]
    retained: int | None = None
    state_bytes: int | None = None
    late: int | None = None
    parts: list[dict[str, float]] = field(default_factory=list)

    def write(self, work: Path) -> None:
        (work / "report.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, work: Path) -> Report:
        return cls(**json.loads((work / "report.json").read_text()))


def parse(doc: str, variants: tuple[str, ...]) -> Arguments:
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--data", required=True, type=Path, help="what workloads.prepare gave")
    parser.add_argument("--heap", required=True, help="of the JVM, such as 2g")
    parser.add_argument("--work", required=True, type=Path, help="an empty directory for all that is written")
    parser.add_argument("--kind", default="inner", choices=list(KINDS))
    parser.add_argument("--variant", default=variants[0], choices=variants)
    parser.add_argument(
        "--topics", nargs=2, help="the broker's servers, and what the topics' names begin with"
    )
    given = parser.parse_args()
    workload = prepared(given.data, given.heap)
    topics = None if given.topics is None else Topics(*given.topics)
    return Arguments(workload, given.data.resolve(), given.work.resolve(), given.kind, given.variant, topics)


def command(
    module: str,
    workload: Workload,
    data: Path,
    work: Path,
    kind: str,
    variant: str,
    *,
    topics: Topics | None = None,
    python: str = sys.executable,
) -> list[str]:
    """What starts a child, in this Python or another; `parse` takes it apart."""
    given = {"data": data, "heap": workload.heap, "work": work, "kind": kind, "variant": variant}
    options = [text for name, value in given.items() for text in (f"--{name}", str(value))]
    if topics is not None:
        options += ["--topics", topics.servers, topics.names]
    return [python, "-m", module, *options]


def commit_times(commits: Path, ticks: int) -> list[float]:
    """When each of the first ``ticks`` batches ended. One batch is one tick."""
    return [(commits / str(tick)).stat().st_mtime_ns / 1e9 for tick in range(ticks)]


def bytes_in(folder: Path) -> int:
    """Of all files in the folder and below; files may come and go meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total
