"""The same joins with rows as JSON in Kafka, whole runs: watersmeet beside Spark's own stream-stream join.

    python -m benchmarks.kafka [--workload 1k] [--kind inner] [--rounds N]

A workload's files (`benchmarks.workloads`) become records of a topic per side, one partition each, before
anything is timed; so a tick takes exactly those of a file. A run without rows is one over topics without
records. All else is as in `benchmarks.bars`; there are no bars but that for memory.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.bars import Part, bars, measured, table
from benchmarks.child import Topics
from benchmarks.side_by_side import BENCH
from benchmarks.workloads import KINDS, WORKLOADS, no_rows, prepare
from tests.support.kafka import KafkaBroker


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


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kafka", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--workload", default="1k", choices=[one for one in WORKLOADS if "state" not in one])
    parser.add_argument("--kind", default="inner", choices=list(KINDS))
    parser.add_argument("--rounds", type=int, default=1)
    asked = parser.parse_args(argv)
    part, kind = Part(asked.workload, (asked.kind,), tick=0, tick_ms=0), asked.kind
    data = {True: no_rows(BENCH / "data"), False: prepare(WORKLOADS[asked.workload], BENCH / "data")}
    with KafkaBroker() as broker:
        topics = {empty: Topics(broker.bootstrap_servers, folder.name) for empty, folder in data.items()}
        for empty, folder in data.items():
            for side in KINDS[kind].sides:
                fill(broker, topics[empty].of(side), folder / side)
        rounds = [measured(part, kind, number, topics=topics) for number in range(asked.rounds)]
    print(f"\n{table(list(bars(part, kind, rounds)))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
