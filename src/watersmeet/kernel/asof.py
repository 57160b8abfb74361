"""As-of look-ups: of the rows that a left time may match, the one whose time is nearest.

`Reach` says which right times a left time may match, exactly, also where arithmetic on times saturates.
`nearest` finds the row in a sorted run: two binary searches per asker, then a walk from the nearer end of the
range found, past rows of other keys with the same hash; in steps that grow, so that it ends after a few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from watersmeet.conditions import AsofRule, ExactBand
from watersmeet.event_time import (
    MAX_TIME,
    MIN_TIME,
    Mask,
    Side,
    TimeComparison,
    Times,
    Watermark,
    evaluate_comparison,
    saturate,
    saturating_add,
)
from watersmeet.kernel.gather import Columns
from watersmeet.kernel.match.overflow import equal_pairs
from watersmeet.kernel.match.probe import Distances, Rows, expand, ranges
from watersmeet.kernel.slots import Slots
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.names import ours

CAME = ours("came")
"""The stored column by which of equal times the one that came first is known: int64, ascending."""

_GROWTH = 4


@dataclass(frozen=True)
class Reach:
    """The range of right times that a left time may match: those in the band.

    The band is closed above and, unless the rule takes the latest row as the nearest, closed below.

    Args:
        slack: within this distance of the ends of int64, arithmetic saturates, and the comparisons
            of ``rule`` decide as written.
    """

    band: ExactBand
    rule: AsofRule
    slack: int

    @property
    def latest(self) -> bool:
        return self.rule.latest

    @property
    def left(self) -> str:
        """The column of left times."""
        return self.band.left.column

    @property
    def right(self) -> str:
        """The column of right times."""
        return self.band.right.column

    @property
    def upper(self) -> int:
        assert self.band.upper is not None
        return self.band.upper

    def window(self, times: Times) -> tuple[Times, Times]:
        """Compute the least and greatest right time that each left time may match: int64[n] each.

        Both ends are inclusive. Where a left time can match no right time, the least is above the
        greatest.
        """
        low = (
            np.full(len(times), MIN_TIME)
            if self.band.lower is None
            else saturating_add(times, self.band.lower)
        )
        high = saturating_add(times, self.upper)
        near = np.flatnonzero(~self._is_far(times))
        if len(near):
            low, high = low.copy(), high.copy()  # they may be the given times themselves
            low[near], some = self._outermost_times(self.rule.floors, Side.LEFT, times[near], greatest=False)
            high[near], any_below = self._outermost_times(
                self.rule.ceilings, Side.LEFT, times[near], greatest=True
            )
            none = near[~(some & any_below)]
            low[none], high[none] = MAX_TIME, MIN_TIME
        return low, high

    def left_distances(self, distance: int) -> Distances:
        """Return the distances to the left times that are ``distance`` away from a right time.

        Near the ends of int64 the result covers more than these.
        """
        return Distances(-distance, -distance, self.slack)

    def decided_below(self, watermark: Watermark) -> Watermark:
        """Return the least left time that may match a right time at or above ``watermark``."""
        if isinstance(watermark, float):
            return watermark
        if self._is_far_time(watermark):
            return saturate(watermark - self.upper)
        bound, some = self._outermost_times(
            self.rule.ceilings, Side.RIGHT, np.array([watermark], dtype=np.int64), greatest=False
        )
        return int(bound[0]) if some[0] else MAX_TIME + 1

    def latest_right_time(self, least: Watermark) -> Watermark:
        """Return the greatest right time in the closed reach of the least unresolved left time."""
        if isinstance(least, float):
            return least
        if self._is_far_time(least):
            assert self.rule.closed_upper is not None
            return saturate(least + self.rule.closed_upper)
        bound, some = self._outermost_times(
            _closed(self.rule.ceilings), Side.LEFT, np.array([least], dtype=np.int64), greatest=True
        )
        return int(bound[0]) if some[0] else MIN_TIME

    def earliest_right_time(self, least: Watermark) -> Watermark:
        """Return the least right time in the closed reach of any left time at or above ``least``.

        −∞ if the reach has no lower end.
        """
        if isinstance(least, float):
            return least
        if self.rule.closed_lower is None:
            return -np.inf
        if self._is_far_time(least):
            return saturate(least + self.rule.closed_lower)
        bound, some = self._outermost_times(
            _closed(self.rule.floors), Side.LEFT, np.array([least], dtype=np.int64), greatest=False
        )
        return int(bound[0]) if some[0] else MAX_TIME + 1

    @property
    def _margin(self) -> int:
        return 2 * self.slack + 2

    def _is_far_time(self, time: int) -> bool:
        """Return True if a time is so far from the ends of int64 that arithmetic is exact."""
        return MIN_TIME + self._margin <= time <= MAX_TIME - self._margin

    def _is_far(self, times: Times) -> Mask:
        if self._margin > MAX_TIME:
            return np.zeros(len(times), dtype=np.bool_)
        return (times >= MIN_TIME + self._margin) & (times <= MAX_TIME - self._margin)

    def _outermost_times(
        self, comparisons: Sequence[TimeComparison], side: Side, given: Times, *, greatest: bool
    ) -> tuple[Times, Mask]:
        """Find the outermost other time per given time of ``side`` for which the comparisons hold.

        Args:
            greatest: the comparisons hold for all lesser times as well, so the outermost time is the
                greatest. False: they hold for all greater times, so it is the least.

        Returns:
            the times, and a mask of the given times that have one.
        """
        own, other = (self.left, self.right) if side is Side.LEFT else (self.right, self.left)

        def hold(times: Times) -> Mask:
            columns = {(side, own): given, (side.other, other): times}
            kept = np.ones(len(given), dtype=np.bool_)
            for comparison in comparisons:
                kept &= evaluate_comparison(comparison, columns, len(given))
            return kept

        return _bisect(hold, len(given), greatest=greatest)


def _closed(comparisons: Sequence[TimeComparison]) -> tuple[TimeComparison, ...]:
    closed: dict[str, Literal["<=", ">="]] = {"<": "<=", ">": ">="}
    return tuple(
        replace(comparison, op=closed.get(comparison.op, comparison.op)) for comparison in comparisons
    )


def _bisect(hold: Callable[[Times], Mask], count: int, *, greatest: bool) -> tuple[Times, Mask]:
    low, high = np.full(count, MIN_TIME), np.full(count, MAX_TIME)
    held = hold(low if greatest else high)
    while (low < high).any():
        middle = (low >> 1) + (high >> 1) + ((low | high) & 1 if greatest else low & high & 1)
        kept, still = hold(middle), low < high
        if greatest:
            low, high = np.where(kept, middle, low), np.where(kept | ~still, high, middle - 1)
        else:
            low, high = np.where(kept | ~still, low, middle + 1), np.where(kept, middle, high)
    return low, held


@dataclass(frozen=True)
class Askers:
    """Chosen rows of a batch that look for their nearest rows.

    Attributes:
        rows: the chosen rows.
        slots: the slots of the rows, of which only the upper halves count; ascending slots are fastest.
        keys: the key columns.
        low: the lowest time that each row accepts, inclusive.
        high: the highest time that each row accepts, inclusive.
    """

    batch: Columns
    rows: Rows
    slots: Slots
    keys: tuple[str, ...]
    low: Times
    high: Times

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class AsOfNeedles:
    """Key columns and time column of the rows that look up their nearest row.

    ``null_safe`` states per key whether a NULL key equals a NULL key.
    """

    keys: tuple[str, ...]
    null_safe: tuple[bool, ...]
    time: str


def nearest(askers: Askers, sought: AsOfNeedles, rows: SortedRows, *, latest: bool) -> Rows:
    """Find the position of each asker's nearest row: int64[n], −1 where there is none.

    ``rows`` are in time order within a key. Of equal times, the row that arrived first is the last
    one in runs for look-ups of the latest row, and the first one in runs for look-ups of the
    earliest row.
    """
    nearest_rows = np.full(len(askers), -1, dtype=np.int64)
    some = np.flatnonzero(
        (askers.low <= askers.high) & (askers.high >= rows.base) & (askers.low <= rows.greatest)
    )
    if len(some) == 0 or len(rows) == 0:
        return nearest_rows
    first, end = ranges(
        askers.slots[some],
        askers.low[some],
        askers.high[some],
        rows.slots,
        rows.base,
        rows.shift,
        rows.greatest,
    )
    step = 1
    while True:
        open_ = end > first
        some, first, end = some[open_], first[open_], end[open_]
        if len(some) == 0:
            return nearest_rows
        low, high = (np.maximum(first, end - step), end) if latest else (first, np.minimum(end, first + step))
        for place, row in expand(low, high):
            accepted = _accept_mask(askers, sought, some[place], rows, row)
            place, row = place[accepted], row[accepted]
            if len(place):
                turns = place[1:] != place[:-1]
                chosen = np.append(turns, True) if latest else np.insert(turns, 0, True)
                place, row = place[chosen], row[chosen]
                if not latest:  # those of one asker may come in several parts
                    first_part = nearest_rows[some[place]] < 0
                    place, row = place[first_part], row[first_part]
                nearest_rows[some[place]] = row
        first, end = (first, low) if latest else (high, end)
        open_ = nearest_rows[some] < 0
        some, first, end = some[open_], first[open_], end[open_]
        step *= _GROWTH


def _accept_mask(askers: Askers, sought: AsOfNeedles, asker: Rows, rows: SortedRows, row: Rows) -> Mask:
    keep = np.ones(len(row), dtype=np.bool_)
    if rows.shift:
        times = rows.times(sought.time)[row]
        keep &= (times >= askers.low[asker]) & (times <= askers.high[asker])
    for mine, theirs, null_safe in zip(askers.keys, sought.keys, sought.null_safe, strict=True):
        keep &= equal_pairs(
            askers.batch.column(mine), askers.rows[asker], rows.batch.column(theirs), row, null_safe=null_safe
        )
    return keep


@dataclass
class Nearest:
    """Nearest row of several runs, per asker.

    Attributes:
        time: the time of the nearest row.
        came: when the nearest row arrived.
        run: the number of its run; −1 if there is no row.
        row: the position of the row in its run.
    """

    time: Times
    came: npt.NDArray[np.int64]
    run: npt.NDArray[np.int64]
    row: Rows

    @classmethod
    def of_none(cls, count: int) -> Nearest:
        time, came, row = (np.zeros(count, dtype=np.int64) for _ in range(3))
        return cls(time, came, np.full(count, -1, dtype=np.int64), row)

    @property
    def some(self) -> Mask:
        some: Mask = self.run >= 0
        return some

    def offer(self, run: int, askers: Rows, times: Times, came: Times, rows: Rows, *, latest: bool) -> None:
        """Offer rows of another run to some askers; replace a nearest row where the new one wins.

        A row wins if it is nearer, or if it is equally near and arrived earlier.
        """
        best_times = self.time[askers]
        nearer = times > best_times if latest else times < best_times
        better = (self.run[askers] < 0) | nearer | ((times == best_times) & (came < self.came[askers]))
        chosen = askers[better]
        self.time[chosen], self.came[chosen] = times[better], came[better]
        self.run[chosen], self.row[chosen] = run, rows[better]
