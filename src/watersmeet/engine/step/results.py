"""What kinds of nodes share in making their results: pads, files of rows, counting, least times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.engine.step.counts import lower
from watersmeet.engine.step.slice import RunSlice, SideSlice, concat_batches
from watersmeet.engine.step.tasks import NodeShape, SideReport, SideWork
from watersmeet.event_time import Side
from watersmeet.kernel.pairs import gather
from watersmeet.kernel.probe import Rows
from watersmeet.kernel.times import to_canonical
from watersmeet.state.store import Store

NO_ROWS = np.zeros(0, dtype=np.int64)


def pad(shape: NodeShape, side: Side, batch: pa.RecordBatch, rows: Rows) -> pa.RecordBatch:
    """The chosen rows of one side, with NULLs for the other if there is one."""
    if side is Side.LEFT:
        return gather(shape.columns, batch, rows, None, NO_ROWS)
    return gather(shape.columns, None, NO_ROWS, batch, rows)


def pad_files(
    work: SideWork, store: Store, partition: int, partitions: int
) -> Iterator[tuple[pa.RecordBatch, int, int]]:
    """This task's share of the rows that are not retained and go out: (batch, first row, end row)."""
    for file in work.pads:
        low, high = (file.rows * p // partitions for p in (partition, partition + 1))
        if low < high:
            reader = pa.ipc.open_file(pa.BufferReader(store.read(file.name)))
            batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
            yield concat_batches(batches), low, high


def note_least(shape: NodeShape, batch: pa.RecordBatch, least: dict[str, int]) -> None:
    """Bring ``least``, per watermark key, down to the least times of rows that leave. NULLs have none."""
    for key in shape.event_times:
        found = pc.min(to_canonical(batch.column(key))).as_py()
        if found is not None:
            lower(least, key, found)


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
