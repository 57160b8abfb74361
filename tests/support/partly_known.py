"""TickHistory runs of random cases of which not all is known any more: ticks, or rows of the sources."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tests.support.recorded_cases import RecordedCase
from watersmeet.history.points import concat_points, roll_up
from watersmeet.history.reader import JobHistory
from watersmeet.why.rows import Missing, Reread
from watersmeet.why.ticks import TickHistory, tick_history

Played = tuple[dict[str, Any], RecordedCase, Any]
"""A case, its run, and what is known of its rows."""


def partly_known(
    seed: int, step: int, played: Callable[[int], Played | None], cases: int
) -> Iterator[tuple[int, Played, TickHistory, Mapping[str, Reread]]]:
    """So many cases, each with its seed, by ``step`` more each: a third with all of the history, a third with
    all rows, and none with both."""
    rng, found = random.Random(seed), 0
    while found < cases:
        seed += step
        ready = played(seed)
        if ready is None:
            continue
        found += 1
        _, run, _ = ready
        history = tick_history((run.past, with_gaps(run.past, rng), rolled_up(run.past, rng))[found % 3])
        reread = in_part(run.reread, rng) if found % 2 or found % 3 == 0 else run.reread
        yield seed, ready, history, reread


def with_gaps(past: JobHistory, rng: random.Random) -> JobHistory:
    """The history without some of its ticks, as runs that were killed and rolled-up figures leave it."""
    ticks = sorted(set(past.points.column("first_tick").to_pylist()))
    gone = rng.sample(ticks, rng.randint(0, len(ticks) - 1))
    kept = pc.invert(pc.is_in(past.points.column("first_tick"), pa.array(gone, pa.int64())))
    return JobHistory(past.points.filter(kept))


def rolled_up(past: JobHistory, rng: random.Random) -> JobHistory:
    """The history with its first ticks rolled up."""
    ticks = past.points.column("first_tick")
    until = rng.randint(1, max(ticks.to_pylist()))
    old, new = (past.points.filter(of(ticks, until)) for of in (pc.less_equal, pc.greater))
    return JobHistory(concat_points([roll_up(old, rng.choice([2, 4, 8])), new]))


def in_part(reread: Mapping[str, Reread], rng: random.Random) -> dict[str, Reread]:
    """The sources without some of what they had, or all, of which it may be known where it stood."""
    parts = {}
    for name, own in reread.items():
        share = rng.choice([0.0, 0.8, 0.8])
        stays, missing = [], []
        for portion in own.portions:
            if rng.random() < share:
                stays.append(portion)
            else:
                position = rng.choice([None, portion.position, portion.position])
                missing.append(Missing("gone", portion.part, position))
        parts[name] = Reread(own.source, stays, tuple(missing))
    return parts
