"""What the driver tells tasks and what tasks report: small, plain, free of expressions.

`TickStart` goes to ingest tasks, a `NodeShape` to the tasks of a node; the lists of runs travel in a file of
the store (`NodeWork`), not in closures. Reports are JSON text.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, PlainSerializer, PlainValidator

from watersmeet.event_time import NEVER, Side, Watermark
from watersmeet.kernel.aggregate import AggregateColumn
from watersmeet.kernel.asof import Reach
from watersmeet.kernel.expression import Computed
from watersmeet.kernel.joined import JoinedColumn
from watersmeet.kernel.pairs import Condition
from watersmeet.kernel.partial import Partials
from watersmeet.names import DIFF, ours
from watersmeet.spec.model import TASK_MEMORY, WINDOW_END, WINDOW_START, JoinKind, WindowKind
from watersmeet.state.manifest import LiveRun, TableCopy
from watersmeet.state.marks import Marks
from watersmeet.state.record import Record
from watersmeet.state.run import Run, RunLayout
from watersmeet.state.sealed import unsealed
from watersmeet.state.store import Store
from watersmeet.watermark.lateness import LateBy

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
class SideTask:
    """One side of a node as tasks see it.

    ``name``: as in the plan. ``schema``: the kept columns in their native types. ``keys``: those that are
    hashed. ``nullable``: event times that may be NULL, in rows of a join or stage. ``carried``: columns that
    leave the node. ``changes``: rows carry diffs. ``passes``: rows are not retained, and go out in their
    tick. ``hides_released``: rows that are released may still meet the condition, and are to be left out.
    ``memory``: bytes that a task may hold at once, see `engine.step.memory`.
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
    memory: int = TASK_MEMORY

    @property
    def arrangement(self) -> str:
        return f"{self.query}/{self.name}"

    @property
    def stored_schema(self) -> pa.Schema:
        """The kept columns as runs hold them: event times are int64 without NULLs; where one is NULL is in a
        column of its own."""
        fields = [
            pa.field(f.name, pa.int64() if f.name in self.layout.event_times else f.type) for f in self.schema
        ]
        return pa.schema([*fields, *(pa.field(null_column(name), pa.bool_()) for name in self.nullable)])


def null_column(name: str) -> str:
    """The stored column that is TRUE where the event time ``name`` is NULL."""
    return ours(f"null:{name}")


@dataclass(frozen=True)
class TickStart:
    """What ingest needs to know of the tick. ``late_below``: per arrangement and event-time column;
    ``max_ahead``: per arrangement and branch, µs after the tick's clock (None: off); ``sources``: their
    names, likewise; ``indexes``: by what each arrangement's runs are sorted. ``null_fails``: a row without
    an event time fails the tick; ``ordered``: runs say in which order their rows came."""

    tick: int
    attempt: str
    clock_us: int
    sides: Mapping[str, SideTask]
    late_below: Mapping[str, Mapping[str, Watermark]]
    max_ahead: Mapping[str, tuple[int | None, ...]]
    flush_rows: int
    flush_bytes: int
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    indexes: Mapping[str, str | None] = field(default_factory=dict)
    null_fails: bool = False
    ordered: bool = False
    placing: Annotated[
        Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]] | None, Field(exclude=True)
    ] = None
    """For tests: where in the hash space keys fall. Told to tasks of this process alone."""


class PadFile(Record):
    """Rows that are not retained and go out in this tick, as stored columns, in no order: pads of rows that
    can match nothing, and all rows that pass."""

    name: str
    rows: int


class IngestReport(Record):
    """Of one ingest task, for one branch of one input."""

    arrangement: str
    branch: int
    runs: list[Run] = Field(default_factory=list)
    pads: list[PadFile] = Field(default_factory=list)
    greatest: dict[str, dict[str, int]] = Field(default_factory=dict)
    counts: dict[str, int] = Field(default_factory=dict)
    late: dict[str, LateBy] = Field(default_factory=dict)


class SideWork(Record):
    """What a task needs of one side of its node: live runs, new runs, limits before and after, merges asked
    for. ``index``: by what new runs are sorted."""

    runs: list[LiveRun]
    new_runs: list[Run]
    pads: list[PadFile]
    old_limits: dict[str, Watermark]
    new_limits: dict[str, Watermark]
    merges: list[list[str]] = Field(default_factory=list)
    index: str | None = None


class AsofWork(Record):
    """What the tasks of an ASOF join are told besides; see `engine.step.asof_limits`.

    ``settled``: no later right row has a lesser time; ``settled_before``: the same a tick ago. Of the right
    rows below ``asked`` one per key is kept; ``asked_before``: the same a tick ago. ``least``: the least left
    time that may ask from the next tick on; ``waiting``: the least one that was retained a tick ago.
    """

    settled: Watermark = NEVER
    settled_before: Watermark = NEVER
    asked: Watermark = NEVER
    asked_before: Watermark = NEVER
    least: Watermark = NEVER
    waiting: int | None = None


class NodeWork(Record):
    """What the tasks of one node are told in one tick. ``fed_late_below``: where its rows are those of a
    stage, per event time of the input that takes them, below which time they are late there; ``keep_late``:
    late ones are wanted. ``fed_index``: by what runs that it writes for another node are sorted. ``table``:
    what the rows meet, as it is in this tick. ``idle``, in the first of a tick: what the attempt decided, per
    query, alias and branch: all partitions, and which are idle. ``settings``, there too: how the run was set
    (a digest)."""

    tick: int
    sides: list[SideWork]
    fed_late_below: dict[str, Watermark] = Field(default_factory=dict)
    keep_late: bool = False
    fed_index: str | None = None
    asof: AsofWork | None = None
    table: TableCopy | None = None
    idle: dict[str, dict[str, list[dict[str, bool]]]] = Field(default_factory=dict)
    settings: str = ""

    def side(self, side: Side) -> SideWork:
        return self.sides[place_of(side)]


def read_work(store: Store, name: str) -> NodeWork:
    """What a work file says. Raises: StateError when it is missing or damaged."""
    return NodeWork.model_validate_json(unsealed(name, bytes(store.read(name))))


class SideReport(Record):
    """``released``: rows per run, ``released_rows``: how many rows of the side these stood for, where they
    are partial aggregates; ``marks``: new segments per run and kind; ``merged``: new runs with their marks;
    ``inserted``: new runs that are kept instead of the side's own; ``missing``: some rows that were deleted
    but are not there; ``least``: per event time over the retained rows of the runs that this task answers
    for; ``candidates``: how many look-ups into this side would find by each index, about; ``cursors``: per
    run, see `LiveRun`."""

    released: dict[str, int] = Field(default_factory=dict)
    released_rows: dict[str, int] = Field(default_factory=dict)
    marks: dict[str, Marks] = Field(default_factory=dict)
    merged: list[LiveRun] = Field(default_factory=list)
    inserted: list[LiveRun] = Field(default_factory=list)
    least: dict[str, int] = Field(default_factory=dict)
    counts: dict[str, int] = Field(default_factory=dict)
    candidates: dict[str, float] = Field(default_factory=dict)
    missing: list[str] = Field(default_factory=list)
    cursors: dict[str, dict[str, int]] = Field(default_factory=dict)


class FeedReport(Record):
    """What a task of a node wrote for the next one. Of a stage's rows also what became of them, as of an
    input's (see `engine.step.ingest`): ``counts``, ``late``; ``aside``: files of the late ones."""

    runs: list[Run] = Field(default_factory=list)
    pads: list[PadFile] = Field(default_factory=list)
    counts: dict[str, int] = Field(default_factory=dict)
    late: dict[str, LateBy] = Field(default_factory=dict)
    aside: list[PadFile] = Field(default_factory=list)


class NodeReport(Record):
    """Of one task of a node. ``fed``: for a node whose rows go to another one. ``rows_out``: rows that left
    the task, before the query's last filter. ``least_out``: per watermark key the least time among them."""

    partition: int
    sides: list[SideReport]
    fed: FeedReport | None = None
    rows_out: int = 0
    matches: int = 0
    least_out: dict[str, int] = Field(default_factory=dict)

    def side(self, side: Side) -> SideReport:
        return self.sides[place_of(side)]


@dataclass(frozen=True)
class Share:
    """What one task of a node is given: the node's work, and which share of how many is its own. It fills in
    its ``report``."""

    store: Store
    tick: int
    work: NodeWork
    report: NodeReport
    partition: int
    partitions: int


def place_of(side: Side) -> int:
    """The number of a join's side among the sides of a node."""
    return 0 if side is Side.LEFT else 1


@dataclass(frozen=True)
class FeedShape:
    """How rows of a node become rows of ``side``, of another node; see `plan.model.FeedPlan`.

    ``copied``: (name, column of the rows); ``computed``: of the rows. ``beneath``: rows that fail are
    none of the side's. ``of_stage``: the side is an input, and judges the rows as it does those of sources.
    """

    side: SideTask
    copied: tuple[tuple[str, str], ...]
    computed: tuple[Computed, ...]
    beneath: tuple[str, ...]
    filters: tuple[str, ...]
    conditions: tuple[str, ...]
    not_null: tuple[str, ...]
    matchable: bool
    of_stage: bool
    timed: str | None = None


@dataclass(frozen=True, kw_only=True)
class NodeShape:
    """A node as its tasks see it: the sides, the columns that leave, and where to (None: to the sink)."""

    query: str
    number: int
    sides: tuple[SideTask, ...]
    columns: tuple[JoinedColumn, ...]
    changelog: bool
    feed: FeedShape | None = None
    reach: Reach | None = None

    def side(self, side: Side) -> SideTask:
        return self.sides[place_of(side)]

    @property
    def kept_anew(self) -> bool:
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

    @property
    def event_times(self) -> tuple[str, ...]:
        """Those of the columns that leave that are watermark keys."""
        return tuple(c.name for c in self.columns if c.column in self.side(c.side).layout.event_times)

    @property
    def schema(self) -> pa.Schema:
        """`row_schema` and the control column."""
        return self.row_schema.append(pa.field(CONTROL, pa.string()))


@dataclass(frozen=True, kw_only=True)
class PassShape(NodeShape):
    """Rows of one side go out as they come."""


@dataclass(frozen=True)
class PartialShape:
    """What is kept instead of rows: partial ``aggregates``, per group and pane of this ``width``.

    ``side``: of the runs that hold them, where the time column holds the pane's start.
    """

    side: SideTask
    width: int
    aggregates: Partials


@dataclass(frozen=True, kw_only=True)
class AggregateShape(NodeShape):
    """Windows over the time ``time`` of the one side, and groups in them; see `plan.model.AggregatePlan`.

    ``columns``: what rows have that are to be grouped. ``by``: columns of the side that hold the keys;
    ``keys``: (name in the result, column). ``aggregates`` None: Spark aggregates, and rows go out with the
    windows that they are in. ``window_type``: of window_start and window_end. ``partial`` None: rows are
    kept.
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
    def kept_anew(self) -> bool:
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
        return pa.schema([*windows, *keys, *(pa.field(each.name, each.type) for each in self.aggregates)])

    @property
    def event_times(self) -> tuple[str, ...]:
        return (WINDOW_START, WINDOW_END)


@dataclass(frozen=True, kw_only=True)
class JoinShape(NodeShape):
    """``kind``: of an ANTI join no pairs leave, of a SEMI join each left row with its first match.
    ``broadcast``: the side of which every task has all rows; see `engine.step.broadcast`."""

    kind: JoinKind
    condition: Condition
    broadcast: Side | None = None

    @property
    def left(self) -> SideTask:
        return self.sides[0]

    @property
    def right(self) -> SideTask:
        return self.sides[1]


@dataclass(frozen=True, kw_only=True)
class LookupShape(JoinShape):
    """Rows of the one side meet a copy of a table, whose rows are as those of ``table``."""

    table: SideTask

    @property
    def right(self) -> SideTask:
        return self.table

    def side(self, side: Side) -> SideTask:
        return self.left if side is Side.LEFT else self.table
