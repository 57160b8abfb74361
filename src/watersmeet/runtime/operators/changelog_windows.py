"""Windows and sessions whose rows may be retracted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.event_time import ENDED, NEVER, Mask, Side, Times, are_below, saturating_add
from watersmeet.kernel.aggregate import ROWS, group_numbers
from watersmeet.kernel.batches import one_batch, one_table, take_rows
from watersmeet.kernel.gather import Columns, as_one_batch
from watersmeet.kernel.groups import GROUP
from watersmeet.kernel.match.pairs import PairCondition, find
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.ordinals import to_native
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.kernel.windows import Numbers, closing_windows, live_sessions, sessions, window_times
from watersmeet.names import ours
from watersmeet.runtime.messages.reports import SideReport, lower_min
from watersmeet.runtime.messages.shapes import PANE, WindowGroupShape
from watersmeet.runtime.operators.groups import (
    accumulate_groups,
    build_change_sums,
    combine_sums,
    compare_groups,
    emit_changed_pairs,
    emit_final_groups,
    emit_group_changes,
    emit_group_deltas,
    write_sums,
)
from watersmeet.runtime.operators.windows import (
    ChosenBatchRows,
    build_later_condition,
    choose_of_piece,
    find_last_rows,
    find_limits,
    find_session_ends,
    last_window_end,
    select_passed_rows,
    split_by_hash,
    split_hash_range,
    split_new_and_retained,
)
from watersmeet.runtime.tasks.changes import select_needles
from watersmeet.runtime.tasks.memory import check_batches
from watersmeet.runtime.tasks.merge import merge_runs
from watersmeet.runtime.tasks.results import count, report_min_alive
from watersmeet.runtime.tasks.side import HashRange, RunSlice, SideSlice, TaskPartition
from watersmeet.spec.model import WINDOW_END, WINDOW_START, WindowKind
from watersmeet.state.marks import MarkWriter
from watersmeet.state.runs.writer import sort_rows

# Sessions whose rows come and go, for one hash range of grouping keys: what changes of them, or the rows
# of those that close.
#
# What is kept are sums of each group and time (`kernel.groups`). A session is made of the sums of its
# times, and only times at which rows are left count. What is kept at a time at which none is left goes at
# once (mark ``gone``); so does what is kept of a session when it closes. Closing goes by what the
# watermark passes, as in `runtime.operators.windows`. That is exact though rows go, too: of a session that
# is open the last time is within the gap of the watermark or beyond, and a change is at the watermark or
# beyond. If a row goes, the time before it was no more than the gap away, so the part before it ends no
# earlier than at the watermark, and is looked at when the watermark passes it. What follows a time that
# was passed is below the watermark, and cannot go any more. Cost: the tick's rows, what the watermark
# passes, what is kept of groups with sessions that close; and, where changes go out, all that is kept of
# the groups that the tick's rows belong to.


def session_group_rows(shape: WindowGroupShape, share: TaskPartition) -> Iterator[pa.RecordBatch]:
    """Emit the changes of open sessions in the hash range, or the rows of sessions that close.

    If the rows of the tick are large, process the hash range in parts, one after the other.
    """
    report, parts = share.report.sides[0], split_hash_range(shape, share)
    slices = []
    for hashes in parts:
        rows, kept = split_new_and_retained(shape, shape.kept, share, hashes)
        new = build_change_sums(shape, rows, kept, hashes, report, partial(_session_panes, shape))
        if new is not None and not shape.is_final:
            yield from compare_groups(shape, kept, new, partial(_emit_session_changes, shape))
        there = _SessionState(shape, kept, new, report)
        there.evict_emptied_times()
        yield from _emit_closed_sessions(shape, there)
        there.keep(share.tick)
        slices.append(kept)
    kept = slices[0] if len(slices) == 1 else _unite_slices(shape, share, slices)
    marks = MarkWriter()
    report.merged = merge_runs(kept, share.tick, marks, lambda *rows: combine_sums(shape, *rows))
    merged = kept.work.list_merged_runs()
    for piece in kept.old:
        if piece.name not in merged:
            piece.keep_marks(marks)
    report.marks = marks.write(share.store, share.tick)
    report_min_alive(kept, kept.old, report)


def _session_panes(shape: WindowGroupShape, rows: pa.RecordBatch) -> dict[str, pa.Array]:
    return {PANE: rows.column(shape.time)}


def _unite_slices(shape: WindowGroupShape, share: TaskPartition, parts: list[SideSlice]) -> SideSlice:
    """Build the retained slice of the whole task partition, with the marks of its parts."""
    _, kept = split_new_and_retained(shape, shape.kept, share, HashRange.of_share(share))
    by_name = {piece.name: piece for piece in kept.old}
    for part in parts:
        for piece in part.old:
            there = by_name[piece.name]
            there.mark("gone", piece.list_newly_marked("gone") + piece.start - there.start)
    return kept


# what changes


def _emit_session_changes(
    shape: WindowGroupShape, old: list[pa.Table], own: list[pa.Table], keys: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    """Emit retractions and new rows of the sessions of some keys; see `operators.groups`."""
    rows = one_table(
        [table.append_column(_IS_NEW, pa.array(np.full(table.num_rows, False))) for table in old]
        + [table.append_column(_IS_NEW, pa.array(np.full(table.num_rows, True))) for table in own]
    )
    rows = rows.filter(pa.array(_find_connected_rows(shape, rows)))
    of_keys, times, counts, is_new = (rows.column(c).to_numpy() for c in (GROUP, PANE, ROWS, _IS_NEW))
    rows = rows.drop_columns([_IS_NEW])
    pairs: list[Numbers] = []
    parts = []
    for chosen in (np.flatnonzero(~is_new), np.arange(len(is_new))):
        there = live_sessions(of_keys[chosen], times[chosen], counts[chosen], shape.size)
        parts.append((chosen, there))
        pairs.append(np.stack([of_keys[chosen][there.firsts], there.starts], axis=1))
    # One that was and one that is are a pair if they begin at the same time: else there is none to compare.
    of_pairs, places = np.unique(np.concatenate(pairs), axis=0, return_inverse=True)
    if not len(of_pairs):
        return
    places = places.reshape(-1)
    groups, ends = len(of_pairs), np.repeat(of_pairs[:, 1], 2)
    both, done = [], 0
    for age, (chosen, there) in enumerate(parts):
        numbers = 2 * places[done : done + len(there.starts)] + age
        done += len(there.starts)
        ends[numbers] = saturating_add(there.lasts, shape.size)
        mine = there.numbers >= 0
        of_age = rows.take(pa.array(chosen[mine]))
        place = of_age.schema.get_field_index(GROUP)
        both.append(of_age.set_column(place, GROUP, pa.array(numbers[there.numbers[mine]])))
    columns = _session_columns(shape, keys, np.repeat(of_pairs[:, 0], 2), np.repeat(of_pairs[:, 1], 2), ends)
    compared = [WINDOW_END, *(name for name, _ in shape.results)]
    yield from emit_changed_pairs(shape, one_table(both), columns, groups, compared)


def _find_connected_rows(shape: WindowGroupShape, rows: pa.Table) -> Mask:
    """Return the mask of rows whose time is connected with the time of a new row.

    Rows that no longer exist connect times, too.
    """
    of_keys, times = rows.column(GROUP).to_numpy(), rows.column(PANE).to_numpy()
    order = np.lexsort((times, of_keys))
    same = np.zeros(len(order), dtype=np.bool_)
    same[1:] = of_keys[order][1:] == of_keys[order][:-1]
    connected = np.empty(len(order), dtype=np.int64)
    connected[order] = sessions(times[order], same, shape.size)
    is_touched = np.zeros(len(order), dtype=np.bool_)
    is_touched[connected[rows.column(_IS_NEW).to_numpy()]] = True
    touched: Mask = is_touched[connected]
    return touched


def _session_columns(
    shape: WindowGroupShape, rows: pa.RecordBatch, chosen: Rows, starts: Times, ends: Times
) -> dict[str, pa.Array]:
    """Build the columns of sessions that are not computed.

    The group's columns come from one chosen row per session.
    """
    return {
        **{name: rows.column(column).take(pa.array(chosen)) for name, column in shape.keys},
        WINDOW_START: to_native(pa.array(starts), shape.window_type),
        WINDOW_END: to_native(pa.array(ends), shape.window_type),
    }


# what leaves


@dataclass
class _SessionState:
    """Retained rows, and the rows ``new`` that the tick adds to them.

    ``gone`` marks the new rows that are not retained; ``left`` has the others. ``grouped`` counts the
    input rows that the evicted rows represent.
    """

    shape: WindowGroupShape
    kept: SideSlice
    new: SortedRows | None
    report: SideReport
    gone: Mask = field(init=False)
    left: SortedRows | None = field(init=False)
    grouped: int = 0

    def __post_init__(self) -> None:
        self.left, self.gone = self.new, np.zeros(0 if self.new is None else len(self.new), dtype=np.bool_)

    def evict_emptied_times(self) -> None:
        """Evict the rows of times at which no row is left."""
        if self.new is None:
            return
        numbers = group_numbers(as_one_batch(self.new.batch), self.shape.by)
        _, firsts, of_rows = np.unique(numbers, return_index=True, return_inverse=True)
        net = np.zeros(len(firsts), dtype=np.int64)
        np.add.at(net, of_rows, _row_counts(self.new.batch))
        losing = np.flatnonzero(net <= 0)
        losing = losing[np.argsort(firsts[losing])]
        if not len(losing):
            return
        needles, net = select_needles(self.new, firsts[losing]), net[losing]
        same_time = build_later_condition(self.shape.lookup_columns, PANE, 0, 0)
        at_times = []
        for piece, needle, row in self._find_retained_pairs(same_time, needles):
            np.add.at(net, needle, _row_counts(piece.rows.batch)[row])
            at_times.append((piece, needle, row))
        nothing = net == 0
        for piece, needle, row in at_times:
            self._mark(piece, row[nothing[needle]])
        self._evict_new(np.isin(of_rows, losing[nothing]))

    def passed(self) -> list[ChosenBatchRows]:
        """Return the rows that the watermark passes in this tick."""
        before, now = find_limits(self.shape, self.kept)
        chosen = []
        for piece in self.kept.old:
            rows = np.sort(select_passed_rows(piece, PANE, before, now))
            chosen.append(choose_of_piece(piece, rows[~piece.read_marks("gone", rows)]))
        if self.new is not None:
            times = self.new.batch.column(PANE).to_numpy(zero_copy_only=True)
            rows = np.flatnonzero(are_below(times, now) & ~self.gone)
            chosen.append((self.new.batch, self.new.slots, rows))
        return [choice for choice in chosen if len(choice[2])]

    def has_successor(self, needles: SortedRows) -> Mask:
        """Return the mask of rows that another row of the same key follows within the gap."""
        hits = np.zeros(len(needles), dtype=np.bool_)
        follows = build_later_condition(self.shape.lookup_columns, PANE, 1, self.shape.size)
        for _, needle, _ in self._find_retained_pairs(follows, needles):
            hits[needle] = True
        if self.left is not None:
            for needle, _ in find(follows, needles, Side.LEFT, self.left):
                hits[needle] = True
        return hits

    def evict_until(self, needles: SortedRows) -> list[ChosenBatchRows]:
        """Evict all rows of the needles' keys up to the needles' times, and return them.

        Args:
            needles: one row per key.
        """
        until = build_later_condition(self.shape.lookup_columns, PANE, None, 0)
        old = [(piece, row) for piece, _, row in self._find_retained_pairs(until, needles)]
        for piece, row in old:
            self._mark(piece, row)
        chosen = [choose_of_piece(piece, np.sort(row)) for piece, row in old]
        if self.new is not None and self.left is not None:
            there = np.flatnonzero(~self.gone)
            leaving = np.zeros(len(self.new), dtype=np.bool_)
            for _, row in find(until, needles, Side.LEFT, self.left):
                leaving[there[row]] = True
            if leaving.any():
                chosen.append((self.new.batch, self.new.slots, np.flatnonzero(leaving)))
                self._evict_new(leaving)
        return chosen

    def keep(self, tick: int) -> None:
        """Write what is left of the tick's rows, and count what has gone."""
        count(self.report, "grouped", self.grouped)
        if self.new is None:
            return
        write_sums(self.kept, self.new, self.gone, tick, self.report)
        times = self.new.batch.column(PANE).to_numpy(zero_copy_only=True)[~self.gone]
        if len(times):
            lower_min(self.report.least, PANE, int(times.min()))

    def _find_retained_pairs(
        self, condition: PairCondition, needles: SortedRows
    ) -> Iterator[tuple[RunSlice, Rows, Rows]]:
        """Pairs of a needle and a row that was kept, and has not left."""
        for piece in self.kept.old:
            for needle, row in find(condition, needles, Side.LEFT, piece.rows):
                there = ~piece.read_marks("gone", row)
                if there.any():
                    yield piece, needle[there], row[there]

    def _mark(self, piece: RunSlice, rows: Rows) -> None:
        """Mark retained rows as evicted."""
        stood_for = int(_row_counts(piece.rows.batch)[rows].sum())
        piece.mark("gone", rows)
        self.report.released[piece.name] = self.report.released.get(piece.name, 0) + len(rows)
        told = self.report.released_rows
        told[piece.name] = told.get(piece.name, 0) + stood_for
        self.grouped += stood_for

    def _evict_new(self, leaving: Mask) -> None:
        """Mark rows of this tick as not retained."""
        assert self.new is not None
        self.grouped += int(_row_counts(self.new.batch)[leaving].sum())
        self.gone |= leaving
        staying = np.flatnonzero(~self.gone)
        self.left = select_needles(self.new, staying) if len(staying) else None


def _row_counts(batch: Columns) -> npt.NDArray[np.int64]:
    counts: npt.NDArray[np.int64] = batch.column(ROWS).to_numpy(zero_copy_only=True)
    return counts


def _emit_closed_sessions(shape: WindowGroupShape, there: _SessionState) -> Iterator[pa.RecordBatch]:
    """Evict the sessions that close; emit their rows if results are final."""
    layout = there.kept.task.layout
    for part in split_by_hash(there.passed(), shape.memory):
        batches = [take_rows(batch, rows) for batch, _, rows in part]
        check_batches(
            f'the state of "{shape.query}" that the watermark passes in a tick', batches, shape.memory
        )
        batch, slots = one_batch(batches), np.concatenate([slots[rows] for _, slots, rows in part])
        times, keys = _read_panes(batch), group_numbers(batch, shape.lookup_columns)
        chosen = find_session_ends(times, keys, shape.size)
        last = sort_rows(take_rows(batch, chosen), slots[chosen], layout)[0]
        closed = np.flatnonzero(~there.has_successor(last))
        if not len(closed):
            continue
        batch, slots = take_rows(as_one_batch(last.batch), closed), last.slots[closed]
        chosen = find_last_rows(_read_panes(batch), group_numbers(batch, shape.lookup_columns))
        ends = sort_rows(take_rows(batch, chosen), slots[chosen], layout)[0]
        leaving = there.evict_until(ends)
        if shape.is_final:
            yield from _results(shape, leaving)


def _results(shape: WindowGroupShape, leaving: list[ChosenBatchRows]) -> Iterator[pa.RecordBatch]:
    """Emit the result rows of sessions, computed from all their retained rows."""
    for part in split_by_hash(leaving, shape.memory):
        batches = [take_rows(batch, rows) for batch, _, rows in part]
        check_batches(
            f'the state of the sessions of "{shape.query}" that close in a tick', batches, shape.memory
        )
        batch = one_batch(batches)
        of_keys = group_numbers(batch, shape.lookup_columns)
        there = live_sessions(of_keys, _read_panes(batch), _row_counts(batch), shape.size)
        rows = np.flatnonzero(there.numbers >= 0)
        kept = pa.Table.from_batches([take_rows(batch, rows)])
        kept = kept.append_column(GROUP, pa.array(there.numbers[rows]))
        ends = saturating_add(there.lasts, shape.size)
        columns = _session_columns(shape, batch, there.firsts, there.starts, ends)
        yield from emit_final_groups(shape, kept, columns, len(there.starts))


def _read_panes(batch: pa.RecordBatch) -> Times:
    times: Times = batch.column(PANE).to_numpy(zero_copy_only=True)
    return times


# Windows whose rows come and go, for one hash range of grouping keys: in the tick in which a window
# changes its old row is taken back and the new one put out, until it closes. Or, if results are to be
# final, a window's row goes out once: in the tick that closes it, made of what is there then.
#
# What is kept is of panes, of which windows consist (`runtime.operators.windows`), and adds up as that of
# groups does (`grouped.groups`): so it is exact after deletes, too. A change looks at what is kept of its
# keys. Panes that are in no open window are released, as rows are: by a plain limit on their start.

_IS_NEW = ours("new")


def window_group_rows(shape: WindowGroupShape, share: TaskPartition) -> Iterator[pa.RecordBatch]:
    """Emit the changes of open windows in the hash range, or the rows of closing windows."""
    if shape.kind is WindowKind.SESSION:
        return session_group_rows(shape, share)
    if shape.is_final:
        return accumulate_groups(
            shape, share, partial(_emit_closed_windows, shape), partial(_build_panes, shape)
        )
    return emit_group_deltas(shape, share, partial(_emit_window_changes, shape), partial(_build_panes, shape))


def _build_panes(shape: WindowGroupShape, rows: pa.RecordBatch) -> dict[str, pa.Array]:
    times = rows.column(shape.time).to_numpy(zero_copy_only=True)
    starts, _ = window_times(np.floor_divide(times, np.int64(shape.pane)), shape.pane, shape.pane)
    return {PANE: pa.array(starts)}


def _emit_window_changes(
    shape: WindowGroupShape, old: list[pa.Table], own: list[pa.Table], keys: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    """Emit the retractions and the new rows of the windows of some keys; see `operators.groups`."""
    rows = one_table(
        [_add_is_new(table, is_new=False) for table in old]
        + [_add_is_new(table, is_new=True) for table in own]
    )
    of_keys, is_new = (rows.column(name).to_numpy() for name in (GROUP, _IS_NEW))
    for row, window in closing_windows(rows.column(PANE).to_numpy(), shape.size, shape.slide, NEVER, ENDED):
        firsts, numbers = _number_key_windows(of_keys[row], window)
        changed = np.zeros(len(firsts), dtype=np.bool_)
        changed[numbers[is_new[row]]] = True
        chosen = changed[numbers]
        if not chosen.any():
            continue
        places = np.cumsum(changed) - 1
        kept = rows.take(pa.array(row[chosen]))
        kept = kept.set_column(kept.schema.get_field_index(GROUP), GROUP, pa.array(places[numbers[chosen]]))
        firsts = firsts[changed]
        columns = _columns(shape, keys, of_keys[row[firsts]], window[firsts])
        was, comes = (_select_by_age(kept, is_new=flag) for flag in (False, True))
        yield from emit_group_changes(shape, was, comes, columns, len(firsts))


def _columns(
    shape: WindowGroupShape, rows: pa.RecordBatch, chosen: Rows, windows: Numbers
) -> dict[str, pa.Array]:
    """Build the columns of (group, window) pairs that are not computed.

    The group's columns come from one chosen row per pair.
    """
    starts, ends = window_times(windows, shape.size, shape.slide)
    return {
        **{name: rows.column(column).take(pa.array(chosen)) for name, column in shape.keys},
        WINDOW_START: to_native(pa.array(starts), shape.window_type),
        WINDOW_END: to_native(pa.array(ends), shape.window_type),
    }


def _emit_closed_windows(
    shape: WindowGroupShape, kept: SideSlice, new: SortedRows | None
) -> Iterator[pa.RecordBatch]:
    """Emit the rows of the windows that close in this tick."""
    before, now = (limits.get(PANE, NEVER) for limits in (kept.work.old_limits, kept.work.new_limits))
    since, until = last_window_end(shape, before), last_window_end(shape, now)
    chosen = [
        choose_of_piece(piece, np.sort(select_passed_rows(piece, PANE, before, until))) for piece in kept.old
    ]
    if new is not None:
        starts = new.batch.column(PANE).to_numpy(zero_copy_only=False)
        chosen.append((new.batch, new.slots, np.flatnonzero(are_below(starts, until))))
    for part in split_by_hash([choice for choice in chosen if len(choice[2])], shape.memory):
        batches = [take_rows(batch, rows) for batch, _, rows in part]
        check_batches(
            f'the state of the windows of "{shape.query}" that close in a tick', batches, shape.memory
        )
        batch = one_batch(batches)
        of_keys = group_numbers(batch, shape.lookup_columns)
        panes = batch.column(PANE).to_numpy(zero_copy_only=False)
        for row, window in closing_windows(panes, shape.size, shape.slide, since, until):
            firsts, numbers = _number_key_windows(of_keys[row], window)
            rows = pa.Table.from_batches([take_rows(batch, row)]).append_column(GROUP, pa.array(numbers))
            columns = _columns(shape, batch, row[firsts], window[firsts])
            yield from emit_final_groups(shape, rows, columns, len(firsts))


def _add_is_new(rows: pa.Table, *, is_new: bool) -> pa.Table:
    return rows.append_column(_IS_NEW, pa.array(np.full(rows.num_rows, is_new)))


def _select_by_age(rows: pa.Table, *, is_new: bool) -> list[pa.Table]:
    """Return the rows of the tick, or those retained before it, as a list of at most one table.

    The list is empty if there are no such rows.
    """
    own = rows.filter(pa.array(rows.column(_IS_NEW).to_numpy() == is_new)).drop_columns([_IS_NEW])
    return [own] if own.num_rows else []


def _number_key_windows(keys: Numbers, windows: Numbers) -> tuple[Numbers, Numbers]:
    """Assign numbers to the pairs of key and window.

    Returns:
        The position of the first row of each distinct pair, and the number of each row's pair.
    """
    _, of_window = np.unique(windows, return_inverse=True)
    together = keys * np.int64(int(of_window.max(initial=0)) + 1) + of_window
    _, firsts, numbers = np.unique(together, return_index=True, return_inverse=True)
    return firsts, numbers
