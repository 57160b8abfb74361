"""A join of which every task has one side whole (hint BROADCAST): the other side is spread by position.

A task owns an equal part of every run of both sides: for what is released, padded, merged. It looks its part
of the spread side up in all rows of the broadcast one. So each pair is found once, whatever its key, and a
spread row's owner knows all its matches.

A broadcast row may be matched in any task. What a task learns of such rows, its own or not, it reports as
marks, and the driver unites those of all tasks for the ticks to come. An owner that has to know at once, for
its row leaves in this tick, or moves to a merged run where others cannot mark it, asks for a match among all
that they may have found it by: the tick's new rows of the spread side, and for a new row the old ones, too.
Those are few rows: the ones that nobody knew a match of, and that this task has found none for.

By a SEMI join whose left side is broadcast a row leaves with its first match, and only one task may say that
it is the first: there the owner looks its rows up in all rows of the other side (`existence`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from watersmeet.engine.messages.shapes import JoinShape
from watersmeet.engine.nodes.existence import there
from watersmeet.engine.tasks.share import Share
from watersmeet.engine.tasks.slice import (
    Cut,
    Everything,
    Nothing,
    RunSlice,
    SideSlice,
)
from watersmeet.event_time import Mask, Side
from watersmeet.kernel.match.pairs import find
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.pieces import reordered, together
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.state.marks import MarkWriter, read_marks
from watersmeet.state.run import sort_rows


@dataclass(frozen=True)
class _Asked:
    """Rows of a task's own piece of a run, by number within it, of which no match is known."""

    piece: RunSlice
    rows: Rows


def all_rows(shape: JoinShape, share: Share, side: Side, of_old: Cut | None = None) -> SideSlice:
    """A side, whole. ``of_old``: of its live runs only these rows."""
    everything = Everything()
    return SideSlice(shape.side(side), share.work.side(side), share.store, of_old or everything, everything)


def settle(
    shape: JoinShape, share: Share, side: Side, own: SideSlice, whole: SideSlice, marks: MarkWriter
) -> None:
    """Make the marks of ``own`` right for rows that leave in this tick or are merged. What was found of any
    rows of the broadcast ``side`` (the marks of ``whole``) goes to ``marks``."""
    for piece, rows in whole.matched_new():
        piece.mark_matched(rows)
    merged = own.work.merged_away()
    whole_pieces = {piece.name: piece for piece in [*whole.old, *whole.new_runs]}
    for name, piece in whole_pieces.items():
        if piece.touched and name not in merged:
            _report(share, piece, marks)
    asked: dict[bool, list[_Asked]] = {}
    for pieces, is_new in ((own.old, False), (own.new_runs, True)):
        asked[is_new] = []
        for piece in pieces:
            if piece.name in merged:
                rows = np.flatnonzero(piece.run.live(own.work.old_limits, piece.start, piece.stop))
            else:
                rows = np.sort(own.released(piece, is_new=is_new))
            if not len(rows):
                continue
            matched = piece.marks("matched")
            if whole_pieces[piece.name].touched:
                matched |= whole_pieces[piece.name].marks("matched")[piece.start : piece.stop]
            unknown = rows[~matched[rows]]
            if len(unknown):
                asked[is_new].append(_Asked(piece, unknown))
    _ask(shape, share, side, own, asked[False], asked[True])
    for piece in own.old:
        if piece.name in merged and piece.marks("matched").any():
            piece.touched.add("matched")  # they go with the rows


def _report(share: Share, piece: RunSlice, marks: MarkWriter) -> None:
    """The marks of a whole run that this task adds to those that are stored."""
    stored = read_marks(share.store, "matched", piece.live.marks.get("matched", ()), piece.start, piece.stop)
    added = piece.marks("matched") & ~stored
    rows = np.flatnonzero(added)
    if len(rows):
        first, end = int(rows[0]), int(rows[-1]) + 1
        marks.add(piece.name, "matched", first, added[first:end])


def _ask(
    shape: JoinShape, share: Share, side: Side, own: SideSlice, old: Sequence[_Asked], new: Sequence[_Asked]
) -> None:
    """Mark those of the rows that have a match."""
    if not old and not new:
        return
    other = all_rows(shape, share, side.other, None if new else Nothing())
    for asked, pieces in ((old, other.new_runs), (new, [*other.new_runs, *other.old])):
        if not asked or not pieces:
            continue
        needles, order = _together(own, asked)
        hits = np.zeros(len(needles), dtype=np.bool_)
        for piece in pieces:
            hits |= _matched(shape, needles, side, piece)
        matched = np.zeros(len(needles), dtype=np.bool_)
        matched[order] = hits
        start = 0
        for asking in asked:
            end = start + len(asking.rows)
            asking.piece.marks("matched")[asking.rows[matched[start:end]]] = True
            start = end


def _together(own: SideSlice, asked: Sequence[_Asked]) -> tuple[SortedRows, Rows]:
    """The rows of all pieces in one order, and the places that they had one after the other."""
    pieces = [asking.piece.batch() for asking in asked]
    starts = np.cumsum([0, *(piece.num_rows for piece in pieces)])
    chosen = np.concatenate([start + asking.rows for start, asking in zip(starts, asked, strict=False)])
    batch = reordered(together(pieces, 0), chosen)
    slots = np.concatenate([asking.piece.rows.slots[asking.rows] for asking in asked])
    return sort_rows(batch, slots, own.task.layout, own.work.index)


def _matched(shape: JoinShape, needles: SortedRows, side: Side, piece: RunSlice) -> Mask:
    """Which of the needles have a match in a piece of the other side, as a task that looks up has it."""
    if not shape.kind.hides_right:
        return piece.has_match(shape.condition, needles, side)
    hits = np.zeros(len(needles), dtype=np.bool_)
    for needle, row in find(shape.condition, needles, side, piece.looked_up):
        hits[needle[there(piece, row)]] = True
    return hits
