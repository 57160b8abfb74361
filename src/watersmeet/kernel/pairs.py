"""Matching: from two sides' rows to the pairs for which the whole condition is TRUE.

`find` probes and checks; `kernel.joined` builds joined rows from pairs. Checks run from cheap to dear on what
is left: time bands, keys, comparisons as written, residual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from watersmeet.event_time import MAX_TIME, MIN_TIME, Mask, Side, TimeComparison, Times, holds, saturating_add
from watersmeet.kernel.bands import Band, RealBand, reals_hold
from watersmeet.kernel.batches import cuts
from watersmeet.kernel.equality import CHECKED_BYTES, equal_pairs
from watersmeet.kernel.joined import JoinedColumn, gather, pair_sizes, pairs_bound
from watersmeet.kernel.ordinals import Raw, Reals, ordinals_of, ordinals_to_reals, raw, reals
from watersmeet.kernel.pieces import Columns
from watersmeet.kernel.probe import Rows, expand, ranges
from watersmeet.kernel.slots import Slots, encode, order_of, shift_for
from watersmeet.measure import Measured
from watersmeet.names import ours

Spans = Mapping[str, tuple[int, int]]
"""Least and greatest ordinal by the name of what is measured."""


@dataclass
class SortedRows:
    """Rows of one side and the slots by which they are looked up.

    ``slots``: int64[n] ascending, encoded with ``base`` and ``shift``; ``greatest``: the greatest ordinal of
    ``index``, from which slots are made; None: slots hold hashes only (``base`` = ``shift`` = ``greatest`` =
    0). ``batch``: the rows' columns, in the order of slots unless ``places`` says where each slot's row is;
    event times are int64 without NULLs. ``spans``: of every event time and index (of the whole run, for a
    part of one). ``by_value``: slots are the ordinals themselves (``base``: the least of them, ``shift`` 0).
    """

    slots: Slots
    base: int
    shift: int
    greatest: int
    batch: Columns
    index: Measured | None
    spans: Spans
    by_value: bool = False
    places: Rows | None = None
    _raw: dict[str, Raw] = field(default_factory=dict, repr=False)
    _ordinals: dict[Measured, Times] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.slots)

    def times(self, column: str) -> Times:
        """An event-time column as int64[n]."""
        return self.raw(column)

    def raw(self, column: str) -> Raw:
        """A column of a band as it lies in memory."""
        if column not in self._raw:
            self._raw[column] = raw(self.batch.column(column))
        return self._raw[column]

    def ordinals(self, measured: Measured, rows: Rows | None = None) -> Times:
        """What counts of the rows chosen (of all of them, kept for the next time). int64."""
        column = self.batch.column(measured.column)
        if rows is not None:
            return ordinals_of(column, measured.measure, rows)
        if measured not in self._ordinals:
            self._ordinals[measured] = ordinals_of(column, measured.measure)
        return self._ordinals[measured]

    def reals(self, measured: Measured, rows: Rows | None = None) -> Reals:
        """A column of numbers as doubles, of the rows chosen or of all."""
        values = self.raw(measured.column)
        kind = self.batch.schema.field(measured.column).type
        return reals(values if rows is None else values[rows], kind)

    def part(self, start: int, stop: int) -> SortedRows:
        """The rows in [start, stop), without a copy."""
        slots, spans = self.slots[start:stop], self.spans
        if self.by_value and self.index is not None and start < stop:
            spans = {**spans, self.index.name: (int(slots[0]), int(slots[-1]))}
        batch = self.batch.slice(start, stop - start)
        return SortedRows(
            slots, self.base, self.shift, self.greatest, batch, self.index, spans, self.by_value
        )

    def sorted_by(self, index: Measured) -> SortedRows:
        """The same rows to be looked up by another index. Cost: a sort of one column."""
        if index == self.index:
            return self
        values = self.ordinals(index)
        base, greatest = self.spans[index.name]
        shift = 0 if self.by_value else shift_for(base, greatest)
        slots = values if self.by_value else encode(self.slots, values, base, shift)
        order = order_of(slots)
        return replace(
            self, slots=slots[order], base=base, shift=shift, greatest=greatest, index=index, places=order
        )


class Asked(Protocol):
    """A condition on pairs: `kernel.expressions.evaluate.Condition`, or one that is computed elsewhere."""

    def holds(self, pairs: pa.Table) -> Mask:
        """For which pairs it is TRUE."""


@dataclass(frozen=True)
class KeyColumns:
    left: str
    right: str
    null_safe: bool


@dataclass(frozen=True)
class Condition:
    """A join's whole condition on pairs; see `plan.model.JoinPlan` for what the parts promise.

    ``bands``: of time bounds and of other values; ``reals``: those in floating point. ``residual``:
    whatever else it says.
    """

    keys: tuple[KeyColumns, ...]
    bands: tuple[Band, ...]
    comparisons: tuple[TimeComparison, ...]
    rechecks: tuple[TimeComparison, ...]
    slack: int
    residual: Asked | None
    residual_columns: tuple[JoinedColumn, ...]
    reals: tuple[RealBand, ...] = ()

    def around(
        self, needles: SortedRows, side: Side, index: Measured, greatest: int, chosen: Rows | None = None
    ) -> tuple[Times, Times]:
        """Least and greatest ordinal of ``index`` among partners of needles of that side, inclusive.

        Args:
            greatest: the greatest ordinal among the rows looked up.
            chosen: only of these needles.
        """
        ends = [
            band.window(side, self.slack).around(needles.ordinals(band.measured(side), chosen))
            for band in self.bands
            if band.measured(side.other) == index
        ]
        ends += [
            real.around(side, needles.reals(real.measured(side), chosen), greatest)
            for real in self.reals
            if real.measured(side.other) == index
        ]
        low, high = ends[0]
        for one, other in ends[1:]:
            low, high = np.maximum(low, one), np.minimum(high, other)
        return low, high

    def over(self, side: Side, spans: Spans, index: Measured, greatest: int) -> tuple[int, int]:
        """Least and greatest ordinal of ``index`` among partners of all needles of that side."""
        low, high = MIN_TIME, MAX_TIME
        for band in self.bands:
            if band.measured(side.other) == index:
                ends = band.window(side, self.slack).over(*spans[band.measured(side).name])
                low, high = max(low, ends[0]), min(high, ends[1])
        for real in self.reals:
            if real.measured(side.other) == index:
                span = np.array(spans[real.measured(side).name])
                least, most = real.around(side, ordinals_to_reals(span), greatest)
                low, high = max(low, int(least.min())), min(high, int(most.max()))
        return low, high

    def reached(self, side: Side, spans: Spans, rows: SortedRows) -> tuple[int, int]:
        """The half-open range of positions in rows, sorted by value, where partners are of needles with these
        spans."""
        assert rows.index is not None
        low, high = self.over(side, spans, rows.index, rows.spans[rows.index.name][1])
        start = int(np.searchsorted(rows.slots, low, side="left"))
        return start, max(start, int(np.searchsorted(rows.slots, high, side="right")))


@dataclass(frozen=True)
class Search:
    """Where ``needles`` (rows of ``side``) have their candidates among ``rows``: needle ``skipped + n`` at
    the places [first[n], end[n]). ``alive``: which of the rows are there at all; None: all."""

    condition: Condition
    needles: SortedRows
    side: Side
    rows: SortedRows
    skipped: int
    first: Rows
    end: Rows
    alive: Callable[[Rows], Mask] | None = None

    @classmethod
    def of(cls, condition: Condition, needles: SortedRows, side: Side, rows: SortedRows) -> Search | None:
        """None when no needle has a candidate."""
        found = _ranges(condition, needles, side, rows)
        return None if found is None else cls(condition, needles, side, rows, *found)

    @property
    def candidates(self) -> int:
        return int((self.end - self.first).sum())

    def add_counts(self, counts: Rows) -> None:
        """Add each needle's candidates to ``counts``, int64[needles]."""
        counts[self.skipped : self.skipped + len(self.first)] += self.end - self.first

    def pairs(self, chosen: Rows | None = None) -> Iterator[tuple[Rows, Rows]]:
        """The matches of all needles, or of those chosen (ascending); see `find`."""
        first, end = self.first, self.end
        if chosen is not None:
            chosen = chosen[(chosen >= self.skipped) & (chosen < self.skipped + len(first))]
            first, end = first[chosen - self.skipped], end[chosen - self.skipped]
        for needle, place in expand(first, end):
            if chosen is not None:
                needle = chosen[needle]
            elif self.skipped:
                needle = needle + self.skipped
            row = place if self.rows.places is None else self.rows.places[place]
            keep = _accepted(self.condition, self.needles, self.side, needle, self.rows, row)
            if keep is not None:
                needle, row = needle[keep], row[keep]
            if self.alive is not None:
                alive = self.alive(row)
                needle, row = needle[alive], row[alive]
            if len(needle):
                yield needle, row


_SPARSE = 16
"""Rows are told apart by sorting while they are no more than one in so many."""


def find(
    condition: Condition, needles: SortedRows, side: Side, rows: SortedRows
) -> Iterator[tuple[Rows, Rows]]:
    """All matches between ``needles`` (rows of ``side``) and ``rows`` of the other side: (needle positions,
    row positions), int64[m] each, needles ascending within a chunk and over chunks."""
    search = Search.of(condition, needles, side, rows)
    if search is not None:
        yield from search.pairs()


def _ranges(
    condition: Condition, needles: SortedRows, side: Side, rows: SortedRows
) -> tuple[int, Rows, Rows] | None:
    """(needles passed over at the start, per needle the places [first, end) of its candidates); None when
    there are none at all. Needles at the end may be left out, too."""
    if len(needles) == 0 or len(rows) == 0 or _are_apart(condition, needles, side, rows):
        return None
    skipped = 0
    if needles.by_value and needles.places is None:
        skipped, stop = condition.reached(side.other, rows.spans, needles)
        if skipped >= stop:
            return None
        if stop - skipped < len(needles):
            needles = needles.part(skipped, stop)
    if rows.index is None:
        low = high = np.zeros(len(needles), dtype=np.int64)
    else:
        low, high = condition.around(needles, side, rows.index, rows.greatest)
        if low.min() > rows.greatest or high.max() < rows.base:
            return None
    if rows.by_value:
        first = np.searchsorted(rows.slots, low, side="left")
        return skipped, first, np.maximum(np.searchsorted(rows.slots, high, side="right"), first)
    return skipped, *ranges(needles.slots, low, high, rows.slots, rows.base, rows.shift, rows.greatest)


def _are_apart(condition: Condition, needles: SortedRows, side: Side, rows: SortedRows) -> bool:
    """Whether by some exact band no row can be a partner of any needle."""
    for band in condition.bands:
        least, most = rows.spans[band.measured(side.other).name]
        low, high = band.window(side, condition.slack).over(*needles.spans[band.measured(side).name])
        if low > most or high < least:
            return True
    return False


def rows_matched(condition: Condition, needles: SortedRows, side: Side, rows: SortedRows) -> Rows:
    """The rows that have a match among the needles, ascending, each once. Where the look-up itself decides,
    no pair is made: O(needles · log rows + rows found); else the cost is that of `find`."""
    if not _is_decided_by_look_up(condition, needles, side, rows):
        return distinct((row for _, row in find(condition, needles, side, rows)), len(rows))
    found = _ranges(condition, needles, side, rows)
    if found is None:
        return np.zeros(0, dtype=np.int64)
    places = distinct((place for _, place in expand(*_united(found[1], found[2]))), len(rows))
    return places if rows.places is None else np.sort(rows.places[places])


def _united(first: Rows, end: Rows) -> tuple[Rows, Rows]:
    """The ranges, where they overlap as one."""
    keep = end > first
    first, end = first[keep], end[keep]
    if not len(first):
        return first, end
    order = np.argsort(first, kind="stable")
    first, reached = first[order], np.maximum.accumulate(end[order])
    starts = np.flatnonzero(np.append(True, first[1:] > reached[:-1]))
    return first[starts], reached[np.append(starts[1:], len(first)) - 1]


def distinct(parts: Iterable[Rows], count: int) -> Rows:
    """Which of the rows [0, count) are in any of the parts, ascending. Cost: the parts, but for very long
    ones a mark per row."""
    held, held_rows = [], 0
    marks: Mask | None = None
    for part in parts:
        if marks is None:
            held.append(part)
            held_rows += len(part)
            if held_rows <= count // _SPARSE:
                continue
            marks = np.zeros(count, dtype=np.bool_)
            for each in held:
                marks[each] = True
        else:
            marks[part] = True
    if marks is not None:
        return np.flatnonzero(marks)
    return np.unique(np.concatenate(held)) if held else np.zeros(0, dtype=np.int64)


def has_match(condition: Condition, needles: SortedRows, side: Side, rows: SortedRows) -> Mask:
    """Which needles have a match among the rows: bool[needles]. Where the look-up itself decides, nothing is
    expanded: O(needles · log rows)."""
    hits = np.zeros(len(needles), dtype=np.bool_)
    if _is_decided_by_look_up(condition, needles, side, rows):
        found = _ranges(condition, needles, side, rows)
        if found is not None:
            skipped, first, end = found
            hits[skipped : skipped + len(first)] = end > first
        return hits
    for needle, _ in find(condition, needles, side, rows):
        hits[needle] = True
    return hits


def _is_decided_by_look_up(condition: Condition, needles: SortedRows, side: Side, rows: SortedRows) -> bool:
    if condition.keys or condition.reals or condition.residual is not None or condition.rechecks:
        return False
    indexed = all(band.measured(side.other) == rows.index for band in condition.bands)
    return indexed and rows.by_value and not _near_ends(condition, needles, side, rows)


def _accepted(
    condition: Condition, needles: SortedRows, side: Side, ni: Rows, rows: SortedRows, ri: Rows
) -> Rows | None:
    """Positions of the accepted pairs, None for all."""
    keep: Rows | None = None

    def narrow(mask: Mask) -> None:
        nonlocal keep, ni, ri
        if mask.all():
            return
        chosen = np.flatnonzero(mask)
        keep = chosen if keep is None else keep[chosen]
        ni, ri = ni[chosen], ri[chosen]

    def of(own: Side) -> tuple[SortedRows, Rows]:
        return (needles, ni) if own is side else (rows, ri)

    near_ends = _near_ends(condition, needles, side, rows)
    if not near_ends:
        for band in condition.bands:
            if rows.shift == 0 and band.measured(side.other) == rows.index:
                continue  # the look-up has decided
            (left, li), (right, ri_) = of(Side.LEFT), of(Side.RIGHT)
            a, b = left.ordinals(band.measured(Side.LEFT), li), right.ordinals(band.measured(Side.RIGHT), ri_)
            mask = None if band.lower is None else b >= saturating_add(a, band.lower)
            if band.upper is not None:
                below = b <= saturating_add(a, band.upper)
                mask = below if mask is None else mask & below
            if mask is not None:
                narrow(mask)
    for real in condition.reals:
        if real.comparison is not None:
            columns = {
                (own, real.measured(own).column): of(own)[0].raw(real.measured(own).column)[of(own)[1]]
                for own in Side
            }
            narrow(reals_hold(real.comparison, columns))
        elif real.measured(side.other) != rows.index:
            partners = rows.ordinals(real.measured(side.other), ri)
            narrow(real.within(side, needles.reals(real.measured(side), ni), partners))
    for key in condition.keys:
        (left, li), (right, ri_) = of(Side.LEFT), of(Side.RIGHT)
        narrow(
            equal_pairs(
                left.batch.column(key.left), li, right.batch.column(key.right), ri_, null_safe=key.null_safe
            )
        )
    for comparison in condition.comparisons if near_ends else condition.rechecks:
        times = {
            (own, measured.name): of(own)[0].ordinals(measured, of(own)[1])
            for own, measured in _columns_of(condition)
        }
        narrow(holds(comparison, times, len(ni)))
    if condition.residual is not None and len(ni):
        (left, li), (right, ri_) = of(Side.LEFT), of(Side.RIGHT)
        narrow(_residual_holds(condition, condition.residual, left, li, right, ri_))
    return keep


def _columns_of(condition: Condition) -> list[tuple[Side, Measured]]:
    return list(dict.fromkeys((side, band.measured(side)) for band in condition.bands for side in Side))


def _near_ends(condition: Condition, needles: SortedRows, side: Side, rows: SortedRows) -> bool:
    """Whether arithmetic on some value may saturate, so that only the conjuncts as written decide: where
    `Window` reaches to an end."""
    if not condition.slack:
        return False
    for own, measured in _columns_of(condition):
        least, greatest = (needles if own is side else rows).spans[measured.name]
        if greatest >= MAX_TIME - condition.slack or least <= MIN_TIME + condition.slack:
            return True
    return False


def _residual_holds(
    condition: Condition, asked: Asked, left: SortedRows, li: Rows, right: SortedRows, ri: Rows
) -> Mask:
    columns = condition.residual_columns
    if pairs_bound(columns, left.batch, li, right.batch, ri) <= CHECKED_BYTES:
        return asked.holds(_residual_table(condition, left, li, right, ri))
    found = []
    for low, high in pairwise(cuts(pair_sizes(columns, left.batch, li, right.batch, ri), CHECKED_BYTES)):
        pairs = _residual_table(condition, left, li[low:high], right, ri[low:high])
        found.append(asked.holds(pairs))
    return np.concatenate(found)


def _residual_table(
    condition: Condition, left: SortedRows, li: Rows, right: SortedRows, ri: Rows
) -> pa.Table:
    if not condition.residual_columns:
        return pa.table({ours("pair"): pa.array(li)})
    batch = gather(condition.residual_columns, left.batch, li, right.batch, ri)
    return pa.Table.from_batches([batch])
