"""The rules by which a query becomes a plan, each a function with one job over what is known of it so far.

`planner.RULES` says in which order they are asked. A rule writes down what it works out in `Planning`, and
gives back what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from watersmeet.errors import PlanError
from watersmeet.names import KEY_ROWS
from watersmeet.plan.checks.changelog import check_changelog
from watersmeet.plan.checks.groups import check_groups
from watersmeet.plan.checks.per_key import check_per_key, check_per_key_of_delta
from watersmeet.plan.checks.query import check_query
from watersmeet.plan.checks.shedding import check_shedding
from watersmeet.plan.checks.unbounded import Outflow, check_bounded
from watersmeet.plan.conditions.conjuncts import join_all
from watersmeet.plan.conditions.placement import place
from watersmeet.plan.conditions.residual import after_join
from watersmeet.plan.delta.chain import plan_delta
from watersmeet.plan.delta.counted import NO_COUNTS, Counts
from watersmeet.plan.delta.paths import NO_DELTA, DeltaJoin, NoDelta, chosen, delta_join
from watersmeet.plan.delta.told import plan_told
from watersmeet.plan.identity.fingerprint import fingerprint_of
from watersmeet.plan.join_inputs import JoinInputs, check_event_times
from watersmeet.plan.model.delta import ArrangePlan
from watersmeet.plan.model.job import FoldedQuery, QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.nodes.aggregate import check_calls
from watersmeet.plan.nodes.asof import check_asof
from watersmeet.plan.nodes.chain import Understood, plan_nodes
from watersmeet.plan.nodes.for_others import ForOthers
from watersmeet.plan.nodes.horizon import with_horizon
from watersmeet.plan.nodes.join import draft_of
from watersmeet.plan.nodes.tree import Tree, tree_of
from watersmeet.spec.model import Expr, Lateness, Options, OutputColumn, OutputMode, PlanChoice, Sink

Problems = Sequence[PlanError]


@dataclass
class Planning:
    """A query on its way to a plan. ``sql``: its text, for people; ``for_others``: what other queries need of
    its rows; ``counts``: what a run has counted of what it keeps. Below stands what the rules work out; it is
    there when the rule before has been asked."""

    name: str
    sink: Sink
    options: Options
    asked: FoldedQuery
    sql: str
    for_others: ForOthers = field(default_factory=ForOthers)
    counts: Counts = NO_COUNTS
    tree: Tree = field(init=False)
    understood: Understood = field(init=False)
    nodes: tuple[NodePlan, ...] = field(init=False)
    plan: QueryPlan = field(init=False)

    @property
    def join_inputs(self) -> JoinInputs:
        """All inputs, those of stages too."""
        return JoinInputs(self.tree.inputs, **self.tree.of_job)

    @property
    def where(self) -> Expr | None:
        """What is asked of the rows of the last node."""
        after = [conjunct.expr for conjunct in self.understood.conditions.after]
        return join_all(after + ([] if self.asked.after is None else [self.asked.after]))


@dataclass(frozen=True)
class Rule:
    """``ask``: writes down what it works out, and says what is wrong. ``is_last`` where something is wrong by
    then: later rules would stumble over it, or only say it again. ``applies``: to which queries."""

    name: str
    ask: Callable[[Planning], Problems]
    is_last: bool = False
    applies: Callable[[Planning], bool] = lambda query: True


def tree_grown(query: Planning) -> Problems:
    """Relations become nodes, each after those whose rows it takes; those of stages in trees of their own."""
    asked = query.asked
    query.tree = tree_of(
        asked.query,
        query.options.time_zone,
        changes=is_changelog(query),
        as_written=asked.as_written,
    )
    return ()


def event_times_legal(query: Planning) -> Problems:
    """Event times have types that are times."""
    return check_event_times(query.join_inputs)


def query_legal(query: Planning) -> Problems:
    """Names, updates in append mode, and inputs that follow others: whatever the query joins."""
    return check_query(query.asked.outputs, query.sink, query.options, query.tree)


def aggregates_legal(query: Planning) -> Problems:
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
    return problems


def changelog_run(query: Planning) -> Problems:
    """What is run where rows may be taken back."""
    return check_changelog(query.tree, query.asked.outputs if is_changelog(query) else ())


def is_changelog(query: Planning) -> bool:
    return query.options.output_mode is OutputMode.CHANGELOG


def conditions_understood(query: Planning) -> Problems:
    """Conjuncts go to the node that asks them, and are taken apart there: keys, bands, bounds, residual."""
    query.understood, problems = _understood(query.tree, query.options, query.counts)
    return problems


def _understood(tree: Tree, options: Options, counts: Counts) -> tuple[Understood, list[PlanError]]:
    """The query and its stages."""
    stages, problems = {}, []
    for key, stage in tree.stages.items():
        stages[key], of_stage = _understood(stage, options, counts)
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
    delta: DeltaJoin | NoDelta = NO_DELTA
    if not problems:
        asked = chosen(tree, options.plan)
        delta = delta_join(tree, conditions, asked, changes=tree.changes, counts=counts)
        problems += check_per_key_of_delta(delta, options, changes=tree.changes)
    return Understood(tree, conditions, tuple(drafts), stages, delta), problems


def state_bounded(query: Planning) -> Problems:
    """No row would be kept for ever."""
    return _outflow(query.understood, query.options).errors


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


def nodes_planned(query: Planning) -> Problems:
    """Which columns each node keeps, what is computed of them, and what leaves it."""
    where = query.where
    after = [output.expr for output in query.asked.outputs] + ([] if where is None else [where])
    query.nodes, problems = plan_nodes(query.understood, after, plan_delta, query.for_others)
    if problems:
        return problems
    return [
        *check_per_key(query.nodes, query.name, query.options),
        *check_shedding(query.nodes, query.name, query.options),
    ]


def goes_by_joins(query: Planning) -> bool:
    """Whether lateness is a matter of the join."""
    return query.options.lateness is Lateness.JOIN


def lateness_ruled(query: Planning) -> Problems:
    """The join has a horizon, by which its rows are late and released."""
    query.nodes, problems = with_horizon(query.nodes, query.name, query.options)
    return problems


def query_planned(query: Planning) -> Problems:
    """The plan with what is asked of the last node's rows, and the digest that state is known by."""
    where = query.where
    outputs = [OutputColumn(o.name, after_join(o.expr), o.origin) for o in query.asked.outputs]
    rows = outputs.pop().expr if outputs[-1].name == KEY_ROWS else None
    query.plan = QueryPlan(
        name=query.name,
        sink=query.sink,
        nodes=query.nodes,
        where=None if where is None else after_join(where),
        outputs=tuple(outputs),
        options=query.options,
        fingerprint=fingerprint_of(query.nodes, query.options),
        sql=query.sql,
        of_plan=_no_delta(query),
        rows_of_key=rows,
        asked=query.asked,
    )
    query.plan = replace(query.plan, joins_run=tuple(_joins_run(query.understood, query)))
    return ()


def _joins_run(part: Understood, query: Planning) -> Iterator[str]:
    """How the joins of a query, or stage, are run, those of stages beneath first."""
    for stage in part.stages.values():
        yield from _joins_run(stage, query)
    asked = chosen(part.tree, query.options.plan)
    yield from plan_told(part.tree, part.delta, asked, query.plan.every(ArrangePlan))


def _no_delta(query: Planning) -> tuple[str, ...]:
    """Why there is no delta join although one was asked for."""
    delta = query.understood.delta
    asked = chosen(query.tree, query.options.plan)
    if asked is not PlanChoice.DELTA or isinstance(delta, DeltaJoin):
        return ()
    return (f"plan = delta is not possible, so the job uses a cascade: {delta.why}",)
