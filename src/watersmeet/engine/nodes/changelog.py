"""The second half of a tick in changelog mode, for one task's rows: every result is a change with a diff.

    Δout = ΔL × R_before + L_after × ΔR            (semantics.md, section 5, for two inputs)

What a tick's rows come to is worked out first (`engine.tasks.changes`). Rows carry the count of their live
matches: a pad goes out while it is 0 and is taken back when it rises; the left row of a SEMI join the other
way round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.engine.messages.reports import NodeReport, SideReport
from watersmeet.engine.messages.shapes import JoinShape
from watersmeet.engine.nodes.dealing import Dealt
from watersmeet.engine.tasks.changes import Change, net_changes, repeated, report_marks, settle_changes
from watersmeet.engine.tasks.results import (
    pad,
    pad_changes,
    pad_files,
    put_out,
    with_diffs,
)
from watersmeet.engine.tasks.share import Share
from watersmeet.engine.tasks.slice import RunSlice, SideSlice
from watersmeet.event_time import Mask, Side
from watersmeet.kernel.match.lasting import lasting
from watersmeet.kernel.match.pairs import find
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.names import DIFF
from watersmeet.spec.model import JoinKind
from watersmeet.state.marks import MarkArray, MarkKind, MarkWriter, places_among


@dataclass(frozen=True)
class _Changed:
    """Rows of one side, and what the tick changes of them."""

    rows: SideSlice
    inserts: Change | None
    deletes: Change | None

    @classmethod
    def of(cls, rows: SideSlice, report: SideReport) -> _Changed:
        return cls(rows, *net_changes(rows, report))


def run_changelog(shape: JoinShape, share: Share, dealt: Dealt) -> Iterator[pa.RecordBatch]:
    report = share.report
    changed = {side: _Changed.of(dealt.own[side], report.side(side)) for side in Side}
    if dealt.near is None:
        yield from _matched(shape, changed, tuple(Side), report)
    else:
        # What is near is owned by other tasks: they report it.
        near, first = dealt.near, dealt.putting
        view = {first: changed[first], first.other: _Changed.of(near[first.other], SideReport())}
        yield from _matched(shape, view, (first,), report)
        if _is_counted(shape, first.other):
            view = {first: _Changed.of(near[first], SideReport()), first.other: changed[first.other]}
            for _ in _matched(shape, view, (first.other,), None):
                pass
    slices = dealt.own

    marks = MarkWriter()
    for side in Side:
        own, inserts = slices[side], changed[side].inserts
        if own.task.padded or _leaves_matched(shape, side):
            yield from _single_changes(shape, side, own, inserts, changed[side].deletes)
        for batch, low, high in pad_files(own.work, own.store, share.partition, share.partitions):
            yield from _unmatchable(shape, side, own, batch, low, high)
        settle_changes(own, inserts, share.tick, report.side(side), marks)
    written = marks.write(share.store, share.tick)
    for side in Side:
        report_marks(slices[side], written, report.side(side))


def _is_counted(shape: JoinShape, side: Side) -> bool:
    """Whether anybody asks how many partners a row of the side has: for pads, or when it is released."""
    own = shape.side(side)
    return own.padded or _leaves_matched(shape, side) or bool(own.layout.releasing)


def _matched(
    shape: JoinShape, changed: Mapping[Side, _Changed], counted: Sequence[Side], report: NodeReport | None
) -> Iterator[pa.RecordBatch]:
    """The pairs that come and go, and the numbers of partners of the rows of the sides ``counted``.

    Args:
        report: is told how many pairs there are; None: they are another task's, and do not go out.
    """
    left, right = changed[Side.LEFT], changed[Side.RIGHT]
    for change in (left.inserts, left.deletes):
        for piece in right.rows.old:
            yield from _pairs(shape, Side.LEFT, change, piece, piece.were, counted, report)
    for change in (right.inserts, right.deletes):
        for piece in left.rows.old:
            yield from _pairs(shape, Side.RIGHT, change, piece, piece.are, counted, report)
        yield from _new_pairs(shape, left.inserts, change, counted, report)
    if shape.right.padded and Side.RIGHT in counted:
        _count_lost_partners(shape, right.deletes, left.rows)


def _pairs(
    shape: JoinShape,
    side: Side,
    change: Change | None,
    piece: RunSlice,
    marks: Callable[[MarkKind, Rows], MarkArray],
    counted: Sequence[Side],
    report: NodeReport | None,
) -> Iterator[pa.RecordBatch]:
    """Changes of ``side`` × rows of the other side's old run that are not gone, by these ``marks``: those of
    the piece before this tick, or now. See `_matched` for the rest."""
    if change is None or not piece.may_match(shape.condition, change.rows, side):
        return
    for needle, row in find(shape.condition, change.rows, side, piece.looked_up):
        alive = ~marks("gone", row)
        if piece.picked is not None:
            alive &= piece.picked(row)
        if shape.lasting:
            in_sight = piece.alive(row) & ~change.released[needle]
            alive &= in_sight | _lasting(shape, side, change.rows, needle, piece.rows, row)
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
            joined = put_out(shape, change.rows.batch, needle, piece.rows.batch, row)
        else:
            joined = put_out(shape, piece.rows.batch, row, change.rows.batch, needle)
        yield from with_diffs(joined, np.full(len(row), change.diff))


def _new_pairs(
    shape: JoinShape,
    inserts: Change | None,
    change: Change | None,
    counted: Sequence[Side],
    report: NodeReport | None,
) -> Iterator[pa.RecordBatch]:
    """Left inserts × right changes of the same tick; see `_matched`."""
    if inserts is None or change is None:
        return
    for needle, row in find(shape.condition, inserts.rows, Side.LEFT, change.rows):
        if shape.lasting:
            keep = ~change.released[row]
            keep |= _lasting(shape, Side.LEFT, inserts.rows, needle, change.rows, row)
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
        yield from with_diffs(
            put_out(shape, inserts.rows.batch, needle, change.rows.batch, row),
            np.full(len(row), change.diff),
        )


def _count_lost_partners(shape: JoinShape, right: Change | None, left: SideSlice) -> None:
    """Add the left rows that were deleted in this tick to the partners of the right ones that were: only so
    is it known which of these had a pad. Where rows are padded, no bounds come from joins above."""
    if right is None:
        return
    for piece in left.old:
        lost = piece.newly("gone")
        if len(lost):
            for needle, row in find(shape.condition, right.rows, Side.RIGHT, piece.rows):
                np.add.at(right.matches, needle[places_among(row, lost) >= 0], 1)


def _lasting(
    shape: JoinShape, side: Side, needles: SortedRows, needle: Rows, rows: SortedRows, row: Rows
) -> Mask:
    """Which pairs of needles (rows of ``side``) and rows of the other side may come to a result. It is asked
    of released rows only: others meet whatever their condition says."""
    if side is Side.LEFT:
        return lasting(shape.lasting, needles, needle, rows, row)
    return lasting(shape.lasting, rows, row, needles, needle)


def _leaves_matched(shape: JoinShape, side: Side) -> bool:
    """Rows of the side leave while they have a match, not while they have none."""
    return shape.kind is JoinKind.SEMI and side is Side.LEFT


def _single_changes(
    shape: JoinShape,
    side: Side,
    own: SideSlice,
    inserts: Change | None,
    deletes: Change | None,
) -> Iterator[pa.RecordBatch]:
    """Rows of one side alone, that come or go: pads, and what a SEMI or ANTI join puts out."""
    sign = -1 if _leaves_matched(shape, side) else 1
    for piece in own.old:
        if "count" not in piece.touched:
            continue
        changed, old, new = piece.counts_changed()
        alive = ~piece.are("gone", changed)
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


def _unmatchable(
    shape: JoinShape, side: Side, own: SideSlice, batch: pa.RecordBatch, low: int, high: int
) -> Iterator[pa.RecordBatch]:
    """Pads of rows that can match nothing, as often as each comes or goes."""
    diffs = batch.column(DIFF).to_numpy(zero_copy_only=False)[low:high].astype(np.int64)
    times = np.abs(diffs)
    rows = repeated(own, batch, np.arange(low, high), times)
    if len(rows):
        yield from with_diffs(pad(shape, side, batch, rows), np.repeat(np.sign(diffs), times))
