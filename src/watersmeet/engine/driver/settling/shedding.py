"""Shedding: a join that keeps more than it may lets rows go at the end of a tick (SET at_limit).

A shed row is marked as ``gone``, so no file is written anew for it. From the next tick on it is matched with
nothing; it is not padded when it would have been released, nor put out by ANTI, and it is not retained. Which
rows go, by which limit after the other: of keys with more rows than ``max_rows_per_key`` the oldest, or all;
then of all rows the oldest, all of one time together, or those of the heaviest keys, until ``max_rows`` and
``max_bytes`` hold. It follows from the rows that are kept alone, or was decided by the first attempt at the
tick (`shed_decided`), and so a tick that is repeated sheds the same, by however many tasks it is run. What it
costs goes, for the oldest and for one key, by the rows that are shed, now and since limits last passed them;
for the heaviest keys by all rows that the join keeps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from watersmeet.engine.driver.settling import shed_cuts
from watersmeet.engine.driver.settling.shed_cuts import Cut, crowding
from watersmeet.engine.driver.settling.shed_decided import decided
from watersmeet.engine.driver.settling.shed_parts import Part
from watersmeet.engine.messages.reports import PadFile
from watersmeet.engine.messages.shapes import NodeShape
from watersmeet.plan.model.job import QueryPlan
from watersmeet.spec.model import AtLimit
from watersmeet.state.manifest import Arrangement, LiveRun
from watersmeet.state.marks import MarkWriter, overlay
from watersmeet.state.runs.opened import OpenRun
from watersmeet.state.store import Store


@dataclass(frozen=True)
class Shed:
    """What a side has shed: how many rows, and files of them for the side output."""

    rows: int
    files: Sequence[PadFile]


@dataclass
class ShedTick:
    """A tick in which a node of a query may shed rows. ``arrangements``: of its sides, after the tick; those
    that shed rows are replaced. ``crowded``: per side, by its place, upper halves of hashes under which keys
    may have too many rows. ``decided``: the name of the file with what was decided by the bytes of files.
    ``told``: the rows are wanted, in files."""

    query: QueryPlan
    shape: NodeShape
    arrangements: MutableMapping[str, Arrangement]
    store: Store
    tick: int
    crowded: Sequence[Collection[int]]
    decided: str
    told: bool
    _opened: list[Part] = field(default_factory=list)

    def shed(self) -> Mapping[str, Shed]:
        """Bring what the node keeps down to its limits. Per side that has shed rows, how many, and which."""
        options = self.query.options
        if not options.at_limit.sheds:
            return {}
        if options.max_rows_per_key is not None:
            self._by_keys(options.max_rows_per_key)
        if options.max_rows is not None:
            self._by_rows(options.max_rows)
        if options.max_bytes is not None:
            self._by_bytes(options.max_bytes)
        return self._marked()

    def _parts(self) -> list[Part]:
        """All that the sides keep, opened when something is to be shed."""
        if not self._opened:
            sides, store = self.shape.sides, self.store
            ages = self.query.nodes[self.shape.number].ages or [None] * len(sides)
            for side, age in zip(sides, ages, strict=True):
                kept = self.arrangements[side.name]
                opened = OpenRun.open_all(store, [live.run for live in kept.runs], side.layout)
                for live, run in zip(kept.runs, opened, strict=True):
                    self._opened.append(Part(store, side, live, kept, run, age))
        return self._opened

    def _stored(self) -> list[tuple[LiveRun, int]]:
        """All runs of the sides, as they are opened, and how many rows of each stay, as it looks by now."""
        if self._opened:
            return [(part.live, part.stored) for part in self._opened]
        sides = [self.arrangements[side.name] for side in self.shape.sides]
        return [(live, live.stored) for kept in sides for live in kept.runs]

    @property
    def _goes_by_age(self) -> bool:
        return self.query.options.at_limit is AtLimit.SHED_OLDEST

    def _by_keys(self, most: int) -> None:
        for side, buckets in zip(self.shape.sides, self.crowded, strict=True):
            parts = [part for part in self._parts() if part.side is side] if buckets else []
            if parts:
                chosen = crowding(parts, np.array(sorted(buckets)), most, by_age=self._goes_by_age)
                for part, rows in zip(parts, chosen, strict=True):
                    part.add(rows)

    def _by_rows(self, most: int) -> None:
        excess = sum(rows for _, rows in self._stored()) - most
        if excess > 0:
            self._cut(excess, [1] * len(self._parts())).apply(self._parts())

    def _by_bytes(self, most: int) -> None:
        stored = self._stored()
        excess = sum(-(-live.run.nbytes * rows // live.run.rows) for live, rows in stored) - most

        def decide() -> Cut | None:
            weights = [max(1, live.run.nbytes // live.run.rows) for live, _ in stored]
            return self._cut(excess, weights) if excess > 0 else None

        rows = [self.arrangements[side.name].stored for side in self.shape.sides]
        basis = f"{self.query.options.at_limit.value} {most}: {rows}"
        cut = decided(self.store, self.decided, basis, decide)
        if cut is not None:
            cut.apply(self._parts())

    def _cut(self, excess: int, weights: Sequence[int]) -> Cut:
        choose = shed_cuts.oldest if self._goes_by_age else shed_cuts.heaviest
        return choose(self._parts(), excess, weights)

    def _marked(self) -> Mapping[str, Shed]:
        shed: dict[str, Shed] = {}
        for side in self.shape.sides:
            parts = [part for part in self._opened if part.side is side and len(part.shed)]
            if not parts:
                continue
            kept = self.arrangements[side.name]
            runs = _less(kept.runs, parts, self.store, self.tick)
            update = {"runs": runs, "retained": sum(live.retained for live in runs)}
            self.arrangements[side.name] = kept.model_copy(update=update)
            reason = self.query.options.at_limit.value
            files = [file for part in parts for file in part.written(reason, self.tick)] if self.told else []
            shed[side.name] = Shed(sum(len(part.shed) for part in parts), files)
        return shed


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
