"""Small jobs on the in-process engine, from a case without steps; and what came out of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from watersmeet.parser.case_file import case_job
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local import LocalJob, StepOutput
from watersmeet.spec.model import Job

QUERY = "q"

PLACES_OF_A_ROW = (
    "matched",
    "padded",
    "unknown",
    "released_unmatched",
    "grouped",
    "passed",
    "filtered",
    "late",
    "null_time",
    "unmatchable",
    "ahead",
    "retained",
    "shed",
)
"""Where each row that came in is, in an append query: in exactly one of these."""

Rows = Mapping[str, Sequence[tuple[Mapping[str, Any], int]]]


def stream(lag: int | None = 0, columns: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """A declaration as in case files; by default with the event time ``t``."""
    declared = {"t": "BIGINT", "k": "STRING", "v": "BIGINT", "i": "BIGINT"} if columns is None else columns
    return {"columns": dict(declared), "time": {"t": {"lag": lag}}, **more}


def plan_of(query: str, streams: Mapping[str, Any] | None = None, **options: Any) -> JobPlan:
    """A plan over streams ``l`` and ``r`` unless others are given."""
    return plan_job(job_of(query, streams, **options))


def job_of(query: str, streams: Mapping[str, Any] | None = None, **options: Any) -> Job:
    """The job of `plan_of`."""
    declared = {"l": stream(), "r": stream()} if streams is None else streams
    case: dict[str, Any] = {
        "case": "test",
        "streams": declared,
        "query": query,
        "options": options,
        "steps": [],
    }
    return case_job(case)


def arriving(**streams: Sequence[Mapping[str, Any]]) -> Rows:
    """Rows of one tick, all inserts."""
    return {name: [(row, 1) for row in rows] for name, rows in streams.items()}


def bag(output: StepOutput) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in output.rows[QUERY])


def check_account(output: StepOutput) -> None:
    """Per alias: what came in is where rows can be, in this tick's account since the start."""
    for alias, counts in output.result.queries[QUERY].account.items():
        placed = {place: counts.get(place, 0) for place in PLACES_OF_A_ROW}
        assert counts.get("in", 0) == sum(placed.values()), (alias, counts)


def stored_names(job: LocalJob) -> set[str]:
    """Every name in the job's store."""
    folders = ("manifests", "runs", "marks", "aside", "work")
    return {name for folder in folders for name in job.store.names(folder)}
