"""Derive the runs that each side retains after a tick from the reports of its tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.event_time import NEVER, Watermark
from watersmeet.kernel.batches import same_rows
from watersmeet.plan.model.sides import FeedPlan, SidePlan
from watersmeet.runtime.coordinator.merge_policy import choose_merges
from watersmeet.runtime.messages.reports import FeedReport, NodeReport, SideReport
from watersmeet.runtime.messages.shapes import NodeShape, SideShape
from watersmeet.runtime.messages.work import SideWork
from watersmeet.state.manifest import Arrangement, LiveRun, Manifest, Pace
from watersmeet.state.marks import MarkKind, Segment, overlap, overlay, unite
from watersmeet.state.runs.layout import Run, RunLayout, missing_columns, whole_run_released
from watersmeet.state.runs.reader import schema_of
from watersmeet.state.store import Store, object_of

# By which of its indexes the next runs of an arrangement are sorted: the best by what tasks estimated.

MIN_CANDIDATE_DIFFERENCE = 1_000
"""Differences of so many candidates in a tick are no reason to sort otherwise."""
MIN_IMPROVEMENT = 2


def next_index(
    layout: RunLayout, index: str | None, before: Mapping[str, float], reports: Iterable[SideReport]
) -> tuple[str | None, dict[str, float]]:
    """Choose the index that sorts the next runs.

    Args:
        index: the index of this tick's runs.
        before: the remembered numbers of candidates; they count half as much as those of this tick.

    Returns:
        The index and the numbers of candidates to remember.
    """
    if len(layout.indexes) < 2:
        return None, {}
    names = [indexed.name for indexed in layout.indexes]
    sums = {name: before.get(name, 0.0) / 2 for name in names}
    for report in reports:
        for name, candidates in report.candidates.items():
            sums[name] = sums.get(name, 0.0) + candidates
    kept = {name: round(total, 1) for name, total in sums.items() if total >= 1}
    current = layout.index(index)
    assert current is not None
    best = min(names, key=lambda name: sums[name])
    if (
        MIN_IMPROVEMENT * (sums[best] + MIN_CANDIDATE_DIFFERENCE)
        < sums[current.name] + MIN_CANDIDATE_DIFFERENCE
    ):
        return best, kept
    return current.name, kept


# What a side keeps after a tick, by the reports of its node's tasks.


@dataclass(frozen=True)
class PreviousSide:
    """A side of a node before the arrangement of the tick is built.

    Attributes:
        shape: Shape of the node.
        place: Number of the side in ``shape``.
        title: Title of the side, for users.
        replaces: A reading replaces the rows of the side.
        arrangement: Arrangement as of the last tick.
        paces: Present arrival rates of the rows.
    """

    shape: NodeShape
    place: int
    title: str
    replaces: bool
    arrangement: Arrangement
    paces: Mapping[str, Pace]


def build_next_arrangement(
    work: SideWork, reports: Sequence[SideReport], side: PreviousSide, store: Store, tick: int
) -> Arrangement:
    """Build the arrangement of the side after the tick."""
    merged_away = work.list_merged_runs()
    old = [] if work.replaced else [live for live in work.runs if live.run.name not in merged_away]
    old += [LiveRun(run=live.run) for live in work.taken_over]
    shape = side.shape
    if not shape.tasks_write_state:
        old += [LiveRun(run=run) for run in work.new_runs]
    layout = shape.stored[side.place].layout
    together = any(report.together for report in reports)
    told_of = {
        name
        for report in reports
        for told in (report.released, report.released_rows, report.marks, report.cursors)
        for name in told
    }
    runs: list[LiveRun] = []
    by_several: dict[tuple[str, MarkKind], list[Segment]] = {}
    for live in old:
        if live.run.name not in told_of and live.merged_from is None and live.released < live.run.rows:
            if not whole_run_released(live.run, layout.releasing, work.new_limits):
                runs.append(live)
            continue
        released = live.released + sum(report.released.get(live.run.name, 0) for report in reports)
        released_rows = live.released_rows + sum(r.released_rows.get(live.run.name, 0) for r in reports)
        if (released >= live.run.rows and not side.replaces) or whole_run_released(
            live.run, layout.releasing, work.new_limits
        ):
            continue
        marks = dict(live.marks)
        told_marks: dict[MarkKind, list[Segment]] = {}
        for report in reports:
            for kind, segments in report.marks.get(live.run.name, {}).items():
                told_marks.setdefault(kind, []).extend(segments)
        for kind, of_tick in told_marks.items():
            if (kind == "matched" and together) or overlap(of_tick):
                by_several[live.run.name, kind] = of_tick
            else:
                marks[kind] = overlay(marks.get(kind, ()), of_tick)
        told = [report.cursors[live.run.name] for report in reports if live.run.name in report.cursors]
        cursors = {column: min(cursor[column] for cursor in told) for column in told[0]} if told else {}
        runs.append(
            LiveRun(
                run=live.run,
                released=released,
                released_rows=released_rows,
                marks=marks,
                cursors=cursors or live.cursors,
            )
        )
    _check_merged(side.title, work, merged_away, reports)
    if by_several:
        _unite_marks(store, tick, runs, by_several)
    for report in reports:
        fresh = [*report.merged, *report.inserted]
        runs += [live for live in fresh if live.released < live.run.rows or live.merged_from]
    runs.sort(key=_run_tick)  # else as they came: a repeated tick repeats itself
    before = side.arrangement
    index, candidates = next_index(layout, before.index, before.candidates, reports)
    return Arrangement(
        index=index,
        candidates=candidates,
        runs=runs,
        limits=work.new_limits,
        retained=sum(live.retained for live in runs),
        most=max(before.most, sum(live.stored for live in runs)),
        paces=dict(side.paces),
        columns=[column.origin for column in layout.columns] if shape.stored[side.place].changes else [],
        unknown_below=before.unknown_below,  # of rows that come below limits, too: they may be on time
        gone_below={
            column: time
            for column, time in before.gone_below.items()
            if work.new_limits.get(column, NEVER) < time
        },
    )


def _run_tick(live: LiveRun) -> int:
    return live.run.tick


def _check_merged(title: str, work: SideWork, merged_away: set[str], reports: Sequence[SideReport]) -> None:
    """Check the row counts of merged runs against those of their inputs, less released rows.

    Merged runs contain, or stand for, the rows of the runs before.
    """
    if not (merged_away or work.taken_over or any(report.merged for report in reports)):
        return
    stand_for = {live.run.name for live in work.runs if live.run.stands_for is not None}
    gone = sum(
        (report.released_rows if name in stand_for else report.released).get(name, 0)
        for report in reports
        for name in merged_away
    )
    before = sum(live.retained for live in work.runs if live.run.name in merged_away)
    after = sum(live.retained for report in reports for live in report.merged)
    after += sum(live.run.rows for live in work.taken_over) - sum(
        report.released.get(live.run.name, 0) for report in reports for live in work.taken_over
    )
    same_rows(f'merging runs of "{title}"', before - gone, after)


def _unite_marks(
    store: Store,
    tick: int,
    runs: Sequence[LiveRun],
    segments: Mapping[tuple[str, MarkKind], Sequence[Segment]],
) -> None:
    """Add what several tasks found of runs of which each has rows in between those of others, or all."""
    by_name = {live.run.name: live for live in runs}
    marked = {
        (name, kind): (by_name[name].run.rows, by_name[name].marks.get(kind, ()), told)
        for (name, kind), told in segments.items()
    }
    for name, marks in unite(store, tick, marked).items():
        by_name[name].marks = {**by_name[name].marks, **marks}


# What the nodes of a query have written in a tick for nodes above them, and for those of other queries.


class FeedReports:
    """Feed reports of the settled nodes of one query."""

    def __init__(self) -> None:
        self._by_node: dict[int, list[FeedReport]] = {}
        self._by_path: dict[int, list[list[FeedReport]]] = {}
        self._abroad: dict[int, list[list[FeedReport]]] = {}

    def take(self, number: int, reports: Sequence[NodeReport]) -> None:
        """Store the reports of the tasks of node ``number``."""
        self._by_node[number] = [report.fed for report in reports if report.fed is not None]
        by_path = zip(*(report.fed_by_path for report in reports), strict=True)
        self._by_path[number] = [list(reports_of_path) for reports_of_path in by_path]
        abroad = zip(*(report.fed_abroad for report in reports), strict=True)
        self._abroad[number] = [list(reports_of_place) for reports_of_place in abroad]

    def by(self, number: int) -> Sequence[FeedReport]:
        """Return the reports of node ``number`` for its parent node."""
        return self._by_node[number]

    def to(self, feed: FeedPlan) -> Sequence[FeedReport]:
        """Return the reports for a feed from one of the nodes."""
        if feed.query is not None:
            of_place = self._abroad[feed.node]
            return of_place[feed.place] if of_place else []
        return self._by_node[feed.node] if feed.path is None else self._by_path[feed.node][feed.path]


# How fast the rows of a side come: for people, and for what EXPLAIN forecasts.


def update_arrival_rates(
    side: SidePlan,
    task: SideShape,
    before: Mapping[str, Pace],
    new: Sequence[Run],
    watermarks: Mapping[str, Watermark],
) -> dict[str, Pace]:
    """Update the arrival rate per event time after a tick.

    Args:
        new: the runs that the tick brought.
        watermarks: the incoming watermarks.
    """
    rows = sum(run.rows for run in new)
    return {
        column: before.get(column, Pace()).moved(
            rows,
            [] if column in task.nullable else [run.spans[column] for run in new],
            watermarks.get(side.watermark_key(column), NEVER),
            timed=not pa.types.is_integer(task.schema.field(column).type),
        )
        for column in side.event_times
    }


# Runs that several sides keep: who merges them in a tick, and who takes over what was merged in the last.
#
# Each side has its own list of live runs, with what it has released and matched of each; the files are
# the same. One side merges, and keeps what any of them retains; the manifest says where its rows were
# before, and in the next tick the others have the merged runs, too. So nobody waits for anybody within a
# tick, and a tick that is repeated repeats it.


@dataclass(frozen=True)
class Sharing:
    """Facts for a side about other sides that retain the same runs, as of the last tick.

    Args:
        others: the arrangements of the other sides.
        merges: True for the one side that merges the shared runs.
        incomplete: runs that lack a column of another side.
    """

    others: tuple[Arrangement, ...]
    merges: bool
    incomplete: Collection[str] = ()

    def fill(self, work: SideWork, releasing: Sequence[str]) -> None:
        """Say in the work of a side what it is to do with its runs."""
        names = [{live.run.name for live in other.runs} for other in self.others]
        marked = {live.run.name for other in self.others for live in other.runs if "gone" in live.marks}
        work.others = [other.limits for other in self.others]
        work.taken_over = self._adopt_merged_runs(work.runs)
        pending = work.list_merged_runs()
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
        work.merges = choose_merges(incomplete)
        work.shared_merges = [*choose_merges(of_all), *choose_merges(of_none)]

    def _adopt_merged_runs(self, runs: Sequence[LiveRun]) -> list[LiveRun]:
        """Return the runs that other sides merged in the last tick from runs of this side."""
        held = {live.run.name for live in runs}
        merged: dict[str, LiveRun] = {}
        for other in self.others:
            for live in other.runs:
                before = () if live.merged_from is None else live.merged_from.runs
                if live.run.name not in held and not held.isdisjoint(before):
                    merged[live.run.name] = LiveRun(run=live.run, merged_from=live.merged_from)
        return list(merged.values())


def build_sharing(
    shapes: Mapping[str, Sequence[NodeShape]], manifest: Manifest | None, incomplete: Collection[str]
) -> dict[str, Sharing]:
    """Build the `Sharing` of each side that retains runs with others, as ``query/alias``.

    Of the sides that share runs, the one with the most rows merges: the rows that the others retain are
    usually among its own.
    """
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
    """Find stored runs of shared sides that lack a column which another of those sides retains.

    Cost: reads one run per object; the other sections of the object have the same columns.

    Args:
        before: restrict the result to runs that are newer than this manifest.
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
                    lack[place] = bool(missing_columns(schema_of(store, run), side.shared.layout.columns))
                if lack[place]:
                    incomplete.add(run.name)
    return frozenset(incomplete)
