"""Of each run one task is asked for all of it, and it is one that opens the run anyway."""

from __future__ import annotations

import random

from watersmeet.event_time import MAX_TIME, MIN_TIME
from watersmeet.kernel.slots import borders
from watersmeet.runtime.tasks.side import Everything, HashRange
from watersmeet.state.runs.layout import Run


def run_between(low: int, high: int) -> Run:
    return Run(
        name="runs/a", rows=2, nbytes=1, checksum=0, tick=1, index=None, base=0, shift=0, low=low, high=high,
        spans={}, group="a",
    )  # fmt: skip


def ranges_of(partitions: int) -> list[HashRange]:
    ends = borders(partitions)
    return [HashRange(*ends[number : number + 2]) for number in range(partitions)]


def test_one_task_answers_for_a_run_and_does_not_pass_it_over(seed):
    draw = random.Random(seed)
    for number in range(2_000):
        partitions = draw.choice([1, 2, 3, 7, 20])
        places = [
            MIN_TIME,
            MAX_TIME,
            *borders(partitions)[:-1],
            *(end - 1 for end in borders(partitions)[1:]),
        ]
        low, high = sorted(draw.choice([*places, draw.randrange(MIN_TIME, MAX_TIME)]) for _ in range(2))
        run, ranges = run_between(low, high), ranges_of(partitions)
        asked = [n for n, own in enumerate(ranges) if own.is_responsible_for(run, number, n, partitions)]
        assert len(asked) == 1
        assert not ranges[asked[0]].misses(run)
        everything = [
            n for n in range(partitions) if Everything().is_responsible_for(run, number, n, partitions)
        ]
        assert len(everything) == 1


def test_runs_of_all_hashes_are_shared_by_all_tasks():
    run = run_between(MIN_TIME, MAX_TIME)
    asked = [
        [own.is_responsible_for(run, number, n, 4) for n, own in enumerate(ranges_of(4))].index(True)
        for number in range(8)
    ]
    assert sorted(asked) == [0, 0, 1, 1, 2, 2, 3, 3]
