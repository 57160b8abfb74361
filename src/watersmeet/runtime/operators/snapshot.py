"""What a table holds, compared with what it held before, for one hash range: rows that go and rows that come.

Rows that are equal on both sides are neither. By a primary key there is one row per key: one with a NULL in
the key, and all but the least of several rows of a key, are none of the table's; those that were not there
before are counted and told. Which is the least depends on the rows alone, so neither on when nor by how many
tasks the table was read. Without a key each row counts as often as it is there.

State: the runs as they were read last. Of those with rows that are none of the table's, these are *released*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.event_time import Mask, Side
from watersmeet.kernel.aggregate import group_numbers
from watersmeet.kernel.batches import MAX_COLUMN_BYTES, one_batch, take_rows
from watersmeet.kernel.gather import as_one_batch, estimate_bytes
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.slots import BUCKET_MASK, Slots, borders, order_of
from watersmeet.names import DIFF
from watersmeet.runtime.messages.reports import SideReport
from watersmeet.runtime.messages.shapes import SnapshotShape
from watersmeet.runtime.messages.work import SideWork
from watersmeet.runtime.operators.upsert import number_keys
from watersmeet.runtime.tasks.changes import consolidate_rows
from watersmeet.runtime.tasks.format_rows import rows_as_json
from watersmeet.runtime.tasks.ingest import write_aside
from watersmeet.runtime.tasks.memory import check_bytes, max_run_bytes
from watersmeet.runtime.tasks.partition import HashRange, Nothing, TaskPartition
from watersmeet.runtime.tasks.results import append_diffs, count, pad
from watersmeet.runtime.tasks.side import RunSlice, SideSlice


@dataclass(frozen=True)
class _ComparedRows:
    """Rows from before (``diffs`` −1) and of now (+1), by ``slots``. ``origin``: per row the number of its
    run: of those before, then of those of now."""

    batch: pa.RecordBatch
    slots: Slots
    diffs: npt.NDArray[np.int64]
    origin: Rows

    def at(self, rows: Rows) -> _ComparedRows:
        return _ComparedRows(
            take_rows(self.batch, rows), self.slots[rows], self.diffs[rows], self.origin[rows]
        )


def snapshot_rows(shape: SnapshotShape, share: TaskPartition) -> Iterator[pa.RecordBatch]:
    """Yield the changes of a table in the hash range; none if this tick did not read the table."""
    work = share.work.sides[0]
    if not work.replaced:
        return
    for hashes in _split_hash_range(work, share, max_run_bytes(shape.sides[0].memory)):
        yield from _compare_snapshots(shape, work, share, hashes)


def _split_hash_range(work: SideWork, share: TaskPartition, most: int) -> Iterator[HashRange]:
    """Yield parts of the hash range, each small enough to be in memory at once."""
    held = sum(live.run.nbytes for live in work.runs) + sum(run.nbytes for run in work.new_runs)
    parts = 1 + held // share.partitions // most
    cuts = borders(share.partitions * parts)
    for part in range(share.partition * parts, (share.partition + 1) * parts):
        yield HashRange(cuts[part], cuts[part + 1])


def _compare_snapshots(
    shape: SnapshotShape, work: SideWork, share: TaskPartition, hashes: HashRange
) -> Iterator[pa.RecordBatch]:
    table, report = shape.sides[0], share.report.sides[0]
    before = SideSlice(table, work, share.store, hashes, Nothing()).old
    now = SideSlice(table, work, share.store, Nothing(), hashes).new_runs
    if not before and not now:
        return
    # Before there are copies of them.
    held = sum(estimate_bytes(piece.rows.batch) for piece in (*before, *now))
    check_bytes(f'the compared rows of "{table.name}"', held, table.memory, MAX_COLUMN_BYTES)
    rows = _merge_sides(before, now)
    if shape.keys:
        excluded = _find_excluded_rows(rows, shape.keys)
        if excluded.any():
            _tell_excluded(shape, rows, excluded, [piece.name for piece in (*before, *now)], share)
            rows = rows.at(np.flatnonzero(~excluded))
    firsts, net = _sum_diffs(rows)
    changed = np.flatnonzero(net)
    gone, come = int(-net[net < 0].sum()), int(net[net > 0].sum())
    count(report, "in", gone + come)
    count(report, "deleted", 2 * gone)  # the row, and its delete
    changed = changed[np.argsort(net[changed] > 0, kind="stable")]  # those that go first
    yield from append_diffs(pad(shape, Side.LEFT, rows.batch, firsts[changed]), net[changed])


def _merge_sides(before: Sequence[RunSlice], now: Sequence[RunSlice]) -> _ComparedRows:
    pieces = [*before, *now]
    batch = one_batch([as_one_batch(piece.rows.batch) for piece in pieces])
    slots = np.concatenate([piece.rows.slots & BUCKET_MASK for piece in pieces])
    sizes = [len(piece.rows) for piece in pieces]
    origin = np.repeat(np.arange(len(pieces)), sizes)
    diffs = np.where(origin < len(before), -1, 1).astype(np.int64)
    return _ComparedRows(batch, slots, diffs, origin).at(order_of(slots))


def _sum_diffs(rows: _ComparedRows) -> tuple[Rows, npt.NDArray[np.int64]]:
    """Consolidate equal rows.

    Returns:
        The first row of each set of equal rows, and its net multiplicity; below 0 it is a delete.
    """
    with_diff = rows.batch.append_column(DIFF, pa.array(rows.diffs))
    return consolidate_rows(rows.slots, with_diff, rows.diffs)


def _find_excluded_rows(rows: _ComparedRows, keys: tuple[str, ...]) -> Mask:
    """Return the mask of rows that are not rows of the table.

    These are rows with a NULL in the primary key, and rows that share their key with a lower row.
    """
    excluded = np.zeros(len(rows.slots), dtype=np.bool_)
    for name in keys:
        excluded |= rows.batch.column(name).is_null().to_numpy(zero_copy_only=False)
    numbers = number_keys(rows.batch, rows.slots, keys)
    for diff in (-1, 1):
        own = np.flatnonzero((rows.diffs == diff) & ~excluded)
        _, of_key, times = np.unique(numbers[own], return_inverse=True, return_counts=True)
        shared = own[times[of_key] > 1]
        if not len(shared):
            continue
        ranks = group_numbers(take_rows(rows.batch, shared), rows.batch.schema.names)
        order = np.lexsort((ranks, numbers[shared]))
        of_order = numbers[shared[order]]
        excluded[shared[order[1:]][of_order[1:] == of_order[:-1]]] = True
    return excluded


def _tell_excluded(
    shape: SnapshotShape, rows: _ComparedRows, excluded: Mask, names: Sequence[str], share: TaskPartition
) -> None:
    """Count rows that are none of the table's, and tell of those that were not there before."""
    report: SideReport = share.report.sides[0]
    for origin in np.unique(rows.origin[excluded & (rows.diffs > 0)]).tolist():
        released = int((excluded & (rows.origin == origin)).sum())
        report.released[names[origin]] = report.released.get(names[origin], 0) + released
    others = rows.at(np.flatnonzero(excluded))
    firsts, net = _sum_diffs(others)
    fresh = np.repeat(firsts, np.maximum(net, 0))
    count(report, "in", len(fresh))
    count(report, "broken", len(fresh))
    if share.work.keep_broken and len(fresh):
        texts = rows_as_json(shape.sides[0].schema, take_rows(others.batch, fresh))
        record = pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], names=["record"])
        report.broken.append(write_aside(share.store, "broken", share.tick, [record]))
