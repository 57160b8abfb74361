"""`state restore`, killed (SIGKILL) before each of its steps, with a tick in hand that was interrupted: the
job goes on from the tick that is there then, and all rows come once.

The sinks are those of which something is left behind: files (their later parts are set aside), and a
function, of which what it was given of later ticks is taken away by hand, as the command says.
"""

from __future__ import annotations

import os
import random
import signal
from functools import partial
from pathlib import Path

import pytest

from tests.chaos.killed import Job, in_a_process, run_in_fork, store_of
from watersmeet.cli.state_commands import maintenance
from watersmeet.cli.state_commands.show import StateLocation, tick_of
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.state.manifest import PARTS, load_newest, manifest_names
from watersmeet.state.store import LocalStore

pytestmark = [pytest.mark.kill, pytest.mark.full]

MOST_STEPS = 60


def go_back(job: Job, step: int) -> None:
    """To the tick before the newest one, as the command does; killed before the ``step``-th step."""
    left = step

    def stepped(owner, name):
        done = getattr(owner, name)

        def before(*arguments, **named):
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return done(*arguments, **named)

        setattr(owner, name, before)

    checkpoint = Checkpoint(job.folder)
    planned = maintenance.plan_restore(
        StateLocation(job.folder, checkpoint), tick_of(manifest_names(checkpoint.store)[-2])
    )
    stepped(LocalStore, "delete")
    stepped(maintenance, "archive_spark_files")
    planned.run()


def begun_and_cut(job: Job) -> int | None:
    """Run the job until a tick is interrupted whose parts for the function are recorded, or only begun where
    the sink has no such records; the newest tick then. None: it is at its end before."""
    at = "cut" if job.sink == "function" else "published"
    for tick in (3, 2):
        if run_in_fork(job, at, tick) == "killed" and len(manifest_names(store_of(job))) >= 2:
            return load_newest(store_of(job)).tick
    return None


def take_away(job: Job, tick: int) -> None:
    """What the function was given of later ticks."""
    for file in Path(job.folder).glob("given/q-*.parquet"):
        if int(file.name.split("-")[1]) > tick:
            file.unlink()


@pytest.mark.parametrize("sink", ["function", "file"])
def test_killed_before_each_step_it_goes_on_from_the_tick_that_is_there(tmp_path, seed, sink):
    draw, went_back = random.Random(seed), set()
    steps = [*range(1, MOST_STEPS)]
    while steps:
        step = steps[0]
        folder = tmp_path / f"{sink}-{step}-{draw.randrange(1 << 30)}"
        folder.mkdir()
        (folder / "spark").mkdir()
        query = draw.choice(["inner", "left", "full"])
        job = Job(str(folder), query, sink, "directory", draw.randrange(1 << 32), set_aside=True)
        newest = begun_and_cut(job)
        if newest is None:
            continue
        steps.pop(0)
        said = in_a_process(partial(go_back, job, step))
        assert said in ("killed", None), said
        there = load_newest(store_of(job)).tick
        assert there in (newest, newest - 1)
        went_back.add((said, there - newest))
        if there < newest:
            assert not store_of(job).names(PARTS), f"of tick {newest + 1}, seed {seed}"
        take_away(job, there)
        # to where the tick comes whose number the interrupted one had, and that is killed, too
        kills = [("committed", 1), (draw.choice(["begun", "node", "staged"]), draw.choice([1, 2])), (None, 0)]
        for point, tick in kills:
            again = run_in_fork(job, point, tick)
            assert again in ("killed", None), f"seed {seed}, step {step}, {job}: {again}"
        if said is None:
            break
    assert {said for said, _ in went_back} == {"killed", None}, went_back
    assert (None, -1) in went_back, went_back
