"""From a `Job` to a `JobPlan`, or all that is wrong with it together: each query by `plan.passes`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from watersmeet.errors import PlanError, raise_all
from watersmeet.plan.arranged import MayShare, with_arranged
from watersmeet.plan.checks.endpoints import check_endpoints, check_sources, warnings_of
from watersmeet.plan.checks.shedding import check_shed_together, check_some_limit
from watersmeet.plan.checks.source_limits import check_source_limits
from watersmeet.plan.conditions.rewritten import is_plain
from watersmeet.plan.delta.counted import Counts
from watersmeet.plan.delta.recounted import by_counts
from watersmeet.plan.explain.limits import with_limit_warnings
from watersmeet.plan.identity.described import Described, has_other_lookups
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.nodes.for_others import DerivedColumns, ForOthers
from watersmeet.plan.order.kept import Order, in_orders
from watersmeet.plan.order.kept_keys import (
    added_conditions,
    with_keys_in_order,
    with_tested,
)
from watersmeet.plan.passes import Planning, Result, run, without_count
from watersmeet.plan.shared import with_shared
from watersmeet.plan.taken import MayTake, with_taken
from watersmeet.spec.model import Job, Options, Query, Sink
from watersmeet.spec.time_zones import UTC


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


def in_order_of(plan: QueryPlan, orders: Sequence[Order], said: Described) -> QueryPlan | None:
    """The plan with its joins in these orders, and rows found by the conditions of old; None: that is so, or
    it has other results then, or cannot be run so.

    Args:
        plan: as it is before it takes rows of others.
        said: what was described of the query when its state was made; may be empty.
    """
    if plan.asked is None:
        return None
    texts = [text for join in said.get("says", ()) for text in join["on"]]
    query = in_orders(plan.asked.query, orders)
    query = None if query is None else with_keys_in_order(query, texts, said.get("keys", ()))
    again = plan if query is None or query == plan.asked.query else _again(plan, query=query)
    again = None if again is None else _test_added(said, again, texts)
    if again is None or again is plan or again.asked is None:
        return None
    planned, joined = (
        [tuple(i.alias for i in stage.inputs) for stage in of.every]
        for of in (plan.asked.query, again.asked.query)
    )
    return replace(
        again,
        reordered=tuple(order for order in plan.reordered if order in joined),
        ordered_by_state=tuple(order for order in joined if order not in planned),
    )


def _test_added(said: Described, plan: QueryPlan, texts: Sequence[str]) -> QueryPlan:
    """Return the plan with added conditions tested on pairs, as few as let rows be found as in the state; the
    plan itself where they are found so, or cannot be."""
    asked = plan.asked
    if asked is None or said.get("keys") is None or not has_other_lookups(said, plan):
        return plan

    def testing(conditions: Collection[str]) -> QueryPlan | None:
        return _again(plan, query=with_tested(asked.query, texts, conditions))

    tested: list[str] = []
    best = plan
    for condition in added_conditions(asked.query, texts, said["keys"]):
        again = testing([*tested, condition])
        if again is not None:  # else nothing bounds the rows without it
            best, tested = again, [*tested, condition]
    if has_other_lookups(said, best):
        return plan
    for condition in tuple(tested):
        fewer = [other for other in tested if other != condition]
        if (again := testing(fewer)) is not None and not has_other_lookups(said, again):
            best, tested = again, fewer
    return best


def as_written(plan: QueryPlan) -> QueryPlan | None:
    """The plan by conditions as they are written (`FoldedQuery`); None: it is this one, or cannot be run."""
    if plan.asked is None or (plan.options.time_zone == UTC and is_plain(plan.asked.query)):
        return None
    return _again(plan, as_written=True)


def _again(plan: QueryPlan, **other: Any) -> QueryPlan | None:
    """The plan with something else about the query that is asked."""
    again = _rerun(plan, "tree", **other)[0].plan
    if again is None:
        return None
    return replace(again, of_sink=plan.of_sink, of_plan=plan.of_plan, reordered=plan.reordered)


def _rerun(plan: QueryPlan, start: str, **other: Any) -> Result:
    """Run the passes from ``start`` again, with something else about the query that is asked."""
    assert isinstance(plan.asked, Planning)
    return run(replace(plan.asked, is_in_order=True, **other), start)


def in_counted_order(plan: JobPlan, counts: Mapping[str, Counts]) -> JobPlan:
    """The plan, in which delta joins look inputs up by what was counted of them, per query."""
    return by_counts(plan, counts, _with_counts)


def _with_counts(plan: QueryPlan, counts: Counts) -> QueryPlan | None:
    return _rerun(plan, "delta", counts=counts)[0].plan


def _with_more(plan: QueryPlan, for_others: ForOthers) -> tuple[QueryPlan, DerivedColumns]:
    """The query with rows that have what others need of them, and what is computed for that."""
    again, problems = _rerun(plan, "nodes", for_others=for_others)
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
