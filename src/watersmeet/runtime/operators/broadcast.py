"""Join with one side broadcast to every task (hint BROADCAST); the other is partitioned by position.

Each task owns an equal part of every run of both sides, for release, padding and merging. It looks its part
of the partitioned side up in all rows of the broadcast side. So each pair is found once, whatever its key,
and the owner of a partitioned row knows all its matches.

A broadcast row may match in any task. Each task reports its matches of such rows, owned or not, as marks, and
the driver unites the marks of all tasks for later ticks. An owner that needs them at once, because its row
is released in this tick, or moves to a merged run in which others cannot mark it, searches all rows by which
others may have found the match: the tick's new rows of the partitioned side, and for a new row the old ones,
too. Only rows without a known match, for which this task found none, need that search; they are few.

For hot keys (`runtime.operators.spread`), one side is broadcast likewise: only rows of these keys are sought.

In a SEMI join whose left side is broadcast, a row leaves with its first match, and only one task may report
the match: there the owner looks its rows up in all rows of the other side (`existence`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from watersmeet.event_time import Mask, Side
from watersmeet.kernel.gather import join_batches, reorder_rows
from watersmeet.kernel.match.pairs import find
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.slots import TIME_BITS
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.runtime.messages.shapes import JoinShape
from watersmeet.runtime.operators.existence import are_retained
from watersmeet.runtime.tasks.side import Everything, Nothing, OwnedRows, RunSlice, SideSlice, TaskPartition
from watersmeet.state.marks import MarkWriter, read_marks
from watersmeet.state.runs.writer import sort_rows


@dataclass(frozen=True)
class WholeSide:
    """All rows of the broadcast side that a task searches.

    Attributes:
        rows: the rows of the broadcast side, those that this task owns and those that other tasks own.
        near: the rows of the other side that may match rows that other tasks own.
        buckets: upper halves of the hashes of the rows that were broadcast; None for any.
    """

    rows: SideSlice
    near: OwnedRows
    buckets: frozenset[int] | None = None

    def around(self, piece: RunSlice) -> RunSlice:
        """Return the slice of the whole side's rows that contains a task's own slice."""
        return next(
            other
            for other in [*self.rows.old, *self.rows.new_runs]
            if other.name == piece.name and other.start <= piece.start and piece.stop <= other.stop
        )

    def shared(self, piece: RunSlice, rows: Rows) -> Rows:
        """Return the rows of a task's own slice that other tasks search, too."""
        if self.buckets is None:
            return rows
        buckets = np.array(sorted(self.buckets))
        return rows[np.isin(piece.rows.slots[rows] >> np.int64(TIME_BITS), buckets)]


@dataclass(frozen=True)
class _UnmatchedRows:
    """Rows without a known match in a task's own piece of a run, by number within the piece."""

    piece: RunSlice
    rows: Rows


def build_whole_slice(shape: JoinShape, share: TaskPartition, side: Side) -> SideSlice:
    """Build the slice that contains all rows of a side."""
    everything = Everything()
    return SideSlice(shape.side(side), share.work.side(side), share.store, everything, everything)


def settle_broadcast_marks(
    shape: JoinShape, share: TaskPartition, side: Side, own: SideSlice, whole: WholeSide, marks: MarkWriter
) -> None:
    """Complete the marks of ``own`` for rows that are released in this tick or merged.

    Matches found for any row of the broadcast ``side`` (the marks of ``whole``) are written to ``marks``.
    """
    share.report.side(side).together = True
    for piece, rows in whole.rows.list_new_matches():
        piece.mark_matched(rows)
    merged = own.work.list_merged_runs()
    for piece in [*whole.rows.old, *whole.rows.new_runs]:
        if piece.touched and piece.name not in merged:
            _report(share, piece, marks)
    asked: dict[bool, list[_UnmatchedRows]] = {}
    for pieces, is_new in ((own.old, False), (own.new_runs, True)):
        asked[is_new] = []
        for piece in pieces:
            if piece.name in merged:
                rows = np.flatnonzero(piece.run.live(own.work.old_limits, piece.start, piece.stop))
            else:
                rows = np.sort(own.released(piece, is_new=is_new))
            if not len(rows):
                continue
            matched, around = piece.marks("matched"), whole.around(piece)
            if around.touched:
                first = piece.start - around.start
                matched |= around.marks("matched")[first : first + len(matched)]
            unknown = whole.shared(piece, rows[~matched[rows]])
            if len(unknown):
                asked[is_new].append(_UnmatchedRows(piece, unknown))
    _find_matches(shape, share, side, own, whole.near, asked[False], asked[True])
    for piece in own.old:
        if piece.name in merged and piece.marks("matched").any():
            piece.touched.add("matched")  # they go with the rows


def _report(share: TaskPartition, piece: RunSlice, marks: MarkWriter) -> None:
    """Write the match marks of a whole slice that this task adds to the stored ones."""
    stored = read_marks(share.store, "matched", piece.live.marks.get("matched", ()), piece.start, piece.stop)
    added = piece.marks("matched") & ~stored
    rows = np.flatnonzero(added)
    if len(rows):
        first, end = int(rows[0]), int(rows[-1]) + 1
        marks.add(piece.name, "matched", piece.start + first, added[first:end])


def _find_matches(
    shape: JoinShape,
    share: TaskPartition,
    side: Side,
    own: SideSlice,
    near: OwnedRows,
    old: Sequence[_UnmatchedRows],
    new: Sequence[_UnmatchedRows],
) -> None:
    """Mark those of the rows that have a match."""
    if not old and not new:
        return
    work = share.work.side(side.other)
    other = SideSlice(shape.side(side.other), work, share.store, near if new else Nothing(), near)
    for asked, pieces in ((old, other.new_runs), (new, [*other.new_runs, *other.old])):
        if not asked or not pieces:
            continue
        needles, order = _sort_together(own, asked)
        hits = np.zeros(len(needles), dtype=np.bool_)
        for piece in pieces:
            hits |= _find_matched_needles(shape, needles, side, piece)
        matched = np.zeros(len(needles), dtype=np.bool_)
        matched[order] = hits
        start = 0
        for asking in asked:
            end = start + len(asking.rows)
            asking.piece.marks("matched")[asking.rows[matched[start:end]]] = True
            start = end


def _sort_together(own: SideSlice, asked: Sequence[_UnmatchedRows]) -> tuple[SortedRows, Rows]:
    """Sort the rows of all slices together.

    Returns:
        The sorted rows, and their positions in the concatenation of the slices.
    """
    pieces = [asking.piece.batch() for asking in asked]
    starts = np.cumsum([0, *(piece.num_rows for piece in pieces)])
    chosen = np.concatenate([start + asking.rows for start, asking in zip(starts, asked, strict=False)])
    batch = reorder_rows(join_batches(pieces, 0), chosen)
    slots = np.concatenate([asking.piece.rows.slots[asking.rows] for asking in asked])
    return sort_rows(batch, slots, own.task.layout, own.work.index)


def _find_matched_needles(shape: JoinShape, needles: SortedRows, side: Side, piece: RunSlice) -> Mask:
    """Return the mask of needles that match a row of the other side's slice.

    A match counts only if a look-up by the other task would find it.
    """
    if not shape.kind.hides_right:
        return piece.has_match(shape.condition, needles, side)
    hits = np.zeros(len(needles), dtype=np.bool_)
    for needle, row in find(shape.condition, needles, side, piece.looked_up):
        hits[needle[are_retained(piece, row)]] = True
    return hits
