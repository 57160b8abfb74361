"""Tables in a task: retained rows, upserts by primary key, and compared snapshots.

A snapshot is compared with the previous one: rows that are in both are neither inserted nor deleted. With a
primary key a table has one row per key: rows with a NULL in the key, and all but the least of several rows
of a key, are excluded, and counted and reported when they appear. The least row depends on the rows alone,
not on when or by how many tasks the table was read. Without a key each row counts as often as it occurs.

State: the runs of the previous snapshot. Excluded rows are marked *released* in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import EngineError
from watersmeet.event_time import MAX_TIME, NEVER, Mask, Side
from watersmeet.kernel.aggregate import group_numbers
from watersmeet.kernel.asof import CAME
from watersmeet.kernel.batches import MAX_COLUMN_BYTES, concat_arrays, one_batch, take_rows, take_values
from watersmeet.kernel.gather import as_one_batch, estimate_bytes
from watersmeet.kernel.match.pairs import PairCondition, find
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.placeholders import KnownValues, TickRecords
from watersmeet.kernel.slots import BUCKET_MASK, Slots, borders, order_of
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.names import DIFF
from watersmeet.runtime.messages.reports import SideReport
from watersmeet.runtime.messages.shapes import DELETED, SnapshotShape, TableShape, UpsertShape
from watersmeet.runtime.messages.work import SideWork
from watersmeet.runtime.tasks.changes import (
    consolidate_rows,
    find_earlier_released,
    net_changes,
    report_marks,
    settle_changes,
)
from watersmeet.runtime.tasks.ingest import write_aside
from watersmeet.runtime.tasks.memory import check_bytes, max_run_bytes
from watersmeet.runtime.tasks.merge import merge_runs
from watersmeet.runtime.tasks.results import SAMPLES, append_diffs, count, pad, pad_changes, rows_as_json
from watersmeet.runtime.tasks.side import HashRange, Nothing, RunSlice, SideSlice, TaskPartition
from watersmeet.state.manifest import LiveRun
from watersmeet.state.marks import MarkWriter
from watersmeet.state.runs.writer import sort_rows, write_run

# Rows of tables, kept until they are deleted, and of streams of changes, kept until a delete of them
# would be late: a delete of what is not there is counted, and not put out.


def table_rows(shape: TableShape, share: TaskPartition) -> Iterator[pa.RecordBatch]:
    """Yield the net result of the tick's changes in the hash range."""
    hashes = HashRange.of_share(share)
    own = SideSlice(shape.sides[0], share.work.sides[0], share.store, hashes, hashes)
    report, marks = share.report.sides[0], MarkWriter()
    inserts, deletes = net_changes(own, report)
    for change in (deletes, inserts):
        if change is not None:
            rows = np.arange(len(change.rows))
            yield from pad_changes(shape, Side.LEFT, change.rows.batch, rows, change.diff)
    settle_changes(own, inserts, share.tick, report, marks, has_partners=False)
    report_marks(own, marks.write(share.store, share.tick), report)


# A table with a primary key, for one hash range of keys: records become rows that go and rows that come.
#
# The records of a key count in the order (tick, partition, position). One whose sequence is below the
# greatest that the key has had is stale: it is dropped. Each of the others takes the place of the key's
# row, or takes it away; what is put out is the key's row before the tick with −1 and its row after it
# with +1. So neither rows nor counts depend on how records are cut into ticks.
#
# Where the records of a tick come in no order that is the same when it is repeated, they count in the
# order of their sequence, which each of them has. Of those of a key with equal sequences one counts: a
# row, if there is one, and of several rows the greatest by its columns; the others are stale. So what
# counts depends on the records of a tick alone.
#
# State: of each key its row, in runs that are hashed by it; a row that goes gets the mark ``gone``. Where
# changes have a sequence, deletes are kept likewise, in runs of their own that stand for no row: the key,
# the greatest sequence, and when it was (`DELETED`), by which they are released.

_UNORDERED = -1
"""The rank of a delete without a sequence: it has that of the key's last change."""


@dataclass(frozen=True)
class _Records(TickRecords):
    """Records that count, in arrival order; ``slots`` belong to the rows of ``batch``."""

    slots: Slots


@dataclass
class _KeyState:
    """State of each key.

    Attributes:
        piece: the number of its run; -1: the key has no state.
        row: its position in the run.
        alive: True for a row, False for a tombstone.
    """

    piece: Rows
    row: Rows
    alive: Mask


def upsert_rows(shape: UpsertShape, share: TaskPartition) -> Iterator[pa.RecordBatch]:
    """Yield the deleted and the inserted rows of the hash range."""
    hashes = HashRange.of_share(share)
    work, report = share.work.sides[0], share.report.sides[0]
    kept = SideSlice(shape.table, work, share.store, hashes, Nothing())
    brought = SideSlice(shape.sides[0], work, share.store, Nothing(), hashes)
    inserted: list[LiveRun] = []
    if brought.new is not None:
        records = _build_records(shape, brought.new.rows, report)
        if len(records.order):
            yield from _apply_records(shape, kept, records, share, inserted)
    for piece in kept.old:
        rows = kept.released(piece, is_new=False)
        rows = rows[~piece.read_marks("gone", rows)]
        if len(rows):
            report.released[piece.name] = report.released.get(piece.name, 0) + len(rows)
    marks = MarkWriter()
    report.merged = merge_runs(kept, share.tick, marks)
    merged_away = work.list_merged_runs()
    for piece in kept.old:
        if piece.name not in merged_away:
            piece.keep_marks(marks)
    report.marks = marks.write(share.store, share.tick)
    report.inserted = inserted


def _build_records(shape: UpsertShape, rows: SortedRows, report: SideReport) -> _Records:
    side = shape.sides[0]
    check_bytes(
        f'the changes of "{side.name}" in a tick', estimate_bytes(rows.batch), side.memory, MAX_COLUMN_BYTES
    )
    batch = as_one_batch(rows.batch)
    diffs = batch.column(DIFF).to_numpy(zero_copy_only=False).astype(np.int64)
    counts = diffs != 0
    if shape.sequence is not None:
        unknown = counts & batch.column(shape.sequence).is_null().to_numpy(zero_copy_only=False)
        if shape.in_order:
            unknown &= diffs > 0
        count(report, "unmatchable", int(np.abs(diffs[unknown]).sum()))
        counts &= ~unknown
    # A record that comes several times takes its own place.
    count(report, "deleted", int((np.abs(diffs[counts]) - 1).sum()))
    slots = rows.slots
    if not counts.all():
        chosen = np.flatnonzero(counts)
        batch, slots, diffs = take_rows(batch, chosen), slots[chosen], diffs[chosen]
    numbers = number_keys(batch, slots, shape.keys)
    if shape.in_order:
        order = np.lexsort((batch.column(CAME).to_numpy(zero_copy_only=False), numbers))
    else:
        order = _order_by_sequence(shape, batch, numbers, diffs)
    in_order = numbers[order]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = in_order[1:] != in_order[:-1]
    return _Records(batch, order, np.cumsum(is_first) - 1, np.flatnonzero(is_first), diffs[order] < 0, slots)


def _order_by_sequence(
    shape: UpsertShape, batch: pa.RecordBatch, numbers: Rows, diffs: npt.NDArray[np.int64]
) -> Rows:
    """Order records that have no arrival order: by key, then by sequence.

    At equal sequences, deletes come first, then rows in the order of their columns.
    """
    assert shape.sequence is not None
    ranks = _dense_ranks(batch.column(shape.sequence))
    comes = diffs > 0
    order = np.lexsort((comes, ranks, numbers))
    by = [values[order] for values in (numbers, ranks, comes)]
    same = np.logical_and.reduce([values[1:] == values[:-1] for values in by])
    if not same.any():
        return order
    tied = order[np.append(same, False) | np.insert(same, 0, False)]
    values = np.zeros(len(order), dtype=np.int64)
    values[tied] = group_numbers(take_rows(batch, tied), shape.sides[0].schema.names)
    return np.lexsort((values, comes, ranks, numbers))


def number_keys(batch: pa.RecordBatch, slots: Slots, keys: tuple[str, ...]) -> Rows:
    """Return a number for each row; two rows have the same number only if their keys are equal.

    Only rows with equal hashes are compared.
    """
    numbers = np.arange(len(slots))
    same = slots[1:] == slots[:-1]
    if same.any():
        places = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
        numbers[places] = len(slots) + group_numbers(take_rows(batch.select(list(keys)), places), keys)
    return numbers


def _apply_records(
    shape: UpsertShape, kept: SideSlice, records: _Records, share: TaskPartition, inserted: list[LiveRun]
) -> Iterator[pa.RecordBatch]:
    """Yield the output of the tick's records and update the state.

    Args:
        inserted: receives the runs of the rows that exist now.
    """
    report = share.report.sides[0]
    before = _look_up_keys(shape, kept, records)
    sequences = None if shape.sequence is None else _build_sequences(shape.sequence, kept, records, before)
    applies, filled = _judge_records(shape, records, sequences, before)
    count(report, "stale", int((~applies).sum()))
    _tell_unknown(shape, records, filled.unknown, share)
    applies = applies & ~filled.unknown
    places = np.flatnonzero(applies)
    _count_applied(shape, records, places, before, report)
    is_last = np.ones(len(places), dtype=np.bool_)
    is_last[:-1] = records.key[places[1:]] != records.key[places[:-1]]
    last = places[is_last]
    changed = records.key[last]
    for number, piece in enumerate(kept.old):
        of_piece = changed[before.piece[changed] == number]
        rows = before.row[of_piece]
        if len(rows):
            if not _has_tombstones(piece):
                yield from pad_changes(shape, Side.LEFT, piece.rows.batch, rows, -1)
            piece.mark("gone", rows)
            report.released[piece.name] = report.released.get(piece.name, 0) + len(rows)
    come = last[~records.deletes[last]]
    if len(come):
        rows = records.order[come]
        batch = filled.rows(
            come, take_rows(records.batch, rows), partial(_read_previous_values, kept, before)
        )
        yield from pad_changes(shape, Side.LEFT, batch, np.arange(len(rows)), 1)
        inserted.append(_write_run(kept, batch, records.slots[rows], share.tick))
    if sequences is not None:
        deleted = last[records.deletes[last] & (sequences.greatest[last] >= 0)]
        inserted += _write_tombstones(shape, kept, records, deleted, sequences, share)


def _look_up_keys(shape: UpsertShape, kept: SideSlice, records: _Records) -> _KeyState:
    """Look the keys up. Raises: EngineError, when the state has two rows of one."""
    keys = len(records.first)
    before = _KeyState(np.full(keys, -1), np.zeros(keys, dtype=np.int64), np.zeros(keys, dtype=np.bool_))
    if not kept.old:
        return before
    firsts = records.order[records.first]
    layout = replace(shape.sides[0].layout, ties=None)
    needles, key_of = sort_rows(take_rows(records.batch, firsts), records.slots[firsts], layout)
    condition = PairCondition.equal_columns(shape.keys, null_safe=False)
    for number, piece in enumerate(kept.old):
        for needle, row in find(condition, needles, Side.LEFT, piece.rows):
            alive = ~piece.read_marks("gone", row)
            alive &= ~find_earlier_released(kept, piece.rows, row)
            own, row = key_of[needle[alive]], row[alive]
            if (before.piece[own] >= 0).any() or len(np.unique(own)) < len(own):
                raise EngineError(
                    f'the state of "{shape.sides[0].name}" has two rows with the same primary key',
                    code="internal",
                    hint="this is a bug in watersmeet: please report it with this message",
                )
            before.piece[own], before.row[own] = number, row
            before.alive[own] = not _has_tombstones(piece)
    return before


def _read_previous_values(
    kept: SideSlice, before: _KeyState, column: str, keys: Rows
) -> list[tuple[Rows, pa.Array]]:
    """Read a column of the rows that these keys had before the tick, run by run."""
    parts = []
    for number, piece in enumerate(kept.old):
        own = np.flatnonzero(before.piece[keys] == number)
        if len(own):
            values = as_one_batch(piece.rows.batch).column(column)
            parts.append((own, take_values(values, before.row[keys[own]])))
    return parts


def _tell_unknown(shape: UpsertShape, records: _Records, unknown: Mask, share: TaskPartition) -> None:
    """Count records that leave out values which nobody has: there is no row whose they are."""
    report = share.report.sides[0]
    count(report, "broken", int(unknown.sum()))
    if share.work.keep_broken and unknown.any():
        rows = take_rows(records.batch, records.order[unknown])
        texts = rows_as_json(shape.sides[0].schema, rows)
        record = pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], names=["record"])
        report.broken.append(write_aside(share.store, "broken", share.tick, [record]))


def _has_tombstones(piece: RunSlice) -> bool:
    return piece.run.run.stands_for is not None


def _judge_records(
    shape: UpsertShape, records: _Records, sequences: _Sequences | None, before: _KeyState
) -> tuple[Mask, KnownValues]:
    """Return which records apply, and who has the values that they leave out.

    A record whose values nobody has makes no other one stale.
    """
    placeholders, counts = dict(shape.placeholders), np.ones(len(records.order), dtype=np.bool_)
    if sequences is None:
        return counts, KnownValues(records, placeholders, counts, before.alive)
    applies = sequences.judge(counts, in_order=shape.in_order)
    filled = KnownValues(records, placeholders, applies, before.alive)
    part, places, alive, values = sequences, np.arange(len(counts)), before.alive, filled
    while len(unknown := np.flatnonzero(values.unknown & counts)):
        # Of each key what is judged up to the first of them is so; what follows is judged without it.
        key = part.records.key
        counts[unknown[_first_runs(unknown, key[unknown])]] = False
        is_again = np.zeros(len(part.held), dtype=np.bool_)
        is_again[key[unknown]] = True
        own = np.flatnonzero(is_again[key])
        part = part.of_keys(is_again, own, placeholders)
        places, counts, alive = places[own], counts[own], alive[is_again]
        judged = part.judge(counts, in_order=shape.in_order)
        values = KnownValues(part.records, placeholders, judged, alive)
        applies[places], sequences.greatest[places] = judged, part.greatest
    if part is not sequences:
        filled = KnownValues(records, placeholders, applies, before.alive)
    return applies, filled


def _first_runs(places: Rows, keys: Rows) -> Mask:
    """Return which of these records, in order, follow the first one of their key without a gap."""
    is_first, is_start = (np.ones(len(places), dtype=np.bool_) for _ in range(2))
    is_first[1:] = keys[1:] != keys[:-1]
    is_start[1:] = is_first[1:] | (np.diff(places) > 1)
    run = np.cumsum(is_start)
    return np.asarray(run == run[is_first][np.cumsum(is_first) - 1], dtype=np.bool_)


@dataclass
class _Sequences:
    """The sequences of records and of what the state has of their keys.

    Args:
        records: those that are judged.
        values: of the records, and of the state.
        place_of: per rank where among the values one of it is.
        own: per record its rank.
        held: per key the rank of what the state has; `_UNORDERED`: nothing.
        greatest: per record where among the values the greatest is that its key has had then; −1: none.
    """

    records: TickRecords
    values: pa.Array
    place_of: Rows
    own: Rows
    held: Rows
    greatest: Rows

    def judge(self, counts: Mask, *, in_order: bool) -> Mask:
        """Return which records apply; those that do not count make no other one stale."""
        records, own, held = self.records, self.own, self.held
        # The greatest rank of the key up to each record: keys ascend, so one pass over all does.
        span = len(self.place_of)
        start = records.key * span
        raising = np.maximum(np.where(counts, own, _UNORDERED), held[records.key])
        upto = np.maximum.accumulate(raising + 1 + start) - start - 1
        earlier = np.empty_like(upto)
        earlier[1:] = upto[:-1]
        earlier[records.first] = held
        applies = (own == _UNORDERED) | (own >= earlier)
        if not in_order:
            is_other = (own[1:] != own[:-1]) | (records.key[1:] != records.key[:-1])
            group = np.concatenate([[0], np.cumsum(is_other)])
            last = np.full(len(own), -1)
            np.maximum.at(last, group[counts], np.flatnonzero(counts))
            applies &= np.arange(len(own)) >= last[group]
        self.greatest = np.where(upto == _UNORDERED, -1, self.place_of[upto])
        return np.asarray(applies, dtype=np.bool_)

    def of_keys(self, keys: Mask, places: Rows, columns: Iterable[str]) -> _Sequences:
        """Return the records at ``places``, which are all of these keys, with these columns alone."""
        records = self.records
        key = (np.cumsum(keys) - 1)[records.key[places]]
        batch = take_rows(records.batch.select(list(columns)), records.order[places])
        first = np.searchsorted(key, np.arange(int(keys.sum())))
        part = TickRecords(batch, np.arange(len(places)), key, first, records.deletes[places])
        return _Sequences(
            part, self.values, self.place_of, self.own[places], self.held[keys], np.full(len(places), -1)
        )


def _build_sequences(sequence: str, kept: SideSlice, records: _Records, before: _KeyState) -> _Sequences:
    arrays, places = [take_values(records.batch.column(sequence), records.order)], []
    for number, piece in enumerate(kept.old):
        keys = np.flatnonzero(before.piece == number)
        if len(keys):
            arrays.append(take_values(as_one_batch(piece.rows.batch).column(sequence), before.row[keys]))
            places.append(keys)
    values = concat_arrays(arrays)
    ranks = _dense_ranks(values)
    held = np.full(len(records.first), _UNORDERED)
    if places:
        held[np.concatenate(places)] = ranks[len(records.order) :]
    place_of = np.full(int(ranks.max(initial=0)) + 2, -1)
    place_of[ranks] = np.arange(len(ranks))
    own = ranks[: len(records.order)]
    return _Sequences(records, values, place_of, own, held, np.full(len(own), -1))


def _dense_ranks(values: pa.Array) -> npt.NDArray[np.int64]:
    """Rank values from 0 in ascending order, without gaps.

    NaN is the greatest number, and -0.0 equals 0.0. NULL has the rank `_UNORDERED`.
    """
    present = values.is_valid().to_numpy(zero_copy_only=False)
    ranks = np.full(len(values), _UNORDERED)
    ranks[present] = pc.rank(values.drop_null(), sort_keys="ascending", tiebreaker="dense").to_numpy() - 1
    return ranks


def _count_applied(
    shape: UpsertShape, records: _Records, places: Rows, before: _KeyState, report: SideReport
) -> None:
    """Count what became of the records that apply, and of the rows whose place they take."""
    keys, deletes = records.key[places], records.deletes[places]
    was_there = np.empty(len(places), dtype=np.bool_)
    was_there[1:] = ~deletes[:-1]
    is_first = np.ones(len(places), dtype=np.bool_)
    is_first[1:] = keys[1:] != keys[:-1]
    was_there[is_first] = before.alive[keys[is_first]]
    missing = deletes & ~was_there
    # The row that went, and the delete that took it.
    count(report, "deleted", int(was_there.sum() + (deletes & was_there).sum()))
    count(report, "missing_deletes", int(missing.sum()))
    rows = records.order[places[missing][:SAMPLES]]
    if len(rows):
        schema = pa.schema([shape.sides[0].schema.field(name) for name in shape.keys])
        report.missing = rows_as_json(schema, take_rows(records.batch, rows))


def _write_tombstones(
    shape: UpsertShape,
    kept: SideSlice,
    records: _Records,
    deleted: Rows,
    sequences: _Sequences,
    share: TaskPartition,
) -> Iterator[LiveRun]:
    """Write a run of tombstones for these deletes, unless tombstones are not retained."""
    limit = kept.work.new_limits.get(DELETED, NEVER)
    if not len(deleted) or limit >= MAX_TIME:
        return
    rows = records.order[deleted]
    batch = take_rows(records.batch, rows)
    greatest = take_values(sequences.values, sequences.greatest[deleted])
    arrays = []
    for field in shape.sides[0].schema:
        if field.name == shape.sequence:
            arrays.append(greatest)
        elif field.name in shape.keys:
            arrays.append(batch.column(field.name))
        else:
            arrays.append(pa.nulls(len(rows), batch.schema.field(field.name).type))
    batch = pa.RecordBatch.from_arrays(arrays, names=shape.sides[0].schema.names)
    # A clock that went back does not let them be forgotten at once.
    at = int(max(share.work.clock_us, limit))
    yield _write_run(kept, batch, records.slots[rows], share.tick, at)


def _write_run(
    kept: SideSlice, batch: pa.RecordBatch, slots: Slots, tick: int, deleted_at: int | None = None
) -> LiveRun:
    """Write a run of rows; with ``deleted_at``, a run of tombstones."""
    own, layout = kept.task, kept.task.layout
    names = [name for name in own.schema.names if name != DELETED]
    arrays = [batch.column(name) for name in names]
    if DELETED in own.schema.names:
        at = MAX_TIME if deleted_at is None else deleted_at
        names, arrays = [*names, DELETED], [*arrays, pa.array(np.full(len(slots), at))]
    stored = pa.RecordBatch.from_arrays(arrays, names=names)
    rows, _ = sort_rows(stored, slots & BUCKET_MASK, layout, kept.work.index)
    stands_for = None if deleted_at is None else 0
    run = write_run(
        kept.store,
        own.arrangement,
        rows,
        layout,
        tick=tick,
        group=f"{tick}" if deleted_at is None else f"{tick}-deletes",
        stands_for=stands_for,
    )
    return LiveRun(run=run)


@dataclass(frozen=True)
class _ComparedRows:
    """Rows of the previous and of the current snapshot, sorted by slot.

    Attributes:
        diffs: −1 for rows of the previous snapshot, +1 for rows of the current one.
        origin: the number of the run of each row; runs of the previous snapshot precede those of the current
            one.
    """

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
