"""What all windows share within a tick: limits, rows by their time, results as rows of the node."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from watersmeet.engine.step.slice import RunSlice, SideSlice
from watersmeet.engine.step.tasks import AggregateShape
from watersmeet.event_time import NEVER, Times, Watermark
from watersmeet.kernel.batches import one_array
from watersmeet.kernel.probe import Rows
from watersmeet.kernel.times import to_native
from watersmeet.names import ours
from watersmeet.spec.model import WINDOW_END, WINDOW_START

NUMBER = ours("window")
"""Column of rows to be grouped: the number of their window, or pane."""


def limits(shape: AggregateShape, own: SideSlice) -> tuple[Watermark, Watermark]:
    """Of the last tick and of this one: rows below are released, or (sessions) have been looked at."""
    before, now = (limits.get(shape.time, NEVER) for limits in (own.work.old_limits, own.work.new_limits))
    return before, now


def last_end(shape: AggregateShape, limit: Watermark) -> Watermark:
    """The end of the last window that begins below a limit, which is where one begins."""
    return limit if isinstance(limit, float) else limit - shape.slide + shape.size


def passed(piece: RunSlice, column: str, since: Watermark, now: Watermark) -> Rows:
    """Rows of the slice with a time in [since, now), in order of it."""
    rows = piece.run.between(column, since, now)
    return rows[(rows >= piece.start) & (rows < piece.stop)] - piece.start


def result_rows(
    shape: AggregateShape, found: pa.Table, starts: Times, ends: Times, held: Mapping[str, str]
) -> pa.RecordBatch:
    """``held``: columns of ``found`` that have another name there. Wide columns may have 64-bit offsets."""
    kind = shape.row_schema.field(WINDOW_START).type
    windows = {WINDOW_START: starts, WINDOW_END: ends}
    arrays = []
    for field in shape.row_schema:
        if field.name in windows:
            arrays.append(to_native(pa.array(windows[field.name]), kind))
        else:
            arrays.append(one_array(found.column(held.get(field.name, field.name))))
    return pa.RecordBatch.from_arrays(arrays, names=shape.row_schema.names)
