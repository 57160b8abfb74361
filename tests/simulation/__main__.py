"""``python -m tests.simulation``: many schedules, and what happened in them; or one again, step by step.

--schedules N   how many (20,000)
--first SEED    the seed of the first (drawn, and printed)
--replay SEED   this one alone, with a line for each of its points
--planted NAME  with a bug of `planted.PLANTED` in the package
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from contextlib import nullcontext

from tests.simulation.planted import PLANTED
from tests.simulation.schedule import Outcome, play

CHUNK = 50
MOST_WRONG = 5
RARE = 3


def command_for(seed: int) -> str:
    """What plays a schedule again."""
    return f"make simulate SEED={seed}"


def told(outcome: Outcome) -> str:
    """What is wrong with a schedule, and how it is seen again."""
    return f"seed {outcome.seed}: {outcome.wrong}\n  again: {command_for(outcome.seed)}"


def summary(
    schedules: int,
    counts: Counter[str],
    ended: Counter[str],
    struck: Counter[tuple[str, str]],
    seconds: float,
) -> str:
    """What happened, in words."""
    faults = {name[7:]: n for name, n in sorted(counts.items()) if name.startswith("fault: ")}
    lines = [
        f"{schedules:,} schedules in {seconds:,.0f} s, {schedules / max(seconds, 0.001):,.1f} per second",
        f"{counts['runs']:,} runs, {counts['ticks']:,} ticks, {counts['points']:,} points, "
        f"{counts['sections']:,} sections fetched",
        f"{counts['crashes']:,} crashes, {counts['takeovers']:,} takeovers while another run slept, "
        f"{counts['sleeps']:,} sleeps, {counts['tasks run twice']:,} tasks run twice",
        f"{sum(faults.values()):,} faults: " + ", ".join(f"{n:,} {name}" for name, n in faults.items()),
        f"{len(struck):,} pairs of a step and a fault, {sum(n < RARE for n in struck.values()):,} of them "
        f"less than {RARE} times",
        "runs ended: " + ", ".join(f"{n:,} {name}" for name, n in ended.most_common()),
    ]
    return "\n".join(lines)


def one_core(share: int | None = None) -> None:
    """This process stays on one core: of its threads one runs at a time, and to wake one on another core
    takes longer. ``share``: of several processes; None: by its id."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[(os.getpid() if share is None else share) % len(cores)]})


def _chunk(seeds: range) -> list[Outcome]:
    gc.disable()
    one_core()
    outcomes = [play(seed) for seed in seeds]
    gc.collect()
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--schedules", type=int, default=20_000)
    parser.add_argument("--first", type=int)
    parser.add_argument("--replay", type=int)
    parser.add_argument("--planted", choices=PLANTED)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    with PLANTED[asked.planted]() if asked.planted else nullcontext():
        if asked.replay is not None:
            outcome = play(asked.replay, log=print)
            print(told(outcome) if outcome.wrong else f"seed {asked.replay}: right")
            return int(bool(outcome.wrong))
        first = random.randrange(1 << 40) if asked.first is None else asked.first
        return _many(first, asked.schedules, asked.processes)


def _many(first: int, schedules: int, processes: int) -> int:
    print(f"seeds {first} to {first + schedules - 1}", flush=True)
    counts, ended, wrong, played = Counter[str](), Counter[str](), 0, 0
    struck = Counter[tuple[str, str]]()
    began = time.monotonic()
    chunks = [range(s, min(s + CHUNK, first + schedules)) for s in range(first, first + schedules, CHUNK)]
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        for outcomes in pool.imap_unordered(_chunk, chunks):
            for outcome in outcomes:
                played += 1
                counts += outcome.counts
                counts["points"] += outcome.points
                ended += outcome.ended
                struck += outcome.struck
                if outcome.wrong:
                    wrong += 1
                    print(told(outcome), flush=True)
            if wrong >= MOST_WRONG:
                break
        pool.terminate()
    print(summary(played, counts, ended, struck, time.monotonic() - began))
    print(f"{wrong} wrong" if wrong else "all right: nothing lost, nothing doubled, every late row counted")
    return int(bool(wrong))


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # threads that wait for fibers would be waited for
