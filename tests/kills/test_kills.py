"""Killed at any instant and run again: no row is lost, doubled or padded anew.

Two directories grow (one file a side and tick) while the job, a FULL join and a chain of a LEFT and a FULL
one, runs and is killed. In the end every row is there as often as an uninterrupted run and a batch join of
the same files have it.
"""

from __future__ import annotations

import random
import signal
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from tests.kills.jobs import Growing, Process, batch_of, differences, list_completed_ticks, rows_of, write_job
from tests.support.effort import at_effort

pytestmark = [pytest.mark.kill, pytest.mark.spark]

KILLS = 6
FILES = at_effort(quick=4, full=24)
TO_THE_END = ("--until-caught-up", "--finish")
SINKS = ("joined", "chain")


@pytest.fixture(scope="module")
def uninterrupted_run(seed, tmp_path_factory) -> tuple[Path, dict[str, Any]]:
    """The folder of a run that nothing disturbed, and its account."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    Growing(folder, seed, FILES).add(FILES)
    write_job(folder)
    run = Process(folder, *TO_THE_END)
    try:
        assert run.await_end() == 0, run.errors.read_text()
        assert run.ticks == FILES + 1
        assert {side["late"] for side in run.account["inputs"]} == {0}
        for sink in SINKS:
            assert differences(rows_of(folder, sink), batch_of(folder, sink)) == []
        return folder, run.account
    finally:
        run.clean_up()


def check(
    folder: Path, account: dict[str, Any] | None, uninterrupted_run: tuple[Path, dict[str, Any]]
) -> None:
    whole, expected = uninterrupted_run
    for sink in SINKS:
        assert differences(rows_of(folder, sink), rows_of(whole, sink)) == []
        assert not list((folder / "out" / sink).glob("_attempts/*/*")), "nothing staged is left"
    ticks = list_completed_ticks(folder)
    assert ticks == list(range(1, len(ticks) + 1)), "each tick is told once"
    if account is not None:
        assert account["adds_up"]
        assert account == expected


@pytest.mark.full
def test_killed_at_random(seed, tmp_path, uninterrupted_run):
    draw = random.Random(seed)
    write_job(tmp_path)
    inputs = Growing(tmp_path, seed, FILES)
    inputs.add(2)
    runs, first_tick_s = [], 5.0
    try:
        for number, whom in enumerate(islice(cycle(["python", "jvm", "both"]), KILLS)):
            run = Process(tmp_path, "--trigger", "100 milliseconds", own_jvm=whom != "python")
            runs.append(run)
            if number % 4 == 3:  # anywhere up to its first tick
                delay_s = draw.uniform(0.2, 1.1) * first_tick_s
            else:
                delay_s = draw.uniform(0, 0.8)
                for seen in range(1, draw.choice([1, 1, 2, 3]) + 1):
                    inputs.add()
                    run.await_ticks(seen)
                    first_tick_s = run.age_s if seen == 1 else first_tick_s
            inputs.add()
            run.look_for(delay_s)
            print(
                f"kill {number} (seed {seed}): {whom}, {run.age_s:.1f} s old, tick {run.ticks} was seen",
                flush=True,
            )
            run.kill(whom)  # and the next one starts at once, whatever is left of this one
            if whom == "jvm":
                assert "Traceback" not in run.errors.read_text()
                if run.ticks:
                    assert run.process.returncode == 2
                    assert "EngineError[spark-gone]" in run.errors.read_text()
        inputs.add(FILES)
        runs.append(last := Process(tmp_path, *TO_THE_END))
        assert last.await_end() == 0, last.errors.read_text()
        check(tmp_path, last.account, uninterrupted_run)
    finally:
        for run in runs:
            run.clean_up()


POINTS = [
    ("advanced", 1),
    ("beneath", 2),
    ("staged", 2),
    ("half-published", 2),
    ("untold", 2),
    ("published", 2),
    ("committed", 3),
    ("published", 4),
    ("caught-up", 0),
    ("intended", 0),
    ("end-staged", 0),
    ("end-half-published", 0),
    ("end-untold", 0),
    ("end-published", 0),
    ("end-committed", 0),
]
DRAWN_POINTS = at_effort(quick=[3, 14], full=range(len(POINTS)))
"""Quick effort: between two sinks, and after the manifest of the end of input, which is last."""


def test_killed_at_every_point(seed, tmp_path, uninterrupted_run):
    """One job, killed at one point after the other, each time where the last one left it: by tasks, and by
    the driver, in turns, so that what the one began the other repeats."""
    Growing(tmp_path, seed, FILES).add(FILES)
    runs = []
    try:
        for number, point in enumerate(POINTS[index] for index in DRAWN_POINTS):
            write_job(tmp_path, "spark" if number % 2 else "auto")
            runs.append(run := Process(tmp_path, *TO_THE_END, kill_at=point))
            assert run.await_end() == -signal.SIGKILL, f"{point}: {run.errors.read_text()}"
            ticks = list_completed_ticks(tmp_path)
            assert ticks == list(range(1, len(ticks) + 1))
        runs.append(last := Process(tmp_path, *TO_THE_END))
        assert last.await_end() == 0, last.errors.read_text()
        assert last.ticks == 0, "the end of input is not made twice"
        # the account is that of the run before: this one had no tick
        check(tmp_path, None, uninterrupted_run)
    finally:
        for run in runs:
            run.clean_up()
