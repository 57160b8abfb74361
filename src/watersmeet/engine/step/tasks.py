"""What the driver tells tasks and what tasks report: small, picklable, free of expressions.

`TickStart` goes to ingest tasks, `JoinTask` to join tasks; the lists of runs travel in a file of the store
(`JoinWork`), not in closures. Reports are JSON text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from watersmeet.event_time import Side, Watermark
from watersmeet.kernel.pairs import Condition, JoinedColumn
from watersmeet.spec.model import JoinKind
from watersmeet.state.manifest import LiveRun
from watersmeet.state.marks import Marks
from watersmeet.state.record import Record
from watersmeet.state.run import Run, RunLayout
from watersmeet.watermark.lateness import LateBy

CONTROL = "_control"
"""Column of a join task's output that is NULL in rows and holds the report in the one control row."""


@dataclass(frozen=True)
class SideTask:
    """One side of a join as tasks see it.

    ``name``: as in the plan. ``schema``: the kept columns in their native types. ``keys``: those that are
    hashed. ``nullable``: event times that may be NULL, in rows of a join. ``carried``: columns that leave the
    join. ``changes``: rows carry diffs. ``hides_released``: rows that are released may still meet the
    condition, and are to be left out.
    """

    query: str
    name: str
    layout: RunLayout
    schema: pa.Schema
    keys: tuple[str, ...]
    nullable: tuple[str, ...]
    padded: bool
    carried: tuple[str, ...]
    changes: bool
    hides_released: bool = False

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
    return f"#null:{name}"


@dataclass(frozen=True)
class TickStart:
    """What ingest needs to know of the tick. ``late_below``: per arrangement and event-time column;
    ``max_ahead``: per arrangement and branch, µs after the tick's clock (None: off); ``sources``: their
    names, likewise; ``indexes``: by what each arrangement's runs are sorted. ``null_fails``: a row without
    an event time fails the tick."""

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
    placing: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]] | None = None
    """For tests: where in the hash space keys fall."""


class PadFile(Record):
    """Rows that can match nothing and are padded in this tick, as stored columns, in no order."""

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
    """What a join task needs of one side: live runs, new runs, limits before and after, merges asked for.
    ``index``: by what new runs are sorted."""

    runs: list[LiveRun]
    new_runs: list[Run]
    pads: list[PadFile]
    old_limits: dict[str, Watermark]
    new_limits: dict[str, Watermark]
    merges: list[list[str]] = Field(default_factory=list)
    index: str | None = None


class JoinWork(Record):
    """What the tasks of one join are told in one tick. ``idle``, in the first of a tick: what the attempt
    decided, per query, alias and branch: all partitions, and which are idle. ``fed_index``: by what runs for
    the next join are sorted."""

    tick: int
    left: SideWork
    right: SideWork
    fed_index: str | None = None
    idle: dict[str, dict[str, list[dict[str, bool]]]] = Field(default_factory=dict)

    def side(self, side: Side) -> SideWork:
        return self.left if side is Side.LEFT else self.right


class SideReport(Record):
    """``released``: rows per run; ``marks``: new segments per run and kind; ``merged``: new runs with their
    marks; ``inserted``: new runs of changelog mode; ``missing``: some rows that were deleted but are not
    there; ``least``: per event time over the retained rows of the runs that this task answers for;
    ``candidates``: how many look-ups into this side would find by each index, about."""

    released: dict[str, int] = Field(default_factory=dict)
    marks: dict[str, Marks] = Field(default_factory=dict)
    merged: list[LiveRun] = Field(default_factory=list)
    inserted: list[LiveRun] = Field(default_factory=list)
    least: dict[str, int] = Field(default_factory=dict)
    counts: dict[str, int] = Field(default_factory=dict)
    candidates: dict[str, float] = Field(default_factory=dict)
    missing: list[str] = Field(default_factory=list)


class FeedReport(Record):
    """What a task of a join wrote for the next one."""

    runs: list[Run] = Field(default_factory=list)
    pads: list[PadFile] = Field(default_factory=list)


class JoinReport(Record):
    """Of one join task. ``fed``: for a join whose rows go to another one. ``least_out``: per watermark key
    the least time among the rows that it put out."""

    partition: int
    left: SideReport
    right: SideReport
    fed: FeedReport | None = None
    rows_out: int = 0
    matches: int = 0
    least_out: dict[str, int] = Field(default_factory=dict)

    def side(self, side: Side) -> SideReport:
        return self.left if side is Side.LEFT else self.right


@dataclass(frozen=True)
class FeedShape:
    """How rows of a join become rows of ``side``, of the next join; see `plan.model.FeedPlan`.

    ``copied``: (name, joined column); ``computed``: (name, DuckDB text).
    """

    side: SideTask
    copied: tuple[tuple[str, str], ...]
    computed: tuple[tuple[str, str], ...]
    filters: tuple[str, ...]
    conditions: tuple[str, ...]
    not_null: tuple[str, ...]
    matchable: bool


@dataclass(frozen=True)
class JoinShape:
    """A join as its tasks see it: the two sides, the condition, the columns that leave, and where to (None:
    out of the query).

    ``kind``: of an ANTI join no pairs leave, of a SEMI join each left row with its first match.
    """

    query: str
    number: int
    kind: JoinKind
    left: SideTask
    right: SideTask
    condition: Condition
    columns: tuple[JoinedColumn, ...]
    changelog: bool
    feed: FeedShape | None = None

    def side(self, side: Side) -> SideTask:
        return self.left if side is Side.LEFT else self.right

    @property
    def row_schema(self) -> pa.Schema:
        """The joined rows: columns ``alias.column``, and ``_diff`` in changelog mode."""
        fields = [pa.field(column.name, column.type) for column in self.columns]
        if self.changelog:
            fields.append(pa.field("_diff", pa.int64()))
        return pa.schema(fields)

    @property
    def schema(self) -> pa.Schema:
        """`row_schema` and the control column."""
        return self.row_schema.append(pa.field(CONTROL, pa.string()))
