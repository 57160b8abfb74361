"""The same job on two executors with a core each, and in one process with two cores: their ticks in turn.

    python -m benchmarks.cluster [--rows N] [--ticks N] [--rounds N] [--kind inner|left] [--directory]
                                 [--parts] [--threads] [--conf NAME=VALUE]... [--of-cluster NAME=VALUE]...

In a round both play the same files and take turns: one tick here, one there. So what else the machine does
falls on both. Each has its state in an S3 server of its own on this machine, of which each executor has a
cache of its own (``--directory``: in a directory). A tick's seconds are all that passes until the next one
may begin, Spark's own part of it included; CPU seconds are those of all processes, the S3 server among them.
Ratios are of medians of ticks after the first `WARM_TICKS`, which are printed by themselves. ``--threads``:
CPU by the threads of the JVMs, too. ``--conf``: a setting of Spark, for both; ``--of-cluster``: there alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.turns import Asked, Player, Tick, middle, player, shown
from benchmarks.workloads import Workload, prepare

MASTERS = {"one process": "local[2]", "cluster": "local-cluster[2,1,1024]"}
WARM_TICKS = 10


def _round(stack: ExitStack, asked: argparse.Namespace, data: Path, folder: Path) -> dict[str, Player]:
    players = {}
    for number, (place, master) in enumerate(MASTERS.items()):
        given = [*asked.conf, *(asked.of_cluster if place == "cluster" else [])]
        conf = dict(one.split("=", 1) for one in given)
        played = Asked(str(data), str(folder / str(number)), asked.kind, master, conf, {})
        serve = None if asked.directory else ()
        players[place] = player(stack, played, {}, serve=serve, threads=asked.threads)
    return players


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster")
    parser.add_argument("--rows", type=int, default=100_000, help="of a side and tick")
    parser.add_argument("--ticks", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kind", default="left", choices=("inner", "left"))
    parser.add_argument("--directory", action="store_true", help="state in a directory, not in an S3 server")
    parser.add_argument("--parts", action="store_true", help="print what the parts of ticks took, too")
    parser.add_argument("--threads", action="store_true", help="and CPU by threads of JVMs")
    parser.add_argument("--conf", action="append", default=[], help="NAME=VALUE of Spark")
    parser.add_argument("--of-cluster", action="append", default=[], help="NAME=VALUE of Spark, there alone")
    asked = parser.parse_args(argv)
    by_time, by_cpu = [], []
    with tempfile.TemporaryDirectory(prefix="ws-") as name:
        data = prepare(Workload(f"{asked.rows}", asked.rows, asked.ticks), Path(name) / "data")
        for number in range(asked.rounds):
            ticks: dict[str, list[Tick]] = {place: [] for place in MASTERS}
            with ExitStack() as stack:
                players = _round(stack, asked, data, Path(name) / f"round{number}")
                for turn in range(asked.ticks):
                    for place in list(MASTERS)[:: -1 if turn % 2 else 1]:
                        ticks[place].append(players[place].tick())
            for what, some in (("first", slice(0, WARM_TICKS)), ("warm", slice(WARM_TICKS, None))):
                for place, of_place in ticks.items():
                    print(
                        *(
                            f"{what}, {place}: {line}"
                            for line in shown(of_place[some], asked.rows, parts=asked.parts)
                        ),
                        sep="\n",
                    )
            sys.stdout.flush()
            one, cluster = (ticks[place][WARM_TICKS:] for place in MASTERS)
            by_time.append(middle(one, lambda t: t.seconds) / middle(cluster, lambda t: t.seconds))
            cpu = [middle(some, lambda tick: sum(tick.cpu_s.values())) for some in (one, cluster)]
            by_cpu.append(cpu[0] / cpu[1])
    for what, ratios in (("speed", by_time), ("speed by CPU time", by_cpu)):
        spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"cluster to one process, {what}: {median(ratios):.2f} x {spread}, {len(ratios)} rounds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
