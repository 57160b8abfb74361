"""Operators that retain nothing: lookups in a table, and rows that pass unchanged.

A lookup with equality keys is partitioned by hash: a task owns a hash range of the rows and of the table's
copy. Without keys, a task takes its share of the rows and reads the whole copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from watersmeet.event_time import MAX_TIME, MIN_TIME, Side
from watersmeet.kernel.match.pairs import Search, candidates, has_match
from watersmeet.kernel.match.probe import Rows
from watersmeet.names import DIFF
from watersmeet.runtime.messages.shapes import LookupShape, PassShape, RestShape
from watersmeet.runtime.messages.work import SideWork
from watersmeet.runtime.tasks.matches import ProbedPiece, emit_matches
from watersmeet.runtime.tasks.results import NO_ROWS, append_diffs, count, emit_rows, pad, pad_files
from watersmeet.runtime.tasks.side import HashRange, NewRows, RunSlice, SideSlice, TaskPartition
from watersmeet.spec.model import JoinKind
from watersmeet.state.manifest import LiveRun


def lookup_rows(shape: LookupShape, share: TaskPartition) -> Iterator[pa.RecordBatch]:
    """Yield rows with their partners, then the unmatched rows of a padded side."""
    own = HashRange.of_share(share) if shape.left.keys else HashRange(MIN_TIME, MAX_TIME + 1)
    left = SideSlice(shape.left, share.work.sides[0], share.store, own, own)
    if left.new is not None:
        new = left.new if shape.left.keys else left.new.share(share.partition, share.partitions)
        rows, hits = new.rows, new.matched
        yield from _join_rows(shape, new, _open_table_slices(shape, share, own), share)
        report = share.report.sides[0]
        matched = int(hits.sum())
        count(report, "matched", matched)
        count(report, "padded" if shape.left.padded else "released_unmatched", len(rows) - matched)
        if shape.left.padded and matched < len(rows):
            yield from pad(shape, Side.LEFT, rows.batch, new.order_by_arrival(np.flatnonzero(~hits)))
    for batch, first, end in pad_files(share.work.sides[0], share.store, share.partition, share.partitions):
        yield from pad(shape, Side.LEFT, batch, np.arange(first, end))


def _open_table_slices(shape: LookupShape, share: TaskPartition, own: HashRange) -> list[RunSlice]:
    """Open the slices of the table copy that may contain partners."""
    copy = share.work.table
    runs = [] if copy is None else [LiveRun(run=run) for run in copy.runs]
    work = SideWork(runs=runs, new_runs=[], pads=[], old_limits={}, new_limits={})
    return SideSlice(shape.table, work, share.store, own, own).old


def _join_rows(
    shape: LookupShape, new: NewRows, table: list[RunSlice], share: TaskPartition
) -> Iterator[pa.RecordBatch]:
    """Yield joined rows and mark the rows that have a partner.

    A SEMI join yields the rows that have a partner; an ANTI join yields none here.
    """
    rows, report = new.rows, share.report
    if shape.kind.hides_right:
        for piece in table:
            if share.is_bounded:
                share.count_candidates(candidates(shape.condition, rows, Side.LEFT, piece.rows))
            new.matched |= has_match(shape.condition, rows, Side.LEFT, piece.rows)
        if shape.kind is JoinKind.SEMI and new.matched.any():
            report.matches += int(new.matched.sum())
            yield from emit_rows(
                shape, rows.batch, new.order_by_arrival(np.flatnonzero(new.matched)), None, NO_ROWS
            )
        return

    def hit(rows: Rows) -> None:
        new.mark_matched(rows)
        share.matched(len(rows))

    def begin(piece: RunSlice) -> Search | None:
        search = Search.of(shape.condition, rows, Side.LEFT, piece.rows)
        if search is not None and share.is_bounded:
            share.count_candidates(search.candidates)
        return search

    pieces = [ProbedPiece(partial(begin, piece), _mark_nothing) for piece in table]
    yield from emit_matches(shape, Side.LEFT, rows, new.arrival, pieces, hit)


def _mark_nothing(rows: Rows) -> None:
    """Ignore the rows: rows of a table have no marks."""


# Rows of a node that keeps none: what its side brought in the tick, as it came.


def pass_rows(shape: PassShape, share: TaskPartition) -> Iterator[pa.RecordBatch]:
    """Yield the task partition's part of the tick's rows, in order."""
    files = pad_files(share.work.sides[0], share.store, share.partition, share.partitions)
    for batch, low, high in files:
        padded = pad(shape, Side.LEFT, batch, np.arange(low, high))
        if shape.changelog:
            diffs = batch.column(DIFF).to_numpy(zero_copy_only=False)[low:high]
            yield from append_diffs(padded, diffs)
        else:
            yield from padded


# No rows: those of a node in whose place another query's is run.


def no_rows(shape: RestShape, share: TaskPartition) -> Iterator[pa.RecordBatch]:
    """Yield no rows; a reused subplan has no tasks here and no consumer that reads this output."""
    yield from ()
