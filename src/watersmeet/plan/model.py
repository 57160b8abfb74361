"""The plan of a job: everything that an engine needs, and nothing that it has to decide.

Invariants: built complete and frozen. Columns of an input keep their declared names. Expressions are sqlglot
trees of the Spark dialect; each says below which names it mentions.

A query is a list of nodes, each after those whose rows it takes. A node has one side or two; each is an input
(of sources, and of nodes beneath that are the ends of stages) or the rows of one node beneath. A join is
described once for both sides. The convention for time bands, inclusive after planning:
``lower <= right time - left time <= upper``; None is open.

Columns of a side: of an input they have their declared names, of rows that are joined already the names
``alias.column`` (`joined_name`). What is computed has a name that begins with ``#``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import gcd
from typing import Any

from watersmeet.event_time import MAX_TIME, MIN_TIME, Side, TimeComparison
from watersmeet.measure import Measured
from watersmeet.plan.bands import Bands
from watersmeet.spec.model import (
    WINDOW_END,
    WINDOW_START,
    Column,
    Expr,
    Input,
    JoinKind,
    Options,
    OutputColumn,
    Sink,
    Source,
    WindowKind,
)


@dataclass(frozen=True)
class Key:
    """An equality ``left = right`` (or ``<=>``) over expressions of one side each.

    ``left`` and ``right`` mention columns of their side. ``left_column`` / ``right_column`` name the kept
    columns that hold the values: the side's own column when the expression is one, else a computed one.
    ``text``: as it was written, for messages; empty: nobody wrote it.
    """

    left: Expr
    right: Expr
    left_column: str
    right_column: str
    null_safe: bool
    text: str = ""

    def expr(self, side: Side) -> Expr:
        return self.left if side is Side.LEFT else self.right

    def column(self, side: Side) -> str:
        return self.left_column if side is Side.LEFT else self.right_column


@dataclass(frozen=True)
class Bound:
    """``evicted >= by - c``: rows of ``evicted`` below ``W[by] - c`` match nothing any more.

    ``evicted`` and ``by`` are watermark keys ``alias.column``; ``text`` is the conjunct it came from. Near
    the ends of int64 ``W[by] - c`` is cut to ``low`` and ``high``, and by ``slack`` less may still match; see
    `plan.bounds.Link`.
    """

    evicted: str
    by: str
    c: int
    text: str
    slack: int = 0
    low: int = MIN_TIME
    high: int = MAX_TIME


@dataclass(frozen=True)
class TimeBand:
    """``lower <= right - left <= upper`` over one event-time column of each side.

    Every pair that the join's condition accepts lies in all bands; a pair in all bands is accepted by every
    time comparison that is not in `JoinPlan.rechecks`. ``texts``: the conjuncts.
    """

    left_column: str
    right_column: str
    lower: int | None
    upper: int | None
    texts: tuple[str, ...]

    def column(self, side: Side) -> str:
        return self.left_column if side is Side.LEFT else self.right_column


@dataclass(frozen=True)
class AsofPlan:
    """Which right row an ASOF join takes of those in ``JoinPlan.bands[0]``, its one band: the ``latest``, or
    else the earliest.

    ``closed_lower``, ``closed_upper``: the band with strict comparisons read as closed ones, for retention.
    ``floors``, ``ceilings``: the comparisons as written that bound the right time from below, from above.
    """

    latest: bool
    closed_lower: int | None
    closed_upper: int | None
    floors: tuple[TimeComparison, ...]
    ceilings: tuple[TimeComparison, ...]


@dataclass(frozen=True)
class BranchPlan:
    """What an engine evaluates per row of one source for one input.

    Expressions mention bare columns of ``source``. ``columns`` gives the kept columns (name, expression),
    event times and keys among them; ``flag`` gives one of the FLAG_ constants, never NULL (None: always
    candidate). ``words``: what those that nobody wrote so stand for, by name (FLAG: the flag), as it was
    written.
    """

    source: Source
    lags: tuple[int | None, ...]
    columns: tuple[tuple[str, Expr], ...]
    flag: Expr | None
    words: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class FeedPlan:
    """How rows that leave a node become rows of a side of another one.

    ``node``: its number. The side's columns are ``copied``, (name, column of the node's rows), and
    ``computed``, (name, expression over columns of the node's rows), with ``computed_exact``: what tasks
    compute of it, see `plan.exact`, and of what type.
    Then, by columns of the side: ``beneath``, of which each has to be TRUE, or the row is none of the side's;
    ``filters``, or the row is dropped; ``conditions``, and ``not_null``, or the row can match nothing.
    ``matchable`` False: no row can.
    ``event_times``: where the node is the end of a stage, which of its watermarks each event time of the side
    has, as (event time, watermark key there). A joined row's keep their keys: none are named.
    """

    node: int
    copied: tuple[tuple[str, str], ...]
    computed: tuple[tuple[str, Expr], ...]
    computed_exact: tuple[tuple[tuple[Any, ...], str], ...]
    beneath: tuple[str, ...]
    filters: tuple[str, ...]
    conditions: tuple[str, ...]
    not_null: tuple[str, ...]
    matchable: bool
    event_times: tuple[tuple[str, str], ...] = ()
    timed: str | None = None
    """Among ``not_null``: a time without which a row is in no window, and counted as one without a time."""


@dataclass(frozen=True)
class SidePlan:
    """One side of a node: an input (``branches``) or the rows of a node beneath (``feed``).

    ``name``: the input's alias, or ``#n`` for the rows of node n (from 1). ``inputs``: all inputs whose
    columns the rows have. ``branches``: of an input, in its order: sources, and feeds by stages.
    ``event_times``: all event-time columns, each a watermark key ``alias.column``. ``kept``: names of the
    columns kept in state, event times and key columns included. ``carried``: those of them that leave the
    node (for later nodes, the projection, later filters). ``nullable``: event times that may be NULL, because
    a join beneath padded their input. ``padded``: rows of this side are put out padded when they never match.
    ``passes``: nothing is kept, every row goes out in the tick in which it comes.
    """

    name: str
    inputs: tuple[Input, ...]
    branches: tuple[BranchPlan | FeedPlan, ...]
    feed: FeedPlan | None
    event_times: tuple[str, ...]
    kept: tuple[str, ...]
    carried: tuple[str, ...]
    nullable: tuple[str, ...]
    padded: bool
    passes: bool = False

    @property
    def input(self) -> Input:
        """The input of a side that is one."""
        assert self.feed is None
        return self.inputs[0]

    @property
    def sources(self) -> tuple[tuple[int, BranchPlan], ...]:
        """The branches of an input that are sources, with their numbers."""
        return tuple((n, branch) for n, branch in enumerate(self.branches) if isinstance(branch, BranchPlan))

    @property
    def stages(self) -> tuple[tuple[int, FeedPlan], ...]:
        """The branches of an input that are stages, with their numbers."""
        return tuple((n, branch) for n, branch in enumerate(self.branches) if isinstance(branch, FeedPlan))

    @property
    def feeds(self) -> tuple[FeedPlan, ...]:
        """All ways by which rows of nodes beneath come to this side."""
        stages = tuple(feed for _, feed in self.stages)
        return stages if self.feed is None else (self.feed,)

    @property
    def title(self) -> str:
        """For people: the alias, or the inputs whose joined rows these are."""
        return " with ".join(i.alias for i in self.inputs)

    def joined(self, column: str) -> str:
        """The name of a column once it has left the node."""
        return joined_name(self.name, column) if self.feed is None else column

    def watermark_key(self, column: str) -> str:
        return self.joined(column)


@dataclass(frozen=True, kw_only=True)
class NodePlan:
    """What every kind of node has; ``number``: its place in `QueryPlan.nodes`.

    ``bounds``: by which rows of its sides are released. ``filters``: (side, text) of conditions that drop
    rows of a side, for people.
    """

    number: int
    sides: tuple[SidePlan, ...]
    bounds: tuple[Bound, ...] = ()
    filters: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def tables(self) -> tuple[SidePlan, ...]:
        """What its rows meet that is no side: nothing comes from there, and nothing is kept."""
        return ()

    @property
    def leaving(self) -> tuple[SidePlan, ...]:
        """The sides of which columns leave the node."""
        return self.sides

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns that rows that leave the node may have, by the names that they have there."""
        return tuple(
            Column(joined_name(i.alias, column.name), column.type)
            for side in self.leaving
            for i in side.inputs
            for column in i.columns
        )

    @property
    def watermark_keys(self) -> tuple[str, ...]:
        """The keys whose watermarks leave the node."""
        return tuple(side.watermark_key(column) for side in self.leaving for column in side.event_times)


@dataclass(frozen=True, kw_only=True)
class PassPlan(NodePlan):
    """Rows of one side, put out as they come: of a query that does not join, or that joins beneath a UNION
    ALL alone."""

    @property
    def side(self) -> SidePlan:
        return self.sides[0]


@dataclass(frozen=True, kw_only=True)
class JoinPlan(NodePlan):
    """A join of two sides.

    ``bands``: of its time bounds; ``values``: bands over anything else. ``rechecks``: time comparisons that
    the bands do not decide exactly (lossy casts); ``comparisons``: all, as written, for times so near the
    ends of int64 (within ``slack``) that arithmetic saturates. ``residual``: any other condition over both
    sides; it mentions columns named ``alias.column`` (one quoted identifier, `joined_name`), and is checked
    on candidate pairs. ``residual_exact``: what tasks compute of it, see `plan.exact`; None where they do not
    compute it as Spark does, for the reasons in ``residual_why``: Spark computes it over the candidate pairs.
    ``matchable`` False: no pair can ever match (inverted interval, constant condition). ``looks_above``: some
    bound follows from joins above, so that released rows may still meet the condition.
    """

    kind: JoinKind
    keys: tuple[Key, ...]
    bands: tuple[TimeBand, ...]
    comparisons: tuple[TimeComparison, ...]
    rechecks: tuple[TimeComparison, ...]
    slack: int
    looks_above: bool
    residual: Expr | None
    residual_exact: tuple[Any, ...] | None
    residual_columns: tuple[str, ...]
    residual_why: tuple[str, ...]
    matchable: bool
    one_sided: tuple[tuple[str, str], ...]
    """(side, text) of ON conditions on one side alone, for people: rows that fail them match nothing."""
    recheck_texts: tuple[str, ...] = ()
    """The conjuncts of ``rechecks``, for EXPLAIN."""
    values: Bands = field(default_factory=Bands)
    asof: AsofPlan | None = None
    """Of an ASOF join. Its ``bounds`` are those of its own condition."""

    @property
    def left(self) -> SidePlan:
        return self.sides[0]

    @property
    def right(self) -> SidePlan:
        return self.sides[1]

    def side(self, side: Side) -> SidePlan:
        return self.left if side is Side.LEFT else self.right

    @property
    def leaving(self) -> tuple[SidePlan, ...]:
        return self.sides[:1] if self.kind.hides_right else self.sides

    @property
    def by_value(self) -> bool:
        """No equality key: rows are sorted by the values of a band, and tasks own ranges of them."""
        return not self.keys and bool(self.bands or self.values.every) and self.asof is None

    @property
    def broadcast(self) -> Side | None:
        """The side of which every task is to have all rows (hint BROADCAST)."""
        return next((side for side in Side if _is_broadcast(self.side(side))), None)

    def indexes(self, side: Side) -> tuple[Measured, ...]:
        """What rows of a side can be sorted by to be looked up: the columns of its bands.

        The first is the one to begin with: those that are bounded at both ends before others, then times.
        """
        lower: dict[Measured, bool] = {}
        upper: dict[Measured, bool] = {}
        for band in (*self.bands, *self.values.every):
            own = Measured(band.column(side)) if isinstance(band, TimeBand) else band.side(side)
            ends = (band.lower is not None, band.upper is not None)
            low, high = ends if side is Side.RIGHT else ends[::-1]
            lower[own] = lower.get(own, False) or low
            upper[own] = upper.get(own, False) or high
        return tuple(sorted(lower, key=lambda own: not (lower[own] and upper[own])))


def _is_broadcast(side: SidePlan) -> bool:
    return side.feed is None and side.input.broadcast


@dataclass(frozen=True, kw_only=True)
class LookupPlan(JoinPlan):
    """Rows of the one side, each joined with ``table`` as that is in the row's tick: INNER, LEFT, SEMI, ANTI.

    Nothing is retained of the side, and no watermark is held back. Tasks look rows up in a copy of the table,
    made of its one branch; ``table_fingerprint``: a digest of what the copy depends on but the content.
    """

    table: SidePlan
    table_fingerprint: str

    @property
    def tables(self) -> tuple[SidePlan, ...]:
        return (self.table,)

    @property
    def right(self) -> SidePlan:
        return self.table

    @property
    def leaving(self) -> tuple[SidePlan, ...]:
        return self.sides if self.kind.hides_right else (*self.sides, self.table)

    @property
    def source(self) -> Source:
        """The table's source."""
        ((_, branch),) = self.table.sources
        return branch.source


@dataclass(frozen=True)
class CallPlan:
    """One aggregate of a group: ``function`` (Spark's name) of ``columns``, kept ones of the side, each of
    different values only if ``distinct``, of the rows for which the column ``filter`` is TRUE. ``expr``: the
    same as Spark SQL over those columns, each one quoted identifier; ``text``: as it was written. ``plain``
    False: it can only be had from Spark."""

    name: str
    function: str
    columns: tuple[str, ...]
    distinct: bool
    filter: str | None
    expr: Expr
    text: str
    plain: bool


@dataclass(frozen=True, kw_only=True)
class AggregatePlan(NodePlan):
    """Windows over a time of its one side, and groups in them.

    ``time``: its column. ``size`` and ``slide`` as in `spec.model.Window`. ``keys``: (name in the result,
    kept column). ``results``: all columns of a group's result, as far as their types can be told.
    """

    kind: WindowKind
    time: str
    size: int
    slide: int
    keys: tuple[tuple[str, str], ...]
    calls: tuple[CallPlan, ...]
    results: tuple[Column, ...]
    key_texts: tuple[str, ...] = ()
    """The keys as written, for people."""
    having: str | None = None
    """Which groups go out, for people."""
    from_rows: tuple[str, ...] = ()
    """The calls, as written, for which all rows have to be kept."""

    @property
    def keeps_rows(self) -> bool:
        """Rows are kept until their windows close; else partial aggregates per pane and group."""
        return self.kind is WindowKind.SESSION or bool(self.from_rows)

    @property
    def pane(self) -> int:
        """How wide panes are: each window of TUMBLE and HOP consists of whole ones."""
        return gcd(self.size, self.slide)

    @property
    def side(self) -> SidePlan:
        return self.sides[0]

    @property
    def time_key(self) -> str:
        """The watermark key that closes windows."""
        return self.side.watermark_key(self.time)

    @property
    def leaving(self) -> tuple[SidePlan, ...]:
        return ()

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.results

    @property
    def watermark_keys(self) -> tuple[str, ...]:
        return (WINDOW_START, WINDOW_END)


@dataclass(frozen=True)
class QueryPlan:
    """One INSERT: its nodes, each after those beneath it, a filter after the last one, the projection.

    ``where`` and ``outputs`` mention columns of the last node's rows: ``alias.column`` as one quoted
    identifier (`joined_name`). ``fingerprint``: a digest of what the stored state depends on. ``options``: as
    the query was planned.
    ``reordered``: where inputs are not joined in the query's order, their aliases in that in which they are;
    those of the query, and of each of its stages. ``loops``: warnings of a sink that feeds the job's sources.
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
    loops: tuple[str, ...] = ()

    @property
    def root(self) -> NodePlan:
        """The node whose rows are the query's."""
        return self.nodes[-1]

    @property
    def sides(self) -> tuple[SidePlan, ...]:
        """The sides that are inputs, in the query's order, those of stages before what they feed."""

        def beneath(node: NodePlan) -> Iterator[SidePlan]:
            for side in node.sides:
                for feed in side.feeds:
                    yield from beneath(self.nodes[feed.node])
                if side.feed is None:
                    yield side

        return tuple(beneath(self.root))

    @property
    def accounted(self) -> tuple[SidePlan, ...]:
        """The sides whose rows are accounted for: inputs, and rows of joins that come to be grouped."""
        grouped = (n.side for n in self.nodes if isinstance(n, AggregatePlan) and n.side.feed is not None)
        return (*self.sides, *grouped)

    def parent(self, number: int) -> tuple[NodePlan, SidePlan, FeedPlan] | None:
        """The node, the side of it and the way by which it takes the rows of a node; None for the root."""
        for node in self.nodes:
            for side in node.sides:
                for feed in side.feeds:
                    if feed.node == number:
                        return node, side, feed
        return None

    @property
    def warnings(self) -> tuple[str, ...]:
        return (*self.loops, *(warning for node in self.nodes for warning in node.warnings))


@dataclass(frozen=True)
class JobPlan:
    """All INSERTs of a job, run in one tick each; every source is read once."""

    queries: tuple[QueryPlan, ...]

    @property
    def sources(self) -> tuple[Source, ...]:
        """Each source once, in the order of first use: the order of the streams in the engine's union."""
        found: dict[str, Source] = {}
        for query in self.queries:
            for side in query.sides:
                for _, branch in side.sources:
                    found.setdefault(branch.source.name, branch.source)
        return tuple(found.values())

    @property
    def lookups(self) -> tuple[tuple[QueryPlan, LookupPlan], ...]:
        """All joins with tables as of the tick."""
        return tuple(
            (query, node) for query in self.queries for node in query.nodes if isinstance(node, LookupPlan)
        )


def joined_name(alias: str, column: str) -> str:
    """The name of an input's column once it has left the join, and in residual conditions. What is computed
    of a group has no alias."""
    return f"{alias}.{column}" if alias else column
