"""The order of the rules: from a `Job` to a `JobPlan`, or all that is wrong with it together."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.errors import PlanError, WatersmeetError, raise_all
from watersmeet.plan.chain import plan_joins
from watersmeet.plan.checks import check_query
from watersmeet.plan.conditions import place
from watersmeet.plan.conjuncts import join_all
from watersmeet.plan.fingerprint import fingerprint_of
from watersmeet.plan.join import draft_of
from watersmeet.plan.model import JobPlan, QueryPlan
from watersmeet.plan.order import in_best_order
from watersmeet.plan.residual import after_join
from watersmeet.plan.scope import Scope, check_event_times
from watersmeet.plan.tree import nodes_of
from watersmeet.plan.unbounded import check_bounded
from watersmeet.spec.model import Input, Job, Options, OutputColumn, OutputMode, PlanChoice, Query, Sink


def plan_job(job: Job) -> JobPlan:
    """The plan of all INSERTs of ``job``. Raises PlanError, or SeveralErrors with the problems of all."""
    plans: list[QueryPlan] = []
    errors: list[WatersmeetError] = []
    for insert in job.inserts:
        plan, problems = _plan(insert.name, insert.sink, insert.query, job.options)
        errors += problems
        if plan is not None:
            plans.append(plan)
    raise_all(errors)
    return JobPlan(tuple(plans))


def plan_query(name: str, sink: Sink, query: Query, options: Options) -> QueryPlan:
    """The plan of one query (EXPLAIN of a query that has no INSERT). Raises as `plan_job`."""
    plan, problems = _plan(name, sink, query, options)
    raise_all(problems)
    assert plan is not None
    return plan


def _plan(
    name: str, sink: Sink, query: Query, options: Options
) -> tuple[QueryPlan | None, Sequence[PlanError]]:
    plan, errors = _plan_as_written(name, sink, query, options)
    if plan is None or options.plan is not PlanChoice.AUTO:
        return plan, errors
    return in_best_order(plan, query, lambda other: _plan_as_written(name, sink, other, options)[0]), []


def _plan_as_written(
    name: str, sink: Sink, query: Query, options: Options
) -> tuple[QueryPlan | None, Sequence[PlanError]]:
    scope = Scope(query.inputs)
    errors = check_event_times(scope)
    if errors:
        return None, errors
    errors = check_query(query, sink, options, scope)
    if isinstance(query.relation, Input):
        return None, [*errors, PlanError("a query without a join is not run yet", code="not-yet")]
    nodes = nodes_of(query.relation)
    if len(nodes) > 1 and options.output_mode is OutputMode.CHANGELOG:
        names = ", ".join(i.alias for i in query.inputs)
        return None, [
            *errors,
            PlanError(
                f"joins of more than two inputs ({names}) are not run yet in output_mode changelog",
                code="not-yet",
                hint="join two of them into a sink, and that with the third",
            ),
        ]
    conditions = place(nodes, query.where)
    drafts = []
    for node in nodes:
        draft, problems = draft_of(node, conditions.joins[node.number])
        drafts.append(draft)
        errors += problems
    if errors:
        return None, errors
    errors = check_bounded(drafts, conditions.every, options)
    if errors:
        return None, errors
    after = [output.expr for output in query.outputs] + [c.expr for c in conditions.after]
    joins, errors = plan_joins(drafts, conditions, after)
    if errors:
        return None, errors
    where = join_all([c.expr for c in conditions.after])
    return (
        QueryPlan(
            name=name,
            sink=sink,
            joins=joins,
            where=None if where is None else after_join(where),
            outputs=tuple(OutputColumn(o.name, after_join(o.expr), o.origin) for o in query.outputs),
            options=options,
            fingerprint=fingerprint_of(joins, options),
            sql=query.sql,
        ),
        [],
    )
