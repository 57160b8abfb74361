"""What the driver asks of every operator, and operators that keep nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Literal, TypedDict, TypeVar

from watersmeet.event_time import NEVER, Side, Watermark
from watersmeet.kernel.gather import JoinedColumn
from watersmeet.measure import Measured
from watersmeet.names import is_node_alias
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import GroupedPlan, NodePlan, PassPlan, ReusedPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.runtime.messages.reports import SideReport
from watersmeet.runtime.messages.shapes import NodeShape, PassShape, RestShape, SideShape, Strategy
from watersmeet.runtime.messages.work import AsofWork, LookupView, NodeWork
from watersmeet.state.manifest import Arrangement, AsofState, NodeState, TableCopy
from watersmeet.state.marks import overlay
from watersmeet.state.runs.layout import Run, null_column

# The columns that leave a node, with the types that the engine found.


def list_joined_columns(node: NodePlan, shapes: Sequence[SideShape]) -> tuple[JoinedColumn, ...]:
    """List the output columns of the sides and tables of a node.

    Args:
        shapes: the shapes of these sides and tables.
    """
    sides = zip(Side, (*node.sides, *node.tables), shapes, strict=False)
    return tuple(
        build_joined_column(side, plan, shape, name) for side, plan, shape in sides for name in shape.carried
    )


def build_joined_column(side: Side, plan: SidePlan, shape: SideShape, name: str) -> JoinedColumn:
    """Build the output column for the stored column ``name`` of a side, with its output name."""
    return JoinedColumn(
        side,
        name,
        plan.joined(name),
        shape.schema.field(name).type,
        null_column(name) if name in shape.nullable else None,
    )


def grouped_columns(node: GroupedPlan, sides: Sequence[SideShape]) -> tuple[JoinedColumn, ...]:
    """List the columns needed for grouping: the keys and the columns that the calls use.

    Args:
        sides: the single side of the node.
    """
    (side,) = sides
    wanted = dict.fromkeys(column for _, column in node.keys)
    for call in node.calls:
        wanted |= dict.fromkeys([*call.columns, *([] if call.filter is None else [call.filter])])
    return tuple(
        replace(build_joined_column(Side.LEFT, node.side, side, column), name=column) for column in wanted
    )


# What the driver asks of a kind of node: what its tasks are told before any tick and in each, which rows
# watermarks release, and which watermarks leave it.
#
# A strategy has no state: what a tick decides is in the work of its tasks, what is remembered in the
# manifest.

P = TypeVar("P", bound=NodePlan)
S = TypeVar("S", bound=NodeShape)

Watermarks = Mapping[str, Watermark]
"""Per watermark key ``alias.column``."""


@dataclass(frozen=True)
class SideLayout:
    """Layout of the rows of a side in runs; see `state.runs.layout.RunLayout` and `SideShape`.

    Args:
        dealt: True if rows are distributed to tasks by something other than hashes of keys.
        in_order: True if rows with ``ties`` arrive in an order that a repeated tick reproduces.
    """

    keys: tuple[str, ...] = ()
    indexes: tuple[Measured, ...] = ()
    by_value: bool = False
    releasing: tuple[str, ...] = ()
    watched: tuple[str, ...] = ()
    ties: Literal["ascending", "descending"] | None = None
    in_order: bool = True
    hides_released: bool = False
    hides_gone: bool = False
    found_by: tuple[tuple[str, ...], ...] = ()
    counts_keys: bool = False
    dealt: bool = False

    @property
    def ranged(self) -> bool:
        """Each task needs the rows of a range of hashes alone, unless they are found by a further key."""
        return bool(self.keys) and not (self.by_value or self.dealt)


@dataclass(frozen=True)
class NodeInputs:
    """Inputs from which a node's tick is decided.

    Args:
        watermarks: the incoming watermarks.
        lateness: what must be subtracted from them.
        on_time: the watermarks without lateness.
        before: the node's state as of the last tick.
        kept_before: returns the arrangement that a side used in the last tick, whichever query retains
            it.
        brought: returns the runs that the tick brought for a side.
        clock_us: the tick's clock.
    """

    watermarks: Watermarks
    lateness: Mapping[str, int]
    on_time: Watermarks
    before: NodeState
    kept_before: Callable[[SidePlan], Arrangement]
    brought: Callable[[SidePlan], Sequence[Run]]
    clock_us: int


@dataclass(frozen=True)
class NodeLimits:
    """Limits of a node in a tick.

    Args:
        limits: the eviction bounds; rows below them are released.
        asof: additional work for the tasks of an ASOF join.
        closed: the paths of a delta join that produce no rows in the tick.
    """

    limits: Watermarks
    asof: AsofWork | None = None
    closed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outgoing:
    """Values from which a node's output watermarks are computed.

    Args:
        watermarks: the incoming watermarks, less allowed_lateness.
        limits: the eviction bounds, less allowed_lateness; rows below them are released.
        least: the least times of retained rows.
        emitted: the output watermarks of the last tick.
    """

    watermarks: Watermarks
    limits: Watermarks
    least: Mapping[str, int]
    emitted: Watermarks
    tight: bool


@dataclass(frozen=True)
class ArrangedTick:
    """The arrangements of a node in a tick, when its tasks are done.

    ``before``: per side, as of the last tick. ``reports``: per side, of its tasks.
    """

    before: Sequence[Arrangement]
    reports: Sequence[Sequence[SideReport]]

    def seen(self, place: int, *, after: bool) -> LookupView:
        """Return the view of one side for look-ups.

        Args:
            after: False: the view before the tick. True: the view after the tick, including the rows that
                the tick released.
        """
        before = self.before[place]
        hidden = {column: limit for column, limit in before.limits.items() if limit > NEVER}
        if not after:
            return LookupView(runs=before.runs, fresh=[], hidden_below=hidden)
        runs = []
        for live in before.runs:
            marks = dict(live.marks)
            for report in self.reports[place]:
                for kind, segments in report.marks.get(live.run.name, {}).items():
                    marks[kind] = overlay(marks.get(kind, ()), segments)
            runs.append(live.model_copy(update={"marks": marks}))
        fresh = [live for report in self.reports[place] for live in report.inserted]
        return LookupView(runs=runs, fresh=fresh, hidden_below=hidden)


class CommonFields(TypedDict):
    """Fields that the shapes of all operators share; see `NodeShape`."""

    query: str
    number: int
    sides: tuple[SideShape, ...]
    columns: tuple[JoinedColumn, ...]
    changelog: bool
    strategy: Strategy


class NodeDriver(ABC, Generic[P, S]):
    """The driver's side of a kind of node, here as for one that keeps no row and lets watermarks pass."""

    drops_new: ClassVar[bool] = False
    """The runs that bring a tick's rows are of no use after it."""

    replaces: ClassVar[bool] = False
    """A side's rows are those that were read last: what was there before goes as a whole."""

    carries_changes: ClassVar[bool] = False
    """Rows of its sides have diffs, in append mode, too."""

    releases_as_rows: ClassVar[bool] = False
    """A row that is released costs its tasks about as much as one that comes."""

    def shape(self, query: QueryPlan, node: P, sides: tuple[SideShape, ...], strategy: Strategy) -> S:
        """Build the shape of a node: what its tasks know before any tick.

        Args:
            sides: the shapes of the node's sides, then of its tables.

        Raises:
            EngineError: the types that the engine found are incompatible.
        """
        common = CommonFields(
            query=query.name,
            number=node.number,
            sides=sides[: len(node.sides)],
            columns=self.leaving(node, sides),
            changelog=node.puts_out_changes,
            strategy=strategy,
        )
        return self.build_shape(query, node, sides, common)

    @abstractmethod
    def build_shape(self, query: QueryPlan, node: P, sides: tuple[SideShape, ...], common: CommonFields) -> S:
        """Build the shape of this operator from ``common`` and its own fields.

        Args:
            sides: the shapes of the node's sides, then of its tables.

        Raises:
            EngineError: the types that the engine found are incompatible.
        """

    def leaving(self, node: P, sides: tuple[SideShape, ...]) -> tuple[JoinedColumn, ...]:
        """List the output columns."""
        return list_joined_columns(node, sides)

    def held(self, query: QueryPlan, node: P, side: SidePlan) -> SideLayout:
        """Return the layout of the rows of a side or table."""
        return SideLayout()

    def decide(self, node: P, given: NodeInputs) -> NodeLimits:
        """Decide what the node releases in the tick. Limits never decrease unless a watermark does."""
        return NodeLimits({})

    def table(self, node: P, shape: S, met: Callable[[Any, SideShape], TableCopy | None]) -> TableCopy | None:
        """Return the table copy that the tick's rows join with.

        Args:
            met: returns the copy to use, for a node and the shape of the table's rows.
        """
        return None

    def costs_by_new_rows(self, shape: S) -> bool:
        """Return True if the cost of a tick depends only on arriving rows and merged runs."""
        return False

    def estimate_heavy_pairs(self, work: NodeWork) -> float:
        """Estimate an upper bound of the pairs for the keys that runs report as heavy."""
        return 0.0

    def seen(self, node: P, arranged: Callable[[int], ArrangedTick]) -> list[LookupView]:
        """Return the views of the look-ups of a delta join.

        Args:
            arranged: returns the tick of an input node, by its number.
        """
        return []

    def outputs(self, node: P, given: Outgoing) -> dict[str, Watermark]:
        """Compute the node's output watermarks, none below the emitted ones."""
        keys = node.watermark_keys
        return select_begun_watermarks({key: given.watermarks.get(key, NEVER) for key in keys}, given.emitted)

    def build_asof_state(self, node: P, work: NodeWork, least: Mapping[str, int]) -> AsofState | None:
        """Build the state for the next tick of an ASOF join.

        Args:
            least: the least times of retained rows.
        """
        return None


def select_begun_watermarks(watermarks: Watermarks, emitted: Watermarks) -> dict[str, Watermark]:
    """Select the watermarks that have a value, each at least as high as the emitted one."""
    risen = {key: max(watermark, emitted.get(key, NEVER)) for key, watermark in watermarks.items()}
    return {key: watermark for key, watermark in risen.items() if watermark > NEVER}


# Rows of one side that go out as they come.


class PassDriver(NodeDriver[PassPlan, PassShape]):
    def build_shape(
        self, query: QueryPlan, node: PassPlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> PassShape:
        return PassShape(**common)

    def costs_by_new_rows(self, shape: PassShape) -> bool:
        """Return True if the input is a changelog or the rows of a join.

        Other final rows are those of a whole input.
        """
        return shape.changelog or is_node_alias(shape.sides[0].name)


# A node in whose place another query's is run.


class RestDriver(NodeDriver[ReusedPlan, RestShape]):
    def build_shape(
        self, query: QueryPlan, node: ReusedPlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> RestShape:
        return RestShape(**common)
