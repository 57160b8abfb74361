"""Match rows of two sides: from candidates to pairs for which the whole condition is TRUE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from watersmeet.conditions import Bound, ExactBand, IntegerSum, Key, RealBand
from watersmeet.event_time import (
    MAX_TIME,
    MIN_TIME,
    Mask,
    Side,
    TimeColumn,
    TimeComparison,
    Times,
    evaluate_comparison,
    saturating_add,
)
from watersmeet.kernel.batches import cut_points
from watersmeet.kernel.gather import JoinedColumn, gather, pair_sizes, pairs_bound
from watersmeet.kernel.match.overflow import (
    CHECKED_BYTES,
    Spans,
    equal_pairs,
    leaves_type,
    may_leave_type,
    parts_leaving_type,
)
from watersmeet.kernel.match.probe import (
    OrientedBand,
    Rows,
    expand,
    orient_band,
    pairs_in_band,
    partner_range,
    prefix_ranges,
    ranges,
    reals_hold,
)
from watersmeet.kernel.ordinals import ordinals_to_reals
from watersmeet.kernel.slots import BUCKET_MASK, TIME_MASK
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.measure import Measured
from watersmeet.names import ours

# Matching: from two sides' rows to the pairs for which the whole condition is TRUE.
#
# `find` probes and checks; `kernel.gather` builds joined rows from pairs. Checks run from cheap to dear
# on what is left: time bands, keys, comparisons as written, residual.


class PairTest(Protocol):
    """A condition on pairs: `expressions.evaluate.Condition`, or one that is computed elsewhere."""

    def holds(self, pairs: pa.Table) -> Mask:
        """Return a mask of the pairs for which the test is TRUE."""


@dataclass(frozen=True)
class PairCondition:
    """A join's whole condition on pairs; see `plan.model.nodes.MatchPlan` for the meaning of the parts.

    Attributes:
        bands: bands of time bounds and of other values.
        reals: bands in floating point.
        residual: all other conjuncts.
        careful: condition for pairs for which one of ``sums`` leaves its type. The conjuncts with these sums
            are part of its residual, which raises as Spark does or is not TRUE.
    """

    keys: tuple[Key, ...]
    bands: tuple[ExactBand, ...]
    comparisons: tuple[TimeComparison, ...]
    rechecks: tuple[TimeComparison, ...]
    slack: int
    residual: PairTest | None
    residual_columns: tuple[JoinedColumn, ...]
    reals: tuple[RealBand, ...] = ()
    sums: tuple[IntegerSum, ...] = ()
    careful: PairCondition | None = None

    @classmethod
    def equal_columns(cls, columns: Iterable[str], *, null_safe: bool) -> PairCondition:
        """Build the condition that rows are equal in these columns, named alike on both sides.

        Args:
            null_safe: NULL equals NULL.
        """
        return cls(
            keys=tuple(Key(column, column, null_safe=null_safe) for column in columns),
            bands=(),
            comparisons=(),
            rechecks=(),
            slack=0,
            residual=None,
            residual_columns=(),
        )

    @cached_property
    def along(self) -> dict[Side, tuple[OrientedBand, ...]]:
        """The exact bands, by the side of the needles."""
        return {side: tuple(orient_band(band, side, self.slack) for band in self.bands) for side in Side}

    def sums_leaving(self, side: Side, needles: Spans, rows: Spans) -> tuple[IntegerSum, ...]:
        """Return the ``sums`` that may overflow their type within these spans.

        Args:
            needles: the spans of the needles, rows of ``side``.
            rows: the spans of the rows of the other side.
        """
        spans = {side: needles, side.other: rows}
        return tuple(added for added in self.sums if may_leave_type(added, spans))

    def answered(self, residual: PairTest) -> PairCondition:
        """Return the condition with ``residual`` as the test for its residual, for all values.

        The variant for careful pairs gets the same test.
        """
        careful = None if self.careful is None else self.careful.answered(residual)
        return replace(self, residual=residual, careful=careful)

    def around(
        self, needles: SortedRows, side: Side, index: Measured, greatest: int, chosen: Rows | None = None
    ) -> tuple[Times, Times]:
        """Compute the least and greatest ordinal of ``index`` among each needle's partners.

        Both ends are inclusive. The needles are rows of ``side``.

        Args:
            greatest: the greatest ordinal among the rows looked up.
            chosen: the positions of the needles to compute. None: all needles.
        """
        ends = [
            needles.around(band.needles, band.distances, chosen)
            for band in self.along[side]
            if band.rows == index
        ]
        ends += [
            partner_range(real, side, needles.reals(real.measured(side), chosen), greatest)
            for real in self.reals
            if real.measured(side.other) == index
        ]
        if not ends:
            count = len(needles if chosen is None else chosen)
            return np.full(count, MIN_TIME), np.full(count, MAX_TIME)
        low, high = ends[0]
        for one, other in ends[1:]:
            low, high = np.maximum(low, one), np.minimum(high, other)
        return low, high

    def over(self, side: Side, spans: Spans, index: Measured, greatest: int) -> tuple[int, int]:
        """Compute the least and greatest ordinal of ``index`` among partners of all needles.

        The needles are rows of ``side``.
        """
        low, high = MIN_TIME, MAX_TIME
        for band in self.along[side]:
            if band.rows == index:
                ends = band.distances.over(*spans[band.needles.name])
                low, high = max(low, ends[0]), min(high, ends[1])
        for real in self.reals:
            if real.measured(side.other) == index:
                span = np.array(spans[real.measured(side).name])
                least, most = partner_range(real, side, ordinals_to_reals(span), greatest)
                low, high = max(low, int(least.min())), min(high, int(most.max()))
        return low, high

    def reached(self, side: Side, spans: Spans, rows: SortedRows) -> tuple[int, int]:
        """Find the range of positions that contains all partners of needles with these spans.

        The range is half-open; the rows are sorted by value.
        """
        assert rows.index is not None
        asked = self
        if self.careful is not None and self.sums_leaving(side, spans, rows.spans):
            asked = self.careful  # such pairs lie anywhere
        low, high = asked.over(side, spans, rows.index, rows.spans[rows.index.name][1])
        start = int(np.searchsorted(rows.slots, low, side="left"))
        return start, max(start, int(np.searchsorted(rows.slots, high, side="right")))


@dataclass(frozen=True)
class Search:
    """The candidates of ``needles`` (rows of ``side``) among ``rows``.

    Needle ``skipped + n`` has its candidates at the places [first[n], end[n]).

    Attributes:
        alive: returns which of the rows exist; None: all exist.
    """

    condition: PairCondition
    needles: SortedRows
    side: Side
    rows: SortedRows
    skipped: int
    first: Rows
    end: Rows
    alive: Callable[[Rows], Mask] | None = None

    @classmethod
    def of(
        cls,
        condition: PairCondition,
        needles: SortedRows,
        side: Side,
        rows: SortedRows,
        alive: Callable[[Rows], Mask] | None = None,
    ) -> Search | None:
        """Build a search; return None if no needle has a candidate.

        Raises:
            EngineError: a sum of ``condition`` overflows its type for one of the pairs.
        """
        check_sums(condition, needles, side, rows, alive)
        spans = _ranges(condition, needles, side, rows)
        return None if spans is None else cls(condition, needles, side, rows, *spans, alive)

    @property
    def candidates(self) -> int:
        return int((self.end - self.first).sum())

    def add_counts(self, counts: Rows) -> None:
        """Add each needle's candidates to ``counts``, int64[needles]."""
        counts[self.skipped : self.skipped + len(self.first)] += self.end - self.first

    def pairs(self, chosen: Rows | None = None) -> Iterator[tuple[Rows, Rows]]:
        """Yield the matches of all needles, or of the chosen ones (ascending); see `find`."""
        first, end = self.first, self.end
        if chosen is not None:
            chosen = chosen[(chosen >= self.skipped) & (chosen < self.skipped + len(first))]
            first, end = first[chosen - self.skipped], end[chosen - self.skipped]
        for needle, place in expand(first, end):
            if chosen is not None:
                needle = chosen[needle]
            elif self.skipped:
                needle = needle + self.skipped
            row = place if self.rows.places is None else self.rows.places[place].astype(np.int64, copy=False)
            keep = accept_pairs(self.condition, self.needles, self.side, needle, self.rows, row, self.alive)
            if keep is not None:
                needle, row = needle[keep], row[keep]
            if len(needle):
                yield needle, row


_SPARSE_RATIO = 16
"""Rows are told apart by sorting while they are no more than one in so many."""


def find(
    condition: PairCondition, needles: SortedRows, side: Side, rows: SortedRows
) -> Iterator[tuple[Rows, Rows]]:
    """Yield all matches between ``needles`` (rows of ``side``) and ``rows`` of the other side.

    Yields:
        (needle positions, row positions), int64[m] each, with needles ascending within a chunk and
        across chunks.
    """
    search = Search.of(condition, needles, side, rows)
    if search is not None:
        yield from search.pairs()


def candidates(condition: PairCondition, needles: SortedRows, side: Side, rows: SortedRows) -> int:
    """Count the candidates that `find` would check, without gathering any."""
    spans = _ranges(condition, needles, side, rows)
    return 0 if spans is None else int((spans[2] - spans[1]).sum())


def _ranges(
    condition: PairCondition, needles: SortedRows, side: Side, rows: SortedRows
) -> tuple[int, Rows, Rows] | None:
    """Find the places of each needle's candidates; return None if there are no candidates.

    Returns:
        (the number of needles skipped at the start, per needle the places [first, end) of its
        candidates). Needles at the end may be missing, too.
    """
    if len(needles) == 0 or len(rows) == 0:
        return None
    skipped = 0
    if needles.by_value and needles.places is None:
        skipped, stop = condition.reached(side.other, rows.spans, needles)
        if skipped >= stop:
            return None
        if stop - skipped < len(needles):
            needles = needles.part(skipped, stop)
    elif needles.places is None and not (needles.by_value or rows.by_value or rows.prefixed):
        # of a part of a run only its own hashes are asked for
        first, last = rows.slots[0] & BUCKET_MASK, rows.slots[-1] | TIME_MASK
        start = int(needles.slots.searchsorted(first, side="left"))
        stop = int(needles.slots.searchsorted(last, side="right"))
        if start >= stop:
            return None
        if stop - start < len(needles) // 2:
            skipped, needles = start, needles.part(start, stop)
    places = _places(condition, needles, side, rows)
    return None if places is None else (skipped, *places)


def _places(
    condition: PairCondition, needles: SortedRows, side: Side, rows: SortedRows, chosen: Rows | None = None
) -> tuple[Rows, Rows] | None:
    """Find the places [first, end) of each needle's candidates; None if there are none.

    ``chosen`` limits the result to these needles.
    """
    slots = needles.slots if chosen is None else needles.slots[chosen]
    if rows.prefixed:
        return prefix_ranges(slots, rows.slots)
    if rows.index is None:
        low = high = np.zeros(len(slots), dtype=np.int64)
    else:
        low, high = condition.around(needles, side, rows.index, rows.greatest, chosen)
    if rows.by_value:
        if low.min() > rows.greatest or high.max() < rows.base:
            return None
        first = np.searchsorted(rows.slots, low, side="left")
        return first, np.maximum(np.searchsorted(rows.slots, high, side="right"), first)
    return ranges(slots, low, high, rows.slots, rows.base, rows.shift, rows.greatest)


def check_sums(
    condition: PairCondition,
    needles: SortedRows,
    side: Side,
    rows: SortedRows,
    alive: Callable[[Rows], Mask] | None = None,
) -> None:
    """Evaluate the careful condition for pairs for which a sum overflows its type, if there are any.

    If the value ranges show that no sum can overflow, this costs nothing; otherwise it costs some passes over
    the sum's columns and the pairs found.

    Raises:
        EngineError: Spark raises an error for one of these pairs. Without an error, none of them matches.
    """
    careful = condition.careful
    if careful is None or not len(needles) or not len(rows):
        return
    for added in condition.sums_leaving(side, needles.spans, rows.spans):
        ordinals = {
            (own, measured): needles.ordinals(measured) if own is side else _values_by_slot(rows, measured)
            for own, measured, _ in added.terms
        }
        for part in parts_leaving_type(added, ordinals, {side: len(needles), side.other: len(rows)}):
            chosen, places = part[side], part[side.other]
            some = replace(
                rows, slots=rows.slots[places], places=places if rows.places is None else rows.places[places]
            )
            spans = _places(careful, needles, side, some, chosen)
            for needle, place in () if spans is None else expand(*spans):
                of = {side: chosen[needle], side.other: places[place]}
                leaves = leaves_type(
                    added, {(own, m): values[of[own]] for (own, m), values in ordinals.items()}, len(needle)
                )
                if leaves.any():
                    assert some.places is not None
                    accept_pairs(
                        careful, needles, side, of[side][leaves], rows, some.places[place[leaves]], alive
                    )


def _values_by_slot(rows: SortedRows, measured: Measured) -> Times:
    """Return the ordinals of the rows, in the order of their slots."""
    values = rows.ordinals(measured)
    return values if rows.places is None else values[rows.places]


def may_pair(condition: PairCondition, needles: SortedRows, side: Side, spans: Spans) -> bool:
    """Return True if needles may have partners among rows with these spans.

    Also return True if a sum may overflow its type for such a pair. The needles are rows of ``side``.
    """
    if condition.careful is not None and condition.sums_leaving(side, needles.spans, spans):
        return True
    return not _has_no_overlap(condition, needles, side, spans)


def _has_no_overlap(condition: PairCondition, needles: SortedRows, side: Side, spans: Spans) -> bool:
    """Return True if an exact band excludes every row with these spans for every needle."""
    for band in condition.along[side]:
        least, most = spans[band.rows.name]
        low, high = band.distances.over(*needles.spans[band.needles.name])
        if low > most or high < least:
            return True
    return False


def rows_matched(condition: PairCondition, needles: SortedRows, side: Side, rows: SortedRows) -> Rows:
    """Return the rows that have a match among the needles, ascending, each once.

    If the look-up alone decides, no pairs are built: O(needles · log rows + rows found). Otherwise the
    cost is that of `find`.
    """
    if not _is_decided_by_look_up(condition, needles, side, rows):
        return distinct((row for _, row in find(condition, needles, side, rows)), len(rows))
    check_sums(condition, needles, side, rows)
    spans = _ranges(condition, needles, side, rows)
    if spans is None:
        return np.zeros(0, dtype=np.int64)
    places = distinct((place for _, place in expand(*_merge_ranges(spans[1], spans[2]))), len(rows))
    return places if rows.places is None else np.sort(rows.places[places])


def _merge_ranges(first: Rows, end: Rows) -> tuple[Rows, Rows]:
    """Merge overlapping ranges."""
    keep = end > first
    first, end = first[keep], end[keep]
    if not len(first):
        return first, end
    order = np.argsort(first, kind="stable")
    first, reached = first[order], np.maximum.accumulate(end[order])
    starts = np.flatnonzero(np.append(True, first[1:] > reached[:-1]))
    return first[starts], reached[np.append(starts[1:], len(first)) - 1]


def distinct(parts: Iterable[Rows], count: int) -> Rows:
    """Return the rows of [0, count) that are in any of the parts, ascending.

    Cost: proportional to the parts; very long parts need a mark per row of [0, count).
    """
    held, held_rows = [], 0
    marks: Mask | None = None
    for part in parts:
        if marks is None:
            held.append(part)
            held_rows += len(part)
            if held_rows <= count // _SPARSE_RATIO:
                continue
            marks = np.zeros(count, dtype=np.bool_)
            for part_rows in held:
                marks[part_rows] = True
        else:
            marks[part] = True
    if marks is not None:
        return np.flatnonzero(marks)
    return np.unique(np.concatenate(held)) if held else np.zeros(0, dtype=np.int64)


def has_match(condition: PairCondition, needles: SortedRows, side: Side, rows: SortedRows) -> Mask:
    """Return a mask of the needles that have a match among the rows: bool[needles].

    If the look-up alone decides, no pairs are built: O(needles · log rows).
    """
    hits = np.zeros(len(needles), dtype=np.bool_)
    if _is_decided_by_look_up(condition, needles, side, rows):
        check_sums(condition, needles, side, rows)
        spans = _ranges(condition, needles, side, rows)
        if spans is not None:
            skipped, first, end = spans
            hits[skipped : skipped + len(first)] = end > first
        return hits
    for needle, _ in find(condition, needles, side, rows):
        hits[needle] = True
    return hits


def _is_decided_by_look_up(
    condition: PairCondition, needles: SortedRows, side: Side, rows: SortedRows
) -> bool:
    if condition.keys or condition.reals or condition.residual is not None or condition.rechecks:
        return False
    indexed = all(band.measured(side.other) == rows.index for band in condition.bands)
    return indexed and rows.by_value and not _near_ends(condition, needles, side, rows)


def accept_pairs(
    condition: PairCondition,
    needles: SortedRows,
    side: Side,
    ni: Rows,
    rows: SortedRows,
    ri: Rows,
    alive: Callable[[Rows], Mask] | None = None,
) -> Rows | None:
    """Return the positions of the accepted pairs among a look-up's pairs; None accepts all.

    The residual predicate is not evaluated for rows that are not ``alive``.
    """
    keep: Rows | None = None

    def narrow(mask: Mask) -> None:
        nonlocal keep, ni, ri
        if np.count_nonzero(mask) == len(mask):
            return
        chosen = mask.nonzero()[0]
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
            narrow(pairs_in_band(real, side, needles.reals(real.measured(side), ni), partners))
    for key in condition.keys:
        (left, li), (right, ri_) = of(Side.LEFT), of(Side.RIGHT)
        narrow(equal_pairs(left.column(key.left), li, right.column(key.right), ri_, null_safe=key.null_safe))
    for comparison in condition.comparisons if near_ends else condition.rechecks:
        times = {
            (own, measured.name): of(own)[0].ordinals(measured, of(own)[1])
            for own, measured in _columns_of(condition)
        }
        narrow(evaluate_comparison(comparison, times, len(ni)))
    if alive is not None:
        narrow(alive(ri))
    if condition.residual is not None and len(ni):
        (left, li), (right, ri_) = of(Side.LEFT), of(Side.RIGHT)
        narrow(_residual_holds(condition, condition.residual, left, li, right, ri_))
    return keep


def _columns_of(condition: PairCondition) -> list[tuple[Side, Measured]]:
    return list(dict.fromkeys((side, band.measured(side)) for band in condition.bands for side in Side))


def _near_ends(condition: PairCondition, needles: SortedRows, side: Side, rows: SortedRows) -> bool:
    """Return True if arithmetic on some value may saturate, so that only the conjuncts decide.

    This is the case where `Distances` reach an end of int64.
    """
    if not condition.slack:
        return False
    top, bottom = MAX_TIME - condition.slack, MIN_TIME + condition.slack
    for band in condition.along[side]:
        for least, greatest in (needles.spans[band.needles.name], rows.spans[band.rows.name]):
            if greatest >= top or least <= bottom:
                return True
    return False


def _residual_holds(
    condition: PairCondition, asked: PairTest, left: SortedRows, li: Rows, right: SortedRows, ri: Rows
) -> Mask:
    columns = condition.residual_columns
    if pairs_bound(columns, left.batch, li, right.batch, ri) <= CHECKED_BYTES:
        return asked.holds(_residual_table(condition, left, li, right, ri))
    masks = []
    for low, high in pairwise(
        cut_points(pair_sizes(columns, left.batch, li, right.batch, ri), CHECKED_BYTES)
    ):
        pairs = _residual_table(condition, left, li[low:high], right, ri[low:high])
        masks.append(asked.holds(pairs))
    return np.concatenate(masks)


def _residual_table(
    condition: PairCondition, left: SortedRows, li: Rows, right: SortedRows, ri: Rows
) -> pa.Table:
    if not condition.residual_columns:
        return pa.table({ours("pair"): pa.array(li)})
    batch = gather(condition.residual_columns, left.batch, li, right.batch, ri)
    return pa.Table.from_batches([batch])


# Pairs of a join that lead to no result: a join above it refuses them, whatever comes.
#
# Rows are released by bounds that follow from all joins of a query. Where some come from above, a
# released row may still meet its own join's condition. In append mode look-ups pass such rows over. Where
# results are taken back, a released row is looked up once more when a partner is deleted, or when it is
# deleted itself; what had come of it then has to be told from what never would, and that is what the
# bounds say of the pair.


@dataclass(frozen=True)
class PairBound:
    """A bound on the rows of one side by those of the other: ``evicted >= by - bound.c`` in every result."""

    evicted: TimeColumn
    by: TimeColumn
    bound: Bound


def pairs_in_bounds(
    bounds: tuple[PairBound, ...], left: SortedRows, left_rows: Rows, right: SortedRows, right_rows: Rows
) -> Mask:
    """Return a mask of the pairs that meet all ``bounds``: bool[n].

    A NULL time is stored as the greatest time, and meets a bound that releases it. Near the ends of
    int64, where arithmetic saturates, a pair that may meet a bound counts as meeting it.
    """
    keep = np.ones(len(left_rows), dtype=np.bool_)
    chosen = {Side.LEFT: (left, left_rows), Side.RIGHT: (right, right_rows)}
    for pair in bounds:
        evicted, by = (_times(*chosen[time.side], time.column) for time in (pair.evicted, pair.by))
        limit = saturating_add(by, -pair.bound.c).clip(pair.bound.low, pair.bound.high)
        holds = evicted >= limit
        if pair.bound.slack:
            reach = 2 * pair.bound.slack + 2
            for times in (evicted, by, limit):
                holds |= (times < MIN_TIME + reach) | (times > MAX_TIME - reach)
        keep &= holds
    return keep


def _times(rows: SortedRows, chosen: Rows, column: str) -> Times:
    return rows.times(column)[chosen]
