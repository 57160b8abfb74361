"""Rows of tables, kept until they are deleted, and of streams of changes, kept until a delete of them would
be late: a delete of what is not there is counted, and not put out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from watersmeet.engine.messages.shapes import TableShape
from watersmeet.engine.tasks.changes import net_changes, report_marks, settle_changes
from watersmeet.engine.tasks.cut import HashRange
from watersmeet.engine.tasks.results import pad_changes
from watersmeet.engine.tasks.share import Share
from watersmeet.engine.tasks.slice import SideSlice
from watersmeet.event_time import Side
from watersmeet.state.marks import MarkWriter


def table_rows(shape: TableShape, share: Share) -> Iterator[pa.RecordBatch]:
    """What the tick's changes of the share's hash range come to."""
    hashes = HashRange.of_share(share)
    own = SideSlice(shape.sides[0], share.work.sides[0], share.store, hashes, hashes)
    report, marks = share.report.sides[0], MarkWriter()
    inserts, deletes = net_changes(own, report)
    for change in (deletes, inserts):
        if change is not None:
            rows = np.arange(len(change.rows))
            yield from pad_changes(shape, Side.LEFT, change.rows.batch, rows, change.diff)
    settle_changes(own, inserts, share.tick, report, marks, has_partners=False)
    report_marks(own, marks.write(share.store, share.tick), report)
