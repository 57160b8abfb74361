"""From rows that leave a join to rows of a side of the next join, in the task that joined them.

Nothing is judged here: lateness and NULL times are matters of the query's inputs. A time of an input that
was padded is NULL; it is held as the greatest time, which no limit but that of the end releases.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.engine.step.tasks import FeedReport, FeedShape
from watersmeet.engine.step.write import SideWriter
from watersmeet.event_time import MAX_TIME, Mask
from watersmeet.kernel.residual import computed
from watersmeet.kernel.times import to_canonical


class FeedWriter:
    """Takes the rows of one join task, in batches, and writes them for the next join."""

    def __init__(self, shape: FeedShape, writer: SideWriter) -> None:
        self._shape = shape
        self._writer = writer
        self._stored = shape.side.stored_schema

    def add(self, rows: pa.RecordBatch) -> None:
        """Joined rows: columns ``alias.column`` in native types."""
        rows = self._with_computed(rows)
        kept = _all_true(rows, self._shape.filters)
        matchable = kept & _all_true(rows, self._shape.conditions)
        for name in self._shape.not_null:
            if rows.column(name).null_count:
                matchable &= rows.column(name).is_valid().to_numpy(zero_copy_only=False)
        if not self._shape.matchable:
            matchable = np.zeros(rows.num_rows, dtype=np.bool_)
        if matchable.any():
            self._writer.hold(self._as_stored(rows, matchable))
        unmatchable = kept & ~matchable
        if self._shape.side.padded and unmatchable.any():
            self._writer.pad(self._as_stored(rows, unmatchable))

    def finish(self) -> FeedReport:
        runs, pads = self._writer.finish()
        return FeedReport(runs=runs, pads=pads)

    def _with_computed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        arrays, names = list(rows.columns), list(rows.schema.names)
        for name, column in self._shape.copied:
            arrays.append(rows.column(column))
            names.append(name)
        if self._shape.computed:
            found = computed(dict(self._shape.computed), pa.Table.from_batches([rows]))
            for name in found.column_names:
                arrays.append(found.column(name).combine_chunks())
                names.append(name)
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _as_stored(self, rows: pa.RecordBatch, mask: Mask) -> pa.RecordBatch:
        if not mask.all():
            rows = rows.filter(pa.array(mask))
        arrays = []
        for field in self._shape.side.schema:
            column = rows.column(field.name)
            if field.name in self._shape.side.layout.event_times:
                column = to_canonical(column)
                column = pc.fill_null(column, MAX_TIME) if column.null_count else column
            arrays.append(column)
        arrays += [rows.column(name).is_null() for name in self._shape.side.nullable]
        return pa.RecordBatch.from_arrays(arrays, schema=self._stored)


def _all_true(rows: pa.RecordBatch, columns: tuple[str, ...]) -> Mask:
    truth: npt.NDArray[np.bool_] = np.ones(rows.num_rows, dtype=np.bool_)
    for name in columns:
        truth &= pc.fill_null(rows.column(name), False).to_numpy(zero_copy_only=False)
    return truth
