"""What is kept for a delta join, in one hash range: the tick's changes of each input are summed, written as
new runs, and given to the paths; those of an input that another query keeps come from there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from watersmeet.engine.messages.delta import ArrangeShape
from watersmeet.engine.messages.shapes import PassShape
from watersmeet.engine.tasks.changes import net_changes, report_marks, settle_changes
from watersmeet.engine.tasks.cut import HashRange
from watersmeet.engine.tasks.feed import FeedWriter
from watersmeet.engine.tasks.results import pad, pad_changes, with_diffs
from watersmeet.engine.tasks.share import Share
from watersmeet.engine.tasks.slice import SideSlice
from watersmeet.event_time import Side
from watersmeet.names import DIFF
from watersmeet.state.marks import MarkWriter

_CHUNK = 65_536


def arrange_rows(shape: ArrangeShape, share: Share) -> Iterator[pa.RecordBatch]:
    """No row leaves but along the paths: of each input the inserts, then the deletes of rows that were there.
    Copies under other keys come to the same, each in its own hash ranges."""
    marks, slices = MarkWriter(), list[tuple[int, SideSlice]]()
    own_range = HashRange.of_share(share)
    for place, side in enumerate(shape.sides):
        report = share.report.sides[place]
        own = SideSlice(side, share.work.sides[place], share.store, own_range, own_range)
        takers = _takers(shape, share, place)
        if side.is_kept_elsewhere:
            if takers:
                _go_on(shape.changes[place], own, share, takers[0])
            continue
        changes = net_changes(own, report, final=shape.final)
        for change in changes:
            if change is not None and takers:
                chosen = np.arange(len(change.rows))
                leaving = shape.changes[place]
                for batch in pad_changes(leaving, Side.LEFT, change.rows.batch, chosen, change.diff):
                    share.leaves(batch, len(takers))
                    for taker in takers:
                        taker.add(batch)
        inserts, _ = changes
        settle_changes(own, inserts, share.tick, report, marks, looked_up_after=True)
        slices.append((place, own))
    written = marks.write(share.store, share.tick)
    for place, own in slices:
        report_marks(own, written, share.report.sides[place])
    yield from ()


def _go_on(shape: PassShape, own: SideSlice, share: Share, path: FeedWriter) -> None:
    """The rows of an input that another query keeps begin their path: changes of the tick, and before them,
    if this query begins, what that one has kept so far."""
    for piece in SideSlice(own.task, own.work.of_contents(), own.store, own.cut, own.cut).old:
        alive = np.flatnonzero(~piece.are("gone", np.arange(len(piece.rows))))
        for low in range(0, len(alive), _CHUNK):
            chosen = alive[low : low + _CHUNK]
            ones = np.ones(len(chosen), dtype=np.int64)
            for batch in with_diffs(pad(shape, Side.LEFT, piece.rows.batch, chosen), ones):
                share.leaves(batch)
                path.add(batch)
    if own.new is not None:
        rows = own.new.rows.batch
        diffs = rows.column(DIFF).to_numpy(zero_copy_only=False)
        for batch in with_diffs(pad(shape, Side.LEFT, rows, np.arange(len(diffs))), diffs):
            share.leaves(batch)
            path.add(batch)


def _takers(shape: ArrangeShape, share: Share, place: int) -> list[FeedWriter]:
    """Who is told of the changes of an input: its path, unless that comes to nothing, and other queries."""
    if place >= len(shape.changes):
        return []
    own = [] if place in share.work.closed else share.paths[place : place + 1]
    return [*own, *share.paths_abroad.get(place, ())]
