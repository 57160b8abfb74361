"""Windows that close, for one hash range of grouping keys, from partial aggregates: no row is kept.

A pane is a stretch of time as wide as the greatest common divisor of a window's size and slide, so that every
window consists of whole panes (of TUMBLE: of one). The tick's rows are grouped by pane and keys; what is kept
is one partial row for each, hashed as its rows are, with the pane's start as its time. Partial rows of one
pane and group that came in different ticks are combined when their runs are merged. A window that closes is
made of the partial rows of its panes. They are released as rows are: by a plain limit on the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from watersmeet.engine.messages.reports import SideReport
from watersmeet.engine.messages.shapes import AggregateShape, NodeShape, PartialShape, SideShape
from watersmeet.engine.nodes.windows import (
    NUMBER,
    in_parts,
    last_end,
    limits,
    look_ahead,
    of_piece,
    passed,
    result_rows,
)
from watersmeet.engine.tasks.cut import HashRange
from watersmeet.engine.tasks.memory import check_held, run_bytes
from watersmeet.engine.tasks.merge import merge_runs
from watersmeet.engine.tasks.results import NO_ROWS, count, cut
from watersmeet.engine.tasks.share import Share
from watersmeet.engine.tasks.slice import RunSlice, SideSlice
from watersmeet.event_time import below
from watersmeet.kernel.aggregate import AggregateColumn, quoted
from watersmeet.kernel.batches import MOST_BYTES, narrowed, one_array, one_batch, size, take_rows
from watersmeet.kernel.joined import gather
from watersmeet.kernel.partial import ROWS
from watersmeet.kernel.pieces import whole
from watersmeet.kernel.singletons import grouped_by_hash
from watersmeet.kernel.slots import BUCKET_MASK, TIME_MASK, Slots
from watersmeet.kernel.windows import Numbers, closing, window_times
from watersmeet.names import ours
from watersmeet.state.manifest import LiveRun
from watersmeet.state.marks import MarkWriter
from watersmeet.state.runs.written import sort_rows, write_run

MOST_PARTS = 1_024
"""Into so many parts, at most, a task divides its hash range."""
GROUPED_ROWS = 1_000_000
"""About so many of the tick's rows are grouped at once."""

BUCKET = ours("bucket")
_BUCKET = AggregateColumn(BUCKET, f"min({quoted(BUCKET)})", pa.int64(), quoted(BUCKET))

Partial = tuple[pa.RecordBatch, Slots]
"""Partial rows, as runs hold them, and the upper halves of their slots."""


def closed_panes(shape: AggregateShape, partial: PartialShape, share: Share) -> Iterator[pa.RecordBatch]:
    """The results of the windows that close in this tick, of the share's hash range. Where the rows of the
    tick are many bytes, one part of the range after the other."""
    report, parts = share.report.sides[0], parts_of(shape, share)
    for hashes in parts:
        rows, kept = brought_and_kept(shape, partial.side, share, hashes)
        new = _made(shape, partial, rows.new_runs)
        yield from _closed(shape, partial, kept, new, share)
        release_sums(kept, report)
        if new is not None:
            _keep(shape, kept, new, share.tick, report)
    if len(parts) > 1:
        _, kept = brought_and_kept(shape, partial.side, share, HashRange.of_share(share))
    report.merged = merge_runs(kept, share.tick, MarkWriter(), lambda *rows: combined(shape, partial, *rows))


def parts_of(shape: NodeShape, share: Share) -> list[HashRange]:
    """The share's hash range; in parts, where the rows of the tick are many bytes."""
    held = sum(run.nbytes for run in share.work.sides[0].new_runs) // share.partitions
    parts = min(MOST_PARTS, -(-held // run_bytes(shape.memory)) or 1)
    first, places = share.partition * parts, share.partitions * parts
    return [
        HashRange.of_share(replace(share, partition=first + part, partitions=places)) for part in range(parts)
    ]


def brought_and_kept(
    shape: NodeShape, stored: SideShape, share: Share, hashes: HashRange
) -> tuple[SideSlice, SideSlice]:
    """Of a hash range the rows that the tick brought, and what is kept, in the form of ``stored``."""
    work = share.work.sides[0]
    brought = work.model_copy(update={"runs": [], "merges": []})
    there = work.model_copy(update={"new_runs": []})
    rows = SideSlice(shape.sides[0], brought, share.store, hashes, hashes)
    return rows, SideSlice(stored, there, share.store, hashes, hashes)


def combined(shape: AggregateShape, partial: PartialShape, batch: pa.RecordBatch, buckets: Slots) -> Partial:
    """One partial row for each pane and group."""
    hashes = _hashes(buckets, np.floor_divide(_starts(shape, batch), np.int64(partial.width)))
    rows = batch.append_column(BUCKET, pa.array(buckets))
    aggregates = [*partial.aggregates.combine, _BUCKET]
    groups = grouped_by_hash(rows, [shape.time, *shape.by], aggregates, hashes, in_order=False)
    return _stored(partial, groups)


def _made(shape: AggregateShape, partial: PartialShape, pieces: Sequence[RunSlice]) -> Partial | None:
    """The tick's rows as partial ones; None of none."""
    parts: list[Partial] = []
    held: list[RunSlice] = []
    for number, piece in enumerate(pieces, 1):
        held.append(piece)
        held_bytes = sum(size(whole(merged.rows.batch).columns) for merged in held)
        rows = sum(len(merged.rows) for merged in held)
        if number == len(pieces) or rows >= GROUPED_ROWS or held_bytes >= run_bytes(shape.memory):
            parts.append(_of_rows(shape, partial, held))
            held = []
    if len(parts) < 2:
        return parts[0] if parts else None
    together = one_batch([batch for batch, _ in parts])
    return combined(shape, partial, together, np.concatenate([buckets for _, buckets in parts]))


def _of_rows(shape: AggregateShape, partial: PartialShape, pieces: Sequence[RunSlice]) -> Partial:
    batch = one_batch([piece.rows.batch for piece in pieces])
    slots = np.concatenate([piece.rows.slots for piece in pieces])
    times = batch.column(shape.time).to_numpy(zero_copy_only=True)
    given = gather(shape.columns, batch, np.arange(batch.num_rows), None, NO_ROWS)
    columns = {name: given.column(name) for name in given.schema.names}
    panes = np.floor_divide(times, np.int64(partial.width))
    rows = pa.record_batch(columns | {NUMBER: pa.array(panes), BUCKET: pa.array(slots & BUCKET_MASK)})
    aggregates = [*partial.aggregates.make, _BUCKET]
    hashes = _hashes(slots, panes)
    groups = grouped_by_hash(rows, [NUMBER, *shape.by], aggregates, hashes, in_order=False)
    starts, _ = window_times(groups.column(NUMBER).to_numpy(), partial.width, partial.width)
    return _stored(partial, groups.set_column(0, shape.time, pa.array(starts)))


def _stored(partial: PartialShape, groups: pa.Table) -> Partial:
    schema = partial.side.schema
    arrays = [one_array(groups.column(name)) for name in schema.names]
    check_held("the partial aggregates of a tick", [pa.record_batch(arrays, names=schema.names)], MOST_BYTES)
    arrays = [narrowed(array, field.type) for array, field in zip(arrays, schema, strict=True)]
    buckets: Slots = groups.column(BUCKET).to_numpy()
    return pa.RecordBatch.from_arrays(arrays, schema=schema), buckets


def _closed(
    shape: AggregateShape, partial: PartialShape, kept: SideSlice, new: Partial | None, share: Share
) -> Iterator[pa.RecordBatch]:
    before, now = limits(shape, kept)
    since, until = last_end(shape, before), last_end(shape, now)
    chosen = []
    for piece in kept.old:
        rows = np.sort(passed(piece, shape.time, before, until))
        look_ahead(shape, share, piece.rows.batch, rows, since, until)
        if len(rows):
            chosen.append(of_piece(piece, rows))
    if new is not None:
        rows = np.flatnonzero(below(_starts(shape, new[0]), until))
        look_ahead(shape, share, new[0], rows, since, until)
        if len(rows):
            chosen.append((*new, rows))
    for part in in_parts(chosen, shape.memory):
        batches = [take_rows(batch, rows) for batch, _, rows in part]
        check_held(f'the partial aggregates of "{shape.query}" that a tick closes', batches, shape.memory)
        batch, slots = one_batch(batches), np.concatenate([slots[rows] for _, slots, rows in part])
        for rows, numbers in closing(_starts(shape, batch), shape.size, shape.slide, since, until):
            of_windows = take_rows(batch, rows).append_column(NUMBER, pa.array(numbers))
            hashes = _hashes(slots[rows], numbers)
            groups = grouped_by_hash(of_windows, [*shape.by, NUMBER], partial.aggregates.finish, hashes)
            starts, ends = window_times(groups.column(NUMBER).to_numpy(), shape.size, shape.slide)
            yield from cut(shape, result_rows(shape, groups, starts, ends, dict(shape.keys)))


def release_sums(kept: SideSlice, report: SideReport) -> None:
    """Release kept rows below the limits; the rows that they stand for are grouped."""
    for piece in kept.old:
        rows = kept.released(piece, is_new=False)
        if len(rows):
            stood_for = int(piece.rows.batch.column(ROWS).to_numpy(zero_copy_only=True)[rows].sum())
            report.released[piece.name] = report.released.get(piece.name, 0) + len(rows)
            report.released_rows[piece.name] = report.released_rows.get(piece.name, 0) + stood_for
            count(report, "grouped", stood_for)


def _keep(shape: AggregateShape, kept: SideSlice, new: Partial, tick: int, report: SideReport) -> None:
    """Write the partial rows of panes that are in windows still open."""
    batch, buckets = new
    gone = below(_starts(shape, batch), kept.work.new_limits.get(shape.time, float("-inf")))
    stand_for = batch.column(ROWS).to_numpy(zero_copy_only=True)
    count(report, "grouped", int(stand_for[gone].sum()))
    if gone.all():
        return
    rows = np.flatnonzero(~gone)
    layout = kept.task.layout
    sorted_rows, _ = sort_rows(take_rows(batch, rows), buckets[rows], layout, kept.work.index)
    run = write_run(
        kept.store,
        kept.task.arrangement,
        sorted_rows,
        layout,
        tick=tick,
        group=f"{tick}-new",
        stands_for=int(stand_for[rows].sum()),
    )
    report.inserted.append(LiveRun(run=run))


def _hashes(slots: Slots, numbers: Numbers) -> Slots:
    """Equal for rows of equal keys in one window, or pane, of which these are the numbers."""
    return (slots & BUCKET_MASK) | (numbers & TIME_MASK)


def _starts(shape: AggregateShape, batch: pa.RecordBatch) -> Slots:
    """Of the panes."""
    starts: Slots = batch.column(shape.time).to_numpy(zero_copy_only=True)
    return starts
