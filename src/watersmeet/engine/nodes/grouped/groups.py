"""Groups over all rows, for one hash range of their keys: of a group that changes the old row is taken back,
and the new one put out.

What is kept of groups adds up (`kernel.groups`): the changes of a tick become kept rows, which are a run, and
nothing that is there is touched. The groups that the tick's rows belong to are looked up in all runs: without
the tick's rows they make the row that was put out before, with them the new one. Merging runs adds kept rows
up, so there are few of each. Cost: the tick's rows, and what is kept of the groups that they belong to; of
min, max and other aggregates that are no sums that is every different value of the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.engine.messages.reports import SideReport
from watersmeet.engine.messages.summed import GroupShape, SummedShape
from watersmeet.engine.nodes.partial import BUCKET, brought_and_kept, parts_of, release_sums
from watersmeet.engine.tasks.changes import needles_at
from watersmeet.engine.tasks.cut import HashRange
from watersmeet.engine.tasks.memory import check_bytes, run_bytes
from watersmeet.engine.tasks.merge import merge_runs
from watersmeet.engine.tasks.results import NO_ROWS, count, cut
from watersmeet.engine.tasks.share import Share
from watersmeet.engine.tasks.slice import SideSlice
from watersmeet.event_time import NEVER, Side, below
from watersmeet.kernel.aggregate import AggregateColumn, group_numbers, quoted
from watersmeet.kernel.batches import MOST_BYTES, cuts, narrowed, one_array, one_table, size, take_rows
from watersmeet.kernel.groups import GROUP, added_up, is_nothing, kept_of, results_of
from watersmeet.kernel.joined import gather
from watersmeet.kernel.match.pairs import Condition, find
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.partial import ROWS
from watersmeet.kernel.pieces import row_sizes, whole
from watersmeet.kernel.slots import BUCKET_MASK, Slots
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.names import DIFF
from watersmeet.state.manifest import LiveRun
from watersmeet.state.marks import MarkWriter
from watersmeet.state.runs.written import sort_rows, write_run

_BUCKET = AggregateColumn(BUCKET, f"min({quoted(BUCKET)})", pa.int64())

Kept = tuple[pa.RecordBatch, Slots]
"""Kept rows, as runs hold them, and the upper halves of their slots."""


OfGroups = Callable[[list[pa.Table], list[pa.Table], pa.RecordBatch], Iterator[pa.RecordBatch]]
"""The rows that some groups take back and put out: of what was kept of them, what the tick adds, and a row
with the columns of each. In what is kept they are numbered by `GROUP`, in the order of those rows."""
OfPart = Callable[[SideSlice, SortedRows | None], Iterator[pa.RecordBatch]]
"""What goes out of a part of the share: of what is kept of it, and what the tick adds, if it does."""
MadeOf = Callable[[pa.RecordBatch], Mapping[str, pa.Array]]
"""Columns that kept rows have besides those of the side, of rows of the side."""


def group_rows(shape: GroupShape, share: Share) -> Iterator[pa.RecordBatch]:
    """The changes of the groups of the share's hash range."""
    return changed_groups(shape, share, partial(_of_groups, shape))


def changed_groups(
    shape: SummedShape, share: Share, of_groups: OfGroups, made_of: MadeOf = lambda rows: {}
) -> Iterator[pa.RecordBatch]:
    """What changes of the groups of the share's hash range."""

    def of_part(kept: SideSlice, new: SortedRows | None) -> Iterator[pa.RecordBatch]:
        if new is not None:
            yield from changes_of_groups(shape, kept, new, of_groups)

    return added_groups(shape, share, of_part, made_of)


def added_groups(
    shape: SummedShape, share: Share, of_part: OfPart, made_of: MadeOf = lambda rows: {}
) -> Iterator[pa.RecordBatch]:
    """What goes out of the share's hash range; the tick's changes are added to what is kept. Where they are
    many bytes, one part of the range after the other."""
    report, parts = share.report.sides[0], parts_of(shape, share)
    for hashes in parts:
        rows, kept = brought_and_kept(shape, shape.kept, share, hashes)
        new = sums_of_changes(shape, rows, kept, hashes, report, made_of)
        yield from of_part(kept, new)
        if new is not None:
            _keep(kept, new, share.tick, report)
        release_sums(kept, report)
    if len(parts) > 1:
        _, kept = brought_and_kept(shape, shape.kept, share, HashRange.of_share(share))
    report.merged = merge_runs(kept, share.tick, MarkWriter(), lambda *rows: sums_together(shape, *rows))


def _keep(kept: SideSlice, new: SortedRows, tick: int, report: SideReport) -> None:
    """Write what is to be kept of the tick's changes, but for what is released at once."""
    stand_for = new.batch.column(ROWS).to_numpy(zero_copy_only=False)
    gone = np.zeros(len(new), dtype=np.bool_)
    for column in kept.task.layout.releasing:
        limit = kept.work.new_limits.get(column, NEVER)
        gone |= below(new.batch.column(column).to_numpy(zero_copy_only=False), limit)
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


def _changes_in(own: SideSlice) -> int:
    """How many rows the tick's changes are: of those that go, too."""
    return sum(int(np.abs(piece.rows.batch.column(DIFF).to_numpy()).sum()) for piece in own.new_runs)


# what is kept


def sums_of_changes(
    shape: SummedShape,
    rows: SideSlice,
    kept: SideSlice,
    hashes: HashRange,
    report: SideReport,
    made_of: MadeOf,
) -> SortedRows | None:
    """What is to be kept of the tick's changes; None of none. Changes that take others away are counted."""
    new = _changed(shape, rows, kept, hashes, made_of)
    added = 0 if new is None else int(new.batch.column(ROWS).to_numpy(zero_copy_only=False).sum())
    count(report, "deleted", _changes_in(rows) - added)
    return new


def _changed(
    shape: SummedShape, rows: SideSlice, kept: SideSlice, hashes: HashRange, made_of: MadeOf
) -> SortedRows | None:
    tables = [_of_rows(shape, piece.rows, made_of) for piece in rows.new_runs]
    if not tables and shape.is_always and not kept.old and hashes.low <= 0 < hashes.high:
        tables = [_nothing(shape)]  # the group of no row is there from the first tick on
    if not tables:
        return None
    table = tables[0]
    if len(tables) > 1:
        table = added_up(shape.parts, shape.by, one_table(tables), [_BUCKET])
    batch, buckets = _stored(shape, table)
    return sort_rows(batch, buckets, kept.task.layout)[0] if batch.num_rows else None


def _of_rows(shape: SummedShape, rows: SortedRows, made_of: MadeOf) -> pa.Table:
    """What is kept of some changes."""
    batch = whole(rows.batch)
    given = gather(shape.columns, batch, np.arange(len(rows)), None, NO_ROWS)
    columns = {name: given.column(name) for name in given.schema.names}
    columns |= {DIFF: batch.column(DIFF), BUCKET: pa.array(rows.slots & BUCKET_MASK)}
    columns |= made_of(batch)
    return kept_of(shape.parts, shape.by, pa.table(columns), [_BUCKET])


def _nothing(shape: SummedShape) -> pa.Table:
    """What is kept of the group of no row."""
    sums = {column.name for column in shape.parts.added}
    columns = {
        field.name: pa.array([0], field.type) if field.name in sums else pa.nulls(1, field.type)
        for field in shape.kept.schema
    }
    return pa.table({**columns, BUCKET: pa.array([0], pa.int64())})


def _stored(shape: SummedShape, table: pa.Table, what: str = "what is kept of the groups of a tick") -> Kept:
    """As runs hold them, without those of which nothing is left; but a group that always is keeps one.
    ``what`` they are, for people."""
    staying = ~is_nothing(shape.parts, table)
    if shape.is_always and not staying.any():
        staying[:1] = True
    table = table.filter(pa.array(staying))
    schema = shape.kept.schema
    arrays = [one_array(table.column(name)) for name in schema.names]
    check_bytes(what, size(arrays), shape.memory, MOST_BYTES)
    arrays = [narrowed(array, field.type) for array, field in zip(arrays, schema, strict=True)]
    buckets: Slots = table.column(BUCKET).to_numpy()
    return pa.RecordBatch.from_arrays(arrays, schema=schema), buckets


def sums_together(shape: SummedShape, batch: pa.RecordBatch, buckets: Slots) -> Kept:
    """Kept rows of several runs, added up. They are cut but for those of one hash."""
    table = pa.Table.from_batches([batch]).append_column(BUCKET, pa.array(buckets))
    return _stored(shape, added_up(shape.parts, shape.by, table, [_BUCKET]), f"rows in {shape.of_one}")


# what goes out


@dataclass(frozen=True)
class _Chosen:
    """Kept rows of groups, by number, among those of a batch."""

    batch: pa.RecordBatch
    rows: Rows
    groups: Rows


def changes_of_groups(
    shape: SummedShape, kept: SideSlice, new: SortedRows, of_groups: OfGroups
) -> Iterator[pa.RecordBatch]:
    """The old rows of groups that change, and the new ones; one part of the groups after the other, where
    what is kept of them is many bytes."""
    numbers, firsts = _numbered(shape, new)
    needles = needles_at(new, firsts)
    ranks = np.zeros(len(new), dtype=np.int64)
    ranks[:] = numbers
    same_group = Condition.of_equal(shape.looked_up_by, null_safe=True)
    looked_up = []
    for piece in kept.old:
        for needle, row in find(same_group, needles, Side.LEFT, piece.rows):
            if piece.live.marks:
                there = ~piece.are("gone", row)
                needle, row = needle[there], row[there]
            if len(row):
                looked_up.append(_Chosen(piece.rows.batch, row, needle))
    for low, high in _parts(shape, looked_up, _Chosen(new.batch, np.arange(len(new)), ranks), len(firsts)):
        old, own = [], []
        for choice in looked_up:
            mine = (choice.groups >= low) & (choice.groups < high)
            if mine.any():
                old.append(_numbered_rows(choice, mine, low))
        mine = (ranks >= low) & (ranks < high)
        own.append(_numbered_rows(_Chosen(new.batch, np.arange(len(new)), ranks), mine, low))
        yield from of_groups(old, own, take_rows(needles.batch, np.arange(low, high)))


def _numbered(shape: SummedShape, new: SortedRows) -> tuple[Rows, Rows]:
    """The number of each kept row's group, in the order of the groups' first rows, and where these are."""
    numbers = group_numbers(whole(new.batch), shape.looked_up_by)
    _, firsts, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(firsts, kind="stable")
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places[inverse], firsts[order]


def _parts(
    shape: SummedShape, looked_up: list[_Chosen], own: _Chosen, groups: int
) -> Iterator[tuple[int, int]]:
    """Ranges of groups, so many that what is kept of them is about as many bytes as a run, or one.

    Raises:
        EngineError: one group alone is more than a task may hold.
    """
    held = np.zeros(groups, dtype=np.float64)
    for choice in [*looked_up, own]:
        sizes = row_sizes(choice.batch, choice.batch.schema.names, choice.rows)
        held += np.bincount(choice.groups, weights=sizes, minlength=groups)
    check_bytes(
        f"rows in {shape.of_one}",
        int(held.max(initial=0)),
        shape.memory,
        MOST_BYTES,
    )
    yield from pairwise(cuts(held.astype(np.int64), run_bytes(shape.memory)))


def _numbered_rows(choice: _Chosen, mine: npt.NDArray[np.bool_], low: int) -> pa.Table:
    rows = pa.Table.from_batches([whole(take_rows(choice.batch, choice.rows[mine]))])
    return rows.append_column(GROUP, pa.array(choice.groups[mine] - low))


def _of_groups(
    shape: SummedShape, old: list[pa.Table], own: list[pa.Table], keys: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    """The old and the new rows of some groups."""
    columns = {name: keys.column(column) for name, column in shape.keys}
    yield from put_out_anew(shape, old, own, columns, keys.num_rows)


def put_out_anew(
    shape: SummedShape,
    old: list[pa.Table],
    own: list[pa.Table],
    columns: Mapping[str, pa.Array],
    groups: int,
) -> Iterator[pa.RecordBatch]:
    """The old and the new rows of groups, of which ``columns`` hold what is not computed, by its names. Group
    ``n`` as it was has the number ``2 n``, as it is ``2 n + 1``."""
    was = [_renumbered(table, 0) for table in old]
    numbers = pa.array(np.arange(2 * groups) // 2)
    kept = one_table([*was, *(_renumbered(table, 1) for table in [*old, *own])])
    there = np.array([bool(old), True]) if shape.is_always else None
    both = {name: column.take(numbers) for name, column in columns.items()}
    yield from put_out_pairs(shape, kept, both, groups, [name for name, _ in shape.results], there)


def put_out_pairs(
    shape: SummedShape,
    kept: pa.Table,
    columns: Mapping[str, pa.Array],
    groups: int,
    compared: Sequence[str],
    is_there: npt.NDArray[np.bool_] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The old and the new rows of groups whose ``compared`` columns differ. ``kept`` and ``columns`` are of
    both, numbered as in `put_out_anew`. ``is_there``: which there are; None: those that have rows."""
    both, rows = _made_of(shape, kept, columns, 2 * groups)
    there = rows > 0 if is_there is None else is_there
    same = _same(both, compared, groups)
    out = there & ~np.repeat(same & there[0::2] & there[1::2], 2)
    chosen = np.flatnonzero(out)
    diffs = pa.array(np.where(chosen % 2 == 0, -1, 1).astype(np.int64))
    batch = take_rows(both, chosen)
    yield from cut(
        shape,
        pa.RecordBatch.from_arrays([*batch.columns, diffs], names=[*batch.schema.names, DIFF]),
    )


def put_out_once(
    shape: SummedShape, kept: pa.Table, columns: Mapping[str, pa.Array], groups: int
) -> Iterator[pa.RecordBatch]:
    """The rows of groups that have any, of all that is kept of them; ``columns`` as in `put_out_anew`."""
    batch, rows = _made_of(shape, kept, columns, groups)
    yield from cut(shape, take_rows(batch, np.flatnonzero(rows > 0)))


def _made_of(
    shape: SummedShape, kept: pa.Table, columns: Mapping[str, pa.Array], groups: int
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """The row of each group, and how many rows it has."""
    if shape.parts.chosen:
        kept = added_up(shape.parts, [GROUP, *shape.looked_up_by], kept)
    rows, results = results_of(shape.parts, kept, groups)
    every = {**columns, **results}
    names = shape.joined_schema.names
    return pa.RecordBatch.from_arrays([every[name] for name in names], names=names), rows


def _renumbered(rows: pa.Table, age: int) -> pa.Table:
    place = rows.schema.get_field_index(GROUP)
    return rows.set_column(place, GROUP, pa.array(rows.column(GROUP).to_numpy() * 2 + age))


def _same(both: pa.RecordBatch, results: Sequence[str], groups: int) -> npt.NDArray[np.bool_]:
    """Of which groups the old results are the new ones."""
    if not results:
        return np.ones(groups, dtype=np.bool_)
    numbers = group_numbers(both, results)
    same: npt.NDArray[np.bool_] = numbers[0::2] == numbers[1::2]
    return same
