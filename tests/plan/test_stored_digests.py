"""What is stored of a plan, and decides whether a job may resume, is the same in every version.

A checkpoint holds digests of each query's state (its fingerprint), of the settings of a tick, and of what the
joins ask (`plan.query_evolution`). A class or an attribute that is renamed must change none of them, or no
user's job resumes. ``stored_digests.json`` holds those of the project's cases and golden queries.

WATERSMEET_GOLDEN=write adds new ones. To change one that is there, delete its line: this says that jobs with
such a query begin anew.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from functools import partial
from pathlib import Path

from tests.pipelines.texts import edit_pipeline_text
from tests.support.case_files import OWN_CASE_FILES
from tests.support.package_paths import find_paths
from watersmeet import local
from watersmeet.errors import WatersmeetError
from watersmeet.parser.case_file import case_job
from watersmeet.parser.statements import parse_job
from watersmeet.pipelines import Pipeline
from watersmeet.plan.identity.settings import digest_of, settings_of
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.planner import plan_job
from watersmeet.plan.query_evolution import describe_query
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
    jobs |= {f"spec/{how}": partial(_job_of_spec, how) for how in ("inner", "left", "full", "anti")}
    jobs |= {f"pipeline/{kind}": partial(_job_of_pipeline, kind) for kind in ("TIMESTAMP", "DATE", "BIGINT")}
    for name, job in sorted(jobs.items()):
        with suppress(WatersmeetError):  # what is refused has no state
            yield name, plan_job(job())


def _job_of_spec(how: str) -> Job:
    columns = {"at": "DATE", "id": "BIGINT", "a b": "STRING", "price": "DECIMAL(8,2)"}
    one, other = local.left, local.right
    return local.JoinSpec(
        left=columns,
        right=columns,
        left_times={"at": "1 day"},
        right_times=["at"],
        how=how,
        condition=local.AllOf(
            local.Equal(one("id"), other("id"), null_safe=how == "full"),
            local.Between(other("at"), one("at") - "1 day", one("at") + "36 hours"),
            local.AnyOf(
                local.Comparison(one("price"), "<", other("price") + Decimal("1.50")),
                local.Equal(one("a b"), "x"),
            ),
        ),
        options={"time_zone": "America/New_York", "allowed_lateness": "1 day"},
    ).job


def _job_of_pipeline(kind: str) -> Job:
    toml = edit_pipeline_text(
        *[('at = "TIMESTAMP"', f'at = "{kind}"')] * 2, ('min_delta = "0 s', 'min_delta = "-7 s')
    )
    return Pipeline.from_toml(toml).job(settings={"time_zone": "America/New_York"}).description


def digests_of(plan: JobPlan) -> str:
    """The three, the fingerprints of a job's queries and their descriptions as one each."""
    settings = digest_of(settings_of(plan))
    queries = " ".join(query.fingerprint for query in plan.queries)
    parts = [describe_query(query) for query in plan.apart or plan.queries]
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
