"""Parts of plans: sides of nodes, and parts of conditions."""

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

    Attributes:
        columns: the retained columns with the values: the side's own column if its expression is one, else a
            computed column.
        text: the equality as written, for messages; empty if no user wrote it.
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
    """Bands of a join over anything but two event times.

    Attributes:
        comparisons, rechecks, slack: those of the exact bands, as in `MatchPlan`.
        inverted: texts of exact bands that contain no value although their ends are closed. (In floating
            point, such a band contains pairs of NaN.)
    """

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
    """Condition that replaces a join's bands and residual where one of ``sums`` may overflow.

    Attributes:
        values: Bands of the conjuncts without such a sum.
        residual: All other conjuncts, in their written order.
        exact: As in `MatchPlan`.
        columns: As in `MatchPlan`.
    """

    sums: tuple[IntegerSum, ...]
    values: Bands
    residual: Expr
    exact: tuple[Any, ...] | None
    columns: tuple[str, ...]


# A side of a node: what it keeps, and where its rows come from.


@dataclass(frozen=True)
class BranchPlan:
    """Expressions that an engine evaluates per row of one source for one input.

    They mention bare columns of ``source``.

    Attributes:
        columns: Retained columns (name, expression), including event times and keys.
        flag: One of the FLAG_ constants, never NULL. None: a row is a candidate unless a column is
            NULL, see `SidePlan`.
        words: Written text of columns that the planner adds, by name (FLAG: the flag).
    """

    source: Source
    lags: tuple[int | None, ...]
    columns: tuple[tuple[str, Expr], ...]
    flag: Expr | None
    words: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class FeedPlan:
    """Rows that leave a node and become rows of a side of another node.

    Attributes:
        node: Number of the node.
        copied: Columns of the side as (name, column of the node's rows).
        computed: Columns of the side as (name, expression over columns of the node's rows).
        computed_exact: What tasks compute for ``computed``, see `expressions`, and its type.
        beneath: Columns of the side that all have to be TRUE, or the row does not belong to the side.
        filters: Columns that have to be TRUE, or the row is dropped.
        conditions: Columns that have to be TRUE, or the row can match nothing.
        not_null: Columns that must not be NULL, or the row can match nothing.
        matchable: False if no row can match.
        event_times: For the end of a stage, (event time of the side, watermark key there). Joined rows
            retain their keys and name none, unless another query makes them: (own key, key there).
        path: Path of a delta join through the node that these rows belong to.
        query: Query of the node, if another query makes the rows.
        place: Position among the consumers of these rows.
        renamed: (name here, name there) of the columns that the consumer needs.
    """

    node: int
    copied: tuple[tuple[str, str], ...]
    computed: tuple[tuple[str, Expr], ...] = ()
    computed_exact: tuple[tuple[tuple[Any, ...], SqlType], ...] = ()
    beneath: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    not_null: tuple[str, ...] = ()
    matchable: bool = True
    event_times: tuple[tuple[str, str], ...] = ()
    path: int | None = None
    query: str | None = None
    place: int = 0
    renamed: tuple[tuple[str, str], ...] = ()
    timed: str | None = None
    """Among ``not_null``: a time without which a row is in no window, and counted as one without a time."""


@dataclass(frozen=True)
class ColumnOfOthers:
    """A column that only the other sides with the same runs retain.

    Attributes:
        name: name of the column in the runs.
        origin, text: as in `state.runs.layout.StoredColumn`.
        type: declared type; None if it is not declared.
    """

    name: str
    origin: str
    text: str
    type: SqlType | None


@dataclass(frozen=True)
class Producer:
    """An earlier query that makes or retains rows for a consumer.

    Attributes:
        node: the node that makes the rows.
        side: the side of the node whose retained rows are used; empty for the rows that the node emits.
        names: pairs of the consumer's and the producer's name of each column.
    """

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
    """One side of a node: an input (``branches``) or the rows of a node below (``feed``).

    Attributes:
        name: Alias of the input, or ``#n`` for the rows of node n (from 1).
        inputs: All inputs whose columns the rows have.
        branches: Sources and feeds by stages of an input, in its order.
        event_times: All event-time columns, each with the watermark key ``alias.column``.
        kept: Names of the columns retained in state, including event times and key columns.
        carried: Retained columns that leave the node (for later nodes, the projection, later filters).
        nullable: Event times that may be NULL because a join below padded their input.
        padded: Emit rows of this side padded if they never match.
        passes: Retain nothing; emit every row in the tick in which it arrives.
        not_null: Retained columns whose NULL lets a row of a source match nothing (feeds have their
            own).
        copy_of: Input of the same node whose rows this side stores again in another arrangement.
        sharers: All sides of the job, as ``query/alias``, that share the same runs, including this one;
            empty if no other side does. The first of them writes the runs: its branches also have the
            columns ``of_others``, which it does not retain for itself.
        kept_by: Other query that retains the rows. This side has only the changes of each tick, which
            that query passes to it.
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
        """Entries of `sources` whose rows arrive as those of streams.

        A compared source is not among them, because it is read as a whole.
        """
        return tuple((n, branch) for n, branch in self.sources if not branch.source.compared)

    @cached_property
    def stages(self) -> tuple[tuple[int, FeedPlan], ...]:
        """The branches of an input that are stages, with their numbers."""
        return tuple((n, branch) for n, branch in enumerate(self.branches) if isinstance(branch, FeedPlan))

    @property
    def in_order(self) -> bool:
        """True if its rows arrive in an order that is the same when a tick is repeated."""
        return not self.feeds and all(branch.source.traits.in_order for _, branch in self.sources)

    @cached_property
    def feeds(self) -> tuple[FeedPlan, ...]:
        """All feeds that bring rows of nodes below to this side."""
        return tuple(feed for _, feed in self.stages) if self.feed is None else (self.feed,)

    @cached_property
    def title(self) -> str:
        """Title for users: the alias, or the inputs whose joined rows these are."""
        return " with ".join(i.alias for i in self.inputs)

    def joined(self, column: str) -> str:
        """Return the name of a column after it leaves the node."""
        return joined_name(self.copy_of or self.name, column) if self.feed is None else column

    def watermark_key(self, column: str) -> str:
        return self.joined(column)


def joined_name(alias: str, column: str) -> str:
    """Return the name of an input's column after the join, as residual conditions use it, too.

    A value computed for a group has no alias.
    """
    return f"{alias}.{column}" if alias else column
