"""Limits of a source's rows are refused where they could not be told from those of others."""

from __future__ import annotations

from watersmeet.errors import PlanError
from watersmeet.spec.model import Job


def check_source_limits(job: Job) -> list[PlanError]:
    """Of a UNION ALL the rows of all branches are kept together."""
    united = {
        (source.name, i.alias)
        for insert in job.inserts
        for query in insert.query.every
        for i in query.inputs
        if len(i.branches) > 1
        for source in i.sources
        if source.max_rows is not None or source.max_bytes is not None
    }
    return [
        PlanError(
            f'"{source}" has max_rows or max_bytes, but its rows are stored together with those of'
            f' other branches of the UNION ALL "{alias}"',
            code="limit-in-union",
            hint="remove the limit of the source, and SET max_rows or max_job_rows",
        )
        for source, alias in sorted(united)
    ]
