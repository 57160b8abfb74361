"""Passes that turn a query into a plan.

Each pass has one task: it takes what is known of the query so far, and returns that together with its own
results and the problems that it found. `PASSES` lists the passes in order; `run` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from watersmeet.errors import PlanError, flat_enough
from watersmeet.names import KEY_ROWS
from watersmeet.plan.checks.changelog import check_changelog
from watersmeet.plan.checks.limits import check_per_key, check_per_key_of_delta, check_shedding
from watersmeet.plan.checks.query import check_groups, check_query
from watersmeet.plan.checks.unbounded_state import Outflow, check_bounded
from watersmeet.plan.checks.unique_keys import has_one_row_per
from watersmeet.plan.conditions.conjuncts import join_all
from watersmeet.plan.conditions.placement import place
from watersmeet.plan.conditions.residual import to_joined_names
from watersmeet.plan.delta.chain import plan_delta
from watersmeet.plan.delta.paths import (
    NO_COUNTS,
    Counts,
    DeltaJoin,
    choose_strategy,
    delta_join,
    explain_strategy,
)
from watersmeet.plan.identity.fingerprint import fingerprint_of
from watersmeet.plan.model.job import FoldedQuery, KeyRows, QueryPlan
from watersmeet.plan.model.nodes import ArrangePlan, NodePlan
from watersmeet.plan.nodes.aggregate import check_calls
from watersmeet.plan.nodes.asof import check_asof
from watersmeet.plan.nodes.build_plans import ClassifiedQuery, plan_nodes
from watersmeet.plan.nodes.columns import with_mode
from watersmeet.plan.nodes.feeds import DerivedColumns, ForOthers, fold_stages, name_stage_inputs
from watersmeet.plan.nodes.input_side import read_keyed_tables
from watersmeet.plan.nodes.join import draft_of
from watersmeet.plan.nodes.retention import with_horizon
from watersmeet.plan.nodes.top_n import count_per_key, limit_rankings, uncountable
from watersmeet.plan.nodes.tree import Tree, tree_of
from watersmeet.plan.order.join_order import choose_join_order, narrow_joins
from watersmeet.plan.query_inputs import JoinInputs, check_event_times
from watersmeet.spec.model import (
    Expr,
    Join,
    Lateness,
    Options,
    OutputColumn,
    OutputMode,
    PlanChoice,
    Query,
    Sink,
)

Problems = Sequence[PlanError]
_LATER: Any = None
"""What a pass works out, before it has run."""


@dataclass(frozen=True, kw_only=True)
class Planning(FoldedQuery):
    """A query during planning.

    The fields after ``fallback`` are set by the passes that compute them.

    Attributes:
        sql: text of the query, for people.
        for_others: parts of its rows that other queries need.
        counts: row counts of the state, from a run.
        is_in_order: an earlier decision fixes the order of its joins, and no pass changes it.
        fallback: the query to plan if this one is rejected.
    """

    name: str
    sink: Sink
    options: Options
    sql: str
    for_others: ForOthers = field(default_factory=dict)
    counts: Counts = NO_COUNTS
    is_in_order: bool = False
    fallback: Planning | None = None
    key_rows: KeyRows | None = None
    warnings: tuple[str, ...] = ()
    tree: Tree = _LATER
    understood: ClassifiedQuery = _LATER
    nodes: tuple[NodePlan, ...] = ()
    derived: DerivedColumns = field(default_factory=dict)
    plan: QueryPlan | None = None

    @classmethod
    def of(cls, name: str, sink: Sink, query: Query, options: Options) -> Planning:
        """Return a query as it is written."""
        outputs, sql = query.outputs, query.sql
        return cls(query, None, outputs, name=name, sink=sink, options=options, sql=sql)

    @property
    def join_inputs(self) -> JoinInputs:
        """All inputs, those of stages too."""
        return JoinInputs(self.tree.inputs, time_zone=self.tree.time_zone)

    @property
    def where(self) -> Expr | None:
        """Condition on the rows of the last node."""
        after = [conjunct.expr for conjunct in self.understood.conditions.after]
        return join_all(after + ([] if self.after is None else [self.after]))


Result = tuple[Planning, Problems]


@dataclass(frozen=True)
class Pass:
    """One pass of the planner.

    Attributes:
        is_last: Reject the query here if it has errors, because later passes would fail on them or
            repeat them.
        applies: Returns True for the queries that the pass applies to.
    """

    name: str
    run: Callable[[Planning], Result]
    is_last: bool = False
    applies: Callable[[Planning], bool] = lambda query: True


def _rewrite(change: Callable[[Query], Query]) -> Callable[[Planning], Result]:
    """Return the pass that changes the query, or refuses it."""

    def rewritten(query: Planning) -> Result:
        try:
            return replace(query, query=change(query.query)), ()
        except PlanError as error:
            return query, [error]

    return rewritten


def resolve_mode(query: Planning) -> Result:
    """Resolve whether the query's rows are final or can be retracted."""
    return replace(query, options=with_mode(query.options, query.query)), ()


def has_sink_key(query: Planning) -> bool:
    """Return True if the sink has a PRIMARY KEY, and the query all of its columns."""
    names = {output.name for output in query.query.outputs}
    return bool(query.sink.primary_key) and names.issuperset(query.sink.primary_key)


def check_key_rows(query: Planning) -> Result:
    """Check that the result has one row per key of its sink.

    Otherwise, count its rows per key, or add a warning.
    """
    key = query.sink.primary_key
    if has_one_row_per(query.query, key):
        return replace(query, key_rows=KeyRows.KNOWN), ()
    if not is_changelog(query):
        return warn_uncounted(query, "final rows are not counted"), ()
    why = uncountable(query.query, key)
    if why is not None:
        return warn_uncounted(query, why), ()
    _, problems = run(query, "keyed", until="conditions")
    if problems:  # they are those of the query as it is written
        return query, problems
    rows = count_per_key(query.query, key)
    return replace(query, query=rows, key_rows=KeyRows.COUNTED, fallback=query), ()


def warn_uncounted(query: Planning, why: str) -> Planning:
    """Return the query with the warning that nobody counts the rows of a key, and why."""
    key = ", ".join(query.sink.primary_key)
    warning = (
        f'the result may have several rows per ({key}), the PRIMARY KEY of "{query.sink.name}", which the job'
        f" does not check ({why}): a later tick overwrites rows of earlier ones"
    )
    return replace(query, warnings=(*query.warnings, warning))


def fold_single_stage(query: Planning) -> Result:
    """Replace a query that consists of a single stage with that stage (`plan.nodes.feeds`)."""
    inner = fold_stages(query.query)
    return replace(query, query=inner.query, after=inner.after, outputs=inner.outputs), ()


def build_tree(query: Planning) -> Result:
    """Build nodes from relations, each after the nodes whose rows it receives.

    Stages have trees of their own.
    """
    tree = tree_of(query.query, query.options.time_zone, changes=is_changelog(query))
    return replace(query, tree=tree), ()


def validate_event_times(query: Planning) -> Result:
    """Check that event times have types that are times."""
    return query, check_event_times(query.join_inputs)


def validate_query(query: Planning) -> Result:
    """Check everything that does not depend on the kind of join.

    This covers names, updates in append mode, and inputs that follow others.
    """
    return query, check_query(query.outputs, query.sink, query.options, query.tree)


def validate_aggregates(query: Planning) -> Result:
    """Check that the aggregates can run where they stand."""
    problems: list[PlanError] = []
    for stage in query.tree.every:
        aggregation = stage.query.aggregation
        if aggregation is None:
            continue
        by_tasks = aggregation.window is None or stage.changes
        problems += check_calls(aggregation, is_root=stage is query.tree or by_tasks)
        if by_tasks:
            problems += check_groups(stage.query, aggregation, is_final=not stage.changes)
    return query, problems


def validate_changelog(query: Planning) -> Result:
    """Check that the query has no feature that is unsupported where rows can be retracted."""
    return query, check_changelog(query.tree, query.outputs if is_changelog(query) else ())


def is_changelog(query: Planning) -> bool:
    return query.options.output_mode is OutputMode.CHANGELOG


def classify_conditions(query: Planning) -> Result:
    """Place conjuncts at the nodes that evaluate them, and classify them there.

    The classes are keys, bands, bounds and residual.
    """
    understood, problems = _classify_tree(query.tree)
    return replace(query, understood=understood), problems


def _classify_tree(tree: Tree) -> tuple[ClassifiedQuery, list[PlanError]]:
    """Classify the conditions of a query and its stages."""
    stages, problems = {}, []
    for key, stage in tree.stages.items():
        stages[key], of_stage = _classify_tree(stage)
        problems += of_stage
    aggregation = tree.query.aggregation
    having = None if aggregation is None else aggregation.having
    conditions = place(tree.nodes, tree.query.where, having)
    drafts = []
    for node in tree.nodes:
        draft, of_node = draft_of(node, conditions.joins[node.number])
        drafts.append(draft)
        problems += of_node
    problems += check_asof(drafts, changes=tree.changes)
    return ClassifiedQuery(tree, conditions, tuple(drafts), stages), problems


def choose_delta(query: Planning) -> Result:
    """Choose between a delta join and a chain of joins that each retain their inputs."""
    understood, problems = _with_delta(query.understood, query.options, query.counts)
    return replace(query, understood=understood), problems


def _with_delta(
    part: ClassifiedQuery, options: Options, counts: Counts
) -> tuple[ClassifiedQuery, list[PlanError]]:
    """Choose the joins of a query and its stages that run as a delta join."""
    stages, problems = {}, []
    for key, stage in part.stages.items():
        stages[key], of_stage = _with_delta(stage, options, counts)
        problems += of_stage
    tree = part.tree
    asked = choose_strategy(tree, options.plan)
    delta = delta_join(tree, part.conditions, asked, changes=tree.changes, counts=counts)
    problems += check_per_key_of_delta(delta, options, changes=tree.changes)
    return replace(part, stages=stages, delta=delta), problems


def bound_state(query: Planning) -> Result:
    """Check that no row stays in state without limit.

    If the joins as written fail, the check tries the query with outer joins narrowed by WHERE
    (`plan.order.join_order`).
    """
    errors = _outflow(query.understood, query.options).errors
    if query.is_in_order or all(error.code != "unbounded-state" for error in errors):
        return query, errors
    narrower = narrow_joins(query.query)
    if narrower is None:
        return query, errors
    again, problems = run(replace(query, query=narrower, is_in_order=True), "tree", until="nodes")
    return (query, errors) if problems else (replace(again, is_in_order=False), ())


def _outflow(query: ClassifiedQuery, options: Options) -> Outflow:
    """Return the watermarks that leave a query or stage, and errors for its unbounded rows."""
    stages = {key: _outflow(stage, options) for key, stage in query.stages.items()}
    errors = tuple(error for flow in stages.values() for error in flow.errors)
    if errors:
        return Outflow(frozenset(), errors)
    numbers, keys = frozenset[int](), frozenset[str]()
    if isinstance(query.delta, DeltaJoin):
        numbers, keys = query.delta.numbers, query.delta.releasing
    return check_bounded(query.drafts, query.conditions.every, options, stages, numbers, keys)


def build_nodes(query: Planning) -> Result:
    """Plan the columns that each node retains, those computed for it, and those that leave it."""
    where = query.where
    after = [output.expr for output in query.outputs] + ([] if where is None else [where])
    nodes, derived, problems = plan_nodes(query.understood, after, plan_delta, query.for_others)
    if not problems:
        problems += check_per_key(nodes, query.name, query.options)
        problems += check_shedding(nodes, query.name, query.options)
    return replace(query, nodes=nodes, derived=derived), problems


def is_join_lateness(query: Planning) -> bool:
    """Return True if the join decides lateness."""
    return query.options.lateness is Lateness.JOIN


def add_horizon(query: Planning) -> Result:
    """Add a horizon to the join, which decides when its rows are late and released."""
    nodes, problems = with_horizon(query.nodes, query.name, query.options)
    return replace(query, nodes=nodes), problems


def assemble_plan(query: Planning) -> Result:
    """Assemble the plan.

    It includes the expressions over the last node's rows, and the digest that identifies state.
    """
    where = query.where
    outputs = [OutputColumn(o.name, to_joined_names(o.expr), o.origin) for o in query.outputs]
    rows = outputs.pop().expr if outputs[-1].name == KEY_ROWS else None
    plan = QueryPlan(
        name=query.name,
        sink=query.sink,
        nodes=query.nodes,
        where=None if where is None else to_joined_names(where),
        outputs=tuple(outputs),
        options=query.options,
        fingerprint=fingerprint_of(query.nodes, query.options),
        sql=query.sql,
        of_plan=(*_no_delta(query), *query.warnings),
        key_rows=query.key_rows,
        rows_of_key=rows,
        asked=query,
    )
    arrangements = plan.every(ArrangePlan)
    joins_run = tuple(_describe_joins(query.understood, query.options, arrangements))
    return replace(query, plan=replace(plan, joins_run=joins_run)), ()


def _describe_joins(
    part: ClassifiedQuery, options: Options, arrangements: Sequence[ArrangePlan]
) -> Iterator[str]:
    """Yield how the joins of a query or stage run; stages below come first."""
    for stage in part.stages.values():
        yield from _describe_joins(stage, options, arrangements)
    asked = choose_strategy(part.tree, options.plan)
    yield from explain_strategy(part.tree, part.delta, asked, arrangements)


def _no_delta(query: Planning) -> tuple[str, ...]:
    """Return the reason why a requested delta join is not available.

    Returns:
        An empty tuple if none is requested, or if the query has one.
    """
    delta = query.understood.delta
    asked = choose_strategy(query.tree, query.options.plan)
    if asked is not PlanChoice.DELTA or isinstance(delta, DeltaJoin):
        return ()
    return (f"plan = delta is not possible, so the job uses a cascade: {delta.why}",)


def may_be_reordered(query: Planning) -> bool:
    """Return True if the query does not fix the order of its inner joins."""
    if query.is_in_order or query.options.plan is not PlanChoice.AUTO:
        return False
    relations = [part.relation for part in query.query.every]
    is_hinted = any(isinstance(own, Join) and own.plan is PlanChoice.CASCADE for own in relations)
    return not is_hinted and query.plan is not None and not query.plan.every(ArrangePlan)


def order_joins(query: Planning) -> Result:
    """Put inner joins in the best order (`plan.order.join_order`)."""

    def plan_in_given_order(other: Query) -> QueryPlan | None:
        return run(replace(query, query=other, is_in_order=True), "tree")[0].plan

    assert query.plan is not None
    return replace(query, plan=choose_join_order(query.plan, query.query, plan_in_given_order)), ()


PASSES = (
    Pass("mode", resolve_mode),
    Pass("rankings", _rewrite(limit_rankings), is_last=True),
    Pass("key-rows", check_key_rows, is_last=True, applies=has_sink_key),
    Pass("keyed", _rewrite(read_keyed_tables), is_last=True),
    Pass("names", _rewrite(name_stage_inputs), is_last=True),
    Pass("stages", fold_single_stage),
    Pass("tree", build_tree),
    Pass("event-times", validate_event_times, is_last=True),
    Pass("query", validate_query),
    Pass("aggregates", validate_aggregates),
    Pass("changelog", validate_changelog, is_last=True),
    Pass("conditions", classify_conditions, is_last=True),
    Pass("delta", choose_delta, is_last=True),
    Pass("bounded-state", bound_state, is_last=True),
    Pass("nodes", build_nodes, is_last=True),
    Pass("lateness", add_horizon, is_last=True, applies=is_join_lateness),
    Pass("plan", assemble_plan),
    Pass("order", order_joins, applies=may_be_reordered),
)
"""What happens to a query, in this order."""

_PLACES = {own.name: place for place, own in enumerate(PASSES)}


def run(query: Planning, start: str = PASSES[0].name, until: str | None = None) -> Result:
    """Run the passes from ``start`` to the last before ``until``, or the first that rejects the query.

    Returns:
        The query as far as it was planned, without a plan if it was rejected, and the problems found.
    """
    query, problems = replace(query, plan=None), list[PlanError]()
    with flat_enough():
        for own in PASSES[_PLACES[start] : None if until is None else _PLACES[until]]:
            if own.applies(query):
                query, wrong = own.run(query)
                problems += wrong
                if problems and own.is_last:
                    break
    return query, problems


def rerun(plan: QueryPlan, start: str, **other: Any) -> Result:
    """Run the passes from ``start`` again, with something else about the query of a plan."""
    assert isinstance(plan.asked, Planning)
    return run(replace(plan.asked, is_in_order=True, **other), start)
