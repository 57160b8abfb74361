"""From nodes whose conditions are understood to their plans: which columns each keeps, and what leaves it.

Columns are decided from the root downwards, for what a node keeps is what leaves the one beneath it; stages
come after what they feed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatchmethod
from typing import TypedDict

from sqlglot import exp

from watersmeet.conditions import ExactBand, Key
from watersmeet.errors import PlanError
from watersmeet.event_time import Side, TimeComparison
from watersmeet.names import node_alias, ours
from watersmeet.plan.conditions.bands import comparisons_of, slack_of
from watersmeet.plan.conditions.conjuncts import Conjunct, text_of
from watersmeet.plan.conditions.flags import SideConditions
from watersmeet.plan.conditions.keys import Equality, bare
from watersmeet.plan.conditions.placement import PlacedConditions
from watersmeet.plan.conditions.residual import ResidualFields, residual_fields, to_joined_names
from watersmeet.plan.delta.nodes import in_order
from watersmeet.plan.delta.paths import NO_DELTA, DeltaJoin, NoDelta
from watersmeet.plan.identity.fingerprint import table_fingerprint
from watersmeet.plan.model.nodes import (
    AggregatePlan,
    CallPlan,
    GroupPlan,
    JoinPlan,
    LookupPlan,
    NodePlan,
    PassPlan,
    RankPlan,
    SnapshotPlan,
    TablePlan,
    UpsertPlan,
    WindowGroupPlan,
)
from watersmeet.plan.model.sides import Bands, FeedPlan, KeyPlan, OverflowCheck, SidePlan, joined_name
from watersmeet.plan.nodes.aggregate import Groups, from_rows, groups_of, with_texts
from watersmeet.plan.nodes.asof import asof_of
from watersmeet.plan.nodes.columns import RetainedColumns, retained_columns
from watersmeet.plan.nodes.feeds import (
    Derived,
    DerivedColumns,
    ForOthers,
    PlannedFeed,
    StageFeed,
    StageKey,
    column_of,
    needed_columns,
    open_key,
)
from watersmeet.plan.nodes.input_side import InputSide, OfStage, compared_refs, index_plan, never_null
from watersmeet.plan.nodes.join import Draft, bounds_in, looks_above
from watersmeet.plan.nodes.tree import (
    AggregateNode,
    ChangesNode,
    GroupedNode,
    GroupNode,
    IndexNode,
    JoinNode,
    LookupNode,
    MatchNode,
    PassNode,
    QueryNode,
    RankNode,
    SnapshotNode,
    TableNode,
    Tree,
    UpsertNode,
    WindowGroupNode,
)
from watersmeet.plan.query_inputs import refs
from watersmeet.spec.model import Column, Expr, Input, JoinKind, StageBranch, WindowKind
from watersmeet.spec.options.kafka import placeholders_of


@dataclass(frozen=True)
class ClassifiedQuery:
    """Classified conditions and drafts of a query or stage.

    Attributes:
        stages: Stages below its inputs, by (alias, branch).
        delta: Joins of the query that run as a delta join.
    """

    tree: Tree
    conditions: PlacedConditions
    drafts: tuple[Draft, ...]
    stages: Mapping[tuple[str, int], ClassifiedQuery]
    delta: DeltaJoin | NoDelta = NO_DELTA


def plan_nodes(
    query: ClassifiedQuery, after: Iterable[Expr], of_delta: OfDelta, for_others: ForOthers
) -> tuple[tuple[NodePlan, ...], DerivedColumns, list[PlanError]]:
    """Plan all nodes of a query, in the order of their numbers.

    Args:
        after: Expressions over the rows of the last node.
        for_others: Expressions that other queries need of its rows and of the rows of its stages.

    Returns:
        The nodes, the columns computed from rows of inputs for them, and the errors.
    """
    chain = NodeChain(query, of_delta, for_others)
    nodes = chain.plan({joined_name(*ref) for expr in after for ref in refs(expr)})
    return in_order(nodes), chain.derived_of, chain.errors


def _own_key(column: str) -> KeyPlan:
    """Build the key plan of a primary-key column.

    Rows with NULL in it do not belong to the table.
    """
    own = exp.Column(this=exp.to_identifier(column, quoted=True))
    return KeyPlan(own, own, Key(column, column, null_safe=False))


def _any_column(draft: Draft) -> str:
    first = draft.join_inputs.in_order[0]
    return joined_name(first.alias, (*first.event_times, first.columns[0].name)[0])


@dataclass(frozen=True)
class _NodeInputs:
    """Planned inputs of a node, complete once all nodes above have stated what they need.

    Attributes:
        filters: As in `NodePlan`.
    """

    draft: Draft
    sides: Mapping[Side, SidePlan]
    filters: tuple[tuple[str, str], ...]


class MatchFields(ResidualFields):
    """Fields that the plans of all matching nodes share; see `MatchPlan`."""

    number: int
    filters: tuple[tuple[str, str], ...]
    kind: JoinKind
    keys: tuple[KeyPlan, ...]
    bands: tuple[ExactBand, ...]
    comparisons: tuple[TimeComparison, ...]
    rechecks: tuple[TimeComparison, ...]
    slack: int
    matchable: bool
    one_sided: tuple[tuple[str, str], ...]
    recheck_texts: tuple[str, ...]
    warnings: tuple[str, ...]
    values: Bands
    careful: OverflowCheck | None


class GroupedFields(TypedDict):
    """Fields that the plans of all grouping nodes share; see `GroupedPlan`."""

    number: int
    sides: tuple[SidePlan, ...]
    filters: tuple[tuple[str, str], ...]
    keys: tuple[tuple[str, str], ...]
    calls: tuple[CallPlan, ...]
    results: tuple[Column, ...]
    key_texts: tuple[str, ...]
    having: str | None


class WindowedFields(TypedDict):
    """Additional fields that the plans of all windowed nodes share; see `WindowedPlan`."""

    kind: WindowKind
    time: str
    size: int
    slide: int


def _window_fields(node: AggregateNode, ready: _NodeInputs) -> WindowedFields:
    of_nodes = ready.sides[Side.LEFT].feed is not None
    window = node.window
    time = joined_name(*node.timed) if of_nodes else node.timed[1]
    return WindowedFields(kind=window.kind, time=time, size=window.size, slide=window.slide)


@dataclass
class NodeChain:
    """Builder of the node plans of one query or stage.

    Attributes:
        of_delta: plans the nodes of a delta join, given the columns of ``leaving`` that its root must emit.
        for_others: the expressions over the rows of each relation that other nodes need.
        stage: the key of this relation in ``for_others`` and ``derived_of``.
        derived_of: the derived columns per stage; the chains of all stages write to it.
    """

    query: ClassifiedQuery
    of_delta: OfDelta
    for_others: ForOthers = field(default_factory=dict)
    stage: StageKey = None
    derived_of: dict[StageKey, Derived] = field(default_factory=dict)
    derived: Derived = field(default_factory=Derived)
    leaving: dict[int, Collection[str]] = field(default_factory=dict)
    """Per node, the joined names of what has to leave it."""
    asked_of_groups: Collection[str] = ()
    """Of a root that groups, the columns that something above needs."""
    keys: dict[int, tuple[KeyPlan, ...]] = field(default_factory=dict)
    groups: dict[int, Groups] = field(default_factory=dict)
    sides: dict[tuple[int, Side], SidePlan] = field(default_factory=dict)
    """Of rows that come from nodes of the same query."""
    beneath_groups: Collection[str] = ()
    """What others need of the rows that are grouped."""
    beneath: list[NodePlan] = field(default_factory=list)
    errors: list[PlanError] = field(default_factory=list)

    @property
    def drafts(self) -> Sequence[Draft]:
        return self.query.drafts

    @property
    def conditions(self) -> PlacedConditions:
        return self.query.conditions

    def plan(self, leaving: Collection[str]) -> list[NodePlan]:
        """Plan all nodes and return them in no particular order.

        Args:
            leaving: Columns of the root's rows that something above needs.
        """
        root = self.drafts[-1]  # rows without a column could not be counted
        self.derived_of[self.stage] = self.derived
        others = {column_of(expr, self.derived) for expr in self.for_others.get(self.stage, ())}
        if isinstance(root.node, GroupedNode):  # its side's columns do not leave it
            self.asked_of_groups, leaving = leaving, ()
            self.beneath_groups = others
        else:
            leaving = {*leaving, *others}
            leaving = leaving or {_any_column(root)}
        self.leaving[root.node.number] = leaving
        delta = self.query.delta
        in_delta = delta.numbers if isinstance(delta, DeltaJoin) else frozenset[int]()
        drafts = [draft for draft in self.drafts if draft.node.number not in in_delta]
        for draft in reversed(drafts):
            self._plan_keys(draft)
        nodes = [self._node(draft) for draft in drafts]
        if isinstance(delta, DeltaJoin):
            nodes += self.of_delta(self, delta, self.leaving[delta.root])
        return [replace(node, changes=self.query.tree.changes) for node in nodes] + self.beneath

    def _plan_keys(self, draft: Draft) -> None:
        """Plan the keys of a node and its sides that are nodes of the query.

        This also records the columns that have to leave those nodes.
        """
        node = draft.node
        feeds = {
            side: PlannedFeed(node, side, self.derived)
            for side in node.sides
            if isinstance(node.side(side), QueryNode)
        }
        keys: list[KeyPlan] = []
        if isinstance(node, GroupedNode):
            self.groups[node.number] = groups_of(node, feeds.get(Side.LEFT))
            keys += self.groups[node.number].held
        keys += map(_own_key, node.own_keys)
        for number, equality in enumerate(draft.keys):
            columns = {
                side: feeds[side].key(number, equality)
                if side in feeds
                else self.own_column(draft, side, number, equality)
                for side in Side
            }
            left, right = (
                to_joined_names(equality.expr(side)) if side in feeds else bare(equality.expr(side))
                for side in Side
            )
            own = Key(columns[Side.LEFT], columns[Side.RIGHT], equality.null_safe)
            keys.append(KeyPlan(left, right, own, equality.text))
        self.keys[node.number] = tuple(keys)
        for side, feed in feeds.items():
            self._plan_feed(draft, side, feed)

    def own_column(self, draft: Draft, side: Side, number: int, equality: Equality) -> str:
        """Return the column of an input that stores one side of an equality.

        An event time is stored as a plain number, so its key gets a second column. So does a column whose
        type is not known yet.
        """
        expr, i = equality.expr(side), draft.node.side(side)
        if equality.is_open and isinstance(i, Input) and i.stages:
            self.errors.append(open_key(expr))
        plain = isinstance(expr, exp.Column) and not draft.join_inputs.is_event_time((expr.table, expr.name))
        return str(expr.name) if plain and not equality.is_open else ours(f"key{number + 1}")

    def _plan_feed(self, draft: Draft, side: Side, feed: PlannedFeed) -> None:
        node, keys = draft.node, self.keys[draft.node.number]
        plan_of = feed.plan(
            [(key.column(side), key.null_safe) for key in keys],
            self.conditions.sides[node.number, side],
            [c for where, c in draft.parts.one_sided if where is side],
            [*never_null(draft, side), *([] if node.timed is None else [node.timed])],
            matchable=draft.matchable,
        )
        self.errors += feed.errors
        inputs = node.inputs(side)
        times = tuple(joined_name(i.alias, column) for i in inputs for column in i.event_times)
        available = [joined_name(i.alias, c.name) for i in inputs for c in i.columns]
        available += [
            joined_name(i.alias, name) for i in inputs for name in self.derived.columns.get(i.alias, ())
        ]
        wanted = {*times, *(joined_name(*ref) for ref in compared_refs(draft, side))}
        wanted |= {key.column(side) for key in keys}
        kept = retained_columns(
            [*available, *feed.computed], lambda name: name, wanted, self.leaving[node.number]
        )
        if not kept.kept:  # rows without a column could not be counted
            kept = RetainedColumns((available[0],), ())
        plan = plan_of(kept.kept)
        plan = replace(plan, timed=None if node.timed is None else joined_name(*node.timed))
        of_others = self.beneath_groups if draft is self.drafts[-1] else ()
        self.leaving[plan.node] = needed_columns(plan).union(of_others)
        nullable = {(i.alias, c) for i in inputs if i.alias in node.nullable(side) for c in i.event_times}
        nullable |= node.open_times(side)
        self.sides[node.number, side] = SidePlan(
            name=node_alias(plan.node),
            inputs=inputs,
            branches=(),
            feed=plan,
            event_times=times,
            kept=kept.kept,
            carried=kept.carried,
            nullable=tuple(
                joined_name(i.alias, c) for i in inputs for c in i.event_times if (i.alias, c) in nullable
            ),
            padded=node.padded(side),
            passes=node.passes,
        )

    def _node(self, draft: Draft) -> NodePlan:
        """Build the plan of a node once all nodes above have stated what they need."""
        node = draft.node
        sides = {
            side: self.sides.get((node.number, side)) or self.input_side(draft, side) for side in node.sides
        }
        filters = tuple(
            (sides[side].title, conjunct.text)
            for side in node.sides
            for conjunct in self._filters(node, side)
        )
        return self._plan_node(node, _NodeInputs(draft, sides, filters))

    @singledispatchmethod
    def _plan_node(self, node: QueryNode, ready: _NodeInputs) -> NodePlan:
        """Build the plan of one kind of node.

        Raises:
            TypeError: No planner is registered for this kind of node.
        """
        raise TypeError(f"how {type(node).__name__} is planned")

    @_plan_node.register(ChangesNode)
    @_plan_node.register(PassNode)
    def _(self, node: QueryNode, ready: _NodeInputs) -> NodePlan:
        return PassPlan(number=node.number, sides=tuple(ready.sides.values()), filters=ready.filters)

    @_plan_node.register
    def _(self, node: UpsertNode, ready: _NodeInputs) -> NodePlan:
        (side,) = ready.sides.values()
        ((_, branch),) = side.sources
        return UpsertPlan(
            number=node.number,
            sides=(side,),
            filters=ready.filters,
            primary_key=node.asked,
            placeholders=placeholders_of(branch.source),
        )

    @_plan_node.register
    def _(self, node: SnapshotNode, ready: _NodeInputs) -> NodePlan:
        return SnapshotPlan(
            number=node.number,
            sides=tuple(ready.sides.values()),
            filters=ready.filters,
            primary_key=node.asked,
        )

    @_plan_node.register
    def _(self, node: TableNode, ready: _NodeInputs) -> NodePlan:
        return TablePlan(number=node.number, sides=tuple(ready.sides.values()), filters=ready.filters)

    @_plan_node.register
    def _(self, node: IndexNode, ready: _NodeInputs) -> NodePlan:
        return index_plan(node, ready.sides[Side.LEFT], ready.filters)

    @_plan_node.register
    def _(self, node: JoinNode, ready: _NodeInputs) -> NodePlan:
        bounds = bounds_in(ready.draft, self.drafts)
        return JoinPlan(
            **self._build_match_fields(node, ready),
            sides=tuple(ready.sides.values()),
            bounds=bounds,
            looks_above=looks_above(ready.draft, self.drafts, bounds),
            asof=asof_of(ready.draft),
        )

    @_plan_node.register
    def _(self, node: LookupNode, ready: _NodeInputs) -> NodePlan:
        table = ready.sides[Side.RIGHT]
        return LookupPlan(
            **self._build_match_fields(node, ready),
            sides=(ready.sides[Side.LEFT],),
            table=table,
            table_fingerprint=table_fingerprint(table, self.keys[node.number]),
        )

    def _build_match_fields(self, node: MatchNode, ready: _NodeInputs) -> MatchFields:
        """Build the fields of a `MatchPlan`: its condition and where the node stands."""
        draft, sides = ready.draft, ready.sides
        parts = draft.parts
        decided = [part for part in parts.times if not part.is_approximate]
        rechecked = [part for part in decided if not part.is_exact]
        return MatchFields(
            **residual_fields(draft.residual),
            number=node.number,
            filters=ready.filters,
            kind=node.kind,
            keys=self.keys[node.number],
            bands=draft.bands,
            comparisons=comparisons_of(decided),
            rechecks=comparisons_of(rechecked),
            slack=slack_of(parts.times),
            matchable=draft.matchable,
            one_sided=tuple((sides[side].title, conjunct.text) for side, conjunct in parts.one_sided),
            recheck_texts=tuple(dict.fromkeys(part.conjunct.text for part in rechecked)),
            warnings=draft.warnings,
            values=draft.values,
            careful=draft.careful,
        )

    @_plan_node.register
    def _(self, node: AggregateNode, ready: _NodeInputs) -> NodePlan:
        calls = self.groups[node.number].calls
        return AggregatePlan(
            **self._group_fields(node, ready),
            **_window_fields(node, ready),
            from_rows=from_rows(calls, {column.name: column.type for column in node.asked.columns}),
        )

    @_plan_node.register
    def _(self, node: WindowGroupNode, ready: _NodeInputs) -> NodePlan:
        return WindowGroupPlan(
            **self._group_fields(node, ready), **_window_fields(node, ready), is_final=node.is_final
        )

    @_plan_node.register
    def _(self, node: GroupNode, ready: _NodeInputs) -> NodePlan:
        return GroupPlan(**self._group_fields(node, ready))

    @_plan_node.register
    def _(self, node: RankNode, ready: _NodeInputs) -> NodePlan:
        assert node.ranking.most is not None
        return RankPlan(
            **self._group_fields(node, ready),
            ranking=node.ranking,
            most=node.ranking.most,
            numbered=node.ranking.number in self.asked_of_groups,
        )

    def _group_fields(self, node: GroupedNode, ready: _NodeInputs) -> GroupedFields:
        """Build the fields of a `GroupedPlan`."""
        asked, groups = node.asked, self.groups[node.number]
        return GroupedFields(
            number=node.number,
            sides=(ready.sides[Side.LEFT],),
            filters=ready.filters,
            keys=groups.keys,
            calls=groups.calls,
            results=asked.columns,
            key_texts=tuple(text_of(key.expr) for key in asked.keys),
            having=None if asked.having is None else text_of(with_texts(asked.having, asked)),
        )

    def _filters(self, node: QueryNode, side: Side) -> Sequence[Conjunct]:
        child = node.side(side)
        if isinstance(child, Input):
            return self.conditions.inputs[child.alias]
        return self.conditions.sides[node.number, side]

    def input_side(self, draft: Draft, side: Side) -> SidePlan:
        node, i = draft.node, draft.node.side(side)
        assert isinstance(i, Input)
        planned = InputSide(
            draft=draft,
            side=side,
            keys=self.keys[node.number],
            filters=self.conditions.inputs[i.alias],
            derived=self.derived.columns.get(i.alias, {}),
            leaving=self.leaving[node.number],
            timed=None if node.timed is None else node.timed[1],
        )

        plan = planned.plan(self.stage_of(i, planned.timed))
        self.errors += planned.problems(plan)
        return plan

    def stage_of(self, i: Input, timed: str | None = None) -> OfStage:
        """Return the function that plans the stages of an input."""

        def of_stage(
            number: int, columns: Mapping[str, Expr], conditions: SideConditions, not_null: Sequence[str]
        ) -> FeedPlan:
            return self._stage(i, number, columns, conditions, not_null, timed)

        return of_stage

    def _stage(
        self,
        i: Input,
        number: int,
        columns: Mapping[str, Expr],
        conditions: SideConditions,
        not_null: Sequence[str],
        timed: str | None,
    ) -> FeedPlan:
        """Plan the stage of a branch and return its feed."""
        stage, branch = self.query.stages[i.alias, number], i.branches[number]
        assert isinstance(branch, StageBranch)
        chain = NodeChain(stage, self.of_delta, self.for_others, (i.alias, number), self.derived_of)
        feed = StageFeed(i, branch, stage.tree, stage.conditions.after, chain.derived)
        plan = feed.plan(
            columns, conditions.filters, conditions.one_sided, not_null, matchable=conditions.matchable
        )
        plan = replace(plan, timed=timed)
        self.beneath += chain.plan(needed_columns(plan))
        self.errors += [*feed.errors, *chain.errors]
        return plan


OfDelta = Callable[[NodeChain, DeltaJoin, Collection[str]], list[NodePlan]]
"""Plans the nodes of a delta join, in a chain, of which these columns have to leave."""
