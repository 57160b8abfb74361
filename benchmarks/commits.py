"""What it costs that a tick is durable: the same job with and without, their ticks in turn.

    python -m benchmarks.commits [--rows N] [--ticks N] [--rounds N] [--kind inner|left] [--parts]
    python -m benchmarks.commits --delay SECONDS …

The state is in a directory, once on a disk that is waited for, and once where nobody waits: ``fsync`` and
its like do nothing in any process of the job (Debian's ``eatmydata``). ``--delay``: the state is in two S3
servers on this machine, and each request to one of them is so long on its way: what a tick and its parts take
longer there says how many round trips they wait for, one after the other.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from ctypes.util import find_library
from pathlib import Path
from statistics import median

from benchmarks.turns import Asked, Tick, middle, player, shown
from benchmarks.workloads import Workload, prepare

MASTER = "local[2]"
WARM_TICKS = 10
NOBODY_WAITS = "eatmydata"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commits")
    parser.add_argument("--rows", type=int, default=100_000, help="of a side and tick")
    parser.add_argument("--ticks", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--kind", default="left", choices=("inner", "left"))
    parser.add_argument("--delay", type=float, help="seconds that a request to one S3 server is on its way")
    parser.add_argument("--parts", action="store_true", help="print what the parts of ticks took, too")
    asked = parser.parse_args(argv)
    library = find_library(NOBODY_WAITS)
    if asked.delay is None and library is None:
        parser.error(f"lib{NOBODY_WAITS} does not exist (apt-get install {NOBODY_WAITS})")
    slow, quick = ("durable", "not durable") if asked.delay is None else (f"{asked.delay} s away", "near")
    with tempfile.TemporaryDirectory(prefix="ws-") as name:
        data = prepare(Workload(f"{asked.rows}", asked.rows, asked.ticks), Path(name) / "data")
        pairs: list[tuple[Tick, Tick]] = []
        for number in range(asked.rounds):
            with ExitStack() as stack:
                folder = Path(name) / f"round{number}"
                preload = {} if asked.delay is not None else {"LD_PRELOAD": str(library)}
                delays = (None, None) if asked.delay is None else (asked.delay, 0.0)
                players = []
                for own, environment, delay in (("slow", {}, delays[0]), ("quick", preload, delays[1])):
                    played = Asked(str(data), str(folder / own), asked.kind, MASTER, {}, {})
                    serve = None if delay is None else ("--delay", str(delay))
                    players.append(player(stack, played, environment, serve=serve))
                for turn in range(asked.ticks):
                    ticks = {place: players[place].tick() for place in ((0, 1), (1, 0))[turn % 2]}
                    if turn >= WARM_TICKS:
                        pairs.append((ticks[0], ticks[1]))
        for place, what in enumerate((slow, quick)):
            lines = shown([pair[place] for pair in pairs], asked.rows, parts=asked.parts)
            print(*(f"{what}: {line}" for line in lines), sep="\n")
        ratios = sorted(one.seconds / other.seconds for one, other in pairs)
        quarter = len(ratios) // 4
        middle_half = f"{ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f}"
        print(f"{slow} to {quick}: {median(ratios):.3f} x a tick's time ({middle_half}), {len(pairs)} pairs")
        if asked.delay is not None:
            parts = dict.fromkeys(part for one, _ in pairs for part in one.parts)
            trips = {part: _trips(pairs, part, asked.delay) for part in parts}
            whole = (
                middle([one for one, _ in pairs], _whole) - middle([two for _, two in pairs], _whole)
            ) / asked.delay
            print(
                f"round trips: {whole:.1f} a tick:", ", ".join(f"{part} {n:.1f}" for part, n in trips.items())
            )
    return 0


def _whole(tick: Tick) -> float:
    return tick.seconds


def _trips(pairs: Sequence[tuple[Tick, Tick]], part: str, delay: float) -> float:
    """By how many delays a part takes longer, in the median."""
    return median(one.parts.get(part, 0.0) - other.parts.get(part, 0.0) for one, other in pairs) / delay


if __name__ == "__main__":
    sys.exit(main())
