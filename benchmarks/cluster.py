"""The same job on two executors with a core each, and in one process with two cores: their ticks in turn.

    python -m benchmarks.cluster [--rows N] [--ticks N] [--rounds N] [--kind inner|left]
                                 [--directory | --beside] [--warm N] [--parts] [--threads]
                                 [--conf NAME=VALUE]... [--of-cluster NAME=VALUE]...

In a round all play the same files and take turns: one tick here, one there. So what else the machine does
falls on all. Each has its state in an S3 server of its own on this machine, of which each executor has a
cache of its own (``--directory``: in a directory; ``--beside``: a third run, in one process, has it there). A
tick's seconds are all that passes until the next one may begin, Spark's own part of it included; CPU seconds
are those of all processes of a job, with the S3 server and without: it is Python's `moto`, which serves the
tests, and no part of a job. Ratios are of medians of ticks after the first ``--warm`` ones, which are printed
by themselves. ``--threads``: CPU by the threads of the JVMs, too. ``--conf``: a setting of Spark, for all;
``--of-cluster``: there alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.turns import SERVER, Asked, Player, Tick, middle, player, shown
from benchmarks.workloads import Workload, prepare

CLUSTER = "cluster"
WARM_TICKS = 10


@dataclass(frozen=True)
class Way:
    """Where a job runs, and whether its state is in an S3 server."""

    master: str
    in_s3: bool = True


def _ways(asked: argparse.Namespace) -> dict[str, Way]:
    ways = {
        "one process": Way("local[2]", not asked.directory),
        CLUSTER: Way("local-cluster[2,1,1024]", not asked.directory),
    }
    return ways | ({"one process, a directory": Way("local[2]", in_s3=False)} if asked.beside else {})


def _round(
    stack: ExitStack, asked: argparse.Namespace, ways: dict[str, Way], data: Path, folder: Path
) -> dict[str, Player]:
    players = {}
    for number, (place, way) in enumerate(ways.items()):
        given = [*asked.conf, *(asked.of_cluster if place == CLUSTER else [])]
        conf = dict(one.split("=", 1) for one in given)
        played = Asked(str(data), str(folder / str(number)), asked.kind, way.master, conf, {})
        serve = () if way.in_s3 else None
        players[place] = player(stack, played, {}, serve=serve, threads=asked.threads)
    return players


def _seconds(tick: Tick) -> float:
    return tick.seconds


def _cpu_s(tick: Tick) -> float:
    return sum(tick.cpu_s.values())


def _own_cpu_s(tick: Tick) -> float:
    """Without the server's."""
    return sum(seconds for whose, seconds in tick.cpu_s.items() if whose != SERVER)


SPEEDS: dict[str, Callable[[Tick], float]] = {
    "speed": _seconds,
    "speed by CPU time": _cpu_s,
    "speed by CPU time without the S3 server's": _own_cpu_s,
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster")
    parser.add_argument("--rows", type=int, default=100_000, help="of a side and tick")
    parser.add_argument("--ticks", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kind", default="left", choices=("inner", "left"))
    state = parser.add_mutually_exclusive_group()
    state.add_argument("--directory", action="store_true", help="state in a directory, not in an S3 server")
    state.add_argument("--beside", action="store_true", help="and one process with its state in a directory")
    parser.add_argument("--warm", type=int, default=WARM_TICKS, help="ticks that do not count yet")
    parser.add_argument("--parts", action="store_true", help="print what the parts of ticks took, too")
    parser.add_argument("--threads", action="store_true", help="and CPU by threads of JVMs")
    parser.add_argument("--conf", action="append", default=[], help="NAME=VALUE of Spark")
    parser.add_argument("--of-cluster", action="append", default=[], help="NAME=VALUE of Spark, there alone")
    asked = parser.parse_args(argv)
    if not 0 < asked.warm < asked.ticks:
        parser.error("--warm: more than 0 ticks, and fewer than there are")
    ways = _ways(asked)
    ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="ws-") as name:
        data = prepare(Workload(f"{asked.rows}", asked.rows, asked.ticks), Path(name) / "data")
        for number in range(asked.rounds):
            ticks: dict[str, list[Tick]] = {place: [] for place in ways}
            with ExitStack() as stack:
                players = _round(stack, asked, ways, data, Path(name) / f"round{number}")
                for turn in range(asked.ticks):
                    for place in list(ways)[:: -1 if turn % 2 else 1]:
                        ticks[place].append(players[place].tick())
            for what, some in (("first", slice(0, asked.warm)), ("warm", slice(asked.warm, None))):
                for place, of_place in ticks.items():
                    lines = shown(of_place[some], asked.rows, parts=asked.parts)
                    print(*(f"{what}, {place}: {line}" for line in lines), sep="\n")
            sys.stdout.flush()
            warm = {place: of_place[asked.warm :] for place, of_place in ticks.items()}
            for place in ways:
                for what, of in SPEEDS.items():
                    if place != CLUSTER:
                        ratios[place, what].append(middle(warm[place], of) / middle(warm[CLUSTER], of))
    for (place, what), each in ratios.items():
        spread = f"({min(each):.2f} to {max(each):.2f})"
        print(f"cluster to {place}, {what}: {median(each):.2f} x {spread}, {len(each)} rounds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
