"""Sessions whose rows come and go, for one hash range of grouping keys: what changes of them, or the rows of
those that close.

What is kept are sums of each group and time (`kernel.groups`). A session is made of the sums of its times,
and only times at which rows are left count. What is kept at a time at which none is left goes at once (mark
``gone``); so does what is kept of a session when it closes.
Closing goes by what the watermark passes, as in `engine.nodes.aggregate`. That is exact though rows go, too:
of a session that is open the last time is within the gap of the watermark or beyond, and a change is at the
watermark or beyond. If a row goes, the time before it was no more than the gap away, so the part before it
ends no earlier than at the watermark, and is looked at when the watermark passes it. What follows a time that
was passed is below the watermark, and cannot go any more.
Cost: the tick's rows, what the watermark passes, what is kept of groups with sessions that close; and, where
changes go out, all that is kept of the groups that the tick's rows belong to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.engine.messages.reports import SideReport, lower
from watersmeet.engine.messages.summed import PANE, WindowGroupShape
from watersmeet.engine.nodes.grouped.groups import (
    changes_of_groups,
    put_out_once,
    put_out_pairs,
    sums_of_changes,
    sums_together,
    write_sums,
)
from watersmeet.engine.nodes.partial import brought_and_kept, parts_of
from watersmeet.engine.nodes.windows import (
    Chosen,
    in_parts,
    last_of_keys,
    later,
    limits,
    of_piece,
    passed,
    without_follower,
)
from watersmeet.engine.tasks.changes import needles_at
from watersmeet.engine.tasks.cut import HashRange
from watersmeet.engine.tasks.memory import check_held
from watersmeet.engine.tasks.merge import merge_runs
from watersmeet.engine.tasks.results import count, least_alive
from watersmeet.engine.tasks.share import Share
from watersmeet.engine.tasks.slice import RunSlice, SideSlice
from watersmeet.event_time import Mask, Side, Times, below, saturating_add
from watersmeet.kernel.aggregate import group_numbers
from watersmeet.kernel.batches import one_batch, one_table, take_rows
from watersmeet.kernel.groups import GROUP
from watersmeet.kernel.match.pairs import Condition, find
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.partial import ROWS
from watersmeet.kernel.pieces import Columns, whole
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.kernel.times import to_native
from watersmeet.kernel.windows import Numbers, live_sessions, sessions
from watersmeet.names import ours
from watersmeet.spec.model import WINDOW_END, WINDOW_START
from watersmeet.state.marks import MarkWriter
from watersmeet.state.runs.written import sort_rows

_IS_NEW = ours("new")


def session_group_rows(shape: WindowGroupShape, share: Share) -> Iterator[pa.RecordBatch]:
    """The changes of the open sessions of the share's hash range; or the rows of those that close. Where the
    tick's rows are many bytes, one part of the range after the other."""
    report, parts = share.report.sides[0], parts_of(shape, share)
    slices = []
    for hashes in parts:
        rows, kept = brought_and_kept(shape, shape.kept, share, hashes)
        new = sums_of_changes(shape, rows, kept, hashes, report, partial(_times, shape))
        if new is not None and not shape.is_final:
            yield from changes_of_groups(shape, kept, new, partial(_of_sessions, shape))
        there = _There(shape, kept, new, report)
        there.leave_nothing()
        yield from _closed(shape, there)
        there.keep(share.tick)
        slices.append(kept)
    kept = slices[0] if len(slices) == 1 else _as_one(shape, share, slices)
    marks = MarkWriter()
    report.merged = merge_runs(kept, share.tick, marks, lambda *rows: sums_together(shape, *rows))
    merged = kept.work.merged_away()
    for piece in kept.old:
        if piece.name not in merged:
            piece.keep_marks(marks)
    report.marks = marks.write(share.store, share.tick)
    least_alive(kept, kept.old, report)


def _times(shape: WindowGroupShape, rows: pa.RecordBatch) -> dict[str, pa.Array]:
    return {PANE: rows.column(shape.time)}


def _as_one(shape: WindowGroupShape, share: Share, parts: list[SideSlice]) -> SideSlice:
    """What is kept of the whole share, with the marks of its parts."""
    _, kept = brought_and_kept(shape, shape.kept, share, HashRange.of_share(share))
    by_name = {piece.name: piece for piece in kept.old}
    for part in parts:
        for piece in part.old:
            there = by_name[piece.name]
            there.mark("gone", piece.newly("gone") + piece.start - there.start)
    return kept


# what changes


def _of_sessions(
    shape: WindowGroupShape, old: list[pa.Table], own: list[pa.Table], keys: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    """The rows of sessions that some keys take back and put out; see `grouped.groups.OfGroups`."""
    rows = one_table(
        [table.append_column(_IS_NEW, pa.array(np.full(table.num_rows, False))) for table in old]
        + [table.append_column(_IS_NEW, pa.array(np.full(table.num_rows, True))) for table in own]
    )
    rows = rows.filter(pa.array(_touched(shape, rows)))
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
    columns = _columns(shape, keys, np.repeat(of_pairs[:, 0], 2), np.repeat(of_pairs[:, 1], 2), ends)
    compared = [WINDOW_END, *(name for name, _ in shape.results)]
    yield from put_out_pairs(shape, one_table(both), columns, groups, compared)


def _touched(shape: WindowGroupShape, rows: pa.Table) -> Mask:
    """Which rows are at a time that is connected with a new row's, be it by rows that are there no more."""
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


def _columns(
    shape: WindowGroupShape, rows: pa.RecordBatch, chosen: Rows, starts: Times, ends: Times
) -> dict[str, pa.Array]:
    """What is not computed, of sessions: the group's columns are a chosen row's."""
    return {
        **{name: rows.column(column).take(pa.array(chosen)) for name, column in shape.keys},
        WINDOW_START: to_native(pa.array(starts), shape.window_type),
        WINDOW_END: to_native(pa.array(ends), shape.window_type),
    }


# what leaves


@dataclass
class _There:
    """What is kept, and what the tick adds to it, ``new``; ``gone``: which rows of that are not to be kept,
    and ``left``: the others. ``grouped``: how many rows those stood for that have left."""

    shape: WindowGroupShape
    kept: SideSlice
    new: SortedRows | None
    report: SideReport
    gone: Mask = field(init=False)
    left: SortedRows | None = field(init=False)
    grouped: int = 0

    def __post_init__(self) -> None:
        self.left, self.gone = self.new, np.zeros(0 if self.new is None else len(self.new), dtype=np.bool_)

    def leave_nothing(self) -> None:
        """Rows of times at which none is left go."""
        if self.new is None:
            return
        numbers = group_numbers(whole(self.new.batch), self.shape.by)
        _, firsts, of_rows = np.unique(numbers, return_index=True, return_inverse=True)
        net = np.zeros(len(firsts), dtype=np.int64)
        np.add.at(net, of_rows, _stand_for(self.new.batch))
        losing = np.flatnonzero(net <= 0)
        losing = losing[np.argsort(firsts[losing])]
        if not len(losing):
            return
        needles, net = needles_at(self.new, firsts[losing]), net[losing]
        same_time = later(self.shape.looked_up_by, PANE, 0, 0)
        at_times = []
        for piece, needle, row in self._found(same_time, needles):
            np.add.at(net, needle, _stand_for(piece.rows.batch)[row])
            at_times.append((piece, needle, row))
        nothing = net == 0
        for piece, needle, row in at_times:
            self._mark(piece, row[nothing[needle]])
        self._leave_new(np.isin(of_rows, losing[nothing]))

    def passed(self) -> list[Chosen]:
        """The rows that the watermark passes in the tick."""
        before, now = limits(self.shape, self.kept)
        chosen = []
        for piece in self.kept.old:
            rows = np.sort(passed(piece, PANE, before, now))
            chosen.append(of_piece(piece, rows[~piece.are("gone", rows)]))
        if self.new is not None:
            times = self.new.batch.column(PANE).to_numpy(zero_copy_only=True)
            rows = np.flatnonzero(below(times, now) & ~self.gone)
            chosen.append((self.new.batch, self.new.slots, rows))
        return [choice for choice in chosen if len(choice[2])]

    def followed(self, needles: SortedRows) -> Mask:
        """Which of the rows another one of the same key follows within the gap."""
        hits = np.zeros(len(needles), dtype=np.bool_)
        follows = later(self.shape.looked_up_by, PANE, 1, self.shape.size)
        for _, needle, _ in self._found(follows, needles):
            hits[needle] = True
        if self.left is not None:
            for needle, _ in find(follows, needles, Side.LEFT, self.left):
                hits[needle] = True
        return hits

    def leave_until(self, needles: SortedRows) -> list[Chosen]:
        """All rows of the needles' keys until their times, which leave. ``needles``: one per key."""
        until = later(self.shape.looked_up_by, PANE, None, 0)
        old = [(piece, row) for piece, _, row in self._found(until, needles)]
        for piece, row in old:
            self._mark(piece, row)
        chosen = [of_piece(piece, np.sort(row)) for piece, row in old]
        if self.new is not None and self.left is not None:
            there = np.flatnonzero(~self.gone)
            leaving = np.zeros(len(self.new), dtype=np.bool_)
            for _, row in find(until, needles, Side.LEFT, self.left):
                leaving[there[row]] = True
            if leaving.any():
                chosen.append((self.new.batch, self.new.slots, np.flatnonzero(leaving)))
                self._leave_new(leaving)
        return chosen

    def keep(self, tick: int) -> None:
        """Write what is left of the tick's rows, and count what has gone."""
        count(self.report, "grouped", self.grouped)
        if self.new is None:
            return
        write_sums(self.kept, self.new, self.gone, tick, self.report)
        times = self.new.batch.column(PANE).to_numpy(zero_copy_only=True)[~self.gone]
        if len(times):
            lower(self.report.least, PANE, int(times.min()))

    def _found(self, condition: Condition, needles: SortedRows) -> Iterator[tuple[RunSlice, Rows, Rows]]:
        """Pairs of a needle and a row that was kept, and has not left."""
        for piece in self.kept.old:
            for needle, row in find(condition, needles, Side.LEFT, piece.rows):
                there = ~piece.are("gone", row)
                if there.any():
                    yield piece, needle[there], row[there]

    def _mark(self, piece: RunSlice, rows: Rows) -> None:
        """These rows that were kept leave."""
        stood_for = int(_stand_for(piece.rows.batch)[rows].sum())
        piece.mark("gone", rows)
        self.report.released[piece.name] = self.report.released.get(piece.name, 0) + len(rows)
        told = self.report.released_rows
        told[piece.name] = told.get(piece.name, 0) + stood_for
        self.grouped += stood_for

    def _leave_new(self, leaving: Mask) -> None:
        """These rows of the tick are not to be kept."""
        assert self.new is not None
        self.grouped += int(_stand_for(self.new.batch)[leaving].sum())
        self.gone |= leaving
        staying = np.flatnonzero(~self.gone)
        self.left = needles_at(self.new, staying) if len(staying) else None


def _stand_for(batch: Columns) -> npt.NDArray[np.int64]:
    counts: npt.NDArray[np.int64] = batch.column(ROWS).to_numpy(zero_copy_only=True)
    return counts


def _closed(shape: WindowGroupShape, there: _There) -> Iterator[pa.RecordBatch]:
    """Sessions that close leave; if results are final, they go out."""
    layout = there.kept.task.layout
    for part in in_parts(there.passed(), shape.memory):
        batches = [take_rows(batch, rows) for batch, _, rows in part]
        check_held(f'the state of "{shape.query}" that the watermark passes in a tick', batches, shape.memory)
        batch, slots = one_batch(batches), np.concatenate([slots[rows] for _, slots, rows in part])
        times, keys = _times_in(batch), group_numbers(batch, shape.looked_up_by)
        chosen = without_follower(times, keys, shape.size)
        last = sort_rows(take_rows(batch, chosen), slots[chosen], layout)[0]
        closed = np.flatnonzero(~there.followed(last))
        if not len(closed):
            continue
        batch, slots = take_rows(whole(last.batch), closed), last.slots[closed]
        chosen = last_of_keys(_times_in(batch), group_numbers(batch, shape.looked_up_by))
        ends = sort_rows(take_rows(batch, chosen), slots[chosen], layout)[0]
        leaving = there.leave_until(ends)
        if shape.is_final:
            yield from _results(shape, leaving)


def _results(shape: WindowGroupShape, leaving: list[Chosen]) -> Iterator[pa.RecordBatch]:
    """The rows of sessions, of all that is kept of them."""
    for part in in_parts(leaving, shape.memory):
        batches = [take_rows(batch, rows) for batch, _, rows in part]
        check_held(
            f'the state of the sessions of "{shape.query}" that close in a tick', batches, shape.memory
        )
        batch = one_batch(batches)
        of_keys = group_numbers(batch, shape.looked_up_by)
        there = live_sessions(of_keys, _times_in(batch), _stand_for(batch), shape.size)
        rows = np.flatnonzero(there.numbers >= 0)
        kept = pa.Table.from_batches([take_rows(batch, rows)])
        kept = kept.append_column(GROUP, pa.array(there.numbers[rows]))
        ends = saturating_add(there.lasts, shape.size)
        columns = _columns(shape, batch, there.firsts, there.starts, ends)
        yield from put_out_once(shape, kept, columns, len(there.starts))


def _times_in(batch: pa.RecordBatch) -> Times:
    times: Times = batch.column(PANE).to_numpy(zero_copy_only=True)
    return times
