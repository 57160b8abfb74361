"""Run the second half of a tick in changelog mode for one task: each result is a change with a diff.

    Δout = ΔL × R_before + L_after × ΔR            (semantics.md, section 5, for two inputs)

`runtime.tasks.changes` first consolidates the tick's rows. Rows carry the count of their live matches: a pad
is emitted while it is 0 and retracted when it rises; for the left row of a SEMI join, it is the reverse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.event_time import Mask, Side
from watersmeet.kernel.match.pairs import find, pairs_in_bounds
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.names import DIFF
from watersmeet.runtime.messages.reports import NodeReport, SideReport
from watersmeet.runtime.messages.shapes import JoinShape
from watersmeet.runtime.operators.repartition import RepartitionedRows
from watersmeet.runtime.tasks.changes import (
    SideChange,
    net_changes,
    repeat_rows,
    report_marks,
    settle_changes,
)
from watersmeet.runtime.tasks.results import append_diffs, emit_rows, pad, pad_changes, pad_files
from watersmeet.runtime.tasks.side import RunSlice, SideSlice, TaskPartition
from watersmeet.spec.model import JoinKind
from watersmeet.state.marks import MarkArray, MarkKind, MarkWriter, places_among


@dataclass(frozen=True)
class _SideChanges:
    """Rows of one side with their changes in the tick."""

    rows: SideSlice
    inserts: SideChange | None
    deletes: SideChange | None

    @classmethod
    def of(cls, rows: SideSlice, report: SideReport) -> _SideChanges:
        return cls(rows, *net_changes(rows, report))


def run_changelog(
    shape: JoinShape, share: TaskPartition, dealt: RepartitionedRows
) -> Iterator[pa.RecordBatch]:
    report = share.report
    changed = {side: _SideChanges.of(dealt.own[side], report.side(side)) for side in Side}
    if dealt.near is None:
        yield from _match_changes(shape, changed, tuple(Side), report)
    else:
        # What is near is owned by other tasks: they report it.
        near, first = dealt.near, dealt.putting
        view = {first: changed[first], first.other: _SideChanges.of(near[first.other], SideReport())}
        yield from _match_changes(shape, view, (first,), report)
        if _is_counted(shape, first.other):
            view = {first: _SideChanges.of(near[first], SideReport()), first.other: changed[first.other]}
            for _ in _match_changes(shape, view, (first.other,), None):
                pass
    slices = dealt.own

    marks = MarkWriter()
    for side in Side:
        own, inserts = slices[side], changed[side].inserts
        if own.task.padded or _leaves_matched(shape, side):
            yield from _emit_single_changes(shape, side, own, inserts, changed[side].deletes)
        for batch, low, high in pad_files(own.work, own.store, share.partition, share.partitions):
            yield from _emit_unmatchable(shape, side, own, batch, low, high)
        settle_changes(own, inserts, share.tick, report.side(side), marks)
    written = marks.write(share.store, share.tick)
    for side in Side:
        report_marks(slices[side], written, report.side(side))


def _is_counted(shape: JoinShape, side: Side) -> bool:
    """Return True if partners of the side's rows are counted, for pads or for their release."""
    own = shape.side(side)
    return own.padded or _leaves_matched(shape, side) or bool(own.layout.releasing)


def _match_changes(
    shape: JoinShape, changed: Mapping[Side, _SideChanges], counted: Sequence[Side], report: NodeReport | None
) -> Iterator[pa.RecordBatch]:
    """Emit inserted and deleted pairs, and count the partners of rows of the ``counted`` sides.

    Args:
        report: receives the number of pairs; None: another task emits the pairs.
    """
    left, right = changed[Side.LEFT], changed[Side.RIGHT]
    for change in (left.inserts, left.deletes):
        for piece in right.rows.old:
            yield from _emit_pairs(
                shape, Side.LEFT, change, piece, piece.read_previous_marks, counted, report
            )
    for change in (right.inserts, right.deletes):
        for piece in left.rows.old:
            yield from _emit_pairs(shape, Side.RIGHT, change, piece, piece.read_marks, counted, report)
        yield from _emit_new_pairs(shape, left.inserts, change, counted, report)
    if shape.right.padded and Side.RIGHT in counted:
        _count_lost_partners(shape, right.deletes, left.rows)


def _emit_pairs(
    shape: JoinShape,
    side: Side,
    change: SideChange | None,
    piece: RunSlice,
    marks: Callable[[MarkKind, Rows], MarkArray],
    counted: Sequence[Side],
    report: NodeReport | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the joined changes of ``side`` and the live rows of an old run of the other side.

    See `_match_changes` for the other pairs.

    Args:
        marks: reads marks of the run's rows, either those before this tick or the current ones; rows that
            they mark as gone are not live.
    """
    if change is None or not piece.may_match(shape.condition, change.rows, side):
        return
    for needle, row in find(shape.condition, change.rows, side, piece.looked_up):
        alive = ~marks("gone", row)
        if piece.row_filter is not None:
            alive &= piece.row_filter(row)
        if shape.lasting:
            in_sight = piece.alive(row) & ~change.released[needle]
            alive &= in_sight | _find_lasting_pairs(shape, side, change.rows, needle, piece.rows, row)
        needle, row = needle[alive], row[alive]
        if not len(row):
            continue
        if side in counted:
            np.add.at(change.matches, needle, 1)
        if side.other in counted:
            piece.add(row, change.diff)
        if report is None:
            continue
        report.matches += len(row)
        if shape.kind.hides_right:
            continue
        if side is Side.LEFT:
            joined = emit_rows(shape, change.rows.batch, needle, piece.rows.batch, row)
        else:
            joined = emit_rows(shape, piece.rows.batch, row, change.rows.batch, needle)
        yield from append_diffs(joined, np.full(len(row), change.diff))


def _emit_new_pairs(
    shape: JoinShape,
    inserts: SideChange | None,
    change: SideChange | None,
    counted: Sequence[Side],
    report: NodeReport | None,
) -> Iterator[pa.RecordBatch]:
    """Emit pairs of left inserts and right changes of the same tick; see `_match_changes`."""
    if inserts is None or change is None:
        return
    for needle, row in find(shape.condition, inserts.rows, Side.LEFT, change.rows):
        if shape.lasting:
            keep = ~change.released[row]
            keep |= _find_lasting_pairs(shape, Side.LEFT, inserts.rows, needle, change.rows, row)
            needle, row = needle[keep], row[keep]
        if Side.LEFT in counted:
            np.add.at(inserts.matches, needle, change.diff)
        if Side.RIGHT in counted and change.diff > 0:
            np.add.at(change.matches, row, 1)
        if report is None:
            continue
        report.matches += len(row)
        if shape.kind.hides_right:
            continue
        yield from append_diffs(
            emit_rows(shape, inserts.rows.batch, needle, change.rows.batch, row),
            np.full(len(row), change.diff),
        )


def _count_lost_partners(shape: JoinShape, right: SideChange | None, left: SideSlice) -> None:
    """Add the left rows deleted in this tick to the partners of the deleted right rows.

    Only then is it known which of the right rows had a pad. Where rows are padded, joins above set no bounds.
    """
    if right is None:
        return
    for piece in left.old:
        lost = piece.list_newly_marked("gone")
        if len(lost):
            for needle, row in find(shape.condition, right.rows, Side.RIGHT, piece.rows):
                np.add.at(right.matches, needle[places_among(row, lost) >= 0], 1)


def _find_lasting_pairs(
    shape: JoinShape, side: Side, needles: SortedRows, needle: Rows, rows: SortedRows, row: Rows
) -> Mask:
    """Return the mask of pairs of needles and rows that may still produce a result.

    Callers use it only for released rows; for other rows the condition alone decides.

    Args:
        needles: rows of ``side``; ``rows`` are rows of the other side.
    """
    if side is Side.LEFT:
        return pairs_in_bounds(shape.lasting, needles, needle, rows, row)
    return pairs_in_bounds(shape.lasting, rows, row, needles, needle)


def _leaves_matched(shape: JoinShape, side: Side) -> bool:
    """Return True if rows of the side are output while they have a match (SEMI join)."""
    return shape.kind is JoinKind.SEMI and side is Side.LEFT


def _emit_single_changes(
    shape: JoinShape,
    side: Side,
    own: SideSlice,
    inserts: SideChange | None,
    deletes: SideChange | None,
) -> Iterator[pa.RecordBatch]:
    """Emit the changes that concern rows of one side alone: pads, and SEMI or ANTI join output."""
    sign = -1 if _leaves_matched(shape, side) else 1
    for piece in own.old:
        if "count" not in piece.touched:
            continue
        changed, old, new = piece.counts_changed()
        alive = ~piece.read_marks("gone", changed)
        for rows, diff in (
            (changed[alive & (old == 0) & (new > 0)], -sign),
            (changed[alive & (old > 0) & (new == 0)], sign),
        ):
            if len(rows):
                yield from pad_changes(shape, side, piece.rows.batch, rows, diff)
    for change in (inserts, deletes):
        if change is not None:
            rows = np.flatnonzero((change.matches == 0) == (sign > 0))
            if len(rows):
                yield from pad_changes(shape, side, change.rows.batch, rows, change.diff)


def _emit_unmatchable(
    shape: JoinShape, side: Side, own: SideSlice, batch: pa.RecordBatch, low: int, high: int
) -> Iterator[pa.RecordBatch]:
    """Yield the pads of rows that can match nothing, once for each insert or delete of such a row."""
    diffs = batch.column(DIFF).to_numpy(zero_copy_only=False)[low:high].astype(np.int64)
    times = np.abs(diffs)
    rows = repeat_rows(own, batch, np.arange(low, high), times)
    if len(rows):
        yield from append_diffs(pad(shape, side, batch, rows), np.repeat(np.sign(diffs), times))
