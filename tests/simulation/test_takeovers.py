"""Two runs at once, each of which sleeps where it is told to: what the one that was overtaken is told."""

from __future__ import annotations

from functools import partial

import pytest

from tests.simulation.determinism import simulated
from tests.simulation.run import Trouble
from tests.simulation.schedule import Schedule
from tests.simulation.steps import Aim
from tests.simulation.world import Process

SEED = 4
"""Its rows come out in the first tick, into a table."""


@pytest.mark.parametrize("tick", [1, 2])
def test_a_run_that_begins_between_the_sinks_rows_and_the_manifest_is_not_told_of_a_copy(tick):
    """It looked for what the next tick was begun with before that was begun, and at the sink when the rows
    were there."""
    with simulated(SEED) as world:
        schedule = Schedule(world, SEED)
        schedule.network.rate, schedule.network.aims, schedule.trouble = 0, [], Trouble()

        def both() -> None:
            pauses = [(Aim("before create begun", tick), 1.0), (Aim("before create manifests", tick), 100.0)]
            one = Process("run1", aims=pauses)
            other = Process("run2", aims=[(Aim("before look at the table", 1), 10.0)])
            began = world.spawn(one, partial(schedule.run, one))
            world.wait(lambda: one.asleep)
            took_over = world.spawn(other, partial(schedule.run, other))
            world.wait(lambda: began.done and took_over.done)

        try:
            world.run(Process("supervisor"), both)
        finally:
            schedule.clean_up()
    assert schedule.unexpected == []
    assert schedule.ended == {"state-fenced": 1, "finished": 1}
