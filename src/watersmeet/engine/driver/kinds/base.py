"""What the driver asks of a kind of node: what its tasks are told before any tick and in each, which rows
watermarks release, and which watermarks leave it.

A strategy has no state: what a tick decides is in the work of its tasks, what is remembered in the manifest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypedDict, TypeVar

from watersmeet.engine.driver.kinds.columns import carried
from watersmeet.engine.messages.reports import SideReport
from watersmeet.engine.messages.shapes import NodeShape, SideShape, Strategy
from watersmeet.engine.messages.work import AsofWork, NodeWork, Seen
from watersmeet.event_time import NEVER, Watermark
from watersmeet.kernel.joined import JoinedColumn
from watersmeet.measure import Measured
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.state.manifest import Arrangement, AsofState, NodeState, TableCopy
from watersmeet.state.marks import overlay
from watersmeet.state.runs.run import Run

P = TypeVar("P", bound=NodePlan)
S = TypeVar("S", bound=NodeShape)

Watermarks = Mapping[str, Watermark]
"""Per watermark key ``alias.column``."""


@dataclass(frozen=True)
class Held:
    """How the rows of a side are held in runs; see `state.runs.layout.RunLayout` and `SideShape`. ``dealt``:
    tasks take rows by other things than the hashes of keys. ``in_order``: rows with ``ties``
    come in an order that a repeated tick has again."""

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
class Incoming:
    """What a node's tick is decided from.

    ``watermarks``: that come in; ``lateness``: what is to be taken off them; ``on_time``: without it.
    ``before``: the node's state as of the last tick; ``kept_before``: what a side went by then, whoever keeps
    it. ``brought``: the runs that the tick brought for a side.
    ``clock_us``: the tick's clock.
    """

    watermarks: Watermarks
    lateness: Mapping[str, int]
    on_time: Watermarks
    before: NodeState
    kept_before: Callable[[SidePlan], Arrangement]
    brought: Callable[[SidePlan], Sequence[Run]]
    clock_us: int


@dataclass(frozen=True)
class Decided:
    """``limits``: rows below are released. ``asof``: what the tasks of an ASOF join are told besides;
    ``closed``: the paths of a delta join that come to nothing in the tick."""

    limits: Watermarks
    asof: AsofWork | None = None
    closed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outgoing:
    """What a node's output watermarks are made from.

    ``watermarks``: that come in; ``limits``: rows below are released; both with allowed_lateness taken off.
    ``least``: the least times of retained rows. ``emitted``: what was put out before.
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

    def seen(self, place: int, *, after: bool) -> Seen:
        """What look-ups see of one side: before the tick, or after it, rows that it released included."""
        before = self.before[place]
        hidden = {column: limit for column, limit in before.limits.items() if limit > NEVER}
        if not after:
            return Seen(runs=before.runs, fresh=[], hidden_below=hidden)
        runs = []
        for live in before.runs:
            marks = dict(live.marks)
            for report in self.reports[place]:
                for kind, segments in report.marks.get(live.run.name, {}).items():
                    marks[kind] = overlay(marks.get(kind, ()), segments)
            runs.append(live.model_copy(update={"marks": marks}))
        fresh = [live for report in self.reports[place] for live in report.inserted]
        return Seen(runs=runs, fresh=fresh, hidden_below=hidden)


class CommonFields(TypedDict):
    """What the shapes of all kinds have; see `NodeShape`."""

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
        """What the tasks know before any tick. ``sides``: of the node's sides, then of its tables.

        Raises:
            EngineError: types that the engine found do not go together.
        """
        common = CommonFields(
            query=query.name,
            number=node.number,
            sides=sides[: len(node.sides)],
            columns=self.leaving(node, sides),
            changelog=node.puts_out_changes,
            strategy=strategy,
        )
        return self.shape_of(query, node, sides, common)

    @abstractmethod
    def shape_of(self, query: QueryPlan, node: P, sides: tuple[SideShape, ...], common: CommonFields) -> S:
        """The shape of this kind: ``common``, and what only this kind has. Sides and errors as in `shape`."""

    def leaving(self, node: P, sides: tuple[SideShape, ...]) -> tuple[JoinedColumn, ...]:
        """The columns that leave."""
        return carried(node, sides)

    def held(self, query: QueryPlan, node: P, side: SidePlan) -> Held:
        """How the rows of a side, or table, are held."""
        return Held()

    def decide(self, node: P, given: Incoming) -> Decided:
        """What is released in the tick. Limits never go back when no watermark does."""
        return Decided({})

    def table(self, node: P, shape: S, met: Callable[[Any, SideShape], TableCopy | None]) -> TableCopy | None:
        """The table that the tick's rows meet. ``met``: of a node and the table's rows, the copy to take."""
        return None

    def goes_by_new_rows(self, shape: S) -> bool:
        """What its tasks do in a tick costs by the rows that come, and by the runs that are merged."""
        return False

    def told_pairs(self, work: NodeWork) -> float:
        """How many pairs its rows come to at most of keys that runs tell of as heavy."""
        return 0.0

    def seen(self, node: P, arranged: Callable[[int], ArrangedTick]) -> list[Seen]:
        """What the look-ups of a delta join see. ``arranged``: of a node beneath, by its number."""
        return []

    def outputs(self, node: P, given: Outgoing) -> dict[str, Watermark]:
        """The watermarks that leave the node, never below what was put out before."""
        keys = node.watermark_keys
        return risen_to({key: given.watermarks.get(key, NEVER) for key in keys}, given.emitted)

    def remembered(self, node: P, work: NodeWork, least: Mapping[str, int]) -> AsofState | None:
        """What the next tick of an ASOF join goes by. ``least``: the least times of retained rows."""
        return None


def risen_to(watermarks: Watermarks, emitted: Watermarks) -> dict[str, Watermark]:
    """The watermarks that have begun, none below what was put out before."""
    risen = {key: max(watermark, emitted.get(key, NEVER)) for key, watermark in watermarks.items()}
    return {key: watermark for key, watermark in risen.items() if watermark > NEVER}
