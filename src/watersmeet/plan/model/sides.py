"""Sides of nodes and parts of conditions, as plans hold them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from watersmeet.conditions import ExactBand, IntegerSum, Key, RealBand
from watersmeet.event_time import Side, TimeComparison
from watersmeet.names import input_of
from watersmeet.spec.model import Expr, Input, Source
from watersmeet.types.sql_type import SqlType

# Parts of a condition as plans have them, besides those of `watersmeet.conditions`: what mentions
# expressions, and what belongs together.


@dataclass(frozen=True)
class KeyPlan:
    """An equality ``left = right`` (or ``<=>``) over expressions of one side each.

    ``columns``: the kept columns that hold the values: a side's own column when its expression is one, else a
    computed one. ``text``: as it was written, for messages; empty: nobody wrote it.
    """

    left: Expr
    right: Expr
    columns: Key
    text: str = ""

    @property
    def null_safe(self) -> bool:
        return self.columns.null_safe

    def expr(self, side: Side) -> Expr:
        return self.left if side is Side.LEFT else self.right

    def column(self, side: Side) -> str:
        return self.columns.column(side)


@dataclass(frozen=True)
class Bands:
    """The bands of a join over anything but two event times. ``comparisons``, ``rechecks``, ``slack``: of the
    exact ones, as in `MatchPlan`. ``inverted``: the texts of exact ones that hold nothing though their ends
    are closed. (In floating point such a band holds pairs of NaN.)"""

    exact: tuple[ExactBand, ...] = ()
    real: tuple[RealBand, ...] = ()
    comparisons: tuple[TimeComparison, ...] = ()
    rechecks: tuple[TimeComparison, ...] = ()
    recheck_texts: tuple[str, ...] = ()
    slack: int = 0
    inverted: tuple[str, ...] = ()

    @property
    def every(self) -> tuple[ExactBand | RealBand, ...]:
        return (*self.exact, *self.real)


@dataclass(frozen=True)
class OverflowCheck:
    """What is asked in place of a join's bands and its residual where one of ``sums`` may leave its type.

    ``values``: the bands of conjuncts without such a sum. ``residual``: all the rest, in the order in which
    it is written; it, ``exact`` and ``columns`` are as in `MatchPlan`.
    """

    sums: tuple[IntegerSum, ...]
    values: Bands
    residual: Expr
    exact: tuple[Any, ...] | None
    columns: tuple[str, ...]


# A side of a node: what it keeps, and where its rows come from.


@dataclass(frozen=True)
class BranchPlan:
    """What an engine evaluates per row of one source for one input.

    Expressions mention bare columns of ``source``. ``columns`` gives the kept columns (name, expression),
    event times and keys among them; ``flag`` gives one of the FLAG_ constants, never NULL (None: candidate,
    unless a column is NULL, see `SidePlan`). ``words``: what those that nobody wrote so stand for, by name
    (FLAG: the flag), as it was written.
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
    compute of it, see `expressions`, and of what type.
    Then, by columns of the side: ``beneath``, of which each has to be TRUE, or the row is none of the side's;
    ``filters``, or the row is dropped; ``conditions``, and ``not_null``, or the row can match nothing.
    ``matchable`` False: no row can.
    ``event_times``: where the node is the end of a stage, which of its watermarks each event time of the side
    has, as (event time, watermark key there). A joined row's keep their keys: none are named, but where
    another query makes the rows: (own key, key there).
    ``path``: of the paths of a delta join that go through the node, whose rows these are. ``query``: whose
    node it is, where another query makes the rows; ``place``: which of those that take them there this is;
    ``renamed``: of the columns that are asked of them (name here, name there).
    """

    node: int
    copied: tuple[tuple[str, str], ...]
    computed: tuple[tuple[str, Expr], ...]
    computed_exact: tuple[tuple[tuple[Any, ...], SqlType], ...]
    beneath: tuple[str, ...]
    filters: tuple[str, ...]
    conditions: tuple[str, ...]
    not_null: tuple[str, ...]
    matchable: bool
    event_times: tuple[tuple[str, str], ...] = ()
    path: int | None = None
    query: str | None = None
    place: int = 0
    renamed: tuple[tuple[str, str], ...] = ()
    timed: str | None = None
    """Among ``not_null``: a time without which a row is in no window, and counted as one without a time."""


@dataclass(frozen=True)
class ColumnOfOthers:
    """A column that only other sides that share the runs keep. ``name``: what it is called in them;
    ``origin``, ``text``: as in `state.runs.layout.StoredColumn`; ``type``: as declared, where it is."""

    name: str
    origin: str
    text: str
    type: SqlType | None


@dataclass(frozen=True)
class Producer:
    """The query before that makes or keeps rows for a consumer: those of ``node``, or what that keeps of its
    ``side`` (empty: of none). ``names``: of the columns, (consumer's name, name there)."""

    query: str
    node: int
    side: str
    names: tuple[tuple[str, str], ...]

    @property
    def alias(self) -> str:
        """The input of the side."""
        return input_of(self.side)


@dataclass(frozen=True)
class SidePlan:
    """One side of a node: an input (``branches``) or the rows of a node beneath (``feed``).

    ``name``: the input's alias, or ``#n`` for the rows of node n (from 1). ``inputs``: all inputs whose
    columns the rows have. ``branches``: of an input, in its order: sources, and feeds by stages.
    ``event_times``: all event-time columns, each a watermark key ``alias.column``. ``kept``: names of the
    columns kept in state, event times and key columns included. ``carried``: those of them that leave the
    node (for later nodes, the projection, later filters). ``nullable``: event times that may be NULL, because
    a join beneath padded their input. ``padded``: rows of this side are put out padded when they never match.
    ``passes``: nothing is kept, every row goes out in the tick in which it comes. ``not_null``: the kept
    columns whose NULL lets a row of a source match nothing (feeds have their own). ``copy_of``: the input of
    the same node whose rows these are once more, held in another way. ``sharers``: all sides of the job, as
    ``query/alias``, that keep the same runs, this one among them; none: nobody else does. The first of them
    has the runs written: its branches have the columns ``of_others``, too, which it does not keep for itself.
    ``find_producer_sides``: another query keeps the rows; of its own it has what a tick changes of them,
    which that one tells it of.
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
    not_null: tuple[str, ...] = ()
    copy_of: str | None = None
    sharers: tuple[str, ...] = ()
    of_others: tuple[ColumnOfOthers, ...] = ()
    kept_by: Producer | None = None

    @property
    def input(self) -> Input:
        """The input of a side that is one."""
        assert self.feed is None
        return self.inputs[0]

    @cached_property
    def sources(self) -> tuple[tuple[int, BranchPlan], ...]:
        """The branches of an input that are sources, with their numbers."""
        return tuple((n, branch) for n, branch in enumerate(self.branches) if isinstance(branch, BranchPlan))

    @cached_property
    def ingested(self) -> tuple[tuple[int, BranchPlan], ...]:
        """Those of `sources` whose rows come as those of streams do. What is compared is read as a whole."""
        return tuple((n, branch) for n, branch in self.sources if not branch.source.compared)

    @cached_property
    def stages(self) -> tuple[tuple[int, FeedPlan], ...]:
        """The branches of an input that are stages, with their numbers."""
        return tuple((n, branch) for n, branch in enumerate(self.branches) if isinstance(branch, FeedPlan))

    @property
    def in_order(self) -> bool:
        """Its rows come in an order that is the same when a tick is repeated."""
        return not self.feeds and all(branch.source.traits.in_order for _, branch in self.sources)

    @cached_property
    def feeds(self) -> tuple[FeedPlan, ...]:
        """All ways by which rows of nodes beneath come to this side."""
        return tuple(feed for _, feed in self.stages) if self.feed is None else (self.feed,)

    @cached_property
    def title(self) -> str:
        """For people: the alias, or the inputs whose joined rows these are."""
        return " with ".join(i.alias for i in self.inputs)

    def joined(self, column: str) -> str:
        """The name of a column once it has left the node."""
        return joined_name(self.copy_of or self.name, column) if self.feed is None else column

    def watermark_key(self, column: str) -> str:
        return self.joined(column)


def joined_name(alias: str, column: str) -> str:
    """The name of an input's column once it has left the join, and in residual conditions. What is computed
    of a group has no alias."""
    return f"{alias}.{column}" if alias else column
