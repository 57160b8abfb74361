"""The order of the rules: from a `Job` to a `JobPlan`, or all that is wrong with it together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from watersmeet.errors import PlanError, raise_all
from watersmeet.plan.checks.endpoints import check_endpoints, check_sources, loops_of
from watersmeet.plan.checks.query import check_query
from watersmeet.plan.checks.unbounded import Flow, check_bounded
from watersmeet.plan.conditions.conjuncts import join_all
from watersmeet.plan.conditions.placement import place
from watersmeet.plan.conditions.residual import after_join
from watersmeet.plan.identity.fingerprint import fingerprint_of
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.nodes.aggregate import check_calls
from watersmeet.plan.nodes.asof import check_asof
from watersmeet.plan.nodes.chain import Understood, plan_nodes
from watersmeet.plan.nodes.join import draft_of
from watersmeet.plan.nodes.stages import Asked, folded, named
from watersmeet.plan.nodes.tree import Tree, tree_of
from watersmeet.plan.order.narrowed import narrowed
from watersmeet.plan.order.reorder import in_best_order
from watersmeet.plan.scope import Scope, check_event_times
from watersmeet.spec.model import Job, Options, OutputColumn, OutputMode, PlanChoice, Query, Sink


def plan_job(job: Job) -> JobPlan:
    """The plan of all INSERTs of ``job``. Raises PlanError, or SeveralErrors with the problems of all; of
    several INSERTs each problem names its own."""
    plans: list[QueryPlan] = []
    errors = check_endpoints(job)
    for insert in job.inserts:
        plan, problems = _plan(insert.name, insert.sink, insert.query, job.options)
        errors += problems if len(job.inserts) == 1 else [_in_query(insert.name, each) for each in problems]
        if plan is not None:
            plans.append(replace(plan, loops=loops_of(job, insert)))
    raise_all(errors)
    return JobPlan(tuple(plans))


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
    try:
        asked = folded(named(query))
    except PlanError as error:
        return None, [error]

    def planned(asked: Asked) -> tuple[QueryPlan | None, Sequence[PlanError]]:
        return _planned(name, sink, asked, options, query.sql)

    plan, errors = planned(asked)
    if any(error.code == "unbounded-state" for error in errors):
        narrower = narrowed(asked.query)
        if narrower is not None and (found := planned(replace(asked, query=narrower)))[0] is not None:
            asked, (plan, errors) = replace(asked, query=narrower), found
    if plan is None or options.plan is not PlanChoice.AUTO:
        return plan, errors
    return in_best_order(plan, asked.query, lambda other: planned(replace(asked, query=other))[0]), []


def _planned(
    name: str, sink: Sink, asked: Asked, options: Options, sql: str
) -> tuple[QueryPlan | None, Sequence[PlanError]]:
    """The plan with the joins in the order in which they stand."""
    tree = tree_of(asked.query, options.time_zone)
    scope = Scope(tree.inputs, time_zone=options.time_zone)
    errors = check_event_times(scope)
    if errors:
        return None, errors
    errors = check_query(asked.outputs, sink, options, scope)
    for each in tree.every:
        if each.query.aggregation is not None:
            errors += check_calls(each.query.aggregation, is_root=each is tree)
    if options.output_mode is OutputMode.CHANGELOG:
        errors += _changelog(tree, scope)
        if errors:
            return None, errors
    understood, problems = _understood(tree, options)
    errors += problems
    if errors:
        return None, errors
    errors = list(_flow(understood, options).errors)
    if errors:
        return None, errors
    filters = [*understood.conditions.after]
    where = join_all([c.expr for c in filters] + ([] if asked.after is None else [asked.after]))
    after = [output.expr for output in asked.outputs] + ([] if where is None else [where])
    nodes, errors = plan_nodes(understood, after)
    if errors:
        return None, errors
    return (
        QueryPlan(
            name=name,
            sink=sink,
            nodes=nodes,
            where=None if where is None else after_join(where),
            outputs=tuple(OutputColumn(o.name, after_join(o.expr), o.origin) for o in asked.outputs),
            options=options,
            fingerprint=fingerprint_of(nodes, options),
            sql=sql,
        ),
        [],
    )


def _changelog(tree: Tree, scope: Scope) -> list[PlanError]:
    """What is not run yet where results may be taken back."""
    names = ", ".join(i.alias for i in scope.inputs)
    if any(each.query.aggregation is not None for each in tree.every):
        return [PlanError("windows are not run yet in output_mode changelog", code="not-yet")]
    if len(tree.every) > 1:
        return [
            PlanError(
                f"UNION ALL of joins ({names}) is not run yet in output_mode changelog",
                code="not-yet",
                hint="write one INSERT per branch, into the same sink",
            )
        ]
    lookups = [i.alias for i in scope.inputs if i.as_of]
    if lookups:
        return [
            PlanError(
                f"a join with a table FOR SYSTEM_TIME AS OF ({', '.join(lookups)}) is not run in output_mode"
                " changelog: a row that is taken back might meet another table than when it came",
                code="not-yet",
                hint="SET output_mode = append, or declare the table's changes as a stream of updates",
            )
        ]
    if len(tree.nodes) > 1:
        return [
            PlanError(
                f"joins of more than two inputs ({names}) are not run yet in output_mode changelog",
                code="not-yet",
                hint="join two of them into a sink, and that with the third",
            )
        ]
    hinted = [i.alias for i in scope.inputs if i.broadcast]
    if hinted:
        return [
            PlanError(
                f"BROADCAST({', '.join(hinted)}) is not run yet in output_mode changelog: how many matches a"
                " row has is counted by the one task that has it",
                code="not-yet",
                hint="leave out the hint, or SET output_mode = append",
            )
        ]
    if tree.root.passes and any(i.changes for i in scope.inputs):
        return [
            PlanError(
                f"a query without a join over rows that may be taken back ({names}) is not run yet",
                code="not-yet",
            )
        ]
    return []


def _understood(tree: Tree, options: Options) -> tuple[Understood, list[PlanError]]:
    """The query and its stages with their conditions taken apart."""
    stages, errors = {}, []
    for key, stage in tree.stages.items():
        stages[key], problems = _understood(stage, options)
        errors += problems
    aggregation = tree.query.aggregation
    having = None if aggregation is None else aggregation.having
    conditions = place(tree.nodes, tree.query.where, having)
    drafts = []
    for node in tree.nodes:
        draft, problems = draft_of(node, conditions.joins[node.number])
        drafts.append(draft)
        errors += problems
    errors += check_asof(drafts, options)
    return Understood(tree, conditions, tuple(drafts), stages), errors


def _flow(query: Understood, options: Options) -> Flow:
    """The watermarks that leave a query or stage, and the rows in it that would be kept for ever."""
    stages = {key: _flow(stage, options) for key, stage in query.stages.items()}
    errors = tuple(error for flow in stages.values() for error in flow.errors)
    if errors:
        return Flow(frozenset(), errors)
    return check_bounded(query.drafts, query.conditions.every, options, stages)
