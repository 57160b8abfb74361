"""The same job with its files read by Arrow, and by Spark; or what little ticks have to do done by the
driver, and by Spark's tasks: the ticks of both in turn.

    python -m benchmarks.readers [--setting file_reader|small_ticks] [--format parquet|csv|json]
                                 [--rows N] [--ticks N] [--rounds N] [--kind inner|left] [--warm N]

Ticks of both play the same files one after the other, so what else the machine does falls on both. A tick's
seconds are all that passes until the next one may begin; CPU seconds are those of all processes of a job.
Ratios are of medians of ticks after the first ``--warm`` ones.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.turns import Asked, Tick, middle, player, shown
from benchmarks.workloads import Workload, prepare, recast
from watersmeet.spec.job_options import SMALL_TICKS, SmallTicks
from watersmeet.spec.options.files import FILE_READER, FORMATS, FileReader

WAYS = {
    FILE_READER: {"by Spark": FileReader.SPARK.value, "by Arrow": FileReader.AUTO.value},
    SMALL_TICKS: {"by tasks": SmallTicks.SPARK.value, "by the driver": SmallTicks.AUTO.value},
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.readers")
    parser.add_argument("--setting", default=FILE_READER, choices=WAYS)
    parser.add_argument("--format", default="parquet", choices=FORMATS, help="of the files")
    parser.add_argument("--rows", type=int, default=100_000, help="of a side and tick")
    parser.add_argument("--ticks", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kind", default="left", choices=("inner", "left"))
    parser.add_argument("--warm", type=int, default=15, help="ticks that do not count yet")
    asked = parser.parse_args(argv)
    if not 0 < asked.warm < asked.ticks:
        parser.error("--warm: more than 0 ticks, and fewer than there are")
    ways = WAYS[asked.setting]
    ratios: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="ws-") as name:
        data = prepare(Workload(f"{asked.rows}", asked.rows, asked.ticks), Path(name) / "data")
        if asked.format != "parquet":
            recast(data, asked.format)
        for number in range(asked.rounds):
            ticks: dict[str, list[Tick]] = {way: [] for way in ways}
            with ExitStack() as stack:
                players = {}
                for way, value in ways.items():
                    folder, settings = Path(name) / f"{number}-{value}", {asked.setting: value}
                    played = Asked(str(data), str(folder), asked.kind, "local[2]", {}, settings)
                    players[way] = player(stack, played, {}, serve=None)
                for turn in range(asked.ticks):
                    for way in list(ways)[:: -1 if turn % 2 else 1]:
                        ticks[way].append(players[way].tick())
            for what, some in (("first", slice(0, asked.warm)), ("warm", slice(asked.warm, None))):
                for way, of_way in ticks.items():
                    lines = shown(of_way[some], asked.rows, parts=True)
                    print(*(f"{what}, {way}: {line}" for line in lines), sep="\n")
                before, now = (of_way[some] for of_way in ticks.values())
                ratios[f"{what}, time"].append(
                    middle(before, lambda tick: tick.seconds) / middle(now, lambda tick: tick.seconds)
                )
                ratios[f"{what}, CPU"].append(
                    middle(before, lambda tick: sum(tick.cpu_s.values()))
                    / middle(now, lambda tick: sum(tick.cpu_s.values()))
                )
            sys.stdout.flush()
    for what, each in ratios.items():
        print(f"{what}: {median(each):.2f} x ({min(each):.2f} to {max(each):.2f}), {len(each)} rounds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
