"""Runs that several sides keep: who merges them in a tick, and who takes over what was merged in the last.

Each side has its own list of live runs, with what it has released and matched of each; the files are the
same. One side merges, and keeps what any of them retains; the manifest says where its rows were before, and
in the next tick the others have the merged runs, too. So nobody waits for anybody within a tick, and a tick
that is repeated repeats it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from watersmeet.engine.driver.merge_policy import choose
from watersmeet.engine.messages.shapes import NodeShape
from watersmeet.engine.messages.work import SideWork
from watersmeet.state.manifest import Arrangement, LiveRun, Manifest
from watersmeet.state.runs.columns import lacking
from watersmeet.state.runs.opened import schema_of
from watersmeet.state.runs.run import whole_run_released
from watersmeet.state.sections import object_of
from watersmeet.state.store import Store


@dataclass(frozen=True)
class Sharing:
    """What a side is told of ``others`` that keep the same runs, as of the last tick. ``merges``: it is the
    one that merges what all of them have. ``incomplete``: runs without some column of another side."""

    others: tuple[Arrangement, ...]
    merges: bool
    incomplete: Collection[str] = ()

    def fill(self, work: SideWork, releasing: Sequence[str]) -> None:
        """Say in the work of a side what it is to do with its runs."""
        names = [{live.run.name for live in other.runs} for other in self.others]
        marked = {live.run.name for other in self.others for live in other.runs if "gone" in live.marks}
        work.others = [other.limits for other in self.others]
        work.taken_over = self._taken_over(work.runs)
        pending = work.merged_away()
        of_all, of_none, incomplete = [], [], []
        for live in work.runs:
            if live.run.name in pending or live.merged_from is not None:
                continue  # not all have it yet
            have = [live.run.name in held for held in names]
            if live.run.name in self.incomplete or "gone" in live.marks or live.run.name in marked:
                if not any(have):  # of shed rows who has shed them knows; they are not merged for others
                    incomplete.append(live)
            elif not any(have):
                of_none.append(live)
            elif self.merges and all(
                held or whole_run_released(live.run, releasing, other.limits)
                for held, other in zip(have, self.others, strict=True)
            ):
                of_all.append(live)
        work.merges = choose(incomplete)
        work.shared_merges = [*choose(of_all), *choose(of_none)]

    def _taken_over(self, runs: Sequence[LiveRun]) -> list[LiveRun]:
        """What others merged in the last tick of a side's runs."""
        held = {live.run.name for live in runs}
        merged: dict[str, LiveRun] = {}
        for other in self.others:
            for live in other.runs:
                before = () if live.merged_from is None else live.merged_from.runs
                if live.run.name not in held and not held.isdisjoint(before):
                    merged[live.run.name] = LiveRun(run=live.run, merged_from=live.merged_from)
        return list(merged.values())


def sharing_of(
    shapes: Mapping[str, Sequence[NodeShape]], manifest: Manifest | None, incomplete: Collection[str]
) -> dict[str, Sharing]:
    """Per side that keeps runs with others, as ``query/alias``. Of those that share runs the one with most
    rows merges: what the others retain is among its own, as a rule."""
    members: dict[str, list[str]] = {}
    arrangements: dict[str, Arrangement] = {}
    for name, nodes in shapes.items():
        for shape in nodes:
            for side in shape.sides:
                if side.shared is not None:
                    members.setdefault(side.shared.arrangement, []).append(side.arrangement)
                    states = manifest.queries[name].nodes if manifest is not None else []
                    state = states[shape.number].arrangements.get(side.name) if states else None
                    arrangements[side.arrangement] = state or Arrangement()
    told: dict[str, Sharing] = {}
    for own in members.values():
        merger = max(own, key=lambda name: arrangements[name].stored)
        for name in own:
            others = tuple(arrangements[other] for other in own if other != name)
            told[name] = Sharing(others, name == merger, incomplete)
    return told


def incomplete_runs(
    shapes: Mapping[str, Sequence[NodeShape]],
    manifest: Manifest,
    store: Store,
    before: Manifest | None = None,
) -> frozenset[str]:
    """Stored runs of shared sides that lack a column which another of those sides keeps. Cost: of each object
    one run is read, whose columns its other sections have, too.

    Args:
        before: only those that came since.
    """
    old = set() if before is None else {live.run.name for live in before.runs()}
    lack, incomplete = dict[tuple[str, str], bool](), set[str]()
    for name, nodes in shapes.items():
        states = manifest.queries[name].nodes
        for side, state in ((side, states[of.number]) for of in nodes if states for side in of.sides):
            kept = state.arrangements.get(side.name)
            if side.shared is None or kept is None:
                continue
            for run in (live.run for live in kept.runs if live.run.name not in old):
                place = side.shared.arrangement, object_of(run.name)
                if place not in lack:
                    lack[place] = bool(lacking(schema_of(store, run), side.shared.layout.columns))
                if lack[place]:
                    incomplete.add(run.name)
    return frozenset(incomplete)
