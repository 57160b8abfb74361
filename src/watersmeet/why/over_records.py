"""The queries that can be asked about, planned over records: a table with a primary key gives its records as
they come, and not the rows that are made of them."""

from __future__ import annotations

from dataclasses import replace

from watersmeet.errors import WatersmeetError
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.planner import plan_job
from watersmeet.spec.model import Job, Query, Sink, Source, with_branches


def sources_of(job: Job) -> dict[str, Source]:
    """All that its queries read, as they are declared."""
    return {
        source.name: source
        for insert in job.inserts
        for query in insert.query.every
        for given in query.inputs
        for source in given.sources
    }


def asked_queries(job: Job, plan: JobPlan) -> list[QueryPlan]:
    """The queries that a user wrote, each by itself, over records: what a table with a primary key is read
    through is left out of those that read one."""
    queries = [query for query in plan.apart or plan.queries if not query.is_index]
    keyed = {name for name, source in sources_of(job).items() if source.primary_key is not None}
    inserts = [
        replace(insert, sink=Sink(insert.sink.name, "console"), query=_of_records(insert.query))
        for insert in job.inserts
        if not insert.is_index
        and any(
            source.name in keyed for query in insert.query.every for i in query.inputs for source in i.sources
        )
    ]
    if not inserts:
        return queries
    try:
        planned = plan_job(replace(job, inserts=tuple(inserts), run={}, sinks=(), explains=()))
    except WatersmeetError:  # then their records are not told of
        return queries
    by_name = {query.name: query for query in planned.apart or planned.queries}
    return [by_name.get(query.name, query) for query in queries]


def _of_records(query: Query) -> Query:
    return with_branches(
        query, lambda branch: replace(branch, source=replace(branch.source, primary_key=None))
    )
