"""Twenty kills of those of ``make chaos``, and that it sees what is wrong."""

from __future__ import annotations

import importlib
import random

import pytest

from tests.chaos.__main__ import IMPORTED, KINDS, job_in, jobs_of, killed_twice, servers
from tests.chaos.killed import POINTS, SINKS, STORES, Job, forked
from tests.simulation.jobs import SHEDDING
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
        given = draw.choice(jobs_of(draw.choice(KINDS), store, sink) or jobs_of("plain", store, sink))
        job = job_in(folder, given, sink, store, draw, places)
        points = [(draw.choice(POINTS), 1 + draw.randrange(2)), (draw.choice(POINTS), 1)]
        killed, wrong = killed_twice(job, points, draw)
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


@pytest.mark.parametrize("how", SHEDDING)
def test_rows_that_were_shed_come_out_once_though_the_job_is_killed(tmp_path, seed, how):
    draw, shed = random.Random(seed), 0
    for number in range(6):
        folder = tmp_path / f"shed{number}"
        folder.mkdir()
        job = Job(str(folder), how, "file", "directory", draw.randrange(1 << 32))
        points = [(POINTS[(2 * number + draw.randrange(2)) % len(POINTS)], 1 + draw.randrange(2))]
        _, wrong = killed_twice(job, points, draw)
        assert wrong is None, f"{job}: {wrong}"
        shed += len([*folder.glob("out_shed/*/*.parquet")])
    assert shed


def test_shed_rows_that_are_lost_are_seen(tmp_path):
    """The manifest is created before the sinks show the rows; of the second sink they are lost alone, too."""
    for planted in ("commit before publish", "second sink after commit"):
        with PLANTED[planted]():
            wrong = None
            for number in range(40):
                folder = tmp_path / f"{planted[:6]}{number}"
                folder.mkdir()
                job = Job(str(folder), "shed_oldest", "file", "directory", number)
                for tick in (1, 2, 3):
                    forked(job, "committed", tick)
                wrong = wrong or forked(job)
                if wrong is not None:
                    break
            assert wrong is not None, planted
