"""What is aimed at beside Spark's own joins and Flink's, as one table: workload, measured, bar, met or not.

    python -m benchmarks.bars [--only PART]… [--rounds N] [--quick] [--archives]

Both systems run side by side: same files, cores and heap, in turn, every other round in the opposite order
(see `benchmarks.whole`). A *whole run* is from the command to its end, less the same command with no rows;
the line below it says what comes without that subtraction. Ratios are taken within a round; what counts is
their median. CPU seconds are those of all processes, the start included. All rows are compared with DuckDB's
batch join.

Apache Flink takes part where the variable ``FLINK_VENV`` names a virtual environment that has it
(`benchmarks.flink_own` says how to make one); else its parts are left out, which is said.

``--archives``: ours and Spark's both start from an archive of their Java classes (`watersmeet prepare`); else
neither does.

Two parts are beside others: *keyless*, a join by time alone beside DuckDB's batch (`benchmarks.keyless`), and
*retained*, ticks with a hundred times the rows retained, in one process without Spark, which takes ten
minutes and 5 GB of disk (`benchmarks.retention`).

``--quick``: one round of the small workloads. The whole takes an hour or more. Of the first
row: `benchmarks.start`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import Any

from benchmarks import flink_own, keyless, retention, whole
from benchmarks.child import Topics
from benchmarks.measure import ChildFailed
from benchmarks.side_by_side import Bar
from benchmarks.whole import FLINK, FLINK_BATCH, FLINK_SQL, FLINKS, OURS, SPARK, Whole
from benchmarks.workloads import WORKLOADS


@dataclass(frozen=True)
class Part:
    """``faster``, ``less_cpu``: at least so many times, of the whole run; ``warm``: of ticks after the third;
    ``tick``, ``tick_ms``: at most, of a tick's median to Spark's, and in ms; ``other``: beside ours."""

    workload: str
    kinds: tuple[str, ...]
    other: str = SPARK
    faster: float | None = None
    warm: float | None = None
    less_cpu: float | None = None
    tick: float | None = None
    tick_ms: float | None = None


PARTS = {
    "1k": Part("1k", ("inner", "left"), tick=0.4, tick_ms=120),
    "100k": Part("100k", ("inner", "left"), faster=7, warm=12, less_cpu=5),
    "500k": Part("500k", ("inner",), faster=10, less_cpu=8),
    "three": Part("100k", ("inner3", "left3"), faster=12),
    "flink-100k": Part("100k", ("inner", "left"), FLINK, faster=2),
    "flink-500k": Part("500k", ("inner",), FLINK, faster=5),
    "flink-sql": Part("100k", ("inner",), FLINK_SQL),
    "flink-batch": Part("100k", ("inner",), FLINK_BATCH),
}
KEYLESS, RETAINED = "keyless", "retained"
NAMES = {SPARK: "Spark", FLINK: "Flink", FLINK_SQL: "Flink, files in any order", FLINK_BATCH: "Flink, batch"}
PEAK = 0.5
"""Of Spark's memory, at most."""


@dataclass(frozen=True)
class Round:
    """One run of each system, with rows and with none."""

    ours: Whole
    theirs: Whole
    ours_empty: Whole
    theirs_empty: Whole

    def less_empty(self) -> float:
        return (self.theirs.seconds - self.theirs_empty.seconds) / (
            self.ours.seconds - self.ours_empty.seconds
        )

    def cpu_less_empty(self) -> float:
        return (self.theirs.cpu_s - self.theirs_empty.cpu_s) / (self.ours.cpu_s - self.ours_empty.cpu_s)


def bars(part: Part, kind: str, rounds: Sequence[Round]) -> Iterator[Bar]:
    """What the rounds say of a part, a bar each. Those without a bar of their own have 0, and are met."""
    name, other, of = f"{part.workload}, {kind}", NAMES[part.other], median
    if part.other != SPARK:
        name += f", beside {other}"
    yield Bar(f"{name}: whole run, × {other}", of(r.less_empty() for r in rounds), part.faster or 0)
    yield Bar(
        f"{name}: the same, empty run not taken off", of(r.theirs.seconds / r.ours.seconds for r in rounds), 0
    )
    if part.other == SPARK:
        yield from _of_ticks(part, name, rounds)
    yield Bar(f"{name}: CPU, × less", of(r.theirs.cpu_s / r.ours.cpu_s for r in rounds), part.less_cpu or 0)
    yield Bar(f"{name}: CPU, empty run taken off, × less", of(r.cpu_less_empty() for r in rounds), 0)
    memory = of(r.ours.peak / r.theirs.peak for r in rounds)
    yield Bar(f"{name}: peak memory, of {other}'s", memory, PEAK if part.other == SPARK else 0, at_most=True)


def _of_ticks(part: Part, name: str, rounds: Sequence[Round]) -> Iterator[Bar]:
    workload, of = WORKLOADS[part.workload], median
    ticks = [(r.ours.tick(workload), r.theirs.tick(workload)) for r in rounds]
    yield Bar(f"{name}: ticks after the third, × Spark", of(b / a for a, b in ticks), part.warm or 0)
    if part.tick is not None:
        yield Bar(f"{name}: median tick, of Spark's", of(a / b for a, b in ticks), part.tick, at_most=True)
    if part.tick_ms is not None:
        yield Bar(f"{name}: median tick, ms", of(a * 1000 for a, _ in ticks), part.tick_ms, at_most=True)


def table(found: Sequence[Bar]) -> str:
    """One line per bar."""
    width = max(len(bar.text) for bar in found)
    lines = [f"{'workload':{width}}  measured       bar"]
    for bar in found:
        if bar.wanted:
            verdict = f"{'≤' if bar.at_most else '≥'} {bar.wanted:<6g} {'met' if bar.met else 'NOT MET'}"
        else:
            verdict = "–"
        lines.append(f"{bar.text:{width}}  {bar.value:8.2f}  {verdict:>8}")
    return "\n".join(lines)


def measured(
    part: Part,
    kind: str,
    number: int,
    archives: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    topics: Mapping[bool, Topics] = MappingProxyType({}),
) -> Round:
    """A round. ``topics``: where rows are records, of runs without rows (True) and with them (False).

    Raises: SystemExit, when rows differ or a system fails.
    """
    more = archives if part.other in archives else {}
    workload, found = WORKLOADS[part.workload], dict[tuple[str, bool], Whole]()
    for system in (OURS, part.other) if number % 2 == 0 else (part.other, OURS):
        for empty in (True, False):
            try:
                run = found[system, empty] = whole.run(
                    system, workload, kind, empty=empty, more=more.get(system, {}), topics=topics.get(empty)
                )
            except ChildFailed as failed:
                raise SystemExit(str(failed)) from None
            what = "no rows" if empty else f"{part.workload}, {kind}"
            print(
                f"round {number + 1}, {system}, {what}: {run.seconds:.1f} s, {run.cpu_s:.1f} CPU s",
                flush=True,
            )
            if not empty and run.rows_out is None:
                raise SystemExit(f"{part.workload}, {kind}: the rows of {system} are not those of DuckDB")
    return Round(found[OURS, False], found[part.other, False], found[OURS, True], found[part.other, True])


def of_keyless(rounds: int) -> Iterator[Bar]:
    """Raises: SystemExit, when rows differ."""
    for matches, ratio in told_by("benchmarks.keyless", "--rounds", str(rounds)).items():
        text = f"{KEYLESS}, {matches} matches a row: warm ticks, × DuckDB's batch"
        yield Bar(text, ratio, keyless.BAR, at_most=True)


def of_retained() -> Iterator[Bar]:
    ratio = told_by("benchmarks.retention", "--grown")
    text = f"{RETAINED}, {retention.GROWN_ROWS:,} rows: CPU of a tick, × with {retention.BASE_ROWS:,}"
    yield Bar(text, ratio, retention.GROWN_BAR, at_most=True)


def told_by(module: str, *arguments: str) -> Any:
    """What another benchmark says in its last line, run in a process of its own; what it prints is shown.

    Raises:
        SystemExit: it fails.
    """
    command, last = [sys.executable, "-m", module, *arguments], ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout or ():
            print(line, end="", flush=True)
            last = line
    if child.returncode:
        raise SystemExit(f"{' '.join(command)} has failed")
    return json.loads(last)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bars", description=(__doc__ or "").splitlines()[0]
    )
    choices = [*PARTS, KEYLESS, RETAINED]
    parser.add_argument("--only", action="append", choices=choices, help="a part (default: all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round of 1k and 100k, inner joins")
    parser.add_argument("--archives", action="store_true", help="both start from archives of their classes")
    asked = parser.parse_args(argv)
    archives = whole.archives() if asked.archives else {}
    found: list[Bar] = []
    parts = list(asked.only or (("1k", "100k") if asked.quick else (*PARTS, KEYLESS, RETAINED)))
    alone = [name for name in parts if name not in PARTS]
    parts = [name for name in parts if name in PARTS]
    if any(PARTS[name].other in FLINKS for name in parts) and flink_own.python() is None:
        print(f"Flink is left out: {flink_own.MISSING}", flush=True)
        parts = [name for name in parts if PARTS[name].other not in FLINKS]
    count = 1 if asked.quick else asked.rounds
    try:
        for name in parts:
            part = PARTS[name]
            for kind in part.kinds[:1] if asked.quick else part.kinds:
                rounds = [
                    measured(part, kind, n, archives) for n in range(1 if asked.quick else asked.rounds)
                ]
                found += bars(part, kind, rounds)
        for name in alone:
            found += of_keyless(count) if name == KEYLESS else of_retained()
    finally:  # what was measured is not lost with what came after it
        if found:
            print(f"\n{table(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
