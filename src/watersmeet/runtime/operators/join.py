"""A join, for one share; in append mode: match, release, pad, merge.

new left × old right, new left × new right, old left × new right    each pair with a new row, once
released rows of a padded side that never matched                   pads
runs that the driver wants merged                                   new runs, with their marks
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from watersmeet.event_time import Mask, Side, are_below
from watersmeet.kernel.match.pairs import Search
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.slots import order_of
from watersmeet.runtime.messages.reports import SideReport, lower_min
from watersmeet.runtime.messages.shapes import JoinShape
from watersmeet.runtime.operators.asof import AsofTask
from watersmeet.runtime.operators.broadcast import WholeSide, build_whole_slice, settle_broadcast_marks
from watersmeet.runtime.operators.changelog import run_changelog
from watersmeet.runtime.operators.existence import evict_rows, first_matches
from watersmeet.runtime.operators.ranges import (
    build_owned_slices,
    build_reach_slices,
    choose_orders,
    matches_by_range,
)
from watersmeet.runtime.operators.repartition import hot_keys, repartition, split_hot_keys
from watersmeet.runtime.tasks.matches import ProbedPiece, emit_matches
from watersmeet.runtime.tasks.merge import adopt_merged_runs, merge_runs
from watersmeet.runtime.tasks.results import count, pad, pad_files, report_min_alive, report_min_of_run
from watersmeet.runtime.tasks.side import Everything, HashRange, NewRows, RunSlice, SideSlice, TaskPartition
from watersmeet.spec.model import JoinKind
from watersmeet.state.marks import MarkWriter
from watersmeet.state.runs.reader import OpenRun


def join_rows(shape: JoinShape, share: TaskPartition) -> Iterator[pa.RecordBatch]:
    """Yield the joined and padded rows of the task partition.

    The partition is a hash range and a part of each hot key. Without a key it is a range of values.
    For a broadcast join it is a part of one side and all of the other.
    """
    if shape.changelog:
        dealt = repartition(shape, share)
        _choose_orders(shape, dealt.own, dealt.near, share)
        yield from run_changelog(shape, share, dealt)
        return
    reach = None
    wholes: Mapping[Side, WholeSide] = {}
    hot = hot_keys(shape, share.work, share.partitions)
    if hot:
        slices, wholes = split_hot_keys(shape, share, hot)
        if share.partition == 0:
            share.report.split = [key.told(shape) for key in hot]
    elif shape.broadcast is not None and share.partitions > 1:
        slices = build_owned_slices(shape, share)
        if shape.broadcast is Side.LEFT and shape.kind is JoinKind.SEMI:
            reach = {side: build_whole_slice(shape, share, side) for side in Side}
        else:
            wholes = {
                shape.broadcast: WholeSide(build_whole_slice(shape, share, shape.broadcast), Everything())
            }
    elif shape.left.layout.by_value:
        slices = build_owned_slices(shape, share)
        if share.partitions > 1:
            reach = build_reach_slices(shape, share, slices)
    else:
        own = HashRange.of_share(share)
        slices = {
            side: SideSlice(shape.side(side), share.work.side(side), share.store, own, own) for side in Side
        }
    looked_up = {**slices, **{side: whole.rows for side, whole in wholes.items()}}
    _choose_orders(shape, looked_up, reach, share)
    yield from _run_append(shape, share, slices, wholes, reach)


def _choose_orders(
    shape: JoinShape,
    slices: Mapping[Side, SideSlice],
    reach: Mapping[Side, SideSlice] | None,
    share: TaskPartition,
) -> None:
    for side in Side:
        for own, others in ((slices, reach or slices), (reach, slices)):
            if own is not None and len(own[side].task.layout.indexes) > 1:
                new = others[side.other].new
                needles = None if new is None else new.rows
                new_too = not shape.changelog and (side is Side.RIGHT or own is not slices)
                choose_orders(shape, side, own[side], needles, share, new_too=new_too)


def _run_append(
    shape: JoinShape,
    share: TaskPartition,
    slices: dict[Side, SideSlice],
    wholes: Mapping[Side, WholeSide],
    reach: Mapping[Side, SideSlice] | None,
) -> Iterator[pa.RecordBatch]:
    """Match, then release, pad and merge what the task owns.

    Args:
        slices: what the task owns.
        wholes: the sides of which it looks through rows that others own, too.
    """
    looked_up = {**slices, **{side: whole.rows for side, whole in wholes.items()}}
    report, asof = share.report, share.work.asof
    if asof is not None:
        yield from AsofTask(shape, slices, asof, share).run()
    elif shape.kind.hides_right:
        yield from first_matches(shape, looked_up, reach or looked_up, share)
    elif reach is None:
        yield from _emit_join_matches(shape, looked_up, share)
    else:
        yield from matches_by_range(shape, slices, reach, report)
    writers = _build_mark_writers(shape)
    for side in Side:
        own, marks = slices[side], writers[side]
        leaves = side is Side.LEFT and shape.kind is JoinKind.SEMI
        if side in wholes:
            settle_broadcast_marks(shape, share, side, own, wholes[side], marks)
        elif asof is None:
            _settle_new_matches(own, leaves, report.side(side))
        if asof is None:
            yield from _release(shape, side, own, share, leaves=leaves)
        for batch, low, high in pad_files(own.work, own.store, share.partition, share.partitions):
            yield from pad(shape, side, batch, np.arange(low, high))
        merged = merge_runs(own, share.tick, marks)
        adopt_merged_runs(own, report.side(side), marks)
        merged_away = own.work.list_merged_runs()
        for piece in [*own.old, *own.new_runs]:
            if piece.touched and piece.name not in merged_away:
                piece.keep_marks(marks)
        report.side(side).merged = merged
        if leaves:
            report_min_alive(own, [*own.old, *own.new_runs], report.side(side))
        elif asof is None:
            _report_min_times(own, report.side(side), share.partition, share.partitions)
    written_by = {writer: writer.write(share.store, share.tick) for writer in dict.fromkeys(writers.values())}
    for side in Side:
        own, written = slices[side], written_by[writers[side]]
        merged_runs = {live.run.name: live for live in report.side(side).merged}
        kept = [*own.work.runs, *own.work.taken_over]
        names = {live.run.name for live in kept} | {run.name for run in own.work.new_runs}
        for name, side_marks in written.items():
            if name in merged_runs:
                merged_runs[name].marks = side_marks
            elif name in names:
                report.side(side).marks[name] = side_marks


def _build_mark_writers(shape: JoinShape) -> dict[Side, MarkWriter]:
    """Return the mark writer of each side.

    Both sides share one writer, and so one file, unless both retain the same runs.
    """
    both = MarkWriter()
    left, right = (shape.side(side).shared for side in Side)
    is_same = left is not None and right is not None and left.arrangement == right.arrangement
    return {Side.LEFT: both, Side.RIGHT: MarkWriter() if is_same else both}


def _emit_join_matches(
    shape: JoinShape, slices: dict[Side, SideSlice], share: TaskPartition
) -> Iterator[pa.RecordBatch]:
    """Emit matches of new left rows with all right rows, then new right rows with old left rows."""

    def begin_and_count_search(begin: Callable[[], Search | None]) -> Search | None:
        search = begin()
        if search is not None and share.is_bounded:
            share.count_candidates(search.candidates)
        return search

    for side in Side:
        own, other = slices[side].new, slices[side.other]
        if own is None:
            continue
        pieces = [
            ProbedPiece(
                partial(begin_and_count_search, partial(piece.search, shape.condition, own.rows, side)),
                piece.mark_matched,
            )
            for piece in other.old
        ]
        if side is Side.LEFT and other.new is not None:
            search = partial(
                begin_and_count_search,
                partial(Search.of, shape.condition, own.rows, side, other.new.looked_up),
            )
            pieces.append(ProbedPiece(search, other.new.mark_matched))

        def hit(rows: Rows, own: NewRows = own) -> None:
            own.mark_matched(rows)
            share.matched(len(rows))

        yield from emit_matches(shape, side, own.rows, own.arrival, pieces, hit)


def _settle_new_matches(own: SideSlice, leaves: bool, report: SideReport) -> None:
    """Copy the match marks of the merged new rows to the runs that the rows came from."""
    for piece, rows in own.list_new_matches():
        if leaves:
            evict_rows(piece, rows, report)
        else:
            piece.mark_matched(rows)


def _release(
    shape: JoinShape, side: Side, own: SideSlice, share: TaskPartition, *, leaves: bool = False
) -> Iterator[pa.RecordBatch]:
    report = share.report.side(side)
    for pieces, is_new in ((own.old, False), (own.new_runs, True)):
        for piece in pieces:
            rows = own.released(piece, is_new=is_new)
            if not len(rows):
                continue
            share.count_candidates(len(rows))
            if leaves or "gone" in piece.live.marks:
                rows = rows[~piece.read_marks("gone", rows)]
                if not len(rows):
                    continue
            report.released[piece.name] = report.released.get(piece.name, 0) + len(rows)
            matched = piece.read_marks("matched", rows)
            hits = int(matched.sum())
            count(report, "matched", hits)
            if not own.task.padded:
                count(report, "released_unmatched", len(rows) - hits)
                continue
            alone = np.sort(rows[~matched])
            unknown = _find_unknown_rows(own, piece, alone)
            count(report, "unknown", int(unknown.sum()))
            alone = alone[~unknown]
            count(report, "padded", len(alone))
            if len(alone):
                arrival = piece.arrival() if is_new else None
                if arrival is not None:
                    alone = alone[order_of(arrival[alone])]
                yield from pad(shape, side, piece.rows.batch, alone)


def _find_unknown_rows(own: SideSlice, piece: RunSlice, rows: Rows) -> Mask:
    """Return the mask of unmatched rows for which it is unknown whether they had a partner."""
    unknown = np.zeros(len(rows), dtype=np.bool_)
    if "unknown" in piece.live.marks:
        unknown |= piece.read_marks("unknown", rows)
    for column, time in own.work.unknown_below.items():
        unknown |= are_below(piece.rows.times(column)[rows], time)
    return unknown


def _report_min_times(own: SideSlice, report: SideReport, partition: int, partitions: int) -> None:
    """Report the minimum event times of retained rows in the whole runs assigned to this task."""
    there = {piece.name: piece.run for piece in (*own.old, *own.new_runs)}
    for number, live in enumerate([*own.work.runs, *own.come]):
        if not own.cut.is_responsible_for(live.run, number, partition, partitions):
            continue
        opened = there.get(live.run.name) or OpenRun.open(own.store, live.run, own.task.layout)
        if "gone" in live.marks:
            report_min_of_run(own, live, opened, report)
            continue
        least = opened.least(own.work.new_limits)
        for column, time in (least or {}).items():
            lower_min(report.least, column, time)
