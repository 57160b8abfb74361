"""Simulated schedules come out right, the same seed is the same schedule, and planted bugs are seen.

``make simulate`` plays ten times as many.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections import Counter

import pytest

from tests.conftest import REPOSITORY
from tests.simulation.__main__ import one_core, summary, told
from tests.simulation.planted import PLANTED
from tests.simulation.schedule import play
from tests.simulation.world import Worker

SHARES, SCHEDULES = 8, 250
"""Together 2,000 schedules in CI."""

WITHIN = {
    "commit before publish": 60,
    "second sink after commit": 300,
    "mark after commit": 300,
    "stale attempt accepted": 60,
    "fences ignored": 800,
    "beginning forgotten": 200,
    "passed not seen": SHARES * SCHEDULES,
    "repeated with other files": 400,
    "watermark of what came to nothing": 60,
    "released before matched": 60,
    "cache not compared": 100,
    "narrowed from nothing": 400,
    "sections are files": 100,
}
"""So many schedules show a planted bug."""

FROM = {"passed not seen": 400}
"""Schedules before it show nothing, and are a minute's work."""

MENDED = (9242, 513011702869, 552186297346)
"""What these have found is told of in the changelog, and has tests of its own."""


@pytest.fixture(autouse=True, scope="module")
def _threads():
    cores = os.sched_getaffinity(0)
    one_core(int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]))
    yield
    Worker.end_all()
    os.sched_setaffinity(0, cores)


@pytest.mark.kill
@pytest.mark.parametrize("share", range(SHARES))
def test_whatever_fails_rows_come_out_once(seed, share):
    first, counts, ended = seed * SHARES + share * SCHEDULES, Counter[str](), Counter[str]()
    struck, began = Counter[tuple[str, str]](), time.process_time()
    gc.disable()
    try:
        for number in range(first, first + SCHEDULES):
            outcome = play(number)
            counts += outcome.counts
            ended += outcome.ended
            struck += outcome.struck
            assert outcome.wrong is None, told(outcome)
    finally:
        gc.enable()
    print(summary(SCHEDULES, counts, ended, struck, time.process_time() - began))
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
def test_what_a_schedule_has_found_stays_mended(number):
    """As far as its points are still the same."""
    outcome = play(number)
    assert outcome.wrong is None, told(outcome)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_seen(name):
    with PLANTED[name]():
        seen = next((seed for seed in range(FROM.get(name, 0), WITHIN[name]) if play(seed).wrong), None)
    assert seen is not None, f"{name}: not within {WITHIN[name]} schedules"


def test_a_seed_says_all_that_happens():
    """In processes with other hashes of texts, too, and whatever was played before."""
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
