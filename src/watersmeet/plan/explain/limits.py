"""EXPLAIN: whether limits hold, where that can be forecast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from watersmeet.plan.explain.durations import rounded_up
from watersmeet.plan.explain.words import node_name, number_of, size_of
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.order.limits import Expected, job_limits, node_limits
from watersmeet.plan.order.measured import MeasuredQuery, MeasuredSide


def limit_lines(query: QueryPlan, measured: Mapping[str, MeasuredSide] | None = None) -> Iterator[str]:
    """Of the limits that each node of a query has."""
    for node, limits in node_limits(query, measured):
        name = "" if len(query.nodes) == 1 else f"{node_name(query, node)}: "
        for expected in limits:
            yield name + _told(expected)


def job_limit_lines(plan: JobPlan, measured: Mapping[str, MeasuredQuery] | None = None) -> Iterator[str]:
    """Of the limits of sources and of the whole job."""
    yield from map(_told, job_limits(plan, measured))


def with_limit_warnings(plans: Sequence[QueryPlan]) -> tuple[QueryPlan, ...]:
    """The queries with a warning for each limit that does not hold by declared rates; those of sources and of
    the job are the first query's."""
    queries = []
    for query in plans:
        limits = [expected for _, of_node in node_limits(query.alone) for expected in of_node]
        limits += job_limits(JobPlan(tuple(plans))) if query is plans[0] else []
        warnings = [_told(expected, " by declared rates") for expected in limits if expected.holds is False]
        queries.append(replace(query, of_plan=(*query.of_plan, *warnings)) if warnings else query)
    return tuple(queries)


def _told(expected: Expected, known_by: str = "") -> str:
    def shown(value: float) -> str:
        return size_of(value) if expected.in_bytes else f"{number_of(value)} rows"

    most = size_of(expected.most) if expected.in_bytes else number_of(expected.most)
    line = f"{expected.limit} = {most}: "
    if expected.holds is None:
        return f"{line}no forecast, for nothing says how many rows of {' and '.join(expected.unknown)} come"
    besides = f" and the retained rows of {' and '.join(expected.unknown)}" if expected.unknown else ""
    line += f"forecast{known_by} {shown(expected.amount)}{besides}"
    if expected.holds:
        return f"{line}, it holds"
    after = "" if expected.reached is None else f" after about {rounded_up(round(expected.reached))}"
    return f"{line}: {'rows would be shed' if expected.sheds else 'the job would stop'}{after}"
