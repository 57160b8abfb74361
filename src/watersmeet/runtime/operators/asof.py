"""ASOF joins in a task: every left row leaves once, with its nearest right row or without one.

A left row is decided when no right row that is still to come could be nearer (``settled``: none is below it).

    new left rows                         each asks once, when it comes
    old ones that the watermark decides   a range in the order of their times
    old ones that a right row decides     found from that row: it is exactly as near as can be; or, where the
                                          earliest is taken, it is the first of its key that is settled

So an old left row asks again only when it leaves (or by chance: a look-up gives a few too many). Of the right
rows that fall below ``asked``, all but the last one of each key leave, with the mark ``gone``; so do left
rows that are decided before the watermark does it.

Where right rows were shed (SET at_limit), all that are as old as one of them, a left row takes none of these
times and, where the earliest is taken, none if it would have asked for them. So it may find none; it leaves
as such a row when the watermark decides it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.event_time import MAX_TIME, MIN_TIME, NEVER, Mask, Side, Times, Watermark, are_below
from watersmeet.kernel.asof import CAME, Askers, AsOfNeedles, Nearest, nearest
from watersmeet.kernel.gather import ChosenRows, Columns
from watersmeet.kernel.match.probe import Rows, expand, ranges
from watersmeet.kernel.slots import Slots, order_of
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.runtime.messages.shapes import JoinShape
from watersmeet.runtime.messages.work import AsofWork
from watersmeet.runtime.tasks.results import NO_ROWS, count, emit_rows, pad, report_min_alive
from watersmeet.runtime.tasks.side import RunSlice, SideSlice, TaskPartition


@dataclass(frozen=True)
class _RightRows:
    """Right rows that are looked through: of an old run (``piece``), or those of the tick."""

    rows: SortedRows
    piece: RunSlice | None

    def came(self, rows: Rows) -> Times:
        arrivals: Times = self.rows.batch.column(CAME).to_numpy(zero_copy_only=True)[rows]
        return arrivals + np.int64(0 if self.piece is None else self.piece.run.run.offset)


class AsofTask:
    """One hash range of an ASOF join in one tick."""

    def __init__(
        self, shape: JoinShape, slices: dict[Side, SideSlice], work: AsofWork, share: TaskPartition
    ) -> None:
        assert shape.reach is not None
        self._shape, self._reach, self._work, self._report = shape, shape.reach, work, share.report
        self._share = share
        self._left, self._right = slices[Side.LEFT], slices[Side.RIGHT]
        new = [] if self._right.new is None else [_RightRows(self._right.new.rows, None)]
        self._old_stocks = [_RightRows(piece.rows, piece) for piece in self._right.old]
        self._stocks = [*self._old_stocks, *new]
        self._alone: list[tuple[Columns, Rows]] = []
        keys = shape.condition.keys
        self._left_keys = tuple(key.left for key in keys)
        self._sought = AsOfNeedles(
            tuple(key.right for key in keys), tuple(key.null_safe for key in keys), shape.reach.right
        )

    def run(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that this tick emits, then release right rows."""
        for piece in self._left.old:
            yield from self._run_old_left(piece)
        yield from self._run_new_left()
        for batch, rows in self._alone:
            yield from pad(self._shape, Side.LEFT, batch, rows)
        if self._right.new is not None:
            for piece, rows in self._right.list_new_matches():
                piece.mark_matched(rows)
        self._release_right()
        for side in Side:
            own = self._left if side is Side.LEFT else self._right
            report_min_alive(own, [*own.old, *own.new_runs], self._report.side(side))

    # left rows

    def _run_old_left(self, piece: RunSlice) -> Iterator[pa.RecordBatch]:
        released = self._left.released(piece, is_new=False)
        hits = self._find_decidable(piece)
        if not len(released) and not len(hits):
            return
        rows = np.union1d(released, hits)
        self._share.count_candidates(len(rows) - len(hits))  # those were seen
        rows = rows[~piece.read_marks("gone", rows)]
        if not len(rows):
            return
        closest = self._find_nearest(piece.rows, rows)
        decided = self._mask_final_rows(piece.rows.times(self._reach.left)[rows], closest)
        leaving = rows[decided]
        self._release_decided(piece, leaving)
        yield from self._emit_rows(piece.rows.batch, rows, closest, decided)

    def _run_new_left(self) -> Iterator[pa.RecordBatch]:
        new = self._left.new
        if new is None:
            return
        rows = np.arange(len(new.rows))
        closest = self._find_nearest(new.rows, rows)
        decided = self._mask_final_rows(new.rows.times(self._reach.left), closest)
        for number, piece in enumerate(self._left.new_runs):
            leaving = new.position[decided & (new.origin == number)]
            self._release_decided(piece, np.sort(leaving))
        yield from self._emit_rows(new.rows.batch, rows, closest, decided, new.arrival)

    def _release_decided(self, piece: RunSlice, rows: Rows) -> None:
        """Release left rows that are decided and evict those at or above the limit early."""
        if not len(rows):
            return
        released = self._report.side(Side.LEFT).released
        released[piece.name] = released.get(piece.name, 0) + len(rows)
        early = ~are_below(
            piece.rows.times(self._reach.left)[rows], self._limit(self._left, self._reach.left)
        )
        _mark_evicted(piece, rows[early])

    @staticmethod
    def _limit(own: SideSlice, column: str) -> Watermark:
        return own.work.new_limits[column]

    def _mask_final_rows(self, times: Times, closest: Nearest) -> Mask:
        """Return the mask of rows for which no later right row can be nearer than the one found."""
        low, high = self._reach.window(times)
        settled = self._work.settled
        if self._reach.latest:
            decided: Mask = closest.some & (closest.time == high)
        else:
            decided = closest.some & ((closest.time == low) | ~_is_above(closest.time, settled))
        decided |= (low > high) | are_below(high, settled)
        decided |= are_below(times, self._limit(self._left, self._reach.left))
        return decided

    def _find_nearest(self, side: SortedRows, rows: Rows) -> Nearest:
        """Return the nearest right row of each chosen left row.

        A right row does not count if a row dropped by load shedding may be nearer.
        """
        low, high = self._reach.window(side.times(self._reach.left)[rows])
        if self._work.shed > NEVER:
            unknown = are_below(low, _next_watermark(self._work.shed))
            low = np.where(unknown, min(_next_watermark(self._work.shed), MAX_TIME), low)
            if not self._reach.latest:
                high = np.where(unknown, MIN_TIME, high)
        askers = Askers(side.batch, rows, side.slots[rows], self._left_keys, low, high)
        return self._ask(askers, self._stocks, latest=self._reach.latest)

    def _ask(self, askers: Askers, stocks: list[_RightRows], *, latest: bool) -> Nearest:
        best = Nearest.of_none(len(askers))
        for number, stock in enumerate(stocks):
            rows = nearest(askers, self._sought, stock.rows, latest=latest)
            some = np.flatnonzero(rows >= 0)
            if len(some):
                rows = rows[some]
                times = stock.rows.times(self._reach.right)[rows]
                best.offer(number, some, times, stock.came(rows), rows, latest=latest)
        return best

    def _emit_rows(
        self, batch: Columns, rows: Rows, closest: Nearest, decided: Mask, arrival: Rows | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Emit the decided rows among `rows`, joined with their closest right rows or padded.

        Args:
            arrival: permutation that puts ``rows`` in arrival order; None emits them in stored order.
        """
        report = self._report
        parts: list[tuple[Rows, Columns]] = []
        asking: list[Rows] = [NO_ROWS]
        for number, stock in enumerate(self._stocks):
            chosen = np.flatnonzero(decided & (closest.run == number))
            if not len(chosen):
                continue
            partners = closest.row[chosen]
            if stock.piece is not None:
                stock.piece.mark_matched(partners)
            elif self._right.new is not None:
                self._right.new.matched[partners] = True
            parts.append((partners, stock.rows.batch))
            asking.append(chosen)
        if parts:
            chosen = np.concatenate(asking)
            report.matches += len(chosen)
            count(report.side(Side.LEFT), "matched", len(chosen))
            order = order_of(chosen if arrival is None else arrival[chosen])
            partner_rows = ChosenRows(parts, order)
            yield from emit_rows(
                self._shape, batch, rows[chosen[order]], partner_rows, np.arange(len(partner_rows))
            )
        alone = np.flatnonzero(decided & ~closest.some)
        if len(alone):
            padded = self._left.task.padded
            count(report.side(Side.LEFT), "padded" if padded else "released_unmatched", len(alone))
            if padded:
                alone = alone if arrival is None else alone[order_of(arrival[alone])]
                self._alone.append((batch, rows[alone]))

    # old left rows that right rows decide

    def _find_decidable(self, piece: RunSlice) -> Rows:
        """Return rows of an old left run that a right row may decide in this tick, each once."""
        if self._work.waiting is None:
            return NO_ROWS
        parts = []
        for slots, low, high in self._list_deciding():
            low = np.maximum(low, np.int64(self._work.waiting))
            rows = piece.rows
            first, end = ranges(slots, low, high, rows.slots, rows.base, rows.shift, rows.greatest)
            end = np.where(low <= high, end, first)
            self._share.count_candidates(int((end - first).sum()))
            parts += [row for _, row in expand(first, end)]
        if not parts:
            return NO_ROWS
        hits = np.unique(np.concatenate(parts))
        times = piece.rows.times(self._reach.left)[hits]  # slots are coarse: some may have left before
        return hits[~are_below(times, self._left.work.old_limits.get(self._reach.left, NEVER))]

    def _list_deciding(self) -> list[tuple[Slots, Times, Times]]:
        """List slots and min and max left times of right rows that may decide old left rows."""
        if self._deciding_rows is None:
            self._deciding_rows = list(self._find_deciding())
        return self._deciding_rows

    _deciding_rows: list[tuple[Slots, Times, Times]] | None = None

    def _find_deciding(self) -> Iterator[tuple[Slots, Times, Times]]:
        reach, new = self._reach, self._right.new
        if new is not None:
            exactly = reach.band.upper if reach.latest else reach.band.lower
            assert exactly is not None
            yield (new.rows.slots, *reach.left_distances(exactly).around(new.rows.times(reach.right)))
        if reach.latest:
            return
        limit = self._limit(self._right, reach.right)
        after = max(_next_watermark(self._work.settled_before), limit)
        for stock in self._old_stocks:
            assert stock.piece is not None
            rows = stock.piece.own(
                stock.piece.run.between(reach.right, after, _next_watermark(self._work.settled))
            )
            self._share.count_candidates(len(rows))
            yield from self._find_first_settled(stock, np.sort(rows))
        if new is not None:
            yield from self._find_first_settled(
                self._stocks[-1],
                np.flatnonzero(are_below(new.rows.times(reach.right), _next_watermark(self._work.settled))),
            )

    def _find_first_settled(self, stock: _RightRows, rows: Rows) -> Iterator[tuple[Slots, Times, Times]]:
        """Yield the left times for which settled right rows are the first of their key.

        From these left times on, the right row is in reach and the previous row of its key is not.
        """
        if not len(rows):
            return
        reach = self._reach
        assert reach.band.lower is not None
        times = stock.rows.times(reach.right)[rows]
        earlier = np.where(times > MIN_TIME, times - 1, times)
        floor = np.where(times > MIN_TIME, MIN_TIME, MAX_TIME)  # below the least time there is none
        askers = Askers(stock.rows.batch, rows, stock.rows.slots[rows], self._sought.keys, floor, earlier)
        before = self._ask(askers, self._stocks, latest=True)
        window = reach.left_distances(reach.band.lower)
        least = np.where(before.some, window.around(before.time)[0], MIN_TIME)
        yield stock.rows.slots[rows], least, window.around(times)[1]

    # right rows

    def _release_right(self) -> None:
        right, column = self._right, self._reach.right
        for pieces, is_new in ((right.old, False), (right.new_runs, True)):
            for piece in pieces:
                rows = right.released(piece, is_new=is_new)
                self._share.count_candidates(len(rows))
                if len(rows):
                    self._count_released(piece, rows[~piece.read_marks("gone", rows)])
        if not self._reach.latest:
            return
        limit, asked = self._limit(right, column), self._work.asked
        entering: list[tuple[int, Rows]] = []
        for number, stock in enumerate(self._old_stocks):
            assert stock.piece is not None
            rows = stock.piece.own(
                stock.piece.run.between(column, max(self._work.asked_before, limit), asked)
            )
            self._share.count_candidates(len(rows))
            if len(rows):
                entering.append((number, np.sort(rows)))
        if right.new is not None:
            times = right.new.rows.times(column)
            rows = np.flatnonzero(are_below(times, asked) & ~are_below(times, limit))
            if len(rows):
                entering.append((len(self._stocks) - 1, rows))
        leaving: dict[int, list[Rows]] = {}
        for number, rows in entering:
            last = self._find_last_below(number, rows, asked, self._stocks)
            stays = (last.run == number) & (last.row == rows)
            leaving.setdefault(number, []).append(rows[~stays])
            last_before = self._find_last_below(number, rows, self._work.asked_before, self._old_stocks)
            for other in range(len(self._old_stocks)):
                hit = (last_before.run == other) & ~((last.run == other) & (last.row == last_before.row))
                if hit.any():
                    leaving.setdefault(other, []).append(np.unique(last_before.row[hit]))
        for number, parts in leaving.items():
            self._evict_superseded(number, np.unique(np.concatenate(parts)), limit)

    def _find_last_below(
        self, number: int, rows: Rows, limit: Watermark, stocks: list[_RightRows]
    ) -> Nearest:
        """Return, for the keys of the chosen right rows, the last row below ``limit``."""
        side = self._stocks[number].rows
        least, greatest = np.full(len(rows), MIN_TIME), np.full(len(rows), MAX_TIME)
        if limit <= MIN_TIME:
            return Nearest.of_none(len(rows))
        if limit <= MAX_TIME:
            greatest[:] = int(limit) - 1
        askers = Askers(side.batch, rows, side.slots[rows], self._sought.keys, least, greatest)
        return self._ask(askers, stocks, latest=True)

    def _evict_superseded(self, number: int, rows: Rows, limit: Watermark) -> None:
        """Evict right rows that a later row of the same key replaces in every lookup."""
        stock = self._stocks[number]
        rows = rows[~are_below(stock.rows.times(self._reach.right)[rows], limit)]
        pieces = [(stock.piece, rows)] if stock.piece is not None else self._map_to_new_runs(rows)
        for piece, own in pieces:
            own = own[~piece.read_marks("gone", own)]
            self._count_released(piece, own)
            _mark_evicted(piece, own)

    def _map_to_new_runs(self, rows: Rows) -> list[tuple[RunSlice, Rows]]:
        new = self._right.new
        assert new is not None
        return [
            (piece, new.position[rows[new.origin[rows] == number]])
            for number, piece in enumerate(self._right.new_runs)
        ]

    def _count_released(self, piece: RunSlice, rows: Rows) -> None:
        if not len(rows):
            return
        report = self._report.side(Side.RIGHT)
        report.released[piece.name] = report.released.get(piece.name, 0) + len(rows)
        hits = int(piece.read_marks("matched", rows).sum())
        count(report, "matched", hits)
        count(report, "released_unmatched", len(rows) - hits)


def _mark_evicted(piece: RunSlice, rows: Rows) -> None:
    piece.mark("gone", rows)


def _next_watermark(watermark: Watermark) -> Watermark:
    """Return the watermark plus one: a value below the result is not above ``watermark``."""
    return watermark + 1


def _is_above(times: Times, watermark: Watermark) -> Mask:
    return ~are_below(times, _next_watermark(watermark))
