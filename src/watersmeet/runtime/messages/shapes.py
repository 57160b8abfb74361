"""The shape of each node: what its tasks know before any tick."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import pyarrow as pa
from pydantic import PlainSerializer, PlainValidator

from watersmeet.event_time import Side
from watersmeet.expressions.evaluate import Computed
from watersmeet.kernel.aggregate import AggregateColumn, Partials
from watersmeet.kernel.asof import Reach
from watersmeet.kernel.gather import JoinedColumn
from watersmeet.kernel.groups import GroupParts
from watersmeet.kernel.match.deferred_conditions import DeferredCondition, is_deferred
from watersmeet.kernel.match.pairs import PairBound, PairCondition, PairTest
from watersmeet.names import DIFF, ours
from watersmeet.spec.job_options import TASK_MEMORY
from watersmeet.spec.model import WINDOW_END, WINDOW_START, JoinKind, WindowKind
from watersmeet.state.runs.layout import RunLayout, null_column

# The shape of a node: what its tasks know before any tick. Small, plain, free of expressions.
#
# Made from the plan and the types that an engine found (`runtime.coordinator.shapes`).

Strategy = Callable[[Any, Any], Iterator[pa.RecordBatch]]
"""The function of `runtime.operators` that makes the rows of a node in a task, of its shape and its share,
while it notes in its report what it did. It goes to workers by its name."""

CONTROL = ours("control")
"""Column of a node task's output that is NULL in rows and holds the report in the one control row."""


def _schema_of(value: Any) -> pa.Schema:
    return (
        value if isinstance(value, pa.Schema) else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value)))
    )


def _schema_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


TaskSchema = Annotated[pa.Schema, PlainValidator(_schema_of), PlainSerializer(_schema_text)]
"""A schema that is Arrow's own bytes when it goes to tasks as JSON."""


@dataclass(frozen=True)
class SideShape:
    """One side of a node as tasks see it.

    ``name``: as in the plan. ``schema``: the kept columns in their native types. ``keys``: those that are
    hashed. ``nullable``: event times that may be NULL, in rows of a join or stage. ``carried``: columns that
    leave the node. ``changes``: rows carry diffs. ``passes``: rows are not retained, and go out in their
    tick. ``hides_released``: rows that are released may still meet the condition, and are to be left out;
    ``hides_gone``: so are those that left before, by mark.
    ``memory``: bytes that a task may hold at once, see `runtime.tasks.memory`. ``not_null``: the kept columns
    whose NULL lets a row of a source match nothing. ``copies``: the same rows, held in other ways too.
    ``shared``: of runs that several sides keep: as the one that has them written keeps them, with the columns
    of all. ``is_kept_elsewhere``: in another query's arrangement; what comes are the changes of a tick.
    ``held``: a digest of the key, whatever its columns are called. ``most_per_key``: rows of one key that may
    be kept; None: no limit. ``sheds_keys``: of a key with more, rows are shed when the tick is over.
    ``ranged``: each task needs the rows of a range of hashes alone. ``in_order``: where ``layout.ties`` says
    that rows have `kernel.asof.CAME`, they come in an order that a repeated tick has again, and count by it.
    """

    query: str
    name: str
    layout: RunLayout
    schema: TaskSchema
    keys: tuple[str, ...]
    nullable: tuple[str, ...]
    padded: bool
    carried: tuple[str, ...]
    changes: bool
    passes: bool = False
    hides_released: bool = False
    hides_gone: bool = False
    memory: int = TASK_MEMORY
    not_null: tuple[str, ...] = ()
    copies: tuple[SideShape, ...] = ()
    shared: SideShape | None = None
    is_kept_elsewhere: bool = False
    held: str = ""
    most_per_key: int | None = None
    sheds_keys: bool = False
    ranged: bool = False
    in_order: bool = True

    @property
    def arrangement(self) -> str:
        return f"{self.query}/{self.name}"

    @property
    def written(self) -> SideShape | None:
        """Side whose runs ingest writes for this side; None if another side has them written."""
        if self.shared is None:
            return self
        return self.shared if self.shared.arrangement == self.arrangement else None

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """The kept columns as runs hold them: event times are int64 without NULLs; where one is NULL is in a
        column of its own."""
        fields = [
            pa.field(f.name, pa.int64() if f.name in self.layout.event_times else f.type) for f in self.schema
        ]
        return pa.schema([*fields, *(pa.field(null_column(name), pa.bool_()) for name in self.nullable)])


def side_number(side: Side) -> int:
    """Return the index of a join's side among the sides of a node."""
    return 0 if side is Side.LEFT else 1


@dataclass(frozen=True)
class FeedShape:
    """Rules to turn rows of a node into rows of ``side`` of another node; see `plan.model.sides.FeedPlan`.

    Rows that fail a pushed-down condition are not rows of the side. ``copied``: pairs (name, column of
    the rows). ``computed``: columns computed from the rows. ``of_stage``: the side is an input, and
    checks the rows for lateness like rows of a source. ``renamed``: for rows of another query, pairs
    (name here, name there); all other fields use the names here. ``path``: number of the path through
    the node whose rows these are; otherwise they are the rows that the node emits.
    """

    side: SideShape
    copied: tuple[tuple[str, str], ...]
    computed: tuple[Computed, ...]
    beneath: tuple[str, ...]
    filters: tuple[str, ...]
    conditions: tuple[str, ...]
    not_null: tuple[str, ...]
    matchable: bool
    of_stage: bool
    timed: str | None = None
    renamed: tuple[tuple[str, str], ...] = ()
    path: int | None = None


@dataclass(frozen=True, kw_only=True)
class NodeShape:
    """A node as its tasks see it: the sides, the columns that leave, and where to (None: to the sink).

    ``by_spark``: aggregates, as written, that Spark computes of the rows that leave. ``path_feeds``: where
    the rows of each path go, of a node through which several paths lead; ``abroad``: where rows go in other
    queries.
    """

    query: str
    number: int
    sides: tuple[SideShape, ...]
    columns: tuple[JoinedColumn, ...]
    changelog: bool
    strategy: Strategy
    feed: FeedShape | None = None
    path_feeds: tuple[FeedShape, ...] = ()
    abroad: tuple[FeedShape, ...] = ()
    by_spark: tuple[str, ...] = ()

    def side(self, side: Side) -> SideShape:
        return self.sides[side_number(side)]

    @property
    def stored(self) -> tuple[SideShape, ...]:
        """Retained sides, in the form in which runs store them."""
        return self.sides

    @property
    def combines(self) -> bool:
        """Merging its runs leaves fewer rows."""
        return False

    @property
    def read_once(self) -> bool:
        """True if retained rows are read only when they are released."""
        return False

    def is_broadcast(self, place: int) -> bool:
        """Return True if every task has all rows of that side."""
        return False

    @property
    def telling(self) -> frozenset[str] | None:
        """Columns by which no two rows that leave in a tick are equal; None: there may be such."""
        return None

    @property
    def elsewhere(self) -> DeferredCondition | None:
        """The condition that its tasks do not compute, if there is one."""
        return None

    @property
    def asked(self) -> tuple[JoinedColumn, ...]:
        """The columns of a pair that `elsewhere` mentions."""
        return ()

    def answered(self, residual: PairTest) -> NodeShape:
        """Return the shape with ``residual`` as its deferred condition; itself if it has none."""
        return self

    @property
    def tasks_write_state(self) -> bool:
        """Tasks write what is kept of this tick's rows; the runs that brought them are not."""
        return self.changelog

    @property
    def memory(self) -> int:
        """Bytes that a task may hold at once."""
        return self.sides[0].memory

    @cached_property
    def joined_schema(self) -> pa.Schema:
        """The columns that leave, named ``alias.column``."""
        return pa.schema([pa.field(column.name, column.type) for column in self.columns])

    @property
    def row_schema(self) -> pa.Schema:
        """The rows that leave: `joined_schema`, and `DIFF` in changelog mode."""
        return self.joined_schema.append(pa.field(DIFF, pa.int64())) if self.changelog else self.joined_schema

    @cached_property
    def event_times(self) -> tuple[str, ...]:
        """Names of the emitted columns that are watermark keys."""
        return tuple(c.name for c in self.columns if c.column in self.side(c.side).layout.event_times)


@dataclass(frozen=True, kw_only=True)
class PassShape(NodeShape):
    """Rows of one side go out as they come."""


@dataclass(frozen=True, kw_only=True)
class RestShape(NodeShape):
    """It has no tasks."""


DELETED = ours("deleted")
"""Stored column: at which clock a row of a primary key was deleted, µs; of rows that are there `MAX_TIME`."""


@dataclass(frozen=True, kw_only=True)
class UpsertShape(NodeShape):
    """Records of a table with a primary key; see `UpsertPlan`. ``table``: of the runs that hold its rows, and
    its deletes. ``keys``: the columns of the key; ``sequence``: that by which changes are ordered.
    ``in_order``: they come in an order that a repeated tick has again. ``placeholders``: columns, and values
    in them that stand for the one that is there."""

    table: SideShape
    keys: tuple[str, ...]
    sequence: str | None
    in_order: bool
    placeholders: tuple[tuple[str, tuple[Any, ...]], ...] = ()

    @property
    def stored(self) -> tuple[SideShape, ...]:
        return (self.table,)


@dataclass(frozen=True, kw_only=True)
class SnapshotShape(NodeShape):
    """Shape of a node that compares a table with its previous content; see `SnapshotPlan`.

    ``keys``: the columns of the primary key; if empty, whole rows are compared.
    """

    keys: tuple[str, ...]

    @property
    def tasks_write_state(self) -> bool:
        return False


@dataclass(frozen=True, kw_only=True)
class TableShape(NodeShape):
    """Rows of one side are kept until they are deleted, and go out as they come and go."""


@dataclass(frozen=True)
class PartialShape:
    """Shape of state that retains partial ``aggregates`` per group and pane of ``width`` instead of rows.

    ``side``: the side of the runs that store them; its time column contains the start of the pane.
    """

    side: SideShape
    width: int
    aggregates: Partials


@dataclass(frozen=True, kw_only=True)
class AggregateShape(NodeShape):
    """Windows over the time ``time`` of the one side, and groups in them; see `AggregatePlan`.

    ``columns``: what rows have that are to be grouped. ``by``: columns of the side that hold the keys;
    ``keys``: (name in the result, column). ``aggregates`` None: Spark aggregates (``by_spark``), and rows
    go out with the windows that they are in. ``window_type``: of window_start and window_end. ``partial``
    None: rows are kept.
    """

    kind: WindowKind
    time: str
    size: int
    slide: int
    keys: tuple[tuple[str, str], ...]
    aggregates: tuple[AggregateColumn, ...] | None
    window_type: pa.DataType
    partial: PartialShape | None

    @property
    def tasks_write_state(self) -> bool:
        return self.partial is not None

    @property
    def stored(self) -> tuple[SideShape, ...]:
        return self.sides if self.partial is None else (self.partial.side,)

    @property
    def combines(self) -> bool:
        return self.partial is not None

    @property
    def read_once(self) -> bool:
        return self.partial is not None

    @property
    def by(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column for _, column in self.keys))

    @property
    def row_schema(self) -> pa.Schema:
        windows = [pa.field(name, self.window_type) for name in (WINDOW_START, WINDOW_END)]
        kinds = {column.name: column.type for column in self.columns}
        if self.aggregates is None:
            return pa.schema([*windows, *(pa.field(name, kind) for name, kind in kinds.items())])
        keys = [pa.field(name, kinds[column]) for name, column in self.keys]
        return pa.schema(
            [*windows, *keys, *(pa.field(aggregate.name, aggregate.type) for aggregate in self.aggregates)]
        )

    @property
    def event_times(self) -> tuple[str, ...]:
        return (WINDOW_START, WINDOW_END)


@dataclass(frozen=True, kw_only=True)
class MatchShape(NodeShape):
    """Rows of a left side meet those of a right one by a condition, whatever these two are.

    ``kind``: of an ANTI join no pairs leave, of a SEMI join each left row with its first match.
    """

    kind: JoinKind
    condition: PairCondition

    @property
    def left(self) -> SideShape:
        return self.side(Side.LEFT)

    @property
    def right(self) -> SideShape:
        return self.side(Side.RIGHT)

    @property
    def elsewhere(self) -> DeferredCondition | None:
        residual = self.condition.residual
        return residual if isinstance(residual, DeferredCondition) else None

    @property
    def asked(self) -> tuple[JoinedColumn, ...]:
        return self.condition.residual_columns

    @property
    def goes_by_keys(self) -> bool:
        """True if tasks find partners by key hashes and evaluate the whole condition themselves."""
        return bool(self.left.layout.key) and not is_deferred(self.condition.residual)

    @property
    def can_count_candidates(self) -> bool:
        """True if tasks can count the candidates of a look-up before they read any.

        They count by key hashes, or by the values that rows are sorted by. Tasks must also evaluate the
        whole condition themselves.
        """
        return self.goes_by_keys or (self.left.layout.by_value and not is_deferred(self.condition.residual))

    def answered(self, residual: PairTest) -> MatchShape:
        if self.elsewhere is None:
            return self
        return replace(self, condition=self.condition.answered(residual))


@dataclass(frozen=True, kw_only=True)
class JoinShape(MatchShape):
    """Shape of a join that retains rows of both sides.

    ``broadcast``: the side of which every task has all rows; see `runtime.operators.broadcast`.
    ``reach``: the reach of an ASOF join. ``lasting``: bounds that pairs must meet besides the condition
    to produce a result in changelog mode; see `kernel.match.pairs`.
    """

    broadcast: Side | None = None
    reach: Reach | None = None
    lasting: tuple[PairBound, ...] = ()

    def is_broadcast(self, place: int) -> bool:
        return self.broadcast is not None and side_number(self.broadcast) == place


@dataclass(frozen=True, kw_only=True)
class LookupShape(MatchShape):
    """Rows of the one side meet a copy of a table, whose rows are as those of ``table``."""

    table: SideShape

    def side(self, side: Side) -> SideShape:
        return self.sides[0] if side is Side.LEFT else self.table


# The shapes of the nodes of a delta join; see `plan.model.nodes`.


@dataclass(frozen=True, kw_only=True)
class ArrangeShape(NodeShape):
    """Rows of several inputs, and copies of some of them. ``changes``: how those of each input leave.
    ``final``: what a row came to stays when it is released, so a delete of it has nothing to take back."""

    changes: tuple[PassShape, ...]
    final: bool

    @property
    def event_times(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, kw_only=True)
class DeltaShape(NodeShape):
    """One look-up of each path: ``lookups``, of the side with the same number; ``by``: the number of the
    further key by which it finds rows (`RunLayout.found_by`; None: that by which they are sorted).
    ``times``: of the columns that leave with joined rows, the watermark keys. ``is_last``: all paths' rows
    leave, with the same columns."""

    lookups: tuple[LookupShape, ...]
    by: tuple[int | None, ...]
    times: tuple[str, ...]
    is_last: bool

    @property
    def event_times(self) -> tuple[str, ...]:
        return self.times


# The shapes of nodes of which what is kept adds up: groups, windows, partitions whose rows come and go.

PANE = ours("pane")
"""Stored column: the start of a pane, as times are stored."""


@dataclass(frozen=True, kw_only=True)
class SummedShape(NodeShape):
    """Shape of a node whose state adds up per group; groups change as a whole.

    ``columns``: columns of the rows. ``keys``: pairs (name in the result, column of the side).
    ``parts``: retained state of groups; ``kept``: side of the runs that store it. ``results``: types of
    the computed columns, in order.
    """

    keys: tuple[tuple[str, str], ...]
    parts: GroupParts
    kept: SideShape
    results: tuple[tuple[str, pa.DataType], ...]

    @property
    def stored(self) -> tuple[SideShape, ...]:
        return (self.kept,)

    @property
    def tasks_write_state(self) -> bool:
        return True

    @property
    def combines(self) -> bool:
        return True

    @property
    def by(self) -> tuple[str, ...]:
        """The columns of the side of which groups have one value each."""
        return tuple(dict.fromkeys(column for _, column in self.keys))

    @property
    def lookup_columns(self) -> tuple[str, ...]:
        """Group columns that rows which change together have in common."""
        return self.by

    @property
    def telling(self) -> frozenset[str] | None:
        return frozenset(name for name, _ in (*self.keys, *self.results))

    @property
    def is_always(self) -> bool:
        """There is one group, even of no row."""
        return False

    @property
    def group_state_text(self) -> str:
        """Description of the state of one group, for messages."""
        return f'the state of one group of "{self.query}"'

    @property
    def joined_schema(self) -> pa.Schema:
        kinds = {column.name: column.type for column in self.columns}
        keys = [pa.field(name, kinds[column]) for name, column in self.keys]
        return pa.schema([*keys, *(pa.field(name, kind) for name, kind in self.results)])

    @property
    def event_times(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, kw_only=True)
class GroupShape(SummedShape):
    """Groups over all rows of the one side; see `plan.model.nodes.GroupPlan`. ``results``: the aggregates."""

    @property
    def is_always(self) -> bool:
        return not self.by

    @property
    def group_state_text(self) -> str:
        return f"{super().group_state_text}, including every distinct value of MIN, MAX and DISTINCT,"


@dataclass(frozen=True, kw_only=True)
class WindowGroupShape(SummedShape):
    """Windows over the time ``time`` of the one side, and groups in them, whose rows come and go; see
    `plan.model.nodes.WindowGroupPlan`. What is kept is of panes of the width ``pane``, by their start in the
    column `PANE`; of sessions they are the times themselves, and ``size`` is the gap. ``window_type``: of
    window_start and window_end. ``is_final``: results go out once, at the close."""

    kind: WindowKind
    time: str
    size: int
    slide: int
    pane: int
    window_type: pa.DataType
    is_final: bool

    @property
    def by(self) -> tuple[str, ...]:
        return (PANE, *self.lookup_columns)

    @property
    def lookup_columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column for _, column in self.keys))

    @property
    def joined_schema(self) -> pa.Schema:
        windows = [pa.field(name, self.window_type) for name in (WINDOW_START, WINDOW_END)]
        return pa.schema([*windows, *super().joined_schema])

    @property
    def group_state_text(self) -> str:
        return f'the state of the open windows of one group of "{self.query}"'

    @property
    def telling(self) -> frozenset[str] | None:
        ends = (WINDOW_END,) if self.kind is WindowKind.SESSION else ()
        return frozenset({WINDOW_START, *ends, *(name for name, _ in (*self.keys, *self.results))})

    @property
    def event_times(self) -> tuple[str, ...]:
        return (WINDOW_START, WINDOW_END)


@dataclass(frozen=True, kw_only=True)
class RankShape(SummedShape):
    """The first ``most`` rows of each partition; see `plan.model.nodes.RankPlan`. ``keys``: all columns.
    ``partition``: those of the side that partitions go by; ``order``: how the others are ordered, as SQL of
    tasks. ``results``: the number, if rows go out with it."""

    partition: tuple[str, ...]
    order: str
    most: int

    @property
    def by(self) -> tuple[str, ...]:
        return self.partition

    @property
    def group_state_text(self) -> str:
        of = f" with equal {', '.join(self.partition)}" if self.partition else ""
        return f'the state of one partition of "{self.query}"{of}, including every distinct row,'
