"""What both output modes share in making a join's results: pads, pad files, counting, least times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.engine.step.counts import lower
from watersmeet.engine.step.slice import RunSlice, SideSlice, concat_batches
from watersmeet.engine.step.tasks import JoinShape, SideReport
from watersmeet.event_time import Side
from watersmeet.kernel.pairs import gather
from watersmeet.kernel.probe import Rows
from watersmeet.kernel.times import to_canonical

NO_ROWS = np.zeros(0, dtype=np.int64)


def pad(shape: JoinShape, side: Side, batch: pa.RecordBatch, rows: Rows) -> pa.RecordBatch:
    """The chosen rows of one side with NULLs for the other."""
    if side is Side.LEFT:
        return gather(shape.columns, batch, rows, None, NO_ROWS)
    return gather(shape.columns, None, NO_ROWS, batch, rows)


def pad_files(own: SideSlice, partition: int, partitions: int) -> Iterator[tuple[pa.RecordBatch, int, int]]:
    """This task's share of the rows that can match nothing: (batch, first row, end row)."""
    for file in own.work.pads:
        low, high = (file.rows * p // partitions for p in (partition, partition + 1))
        if low < high:
            reader = pa.ipc.open_file(pa.BufferReader(own.store.read(file.name)))
            batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
            yield concat_batches(batches), low, high


def note_least(shape: JoinShape, batch: pa.RecordBatch, least: dict[str, int]) -> None:
    """Bring ``least``, per watermark key, down to the least times of joined rows. NULLs (pads) have none."""
    for column in shape.columns:
        if column.column in shape.side(column.side).layout.event_times:
            found = pc.min(to_canonical(batch.column(column.name))).as_py()
            if found is not None:
                lower(least, column.name, found)


def least_alive(own: SideSlice, pieces: Iterable[RunSlice], report: SideReport) -> None:
    """The least event times over retained rows of this task, where some leave before they are released (mark
    ``gone``). Cost: the rows."""
    for piece in pieces:
        live = piece.run.live(own.work.new_limits, piece.start, piece.stop) & ~piece.marks("gone")
        if live.any():
            for column in own.task.layout.event_times:
                lower(report.least, column, int(piece.rows.times(column)[live].min()))


def count(report: SideReport, what: str, rows: int) -> None:
    if rows:
        report.counts[what] = report.counts.get(what, 0) + rows
