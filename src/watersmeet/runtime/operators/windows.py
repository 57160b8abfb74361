"""Windows in append mode: rows or partial aggregates, grouped when a window closes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from watersmeet.conditions import ExactBand, Key
from watersmeet.event_time import (
    ENDED,
    NEVER,
    Side,
    TimeColumn,
    TimeComparison,
    TimeConstant,
    Times,
    TimeSum,
    Watermark,
    are_below,
    saturating_add,
)
from watersmeet.kernel.aggregate import (
    ROWS,
    AggregateColumn,
    aggregate_groups,
    group_numbers,
    quote_identifier,
)
from watersmeet.kernel.batches import (
    MAX_COLUMN_BYTES,
    cut_points,
    narrow_offsets,
    one_array,
    one_batch,
    size,
    take_rows,
)
from watersmeet.kernel.gather import Columns, as_one_batch, gather, row_sizes
from watersmeet.kernel.groups import aggregate_by_hash
from watersmeet.kernel.match.pairs import PairCondition, find
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.ordinals import to_native
from watersmeet.kernel.slots import BUCKET_MASK, TIME_MASK, Slots
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.kernel.windows import MAX_WINDOW_PAIRS, Numbers, closing_windows, sessions, window_times
from watersmeet.measure import Measured
from watersmeet.names import ours
from watersmeet.runtime.messages.reports import SideReport
from watersmeet.runtime.messages.shapes import (
    AggregateShape,
    NodeShape,
    PartialShape,
    SideShape,
    WindowGroupShape,
)
from watersmeet.runtime.operators.existence import evict_rows
from watersmeet.runtime.tasks.memory import check_batches, max_run_bytes
from watersmeet.runtime.tasks.merge import merge_runs
from watersmeet.runtime.tasks.results import NO_ROWS, count, report_min_alive, split_batches
from watersmeet.runtime.tasks.side import HashRange, RunSlice, SideSlice, TaskPartition
from watersmeet.spec.model import WINDOW_END, WINDOW_START, WindowKind
from watersmeet.state.manifest import LiveRun
from watersmeet.state.marks import MarkWriter
from watersmeet.state.runs.writer import sort_rows, write_run

# What all windows share within a tick: limits, rows by their time, results as rows of the node.

NUMBER = ours("window")
"""Column of rows to be grouped: the number of their window, or pane."""


def find_limits(shape: AggregateShape | WindowGroupShape, own: SideSlice) -> tuple[Watermark, Watermark]:
    """Return the time limits of the last tick and of this one.

    Rows below a limit are released; rows of sessions below it have been checked.
    """
    before, now = (limits.get(shape.time, NEVER) for limits in (own.work.old_limits, own.work.new_limits))
    return before, now


def last_window_end(shape: AggregateShape | WindowGroupShape, limit: Watermark) -> Watermark:
    """Return the end of the last window that starts below ``limit``, which is a window start."""
    return limit if isinstance(limit, float) else limit - shape.slide + shape.size


def select_passed_rows(piece: RunSlice, column: str, since: Watermark, now: Watermark) -> Rows:
    """Return the rows of the slice with a time in [since, now), ordered by time."""
    rows = piece.run.between(column, since, now)
    return rows[(rows >= piece.start) & (rows < piece.stop)] - piece.start


def count_window_rows(
    shape: AggregateShape,
    share: TaskPartition,
    batch: Columns,
    rows: Rows,
    since: Watermark,
    until: Watermark,
) -> None:
    """Count the rows, and their bytes, that pairing rows with windows yields at most.

    Only windows that end in (``since``, ``until``] count.

    Raises:
        ManyMatches: the counts exceed the task's limit.
    """
    if not share.is_bounded or not len(rows):
        return
    of_a_row = -(-shape.size // shape.slide)
    if since > NEVER and until < ENDED:
        of_a_row = min(of_a_row, (int(until) - int(since)) // shape.slide)
    share.count_candidates(len(rows) * of_a_row)
    share.holds(int(row_sizes(batch, batch.schema.names, rows).sum()) * of_a_row)


ChosenBatchRows = tuple[Columns, Slots, Rows]
"""Rows of a batch, and the slots of all its rows."""


def choose_of_piece(piece: RunSlice, rows: Rows) -> ChosenBatchRows:
    return piece.rows.batch, piece.rows.slots, rows


def split_by_hash(choices: Sequence[ChosenBatchRows], memory: int) -> Iterator[list[ChosenBatchRows]]:
    """Yield the rows to group: all at once, or, if they are large, one hash range at a time.

    Rows of one group stay together. Cost: all these rows, for each part.
    """
    rows = [chosen for *_, chosen in choices]
    of_rows = [row_sizes(batch, batch.schema.names, chosen) for batch, _, chosen in choices]
    if sum(int(sizes.sum()) for sizes in of_rows) <= max_run_bytes(memory):
        if choices:
            yield list(choices)
        return
    hashes = [slots[chosen] & BUCKET_MASK for _, slots, chosen in choices]
    distinct, place = np.unique(np.concatenate(hashes), return_inverse=True)
    held = np.bincount(place, weights=np.concatenate(of_rows)).astype(np.int64)
    for low, high in pairwise(cut_points(held, max_run_bytes(memory))):
        own = [(given >= distinct[low]) & (given <= distinct[high - 1]) for given in hashes]
        yield [
            (batch, slots, chosen[mine])
            for (batch, slots, _), chosen, mine in zip(choices, rows, own, strict=True)
            if mine.any()
        ]


# sessions


def find_session_ends(times: Times, keys: Numbers, gap: int) -> Rows:
    """Find the rows that no other row of the same key follows within the gap."""
    order = np.lexsort((times, keys))
    same = np.zeros(len(order), dtype=np.bool_)
    same[1:] = keys[order][1:] == keys[order][:-1]
    numbers = sessions(times[order], same, gap)
    ends = np.ones(len(order), dtype=np.bool_)
    ends[:-1] = numbers[1:] != numbers[:-1]
    return order[ends]


def find_last_rows(times: Times, keys: Numbers) -> Rows:
    """Find the row with the maximum time of each key."""
    order = np.lexsort((times, keys))
    greatest = np.ones(len(order), dtype=np.bool_)
    greatest[:-1] = keys[order][1:] != keys[order][:-1]
    return order[greatest]


def build_later_condition(by: Sequence[str], column: str, lower: int | None, upper: int) -> PairCondition:
    """Build the condition: right rows of the same keys as a left row that are later than it.

    The difference of the times is between ``lower`` and ``upper``.
    """
    time = Measured(column)
    left, right = TimeColumn(Side.LEFT, column), TimeColumn(Side.RIGHT, column)
    comparisons = [TimeComparison(TimeSum(right, left, -1), "<=", TimeConstant(upper))]
    if lower is not None:
        comparisons.append(TimeComparison(TimeSum(right, left, -1), ">=", TimeConstant(lower)))
    return PairCondition(
        keys=tuple(Key(key, key, null_safe=True) for key in by),
        bands=(ExactBand(time, time, lower, upper),),
        comparisons=tuple(comparisons),
        rechecks=(),
        slack=max(upper, 1),
        residual=None,
        residual_columns=(),
    )


def build_result_rows(
    shape: AggregateShape, groups: pa.Table, starts: Times, ends: Times, held: Mapping[str, str]
) -> pa.RecordBatch:
    """Build the result rows of windows from their groups.

    Wide columns may have 64-bit offsets.

    Args:
        held: columns that have another name in ``groups``.
    """
    kind = shape.row_schema.field(WINDOW_START).type
    windows = {WINDOW_START: starts, WINDOW_END: ends}
    arrays = []
    for field in shape.row_schema:
        if field.name in windows:
            arrays.append(to_native(pa.array(windows[field.name]), kind))
        else:
            arrays.append(one_array(groups.column(held.get(field.name, field.name))))
    return pa.RecordBatch.from_arrays(arrays, names=shape.row_schema.names)


# Windows that close, for one hash range of grouping keys, from partial aggregates: no row is kept.
#
# A pane is a stretch of time as wide as the greatest common divisor of a window's size and slide, so that
# every window consists of whole panes (of TUMBLE: of one). The tick's rows are grouped by pane and keys;
# what is kept is one partial row for each, hashed as its rows are, with the pane's start as its time.
# Partial rows of one pane and group that came in different ticks are combined when their runs are merged.
# A window that closes is made of the partial rows of its panes. They are released as rows are: by a plain
# limit on the time.

MAX_PARTS = 1_024
"""Into so many parts, at most, a task divides its hash range."""
GROUPED_ROWS = 1_000_000
"""About so many of the tick's rows are grouped at once."""

BUCKET = ours("bucket")
_BUCKET = AggregateColumn(BUCKET, f"min({quote_identifier(BUCKET)})", pa.int64(), quote_identifier(BUCKET))

Partial = tuple[pa.RecordBatch, Slots]
"""Partial rows, as runs hold them, and the upper halves of their slots."""


def emit_closed_panes(
    shape: AggregateShape, partial: PartialShape, share: TaskPartition
) -> Iterator[pa.RecordBatch]:
    """Emit the results of the windows in the hash range that close in this tick.

    If the rows of the tick are large, process the hash range in parts, one after the other.
    """
    report, parts = share.report.sides[0], split_hash_range(shape, share)
    for hashes in parts:
        rows, kept = split_new_and_retained(shape, partial.side, share, hashes)
        new = _build_partials(shape, partial, rows.new_runs)
        yield from _emit_closed_partials(shape, partial, kept, new, share)
        release_sums(kept, report)
        if new is not None:
            _keep(shape, kept, new, share.tick, report)
    if len(parts) > 1:
        _, kept = split_new_and_retained(shape, partial.side, share, HashRange.of_share(share))
    report.merged = merge_runs(
        kept, share.tick, MarkWriter(), lambda *rows: combine_partials(shape, partial, *rows)
    )


def split_hash_range(shape: NodeShape, share: TaskPartition) -> list[HashRange]:
    """Return the hash range of the task partition; in parts, if the rows of the tick are large."""
    held = sum(run.nbytes for run in share.work.sides[0].new_runs) // share.partitions
    parts = min(MAX_PARTS, -(-held // max_run_bytes(shape.memory)) or 1)
    first, places = share.partition * parts, share.partitions * parts
    return [
        HashRange.of_share(replace(share, partition=first + part, partitions=places)) for part in range(parts)
    ]


def split_new_and_retained(
    shape: NodeShape, stored: SideShape, share: TaskPartition, hashes: HashRange
) -> tuple[SideSlice, SideSlice]:
    """Build two slices of a hash range: the rows of the tick, and the retained rows.

    The retained rows have the form of ``stored``.
    """
    work = share.work.sides[0]
    brought = work.model_copy(update={"runs": [], "merges": []})
    there = work.model_copy(update={"new_runs": []})
    rows = SideSlice(shape.sides[0], brought, share.store, hashes, hashes)
    return rows, SideSlice(stored, there, share.store, hashes, hashes)


def combine_partials(
    shape: AggregateShape, partial: PartialShape, batch: pa.RecordBatch, buckets: Slots
) -> Partial:
    """Combine partial rows into one for each pane and group."""
    hashes = _combine_hashes(buckets, np.floor_divide(_pane_starts(shape, batch), np.int64(partial.width)))
    rows = batch.append_column(BUCKET, pa.array(buckets))
    aggregates = [*partial.aggregates.combine, _BUCKET]
    groups = aggregate_by_hash(rows, [shape.time, *shape.by], aggregates, hashes, in_order=False)
    return _encode_partials(partial, groups)


def _build_partials(
    shape: AggregateShape, partial: PartialShape, pieces: Sequence[RunSlice]
) -> Partial | None:
    """Aggregate the tick's rows to partial rows; return None if there are none."""
    parts: list[Partial] = []
    held: list[RunSlice] = []
    for number, piece in enumerate(pieces, 1):
        held.append(piece)
        held_bytes = sum(size(as_one_batch(merged.rows.batch).columns) for merged in held)
        rows = sum(len(merged.rows) for merged in held)
        if number == len(pieces) or rows >= GROUPED_ROWS or held_bytes >= max_run_bytes(shape.memory):
            parts.append(_aggregate_pieces(shape, partial, held))
            held = []
    if len(parts) < 2:
        return parts[0] if parts else None
    together = one_batch([batch for batch, _ in parts])
    return combine_partials(shape, partial, together, np.concatenate([buckets for _, buckets in parts]))


def _aggregate_pieces(shape: AggregateShape, partial: PartialShape, pieces: Sequence[RunSlice]) -> Partial:
    batch = one_batch([piece.rows.batch for piece in pieces])
    slots = np.concatenate([piece.rows.slots for piece in pieces])
    times = batch.column(shape.time).to_numpy(zero_copy_only=True)
    given = gather(shape.columns, batch, np.arange(batch.num_rows), None, NO_ROWS)
    columns = {name: given.column(name) for name in given.schema.names}
    panes = np.floor_divide(times, np.int64(partial.width))
    rows = pa.record_batch(columns | {NUMBER: pa.array(panes), BUCKET: pa.array(slots & BUCKET_MASK)})
    aggregates = [*partial.aggregates.make, _BUCKET]
    hashes = _combine_hashes(slots, panes)
    groups = aggregate_by_hash(rows, [NUMBER, *shape.by], aggregates, hashes, in_order=False)
    starts, _ = window_times(groups.column(NUMBER).to_numpy(), partial.width, partial.width)
    return _encode_partials(partial, groups.set_column(0, shape.time, pa.array(starts)))


def _encode_partials(partial: PartialShape, groups: pa.Table) -> Partial:
    schema = partial.side.schema
    arrays = [one_array(groups.column(name)) for name in schema.names]
    check_batches(
        "the partial aggregates of a tick", [pa.record_batch(arrays, names=schema.names)], MAX_COLUMN_BYTES
    )
    arrays = [narrow_offsets(array, field.type) for array, field in zip(arrays, schema, strict=True)]
    buckets: Slots = groups.column(BUCKET).to_numpy()
    return pa.RecordBatch.from_arrays(arrays, schema=schema), buckets


def _emit_closed_partials(
    shape: AggregateShape, partial: PartialShape, kept: SideSlice, new: Partial | None, share: TaskPartition
) -> Iterator[pa.RecordBatch]:
    before, now = find_limits(shape, kept)
    since, until = last_window_end(shape, before), last_window_end(shape, now)
    chosen = []
    for piece in kept.old:
        rows = np.sort(select_passed_rows(piece, shape.time, before, until))
        count_window_rows(shape, share, piece.rows.batch, rows, since, until)
        if len(rows):
            chosen.append(choose_of_piece(piece, rows))
    if new is not None:
        rows = np.flatnonzero(are_below(_pane_starts(shape, new[0]), until))
        count_window_rows(shape, share, new[0], rows, since, until)
        if len(rows):
            chosen.append((*new, rows))
    for part in split_by_hash(chosen, shape.memory):
        batches = [take_rows(batch, rows) for batch, _, rows in part]
        check_batches(f'the partial aggregates of "{shape.query}" that a tick closes', batches, shape.memory)
        batch, slots = one_batch(batches), np.concatenate([slots[rows] for _, slots, rows in part])
        for rows, numbers in closing_windows(
            _pane_starts(shape, batch), shape.size, shape.slide, since, until
        ):
            of_windows = take_rows(batch, rows).append_column(NUMBER, pa.array(numbers))
            hashes = _combine_hashes(slots[rows], numbers)
            groups = aggregate_by_hash(of_windows, [*shape.by, NUMBER], partial.aggregates.finish, hashes)
            starts, ends = window_times(groups.column(NUMBER).to_numpy(), shape.size, shape.slide)
            yield from split_batches(shape, build_result_rows(shape, groups, starts, ends, dict(shape.keys)))


def release_sums(kept: SideSlice, report: SideReport) -> None:
    """Release rows below the limits; the rows that they stand for are grouped."""
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
    gone = are_below(_pane_starts(shape, batch), kept.work.new_limits.get(shape.time, float("-inf")))
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


def _combine_hashes(slots: Slots, numbers: Numbers) -> Slots:
    """Combine hashes with window or pane numbers.

    The result is equal for rows of equal keys in one window or pane.
    """
    return (slots & BUCKET_MASK) | (numbers & TIME_MASK)


def _pane_starts(shape: AggregateShape, batch: pa.RecordBatch) -> Slots:
    """Return the start times of the panes."""
    starts: Slots = batch.column(shape.time).to_numpy(zero_copy_only=True)
    return starts


# Windows that close, for one hash range of grouping keys: rows are grouped and aggregated, and released.
#
# Where aggregates can be had from partial ones, no row is kept (`runtime.operators.windows`); this is the
# rest. TUMBLE and HOP: rows are released by a plain limit on the time; the windows that close in a tick
# are those that begin between the limits of the last tick and of this one. SESSION: a row is the last of
# its session when the watermark has passed it by more than the gap and no row of its keys follows within
# the gap. Rows that the watermark passes are looked up in the order of time; only for those that are last
# are others looked up by key. Rows of closed sessions are no range of time: they are marked as gone.

TIME = ours("time")
"""Column of the rows of sessions to be grouped: the time."""


def aggregate_rows(shape: AggregateShape, share: TaskPartition) -> Iterator[pa.RecordBatch]:
    """Emit the results of the windows in the hash range that close in this tick."""
    if shape.partial is not None:
        yield from emit_closed_panes(shape, shape.partial, share)
        return
    hashes = HashRange.of_share(share)
    own = SideSlice(shape.sides[0], share.work.sides[0], share.store, hashes, hashes)
    report = share.report.sides[0]
    yield from _emit_closed_windows(shape, own, share)
    marks = MarkWriter()
    report.merged = merge_runs(own, share.tick, marks)
    merged = own.work.list_merged_runs()
    pieces = [*own.old, *own.new_runs]
    for piece in pieces:
        if piece.name not in merged:
            piece.keep_marks(marks)
    report.marks = marks.write(share.store, share.tick)
    if shape.kind is WindowKind.SESSION:
        report_min_alive(own, pieces, report)


def _emit_closed_windows(
    shape: AggregateShape, own: SideSlice, share: TaskPartition
) -> Iterator[pa.RecordBatch]:
    """Emit the results of closed windows, and release their rows or mark them as gone."""
    report = share.report.sides[0]
    if shape.kind is WindowKind.SESSION:
        yield from _emit_closed_sessions(shape, own, report)
        return
    before, now = find_limits(shape, own)
    since, until = last_window_end(shape, before), last_window_end(shape, now)
    chosen = []
    for piece in [*own.old, *own.new_runs]:
        rows = np.sort(select_passed_rows(piece, shape.time, before, until))
        count_window_rows(shape, share, piece.rows.batch, rows, since, until)
        if len(rows):
            chosen.append(choose_of_piece(piece, rows))
    for part in split_by_hash(chosen, shape.memory):
        batches = [take_rows(batch, rows) for batch, _, rows in part]
        check_batches(f'the rows of windows of "{shape.query}" that close in a tick', batches, shape.memory)
        batch = one_batch(batches)
        times = batch.column(shape.time).to_numpy(zero_copy_only=True)
        most = max(1, min(MAX_WINDOW_PAIRS, shape.memory * batch.num_rows // max(1, size(batch.columns))))
        for rows, numbers in closing_windows(times, shape.size, shape.slide, since, until, most):
            yield from _emit_results(shape, batch, rows, numbers, times)
    for pieces, is_new in ((own.old, False), (own.new_runs, True)):
        for piece in pieces:
            released = len(own.released(piece, is_new=is_new))
            if released:
                report.released[piece.name] = report.released.get(piece.name, 0) + released
                count(report, "grouped", released)


# sessions


def _emit_closed_sessions(
    shape: AggregateShape, own: SideSlice, report: SideReport
) -> Iterator[pa.RecordBatch]:
    before, now = find_limits(shape, own)
    closed = []
    for pieces, since in ((own.old, before), (own.new_runs, NEVER)):
        for piece in pieces:
            rows = select_passed_rows(piece, shape.time, since, now)
            if len(rows):
                closed.append(choose_of_piece(piece, rows))
    for part in split_by_hash(closed, shape.memory):
        ends = _find_last_session_rows(shape, own, part)
        if ends is not None:
            yield from _emit_ended_sessions(shape, own, ends, report)


def _emit_ended_sessions(
    shape: AggregateShape, own: SideSlice, ends: SortedRows, report: SideReport
) -> Iterator[pa.RecordBatch]:
    """Emit the results of sessions that close.

    Args:
        ends: the last row of the last closing session of each group.
    """
    condition = build_later_condition(shape.by, shape.time, None, 0)
    chosen = []
    for piece in [*own.old, *own.new_runs]:
        hits = [row for _, row in find(condition, ends, Side.LEFT, piece.rows)]
        rows = np.sort(np.concatenate(hits)) if hits else NO_ROWS
        rows = rows[~piece.read_marks("gone", rows)]
        if len(rows):
            evict_rows(piece, rows, report, "grouped")
            chosen.append(choose_of_piece(piece, rows))
    for part in split_by_hash(chosen, shape.memory):
        batches = [take_rows(batch, rows) for batch, _, rows in part]
        check_batches(f'the rows of sessions of "{shape.query}" that close in a tick', batches, shape.memory)
        batch = one_batch(batches)
        times, keys = _read_times(shape, batch), group_numbers(batch, shape.by)
        order = np.lexsort((times, keys))
        same = np.zeros(len(order), dtype=np.bool_)
        same[1:] = keys[order][1:] == keys[order][:-1]
        yield from _emit_results(shape, batch, order, sessions(times[order], same, shape.size), times)


def _find_last_session_rows(
    shape: AggregateShape, own: SideSlice, choices: Sequence[ChosenBatchRows]
) -> SortedRows | None:
    """Find, for every group with closing sessions, the last row of the last closing session.

    Args:
        choices: the rows that the watermark passes.

    Returns:
        The rows, or None if no session closes.
    """
    batches = [take_rows(batch, rows) for batch, _, rows in choices]
    check_batches(f'the rows of "{shape.query}" that the watermark passes in a tick', batches, shape.memory)
    batch, places = one_batch(batches), np.concatenate([slots[rows] for _, slots, rows in choices])
    chosen = find_session_ends(_read_times(shape, batch), group_numbers(batch, shape.by), shape.size)
    last, _ = sort_rows(take_rows(batch, chosen), places[chosen], own.task.layout)
    follows = build_later_condition(shape.by, shape.time, 1, shape.size)
    is_open = np.zeros(len(last), dtype=np.bool_)
    for piece in [*own.old, *own.new_runs]:
        for needle, _ in find(follows, last, Side.LEFT, piece.rows):
            is_open[needle] = True
    closed = np.flatnonzero(~is_open)
    if not len(closed):
        return None
    batch, places = take_rows(last.batch, closed), last.slots[closed]
    chosen = find_last_rows(_read_times(shape, batch), group_numbers(batch, shape.by))
    return sort_rows(take_rows(batch, chosen), places[chosen], own.task.layout)[0]


# results


def _read_times(shape: AggregateShape, batch: pa.RecordBatch) -> Times:
    times: Times = batch.column(shape.time).to_numpy(zero_copy_only=True)
    return times


def _emit_results(
    shape: AggregateShape, batch: pa.RecordBatch, rows: Rows, numbers: Numbers, times: Times
) -> Iterator[pa.RecordBatch]:
    """Emit one row per group, or, if Spark aggregates, the rows with their windows."""
    given = gather(shape.columns, batch, rows, None, NO_ROWS)
    if shape.aggregates is None:
        yield from split_batches(shape, _with_windows(shape, given, numbers, times[rows]))
        return
    columns = {name: given.column(name) for name in given.schema.names} | {NUMBER: pa.array(numbers)}
    is_session = shape.kind is WindowKind.SESSION
    if is_session:
        columns[TIME] = pa.array(times[rows])
    table = pa.table(columns)
    aggregates = [*shape.aggregates, *(_SPAN if is_session else ())]
    groups = aggregate_groups(table, [*shape.by, NUMBER], aggregates)
    if is_session:
        starts, last = (groups.column(aggregate.name).to_numpy() for aggregate in _SPAN)
        ends = saturating_add(last, shape.size)
    else:
        starts, ends = window_times(groups.column(NUMBER).to_numpy(), shape.size, shape.slide)
    yield from split_batches(shape, build_result_rows(shape, groups, starts, ends, dict(shape.keys)))


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
    return build_result_rows(shape, pa.Table.from_batches([given]), starts, ends, {})
