"""Windows that close, for one hash range of grouping keys: rows are grouped and aggregated, and released.

Where aggregates can be had from partial ones, no row is kept (`engine.nodes.partial`); this is the rest.
TUMBLE and HOP: rows are released by a plain limit on the time; the windows that close in a tick are those
that begin between the limits of the last tick and of this one.
SESSION: a row is the last of its session when the watermark has passed it by more than the gap and no row of
its keys follows within the gap. Rows that the watermark passes are looked up in the order of time; only for
those that are last are others looked up by key. Rows of closed sessions are no range of time: they are marked
as gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from watersmeet.engine.messages.reports import SideReport
from watersmeet.engine.messages.shapes import AggregateShape
from watersmeet.engine.nodes.existence import mark_gone
from watersmeet.engine.nodes.partial import closed_panes
from watersmeet.engine.nodes.windows import (
    NUMBER,
    Chosen,
    in_parts,
    last_end,
    last_of_keys,
    later,
    limits,
    look_ahead,
    of_piece,
    passed,
    result_rows,
    without_follower,
)
from watersmeet.engine.tasks.cut import HashRange
from watersmeet.engine.tasks.memory import check_held
from watersmeet.engine.tasks.merge import merge_runs
from watersmeet.engine.tasks.results import NO_ROWS, count, cut, least_alive
from watersmeet.engine.tasks.share import Share
from watersmeet.engine.tasks.slice import SideSlice
from watersmeet.event_time import NEVER, Side, Times, saturating_add
from watersmeet.kernel.aggregate import AggregateColumn, group_numbers, grouped
from watersmeet.kernel.batches import one_batch, size, take_rows
from watersmeet.kernel.joined import gather
from watersmeet.kernel.match.pairs import find
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.kernel.windows import MOST_PAIRS, Numbers, closing, sessions, window_times
from watersmeet.names import ours
from watersmeet.spec.model import WindowKind
from watersmeet.state.marks import MarkWriter
from watersmeet.state.runs.written import sort_rows

TIME = ours("time")
"""Column of the rows of sessions to be grouped: the time."""


def aggregate_rows(shape: AggregateShape, share: Share) -> Iterator[pa.RecordBatch]:
    """The results of the windows that close in this tick, of the share's hash range."""
    if shape.partial is not None:
        yield from closed_panes(shape, shape.partial, share)
        return
    hashes = HashRange.of_share(share)
    own = SideSlice(shape.sides[0], share.work.sides[0], share.store, hashes, hashes)
    report = share.report.sides[0]
    yield from _closed(shape, own, share)
    marks = MarkWriter()
    report.merged = merge_runs(own, share.tick, marks)
    merged = own.work.merged_away()
    pieces = [*own.old, *own.new_runs]
    for piece in pieces:
        if piece.name not in merged:
            piece.keep_marks(marks)
    report.marks = marks.write(share.store, share.tick)
    if shape.kind is WindowKind.SESSION:
        least_alive(own, pieces, report)


def _closed(shape: AggregateShape, own: SideSlice, share: Share) -> Iterator[pa.RecordBatch]:
    """The results; rows are released, or marked as gone."""
    report = share.report.sides[0]
    if shape.kind is WindowKind.SESSION:
        yield from _closed_sessions(shape, own, report)
        return
    before, now = limits(shape, own)
    since, until = last_end(shape, before), last_end(shape, now)
    chosen = []
    for piece in [*own.old, *own.new_runs]:
        rows = np.sort(passed(piece, shape.time, before, until))
        look_ahead(shape, share, piece.rows.batch, rows, since, until)
        if len(rows):
            chosen.append(of_piece(piece, rows))
    for part in in_parts(chosen, shape.memory):
        batches = [take_rows(batch, rows) for batch, _, rows in part]
        check_held(f'the rows of windows of "{shape.query}" that close in a tick', batches, shape.memory)
        batch = one_batch(batches)
        times = batch.column(shape.time).to_numpy(zero_copy_only=True)
        most = max(1, min(MOST_PAIRS, shape.memory * batch.num_rows // max(1, size(batch.columns))))
        for rows, numbers in closing(times, shape.size, shape.slide, since, until, most):
            yield from _results(shape, batch, rows, numbers, times)
    for pieces, is_new in ((own.old, False), (own.new_runs, True)):
        for piece in pieces:
            released = len(own.released(piece, is_new=is_new))
            if released:
                report.released[piece.name] = report.released.get(piece.name, 0) + released
                count(report, "grouped", released)


# sessions


def _closed_sessions(shape: AggregateShape, own: SideSlice, report: SideReport) -> Iterator[pa.RecordBatch]:
    before, now = limits(shape, own)
    closed = []
    for pieces, since in ((own.old, before), (own.new_runs, NEVER)):
        for piece in pieces:
            rows = passed(piece, shape.time, since, now)
            if len(rows):
                closed.append(of_piece(piece, rows))
    for part in in_parts(closed, shape.memory):
        ends = _last_rows(shape, own, part)
        if ends is not None:
            yield from _closed_by(shape, own, ends, report)


def _closed_by(
    shape: AggregateShape, own: SideSlice, ends: SortedRows, report: SideReport
) -> Iterator[pa.RecordBatch]:
    """The results of sessions that close, by the last rows of each group's last one."""
    condition = later(shape.by, shape.time, None, 0)
    chosen = []
    for piece in [*own.old, *own.new_runs]:
        hits = [row for _, row in find(condition, ends, Side.LEFT, piece.rows)]
        rows = np.sort(np.concatenate(hits)) if hits else NO_ROWS
        rows = rows[~piece.are("gone", rows)]
        if len(rows):
            mark_gone(piece, rows, report, "grouped")
            chosen.append(of_piece(piece, rows))
    for part in in_parts(chosen, shape.memory):
        batches = [take_rows(batch, rows) for batch, _, rows in part]
        check_held(f'the rows of sessions of "{shape.query}" that close in a tick', batches, shape.memory)
        batch = one_batch(batches)
        times, keys = _times(shape, batch), group_numbers(batch, shape.by)
        order = np.lexsort((times, keys))
        same = np.zeros(len(order), dtype=np.bool_)
        same[1:] = keys[order][1:] == keys[order][:-1]
        yield from _results(shape, batch, order, sessions(times[order], same, shape.size), times)


def _last_rows(shape: AggregateShape, own: SideSlice, choices: Sequence[Chosen]) -> SortedRows | None:
    """Of every group with sessions that close, the last row of the last of them; None without any.
    ``choices``: the rows that the watermark passes."""
    batches = [take_rows(batch, rows) for batch, _, rows in choices]
    check_held(f'the rows of "{shape.query}" that the watermark passes in a tick', batches, shape.memory)
    batch, places = one_batch(batches), np.concatenate([slots[rows] for _, slots, rows in choices])
    chosen = without_follower(_times(shape, batch), group_numbers(batch, shape.by), shape.size)
    last, _ = sort_rows(take_rows(batch, chosen), places[chosen], own.task.layout)
    follows = later(shape.by, shape.time, 1, shape.size)
    is_open = np.zeros(len(last), dtype=np.bool_)
    for piece in [*own.old, *own.new_runs]:
        for needle, _ in find(follows, last, Side.LEFT, piece.rows):
            is_open[needle] = True
    closed = np.flatnonzero(~is_open)
    if not len(closed):
        return None
    batch, places = take_rows(last.batch, closed), last.slots[closed]
    chosen = last_of_keys(_times(shape, batch), group_numbers(batch, shape.by))
    return sort_rows(take_rows(batch, chosen), places[chosen], own.task.layout)[0]


# results


def _times(shape: AggregateShape, batch: pa.RecordBatch) -> Times:
    times: Times = batch.column(shape.time).to_numpy(zero_copy_only=True)
    return times


def _results(
    shape: AggregateShape, batch: pa.RecordBatch, rows: Rows, numbers: Numbers, times: Times
) -> Iterator[pa.RecordBatch]:
    """One row per group, or, where Spark aggregates, the rows with the windows that they are in."""
    given = gather(shape.columns, batch, rows, None, NO_ROWS)
    if shape.aggregates is None:
        yield from cut(shape, _with_windows(shape, given, numbers, times[rows]))
        return
    columns = {name: given.column(name) for name in given.schema.names} | {NUMBER: pa.array(numbers)}
    is_session = shape.kind is WindowKind.SESSION
    if is_session:
        columns[TIME] = pa.array(times[rows])
    table = pa.table(columns)
    aggregates = [*shape.aggregates, *(_SPAN if is_session else ())]
    groups = grouped(table, [*shape.by, NUMBER], aggregates)
    if is_session:
        starts, last = (groups.column(aggregate.name).to_numpy() for aggregate in _SPAN)
        ends = saturating_add(last, shape.size)
    else:
        starts, ends = window_times(groups.column(NUMBER).to_numpy(), shape.size, shape.slide)
    yield from cut(shape, result_rows(shape, groups, starts, ends, dict(shape.keys)))


_SPAN = (
    AggregateColumn(ours("least"), f'min("{TIME}")', pa.int64()),
    AggregateColumn(ours("greatest"), f'max("{TIME}")', pa.int64()),
)


def _with_windows(
    shape: AggregateShape, given: pa.RecordBatch, numbers: Numbers, times: Times
) -> pa.RecordBatch:
    if shape.kind is WindowKind.SESSION:
        first = np.flatnonzero(np.diff(numbers, prepend=-1))
        last = np.append(first[1:], len(numbers)) - 1
        starts, ends = times[first][numbers], saturating_add(times[last], shape.size)[numbers]
    else:
        starts, ends = window_times(numbers, shape.size, shape.slide)
    return result_rows(shape, pa.Table.from_batches([given]), starts, ends, {})
