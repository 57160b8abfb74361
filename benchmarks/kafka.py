"""The same joins with rows as JSON in Kafka, whole runs: watersmeet beside Spark's own stream-stream join.

    python -m benchmarks.kafka [--workload 1k] [--kind inner] [--rounds N]

A workload's files (`benchmarks.workloads`) become records of a topic per side, one partition each, before
anything is timed; so a tick takes exactly those of a file. Both systems run in turn, every other round in the
opposite order, and so does each over topics without records: a whole run is from the command to its end, less
that. The result goes to Parquet files, and is compared with DuckDB's batch join.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import child, compare, measure
from benchmarks.child import CORES, Arguments, Topics
from benchmarks.ours import job_text
from benchmarks.side_by_side import BENCH, ROOT, TIMEOUT_S, environment
from benchmarks.whole import OURS, SETTINGS, SPARK, Whole
from benchmarks.workloads import KINDS, WORKLOADS, Workload, no_rows, prepare, prepared
from tests.support.kafka import KafkaBroker

JARS = ROOT / ".jars" / "spark-kafka"


def texts(table: pa.Table) -> list[str]:
    """The rows of a workload's file as JSON objects."""
    times = pc.strftime(table["t"], "%Y-%m-%dT%H:%M:%SZ")  # of microseconds: with their fraction
    parts = ['{"k": ', table["k"].cast(pa.string()), ', "t": "', times, '", "v": ']
    parts += [table["v"].cast(pa.string()), ', "s": "', table["s"], '"}', ""]
    found: list[str] = pc.binary_join_element_wise(*parts).to_pylist()
    return found


def fill(broker: KafkaBroker, topic: str, folder: Path) -> None:
    """Records of a side's files, in their order."""
    broker.create_topic(topic)
    for path in sorted(folder.glob("*.parquet")):
        broker.produce(topic, [(0, None, row) for row in texts(pq.read_table(path))])


def command(system: str, arguments: Arguments) -> list[str]:
    """What starts it, with Spark's connector to Kafka."""
    if system == SPARK:
        topics = arguments.topics
        assert topics is not None
        given = (arguments.workload, arguments.data, arguments.work, arguments.kind, "default")
        return [*child.command("benchmarks.spark_own", *given), "--topics", topics.servers, topics.names]
    (arguments.work / "job.sql").write_text(job_text(arguments))
    conf = [f"{name}={value}" for name, value in arguments.conf().items() if name in SETTINGS]
    return [
        *(sys.executable, "-m", "watersmeet", "run", str(arguments.work / "job.sql"), "--until-caught-up"),
        *("--quiet", "--master", f"local[{CORES}]", "--checkpoint", str(arguments.checkpoint)),
        *("--jars", str(JARS), *(part for one in conf for part in ("--conf", one))),
    ]


def run(system: str, arguments: Arguments) -> Whole:
    work = arguments.work
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    jars = f"--conf spark.jars={','.join(map(str, JARS.glob('*.jar')))} pyspark-shell"
    env = {**environment(), "XDG_CACHE_HOME": str(work / "cache")}
    if system == SPARK:
        env["PYSPARK_SUBMIT_ARGS"] = jars
    began = time.monotonic()
    usage = measure.run(command(system, arguments), work / "log", env=env, timeout_s=TIMEOUT_S)
    seconds = time.monotonic() - began
    commits = work / "checkpoint" / ("commits" if system == SPARK else "spark/commits")
    ended = child.commit_times(commits, arguments.workload.all_ticks)
    rows: int | None = 0
    if arguments.workload.ticks:
        have = compare.of_files(arguments.kind, f"{work}/out/*.parquet", f"{work}/out/*/*.parquet")
        rows = have.rows if have == compare.expected(arguments.data, arguments.kind) else None
    last = usage.samples[-1]
    return Whole(
        seconds,
        sum(last.cpu_s.values()),
        [after - before for before, after in pairwise(ended)],
        usage.peak(last.at).total,
        rows,
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kafka", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--workload", default="1k", choices=[one for one in WORKLOADS if "state" not in one])
    parser.add_argument("--kind", default="inner", choices=list(KINDS))
    parser.add_argument("--rounds", type=int, default=1)
    asked = parser.parse_args(argv)
    workload, kind = WORKLOADS[asked.workload], asked.kind
    ratios: dict[str, list[float]] = {}
    with KafkaBroker() as broker:
        full = (prepare(workload, BENCH / "data"), Topics(broker.bootstrap_servers, workload.name))
        none = (no_rows(BENCH / "data"), Topics(broker.bootstrap_servers, "none"))
        for data, topics in (full, none):
            for side in KINDS[kind].sides:
                fill(broker, topics.of(side), data / side)
        for number in range(asked.rounds):
            took: dict[str, tuple[Whole, Whole]] = {}
            for system in (OURS, SPARK) if number % 2 == 0 else (SPARK, OURS):
                runs = []
                for what, (data, topics) in (("no rows", none), (f"{workload.name}, {kind}", full)):
                    of_data = workload if data is full[0] else prepared(data, workload.heap)
                    work = BENCH / "work" / f"kafka-{kind}-{system}"
                    found = run(system, Arguments(of_data, data, work, kind, "default", topics))
                    said = "" if found.rows_out is not None else ", NOT THE ROWS OF THE BATCH JOIN"
                    print(
                        f"round {number + 1}, {system}, {what}: {found.seconds:.1f} s,"
                        f" {found.cpu_s:.1f} CPU s, {found.peak / 1e6:.0f} MB{said}",
                        flush=True,
                    )
                    if said:
                        return 1
                    runs.append(found)
                    shutil.rmtree(work, ignore_errors=True)
                took[system] = (runs[0], runs[1])
            for name, ratio in compared(took[OURS], took[SPARK], workload):
                ratios.setdefault(name, []).append(ratio)
    for name, values in ratios.items():
        print(f"{name:55} {median(values):8.2f}   ({', '.join(f'{value:.2f}' for value in values)})")
    return 0


def compared(
    ours: tuple[Whole, Whole], theirs: tuple[Whole, Whole], workload: Workload
) -> list[tuple[str, float]]:
    """Of runs without rows and with them. What, and Spark's by ours unless it says otherwise."""
    (our_none, our_rows), (none, rows) = ours, theirs
    return [
        ("whole run, x Spark", (rows.seconds - none.seconds) / (our_rows.seconds - our_none.seconds)),
        ("the same, empty run not taken off", rows.seconds / our_rows.seconds),
        ("median tick after the third, ms", 1000 * our_rows.tick(workload)),
        ("median tick after the third, of Spark's", our_rows.tick(workload) / rows.tick(workload)),
        ("CPU, x less", rows.cpu_s / our_rows.cpu_s),
        ("CPU, empty run taken off, x less", (rows.cpu_s - none.cpu_s) / (our_rows.cpu_s - our_none.cpu_s)),
        ("peak memory, of Spark's", our_rows.peak / rows.peak),
    ]


if __name__ == "__main__":
    sys.exit(main())
