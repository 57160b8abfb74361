"""What a node keeps at the end of a tick, and what becomes of that when some of its rows are shed.

A shed row is marked as ``gone``, so no file is written anew for it. Of an ASOF join it is remembered up to
which time right rows were shed: no left row takes one that came before for the nearest (`AsofState.shed`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from watersmeet.engine.driver.settling.shed_cuts import Cut
from watersmeet.engine.driver.settling.shed_parts import Part
from watersmeet.engine.messages.reports import PadFile
from watersmeet.engine.messages.shapes import NodeShape, SideShape
from watersmeet.event_time import NEVER, Watermark
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.state.manifest import Arrangement, AsofState, LiveRun
from watersmeet.state.marks import MarkWriter, overlay
from watersmeet.state.runs.opened import OpenRun
from watersmeet.state.store import Store


@dataclass(frozen=True)
class Shed:
    """What a side has shed: how many rows, and files of them for the side output."""

    rows: int
    files: Sequence[PadFile]


@dataclass
class NodeKept:
    """What a node keeps after a tick. ``arrangements``: of its sides; those that shed rows are replaced when
    that is `marked`. ``told``: the rows are wanted, in files. ``group``: the node's number in the job."""

    node: NodePlan
    shape: NodeShape
    arrangements: dict[str, Arrangement]
    store: Store
    tick: int
    told: bool
    group: int = 0
    _parts: dict[str, list[Part]] = field(default_factory=dict)
    _upto: dict[str, int] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all sides."""
        return tuple(side.name for side in self.shape.sides)

    def parts(self, names: Collection[str]) -> list[Part]:
        """What some sides keep, opened when something is to be shed."""
        return [part for side in self.shape.sides if side.name in names for part in self._of(side)]

    def _of(self, side: SideShape) -> list[Part]:
        if side.name not in self._parts:
            kept, place = self.arrangements[side.name], self.names.index(side.name)
            age = None if self.node.ages is None else self.node.ages[place]
            is_copy = self.node.sides[place].copy_of is not None
            opened = OpenRun.open_all(self.store, [live.run for live in kept.runs], side.layout)
            self._parts[side.name] = [
                Part(self.store, side, live, kept, run, age, self.group, is_copy)
                for live, run in zip(kept.runs, opened, strict=True)
            ]
        return self._parts[side.name]

    def stored(self, names: Collection[str]) -> list[tuple[LiveRun, int, bool]]:
        """All runs of some sides, as they are opened, how many rows of each stay, as it looks by now, and
        whether these are a copy of another side's."""
        told = []
        for place, side in enumerate(self.shape.sides):
            is_copy = self.node.sides[place].copy_of is not None
            if side.name not in names:
                continue
            if side.name in self._parts:
                told += [(part.live, part.stored, is_copy) for part in self._parts[side.name]]
            else:
                told += [(live, live.stored, is_copy) for live in self.arrangements[side.name].runs]
        return told

    def apply(self, cut: Cut, names: Collection[str]) -> None:
        """The rows of a cut are to be shed of some sides."""
        cut.apply(self.parts(names))
        if cut.last is not None:
            for name in names:
                self._upto[name] = max(cut.last, self._upto.get(name, cut.last))

    def marked(self, reason: str) -> Mapping[str, Shed]:
        """Mark the rows that are to be shed. Per side that has shed some, how many, and which; of copies
        nothing is told."""
        shed: dict[str, Shed] = {}
        for side in self.shape.sides:
            parts = [part for part in self._parts.get(side.name, ()) if len(part.shed)]
            if not parts:
                continue
            kept = self.arrangements[side.name]
            runs = _less(kept.runs, parts, self.store, self.tick)
            update = {"runs": runs, "retained": sum(live.retained for live in runs)}
            self.arrangements[side.name] = kept.model_copy(update=update)
            if not parts[0].is_copy:
                told = parts if self.told else []
                files = [file for part in told for file in part.written(reason, self.tick)]
                shed[side.name] = Shed(sum(len(part.shed) for part in parts), files)
        return shed

    def asof(self, state: AsofState | None, shed: Collection[str]) -> AsofState | None:
        """What an ASOF join remembers, whose sides ``shed`` have shed rows."""
        if state is None or self.shape.sides[1].name not in shed:
            return state
        upto: Watermark = self._upto.get(self.shape.sides[1].name, NEVER)
        return state.model_copy(update={"shed": max(state.shed, upto)})


def _less(runs: Sequence[LiveRun], shed: Sequence[Part], store: Store, tick: int) -> list[LiveRun]:
    """The runs of a side without rows of them. Files may be those of the other side, too: marks are not."""
    marks, gone = MarkWriter(), dict[str, int]()
    for part in shed:
        run = part.live.run
        marks.add_rows(store, run.name, "gone", part.live.marks.get("gone", ()), 0, run.rows, part.shed)
        gone[run.name] = len(part.shed)
    added = marks.write(store, tick)
    left: list[LiveRun] = []
    for live in runs:
        if live.run.name in gone:
            before = live.marks.get("gone", ())
            marked = {**live.marks, "gone": overlay(before, added[live.run.name]["gone"])}
            update = {"released": live.released + gone[live.run.name], "marks": marked}
            live = live.model_copy(update=update)
        if live.released < live.run.rows:
            left.append(live)
    return left
