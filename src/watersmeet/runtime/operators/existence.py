"""SEMI and ANTI joins: of a left row only counts whether it has a match.

By a SEMI join a left row leaves with its first match, and is gone from the state (mark ``gone``). By an ANTI
join matches are only marked; what never matched leaves when it is released, as the pads of an outer join do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from watersmeet.event_time import Mask, Side
from watersmeet.kernel.gather import Columns
from watersmeet.kernel.match.pairs import candidates, find, has_match, rows_matched
from watersmeet.kernel.match.probe import Rows
from watersmeet.runtime.messages.reports import NodeReport, SideReport
from watersmeet.runtime.messages.shapes import JoinShape
from watersmeet.runtime.tasks.results import NO_ROWS, count, emit_rows
from watersmeet.runtime.tasks.side import RunSlice, SideSlice, TaskPartition
from watersmeet.spec.model import JoinKind


def first_matches(
    shape: JoinShape, own: Mapping[Side, SideSlice], reach: Mapping[Side, SideSlice], share: TaskPartition
) -> Iterator[pa.RecordBatch]:
    """Mark own rows that have a match; by a SEMI join, give out the left ones that have their first.

    Args:
        reach: per side, all rows that may match own ones of the other side.
    """
    if share.is_bounded:
        _count_candidates(shape, own, reach, share)
    report = share.report
    left, right = own[Side.LEFT], own[Side.RIGHT]
    left_around, right_around = reach[Side.LEFT], reach[Side.RIGHT]
    hits = [(piece, _find_matched_rows(shape, piece, right_around)) for piece in left.old]
    if right.new is not None:
        for piece in left_around.near(shape.condition, right.new.rows, Side.RIGHT):
            for needle, row in find(shape.condition, right.new.rows, Side.RIGHT, piece.looked_up):
                if len(row):
                    right.new.matched[needle[are_retained(piece, row)]] = True
        if left_around.new is not None:
            matched = has_match(shape.condition, right.new.rows, Side.RIGHT, left_around.new.looked_up)
            right.new.matched |= matched
    if left_around.new is not None:
        for piece in right.near(shape.condition, left_around.new.rows, Side.LEFT):
            piece.mark_matched(
                rows_matched(shape.condition, left_around.new.rows, Side.LEFT, piece.looked_up)
            )
    if left.new is not None:
        for piece in right_around.old:
            left.new.matched |= piece.has_match(shape.condition, left.new.rows, Side.LEFT)
        if right_around.new is not None:
            came = right_around.new.looked_up
            left.new.matched |= has_match(shape.condition, left.new.rows, Side.LEFT, came)
        if shape.kind is JoinKind.SEMI and left.new.matched.any():
            first = left.new.order_by_arrival(np.flatnonzero(left.new.matched))
            yield from _emit_left_rows(shape, left.new.rows.batch, first, report)
    for piece, chosen in hits:
        if not len(chosen):
            continue
        if shape.kind is JoinKind.SEMI:
            evict_rows(piece, chosen, report.side(Side.LEFT))
            yield from _emit_left_rows(shape, piece.rows.batch, chosen, report)
        else:
            piece.mark_matched(chosen)


def _count_candidates(
    shape: JoinShape, own: Mapping[Side, SideSlice], reach: Mapping[Side, SideSlice], share: TaskPartition
) -> None:
    """Say how many candidates new rows have. Raises: ManyMatches."""
    for side in Side:
        new, other = own[side].new, reach[side.other]
        if new is None:
            continue
        there = [piece.looked_up for piece in other.near(shape.condition, new.rows, side)]
        there += [] if other.new is None else [other.new.looked_up]
        for rows in there:
            share.count_candidates(candidates(shape.condition, new.rows, side, rows))


def evict_rows(piece: RunSlice, rows: Rows, report: SideReport, what: str = "matched") -> None:
    """Evict rows that no limit releases.

    These are rows of a SEMI join with their first match, or rows of closed sessions.

    Args:
        what: the counter to which the rows are added.
    """
    piece.mark("gone", rows)
    report.released[piece.name] = report.released.get(piece.name, 0) + len(rows)
    count(report, what, len(rows))


def are_retained(piece: RunSlice, rows: Rows) -> Mask:
    """Return the mask of rows that no earlier tick evicted.

    Rows leave early when a SEMI join finds a match or by load shedding.
    """
    there: Mask = ~piece.read_marks("gone", rows)
    return there


def _find_matched_rows(shape: JoinShape, piece: RunSlice, right: SideSlice) -> Rows:
    """Return the rows of an old left run that match one of the tick's new right rows.

    The function reads marks only if there is a match.
    """
    if right.new is None or not piece.may_match(shape.condition, right.new.rows, Side.RIGHT):
        return NO_ROWS
    hits = rows_matched(shape.condition, right.new.rows, Side.RIGHT, piece.looked_up)
    return hits[are_retained(piece, hits)] if len(hits) else hits


def _emit_left_rows(
    shape: JoinShape, batch: Columns, rows: Rows, report: NodeReport
) -> Iterator[pa.RecordBatch]:
    report.matches += len(rows)
    return emit_rows(shape, batch, rows, None, NO_ROWS)
