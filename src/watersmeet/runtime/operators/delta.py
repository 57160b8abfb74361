"""Delta joins in a task: arrangements of the inputs, and the steps of each path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from watersmeet.event_time import MAX_TIME, MIN_TIME, Side, Watermark
from watersmeet.kernel.slots import hash_columns
from watersmeet.names import DIFF
from watersmeet.runtime.messages.shapes import (
    ArrangeShape,
    DeltaShape,
    LookupShape,
    PassShape,
    SideShape,
)
from watersmeet.runtime.messages.work import LookupView, SideWork
from watersmeet.runtime.tasks.changes import net_changes, report_marks, settle_changes
from watersmeet.runtime.tasks.feed import FeedWriter
from watersmeet.runtime.tasks.results import append_diffs, emit_rows, pad, pad_changes
from watersmeet.runtime.tasks.side import Everything, HashRange, RunSlice, SideSlice, TaskPartition
from watersmeet.state.manifest import LiveRun
from watersmeet.state.marks import MarkWriter

# What is kept for a delta join, in one hash range: the tick's changes of each input are summed, written
# as new runs, and given to the paths; those of an input that another query keeps come from there.

_CHUNK = 65_536


def arrange_rows(shape: ArrangeShape, share: TaskPartition) -> Iterator[pa.RecordBatch]:
    """Add each input's inserts, then its deletes of existing rows, to the paths; yield no row.

    Copies under other keys have the same effect, each in its own hash ranges.
    """
    marks, slices = MarkWriter(), list[tuple[int, SideSlice]]()
    own_range = HashRange.of_share(share)
    for place, side in enumerate(shape.sides):
        report = share.report.sides[place]
        own = SideSlice(side, share.work.sides[place], share.store, own_range, own_range)
        takers = _list_consumers(shape, share, place)
        if side.is_kept_elsewhere:
            if takers:
                _start_path(shape.changes[place], own, share, takers[0])
            continue
        changes = net_changes(own, report, final=shape.final)
        for change in changes:
            if change is not None and takers:
                chosen = np.arange(len(change.rows))
                leaving = shape.changes[place]
                for batch in pad_changes(leaving, Side.LEFT, change.rows.batch, chosen, change.diff):
                    share.count_emitted(batch, len(takers))
                    for taker in takers:
                        taker.add(batch)
        inserts, _ = changes
        settle_changes(own, inserts, share.tick, report, marks, looked_up_after=True)
        slices.append((place, own))
    written = marks.write(share.store, share.tick)
    for place, own in slices:
        report_marks(own, written, share.report.sides[place])
    yield from ()


def _start_path(shape: PassShape, own: SideSlice, share: TaskPartition, path: FeedWriter) -> None:
    """Start the path of an input that another query retains.

    The path gets the changes of the tick. If this query starts in this tick, the rows that the other
    query has retained so far come first.
    """
    for piece in SideSlice(own.task, own.work.backfill_work(), own.store, own.cut, own.cut).old:
        alive = np.flatnonzero(~piece.read_marks("gone", np.arange(len(piece.rows))))
        for low in range(0, len(alive), _CHUNK):
            chosen = alive[low : low + _CHUNK]
            ones = np.ones(len(chosen), dtype=np.int64)
            for batch in append_diffs(pad(shape, Side.LEFT, piece.rows.batch, chosen), ones):
                share.count_emitted(batch)
                path.add(batch)
    if own.new is not None:
        rows = own.new.rows.batch
        diffs = rows.column(DIFF).to_numpy(zero_copy_only=False)
        for batch in append_diffs(pad(shape, Side.LEFT, rows, np.arange(len(diffs))), diffs):
            share.count_emitted(batch)
            path.add(batch)


def _list_consumers(shape: ArrangeShape, share: TaskPartition, place: int) -> list[FeedWriter]:
    """List the consumers of an input's changes: its path unless closed, and other queries."""
    if place >= len(shape.changes):
        return []
    own = [] if place in share.work.closed else share.paths[place : place + 1]
    return [*own, *share.paths_abroad.get(place, ())]


# One step of the paths of a delta join, for one share: rows of each path meet those of an arrangement, as
# it was before the tick or as it is after it.
#
#     change of the last input that changed in a tick × earlier ones after it × later ones before it
#
# So each combination of rows that changed in one tick is put out by one path alone (semantics.md, section
# 5). With equality keys a task owns a hash range of the rows and of the arrangement. Without, it takes
# its share of the rows and looks at the whole arrangement, and so it does at one that is sorted by
# another key.


def delta_rows(shape: DeltaShape, share: TaskPartition) -> Iterator[pa.RecordBatch]:
    """Yield the joined rows of all paths; before the last step, add them to their paths instead."""
    for number, lookup in enumerate(shape.lookups):
        for batch in _join_path(lookup, shape.by[number], share, number):
            if shape.is_last:
                leaving = batch.select(shape.joined_schema.names)
                yield _append_diffs(batch, leaving) if shape.changelog else leaving
            else:
                share.count_emitted(batch)
                share.paths[number].add(batch)


def _append_diffs(batch: pa.RecordBatch, leaving: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [*leaving.columns, batch.column(DIFF)], names=[*leaving.schema.names, DIFF]
    )


def _join_path(
    lookup: LookupShape, by: int | None, share: TaskPartition, number: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one path with their matches, with the multiplicities of the path's rows."""
    own = HashRange.of_share(share) if lookup.left.keys else HashRange(MIN_TIME, MAX_TIME + 1)
    coming = SideSlice(lookup.left, share.work.sides[number], share.store, own, own)
    if coming.new is None:
        return
    new = coming.new if lookup.left.keys else coming.new.share(share.partition, share.partitions)
    diffs = new.rows.batch.column(DIFF).to_numpy(zero_copy_only=False)
    needles = new.rows
    if by is not None:  # the hashes as they are beside the rows that are met
        keys = [needles.batch.column(column) for column in lookup.left.keys]
        needles = replace(needles, slots=hash_columns(keys, len(needles)))
    for piece in _list_visible_slices(lookup.table, share.work.seen[number], share, own, by):
        search = piece.search(lookup.condition, needles, Side.LEFT)
        if search is None:
            continue
        if share.is_bounded:
            share.count_candidates(search.candidates)
        for needle, row in search.pairs():
            alive = ~piece.read_marks("gone", row)
            needle, row = needle[alive], row[alive]
            if len(row):
                share.matched(len(row))
                joined = emit_rows(lookup, new.rows.batch, needle, piece.rows.batch, row)
                yield from append_diffs(joined, diffs[needle])


def _list_visible_slices(
    table: SideShape, seen: LookupView, share: TaskPartition, own: HashRange, by: int | None
) -> Iterator[RunSlice]:
    """Yield the slices that may contain partners; rows released before the tick are not in them."""
    parts: list[tuple[list[LiveRun], dict[str, Watermark]]] = [
        (seen.runs, seen.hidden_below),
        (seen.fresh, {}),
    ]
    for runs, hidden in parts:
        work = SideWork(runs=runs, new_runs=[], pads=[], old_limits=hidden, new_limits={})
        if by is None:
            yield from SideSlice(table, work, share.store, own, own).old
            continue
        for piece in SideSlice(table, work, share.store, Everything(), Everything()).old:
            piece.looked_up = piece.run.found_by(by)
            yield piece
