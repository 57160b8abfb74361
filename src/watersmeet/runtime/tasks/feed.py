"""From rows that leave a node to rows of a side of another one, in the task that made them.

Rows that go from join to join are not judged: lateness and NULL times are matters of inputs. Rows of a stage
are those of an input, and may be late there: the input went on while the stage was idle. A time that is NULL,
of an input that was padded, is never late; it is held as the greatest time, which no limit but that of the
end releases.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.event_time import MAX_TIME, NEVER, Mask, are_below
from watersmeet.kernel.batches import size
from watersmeet.kernel.ordinals import to_canonical
from watersmeet.names import DIFF, is_ours
from watersmeet.runtime.messages.reports import FeedReport
from watersmeet.runtime.messages.shapes import FeedShape
from watersmeet.runtime.messages.work import NodeWork
from watersmeet.runtime.tasks.ingest import SIDE_OUTPUT_COLUMNS, missed_columns, write_aside
from watersmeet.runtime.tasks.memory import RUN_BYTES
from watersmeet.runtime.tasks.multiplicity import read_multiplicities, sum_multiplicities
from watersmeet.runtime.tasks.run_writer import SideWriter
from watersmeet.state.store import Store
from watersmeet.watermark.lateness import MissedWatermarks


class FeedWriter:
    """Takes the rows of one task, in batches, and writes them for the node that they go to."""

    def __init__(self, shape: FeedShape, writer: SideWriter, work: NodeWork, store: Store) -> None:
        self._shape = shape
        self._side = shape.side
        self._writer = writer
        self._work = work
        self._store = store
        stored = shape.side.stored_schema
        self._stored = stored.append(pa.field(DIFF, pa.int64())) if shape.side.changes else stored
        self._late: list[pa.RecordBatch] = []
        self._report = FeedReport()
        self._times_each: npt.NDArray[np.int64] | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows of the node, with columns in native types."""
        self._times_each = read_multiplicities(rows)
        rows = self._columns(rename_columns(rows, self._shape.renamed))
        part = _all_columns_true(rows, self._shape.beneath)
        self._count("in", part)
        kept = part & ~self._mark_late_rows(rows, part) if self._shape.of_stage else part
        asked = _all_columns_true(rows, self._shape.filters)
        self._count("filtered", kept & ~asked)
        kept &= asked
        if self._shape.timed is not None:
            has_time = rows.column(self._shape.timed).is_valid().to_numpy(zero_copy_only=False)
            self._count("null_time", kept & ~has_time)
            kept &= has_time
        matchable = kept & _all_columns_true(rows, self._shape.conditions)
        for name in self._shape.not_null:
            if rows.column(name).null_count:
                matchable &= rows.column(name).is_valid().to_numpy(zero_copy_only=False)
        if not self._shape.matchable:
            matchable = np.zeros(rows.num_rows, dtype=np.bool_)
        if self._side.passes:
            self._count("passed", matchable)
        if matchable.any():
            self._writer.take(self._to_stored_rows(rows, matchable))
        unmatchable = kept & ~matchable
        self._count("padded" if self._side.padded else "unmatchable", unmatchable)
        if self._side.padded and unmatchable.any():
            self._writer.pad(self._to_stored_rows(rows, unmatchable))

    def finish(self) -> FeedReport:
        self._report.runs, self._report.pads = self._writer.finish()
        self._report.copies = self._writer.copies()
        self._write_late()
        return self._report

    def _write_late(self) -> None:
        if self._late:
            self._report.aside.append(write_aside(self._store, "late", self._work.tick, self._late))
            self._late = []

    def _count(self, what: str, mask: Mask) -> None:
        is_told = self._shape.of_stage or self._shape.timed is not None
        rows = sum_multiplicities(mask, self._times_each) if is_told else 0
        if rows:
            self._report.counts[what] = self._report.counts.get(what, 0) + rows

    def _mark_late_rows(self, rows: pa.RecordBatch, part: Mask) -> Mask:
        """Return the mask of late rows; count them, and write them to the side output if requested."""
        late_mask = np.zeros(rows.num_rows, dtype=np.bool_)
        marks = self._work.fed_late_below
        if all(mark == NEVER for mark in marks.values()):
            return late_mask
        integer = {column: pa.types.is_integer(rows.column(column).type) for column in marks}
        missed = MissedWatermarks(rows.num_rows, integer)
        for column, mark in marks.items():
            times = pc.fill_null(to_canonical(rows.column(column)), MAX_TIME)
            values = times.to_numpy(zero_copy_only=False)
            late = part & are_below(values, mark)
            if late.any():
                missed.note(column, late, values, mark)
                late_mask |= late
        if late_mask.any():
            self._count("late", late_mask)
            missed.count(self._report.late, self._times_each)
            if self._work.keep_late:
                names = [name for name in rows.schema.names if not is_ours(name)]
                record = pa.StructArray.from_arrays([rows.column(name) for name in names], names=names)
                columns = missed_columns(missed, self._side.name, marks, integer, late_mask)
                chosen = [record.filter(pa.array(late_mask)), *columns]
                self._late.append(pa.RecordBatch.from_arrays(chosen, names=list(SIDE_OUTPUT_COLUMNS)))
                if sum(size(batch.columns) for batch in self._late) >= RUN_BYTES:
                    self._write_late()
        return late_mask

    def _columns(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Build the side's columns in their stored types, and columns of evaluated conditions."""
        arrays = [rows.column(column) for _, column in self._shape.copied]
        names = [name for name, _ in self._shape.copied]
        table = pa.Table.from_batches([rows]) if self._shape.computed else None
        for column in self._shape.computed:
            arrays.append(column.of(table))
            names.append(column.name)
        if self._side.changes:
            has_diffs = DIFF in rows.schema.names
            arrays.append(
                rows.column(DIFF) if has_diffs else pa.array(np.ones(rows.num_rows, dtype=np.int64))
            )
            names.append(DIFF)
        if not self._shape.of_stage:
            return pa.RecordBatch.from_arrays(arrays, names=names)
        types = {field.name: field.type for field in self._side.schema}
        cast = [
            array if array.type == types.get(name, array.type) else array.cast(types[name])
            for name, array in zip(names, arrays, strict=True)
        ]
        return pa.RecordBatch.from_arrays(cast, names=names)

    def _to_stored_rows(self, rows: pa.RecordBatch, mask: Mask) -> pa.RecordBatch:
        if not mask.all():
            rows = rows.filter(pa.array(mask))
        arrays = []
        for name in self._side.schema.names:
            column = rows.column(name)
            if name in self._side.layout.event_times:
                column = to_canonical(column)
                column = pc.fill_null(column, MAX_TIME) if column.null_count else column
            arrays.append(column)
        arrays += [rows.column(name).is_null() for name in self._side.nullable]
        if self._side.changes:
            arrays.append(rows.column(DIFF))
        stored = pa.RecordBatch.from_arrays(arrays, names=self._stored.names)
        return stored if stored.schema.equals(self._stored) else stored.cast(self._stored)


def rename_columns(rows: pa.RecordBatch, names: tuple[tuple[str, str], ...]) -> pa.RecordBatch:
    """Select the required columns of another query's rows and rename them to the names here.

    `DIFF` of changes stays. Without ``names`` the rows stay as they are.
    """
    if not names:
        return rows
    taken = [*names, (DIFF, DIFF)] if DIFF in rows.schema.names else names
    arrays = [rows.column(there) for _, there in taken]
    return pa.RecordBatch.from_arrays(arrays, names=[own for own, _ in taken])


def _all_columns_true(rows: pa.RecordBatch, columns: tuple[str, ...]) -> Mask:
    truth: npt.NDArray[np.bool_] = np.ones(rows.num_rows, dtype=np.bool_)
    for name in columns:
        truth &= pc.fill_null(rows.column(name), False).to_numpy(zero_copy_only=False)
    return truth
