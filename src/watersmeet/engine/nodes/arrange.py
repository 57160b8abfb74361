"""What is kept for a delta join, in one hash range: the tick's changes of each input are summed, written as
new runs, and given to the paths."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from watersmeet.engine.messages.delta import ArrangeShape
from watersmeet.engine.tasks.changes import net_changes, report_marks, settle_changes
from watersmeet.engine.tasks.results import pad_changes
from watersmeet.engine.tasks.share import Share
from watersmeet.engine.tasks.slice import HashRange, SideSlice
from watersmeet.event_time import Side
from watersmeet.state.marks import MarkWriter


def arrange_rows(shape: ArrangeShape, share: Share) -> Iterator[pa.RecordBatch]:
    """No row leaves but along the paths: of each input the inserts, then the deletes of rows that were there.
    Copies under other keys come to the same, each in its own hash ranges."""
    marks, slices = MarkWriter(), []
    own_range = HashRange.of_share(share)
    for place, side in enumerate(shape.sides):
        report = share.report.sides[place]
        own = SideSlice(side, share.work.sides[place], share.store, own_range, own_range)
        changes = net_changes(own, report, final=shape.final)
        if place < len(shape.changes) and place not in share.work.closed:
            for change in changes:
                if change is not None:
                    rows = np.arange(len(change.rows))
                    leaving = shape.changes[place]
                    for batch in pad_changes(leaving, Side.LEFT, change.rows.batch, rows, change.diff):
                        share.paths[place].add(batch)
        inserts, _ = changes
        settle_changes(own, inserts, share.tick, report, marks, looked_up_after=True)
        slices.append(own)
    written = marks.write(share.store, share.tick)
    for own, report in zip(slices, share.report.sides, strict=True):
        report_marks(own, written, report)
    yield from ()
