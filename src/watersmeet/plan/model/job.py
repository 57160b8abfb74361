"""A query as its nodes, and a job as its queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import TypeVar

from watersmeet.plan.model.nodes import CountedKey, LookupPlan, NodePlan, SnapshotPlan
from watersmeet.plan.model.sides import FeedPlan, Producer, SidePlan
from watersmeet.spec.model import Expr, Options, OutputColumn, Query, Sink, Source
from watersmeet.spec.time_zones import UTC

N = TypeVar("N", bound=NodePlan)


class KeyRows(Enum):
    """Why a result has one row per key of its sink."""

    KNOWN = "known"
    """By primary keys and groups."""
    COUNTED = "counted"
    """A tick fails that finds a second one."""


@dataclass(frozen=True)
class FoldedQuery:
    """Query with the filter and outputs that apply to its rows.

    ``after`` and ``outputs`` mention the same columns as the outputs of the query.
    """

    query: Query
    after: Expr | None
    outputs: tuple[OutputColumn, ...]


@dataclass(frozen=True)
class RestingNode:
    """Node that does not run, because a node of another query produces its rows.

    Attributes:
        number: the number of the node that does not run.
        node: the number of the producing node in its query.
        sides: pairs (own name of a side, its name in the producing node).
    """

    number: int
    node: int
    sides: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ReusedRows(Producer):
    """Rows of node ``number`` that the node of another query produces.

    Attributes:
        keys: Keys of the watermarks that arrive with the rows, as (own, there).
        aliases: Aliases of the inputs below, as (own, there).
        nodes: All nodes that do not run because of the reuse.
    """

    number: int
    keys: tuple[tuple[str, str], ...]
    aliases: tuple[tuple[str, str], ...]
    nodes: tuple[RestingNode, ...]


@dataclass(frozen=True)
class QueryPlan:
    """Plan of one INSERT: its nodes, a filter after the last one, and the projection.

    Each node follows the nodes below it. ``where`` and ``outputs`` mention columns of the last node's
    rows: ``alias.column`` as one quoted identifier (`joined_name`).

    Attributes:
        fingerprint: Digest of everything that the stored state depends on.
        options: Options with which the query was planned.
        reordered: Aliases in join order, where inputs are not joined in the query's order; for the
            query and for each of its stages.
        ordered_by_state: As ``reordered``, where the stored state determines the order.
        of_sink: Warnings of its sink.
        of_plan: Warnings of a requested plan that is not available.
        joins_run: Lines that explain how its joins run.
        key_rows: Reason why a key of a sink with a PRIMARY KEY has one row; None if it may have
            several.
        rows_of_key: Number of rows of the sink's key, if they are counted; otherwise None.
        asked: Query that the plan was made from.
        taken: Rows that other queries make for it.
        complete: All of its nodes, including those that other nodes replace.
        uncounted: Its nodes as planned without counts, where delta joins look up inputs in the order of
            their counts.
        counted: The counts that this order follows.
    """

    name: str
    sink: Sink
    nodes: tuple[NodePlan, ...]
    where: Expr | None
    outputs: tuple[OutputColumn, ...]
    options: Options
    fingerprint: str
    sql: str
    reordered: tuple[tuple[str, ...], ...] = ()
    ordered_by_state: tuple[tuple[str, ...], ...] = ()
    of_sink: tuple[str, ...] = ()
    of_plan: tuple[str, ...] = ()
    joins_run: tuple[str, ...] = ()
    key_rows: KeyRows | None = None
    rows_of_key: Expr | None = None
    asked: FoldedQuery | None = field(default=None, compare=False, repr=False)
    taken: tuple[ReusedRows, ...] = ()
    complete: tuple[NodePlan, ...] | None = None
    uncounted: tuple[NodePlan, ...] | None = None
    counted: tuple[CountedKey, ...] = ()

    @property
    def is_index(self) -> bool:
        """Its rows are kept for others and go nowhere (CREATE INDEX)."""
        return self.sink.is_nowhere

    @property
    def as_planned(self) -> QueryPlan:
        """The query as it is planned without counts: what its rows depend on."""
        return self if self.uncounted is None else replace(self, nodes=self.uncounted, uncounted=None)

    @cached_property
    def alone(self) -> QueryPlan:
        """The query with all its nodes, as if no other one ran any of them."""
        return self if self.complete is None else replace(self, nodes=self.complete, complete=None)

    @property
    def root(self) -> NodePlan:
        """The node whose rows are the query's."""
        return self.nodes[-1]

    @cached_property
    def sides(self) -> tuple[SidePlan, ...]:
        """The sides that are inputs, in the query's order, those of stages before what they feed."""

        def sides_of(node: NodePlan) -> Iterator[SidePlan]:
            for side in node.sides:
                for feed in side.feeds:
                    # all paths of a delta join lead through the same nodes
                    if not feed.path and feed.query is None:
                        yield from sides_of(self.nodes[feed.node])
                if side.feed is None and side.copy_of is None:
                    yield side

        return tuple(sides_of(self.root))

    @cached_property
    def accounted(self) -> tuple[SidePlan, ...]:
        """Sides with row accounting: inputs, and joined rows that enter a grouping."""
        return (*self.sides, *(side for node in self.nodes for side in node.accounted))

    @cached_property
    def shared_inputs(self) -> tuple[tuple[str, str, str], ...]:
        """The inputs whose rows another query accounts for: alias, that query, alias there."""
        taken = [(own, taken.query, there) for taken in self.taken for own, there in taken.aliases]
        kept = [
            (side.name, side.kept_by.query, side.kept_by.alias)
            for node in self.nodes
            for side in node.sides
            if side.kept_by is not None and side.copy_of is None
        ]
        return (*taken, *kept)

    def every(self, kind: type[N]) -> tuple[N, ...]:
        """Return the nodes of one kind, in order."""
        return tuple(node for node in self.nodes if isinstance(node, kind))

    def parent(self, number: int) -> tuple[NodePlan, SidePlan, FeedPlan] | None:
        """Return the node, its side and the feed that take the rows of a node.

        Returns:
            None for the root.
        """
        for node in self.nodes:
            for side in node.sides:
                for feed in side.feeds:
                    if feed.node == number and feed.query is None:
                        return node, side, feed
        return None

    @property
    def warnings(self) -> tuple[str, ...]:
        return (*self.of_sink, *self.of_plan, *(warning for node in self.nodes for warning in node.warnings))


@dataclass(frozen=True)
class JobPlan:
    """Plan of all INSERTs of a job, which run in one tick each; every source is read once.

    Attributes:
        apart: the queries as planned before any of them reused rows of others.
        moved: the names of file sources whose files the state knows under another path.
    """

    queries: tuple[QueryPlan, ...]
    apart: tuple[QueryPlan, ...] = field(default=(), compare=False, repr=False)
    moved: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """Sources that are read as streams, each once, in the order of first use.

        The engine's union has its streams in this order.
        """
        sources: dict[str, Source] = {}
        for query in self.queries:
            for side in query.sides:
                for _, branch in side.ingested:
                    sources.setdefault(branch.source.name, branch.source)
        return tuple(sources.values())

    @property
    def warnings(self) -> list[str]:
        """Warnings that users should read before a run, each with its query's name."""
        return [f"{query.name}: {warning}" for query in self.queries for warning in query.warnings]

    @property
    def is_in_utc(self) -> bool:
        """True if all queries compute in UTC, so that times without a zone are UTC times."""
        return all(query.options.time_zone == UTC for query in self.queries)

    @property
    def lookups(self) -> tuple[tuple[QueryPlan, LookupPlan], ...]:
        """All joins with tables as of the tick."""
        return tuple((query, node) for query in self.queries for node in query.every(LookupPlan))

    @property
    def compared(self) -> tuple[tuple[QueryPlan, SnapshotPlan], ...]:
        """All tables that are compared with what they held before, once per input that reads one."""
        return tuple((query, node) for query in self.queries for node in query.every(SnapshotPlan))

    @property
    def tables(self) -> tuple[Source, ...]:
        """Each source that is read as a whole, once."""
        sources = [node.source for _, node in self.lookups] + [node.source for _, node in self.compared]
        return tuple({source.name: source for source in sources}.values())
