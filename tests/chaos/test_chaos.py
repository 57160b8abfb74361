"""Jobs without a JVM, killed (SIGKILL) at points of a tick and run again, come to the batch answer.

Quick effort draws one job of the matrix for each sink; full effort kills each job of it at each point, and
plants bugs that lose rows, which the check has to find.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.killed import POINTS, SINKS, Job, run_in_fork
from tests.chaos.matrix import MATRIX, job_id, kill_twice, servers
from tests.simulation.planted import MISFIT, PLANTED

pytestmark = [pytest.mark.kill, pytest.mark.postgres, pytest.mark.kafka]

Places = tuple[str, str, str, str]


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    with servers() as started:
        yield started


@pytest.mark.parametrize("sink", SINKS)
def test_drawn_job_that_is_killed_comes_to_the_batch_answer(
    places: Places, tmp_path: Path, seed: int, sink: str
) -> None:
    """Of each sink one job, with a store, a kind and two points that the seed draws."""
    draw = random.Random(f"{seed} {sink}")
    job = draw.choice([job for job in MATRIX if job[1] == sink])
    kills = kill_twice(tmp_path / f"drawn-{sink}", job, draw.choice(POINTS), draw, places)
    print(f"{job_id(job)}: {kills} kills")


@pytest.mark.full
@pytest.mark.parametrize("job", MATRIX, ids=job_id)
def test_job_killed_at_every_point_comes_to_the_batch_answer(
    places: Places, tmp_path: Path, seed: int, job: tuple[str, str, dict[str, Any]]
) -> None:
    draw = random.Random(f"{seed} {job_id(job)}")
    kills = 0
    for point in POINTS:
        kills += kill_twice(tmp_path / f"{job_id(job)}-{point}", job, point, draw, places)
    assert kills > len(POINTS)


@pytest.mark.full
@pytest.mark.parametrize(
    ("bug", "query"),
    [
        ("commit before publish", "inner"),
        ("commit before publish", "shed_oldest"),
        ("second sink after commit", "shed_oldest"),
    ],
)
def test_rows_lost_by_a_planted_bug_are_found(places: Places, tmp_path: Path, bug: str, query: str) -> None:
    """The manifest is created before the sinks show the rows, and the process killed in between."""
    for number in range(40):
        folder = tmp_path / f"planted{number}"
        folder.mkdir()
        job = Job(str(folder), query, "file", "directory", number, *places)
        ended = [run_in_fork(job, "committed", tick, PLANTED[bug]) for tick in (1, 2, 3)]
        ended.append(run_in_fork(job, planted=PLANTED[bug]))
        assert ended[0] == "killed"
        assert not MISFIT.search(str(ended)), f"the planted bug does not fit the code: {ended}"
        if ended[-1] is not None:
            return
    pytest.fail(f"{bug}: nothing was found")
