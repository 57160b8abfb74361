"""What it costs to ask a Kafka sink's brokers, twice a tick, whether the sink took its rows.

    python -m benchmarks.taken [--pairs N] [--rows N ...]

One job reads files of so many rows each, one a tick, and sends them to a topic of a broker on this machine.
In turn a tick asks and the next one does not; which of the two of a pair comes first alternates, too. Seconds
are those of the tick; CPU seconds are from one tick's end to the next one's: of the job (driver, JVM,
workers), and beside them the broker's.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.pairs import compared, cpu_of, cpu_seconds, has_it, in_pairs
from benchmarks.side_by_side import BENCH
from tests.support.kafka import KafkaBroker

ROOT = Path(__file__).resolve().parent.parent
WARM_UP_TICKS = 6
PARTITIONS = 4


@dataclass(frozen=True)
class Cost:
    """Seconds of one tick."""

    wall: float
    cpu: float
    broker: float


def prepare(folder: Path, rows: int, ticks: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "in").mkdir(parents=True)
    for tick in range(ticks):
        numbers = np.arange(rows) + tick * rows
        pq.write_table(pa.table({"k": numbers, "t": numbers}), folder / "in" / f"{tick:04d}.parquet")


def measure(broker: KafkaBroker, folder: Path, rows: int, pairs: int) -> list[tuple[Cost, Cost]]:
    """Per pair of ticks what they cost: (asked, not asked)."""
    from watersmeet.parser.statements import parse_job
    from watersmeet.plan.planner import plan_job
    from watersmeet.runtime.coordinator.results import TickResult
    from watersmeet.runtime.spark.job import session
    from watersmeet.runtime.spark.job.run import run_job
    from watersmeet.runtime.spark.job.settings import RunSettings
    from watersmeet.runtime.spark.tick.sink_row_counts import SinkRowCounter, WrittenRows
    from watersmeet.sinks.base import Sink

    topic, ticks = f"taken-{rows}", WARM_UP_TICKS + 2 * pairs
    prepare(folder, rows, ticks)
    broker.create_topic(topic, partitions=PARTITIONS)
    job = parse_job(
        f"CREATE MAPPING f (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 1000000000) TYPE File "
        f"OPTIONS ('path' = '{folder / 'in'}', 'format' = 'parquet', 'maxFilesPerTrigger' = '1');"
        f"CREATE MAPPING out TYPE Kafka "
        f"OPTIONS ('bootstrap.servers' = '{broker.bootstrap_servers}', 'topic' = '{topic}');"
        "INSERT INTO out SELECT k, t FROM f;"
    )
    server = broker.process_id
    costs: list[Cost] = []
    before = [*_cpu_s(server)]
    own = SinkRowCounter.of

    def of(
        self: SinkRowCounter,
        sink: Sink,
        insert: str,
        tick: int,
        attempt: str,
        write: Callable[[], object],
        given: Callable[[], int],
    ) -> WrittenRows | None:
        if has_it(len(costs)):
            return own(self, sink, insert, tick, attempt, write, given)
        write()
        return None

    def on_tick(result: TickResult, took: float, parts: Mapping[str, float]) -> None:
        now = [*_cpu_s(server)]
        costs.append(Cost(took, now[0] - before[0], now[1] - before[1]))
        before[:] = now

    kept: Any = SinkRowCounter
    kept.of = of
    try:
        session.start(
            session.build_session_settings(
                master="local[2]", jars=str(ROOT / ".jars" / "spark-kafka"), kafka=True
            )
        )
        run_job(
            job,
            plan_job(job),
            RunSettings(str(folder / "checkpoint"), partitions=2, until_caught_up=True, on_tick=on_tick),
        )
    finally:
        kept.of = own
    found = len(broker.consume_all(topic))
    if len(costs) != ticks or found != rows * ticks:
        raise SystemExit(f"{len(costs)} of {ticks} ticks, {found:,} of {rows * ticks:,} rows")
    return in_pairs(costs, WARM_UP_TICKS)


def _cpu_s(server: int) -> tuple[float, float]:
    """CPU seconds so far: of this process and what it started, and of the broker."""
    return cpu_seconds(but=server), cpu_of(psutil.Process(server))


def told(rows: int, pairs: Sequence[tuple[Cost, Cost]]) -> str:
    """A line per kind of seconds, in milliseconds: medians, and of the differences the mean and quartiles."""
    lines = [
        f"{rows:,} rows a tick, {len(pairs)} pairs; ms asked, not asked, difference (mean; half between)"
    ]
    for name in ("wall", "cpu", "broker"):
        ms = [(1e3 * getattr(asked, name), 1e3 * getattr(plain, name)) for asked, plain in pairs]
        lines.append(f"  {name:<6} {compared(ms, 1)}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.taken", description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 100_000], help="per tick")
    asked = parser.parse_args(argv)
    with KafkaBroker() as broker:
        for rows in asked.rows:
            found = measure(broker, BENCH / "work" / "taken", rows, asked.pairs)
            print(told(rows, found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
