"""One step of the paths of a delta join, for one share: rows of each path meet those of an arrangement, as it
was before the tick or as it is after it.

    change of the last input that changed in a tick × earlier ones after it × later ones before it

So each combination of rows that changed in one tick is put out by one path alone (semantics.md, section 5).
With equality keys a task owns a hash range of the rows and of the arrangement. Without, it takes its share of
the rows and looks at the whole arrangement, and so it does at one that is sorted by another key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from watersmeet.engine.messages.delta import DeltaShape
from watersmeet.engine.messages.shapes import LookupShape, SideShape
from watersmeet.engine.messages.work import Seen, SideWork
from watersmeet.engine.tasks.cut import Everything, HashRange
from watersmeet.engine.tasks.results import put_out, with_diffs
from watersmeet.engine.tasks.share import Share
from watersmeet.engine.tasks.slice import RunSlice, SideSlice
from watersmeet.event_time import MAX_TIME, MIN_TIME, Side, Watermark
from watersmeet.kernel.hashing import hash_columns
from watersmeet.names import DIFF
from watersmeet.state.manifest import LiveRun


def delta_rows(shape: DeltaShape, share: Share) -> Iterator[pa.RecordBatch]:
    """Joined rows of all paths; before the last step they go on along their paths instead."""
    for number, lookup in enumerate(shape.lookups):
        for batch in _found(lookup, shape.by[number], share, number):
            if shape.is_last:
                leaving = batch.select(shape.joined_schema.names)
                yield _with_diffs_of(batch, leaving) if shape.changelog else leaving
            else:
                share.leaves(batch)
                share.paths[number].add(batch)


def _with_diffs_of(batch: pa.RecordBatch, leaving: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [*leaving.columns, batch.column(DIFF)], names=[*leaving.schema.names, DIFF]
    )


def _found(lookup: LookupShape, by: int | None, share: Share, number: int) -> Iterator[pa.RecordBatch]:
    """Rows of one path with what they meet, with the diffs that they came with."""
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
    for piece in _seen(lookup.table, share.work.seen[number], share, own, by):
        search = piece.search(lookup.condition, needles, Side.LEFT)
        if search is None:
            continue
        if share.is_bounded:
            share.sees(search.candidates)
        for needle, row in search.pairs():
            alive = ~piece.are("gone", row)
            needle, row = needle[alive], row[alive]
            if len(row):
                share.matched(len(row))
                joined = put_out(lookup, new.rows.batch, needle, piece.rows.batch, row)
                yield from with_diffs(joined, diffs[needle])


def _seen(table: SideShape, seen: Seen, share: Share, own: HashRange, by: int | None) -> Iterator[RunSlice]:
    """The slices that may hold partners: rows that were released before the tick are not there."""
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
