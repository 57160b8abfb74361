"""From a `Job` to a `JobPlan`, or all that is wrong with it together: each query by `plan.passes`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from watersmeet.errors import PlanError, raise_all
from watersmeet.plan.checks.endpoints import check_endpoints, check_sources, warnings_of
from watersmeet.plan.checks.limits import check_shed_together, check_some_limit, check_source_limits
from watersmeet.plan.common_subplans import MayReuse, share_arrangements, share_rows, share_runs
from watersmeet.plan.delta.paths import Counts
from watersmeet.plan.explain.state import with_limit_warnings
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.nodes.feeds import DerivedColumns, ForOthers
from watersmeet.plan.passes import Planning, rerun, run, warn_uncounted
from watersmeet.spec.model import Job, Options, Query, Sink


def plan_job(job: Job) -> JobPlan:
    """Plan all INSERTs of ``job``.

    Raises:
        PlanError: The job has one problem.
        SeveralErrors: The job has several problems. With several INSERTs, each problem names its own.

    >>> from watersmeet import parse_job, plan_job
    >>> plan = plan_job(parse_job('''
    ...     CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
    ...     SELECT x.t, y.t AS u FROM a x JOIN a y ON x.k = y.k AND y.t BETWEEN x.t AND x.t + 3'''))
    >>> [(query.name, [output.name for output in query.outputs]) for query in plan.queries]
    [('console', ['t', 'u'])]
    """
    plans: list[QueryPlan] = []
    errors = [*check_endpoints(job), *check_source_limits(job), *check_some_limit(job)]
    for insert in job.inserts:
        plan, problems = _plan(insert.name, insert.sink, insert.query, job.options)
        errors += (
            problems
            if len(job.inserts) == 1
            else [_prefix_query(insert.name, problem) for problem in problems]
        )
        if plan is not None:
            plans.append(replace(plan, of_sink=warnings_of(job, insert)))
    errors += [] if errors else check_shed_together(plans)
    raise_all(errors)
    return combine_queries(plans)


_JobPass = Callable[[Sequence[QueryPlan], MayReuse], Sequence[QueryPlan]]

JOB_PASSES: tuple[tuple[str, _JobPass], ...] = (
    ("subplans", lambda queries, may_reuse: share_rows(queries, _add_consumer_columns, may_reuse)),
    ("runs", lambda queries, may_reuse: share_runs(queries)),
    ("arrangements", share_arrangements),
    ("limits", lambda queries, may_reuse: with_limit_warnings(queries)),
)
"""What happens to the queries of a job together, in this order."""


def combine_queries(
    plans: Sequence[QueryPlan], may_reuse: MayReuse = lambda own, producer, more: True
) -> JobPlan:
    """Return the job of these queries, which make and keep rows for each other.

    Args:
        plans: none of which takes rows of others yet.
        may_reuse: whether a query may go by rows that another one makes or keeps.
    """
    queries = plans
    for _, job_pass in JOB_PASSES:
        queries = job_pass(queries, may_reuse)
    return JobPlan(tuple(queries), tuple(plans))


def reorder_by_counts(plan: JobPlan, counts: Mapping[str, Counts]) -> JobPlan:
    """Return the plan with delta joins that look inputs up in the order of what was counted of them.

    What is stored has to be as it was: a query stays as it is where any node but the look-ups would be
    another one. So do queries that make or keep rows for others, or go by those of others.

    Args:
        counts: per query.
    """
    producers = {taken.query for query in plan.queries for taken in query.taken}

    def reorder_query(query: QueryPlan) -> QueryPlan:
        own = counts.get(query.name)
        if own is None or query.name in producers or query.taken or query.complete is not None:
            return query
        other = rerun(query, "delta", counts=own)[0].plan
        query = replace(query, counted=own.keys)
        if other is None or other.nodes == query.nodes:
            return query
        same, others = ([node.in_any_order for node in of.nodes] for of in (query, other))
        return replace(query, nodes=other.nodes, uncounted=query.nodes) if same == others else query

    return replace(plan, queries=tuple(map(reorder_query, plan.queries)))


def _add_consumer_columns(plan: QueryPlan, for_others: ForOthers) -> tuple[QueryPlan, DerivedColumns]:
    """Return the query with the columns that its consumers need, and how they are computed."""
    again, problems = rerun(plan, "nodes", for_others=for_others)
    raise_all(problems)
    return replace(plan, nodes=again.nodes), again.derived


def _prefix_query(name: str, error: PlanError) -> PlanError:
    message = f'query "{name}": {error.message}'
    return PlanError(message, code=error.code, hint=error.hint, location=error.location)


def plan_query(name: str, sink: Sink, query: Query, options: Options) -> QueryPlan:
    """Plan one query, as for EXPLAIN of a query without INSERT.

    Raises:
        PlanError: The query has one problem.
        SeveralErrors: The query has several problems.
    """
    plan, problems = _plan(name, sink, query, options)
    raise_all([*check_sources([query]), *problems])
    assert plan is not None
    return plan


def _plan(
    name: str, sink: Sink, query: Query, options: Options
) -> tuple[QueryPlan | None, Sequence[PlanError]]:
    planning, problems = run(Planning.of(name, sink, query, options))
    if problems and planning.fallback is not None:
        planning, problems = run(warn_uncounted(planning.fallback, problems[0].message), "keyed")
    return planning.plan, problems
