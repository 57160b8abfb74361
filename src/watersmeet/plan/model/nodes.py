"""The nodes of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import gcd
from typing import Any, ClassVar

from watersmeet.conditions import AsofRule, Bound, ExactBand, Horizon
from watersmeet.event_time import Side, TimeComparison
from watersmeet.measure import Measured
from watersmeet.plan.model.sides import Bands, KeyPlan, OverflowCheck, SidePlan, joined_name
from watersmeet.spec.aggregates import Ranking
from watersmeet.spec.change_kinds import PrimaryKey
from watersmeet.spec.model import WINDOW_END, WINDOW_START, Column, Expr, JoinKind, Source, WindowKind

# The plan of a job: everything that an engine needs, and nothing that it has to decide.
#
# Invariants: built complete and frozen. Columns of an input keep their declared names. Expressions are
# sqlglot trees of the Spark dialect; each says below which names it mentions.
#
# A query is a list of nodes, each after those whose rows it takes. A node has one side or two; each is an
# input (of sources, and of nodes beneath that are the ends of stages) or the rows of one node beneath. A
# join is described once for both sides. The convention for time bands, inclusive after planning: ``lower
# <= right time - left time <= upper``; None is open.
#
# Columns of a side: of an input they have their declared names, of rows that are joined already the names
# ``alias.column`` (`joined_name`). What is computed has a name that begins with ``#``.


@dataclass(frozen=True, kw_only=True)
class NodePlan:
    """Fields of every kind of node.

    Attributes:
        number: Position in `QueryPlan.nodes`.
        bounds: Bounds that release rows of its sides.
        filters: (side, text) of conditions that drop rows of a side, for users.
        noun: Name of the kind of node, for users; empty if it only emits rows.
        changes: Rows of its sides can be inserted and deleted.
    """

    noun: ClassVar[str] = ""
    rests: ClassVar[bool] = False
    """It is not run, and keeps nothing."""
    keeps_table: ClassVar[bool] = False
    """It keeps all rows of a table, so that a consumer that begins later misses none."""
    is_for_all: ClassVar[bool] = True
    """Other queries that ask for the same rows may take those of it."""

    number: int
    sides: tuple[SidePlan, ...]
    bounds: tuple[Bound, ...] = ()
    filters: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    changes: bool = False

    @property
    def puts_out_changes(self) -> bool:
        """Rows that leave it may be taken back."""
        return self.changes

    @property
    def keeps_by_times(self) -> bool:
        """True if times and watermarks alone decide which rows of inputs it retains, and how long.

        Matches have no influence, and no rows come from nodes that retain rows by another rule.
        """
        return False

    @property
    def grouped(self) -> SidePlan | None:
        """The side of which it makes groups; None: it makes none."""
        return None

    @property
    def ages(self) -> tuple[str, ...] | None:
        """Event time per side that defines the age of its rows, all in one unit.

        These are times that the condition of a join compares and that release rows.

        Returns:
            None if there are no such times.
        """
        return None

    @property
    def any_column(self) -> str:
        """One that leaves it."""
        return next(side.joined(name) for side in self.leaving for name in side.carried)

    @property
    def tables(self) -> tuple[SidePlan, ...]:
        """Tables that its rows join and that are not sides; they emit no rows and are not retained."""
        return ()

    @property
    def leaving(self) -> tuple[SidePlan, ...]:
        """The sides of which columns leave the node."""
        return self.sides

    @property
    def accounted(self) -> tuple[SidePlan, ...]:
        """Sides with row accounting although their rows come from a node below."""
        return ()

    @property
    def pair_condition(self) -> Expr | None:
        """Condition checked on candidate pairs, beyond keys and bands that cannot fail."""
        return None

    @property
    def left_to_spark(self) -> tuple[str, ...]:
        """Why tasks do not compute its condition as Spark does; empty where they do."""
        return ()

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
    def keeps_by_key(self) -> bool | None:
        """True if the retained rows have a key; None if it retains no rows that are counted per key."""
        return None

    @property
    def watermark_keys(self) -> tuple[str, ...]:
        """The keys whose watermarks leave the node."""
        return tuple(side.watermark_key(column) for side in self.leaving for column in side.event_times)

    @property
    def in_any_order(self) -> object:
        """Part of the node that does not depend on the order in which paths look up inputs."""
        return self


@dataclass(frozen=True, kw_only=True)
class ReusedPlan(NodePlan):
    """A node that does nothing: another query's makes the same rows (`plan.model.job.ReusedRows`)."""

    rests: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class PassPlan(NodePlan):
    """Node that emits the rows of one side as they arrive.

    It belongs to a query that does not join, or that joins only below a UNION ALL.
    """

    is_for_all: ClassVar[bool] = False

    @property
    def keeps_by_times(self) -> bool:
        return not self.changes

    @property
    def side(self) -> SidePlan:
        return self.sides[0]

    @property
    def watermark_keys(self) -> tuple[str, ...]:
        """Watermark keys; for rows of another query, the keys that arrive with them."""
        feed = self.side.feed
        return super().watermark_keys if feed is None else tuple(own for own, _ in feed.event_times)


@dataclass(frozen=True, kw_only=True)
class UpsertPlan(NodePlan):
    """Node that applies the records of a table with a primary key: each replaces or deletes its key's row.

    Attributes:
        primary_key: The key; a deleted key is remembered if its changes have a sequence.
        placeholders: Per source column the values that stand for one that the update left out (Debezium).
    """

    noun: ClassVar[str] = "table"
    keeps_table: ClassVar[bool] = True

    primary_key: PrimaryKey
    placeholders: Mapping[str, tuple[Any, ...]] = field(compare=False)

    @property
    def side(self) -> SidePlan:
        return self.sides[0]


@dataclass(frozen=True, kw_only=True)
class SnapshotPlan(NodePlan):
    """Node that compares a table with its former contents and emits the changes.

    Attributes:
        primary_key: Each key has one row. None: whole rows are compared, with their multiplicity.
    """

    noun: ClassVar[str] = "table"
    keeps_table: ClassVar[bool] = True

    primary_key: PrimaryKey | None

    @property
    def side(self) -> SidePlan:
        return self.sides[0]

    @property
    def source(self) -> Source:
        ((_, branch),) = self.side.sources
        return branch.source


@dataclass(frozen=True, kw_only=True)
class TablePlan(NodePlan):
    """Node that retains rows of tables until they are deleted, and emits them with each change."""

    noun: ClassVar[str] = "table"

    @property
    def side(self) -> SidePlan:
        return self.sides[0]


@dataclass(frozen=True, kw_only=True)
class MatchPlan(NodePlan):
    """Rows of a left side meet those of a right one by a condition, whatever these two are.

    ``bands``: of its time bounds; ``values``: bands over anything else. ``rechecks``: time comparisons that
    the bands do not decide exactly (lossy casts); ``comparisons``: all, as written, for times so near the
    ends of int64 (within ``slack``) that arithmetic saturates. ``residual``: any other condition over both
    sides; it mentions columns named ``alias.column`` (one quoted identifier, `joined_name`), and is checked
    on candidate pairs. ``residual_exact``: what tasks compute of it, see `expressions`; None where they do
    not compute it as Spark does, for the reasons in ``residual_why``: Spark does, over the candidate pairs.
    ``matchable`` False: no pair can ever match (inverted interval, constant condition).
    """

    noun: ClassVar[str] = "join"

    kind: JoinKind
    keys: tuple[KeyPlan, ...]
    bands: tuple[ExactBand, ...]
    comparisons: tuple[TimeComparison, ...]
    rechecks: tuple[TimeComparison, ...]
    slack: int
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
    careful: OverflowCheck | None = None
    """Where a sum of integers may leave its type; None where none can."""
    asof: AsofRule | None = None
    """Of an ASOF join. Its ``bounds`` are those of its own condition."""
    horizon: Horizon | None = None
    """Of a join of streams by the rule ``lateness = join``: by it rows are released, not by ``bounds``."""

    @property
    def left(self) -> SidePlan:
        return self.sides[0]

    @property
    def right(self) -> SidePlan:
        """A side, or the table that is none."""
        return (*self.sides, *self.tables)[1]

    def side(self, side: Side) -> SidePlan:
        return self.left if side is Side.LEFT else self.right

    @property
    def leaving(self) -> tuple[SidePlan, ...]:
        return (self.left,) if self.kind.hides_right else (self.left, self.right)

    @property
    def pair_condition(self) -> Expr | None:
        return self.residual if self.careful is None else self.careful.residual

    @property
    def left_to_spark(self) -> tuple[str, ...]:
        return self.residual_why

    @property
    def by_value(self) -> bool:
        """No equality key: rows are sorted by the values of a band."""
        return not self.keys and bool(self.bands or self.values.every) and self.asof is None

    def indexes(self, side: Side) -> tuple[Measured, ...]:
        """Return the columns by which rows of a side can be sorted for look-ups: those of its bands.

        The first one is the best to begin with: columns bounded at both ends precede others, then times.
        """
        lower: dict[Measured, bool] = {}
        upper: dict[Measured, bool] = {}
        for band in (*self.bands, *self.values.every):
            own = band.measured(side)
            ends = (band.lower is not None, band.upper is not None)
            low, high = ends if side is Side.RIGHT else ends[::-1]
            lower[own] = lower.get(own, False) or low
            upper[own] = upper.get(own, False) or high
        return tuple(sorted(lower, key=lambda own: not (lower[own] and upper[own])))


@dataclass(frozen=True, kw_only=True)
class JoinPlan(MatchPlan):
    """A join of two sides, whose rows are kept until the bounds release them.

    ``looks_above``: some bound follows from joins above, so that released rows may still meet the condition.
    """

    looks_above: bool

    @property
    def keeps_by_times(self) -> bool:
        """True if only times decide which rows it retains.

        A SEMI or ANTI join also retains rows by their matches, and an ASOF join by which row is nearer.
        """
        keeps_all = self.kind in (JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL)
        return keeps_all and not self.changes and not any(side.feeds for side in self.sides)

    @property
    def hides_released(self) -> bool:
        """Rows that are released may still meet the condition of rows to come, and are not to be met."""
        return self.looks_above or self.horizon is not None

    @property
    def broadcast(self) -> Side | None:
        """The side of which every task is to have all rows (hint BROADCAST)."""
        return next((side for side in Side if _is_broadcast(self.side(side))), None)

    @property
    def keeps_by_key(self) -> bool:
        return bool(self.keys)

    @property
    def ages(self) -> tuple[str, ...] | None:
        if self.asof is not None:  # its rows go by these, whatever bounds there are
            return self.bands[0].left.column, self.bands[0].right.column
        evicted = {bound.evicted for bound in self.bounds}
        pairs = ((band.left.column, band.right.column) for band in self.bands)
        return next((pair for pair in pairs if self._keys(pair) <= evicted), None)

    def _keys(self, columns: tuple[str, str]) -> set[str]:
        return {side.watermark_key(column) for side, column in zip(self.sides, columns, strict=True)}


def _is_broadcast(side: SidePlan) -> bool:
    return side.feed is None and side.input.broadcast


@dataclass(frozen=True, kw_only=True)
class LookupPlan(MatchPlan):
    """Rows of the one side, each matched with ``table`` as that is in its tick: INNER, LEFT, SEMI, ANTI.

    Nothing is retained of the side, and no watermark is held back. Tasks look rows up in a copy of the table,
    made of its one branch; ``table_fingerprint``: a digest of what the copy depends on but the content.
    """

    table: SidePlan
    table_fingerprint: str

    @property
    def tables(self) -> tuple[SidePlan, ...]:
        return (self.table,)

    @property
    def source(self) -> Source:
        """The table's source."""
        ((_, branch),) = self.table.sources
        return branch.source


@dataclass(frozen=True)
class CallPlan:
    """One aggregate of a group.

    Attributes:
        function: Spark's name of the function.
        columns: Retained columns of the side that are the arguments.
        distinct: Aggregate distinct values only.
        filter: Boolean column; only rows for which it is TRUE count. None: all rows count.
        expr: The aggregate as Spark SQL over ``columns``, each one a quoted identifier.
        text: The aggregate as written.
        plain: False: only Spark can compute it.
    """

    name: str
    function: str
    columns: tuple[str, ...]
    distinct: bool
    filter: str | None
    expr: Expr
    text: str
    plain: bool


@dataclass(frozen=True, kw_only=True)
class GroupedPlan(NodePlan):
    """Groups of the rows of its one side.

    ``keys``: (name in the result, kept column). ``results``: all columns of a group's result, as far as their
    types can be told.
    """

    noun: ClassVar[str] = "aggregation"
    is_for_all: ClassVar[bool] = False

    keys: tuple[tuple[str, str], ...]
    calls: tuple[CallPlan, ...]
    results: tuple[Column, ...]
    key_texts: tuple[str, ...] = ()
    """The keys as written, for people."""
    having: str | None = None
    """Which groups go out, for people."""

    @property
    def side(self) -> SidePlan:
        return self.sides[0]

    @property
    def grouped(self) -> SidePlan | None:
        return self.side

    @property
    def group_keys(self) -> tuple[tuple[str, str, str], ...]:
        """(Name in the result, kept column, as written) each."""
        texts = self.key_texts or tuple(column for _, column in self.keys)
        return tuple((name, column, text) for (name, column), text in zip(self.keys, texts, strict=True))

    @property
    def any_column(self) -> str:
        return [*(name for name, _ in self.keys), *(call.name for call in self.calls)][0]

    @property
    def leaving(self) -> tuple[SidePlan, ...]:
        return ()

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.results

    @property
    def watermark_keys(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, kw_only=True)
class GroupPlan(GroupedPlan):
    """Groups over all rows.

    When rows of a group change, the previous result is retracted and the new one emitted. Without keys there
    is one group, even of no row.
    """

    is_for_all: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class RankPlan(GroupedPlan):
    """Node that emits the first ``most`` rows of each partition.

    When a partition changes, it retracts the rows that drop out of the first ``most`` and emits the
    rows that enter.

    Attributes:
        keys: All columns of the rows.
        numbered: Emit rows with their numbers, in the column ``ranking.number``.
    """

    noun: ClassVar[str] = "ranking"

    ranking: Ranking
    most: int
    numbered: bool


@dataclass(frozen=True, kw_only=True)
class WindowedPlan(GroupedPlan):
    """Windows over a time of its one side, and groups in them.

    ``time``: its column. ``size`` and ``slide`` as in `spec.model.Window`.
    """

    kind: WindowKind
    time: str
    size: int
    slide: int

    @property
    def pane(self) -> int:
        """Width of the panes that make up each window; 1 for a session, where each time is a pane."""
        return 1 if self.kind is WindowKind.SESSION else gcd(self.size, self.slide)

    @property
    def time_key(self) -> str:
        """The watermark key that closes windows."""
        return self.side.watermark_key(self.time)

    @property
    def accounted(self) -> tuple[SidePlan, ...]:
        return self.sides if self.side.feed is not None else ()

    @property
    def keeps_by_key(self) -> bool:
        return bool(self.keys)

    @property
    def watermark_keys(self) -> tuple[str, ...]:
        return (WINDOW_START, WINDOW_END)


@dataclass(frozen=True, kw_only=True)
class AggregatePlan(WindowedPlan):
    """Windows whose results go out once, when they close."""

    from_rows: tuple[str, ...] = ()
    """The calls, as written, for which all rows have to be kept."""

    @property
    def keeps_rows(self) -> bool:
        """Rows are kept until their windows close; else partial aggregates per pane and group."""
        return self.kind is WindowKind.SESSION or bool(self.from_rows)


@dataclass(frozen=True, kw_only=True)
class WindowGroupPlan(WindowedPlan):
    """Windows over rows that can be retracted.

    When a window changes, the node retracts its former result and emits the new one, until the window
    closes.

    Attributes:
        is_final: Emit the result once, when the window closes.
    """

    is_final: bool = False

    @property
    def puts_out_changes(self) -> bool:
        return self.changes and not self.is_final


# The nodes of a delta join: what is kept of its inputs, and the look-ups by which changes become results.
#
# N inputs that are joined by inner joins alone need no intermediate result: each input's changes take a
# *path* through the others, one look-up per step (McSherry and others, "Shared Arrangements", VLDB 2020;
# Idris and others, "Dynamic Yannakakis", SIGMOD 2017). An `ArrangePlan` keeps the rows, a `DeltaPlan` per
# step has the look-ups of all paths in it.


@dataclass(frozen=True)
class LookupKey:
    """An additional key for finding rows that are stored by another key.

    Attributes:
        keys: Columns of the key.
        key: The key as written, for users.
    """

    keys: tuple[str, ...]
    key: str


@dataclass(frozen=True)
class Arranged:
    """Arrangement of a side: rows hashed by the columns ``keys``, sorted by one of ``indexes``.

    Attributes:
        key: Key as written, for users; empty if there is none.
        others: Additional keys that find the same rows.
    """

    keys: tuple[str, ...]
    indexes: tuple[Measured, ...]
    key: str = ""
    others: tuple[LookupKey, ...] = ()

    def keys_of(self, by: int | None) -> tuple[str, ...]:
        """Return the columns of the additional key with this number, or of the storage key for None."""
        return self.keys if by is None else self.others[by].keys

    @property
    def every(self) -> tuple[tuple[str, ...], ...]:
        """The columns of all keys, its own first."""
        return (self.keys, *(other.keys for other in self.others))


@dataclass(frozen=True)
class CountedKey:
    """One key for finding rows of an input, with row counts.

    Attributes:
        alias: The input.
        keys: Columns of the key.
        rows: Number of retained rows.
        rows_per_key: Mean number of retained rows per key; all rows if the keys were not counted.
    """

    alias: str
    keys: tuple[str, ...]
    rows: int
    rows_per_key: float


@dataclass(frozen=True)
class Retention:
    """Retention of rows of the stream ``alias``: until no other stream can bring a partner.

    Attributes:
        others: Per other stream, a join with it. The ``bounds`` of the join are those of this stream's
            rows by times of the other.
    """

    alias: str
    others: tuple[MatchPlan, ...]


@dataclass(frozen=True, kw_only=True)
class ArrangePlan(NodePlan):
    """The rows of the inputs of a delta join, under every key by which paths look them up.

    ``sides``: the inputs in the query's order, then copies of some of them (`SidePlan.copy_of`) under further
    keys, where rows are sorted by more than their key; ``arranged``: of each side. Its rows are the changes
    of the tick, summed per row: path n begins with those of side n. ``retentions``: of inputs that are
    streams.
    """

    noun: ClassVar[str] = "arrangements"
    is_for_all: ClassVar[bool] = False

    arranged: tuple[Arranged, ...]
    retentions: tuple[Retention, ...]

    @property
    def leaving(self) -> tuple[SidePlan, ...]:
        return tuple(side for side in self.sides if side.copy_of is None)

    @property
    def keeps_by_times(self) -> bool:
        return not self.changes and not self.has_tables

    @property
    def ages(self) -> tuple[str, ...] | None:
        releasing = {bound.evicted for bound in self.bounds}
        for column in _times_among(self.sides[0], releasing):
            compared = self._comparable_keys(self.sides[0].watermark_key(column))
            own = [next(_times_among(side, releasing & compared), None) for side in self.sides]
            ages = tuple(column for column in own if column is not None)
            if len(ages) == len(own):
                return ages
        return None

    def _comparable_keys(self, key: str) -> set[str]:
        """Return the keys whose times are compared with ``key``, directly or through other keys."""
        pairs = [{bound.evicted, bound.by} for bound in self.bounds]
        compared, before = {key}, 0
        while len(compared) > before:
            before = len(compared)
            compared.update(*(pair for pair in pairs if pair & compared))
        return compared

    @property
    def has_tables(self) -> bool:
        """Streams are joined with tables: what a stream's row came to is final when it is released."""
        return bool(self.retentions) and len(self.retentions) < len(self.leaving)


def _times_among(side: SidePlan, keys: set[str]) -> Iterator[str]:
    """Yield the event times of a side that are among these watermark keys."""
    yield from (column for column in side.event_times if side.watermark_key(column) in keys)


@dataclass(frozen=True)
class DeltaLookup:
    """One lookup of one path: rows of the side ``join.left`` look up rows of an arrangement.

    Attributes:
        place: The side of the arrangements that has the rows.
        sees_tick: True: look rows up as they are after the tick; False: as they were before it.
        by: Number of the additional key of that side that finds the rows; None: the storage key.
    """

    join: JoinPlan
    place: int
    sees_tick: bool
    by: int | None = None


@dataclass(frozen=True, kw_only=True)
class DeltaPlan(NodePlan):
    """One step of all paths of a delta join; its sides are the rows of the paths, as far as they have come.

    ``arrangements``: the number of the node that keeps the rows. ``lookups``, ``met``: per path, and the side
    of that node that it looks rows up in. ``keys``: the watermark keys of all inputs. ``path_names``: of the
    inputs with whose changes the paths begin. ``is_last``: its rows are joined rows of all inputs.
    ``releasing``: the keys by which kept rows go.
    """

    noun: ClassVar[str] = "delta step"

    arrangements: int
    lookups: tuple[DeltaLookup, ...]
    met: tuple[SidePlan, ...]
    met_arranged: tuple[Arranged, ...]
    keys: tuple[str, ...]
    path_names: tuple[str, ...]
    is_last: bool
    releasing: frozenset[str]

    @property
    def keeps_by_times(self) -> bool:
        """It keeps nothing itself."""
        return not self.changes

    @property
    def tables(self) -> tuple[SidePlan, ...]:
        return self.met

    @property
    def leaving(self) -> tuple[SidePlan, ...]:
        return (*self.sides, *self.met)

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.lookups[0].join.columns

    @property
    def in_any_order(self) -> object:
        rows = frozenset(column.name for column in self.columns) if self.is_last else None
        return rows, self.number, self.arrangements, self.keys, self.path_names, self.is_last

    @property
    def watermark_keys(self) -> tuple[str, ...]:
        return self.keys
