"""Simulated schedules of crashes, sleeping runs and faults: rows come out once, by any seed.

Full effort plays 20,000 schedules, and plants bugs that schedules have to find;
``make simulate SCHEDULE=number`` plays one again, step by step.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.conftest import REPOSITORY
from tests.simulation.planted import MISFIT, PLANTED
from tests.simulation.schedule import Outcome, play
from tests.simulation.world import Worker
from tests.support.effort import at_effort

BLOCKS = at_effort(quick=1, full=80)
SCHEDULES = at_effort(quick=70, full=250)
"""Schedules of a block."""

MAX_SCHEDULES = {
    "commit before publish": 60,
    "second sink after commit": 300,
    "mark after commit": 300,
    "stale attempt accepted": 60,
    "fences ignored": 800,
    "beginning forgotten": 200,
    "passed not seen": 2_000,
    "repeated with other files": 400,
    "watermark of what came to nothing": 60,
    "released before matched": 60,
    "cache not compared": 100,
    "narrowed from nothing": 400,
    "sections are files": 100,
}
"""Number of schedules, from seed 0, within which a planted bug is found."""

FIRST_SEED = {"passed not seen": 400}
"""Schedules before this seed do not show the bug, and take a minute."""

MENDED = (9242, 513011702869, 552186297346)
"""Seeds that have found faults, which have tests of their own."""


def describe(outcome: Outcome) -> str:
    """Return what is wrong with a schedule, and the command that plays it again."""
    return f"seed {outcome.seed}: {outcome.wrong}\n  again: make simulate SCHEDULE={outcome.seed}"


@pytest.fixture(autouse=True, scope="module")
def _one_core():
    """Keep the process on one core: of its threads one runs at a time, and others wake faster there."""
    cores = os.sched_getaffinity(0)
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    os.sched_setaffinity(0, {sorted(cores)[worker % len(cores)]})
    yield
    Worker.end_all()
    os.sched_setaffinity(0, cores)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_rows_come_out_once_whatever_fails(seed, block):
    first, counts, ended = (seed * BLOCKS + block) * SCHEDULES, Counter[str](), Counter[str]()
    gc.disable()
    try:
        for number in range(first, first + SCHEDULES):
            outcome = play(number)
            counts += outcome.counts
            ended += outcome.ended
            assert outcome.wrong is None, describe(outcome)
    finally:
        gc.enable()
    print(f"seeds {first} to {first + SCHEDULES - 1}: {dict(counts)}, runs ended: {dict(ended)}")
    assert counts["crashes"] > SCHEDULES
    assert counts["takeovers"] > SCHEDULES / 10
    assert counts["tasks run twice"] > SCHEDULES
    assert counts["cache: truncated"]
    assert counts["queries changed"]
    assert counts["sections"]
    faults = {name for name in counts if name.startswith("fault: ")}
    assert len(faults) == 6, faults
    assert {"state-fenced", "sink-taken"} <= ended.keys()


@pytest.mark.parametrize("number", MENDED)
def test_schedule_that_found_a_fault_is_right(number):
    """As far as its points are still the same."""
    outcome = play(number)
    assert outcome.wrong is None, describe(outcome)


@pytest.mark.full
@pytest.mark.parametrize("name", PLANTED)
def test_schedules_find_a_planted_bug(name):
    with PLANTED[name]():
        seeds = range(FIRST_SEED.get(name, 0), MAX_SCHEDULES[name])
        found = next((wrong for seed in seeds if (wrong := play(seed).wrong)), None)
    assert found is not None, f"{name}: not within {MAX_SCHEDULES[name]} schedules"
    assert not MISFIT.search(found), f"the planted bug does not fit the code: {found}"


@pytest.mark.full
def test_schedule_depends_on_its_seed_alone():
    """Not on the hashes of the process's strings, and not on schedules played before."""
    code = (
        "import os, sys; from tests.simulation.schedule import play\n"
        "print(*(play(int(seed)).digest for seed in sys.argv[1:]), flush=True); os._exit(0)"
    )

    def digests(*seeds: int, hashes: str) -> list[str]:
        environment = os.environ | {"PYTHONHASHSEED": hashes, "PYTHONPATH": f"{REPOSITORY}/src:{REPOSITORY}"}
        command = [sys.executable, "-c", code, *map(str, seeds)]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        return ran.stdout.split()

    seeds = range(3, 15)
    one, other = digests(*seeds, hashes="1"), digests(*reversed(seeds), hashes="2")
    assert one == other[::-1]
    assert len(set(one)) == len(seeds)
