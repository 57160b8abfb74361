"""Two runs at once, each of which sleeps where it is told to: what the one that was overtaken is told, and
what becomes of what the other one made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.simulation.determinism import simulate_world
from tests.simulation.planted import look_not_waited_for
from tests.simulation.run import Trouble
from tests.simulation.schedule import Schedule, WrongError
from tests.simulation.steps import Aim
from tests.simulation.world import Process, World
from watersmeet.errors import WatersmeetError

SEED = 4
"""Its rows come out in the first tick, into a table."""


def run_schedule(seed: int, runs: Callable[[World, Schedule], None]) -> Schedule:
    """A schedule into a table in which nothing goes wrong but what ``runs`` does."""
    with simulate_world(seed) as world:
        schedule = Schedule(world, seed)
        schedule.network.rate, schedule.network.aims, schedule.trouble = 0, [], Trouble()
        try:
            world.run(Process("supervisor"), partial(runs, world, schedule))
        finally:
            schedule.clean_up()
        return schedule


@pytest.mark.parametrize("tick", [1, 2])
def test_run_starting_between_sink_rows_and_manifest_finishes(tick):
    """It looked for what the next tick was begun with before that was begun, and at the sink when the rows
    were there."""

    def both(world: World, schedule: Schedule) -> None:
        pauses = [(Aim("before create begun", tick), 1.0), (Aim("before create manifests", tick), 100.0)]
        one = Process("run1", aims=pauses)
        other = Process("run2", aims=[(Aim("before look at the table", 1), 10.0)])
        began = world.spawn(one, partial(schedule.run, one))
        world.wait(lambda: one.asleep)
        took_over = world.spawn(other, partial(schedule.run, other))
        world.wait(lambda: began.done and took_over.done)

    schedule = run_schedule(SEED, both)
    assert schedule.errors == []
    assert schedule.ended == {"state-fenced": 1, "finished": 1}


def find_takeover_error(seed: int) -> str | None:
    """One run sleeps before it creates the first manifest. When it does, another one is so far that this name
    is free again, and still needs rows of that tick. What is wrong in the end; None: nothing."""

    def both(world: World, schedule: Schedule) -> None:
        schedule.narrows = False
        for side, first in (("l", 1_000), ("r", 2_000)):  # all of them are kept up to the end
            rows = [{"t": 20 + n % 3, "k": "abc"[n % 3], "v": n, "i": first + n} for n in range(30)]
            schedule.logs[side].rows = [(row, 1) for row in rows]
        one = Process("run1", aims=[(Aim("before create manifests", 1), 100.0)])
        other = Process("run2", aims=[(Aim("before create manifests", 5), 200.0)])
        began = world.spawn(one, partial(schedule.run, one))
        world.wait(lambda: one.asleep)
        took_over = world.spawn(other, partial(schedule.run, other))
        world.wait(lambda: began.done and took_over.done)
        schedule.check()

    try:
        schedule = run_schedule(seed, both)
    except (WrongError, WatersmeetError) as error:
        return str(error)
    assert schedule.ended == {"state-fenced": 1, "finished": 1}
    return None


SHOWN_BY = (22, 62, 64)
"""Seeds of jobs into a table that merge so little that rows of the first tick are needed to the end: looked
at first. Which ones these are, changes with what a job asks of its store."""
SEEDS = 60


def test_a_run_that_was_passed_as_it_created_its_manifest_is_stopped_and_deletes_nothing():
    """Else it would delete what is needed: judged by seeds that show it."""
    shown = []
    for seed in dict.fromkeys((*SHOWN_BY, *range(SEEDS))):
        with look_not_waited_for():
            if "is missing from the state" in (find_takeover_error(seed) or ""):
                shown.append(seed)
        if len(shown) == 3:
            break
    assert len(shown) == 3, f"of {SEEDS} seeds {shown} alone show what the look is for"
    assert {seed: find_takeover_error(seed) for seed in shown} == dict.fromkeys(shown)
