"""The nodes of a query, numbered so that a node comes after those whose rows it takes; the last is the root.

A query and its stages are one `Tree` each. A stage is a barrier: conditions and bounds stay in their tree,
and what a stage knows of its rows is asked of it by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from watersmeet.event_time import Side
from watersmeet.plan.nodes.columns import closes_changes
from watersmeet.plan.query_inputs import JoinInputs, Ref, refs
from watersmeet.spec.aggregates import Ranking
from watersmeet.spec.change_kinds import PrimaryKey
from watersmeet.spec.model import (
    Aggregation,
    Expr,
    Input,
    Join,
    JoinKind,
    PlanChoice,
    Query,
    Relation,
    StageBranch,
    Window,
    visible_inputs,
)
from watersmeet.spec.stages import may_be_null, padded_aliases
from watersmeet.spec.time_zones import UTC


@dataclass(frozen=True)
class QueryNode:
    """Node of a query.

    Attributes:
        children: Inputs, or nodes below.
        parts: Relations of the query that the children stand for.
    """

    number: int
    children: tuple[QueryNode | Input, ...]
    parts: tuple[Relation, ...]
    time_zone: str = field(default=UTC, kw_only=True)

    @property
    def sides(self) -> tuple[Side, ...]:
        return tuple(Side)[: len(self.children)]

    def side(self, side: Side) -> QueryNode | Input:
        return self.children[list(Side).index(side)]

    def _part(self, side: Side) -> Relation:
        return self.parts[list(Side).index(side)]

    def inputs(self, side: Side) -> tuple[Input, ...]:
        """Return the inputs whose columns the rows of a side have."""
        return tuple(visible_inputs(self._part(side)))

    @property
    def join_inputs(self) -> JoinInputs:
        inputs = [self.inputs(side) for side in self.sides]
        joined = frozenset(side for side in self.sides if isinstance(self.side(side), QueryNode))
        return JoinInputs(
            tuple(i for side_inputs in inputs for i in side_inputs),
            len(inputs[0]),
            joined,
            self.time_zone,
        )

    def padded(self, side: Side) -> bool:
        """Return True if unmatched rows of that side are emitted with NULLs for the other side."""
        return False

    def nullable(self, side: Side) -> frozenset[str]:
        """Return the aliases below that side that a join below may pad.

        All columns of a padded alias are NULL.
        """
        return padded_aliases(self._part(side))

    def open_times(self, side: Side) -> frozenset[Ref]:
        """Return the event times below that side that may be NULL by themselves.

        The join of a stage padded them.
        """
        times = ((i, column) for i in self.inputs(side) for column in i.event_times)
        return frozenset((i.alias, column) for i, column in times if may_be_null(i, column))

    @property
    def hides_right(self) -> bool:
        return False

    @property
    def is_asof(self) -> bool:
        return False

    @property
    def is_inner(self) -> bool:
        """An inner join whose rows are kept until a bound releases them."""
        return False

    @property
    def plan(self) -> PlanChoice | None:
        """Strategy that a hint requests, or None."""
        return None

    @property
    def passes(self) -> bool:
        """Its rows go out in the tick in which they come, and nothing is kept."""
        return False

    @property
    def own_keys(self) -> tuple[str, ...]:
        """Columns of its only input that state stores rows by, independent of conditions."""
        return ()

    @property
    def looked_at(self) -> tuple[str, ...]:
        """The columns of its one input by which it goes, beside keys and conditions."""
        return ()

    @property
    def match(self) -> Expr | None:
        """MATCH_CONDITION."""
        return None

    @property
    def on(self) -> Expr | None:
        """The condition by which rows of its two sides meet."""
        return None

    @property
    def where(self) -> Expr | None:
        """A filter of the rows that leave it, right above it."""
        return None

    @property
    def timed(self) -> Ref | None:
        """The time without which a row is in no window of the node."""
        return None

    @property
    def beneath(self) -> tuple[QueryNode, ...]:
        """This node and the nodes of its tree below it, with the lower ones first."""
        below = [child.beneath for child in self.children if isinstance(child, QueryNode)]
        return (*tuple(node for nodes in below for node in nodes), self)


@dataclass(frozen=True)
class MatchNode(QueryNode):
    """Rows of a left side meet those of a right one by a condition."""

    asked: Join

    @property
    def match(self) -> Expr | None:
        return self.asked.match

    @property
    def on(self) -> Expr | None:
        return self.asked.on

    @property
    def where(self) -> Expr | None:
        return self.asked.where

    @property
    def kind(self) -> JoinKind:
        return self.asked.kind

    @property
    def hides_right(self) -> bool:
        return self.kind.hides_right

    @property
    def is_asof(self) -> bool:
        return self.kind.is_asof

    def padded(self, side: Side) -> bool:
        return self.kind.pads_left if side is Side.LEFT else self.kind.pads_right


@dataclass(frozen=True)
class JoinNode(MatchNode):
    """Rows of both sides come one after the other, and are kept until a bound releases them."""

    @property
    def is_inner(self) -> bool:
        return self.kind is JoinKind.INNER

    @property
    def plan(self) -> PlanChoice | None:
        return self.asked.plan


@dataclass(frozen=True)
class LookupNode(MatchNode):
    """Rows of the left side meet a table as it is in their tick."""


@dataclass(frozen=True)
class PassNode(QueryNode):
    """The one input of a query that does not join."""

    @property
    def passes(self) -> bool:
        return True


@dataclass(frozen=True)
class UpsertNode(QueryNode):
    """The records of a table with a primary key: by which row each takes the place of which."""

    asked: PrimaryKey

    @property
    def own_keys(self) -> tuple[str, ...]:
        return self.asked.columns

    @property
    def looked_at(self) -> tuple[str, ...]:
        return self.asked.named


@dataclass(frozen=True)
class SnapshotNode(QueryNode):
    """Node that compares a table with its former contents.

    Attributes:
        asked: Primary key to compare by; None to compare whole rows.
    """

    asked: PrimaryKey | None

    @property
    def looked_at(self) -> tuple[str, ...]:
        return () if self.asked is None else self.asked.columns


@dataclass(frozen=True)
class TableNode(QueryNode):
    """Rows of tables and change streams without a join; rows that may be retracted must be retained."""


@dataclass(frozen=True)
class IndexNode(QueryNode):
    """The rows of a table that are kept for others, found by each of the keys ``by``."""

    by: tuple[tuple[str, ...], ...]

    @property
    def looked_at(self) -> tuple[str, ...]:
        return tuple(column for key in self.by for column in key)


@dataclass(frozen=True)
class ChangesNode(QueryNode):
    """The changes of one input: where a path of a delta join begins."""


@dataclass(frozen=True)
class GroupedNode(QueryNode):
    """Groups of the rows of its one side."""

    asked: Aggregation


@dataclass(frozen=True)
class AggregateNode(GroupedNode):
    """Windows, and groups in them: their results are final."""

    window: Window

    @property
    def timed(self) -> Ref:
        (time,) = refs(self.window.time)
        return time


@dataclass(frozen=True)
class WindowGroupNode(AggregateNode):
    """Windows over rows that are inserted and deleted.

    Attributes:
        is_final: True if a window emits its result once, when it closes; False if the result changes with the
            rows until then.
    """

    is_final: bool


@dataclass(frozen=True)
class GroupNode(GroupedNode):
    """Groups over all rows, whose results change with them."""


@dataclass(frozen=True)
class RankNode(GroupedNode):
    """The first rows of each partition, which change with its rows."""

    ranking: Ranking


@dataclass(frozen=True)
class Tree:
    """Query or stage with its own nodes in order.

    Attributes:
        stages: Stages below its inputs, by (alias, branch).
        changes: Rows of the tree, and of its stages, can be inserted and deleted.
    """

    query: Query
    nodes: tuple[QueryNode, ...]
    stages: Mapping[tuple[str, int], Tree]
    time_zone: str = UTC
    changes: bool = False

    @property
    def root(self) -> QueryNode:
        return self.nodes[-1]

    @property
    def rows(self) -> JoinInputs:
        """Inputs that expressions over the output rows may mention.

        The result of a group has plain names: those of an input named "".
        """
        aggregation = self.query.aggregation
        if aggregation is None:
            return JoinInputs(tuple(visible_inputs(self.query.relation)), time_zone=self.time_zone)
        groups = Input("", aggregation.columns, aggregation.event_times, ())
        return JoinInputs((groups,), time_zone=self.time_zone)

    @property
    def padded(self) -> frozenset[str]:
        """Aliases of `rows` whose columns may all be NULL, because a join pads them."""
        return padded_aliases(self.query.relation)

    @property
    def every(self) -> tuple[Tree, ...]:
        """This tree and the trees below it, which come first."""
        below = [tree for stage in self.stages.values() for tree in stage.every]
        return (*below, self)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """All inputs, those of stages too."""
        return tuple(i for tree in self.every for i in tree.query.inputs)


def _is_retained_input(i: Input) -> bool:
    """Return True if the query has to retain the rows of its only input.

    No other node retains these rows, which can be retracted.
    """
    return bool(i.sources) and not i.as_of and (i.is_table or (i.changes and not i.stages))


def tree_of(
    query: Query,
    time_zone: str = UTC,
    numbers: Iterator[int] | None = None,
    *,
    changes: bool = False,
) -> Tree:
    """Build the nodes of a query and of its stages.

    If results are final but rows can be retracted, the windows directly above those rows emit final
    rows.

    Args:
        changes: Emitted rows can be retracted.
    """
    numbers = count() if numbers is None else numbers
    is_final = not changes and closes_changes(query)
    changes = changes or is_final
    nodes: list[QueryNode] = []
    stages: dict[tuple[str, int], Tree] = {}

    def build(part: Relation) -> QueryNode | Input:
        if isinstance(part, Input):
            for place, branch in enumerate(part.branches):
                if isinstance(branch, StageBranch):
                    stages[part.alias, place] = tree_of(branch.stage, time_zone, numbers, changes=changes)
            return part
        children = (build(part.left), build(part.right))
        kind = LookupNode if part.is_lookup else JoinNode
        return add_node(kind(next(numbers), children, (part.left, part.right), part, time_zone=time_zone))

    def add_node(node: QueryNode) -> QueryNode:
        nodes.append(node)
        return node

    top = build(query.relation)
    asked, part = query.aggregation, (query.relation,)
    if query.indexed_by:
        add_node(IndexNode(next(numbers), (top,), part, query.indexed_by, time_zone=time_zone))
        return Tree(query, tuple(nodes), stages, time_zone, changes)
    if isinstance(top, Input) and top.is_compared:
        top = add_node(SnapshotNode(next(numbers), (top,), part, top.primary_key, time_zone=time_zone))
    elif isinstance(top, Input) and top.primary_key is not None:
        top = add_node(UpsertNode(next(numbers), (top,), part, top.primary_key, time_zone=time_zone))
    elif isinstance(top, Input) and _is_retained_input(top):
        top = add_node(TableNode(next(numbers), (top,), part, time_zone=time_zone))
    if asked is not None and asked.window is not None:
        given = (next(numbers), (top,), part, asked, asked.window)
        if changes:
            add_node(WindowGroupNode(*given, is_final, time_zone=time_zone))
        else:
            add_node(AggregateNode(*given, time_zone=time_zone))
    elif asked is not None and asked.ranking is not None:
        add_node(RankNode(next(numbers), (top,), part, asked, asked.ranking, time_zone=time_zone))
    elif asked is not None:
        add_node(GroupNode(next(numbers), (top,), part, asked, time_zone=time_zone))
    elif isinstance(top, Input):
        add_node(PassNode(next(numbers), (top,), (top,), time_zone=time_zone))
    return Tree(query, tuple(nodes), stages, time_zone, changes)
