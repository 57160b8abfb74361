"""Twenty kills of those of ``make chaos``, and that it sees what is wrong."""

from __future__ import annotations

import importlib
import random

import pytest

from tests.chaos.__main__ import IMPORTED, killed_at, servers
from tests.chaos.killed import POINTS, SINKS, STORES, Job, forked
from tests.simulation.jobs import QUERIES
from tests.simulation.planted import PLANTED

pytestmark = [pytest.mark.kill, pytest.mark.postgres, pytest.mark.kafka]

KILLS = 20


@pytest.fixture(scope="module")
def places():
    for module in IMPORTED:
        importlib.import_module(module)
    with servers() as started:
        yield started


def test_jobs_that_are_killed_come_to_the_batch_answer(places, tmp_path, seed):
    draw, kills, jobs = random.Random(seed), 0, 0
    combinations = [(store, sink) for store in STORES for sink in SINKS]
    draw.shuffle(combinations)
    while kills < KILLS:
        store, sink = combinations[jobs % len(combinations)]
        folder = tmp_path / f"ci{jobs}"
        folder.mkdir()
        query = draw.choice(list(QUERIES))
        job = Job(str(folder), query, sink, store, draw.randrange(1 << 32), *places)
        points = [(draw.choice(POINTS), 1 + draw.randrange(2)), (draw.choice(POINTS), 1)]
        killed, wrong = killed_at(job, points)
        assert wrong is None, f"{job}: {wrong}"
        kills, jobs = kills + len(killed), jobs + 1


def test_what_is_lost_is_seen(places, tmp_path):
    """The manifest is created before the sink shows the rows, and the process killed in between."""
    with PLANTED["commit before publish"]():
        for number in range(10):
            folder = tmp_path / f"planted{number}"
            folder.mkdir()
            job = Job(str(folder), "inner", "file", "directory", number, *places)
            for tick in (1, 2, 3):
                forked(job, "committed", tick)
            if forked(job) is not None:
                return
    pytest.fail("nothing was seen")
