"""Shedding at the limits of sources and of the job: of what all nodes of all queries keep together.

Asked when all nodes of a tick are settled. First what is kept of each source with a limit is brought down to
it, by which rows of that source alone go, of whatever joins they are kept by; then what is kept at all. Times
of all these rows are compared with each other; a key is one of a join, for others may go by other columns.
A copy of a table that rows meet as of their tick counts, and is not shed: where that alone is too much, the
job stops (`job_limits`).
"""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.source_limits import limited_sources, sides_of
from watersmeet.runtime.coordinator.load_shedding import LimitedSides, RetainedNode, job_decision_name
from watersmeet.runtime.coordinator.query_tick import QueryTick


def shed_job(plan: JobPlan, queries: Mapping[str, QueryTick]) -> None:
    """Shed retained rows of a tick until the limits of sources and of the job are satisfied."""
    options = plan.queries[0].options
    sources = limited_sources(node for query in plan.queries for node in query.nodes)
    limited = sources or options.max_job_rows is not None or options.max_job_bytes is not None
    if not options.at_limit.sheds or not limited:
        return
    tick_number = next(iter(queries.values())).tick
    nodes = [
        (tick, node) for tick in queries.values() for node, own in enumerate(tick.nodes) if own.arrangements
    ]
    every = [(tick, _build_retained_node(tick, node, group)) for group, (tick, node) in enumerate(nodes)]
    for place, source in enumerate(sources):
        of = [(kept, sides_of(kept.node, source.name)) for _, kept in every]
        counted = LimitedSides([(kept, names) for kept, names in of if names], options.at_limit)
        if counted.of and source.max_rows is not None:
            counted.bring_rows_to(source.max_rows)
        if counted.of and source.max_bytes is not None:
            counted.bring_bytes_to(source.max_bytes, job_decision_name(tick_number, place))
    copies = [own.table for tick in queries.values() for own in tick.nodes if own.table is not None]
    of_job = LimitedSides([(kept, kept.names) for _, kept in every], options.at_limit)
    if every and options.max_job_rows is not None:
        of_job.bring_rows_to(options.max_job_rows, sum(copy.rows for copy in copies))
    if every and options.max_job_bytes is not None:
        besides = sum(run.nbytes for copy in copies for run in copy.runs)
        of_job.bring_bytes_to(options.max_job_bytes, job_decision_name(tick_number, None), besides)
    for tick, kept in every:
        shed = kept.mark_shed_rows(options.at_limit.value)
        if shed:
            number = kept.node.number
            update = {"arrangements": kept.arrangements, "asof": kept.asof(tick.nodes[number].asof, shed)}
            tick.nodes[number] = tick.nodes[number].model_copy(update=update)
            tick.accounted.add_shed_rows(kept.node, shed)


def _build_retained_node(tick: QueryTick, number: int, group: int) -> RetainedNode:
    """Build the `RetainedNode` of a settled node."""
    node, shape = tick.query.nodes[number], tick.shapes[number]
    arrangements = dict(tick.nodes[number].arrangements)
    return RetainedNode(node, shape, arrangements, tick.store, tick.tick, tick.keep_late, group)
