"""Merge runs, and adopt runs that another side merged."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from watersmeet.kernel.aggregate import ROWS
from watersmeet.kernel.batches import cut_points, one_batch, same_rows, size, take_rows
from watersmeet.kernel.gather import as_one_batch, pieces_of, reorder_rows, row_sizes
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.slots import BUCKET_MASK, Slots, order_of
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.runtime.messages.reports import SideReport
from watersmeet.runtime.tasks.memory import max_run_bytes
from watersmeet.runtime.tasks.side import RunSlice, SideSlice
from watersmeet.state.manifest import LiveRun
from watersmeet.state.marks import MarkArray, MarkKind, MarkWriter
from watersmeet.state.runs.layout import Run, RunLayout, read_places, write_places
from watersmeet.state.runs.reader import OpenRun
from watersmeet.state.runs.writer import sort_rows, write_run

# Merging runs: many small ones become one, released rows fall away, marks come along.
#
# The driver says which runs (`runtime.coordinator.merge_policy`), every join task does its hash range, after
# the tick's marks. What is merged of wide rows becomes several runs (`max_run_bytes`), which count as one
# group.
#
# Runs that stand for no row of their side (deletes that are remembered) are merged with each other only.
#
# Merging partial aggregates combines those of one pane and group, in parts of the hash range, each of
# which leaves a run.

GROUP_ROWS = 2_000_000
GROUP_BYTES = 1 << 30


Combine = Callable[[pa.RecordBatch, Slots], tuple[pa.RecordBatch, Slots]]
"""Partial rows with the upper halves of their slots, to fewer ones."""


def merge_runs(own: SideSlice, tick: int, marks: MarkWriter, combine: Combine | None = None) -> list[LiveRun]:
    """Do the merges that the side's work asks for, within this task's range; their marks go to ``marks``.

    Args:
        combine: of runs of partial aggregates, which have no marks but ``gone``.
    """
    by_name: dict[str, list[RunSlice]] = {}
    for piece in own.old:
        by_name.setdefault(piece.name, []).append(piece)
    merged = []
    for names in own.work.merges:
        pieces = [piece for name in names for piece in by_name.get(name, ())]
        group = _group(tick, names)
        if pieces and combine is not None:
            merged += list(_combine_runs(own, pieces, tick, group, combine))
        elif pieces:
            merged += list(_merge(own, pieces, tick, group, marks))
    for names in own.work.shared_merges:
        pieces = [piece for name in names for piece in by_name.get(name, ())]
        if pieces:
            merged += list(_merge(own, pieces, tick, _group(tick, names), marks, names))
    return merged


def _group(tick: int, names: Sequence[str]) -> str:
    return f"{tick}-{zlib.crc32(names[0].encode()):08x}"


def _merge(
    own: SideSlice,
    pieces: list[RunSlice],
    tick: int,
    group: str,
    marks: MarkWriter,
    for_all: Sequence[str] = (),
) -> Iterator[LiveRun]:
    """Merge runs into one run, or into several if the rows are large.

    Args:
        for_all: for runs that other sides share, the names of all merged runs.
    """
    kinds = sorted({kind for piece in pieces for kind in (*piece.live.marks, *piece.touched)})
    batches, slots, chosen, start = [], [], [], 0
    kept_marks: dict[MarkKind, list[MarkArray]] = {kind: [] for kind in kinds}
    layout = own.task.layout if not for_all or own.task.shared is None else own.task.shared.layout
    number_of = {name: number for number, name in enumerate(for_all)}
    retained, numbers, before = [], [], []
    for piece in pieces:
        live = piece.run.live(own.work.new_limits, piece.start, piece.stop)
        if "gone" in kinds:
            live &= ~piece.marks("gone")
        kept = live.copy()
        for limits in own.work.others if for_all else ():
            kept |= piece.run.live(limits, piece.start, piece.stop)
        rows = np.flatnonzero(kept)
        if piece.row_filter is not None:
            rows = rows[piece.row_filter(rows)]
        if len(rows) == 0:
            continue
        batches.append(piece.batch(layout))
        chosen.append(start + rows)
        start += len(piece.rows)
        if for_all:
            retained.append(live[rows])
            numbers.append(np.full(len(rows), number_of[piece.name]))
            before.append(piece.start + rows)
        slots.append(piece.rows.slots[rows])
        for kind in kinds:
            kept_marks[kind].append(piece.marks(kind)[rows])
    if not batches:
        return
    together, places = np.concatenate(slots), np.concatenate(chosen)
    marks_by_kind = {kind: np.concatenate(kept) for kind, kept in kept_marks.items() if kind != "gone"}
    if for_all:
        released, number, row = ~np.concatenate(retained), np.concatenate(numbers), np.concatenate(before)
    merged = 0
    for rows in _split_merged_rows(batches, places, together, max_run_bytes(own.task.memory)):
        part = reorder_rows(pieces_of(batches), places[rows])
        sorted_rows, order = sort_rows(part, together[rows], layout, own.work.index)
        stands_for = None if pieces[0].run.run.stands_for is None else 0
        live_run = LiveRun(run=_write_run(own, pieces, sorted_rows, tick, group, stands_for, layout))
        for kind, marks_kept in marks_by_kind.items():
            marks.add(live_run.run.name, kind, 0, marks_kept[rows][order])
        merged += live_run.run.rows
        if for_all:
            live_run.released = int(released[rows].sum())
            live_run.merged_from = write_places(
                own.store, tick, tuple(for_all), number[rows][order], row[rows][order]
            )
        yield live_run
    same_rows(f'merged runs of "{own.task.name}"', len(places), merged)


def _split_merged_rows(
    batches: Sequence[pa.RecordBatch], places: Rows, slots: Slots, most: int
) -> Iterator[Rows]:
    """Yield the numbers of the merged rows, all at once or in parts of about ``most`` bytes.

    Parts are in the order of the rows' hashes.
    """
    if sum(size(batch.columns) for batch in batches) <= most:
        yield np.arange(len(places))
        return
    order = order_of(slots)
    of_rows = row_sizes(pieces_of(batches), batches[0].schema.names, places[order])
    for low, high in pairwise(cut_points(of_rows, most)):
        yield order[low:high]


def _combine_runs(
    own: SideSlice, pieces: list[RunSlice], tick: int, group: str, combine: Combine
) -> Iterator[LiveRun]:
    for ranges in zip(
        *(_choose_cuts(pieces, piece, max_run_bytes(own.task.memory)) for piece in pieces), strict=True
    ):
        batches, slots = [], []
        for piece, (first, end) in zip(pieces, ranges, strict=True):
            live = piece.run.live(own.work.new_limits, piece.start + first, piece.start + end)
            if "gone" in (*piece.live.marks, *piece.touched):
                live &= ~piece.marks("gone")[first:end]
            rows = first + np.flatnonzero(live)
            if len(rows):
                batches.append(take_rows(piece.rows.batch, rows))
                slots.append(piece.rows.slots[rows] & BUCKET_MASK)
        if batches:
            batch, buckets = combine(one_batch(batches), np.concatenate(slots))
            if not batch.num_rows:
                continue
            rows_stood_for = int(batch.column(ROWS).to_numpy(zero_copy_only=True).sum())
            sorted_rows, _ = sort_rows(batch, buckets, own.task.layout, own.work.index)
            yield LiveRun(run=_write_run(own, pieces, sorted_rows, tick, group, rows_stood_for))


def _choose_cuts(pieces: list[RunSlice], piece: RunSlice, most: int) -> list[tuple[int, int]]:
    """Choose the positions that divide ``piece`` by hash ranges common to all pieces.

    Each range has about `GROUP_ROWS` rows, or ``most`` bytes, of all pieces together.
    """
    largest = max(pieces, key=lambda p: len(p.rows)).rows.slots
    held = sum(size(as_one_batch(whole_piece.rows.batch).columns) for whole_piece in pieces)
    rows = sum(len(whole_piece.rows) for whole_piece in pieces)
    parts = max(-(-rows // GROUP_ROWS), -(-held // most))
    parts = min(parts, max(1, len(largest)))
    places = [len(largest) * part // parts for part in range(1, parts)]
    ends = np.searchsorted(piece.rows.slots, largest[places] & BUCKET_MASK).tolist()
    return list(zip([0, *ends], [*ends, len(piece.rows)], strict=True))


def _write_run(
    own: SideSlice,
    pieces: list[RunSlice],
    rows: SortedRows,
    tick: int,
    group: str,
    stands_for: int | None = None,
    layout: RunLayout | None = None,
) -> Run:
    return write_run(
        own.store,
        own.task.arrangement,
        rows,
        layout or own.task.layout,
        tick=max(piece.run.run.tick for piece in pieces),
        made_in=tick,
        level=1 + max(piece.run.run.level for piece in pieces),
        group=group,
        stands_for=stands_for,
    )


# Taking over runs that another side has merged: its rows are the same, what is known of them is one's
# own.
#
# The other side merged in the last tick, and kept every row that anybody still retained. Here each row is
# found again by where it was before (`state.runs.layout`): it gets its marks, and counts as released
# if it is.


def adopt_merged_runs(own: SideSlice, report: SideReport, marks: MarkWriter) -> None:
    """Do what the side's work says, within this task's range. ``marks``: takes what is known of the rows."""
    by_name: dict[str, RunSlice] = {piece.name: piece for piece in own.old}
    for live in own.work.taken_over:
        if own.cut.misses(live.run):
            continue
        opened = OpenRun.open(own.store, live.run, own.task.layout)
        start, stop = own.cut.of(opened.sorted_rows)
        if start == stop:
            continue
        assert live.merged_from is not None
        numbers, rows = read_places(own.store, live.merged_from, start, stop)
        retained = opened.live(own.work.new_limits, start, stop)
        taken: dict[MarkKind, MarkArray] = {}
        there = np.zeros(stop - start, dtype=np.bool_)
        for number in np.unique(numbers).tolist():
            piece = by_name.get(live.merged_from.runs[number])
            if piece is None:
                continue
            chosen = np.flatnonzero(numbers == number)
            before = rows[chosen] - piece.start
            there[chosen] = True
            for kind in {*piece.live.marks, *piece.touched}:
                marked = piece.marks(kind)[before]
                if kind not in taken:
                    taken[kind] = np.zeros(stop - start, dtype=marked.dtype)
                taken[kind][chosen] = marked
        same_rows(
            f'rows of "{own.task.name}" that another merged',
            int(retained.sum()),
            int((retained & there).sum()),
        )
        for kind, marked in sorted(taken.items()):
            if marked.any():
                marks.add(live.run.name, kind, start, marked)
        report.released[live.run.name] = int(len(retained) - retained.sum())
