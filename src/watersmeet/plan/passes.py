"""The passes by which a query becomes a plan: each has one job, takes what is known of the query so far, and
returns it with what the pass works out, and what is wrong.

`PASSES` says in which order they run, `run` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from watersmeet.errors import PlanError, flat_enough
from watersmeet.names import KEY_ROWS
from watersmeet.plan.checks.changelog import check_changelog
from watersmeet.plan.checks.groups import check_groups
from watersmeet.plan.checks.one_row import has_one_row_per
from watersmeet.plan.checks.per_key import check_per_key, check_per_key_of_delta
from watersmeet.plan.checks.query import check_query
from watersmeet.plan.checks.shedding import check_shedding
from watersmeet.plan.checks.unbounded import Outflow, check_bounded
from watersmeet.plan.conditions.conjuncts import join_all
from watersmeet.plan.conditions.placement import place
from watersmeet.plan.conditions.residual import after_join
from watersmeet.plan.delta.chain import plan_delta
from watersmeet.plan.delta.counted import NO_COUNTS, Counts
from watersmeet.plan.delta.paths import DeltaJoin, chosen, delta_join
from watersmeet.plan.delta.told import plan_told
from watersmeet.plan.identity.fingerprint import fingerprint_of
from watersmeet.plan.join_inputs import JoinInputs, check_event_times
from watersmeet.plan.mode import with_mode
from watersmeet.plan.model.delta import ArrangePlan
from watersmeet.plan.model.job import FoldedQuery, KeyRows, QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.nodes.aggregate import check_calls
from watersmeet.plan.nodes.asof import check_asof
from watersmeet.plan.nodes.chain import Understood, plan_nodes
from watersmeet.plan.nodes.counted import counted, uncountable
from watersmeet.plan.nodes.feed import DerivedColumns, ForOthers
from watersmeet.plan.nodes.horizon import with_horizon
from watersmeet.plan.nodes.join import draft_of
from watersmeet.plan.nodes.keyed import keyed
from watersmeet.plan.nodes.limited import limited
from watersmeet.plan.nodes.stages import folded, named
from watersmeet.plan.nodes.tree import Tree, tree_of
from watersmeet.plan.order.narrowed import narrowed
from watersmeet.plan.order.reorder import in_best_order
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
    """A query on its way to a plan.

    ``sql``: its text, for people; ``for_others``: what other queries need of its rows; ``counts``: what a run
    has counted of what it keeps; ``is_in_order``: its joins are what they are by a decision that stands, and
    no pass changes them; ``fallback``: what to plan if this query is refused. The fields below are there when
    the pass has run that works them out.
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
    understood: Understood = _LATER
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
        """What is asked of the rows of the last node."""
        after = [conjunct.expr for conjunct in self.understood.conditions.after]
        return join_all(after + ([] if self.after is None else [self.after]))


Result = tuple[Planning, Problems]


@dataclass(frozen=True)
class Pass:
    """``is_last``: the query is refused here if anything is wrong by then: later passes would stumble over
    it, or only say it again. ``applies``: to which queries."""

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


def mode_known(query: Planning) -> Result:
    """Its rows are final, or may be taken back."""
    return replace(query, options=with_mode(query.options, query.query)), ()


def has_sink_key(query: Planning) -> bool:
    """Return True if the sink has a PRIMARY KEY, and the query all of its columns."""
    names = {output.name for output in query.query.outputs}
    return bool(query.sink.primary_key) and names.issuperset(query.sink.primary_key)


def key_rows_known(query: Planning) -> Result:
    """The result has one row per key of its sink, or its rows are counted per key, or there is a warning."""
    key = query.sink.primary_key
    if has_one_row_per(query.query, key):
        return replace(query, key_rows=KeyRows.KNOWN), ()
    if not is_changelog(query):
        return without_count(query, "final rows are not counted"), ()
    why = uncountable(query.query, key)
    if why is not None:
        return without_count(query, why), ()
    _, problems = run(query, "keyed", until="conditions")
    if problems:  # they are those of the query as it is written
        return query, problems
    rows = counted(query.query, key)
    return replace(query, query=rows, key_rows=KeyRows.COUNTED, fallback=query), ()


def without_count(query: Planning, why: str) -> Planning:
    """Return the query with the warning that nobody counts the rows of a key, and why."""
    key = ", ".join(query.sink.primary_key)
    warning = (
        f'the result may have several rows per ({key}), the PRIMARY KEY of "{query.sink.name}", which the job'
        f" does not check ({why}): a later tick overwrites rows of earlier ones"
    )
    return replace(query, warnings=(*query.warnings, warning))


def stages_folded(query: Planning) -> Result:
    """A stage that is all of a query is the query (`plan.nodes.stages`)."""
    inner = folded(query.query)
    return replace(query, query=inner.query, after=inner.after, outputs=inner.outputs), ()


def tree_grown(query: Planning) -> Result:
    """Relations become nodes, each after those whose rows it takes; those of stages in trees of their own."""
    tree = tree_of(query.query, query.options.time_zone, changes=is_changelog(query))
    return replace(query, tree=tree), ()


def event_times_legal(query: Planning) -> Result:
    """Event times have types that are times."""
    return query, check_event_times(query.join_inputs)


def query_legal(query: Planning) -> Result:
    """Names, updates in append mode, and inputs that follow others: whatever the query joins."""
    return query, check_query(query.outputs, query.sink, query.options, query.tree)


def aggregates_legal(query: Planning) -> Result:
    """The aggregates are ones that can be run where they stand."""
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


def changelog_run(query: Planning) -> Result:
    """What is run where rows may be taken back."""
    return query, check_changelog(query.tree, query.outputs if is_changelog(query) else ())


def is_changelog(query: Planning) -> bool:
    return query.options.output_mode is OutputMode.CHANGELOG


def conditions_understood(query: Planning) -> Result:
    """Conjuncts go to the node that asks them, and are taken apart there: keys, bands, bounds, residual."""
    understood, problems = _understood(query.tree)
    return replace(query, understood=understood), problems


def _understood(tree: Tree) -> tuple[Understood, list[PlanError]]:
    """The query and its stages."""
    stages, problems = {}, []
    for key, stage in tree.stages.items():
        stages[key], of_stage = _understood(stage)
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
    return Understood(tree, conditions, tuple(drafts), stages), problems


def delta_chosen(query: Planning) -> Result:
    """Joins are run as a delta join, or each keeps what it joins."""
    understood, problems = _with_delta(query.understood, query.options, query.counts)
    return replace(query, understood=understood), problems


def _with_delta(part: Understood, options: Options, counts: Counts) -> tuple[Understood, list[PlanError]]:
    """The query and its stages."""
    stages, problems = {}, []
    for key, stage in part.stages.items():
        stages[key], of_stage = _with_delta(stage, options, counts)
        problems += of_stage
    tree = part.tree
    asked = chosen(tree, options.plan)
    delta = delta_join(tree, part.conditions, asked, changes=tree.changes, counts=counts)
    problems += check_per_key_of_delta(delta, options, changes=tree.changes)
    return replace(part, stages=stages, delta=delta), problems


def state_bounded(query: Planning) -> Result:
    """No row would be kept for ever: in the joins as they stand, or in what WHERE leaves of outer ones
    (`plan.order.narrowed`)."""
    errors = _outflow(query.understood, query.options).errors
    if query.is_in_order or all(error.code != "unbounded-state" for error in errors):
        return query, errors
    narrower = narrowed(query.query)
    if narrower is None:
        return query, errors
    again, problems = run(replace(query, query=narrower, is_in_order=True), "tree", until="nodes")
    return (query, errors) if problems else (replace(again, is_in_order=False), ())


def _outflow(query: Understood, options: Options) -> Outflow:
    """The watermarks that leave a query or stage, and the rows in it that would be kept for ever."""
    stages = {key: _outflow(stage, options) for key, stage in query.stages.items()}
    errors = tuple(error for flow in stages.values() for error in flow.errors)
    if errors:
        return Outflow(frozenset(), errors)
    numbers, keys = frozenset[int](), frozenset[str]()
    if isinstance(query.delta, DeltaJoin):
        numbers, keys = query.delta.numbers, query.delta.releasing
    return check_bounded(query.drafts, query.conditions.every, options, stages, numbers, keys)


def nodes_planned(query: Planning) -> Result:
    """Which columns each node keeps, what is computed of them, and what leaves it."""
    where = query.where
    after = [output.expr for output in query.outputs] + ([] if where is None else [where])
    nodes, derived, problems = plan_nodes(query.understood, after, plan_delta, query.for_others)
    if not problems:
        problems += check_per_key(nodes, query.name, query.options)
        problems += check_shedding(nodes, query.name, query.options)
    return replace(query, nodes=nodes, derived=derived), problems


def goes_by_joins(query: Planning) -> bool:
    """Whether lateness is a matter of the join."""
    return query.options.lateness is Lateness.JOIN


def lateness_ruled(query: Planning) -> Result:
    """The join has a horizon, by which its rows are late and released."""
    nodes, problems = with_horizon(query.nodes, query.name, query.options)
    return replace(query, nodes=nodes), problems


def query_planned(query: Planning) -> Result:
    """The plan with what is asked of the last node's rows, and the digest that state is known by."""
    where = query.where
    outputs = [OutputColumn(o.name, after_join(o.expr), o.origin) for o in query.outputs]
    rows = outputs.pop().expr if outputs[-1].name == KEY_ROWS else None
    plan = QueryPlan(
        name=query.name,
        sink=query.sink,
        nodes=query.nodes,
        where=None if where is None else after_join(where),
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
    joins_run = tuple(_joins_run(query.understood, query.options, arrangements))
    return replace(query, plan=replace(plan, joins_run=joins_run)), ()


def _joins_run(part: Understood, options: Options, arrangements: Sequence[ArrangePlan]) -> Iterator[str]:
    """How the joins of a query, or stage, are run, those of stages beneath first."""
    for stage in part.stages.values():
        yield from _joins_run(stage, options, arrangements)
    asked = chosen(part.tree, options.plan)
    yield from plan_told(part.tree, part.delta, asked, arrangements)


def _no_delta(query: Planning) -> tuple[str, ...]:
    """Why there is no delta join although one was asked for."""
    delta = query.understood.delta
    asked = chosen(query.tree, query.options.plan)
    if asked is not PlanChoice.DELTA or isinstance(delta, DeltaJoin):
        return ()
    return (f"plan = delta is not possible, so the job uses a cascade: {delta.why}",)


def may_be_reordered(query: Planning) -> bool:
    """Return True if nobody says in which order inner joins are made."""
    if query.is_in_order or query.options.plan is not PlanChoice.AUTO:
        return False
    relations = [part.relation for part in query.query.every]
    is_hinted = any(isinstance(own, Join) and own.plan is PlanChoice.CASCADE for own in relations)
    return not is_hinted and query.plan is not None and not query.plan.every(ArrangePlan)


def joins_ordered(query: Planning) -> Result:
    """Inner joins stand in the best order (`plan.order.reorder`)."""

    def planned(other: Query) -> QueryPlan | None:
        return run(replace(query, query=other, is_in_order=True), "tree")[0].plan

    assert query.plan is not None
    return replace(query, plan=in_best_order(query.plan, query.query, planned)), ()


PASSES = (
    Pass("mode", mode_known),
    Pass("rankings", _rewrite(limited), is_last=True),
    Pass("key-rows", key_rows_known, is_last=True, applies=has_sink_key),
    Pass("keyed", _rewrite(keyed), is_last=True),
    Pass("names", _rewrite(named), is_last=True),
    Pass("stages", stages_folded),
    Pass("tree", tree_grown),
    Pass("event-times", event_times_legal, is_last=True),
    Pass("query", query_legal),
    Pass("aggregates", aggregates_legal),
    Pass("changelog", changelog_run, is_last=True),
    Pass("conditions", conditions_understood, is_last=True),
    Pass("delta", delta_chosen, is_last=True),
    Pass("bounded-state", state_bounded, is_last=True),
    Pass("nodes", nodes_planned, is_last=True),
    Pass("lateness", lateness_ruled, is_last=True, applies=goes_by_joins),
    Pass("plan", query_planned),
    Pass("order", joins_ordered, applies=may_be_reordered),
)
"""What happens to a query, in this order."""

_PLACES = {own.name: place for place, own in enumerate(PASSES)}


def run(query: Planning, start: str = PASSES[0].name, until: str | None = None) -> Result:
    """Run the passes from ``start`` to the last one before ``until``, or to the first that refuses the query.

    Returns:
        What is known of the query then, without a plan where it is refused, and what is wrong with it.
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
