"""Shapes of nodes: the data that a node's tasks have before any tick."""

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

    Attributes:
        name: the name in the plan.
        schema: the retained columns in their native types.
        keys: the columns that are hashed.
        nullable: event times that may be NULL, in rows of a join or stage.
        carried: the columns that leave the node.
        changes: True if rows have diffs.
        passes: True if rows are not retained but emitted in their tick.
        hides_released: True if released rows may still meet the condition and must be excluded.
        hides_gone: True if rows that left before, which have a mark, must be excluded, too.
        memory: the bytes that a task may use at once; see `runtime.tasks.memory`.
        not_null: the retained columns whose NULL prevents any match of a source's row.
        copies: the same rows, stored in other ways as well.
        shared: for runs that several sides retain, the side as its writer stores it, with the columns of all.
        is_kept_elsewhere: True if another query's arrangement has the rows; the input is then the changes of
            a tick.
        held: a digest of the key that does not depend on the names of its columns.
        most_per_key: the maximum number of retained rows per key; None: no limit.
        sheds_keys: True if rows of a key with more rows are shed at the end of the tick.
        ranged: True if each task needs only the rows of a range of hashes.
        in_order: True if rows for which `layout.ties` requires `kernel.asof.CAME` arrive in an order that a
            repeated tick repeats, and are counted in that order.
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
        """Return the schema of the retained columns as runs store them.

        Event times are int64 without NULLs; a separate boolean column marks the rows where one is NULL.
        """
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
    """Node as its tasks see it: its sides and the columns that it emits.

    Attributes:
        by_spark: the aggregates, as written, that Spark computes from the emitted rows.
        feed: the destination of the emitted rows; None: the sink.
        path_feeds: the destinations of the rows of each path, for a node with several paths.
        abroad: the destinations of rows in other queries.
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
        """True if tasks write the retained rows of this tick.

        The runs that delivered these rows are then not retained.
        """
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
    """Node that emits the rows of its one side unchanged."""


@dataclass(frozen=True, kw_only=True)
class RestShape(NodeShape):
    """Node without tasks."""


DELETED = ours("deleted")
"""Stored column: at which clock a row of a primary key was deleted, µs; of rows that are there `MAX_TIME`."""


@dataclass(frozen=True, kw_only=True)
class UpsertShape(NodeShape):
    """Records of a table with a primary key; see `UpsertPlan`.

    Attributes:
        table: the side of the runs that store the table's rows and deletes.
        keys: the columns of the key.
        sequence: the column that orders changes.
        in_order: True if the records arrive in an order that a repeated tick repeats.
        placeholders: columns with the values that stand for the existing value.
    """

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

    Attributes:
        keys: the columns of the primary key; if empty, whole rows are compared.
    """

    keys: tuple[str, ...]

    @property
    def tasks_write_state(self) -> bool:
        return False


@dataclass(frozen=True, kw_only=True)
class TableShape(NodeShape):
    """Rows of one side that are retained until they are deleted; inserts and deletes are emitted."""


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
    """Windows over the time of the one side, and groups in them; see `AggregatePlan`.

    Attributes:
        time: the time column.
        columns: the columns of the rows to be grouped.
        by: the columns of the side that contain the keys.
        keys: pairs (name in the result, column).
        aggregates: the aggregates; None: Spark aggregates (``by_spark``), and rows are emitted with their
            windows.
        window_type: the type of window_start and window_end.
        partial: the retained partial aggregates; None: rows are retained.
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
    """Rows of a left side that match rows of a right side by a condition.

    Attributes:
        kind: the kind of join; an ANTI join emits no pairs, a SEMI join emits each left row with its first
            match.
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
    """Rows of the one side that match rows of a copy of a table, which have the shape ``table``."""

    table: SideShape

    def side(self, side: Side) -> SideShape:
        return self.sides[0] if side is Side.LEFT else self.table


# The shapes of the nodes of a delta join; see `plan.model.nodes`.


@dataclass(frozen=True, kw_only=True)
class ArrangeShape(NodeShape):
    """Rows of several inputs, and copies of some of them.

    Attributes:
        changes: how the rows of each input are emitted.
        final: True if the result of a released row is final, so that a later delete of the row retracts
            nothing.
    """

    changes: tuple[PassShape, ...]
    final: bool

    @property
    def event_times(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, kw_only=True)
class DeltaShape(NodeShape):
    """One look-up of each path of a delta join.

    Attributes:
        lookups: the look-ups, each for the side with the same number.
        by: the number of the further key by which each look-up finds rows (`RunLayout.found_by`); None: the
            key by which the rows are sorted.
        times: the watermark keys of the columns that leave with joined rows.
        is_last: True if the rows of all paths are emitted, with the same columns.
    """

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
    """Groups over all rows of the one side; see `plan.model.nodes.GroupPlan`.

    The results are the aggregates.
    """

    @property
    def is_always(self) -> bool:
        return not self.by

    @property
    def group_state_text(self) -> str:
        return f"{super().group_state_text}, including every distinct value of MIN, MAX and DISTINCT,"


@dataclass(frozen=True, kw_only=True)
class WindowGroupShape(SummedShape):
    """Windows over the time of the one side, and groups in them, whose rows are inserted and deleted.

    See `plan.model.nodes.WindowGroupPlan`.

    Attributes:
        time: the time column.
        size: the size of a window; for sessions, the gap.
        pane: the width of the retained panes. The column `PANE` has their starts; for sessions, the times
            themselves.
        window_type: the type of window_start and window_end.
        is_final: True if results are emitted once, when the window closes.
    """

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
    """First ``most`` rows of each partition; see `plan.model.nodes.RankPlan`.

    All columns are keys. The result is the rank, if rows are emitted with it.

    Attributes:
        partition: the columns of the side that define partitions.
        order: the order of the rows of a partition, as SQL of tasks.
        most: the maximum number of rows per partition.
    """

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
