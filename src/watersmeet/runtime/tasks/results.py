"""What kinds of nodes share in making their results: pads, files of rows, counting, least times."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.event_time import Side
from watersmeet.kernel.batches import batches_in, cut_points, narrowed_batch, same_rows, size, sizes
from watersmeet.kernel.gather import ChosenRows, HasColumns, gather, pair_sizes, pairs_bound, row_sizes
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.ordinals import to_canonical, to_native
from watersmeet.names import DIFF, is_ours
from watersmeet.runtime.messages.reports import SideReport, lower_min
from watersmeet.runtime.messages.shapes import NodeShape, SideShape
from watersmeet.runtime.messages.work import SideWork
from watersmeet.runtime.tasks.memory import check_row, max_output_bytes
from watersmeet.runtime.tasks.side import RunSlice, SideSlice
from watersmeet.state.manifest import LiveRun
from watersmeet.state.marks import marks_at, read_marks
from watersmeet.state.runs.heavy_hitters import shown_time
from watersmeet.state.runs.reader import OpenRun
from watersmeet.state.store import Store
from watersmeet.types.json_values import values_of

SAMPLES = 5
"""Of so many rows a task tells."""


def rows_as_json(schema: pa.Schema, rows: pa.RecordBatch) -> list[str]:
    """Format stored rows as JSON, one object per row, with the columns and types of ``schema``.

    Columns that a query computed, this query or another one, are left out.
    """
    declared = [field for field in schema if not is_ours(field.name)]
    columns = {f.name: values_of(to_native(rows.column(f.name), f.type)) for f in declared}
    return [
        json.dumps({name: values[row] for name, values in columns.items()}, ensure_ascii=False)
        for row in range(rows.num_rows)
    ]


def key_as_written(side: SideShape, key: str) -> str:
    """Format a key on one line as users write it.

    The function doubles quotes and escapes unprintable characters, because terminals and logs show the
    text.

    Args:
        key: see `state.runs.heavy_hitters.format_key`.
    """
    texts = {column.name: column.text for column in side.layout.columns}
    told = []
    for name, value in json.loads(key).items():
        if name in side.layout.event_times and value is not None:
            kind = side.schema.field(name).type
            if pa.types.is_temporal(kind):
                value = shown_time(to_native(pa.array([value], pa.int64()), kind))
        shown = _quote_text(value) if isinstance(value, str) else "NULL" if value is None else str(value)
        told.append(f"{texts.get(name, name) if is_ours(name) else name} = {shown}")
    return ", ".join(told)


def _quote_text(text: str) -> str:
    shown = "".join(c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode() for c in text)
    return "'" + shown.replace("'", "''") + "'"


NO_ROWS = np.zeros(0, dtype=np.int64)


def emit_rows(
    shape: NodeShape,
    left: HasColumns | ChosenRows | None,
    left_rows: Rows,
    right: HasColumns | ChosenRows | None,
    right_rows: Rows,
) -> Iterator[pa.RecordBatch]:
    """Emit joined rows of pairs, or rows of one side padded with NULLs.

    See `kernel.gather.gather`. Batches have at most `max_output_bytes`; their sizes are known before
    they are built.

    Raises:
        EngineError: one row is larger than this limit.
    """
    most = max_output_bytes(shape.memory)
    borders = [0, len(right_rows) if left is None else len(left_rows)]
    fits = pairs_bound(shape.columns, left, left_rows, right, right_rows) <= most
    if not fits:
        of_rows = pair_sizes(shape.columns, left, left_rows, right, right_rows)
        borders = cut_points(of_rows, most)
        if int(of_rows.max(initial=0)) > most:
            _check_widest(shape, left, left_rows, right, right_rows, int(of_rows.argmax()))
    for low, high in pairwise(borders):
        batch = gather(shape.columns, left, left_rows[low:high], right, right_rows[low:high], fits=fits)
        yield narrowed_batch(batch, shape.joined_schema)


def _check_widest(
    shape: NodeShape,
    left: HasColumns | ChosenRows | None,
    left_rows: Rows,
    right: HasColumns | ChosenRows | None,
    right_rows: Rows,
    row: int,
) -> None:
    value_sizes = []
    for side, batch, rows in ((Side.LEFT, left, left_rows), (Side.RIGHT, right, right_rows)):
        if batch is not None:
            own = [column for column in shape.columns if column.side is side]
            value_sizes += [(c.name, int(row_sizes(batch, [c.column], rows[[row]])[0])) for c in own]
    check_row(value_sizes, shape.memory)


def split_batches(shape: NodeShape, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield computed rows of the node in batches of at most `max_output_bytes`."""
    schema = shape.row_schema
    if size(rows.columns) <= max_output_bytes(shape.memory):
        yield narrowed_batch(rows, schema)
        return
    of_rows = sizes(rows.columns, np.arange(rows.num_rows))
    widest = int(of_rows.argmax())
    columns = zip(rows.schema.names, rows.columns, strict=True)
    check_row([(name, int(sizes([c], np.array([widest]))[0])) for name, c in columns], shape.memory)
    for low, high in pairwise(cut_points(of_rows, max_output_bytes(shape.memory))):
        yield narrowed_batch(rows.slice(low, high - low), schema)


def pad(shape: NodeShape, side: Side, batch: HasColumns, rows: Rows) -> Iterator[pa.RecordBatch]:
    """Emit the chosen rows of one side, with NULLs for the other side if there is one."""
    if side is Side.LEFT:
        return emit_rows(shape, batch, rows, None, NO_ROWS)
    return emit_rows(shape, None, NO_ROWS, batch, rows)


def pad_changes(
    shape: NodeShape, side: Side, batch: HasColumns, rows: Rows, diff: int
) -> Iterator[pa.RecordBatch]:
    """Emit the chosen rows of one side like `pad`, each with the multiplicity ``diff``."""
    return append_diffs(pad(shape, side, batch, rows), np.full(len(rows), diff))


def append_diffs(batches: Iterable[pa.RecordBatch], diffs: npt.NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """Append the column of multiplicities to the batches.

    Args:
        diffs: multiplicities of the rows of all batches, in order.
    """
    done = 0
    for batch in batches:
        own = pa.array(diffs[done : done + batch.num_rows].astype(np.int64, copy=False))
        done += batch.num_rows
        yield pa.RecordBatch.from_arrays([*batch.columns, own], names=[*batch.schema.names, DIFF])
    same_rows("put changes out", len(diffs), done)


def pad_files(
    work: SideWork, store: Store, partition: int, partitions: int
) -> Iterator[tuple[pa.RecordBatch, int, int]]:
    """Yield this task's part of the emitted rows that are not retained.

    Yields:
        (batch, first row, end row).
    """
    for file in work.pads:
        low, high = (file.rows * p // partitions for p in (partition, partition + 1))
        done = 0
        for batch in batches_in(pa.ipc.open_file(pa.BufferReader(store.read(file.name)))):
            first, end = max(low - done, 0), min(high - done, batch.num_rows)
            if first < end:
                yield batch, first, end
            done += batch.num_rows
        same_rows(f'read "{file.name}"', file.rows, done)


def lower_min_times(shape: NodeShape, batch: pa.RecordBatch, least: dict[str, int]) -> None:
    """Lower ``least``, per watermark key, to the minimum times of emitted rows; ignore NULLs."""
    for key in shape.event_times:
        times = to_canonical(batch.column(key))
        times = times.drop_null() if times.null_count else times
        if len(times):
            lower_min(least, key, int(times.to_numpy().min()))


def report_min_alive(own: SideSlice, pieces: Iterable[RunSlice], report: SideReport) -> None:
    """Report the minimum event times of this task's retained rows, and how far rows have left.

    Some rows leave before their release (mark ``gone``). Cost: the rows that are passed over for the
    first time, and those that another task has not passed yet.
    """
    for piece in pieces:
        cursors = piece.live.cursors
        for column in own.task.layout.event_times:
            least_time, place = piece.run.first_alive(
                column,
                own.work.new_limits,
                piece.start,
                piece.stop,
                piece.is_evicted,
                cursors.get(column, 0),
            )
            passed = report.cursors.setdefault(piece.name, {})
            passed[column] = min(place, passed.get(column, place))  # of a run there may be several pieces
            if least_time is not None:
                lower_min(report.least, column, least_time)


def report_min_of_run(own: SideSlice, live: LiveRun, opened: OpenRun, report: SideReport) -> None:
    """Report the minimum event times over the retained rows of a whole run.

    Only this task answers for the run. Not all event times order its rows.
    """
    limits, cursors = own.work.new_limits, report.cursors.setdefault(live.run.name, {})
    for column in own.task.layout.event_times:
        if column in own.task.layout.releasing:
            least, cursors[column] = opened.first_alive(
                column,
                limits,
                0,
                live.run.rows,
                lambda rows: marks_at(own.store, "gone", live.marks["gone"], rows),
                live.cursors.get(column, 0),
            )
        else:
            there = opened.live(limits, 0, live.run.rows)
            there &= ~read_marks(own.store, "gone", live.marks["gone"], 0, live.run.rows)
            times = opened.sorted_rows.times(column)[there]
            least = int(times.min()) if len(times) else None
        if least is not None:
            lower_min(report.least, column, least)


def count(report: SideReport, what: str, rows: int) -> None:
    if rows:
        report.counts[what] = report.counts.get(what, 0) + rows
