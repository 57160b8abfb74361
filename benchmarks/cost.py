"""What a million rows cost, by counting and by the clock, against the baseline: fails when it has grown.

    python -m benchmarks.cost [--only WORKLOAD]… [--renew REASON]

Joins, a window and changes in this process, without Spark, in ticks of 50,000 and of 1,000 rows a side.
Judged by two measures:

    counted  the work of `benchmarks.counted` times what each of its kinds takes, in CPU seconds per million
             rows. It is the same on every machine and in every run, so a growth of 15 % fails
    timed    CPU seconds of the ticks by those of `benchmarks.yardstick`, run between them. Other work on a
             machine disturbs it by a fifth and more, so only 1.5 times as much fails, and only if it stays
             so in six rounds. It is there for what counting does not see

The baseline is ``benchmarks/cost_baseline.json``. ``--renew`` makes it anew, with the reason why it may
change: what costs more, and what is gained by it; or what costs less.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import yardstick
from benchmarks.cost_streams import QUERIES
from benchmarks.counted import KINDS, CountedStore, Counts
from watersmeet import LocalJob, parse_job, plan_job
from watersmeet.plan.model.job import JobPlan

BASELINE = Path(__file__).with_name("cost_baseline.json")
COUNTED_LIMIT, TIMED_LIMIT = 1.15, 1.5
ROUNDS = 6
NOISE = 0.03
"""A counted gain of more than this is worth a new baseline."""
NS = {
    "lines": 750.0,
    "allocated": 150.0,
    "bytes": 0.1,
    "sorted": 4.0,
    "sought": 1.0,
    "queries": 3.6e6,
    "query rows": 200.0,
    "written": 0.5,
}
"""What one of each kind takes, in ns: fitted to CPU seconds of these workloads, so that a count says what a
clock says on a quiet machine, within a fifth (of windows in large ticks 1.3 times as much). They weigh the
kinds against each other; edits ask for a new baseline."""


@dataclass(frozen=True)
class Size:
    """Of ticks. ``rows``: a side; ``warm``: ticks before those that count; ``partitions``: tasks, as by
    default with two cores."""

    rows: int
    ticks: int
    warm: int
    partitions: int


SIZES = (Size(50_000, ticks=5, warm=3, partitions=2), Size(1_000, ticks=15, warm=3, partitions=1))


@dataclass(frozen=True)
class Cost:
    """Of a workload. ``counts``: per million rows in; ``yardsticks``: the ticks' time by the yardstick's."""

    counts: Mapping[str, float]
    yardsticks: float

    @property
    def cpu_s(self) -> float:
        """Counted, per million rows."""
        return sum(NS[kind] * count for kind, count in self.counts.items()) / 1e9


class Workload:
    """A query in ticks of a size. Its rows are made once."""

    def __init__(self, query: str, size: Size) -> None:
        self.name = f"{query}, {size.rows:,}"
        self.size = size
        self.plan: JobPlan = plan_job(parse_job(QUERIES[query].sql(size.rows)))
        self.given = [list(QUERIES[query].given(tick, size.rows)) for tick in range(size.ticks)]
        self.rows = sum(rows.num_rows for tick in self.given[size.warm :] for _, rows, _ in tick)
        self.rounds: list[list[tuple[float, float]]] = []

    def _job(self, store: CountedStore) -> LocalJob:
        return LocalJob(self.plan, store, given=True, partitions=self.size.partitions)

    def _tick(self, job: LocalJob, number: int) -> None:
        for side, rows, diff in self.given[number]:
            job.push(side, rows, diff=diff)
        job.tick()

    def counted(self) -> dict[str, float]:
        """Per million rows."""
        store = CountedStore()
        job, counts = self._job(store), Counts(store)
        for number in range(self.size.ticks):
            if number < self.size.warm:
                self._tick(job, number)
            else:
                with counts:
                    self._tick(job, number)
        job.close()
        return {kind: round(count / self.rows * 1e6) for kind, count in counts.found.items()}

    def timed(self) -> float:
        """In yardsticks, by this round and those before: of each tick, and of the yardstick next to it, the
        least CPU time of the rounds counts."""
        job, found = self._job(CountedStore()), []
        gc.collect()
        gc.disable()
        try:
            for number in range(self.size.ticks):
                measured = _cpu_s(yardstick.work), _cpu_s(self._tick, job, number)
                if number >= self.size.warm:
                    found.append(measured)
        finally:
            gc.enable()
            job.close()
        self.rounds.append(found)
        pairs = [list(zip(*of_tick, strict=True)) for of_tick in zip(*self.rounds, strict=True)]
        ours, measure = (sum(min(pair[side]) for pair in pairs) for side in (1, 0))
        return float(ours / measure)


def _cpu_s(function: Any, *given: Any) -> float:
    began = time.process_time()
    function(*given)
    return time.process_time() - began


def measured(workload: Workload, known: Cost | None) -> Cost:
    """A round of time, and more while it is above the limit; without a baseline all."""
    counts = workload.counted()
    for _ in range(ROUNDS):
        cost = Cost(counts, round(workload.timed(), 2))
        if known is not None and cost.yardsticks <= known.yardsticks * TIMED_LIMIT:
            break
    return cost


def complaints(name: str, known: Cost | None, now: Cost) -> list[str]:
    """What has grown by too much, a line each."""
    if known is None:
        return [f"{name}: there is no baseline"]
    found = []
    grown = now.cpu_s / known.cpu_s
    if grown > COUNTED_LIMIT:
        parts = {
            kind: NS[kind] * (now.counts[kind] - known.counts[kind]) / 1e9 / known.cpu_s for kind in KINDS
        }
        most = sorted((kind for kind in parts if parts[kind] > 0), key=lambda kind: -parts[kind])[:3]
        why = "; ".join(
            f"{kind} {known.counts[kind]:,.0f} → {now.counts[kind]:,.0f} a million rows: {parts[kind]:+.0%}"
            for kind in most
        )
        found.append(
            f"{name}: {known.cpu_s:.3f} → {now.cpu_s:.3f} counted CPU s per million rows, {grown - 1:+.0%} "
            f"(at most {COUNTED_LIMIT - 1:+.0%}). {why}"
        )
    if now.yardsticks > known.yardsticks * TIMED_LIMIT:
        found.append(
            f"{name}: its ticks take {now.yardsticks:.2f} times the yardstick's CPU time, not "
            f"{known.yardsticks:.2f}, in {ROUNDS} rounds: "
            f"{now.yardsticks / known.yardsticks:.2f} × (at most {TIMED_LIMIT} ×)"
        )
    return found


def read(path: Path = BASELINE) -> dict[str, Cost]:
    """By workload."""
    content = json.loads(path.read_text())
    return {
        name: Cost({kind: given[kind] for kind in KINDS}, given["yardsticks"])
        for name, given in content["per million rows"].items()
    }


def write(costs: Mapping[str, Cost], reason: str, path: Path = BASELINE) -> None:
    """A line per workload, so that a change shows what has grown."""
    head = {"renewed": reason, "cpu_s": "counted, CPU seconds", "yardsticks": "timed, see benchmarks.cost"}
    lines = [
        f"  {json.dumps(name)}: "
        + json.dumps({"cpu_s": round(cost.cpu_s, 3), "yardsticks": cost.yardsticks, **cost.counts})
        for name, cost in costs.items()
    ]
    text = json.dumps(head, indent=1, ensure_ascii=False).removesuffix("\n}")
    path.write_text(text + ',\n "per million rows": {\n' + ",\n".join(lines) + "\n }\n}\n")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cost", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--only", action="append", choices=list(QUERIES), help="a workload (default: all)")
    parser.add_argument("--renew", metavar="REASON", help="make the baseline anew, and say there why")
    asked = parser.parse_args(argv)
    if asked.renew is not None and not asked.renew.strip():
        parser.error("--renew needs a reason")
    pa.set_cpu_count(1)
    known = read() if BASELINE.exists() else {}
    found: dict[str, Cost] = {}
    wrong: list[str] = []
    less: list[str] = []
    head = ("workload, rows a side", "counted CPU s/M", "baseline", "", "yardsticks", "baseline")
    print("{:24} {:>15} {:>9} {:>5}  {:>10} {:>9}".format(*head))
    for query in asked.only or QUERIES:
        for size in SIZES:
            workload = Workload(query, size)
            before = known.get(workload.name)
            now = found[workload.name] = measured(workload, None if asked.renew else before)
            line = f"{workload.name:24} {now.cpu_s:15.3f}"
            if before is not None:
                line += f" {before.cpu_s:9.3f} {now.cpu_s / before.cpu_s - 1:+5.0%}"
                line += f"  {now.yardsticks:10.2f} {before.yardsticks:9.2f}"
                if now.cpu_s < before.cpu_s * (1 - NOISE):
                    less.append(workload.name)
            print(line, flush=True)
            wrong += complaints(workload.name, before, now)
    print(f"{time.process_time():.0f} CPU s in all")
    if asked.renew is not None:
        write({**known, **found}, asked.renew)
        print(f"{BASELINE.name} is renewed")
        return 0
    if less:
        print(f"Less than before, renew the baseline to keep it so: {'; '.join(less)}")
    if wrong:
        print("\n".join(["", "Rows cost more than they did:", *wrong]), file=sys.stderr)
        print(
            "Where: python -m benchmarks.paired --profile. If it has to be so: "
            "python -m benchmarks.cost --renew 'what is gained by it', and commit the file.",
            file=sys.stderr,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
