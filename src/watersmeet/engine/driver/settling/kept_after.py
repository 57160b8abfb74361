"""What a side keeps after a tick, by the reports of its node's tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from watersmeet.engine.driver.settling.next_index import next_index
from watersmeet.engine.messages.reports import SideReport
from watersmeet.engine.messages.shapes import NodeShape
from watersmeet.engine.messages.work import SideWork
from watersmeet.event_time import NEVER
from watersmeet.kernel.batches import same_rows
from watersmeet.state.manifest import Arrangement, LiveRun
from watersmeet.state.marks import MarkKind, Segment, overlap, overlay, unite
from watersmeet.state.pace import Pace
from watersmeet.state.runs.run import whole_run_released
from watersmeet.state.store import Store


@dataclass(frozen=True)
class KeptBefore:
    """A side: its node's ``shape``, and its ``place`` there; its ``title``, for people; whether a reading
    ``replaces`` its rows; its ``arrangement`` as of the last tick; how fast its rows come now."""

    shape: NodeShape
    place: int
    title: str
    replaces: bool
    arrangement: Arrangement
    paces: Mapping[str, Pace]


def kept_after(
    work: SideWork, reports: Sequence[SideReport], side: KeptBefore, store: Store, tick: int
) -> Arrangement:
    """What the side keeps after the tick."""
    merged_away = work.merged_away()
    old = [] if work.replaced else [live for live in work.runs if live.run.name not in merged_away]
    old += [LiveRun(run=live.run) for live in work.taken_over]
    shape = side.shape
    if not shape.kept_anew:
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
        _unite(store, tick, runs, by_several)
    for report in reports:
        fresh = [*report.merged, *report.inserted]
        runs += [live for live in fresh if live.released < live.run.rows or live.merged_from]
    runs.sort(key=_tick_of)  # else as they came: a repeated tick repeats itself
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


def _tick_of(live: LiveRun) -> int:
    return live.run.tick


def _check_merged(title: str, work: SideWork, merged_away: set[str], reports: Sequence[SideReport]) -> None:
    """Merged runs hold, or stand for, the rows that the runs before them did, less those released."""
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


def _unite(
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
