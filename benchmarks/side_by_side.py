"""watersmeet beside Spark's own stream-stream joins: same files, cores and heap, alternating, rows compared.

    python -m benchmarks.side_by_side [--quick] [--workload NAME]… [--kind KIND]… [--system NAME]…
                                      [--rounds N] [--heap SIZE] [--json FILE]

Every run is a process of its own with a JVM of its own. Within a round the systems take turns, every other
one in the opposite order; a ratio is taken within a round, and what counts is the median of the rounds'
ratios: on a machine with other work to do, figures of one moment can be compared and those of different
moments cannot.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks import child, compare, measure
from benchmarks.child import Report
from benchmarks.workloads import KINDS, WORKLOADS, Workload, arrow_bytes_per_row, prepare

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT / ".bench"
TIMEOUT_S = 3_600
MB = 1e6

SYSTEMS = {
    "watersmeet": ("benchmarks.ours", "default"),
    "spark": ("benchmarks.spark_own", "default"),
    "spark-rocksdb": ("benchmarks.spark_own", "rocksdb"),
    "spark-plain": ("benchmarks.spark_own", "default-plain"),
}
"""Name → module, variant. ``spark-plain`` runs when asked for by name."""
OURS = "watersmeet"
CONTROL = "100k-state-1"


@dataclass(frozen=True)
class Part:
    """Of a bench. ``slow``: systems that take minutes here and run in the first round only."""

    workload: str
    kinds: tuple[str, ...]
    systems: tuple[str, ...]
    rounds: int
    slow: tuple[str, ...] = ()


FULL = (
    Part("1k", ("inner", "left"), (OURS, "spark"), 3),
    Part("100k", tuple(KINDS), (OURS, "spark", "spark-rocksdb"), 3),
    Part(CONTROL, ("inner", "left"), (OURS,), 3),
    Part("100k-state-50", ("inner", "left"), (OURS, "spark"), 3, slow=("spark",)),
    Part("500k", ("inner", "left"), (OURS, "spark"), 3),
)
QUICK = (
    Part("1k", ("inner",), (OURS, "spark"), 1),
    Part("100k", ("inner",), (OURS, "spark", "spark-rocksdb"), 1),
)


@dataclass(frozen=True)
class Result:
    """One run. Rates: rows in per second; ``warm``: over the ticks after the third (after the fill); memory
    in bytes; CPU: seconds per million rows in."""

    workload: str
    kind: str
    system: str
    round: int
    whole_rate: float
    warm_rate: float
    median_tick_s: float
    ticks_s: list[float]
    peak: int
    peak_of: dict[str, int]
    cpu_whole: float
    cpu_warm: float
    retained: int | None
    state_bytes: int | None
    rows_out: int
    same_rows: bool


Measure = Callable[[Result], float]


@dataclass(frozen=True)
class Bar:
    """``value`` of ours against Spark's (or our own) by ``wanted``; ``at_most``: the other way round."""

    text: str
    value: float
    wanted: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        return self.value <= self.wanted if self.at_most else self.value >= self.wanted

    def line(self) -> str:
        sign = "≤" if self.at_most else "≥"
        return (
            f"{'met    ' if self.met else 'NOT MET'}  {self.text}: {self.value:.2f} ({sign} {self.wanted:g})"
        )


def run_one(workload: Workload, kind: str, system: str, number: int, want: compare.Fingerprint) -> Result:
    """One run of one system, measured and compared."""
    module, variant = SYSTEMS[system]
    data = prepare(workload, BENCH / "data")
    work = BENCH / "work" / f"{workload.name}-{kind}-{system}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    usage = measure.run(
        child.command(module, workload, data, work, kind, variant),
        work / "log",
        env=environment(),
        timeout_s=TIMEOUT_S,
    )
    report = Report.read(work)
    patterns = (f"{work}/out/*.parquet", f"{work}/out/*/*.parquet")
    have = compare.of_files(kind, *patterns)
    if have != want:
        print(f"  rows differ: {compare.difference(data, kind, *patterns)}", flush=True)
    found = result_of(workload, kind, system, number, report, usage, have.rows, have == want)
    shutil.rmtree(work)
    return found


def environment() -> dict[str, str]:
    """Of the children: they import this package and watersmeet from here."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}


def result_of(
    workload: Workload,
    kind: str,
    system: str,
    number: int,
    report: Report,
    usage: measure.Usage,
    rows_out: int,
    same: bool,
) -> Result:
    moments = [report.started, *report.ended]
    ticks = [b - a for a, b in pairwise(moments)]
    sides = len(KINDS[kind].sides)
    rows = [workload.rows_of(tick, sides) for tick in range(workload.all_ticks)]
    warm, end = workload.warm_from, moments[-1]
    peak = usage.peak(end)
    warm_rows = sum(rows[warm:])
    return Result(
        workload=workload.name,
        kind=kind,
        system=system,
        round=number,
        whole_rate=sum(rows) / (end - moments[0]),
        warm_rate=warm_rows / (end - moments[warm]),
        median_tick_s=median(ticks[warm:]),
        ticks_s=[round(each, 3) for each in ticks],
        peak=peak.total,
        peak_of=peak.memory,
        cpu_whole=sum(usage.cpu_s(moments[0], end).values()) / sum(rows) * 1e6,
        cpu_warm=sum(usage.cpu_s(moments[warm], end).values()) / warm_rows * 1e6,
        retained=report.retained,
        state_bytes=report.state_bytes,
        rows_out=rows_out,
        same_rows=same,
    )


def bars(results: Sequence[Result]) -> list[Bar]:
    """The bars that the results can speak to, per workload and kind."""
    found = []
    for workload in WORKLOADS:
        for kind in KINDS:
            found += list(_bars_of(results, workload, kind))
    return found


def _bars_of(results: Sequence[Result], workload: str, kind: str) -> Iterator[Bar]:
    def ratio(system: str, of: Measure, base: str = workload) -> float | None:
        return _ratio(results, (workload, kind, OURS), (base, kind, system), of)

    def bar(what: str, value: float | None, wanted: float, at_most: bool = False) -> Iterator[Bar]:
        if value is not None:
            yield Bar(f"{workload}, {kind}: {what}", value, wanted, at_most)

    speed = {("100k", "spark"): 4.0, ("500k", "spark"): 6.0, ("100k", "spark-rocksdb"): 10.0}
    for (name, system), wanted in speed.items():
        if name == workload:
            yield from bar(f"rows/s after the third tick, × {system}", ratio(system, _warm), wanted)
            yield from bar(f"rows/s of the whole run, × {system}", ratio(system, _whole), wanted)
    if workload == "100k-state-50":
        yield from bar(f"median tick, × that of {CONTROL}", ratio(OURS, _tick, CONTROL), 1.3, at_most=True)
    if workload == "1k":
        yield from bar("median tick, × spark", ratio("spark", _tick), 1.0, at_most=True)
    else:
        yield from bar("peak memory, × spark", ratio("spark", lambda r: r.peak), 1.0, at_most=True)


def _ratio(
    results: Sequence[Result], one: tuple[str, str, str], other: tuple[str, str, str], of: Measure
) -> float | None:
    """The median over the rounds that both have of one's figure by the other's; None without such rounds."""
    first, second = (
        {r.round: r for r in results if (r.workload, r.kind, r.system) == key} for key in (one, other)
    )
    ratios = [of(first[n]) / of(second[n]) for n in first.keys() & second.keys()]
    return median(ratios) if ratios else None


def ratios(results: Sequence[Result]) -> str:
    """Ours by each of Spark's, without judgement: rates, and CPU time, which other work disturbs less."""
    lines = []
    for workload, kind, system in dict.fromkeys((r.workload, r.kind, r.system) for r in results):
        if system != OURS:
            ours, theirs = (workload, kind, OURS), (workload, kind, system)
            figures = [_ratio(results, ours, theirs, of) for of in (_warm, _whole)]
            figures += [_ratio(results, theirs, ours, of) for of in (_cpu_warm, _cpu_whole)]
            texts = ["-" if each is None else f"{each:.2f}" for each in figures]
            lines.append(
                f"{workload}, {kind}, {system}: rows/s {texts[0]} × (whole run {texts[1]} ×), "
                f"rows per CPU second {texts[2]} × (whole run {texts[3]} ×)"
            )
    return "\n".join(lines)


def _cpu_warm(result: Result) -> float:
    return result.cpu_warm


def _cpu_whole(result: Result) -> float:
    return result.cpu_whole


def _warm(result: Result) -> float:
    return result.warm_rate


def _whole(result: Result) -> float:
    return result.whole_rate


def _tick(result: Result) -> float:
    return result.median_tick_s


def table(results: Sequence[Result]) -> str:
    """Medians over the rounds, one line per workload, kind and system."""
    head: tuple[str, ...]
    head = ("workload", "kind", "system", "rounds", "rows/s", "(whole)", "tick", "CPU s/M", "(whole)")
    head += ("peak MB", "JVM+Py", "retained", "state B/row", "rows out", "same")
    lines = [head]
    for key in dict.fromkeys((r.workload, r.kind, r.system) for r in results):
        runs = [r for r in results if (r.workload, r.kind, r.system) == key]
        worst = max(runs, key=lambda r: r.peak)
        retained = runs[-1].retained
        state = runs[-1].state_bytes
        lines.append(
            (
                *key,
                str(len(runs)),
                f"{median(map(_warm, runs)):,.0f}",
                f"{median(map(_whole, runs)):,.0f}",
                f"{median(map(_tick, runs)):.3f} s",
                f"{median(r.cpu_warm for r in runs):.1f}",
                f"{median(r.cpu_whole for r in runs):.1f}",
                f"{median(r.peak for r in runs) / MB:,.0f}",
                "+".join(f"{worst.peak_of.get(name, 0) / MB:.0f}" for name in ("jvm", "python")),
                "" if retained is None else f"{retained:,}",
                "" if not retained or state is None else f"{state / retained:.0f}",
                f"{runs[-1].rows_out:,}",
                "yes" if all(r.same_rows for r in runs) else "NO",
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    texts = []
    for line in lines:
        cells = [
            cell.ljust(w) if n < 3 else cell.rjust(w)
            for n, (cell, w) in enumerate(zip(line, widths, strict=True))
        ]
        texts.append("  ".join(cells).rstrip())
    return "\n".join(texts)


def chosen(parts: Sequence[Part], arguments: argparse.Namespace) -> list[Part]:
    """The parts that were asked for."""
    found = []
    for name in arguments.workload or [part.workload for part in parts]:
        part = next((p for p in parts if p.workload == name), Part(name, tuple(KINDS), (OURS, "spark"), 3))
        systems = tuple(arguments.system or part.systems)
        kinds = tuple(arguments.kind or part.kinds)
        slow = () if arguments.system else part.slow
        found.append(Part(part.workload, kinds, systems, arguments.rounds or part.rounds, slow))
    return found


def turns(parts: Sequence[Part]) -> Iterator[tuple[int, str, str, str]]:
    """(round, workload, kind, system) in the order of the runs."""
    for number in range(max(part.rounds for part in parts)):
        for kind in KINDS:
            for part in parts:
                if kind in part.kinds and number < part.rounds:
                    systems = [s for s in part.systems if number == 0 or s not in part.slow]
                    for system in systems if number % 2 == 0 else reversed(systems):
                        yield number, part.workload, kind, system


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="one round of the smaller workloads, inner joins"
    )
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS))
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    parser.add_argument("--system", action="append", choices=list(SYSTEMS))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--heap", help="of the JVM in both systems, in place of the workload's")
    parser.add_argument("--json", type=Path, default=BENCH / "side_by_side.json", help="where the figures go")
    arguments = parser.parse_args(argv)
    parts = chosen(QUICK if arguments.quick else FULL, arguments)
    results: list[Result] = []
    wanted: dict[tuple[str, str], compare.Fingerprint] = {}
    for number, name, kind, system in turns(parts):
        workload = WORKLOADS[name]
        if arguments.heap:
            workload = replace(workload, heap=arguments.heap)
        data = prepare(workload, BENCH / "data")
        if (name, kind) not in wanted:
            wanted[name, kind] = compare.expected(data, kind)
        started = time.monotonic()
        found = run_one(workload, kind, system, number, wanted[name, kind])
        results.append(found)
        print(
            f"round {number + 1}, {name}, {kind}, {system}: {found.warm_rate:,.0f} rows/s, whole run "
            f"{found.whole_rate:,.0f}, tick {found.median_tick_s:.3f} s, {found.peak / MB:,.0f} MB, "
            f"rows {'equal' if found.same_rows else 'DIFFER'} ({time.monotonic() - started:.0f} s)",
            flush=True,
        )
        _write(arguments.json, results)
    verdicts = bars(results)
    print(f"\n{table(results)}\n")
    print("a row of the input in Arrow: ", end="")
    print(
        ", ".join(f"{p.workload} {arrow_bytes_per_row(BENCH / 'data' / p.workload):.1f} B" for p in parts),
        "\n",
    )
    if len({result.system for result in results}) > 1:
        print(f"{ratios(results)}\n")
    print("\n".join(bar.line() for bar in verdicts))
    same = all(result.same_rows for result in results)
    print(f"{'met    ' if same else 'NOT MET'}  the same rows from all systems and from DuckDB's batch join")
    return 0 if same else 1


def _write(path: Path, results: Sequence[Result]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "cores": os.cpu_count(),
        "results": [asdict(result) for result in results],
        "bars": [{**asdict(bar), "met": bar.met} for bar in bars(results)],
    }
    path.write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    sys.exit(main())
