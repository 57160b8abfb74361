"""From a `Job` to a `JobPlan`, or all that is wrong with it together: each query by `plan.passes`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from watersmeet.errors import PlanError, raise_all
from watersmeet.plan.arranged import MayShare, with_arranged
from watersmeet.plan.checks.endpoints import check_endpoints, check_sources, warnings_of
from watersmeet.plan.checks.shedding import check_shed_together, check_some_limit
from watersmeet.plan.checks.source_limits import check_source_limits
from watersmeet.plan.delta.counted import Counts
from watersmeet.plan.delta.recounted import by_counts
from watersmeet.plan.explain.limits import with_limit_warnings
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.nodes.for_others import DerivedColumns, ForOthers
from watersmeet.plan.passes import Planning, rerun, run, without_count
from watersmeet.plan.shared import with_shared
from watersmeet.plan.taken import MayTake, with_taken
from watersmeet.spec.model import Job, Options, Query, Sink


def plan_job(job: Job) -> JobPlan:
    """The plan of all INSERTs of ``job``. Raises PlanError, or SeveralErrors with the problems of all; of
    several INSERTs each problem names its own.

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
            problems if len(job.inserts) == 1 else [_in_query(insert.name, problem) for problem in problems]
        )
        if plan is not None:
            plans.append(replace(plan, of_sink=warnings_of(job, insert)))
    errors += [] if errors else check_shed_together(plans)
    raise_all(errors)
    return of_queries(plans)


@dataclass(frozen=True)
class _Reuse:
    """What queries may have of others."""

    may_take: MayTake
    may_share: MayShare


_JobPass = Callable[[Sequence[QueryPlan], _Reuse], Sequence[QueryPlan]]

JOB_PASSES: tuple[tuple[str, _JobPass], ...] = (
    ("subplans", lambda queries, reuse: with_taken(queries, _with_more, reuse.may_take)),
    ("runs", lambda queries, reuse: with_shared(queries)),
    ("arrangements", lambda queries, reuse: with_arranged(queries, reuse.may_share)),
    ("limits", lambda queries, reuse: with_limit_warnings(queries)),
)
"""What happens to the queries of a job together, in this order."""


def of_queries(
    plans: Sequence[QueryPlan],
    may_take: MayTake = lambda query, node, other, there: True,
    may_share: MayShare = lambda own, other, more: True,
) -> JobPlan:
    """The job of these queries, which make and keep rows for each other.

    Args:
        plans: none of which takes rows of others yet.
        may_take: whether a query may take rows that another one makes.
        may_share: whether a side may go by the rows that another one keeps.
    """
    queries, reuse = plans, _Reuse(may_take, may_share)
    for _, job_pass in JOB_PASSES:
        queries = job_pass(queries, reuse)
    return JobPlan(tuple(queries), tuple(plans))


def in_counted_order(plan: JobPlan, counts: Mapping[str, Counts]) -> JobPlan:
    """The plan, in which delta joins look inputs up by what was counted of them, per query."""
    return by_counts(plan, counts, _with_counts)


def _with_counts(plan: QueryPlan, counts: Counts) -> QueryPlan | None:
    return rerun(plan, "delta", counts=counts)[0].plan


def _with_more(plan: QueryPlan, for_others: ForOthers) -> tuple[QueryPlan, DerivedColumns]:
    """The query with rows that have what others need of them, and what is computed for that."""
    again, problems = rerun(plan, "nodes", for_others=for_others)
    raise_all(problems)
    return replace(plan, nodes=again.nodes), again.derived


def _in_query(name: str, error: PlanError) -> PlanError:
    message = f'query "{name}": {error.message}'
    return PlanError(message, code=error.code, hint=error.hint, location=error.location)


def plan_query(name: str, sink: Sink, query: Query, options: Options) -> QueryPlan:
    """The plan of one query (EXPLAIN of a query that has no INSERT). Raises as `plan_job`."""
    plan, problems = _plan(name, sink, query, options)
    raise_all([*check_sources([query]), *problems])
    assert plan is not None
    return plan


def _plan(
    name: str, sink: Sink, query: Query, options: Options
) -> tuple[QueryPlan | None, Sequence[PlanError]]:
    planning, problems = run(Planning.of(name, sink, query, options))
    if problems and planning.fallback is not None:
        planning, problems = run(without_count(planning.fallback, problems[0].message), "keyed")
    return planning.plan, problems
