"""The plan of a job: everything that an engine needs, and nothing that it has to decide.

Invariants: built complete and frozen. Columns of an input keep their declared names. Expressions are sqlglot
trees of the Spark dialect; each says below which names it mentions.

A query is a chain of binary joins: each side of one is an input, or the rows of a join before it. A join is
described once for both sides. The convention for time bands, inclusive after planning:
``lower <= right time - left time <= upper``; None is open.

Columns of a side: of an input they have their declared names, of a join beneath the names ``alias.column``
(`joined_name`). What is computed has a name that begins with ``#``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from watersmeet.event_time import Side, TimeComparison
from watersmeet.measure import Measured
from watersmeet.plan.bands import Bands
from watersmeet.spec.model import Expr, Input, JoinKind, Options, OutputColumn, Sink, Source


@dataclass(frozen=True)
class Key:
    """An equality ``left = right`` (or ``<=>``) over expressions of one side each.

    ``left`` and ``right`` mention columns of their side. ``left_column`` / ``right_column`` name the kept
    columns that hold the values: the side's own column when the expression is one, else a computed one.
    """

    left: Expr
    right: Expr
    left_column: str
    right_column: str
    null_safe: bool

    def expr(self, side: Side) -> Expr:
        return self.left if side is Side.LEFT else self.right

    def column(self, side: Side) -> str:
        return self.left_column if side is Side.LEFT else self.right_column


@dataclass(frozen=True)
class Bound:
    """``evicted >= by - c``: rows of ``evicted`` below ``W[by] - c`` match nothing any more.

    ``evicted`` and ``by`` are watermark keys ``alias.column``; ``text`` is the conjunct it came from.
    """

    evicted: str
    by: str
    c: int
    text: str


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
class BranchPlan:
    """What an engine evaluates per row of one source for one input.

    Expressions mention bare columns of ``source``. ``columns`` gives the kept columns (name, expression),
    event times and keys among them; ``flag`` gives one of the FLAG_ constants, never NULL (None: always
    candidate).
    """

    source: Source
    lags: tuple[int | None, ...]
    columns: tuple[tuple[str, Expr], ...]
    flag: Expr | None


@dataclass(frozen=True)
class FeedPlan:
    """How rows that leave a join become rows of a side of the next one.

    ``join``: its number. To be added: ``copied``, (name, joined column), and ``computed``, (name, expression
    over joined names), with ``computed_duckdb`` as DuckDB text. Then, by columns: ``filters``, of which each
    has to be TRUE, or the row is dropped; ``conditions``, of which each has to be TRUE, and ``not_null``, or
    the row can match nothing. ``matchable`` False: no row can.
    """

    join: int
    copied: tuple[tuple[str, str], ...]
    computed: tuple[tuple[str, Expr], ...]
    computed_duckdb: tuple[str, ...]
    filters: tuple[str, ...]
    conditions: tuple[str, ...]
    not_null: tuple[str, ...]
    matchable: bool


@dataclass(frozen=True)
class SidePlan:
    """One side of a binary join: an input (``input``, ``branches``) or the rows of a join (``feed``).

    ``name``: the input's alias, or ``#n`` for the rows of join n (from 1). ``inputs``: all inputs beneath.
    ``event_times``: all event-time columns, each a watermark key ``alias.column``. ``kept``: names of the
    columns kept in state, event times and key columns included. ``carried``: those of them that leave the
    join (for later joins, the projection, later filters). ``nullable``: event times that are NULL where a
    join beneath padded their input. ``padded``: rows of this side are put out padded when they never match.
    """

    name: str
    inputs: tuple[Input, ...]
    branches: tuple[BranchPlan, ...]
    feed: FeedPlan | None
    event_times: tuple[str, ...]
    kept: tuple[str, ...]
    carried: tuple[str, ...]
    nullable: tuple[str, ...]
    padded: bool

    @property
    def input(self) -> Input:
        """The input of a side that is one."""
        assert self.feed is None
        return self.inputs[0]

    @property
    def title(self) -> str:
        """For people: the alias, or the inputs whose joined rows these are."""
        return " with ".join(i.alias for i in self.inputs)

    def joined(self, column: str) -> str:
        """The name of a column once it has left the join."""
        return joined_name(self.name, column) if self.feed is None else column

    def watermark_key(self, column: str) -> str:
        return self.joined(column)


@dataclass(frozen=True)
class JoinPlan:
    """A join of two sides; ``number``: its place in `QueryPlan.joins`.

    ``bands``: of its time bounds; ``values``: bands over anything else. ``rechecks``: time comparisons that
    the bands do not decide exactly (lossy casts); ``comparisons``: all, as written, for times so near the
    ends of int64 (within ``slack``) that arithmetic saturates. ``residual``: any other condition over both
    sides; it mentions columns named ``alias.column`` (one quoted identifier, `joined_name`), and is checked
    on candidate pairs. ``residual_duckdb``: the same as DuckDB text.
    ``matchable`` False: no pair can ever match (inverted interval, constant condition). ``looks_above``: some
    bound follows from joins above, so that released rows may still meet the condition.
    """

    number: int
    kind: JoinKind
    left: SidePlan
    right: SidePlan
    keys: tuple[Key, ...]
    bands: tuple[TimeBand, ...]
    comparisons: tuple[TimeComparison, ...]
    rechecks: tuple[TimeComparison, ...]
    slack: int
    bounds: tuple[Bound, ...]
    looks_above: bool
    residual: Expr | None
    residual_duckdb: str | None
    residual_columns: tuple[str, ...]
    matchable: bool
    one_sided: tuple[tuple[str, str], ...]
    """(side, text) of ON conditions on one side alone, for people: rows that fail them match nothing."""
    filters: tuple[tuple[str, str], ...] = ()
    """(side, text) of conditions that drop rows of a side, for people."""
    warnings: tuple[str, ...] = ()
    recheck_texts: tuple[str, ...] = ()
    """The conjuncts of ``rechecks``, for EXPLAIN."""
    values: Bands = field(default_factory=Bands)

    def side(self, side: Side) -> SidePlan:
        return self.left if side is Side.LEFT else self.right

    @property
    def by_value(self) -> bool:
        """No equality key: rows are sorted by the values of a band, and tasks own ranges of them."""
        return not self.keys and bool(self.bands or self.values.every)

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


@dataclass(frozen=True)
class QueryPlan:
    """One INSERT: its joins, each after those beneath it, a filter after the last one, the projection.

    ``where`` and ``outputs`` mention columns named ``alias.column`` (one quoted identifier, `joined_name`).
    ``fingerprint``: a digest of what the stored state depends on. ``options``: as the query was planned.
    """

    name: str
    sink: Sink
    joins: tuple[JoinPlan, ...]
    where: Expr | None
    outputs: tuple[OutputColumn, ...]
    options: Options
    fingerprint: str
    sql: str

    @property
    def root(self) -> JoinPlan:
        """The join whose rows are the query's."""
        return self.joins[-1]

    @property
    def sides(self) -> tuple[SidePlan, ...]:
        """The sides that are inputs, in the query's order."""

        def beneath(join: JoinPlan) -> list[SidePlan]:
            found = []
            for side in (join.left, join.right):
                found += [side] if side.feed is None else beneath(self.joins[side.feed.join])
            return found

        return tuple(beneath(self.root))

    def parent(self, number: int) -> tuple[JoinPlan, Side] | None:
        """The join, and the side of it, that takes the rows of a join; None for the root."""
        for join in self.joins:
            for side in Side:
                feed = join.side(side).feed
                if feed is not None and feed.join == number:
                    return join, side
        return None

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(warning for join in self.joins for warning in join.warnings)


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
                for branch in side.branches:
                    found.setdefault(branch.source.name, branch.source)
        return tuple(found.values())


def joined_name(alias: str, column: str) -> str:
    """The name of an input's column once it has left the join, and in residual conditions."""
    return f"{alias}.{column}"
