"""What is stored of a plan, and decides whether a job may resume, is the same in every version.

A checkpoint holds digests of each query's state (its fingerprint), of the settings of a tick, and of what the
joins ask (`plan.identity.described`). A class or an attribute that is renamed must change none of them, or no
user's job resumes. ``stored_digests.json`` holds those of the project's cases and golden queries.

WATERSMEET_GOLDEN=write adds new ones. To change one that is there, delete its line: this says that jobs with
such a query begin anew.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.support.case_files import OWN_CASE_FILES
from tests.support.package_paths import find_paths
from watersmeet.errors import WatersmeetError
from watersmeet.front.case_file import case_job
from watersmeet.front.sql import parse_job
from watersmeet.plan.identity.described import described
from watersmeet.plan.identity.settings import digest_of, settings_of
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.planner import plan_job
from watersmeet.spec.model import Job
from watersmeet.testing.cases import load_cases

STORED = Path(__file__).with_name("stored_digests.json")
GOLDEN = Path(__file__).parent.parent / "golden"
SHOWN = 12
DECIDE = ("rest", "joins", "kept", "keys", "order")
"""Of a description; all else is for people."""


def plans() -> Iterator[tuple[str, JobPlan]]:
    """Each job that can be planned, by name."""
    jobs: dict[str, Callable[[], Job]] = {
        case["case"]: partial(case_job, case) for file in OWN_CASE_FILES for case in load_cases(file)
    }
    for path in find_paths(GOLDEN, "*.sql"):
        jobs[f"golden/{path.stem}"] = partial(parse_job, path.read_text())
    for name, job in sorted(jobs.items()):
        with suppress(WatersmeetError):  # what is refused has no state
            yield name, plan_job(job())


def digests_of(plan: JobPlan) -> str:
    """The three, the fingerprints of a job's queries and their descriptions as one each."""
    settings = digest_of(settings_of(plan))
    queries = " ".join(query.fingerprint for query in plan.queries)
    parts = [described(query) for query in plan.apart or plan.queries]
    said = json.dumps([{part: of[part] for part in DECIDE} for of in parts], sort_keys=True)
    return " ".join(
        [settings[:SHOWN], *(hashlib.sha256(t.encode()).hexdigest()[:SHOWN] for t in (queries, said))]
    )


def test_digests_that_checkpoints_hold_are_as_they_were():
    now = {name: digests_of(plan) for name, plan in plans()}
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    if os.environ.get("WATERSMEET_GOLDEN") == "write":
        stored = {**now, **stored}
        STORED.write_text(json.dumps(dict(sorted(stored.items())), indent=0) + "\n")
    assert len(now) > 200
    differ = [
        f"{what} of {name}"
        for name, digests in now.items()
        for what, one, other in zip(
            ("settings", "fingerprints", "descriptions"),
            digests.split(),
            stored.get(name, "- - -").split(),
            strict=True,
        )
        if one != other
    ]
    assert differ == []
    assert set(stored) == set(now), "a case that is gone, or cannot be planned any more"
