"""Groups and rankings whose rows may be retracted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.event_time import NEVER, Side, are_below
from watersmeet.kernel.aggregate import ROWS, AggregateColumn, group_numbers, quote_identifier
from watersmeet.kernel.batches import (
    MAX_COLUMN_BYTES,
    cut_points,
    narrow_offsets,
    one_array,
    one_table,
    size,
    take_rows,
)
from watersmeet.kernel.gather import as_one_batch, gather, row_sizes
from watersmeet.kernel.groups import GROUP, add_partials, compute_partials, is_zero, results_of
from watersmeet.kernel.match.pairs import PairCondition, find
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.ranks import IS, WAS, Numbers, count_within, diff_ranks, rank_changed_rows
from watersmeet.kernel.slots import BUCKET_MASK, Slots
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.names import DIFF
from watersmeet.runtime.messages.reports import SideReport
from watersmeet.runtime.messages.shapes import GroupShape, RankShape, SummedShape
from watersmeet.runtime.operators.windows import (
    BUCKET,
    release_sums,
    split_hash_range,
    split_new_and_retained,
)
from watersmeet.runtime.tasks.changes import select_needles
from watersmeet.runtime.tasks.memory import check_bytes, max_run_bytes
from watersmeet.runtime.tasks.merge import merge_runs
from watersmeet.runtime.tasks.results import NO_ROWS, count, split_batches
from watersmeet.runtime.tasks.side import HashRange, SideSlice, TaskPartition
from watersmeet.state.manifest import LiveRun
from watersmeet.state.marks import MarkWriter
from watersmeet.state.runs.writer import sort_rows, write_run

# Groups over all rows, for one hash range of their keys: of a group that changes the old row is taken
# back, and the new one put out.
#
# What is kept of groups adds up (`kernel.groups`): the changes of a tick become kept rows, which are a
# run, and nothing that is there is touched. The groups that the tick's rows belong to are looked up in
# all runs: without the tick's rows they make the row that was put out before, with them the new one.
# Merging runs adds kept rows up, so there are few of each. Cost: the tick's rows, and what is kept of the
# groups that they belong to; of min, max and other aggregates that are no sums that is every different
# value of the group.

_BUCKET = AggregateColumn(BUCKET, f"min({quote_identifier(BUCKET)})", pa.int64())

GroupBatch = tuple[pa.RecordBatch, Slots]
"""Kept rows, as runs hold them, and the upper halves of their slots."""


EmitGroups = Callable[[list[pa.Table], list[pa.Table], pa.RecordBatch], Iterator[pa.RecordBatch]]
"""The rows that some groups take back and put out: of what was kept of them, what the tick adds, and a row
with the columns of each. In what is kept they are numbered by `GROUP`, in the order of those rows."""
EmitPart = Callable[[SideSlice, SortedRows | None], Iterator[pa.RecordBatch]]
"""What goes out of a part of the share: of what is kept of it, and what the tick adds, if it does."""
DeriveColumns = Callable[[pa.RecordBatch], Mapping[str, pa.Array]]
"""Columns that kept rows have besides those of the side, of rows of the side."""


def group_rows(shape: GroupShape, share: TaskPartition) -> Iterator[pa.RecordBatch]:
    """Emit the changes of the groups in the task partition's hash range."""
    return emit_group_deltas(shape, share, partial(_emit_changes, shape))


def emit_group_deltas(
    shape: SummedShape, share: TaskPartition, of_groups: EmitGroups, made_of: DeriveColumns = lambda rows: {}
) -> Iterator[pa.RecordBatch]:
    """Emit the changes of the groups in the task partition's hash range."""

    def of_part(kept: SideSlice, new: SortedRows | None) -> Iterator[pa.RecordBatch]:
        if new is not None:
            yield from compare_groups(shape, kept, new, of_groups)

    return accumulate_groups(shape, share, of_part, made_of)


def accumulate_groups(
    shape: SummedShape, share: TaskPartition, of_part: EmitPart, made_of: DeriveColumns = lambda rows: {}
) -> Iterator[pa.RecordBatch]:
    """Emit the output of the hash range and add the tick's changes to the retained state.

    If the changes are large, process the hash range in parts, one after the other.
    """
    report, parts = share.report.sides[0], split_hash_range(shape, share)
    for hashes in parts:
        rows, kept = split_new_and_retained(shape, shape.kept, share, hashes)
        new = build_change_sums(shape, rows, kept, hashes, report, made_of)
        yield from of_part(kept, new)
        if new is not None:
            _store_sums(kept, new, share.tick, report)
        release_sums(kept, report)
    if len(parts) > 1:
        _, kept = split_new_and_retained(shape, shape.kept, share, HashRange.of_share(share))
    report.merged = merge_runs(kept, share.tick, MarkWriter(), lambda *rows: combine_sums(shape, *rows))


def _store_sums(kept: SideSlice, new: SortedRows, tick: int, report: SideReport) -> None:
    """Write what is to be kept of the tick's changes, but for what is released at once."""
    stand_for = new.batch.column(ROWS).to_numpy(zero_copy_only=False)
    gone = np.zeros(len(new), dtype=np.bool_)
    for column in kept.task.layout.releasing:
        limit = kept.work.new_limits.get(column, NEVER)
        gone |= are_below(new.batch.column(column).to_numpy(zero_copy_only=False), limit)
    count(report, "grouped", int(stand_for[gone].sum()))
    write_sums(kept, new, gone, tick, report)


def write_sums(
    kept: SideSlice, new: SortedRows, gone: npt.NDArray[np.bool_], tick: int, report: SideReport
) -> None:
    """Write what is to be kept of the tick's changes, but for rows that are gone already."""
    if gone.all():
        return
    stand_for = new.batch.column(ROWS).to_numpy(zero_copy_only=False)
    if gone.any():
        rows = np.flatnonzero(~gone)
        batch, buckets = take_rows(new.batch, rows), new.slots[rows] & BUCKET_MASK
        new = sort_rows(batch, buckets, kept.task.layout)[0]
    run = write_run(
        kept.store,
        kept.task.arrangement,
        new,
        kept.task.layout,
        tick=tick,
        group=f"{tick}-new",
        stands_for=int(stand_for[~gone].sum()),
    )
    report.inserted.append(LiveRun(run=run))


def _count_changes(own: SideSlice) -> int:
    """Count the rows that the tick's changes insert or delete."""
    return sum(int(np.abs(piece.rows.batch.column(DIFF).to_numpy()).sum()) for piece in own.new_runs)


# what is kept


def build_change_sums(
    shape: SummedShape,
    rows: SideSlice,
    kept: SideSlice,
    hashes: HashRange,
    report: SideReport,
    made_of: DeriveColumns,
) -> SortedRows | None:
    """Return the state to retain for the tick's changes, or None if there is none.

    Changes that cancel others are counted as "deleted".
    """
    new = _build_group_deltas(shape, rows, kept, hashes, made_of)
    added = 0 if new is None else int(new.batch.column(ROWS).to_numpy(zero_copy_only=False).sum())
    count(report, "deleted", _count_changes(rows) - added)
    return new


def _build_group_deltas(
    shape: SummedShape, rows: SideSlice, kept: SideSlice, hashes: HashRange, made_of: DeriveColumns
) -> SortedRows | None:
    tables = [_aggregate_rows(shape, piece.rows, made_of) for piece in rows.new_runs]
    if not tables and shape.is_always and not kept.old and hashes.low <= 0 < hashes.high:
        tables = [_empty_group(shape)]  # the group of no row is there from the first tick on
    if not tables:
        return None
    table = tables[0]
    if len(tables) > 1:
        table = add_partials(shape.parts, shape.by, one_table(tables), [_BUCKET])
    batch, buckets = _encode_group_state(shape, table)
    return sort_rows(batch, buckets, kept.task.layout)[0] if batch.num_rows else None


def _aggregate_rows(shape: SummedShape, rows: SortedRows, made_of: DeriveColumns) -> pa.Table:
    """Aggregate changes into group state."""
    batch = as_one_batch(rows.batch)
    given = gather(shape.columns, batch, np.arange(len(rows)), None, NO_ROWS)
    columns = {name: given.column(name) for name in given.schema.names}
    columns |= {DIFF: batch.column(DIFF), BUCKET: pa.array(rows.slots & BUCKET_MASK)}
    columns |= made_of(batch)
    return compute_partials(shape.parts, shape.by, pa.table(columns), [_BUCKET])


def _empty_group(shape: SummedShape) -> pa.Table:
    """Build the state of a group without rows."""
    sums = {column.name for column in shape.parts.added}
    columns = {
        field.name: pa.array([0], field.type) if field.name in sums else pa.nulls(1, field.type)
        for field in shape.kept.schema
    }
    return pa.table({**columns, BUCKET: pa.array([0], pa.int64())})


def _encode_group_state(
    shape: SummedShape, table: pa.Table, what: str = "what is kept of the groups of a tick"
) -> GroupBatch:
    """Encode group state in the format of runs, without empty groups.

    A group that always exists retains one row.

    Args:
        what: description of the rows, for messages to users.
    """
    staying = ~is_zero(shape.parts, table)
    if shape.is_always and not staying.any():
        staying[:1] = True
    table = table.filter(pa.array(staying))
    schema = shape.kept.schema
    arrays = [one_array(table.column(name)) for name in schema.names]
    check_bytes(what, size(arrays), shape.memory, MAX_COLUMN_BYTES)
    arrays = [narrow_offsets(array, field.type) for array, field in zip(arrays, schema, strict=True)]
    buckets: Slots = table.column(BUCKET).to_numpy()
    return pa.RecordBatch.from_arrays(arrays, schema=schema), buckets


def combine_sums(shape: SummedShape, batch: pa.RecordBatch, buckets: Slots) -> GroupBatch:
    """Add up the group state of several runs.

    The rows may be a part of those runs, but rows of one hash are never divided.
    """
    table = pa.Table.from_batches([batch]).append_column(BUCKET, pa.array(buckets))
    return _encode_group_state(
        shape, add_partials(shape.parts, shape.by, table, [_BUCKET]), f"rows in {shape.group_state_text}"
    )


# what goes out


@dataclass(frozen=True)
class _GroupRows:
    """Kept rows of groups, by number, among those of a batch."""

    batch: pa.RecordBatch
    rows: Rows
    groups: Rows


def compare_groups(
    shape: SummedShape, kept: SideSlice, new: SortedRows, of_groups: EmitGroups
) -> Iterator[pa.RecordBatch]:
    """Emit the old and the new rows of groups that change.

    If the group state is large, process the groups in parts, one after the other.
    """
    numbers, firsts = _number_groups(shape, new)
    needles = select_needles(new, firsts)
    ranks = np.zeros(len(new), dtype=np.int64)
    ranks[:] = numbers
    same_group = PairCondition.equal_columns(shape.lookup_columns, null_safe=True)
    looked_up = []
    for piece in kept.old:
        for needle, row in find(same_group, needles, Side.LEFT, piece.rows):
            if piece.live.marks:
                there = ~piece.read_marks("gone", row)
                needle, row = needle[there], row[there]
            if len(row):
                looked_up.append(_GroupRows(piece.rows.batch, row, needle))
    for low, high in _split_groups(
        shape, looked_up, _GroupRows(new.batch, np.arange(len(new)), ranks), len(firsts)
    ):
        old, own = [], []
        for choice in looked_up:
            mine = (choice.groups >= low) & (choice.groups < high)
            if mine.any():
                old.append(_number_rows(choice, mine, low))
        mine = (ranks >= low) & (ranks < high)
        own.append(_number_rows(_GroupRows(new.batch, np.arange(len(new)), ranks), mine, low))
        yield from of_groups(old, own, take_rows(needles.batch, np.arange(low, high)))


def _number_groups(shape: SummedShape, new: SortedRows) -> tuple[Rows, Rows]:
    """Assign numbers to the groups of retained rows.

    Returns:
        The group number of each row, in the order of the groups' first rows, and the positions of
        these first rows.
    """
    numbers = group_numbers(as_one_batch(new.batch), shape.lookup_columns)
    _, firsts, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(firsts, kind="stable")
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places[inverse], firsts[order]


def _split_groups(
    shape: SummedShape, looked_up: list[_GroupRows], own: _GroupRows, groups: int
) -> Iterator[tuple[int, int]]:
    """Yield ranges of groups whose state is about one run in bytes, or one group.

    Raises:
        EngineError: the state of one group exceeds the memory limit of a task.
    """
    held = np.zeros(groups, dtype=np.float64)
    for choice in [*looked_up, own]:
        sizes = row_sizes(choice.batch, choice.batch.schema.names, choice.rows)
        held += np.bincount(choice.groups, weights=sizes, minlength=groups)
    check_bytes(
        f"rows in {shape.group_state_text}",
        int(held.max(initial=0)),
        shape.memory,
        MAX_COLUMN_BYTES,
    )
    yield from pairwise(cut_points(held.astype(np.int64), max_run_bytes(shape.memory)))


def _number_rows(choice: _GroupRows, mine: npt.NDArray[np.bool_], low: int) -> pa.Table:
    rows = pa.Table.from_batches([as_one_batch(take_rows(choice.batch, choice.rows[mine]))])
    return rows.append_column(GROUP, pa.array(choice.groups[mine] - low))


def _emit_changes(
    shape: SummedShape, old: list[pa.Table], own: list[pa.Table], keys: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    """Emit the old and the new rows of some groups."""
    columns = {name: keys.column(column) for name, column in shape.keys}
    yield from emit_group_changes(shape, old, own, columns, keys.num_rows)


def emit_group_changes(
    shape: SummedShape,
    old: list[pa.Table],
    own: list[pa.Table],
    columns: Mapping[str, pa.Array],
    groups: int,
) -> Iterator[pa.RecordBatch]:
    """Emit the old and the new rows of groups.

    Group ``n`` has the number ``2 n`` before the tick and ``2 n + 1`` after it.

    Args:
        columns: the columns of the groups that are not computed, by name.
    """
    was = [_renumber_by_age(table, 0) for table in old]
    numbers = pa.array(np.arange(2 * groups) // 2)
    kept = one_table([*was, *(_renumber_by_age(table, 1) for table in [*old, *own])])
    there = np.array([bool(old), True]) if shape.is_always else None
    both = {name: column.take(numbers) for name, column in columns.items()}
    yield from emit_changed_pairs(shape, kept, both, groups, [name for name, _ in shape.results], there)


def emit_changed_pairs(
    shape: SummedShape,
    kept: pa.Table,
    columns: Mapping[str, pa.Array],
    groups: int,
    compared: Sequence[str],
    is_there: npt.NDArray[np.bool_] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Emit the old and the new rows of groups whose ``compared`` columns differ.

    ``kept`` and ``columns`` have the old and the new groups, numbered as in `emit_group_changes`.

    Args:
        is_there: mask of the groups that exist; None: the groups that have rows.
    """
    both, rows = _compute_group_rows(shape, kept, columns, 2 * groups)
    there = rows > 0 if is_there is None else is_there
    same = _find_unchanged(both, compared, groups)
    out = there & ~np.repeat(same & there[0::2] & there[1::2], 2)
    chosen = np.flatnonzero(out)
    diffs = pa.array(np.where(chosen % 2 == 0, -1, 1).astype(np.int64))
    batch = take_rows(both, chosen)
    yield from split_batches(
        shape,
        pa.RecordBatch.from_arrays([*batch.columns, diffs], names=[*batch.schema.names, DIFF]),
    )


def emit_final_groups(
    shape: SummedShape, kept: pa.Table, columns: Mapping[str, pa.Array], groups: int
) -> Iterator[pa.RecordBatch]:
    """Emit the rows of groups that have input rows, computed from their whole state.

    Args:
        columns: as in `emit_group_changes`.
    """
    batch, rows = _compute_group_rows(shape, kept, columns, groups)
    yield from split_batches(shape, take_rows(batch, np.flatnonzero(rows > 0)))


def _compute_group_rows(
    shape: SummedShape, kept: pa.Table, columns: Mapping[str, pa.Array], groups: int
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """Compute the result row of each group, and the number of its input rows."""
    if shape.parts.chosen:
        kept = add_partials(shape.parts, [GROUP, *shape.lookup_columns], kept)
    rows, results = results_of(shape.parts, kept, groups)
    every = {**columns, **results}
    names = shape.joined_schema.names
    return pa.RecordBatch.from_arrays([every[name] for name in names], names=names), rows


def _renumber_by_age(rows: pa.Table, age: int) -> pa.Table:
    place = rows.schema.get_field_index(GROUP)
    return rows.set_column(place, GROUP, pa.array(rows.column(GROUP).to_numpy() * 2 + age))


def _find_unchanged(both: pa.RecordBatch, results: Sequence[str], groups: int) -> npt.NDArray[np.bool_]:
    """Return the mask of groups whose old and new results are equal."""
    if not results:
        return np.ones(groups, dtype=np.bool_)
    numbers = group_numbers(both, results)
    same: npt.NDArray[np.bool_] = numbers[0::2] == numbers[1::2]
    return same


# The first rows of partitions, for one hash range of these: of one that changes, rows that are no longer
# among the first are taken back, and those that have come among them put out.
#
# All rows of a partition are kept, for deletes may bring later ones up: each different row once, with how
# often it is there, which adds up as what is kept of groups does (`emit_group_deltas`). Cost: the tick's
# rows, and all rows of the partitions that they belong to.

CHUNK_ROWS = 200_000
"""Maximum numbered rows in a batch that the node emits."""


def rank_rows(shape: RankShape, share: TaskPartition) -> Iterator[pa.RecordBatch]:
    """Emit the changes of the first rows of the partitions in the task's hash range."""
    return emit_group_deltas(shape, share, partial(_emit_rank_changes, shape))


def _emit_rank_changes(
    shape: RankShape, old: list[pa.Table], own: list[pa.Table], keys: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    """Emit the retractions and the new rows of some partitions; see `operators.groups`."""
    kept = [_add_multiplicities(table, was=True) for table in old] + [
        _add_multiplicities(table, was=False) for table in own
    ]
    rows, was_before, is_before = rank_changed_rows(one_table(kept), shape.parts, shape.order, shape.most)
    was = count_within(shape.most, was_before, rows.column(WAS).to_numpy())
    now = count_within(shape.most, is_before, rows.column(IS).to_numpy())
    columns = _result_columns(shape, rows, keys)
    if not shape.results:
        diffs = now - was
        chosen = np.flatnonzero(diffs)
        yield from _emit_ranked_rows(shape, columns, chosen, {}, diffs[chosen])
        return
    ((number, kind),) = shape.results
    for chosen, numbers, diffs in diff_ranks((was_before, was), (is_before, now)).numbers(CHUNK_ROWS):
        yield from _emit_ranked_rows(shape, columns, chosen, {number: pa.array(numbers, kind)}, diffs)


def _add_multiplicities(rows: pa.Table, *, was: bool) -> pa.Table:
    """Add to retained rows their multiplicity before the tick and after it."""
    there = rows.column(ROWS)
    before = there if was else pa.chunked_array([pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)])
    return rows.append_column(WAS, before).append_column(IS, there)


def _result_columns(shape: RankShape, rows: pa.Table, keys: pa.RecordBatch) -> pa.RecordBatch:
    """Rename the columns of rows to their names in the result."""
    partitions = pa.array(rows.column(GROUP).to_numpy())
    by = set(shape.partition)
    arrays = [
        keys.column(column).take(partitions) if column in by else one_array(rows.column(column))
        for _, column in shape.keys
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in shape.keys])


def _emit_ranked_rows(
    shape: RankShape,
    columns: pa.RecordBatch,
    chosen: Numbers,
    numbers: dict[str, pa.Array],
    diffs: Numbers,
) -> Iterator[pa.RecordBatch]:
    batch = take_rows(columns, chosen)
    arrays = [*batch.columns, *numbers.values(), pa.array(diffs.astype(np.int64, copy=False))]
    yield from split_batches(
        shape, pa.RecordBatch.from_arrays(arrays, names=[*batch.schema.names, *numbers, DIFF])
    )
