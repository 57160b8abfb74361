"""Matching: from two sides' rows to the pairs for which the whole condition is TRUE.

`find` probes and checks; `gather` builds joined rows from pairs. Checks run from cheap to dear on what is
left: time bands, keys, comparisons as written, residual.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.event_time import MAX_TIME, MIN_TIME, Mask, Side, TimeComparison, Times, holds, saturating_add
from watersmeet.kernel import residual
from watersmeet.kernel.equality import equal_pairs
from watersmeet.kernel.probe import EVERYTHING, Rows, Window, expand, ranges
from watersmeet.kernel.slots import Slots
from watersmeet.kernel.times import to_native


@dataclass
class SortedRows:
    """Rows of one side in slot order.

    ``slots``: int64[n] ascending, encoded with ``base`` and ``shift``; ``greatest``: the greatest index time.
    ``batch``: the rows' columns; event times are int64 without NULLs. ``index_column`` names the time that
    slots are made from; None: slots hold hashes only (``base`` = ``shift`` = ``greatest`` = 0).
    ``spans``: least and greatest value of every event-time column (of the whole run, for a part of one).
    ``by_value``: slots are the index times themselves (``base``: the least of them, ``shift`` 0).
    """

    slots: Slots
    base: int
    shift: int
    greatest: int
    batch: pa.RecordBatch
    index_column: str | None
    spans: Mapping[str, tuple[int, int]]
    by_value: bool = False
    _times: dict[str, Times] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.slots)

    def times(self, column: str) -> Times:
        """An event-time column as int64[n]."""
        if column not in self._times:
            self._times[column] = self.batch.column(column).to_numpy(zero_copy_only=True)
        return self._times[column]

    def part(self, start: int, stop: int) -> SortedRows:
        """The rows in [start, stop), without a copy."""
        return SortedRows(
            self.slots[start:stop],
            self.base,
            self.shift,
            self.greatest,
            self.batch.slice(start, stop - start),
            self.index_column,
            self.spans,
            self.by_value,
        )


@dataclass(frozen=True)
class KeyColumns:
    left: str
    right: str
    null_safe: bool


@dataclass(frozen=True)
class Band:
    """``lower <= right - left <= upper`` over one time column of each side; None is open."""

    left: str
    right: str
    lower: int | None
    upper: int | None


@dataclass(frozen=True)
class JoinedColumn:
    """A column of one side under its name outside of the join, in its native type.

    ``null_column``: a boolean column that is TRUE where this one, held without NULLs, is NULL.
    """

    side: Side
    column: str
    name: str
    type: pa.DataType
    null_column: str | None = None


@dataclass(frozen=True)
class Condition:
    """A join's whole condition on pairs; see `plan.model.JoinPlan` for what the parts promise."""

    keys: tuple[KeyColumns, ...]
    bands: tuple[Band, ...]
    comparisons: tuple[TimeComparison, ...]
    rechecks: tuple[TimeComparison, ...]
    slack: int
    residual: str | None
    residual_columns: tuple[JoinedColumn, ...]

    def window(self, needles: Side) -> Window:
        """Where partners of needles of that side are, by the band that slots index."""
        if not self.bands:
            return EVERYTHING
        window = Window(self.bands[0].lower, self.bands[0].upper, self.slack)
        return window if needles is Side.LEFT else window.mirrored()


def find(
    condition: Condition, needles: SortedRows, side: Side, rows: SortedRows
) -> Iterator[tuple[Rows, Rows]]:
    """All matches between ``needles`` (rows of ``side``) and ``rows`` of the other side.

    Yields (needle positions, row positions), int64[m] each, needles ascending within a chunk and over chunks.
    """
    found = _ranges(condition, needles, side, rows)
    if found is None:
        return
    first, end = found
    exact = rows.shift == 0
    for needle, row in expand(first, end):
        left, right = (needles, rows) if side is Side.LEFT else (rows, needles)
        left_rows, right_rows = (needle, row) if side is Side.LEFT else (row, needle)
        keep = _accepted(condition, left, left_rows, right, right_rows, exact)
        if keep is None:
            yield needle, row
        elif len(keep):
            yield needle[keep], row[keep]


def _ranges(
    condition: Condition, needles: SortedRows, side: Side, rows: SortedRows
) -> tuple[Rows, Rows] | None:
    """Per needle the positions [first, end) of its candidates; None when there are none at all."""
    if len(needles) == 0 or len(rows) == 0:
        return None
    if needles.index_column is None:
        low = high = np.zeros(len(needles), dtype=np.int64)
    else:
        low, high = condition.window(side).around(needles.times(needles.index_column))
        if low.min() > rows.greatest or high.max() < rows.base:
            return None
    if rows.by_value:
        first = np.searchsorted(rows.slots, low, side="left")
        return first, np.maximum(np.searchsorted(rows.slots, high, side="right"), first)
    return ranges(needles.slots, low, high, rows.slots, rows.base, rows.shift, rows.greatest)


def matched(condition: Condition, needles: SortedRows, side: Side, rows: SortedRows) -> tuple[Mask, Mask]:
    """Which needles and which rows have a match among each other: bool[needles], bool[rows].

    Where the look-up itself decides, nothing is expanded: O(needles · log rows + rows).
    """
    of_needles, of_rows = np.zeros(len(needles), dtype=np.bool_), np.zeros(len(rows), dtype=np.bool_)
    if _is_decided_by_look_up(condition, needles, rows):
        found = _ranges(condition, needles, side, rows)
        if found is not None:
            first, end = found
            of_needles = end > first
            depth = np.zeros(len(rows) + 1, dtype=np.int64)
            np.add.at(depth, first[of_needles], 1)
            np.add.at(depth, end[of_needles], -1)
            of_rows = np.cumsum(depth)[:-1] > 0
        return of_needles, of_rows
    for needle, row in find(condition, needles, side, rows):
        of_needles[needle] = True
        of_rows[row] = True
    return of_needles, of_rows


def _is_decided_by_look_up(condition: Condition, needles: SortedRows, rows: SortedRows) -> bool:
    whole = not condition.keys and len(condition.bands) == 1 and condition.residual is None
    if not whole or condition.rechecks or not rows.by_value:
        return False
    column = needles.index_column
    edges = [*needles.spans[str(column)], *rows.spans[str(rows.index_column)]]
    return all(MIN_TIME + condition.slack <= edge <= MAX_TIME - condition.slack for edge in edges)


def _accepted(
    condition: Condition, left: SortedRows, li: Rows, right: SortedRows, ri: Rows, exact: bool
) -> Rows | None:
    """Positions of the accepted pairs, None for all."""
    keep: Rows | None = None

    def narrow(mask: Mask) -> None:
        nonlocal keep, li, ri
        if mask.all():
            return
        chosen = np.flatnonzero(mask)
        keep = chosen if keep is None else keep[chosen]
        li, ri = li[chosen], ri[chosen]

    near_ends = _near_ends(condition, left, right)
    if not near_ends:
        for number, band in enumerate(condition.bands):
            if number == 0 and exact:
                continue
            a, b = left.times(band.left)[li], right.times(band.right)[ri]
            if band.lower is not None:
                narrow(b >= saturating_add(a, band.lower))
                a, b = left.times(band.left)[li], right.times(band.right)[ri]
            if band.upper is not None:
                narrow(b <= saturating_add(a, band.upper))
    for key in condition.keys:
        narrow(
            equal_pairs(
                left.batch.column(key.left), li, right.batch.column(key.right), ri, null_safe=key.null_safe
            )
        )
    for comparison in condition.comparisons if near_ends else condition.rechecks:
        columns = {
            (side, column): (left if side is Side.LEFT else right).times(column)[
                li if side is Side.LEFT else ri
            ]
            for side, column in _columns_of(condition)
        }
        narrow(holds(comparison, columns, len(li)))
    if condition.residual is not None and len(li):
        narrow(residual.holds(condition.residual, _residual_table(condition, left, li, right, ri)))
    return keep


def _columns_of(condition: Condition) -> list[tuple[Side, str]]:
    return list(
        dict.fromkeys(
            pair for band in condition.bands for pair in ((Side.LEFT, band.left), (Side.RIGHT, band.right))
        )
    )


def _near_ends(condition: Condition, left: SortedRows, right: SortedRows) -> bool:
    """Whether arithmetic on some time may saturate, so that only the conjuncts as written decide."""
    for side, column in _columns_of(condition):
        least, greatest = (left if side is Side.LEFT else right).spans[column]
        if greatest > MAX_TIME - condition.slack or least < MIN_TIME + condition.slack:
            return True
    return False


def _residual_table(
    condition: Condition, left: SortedRows, li: Rows, right: SortedRows, ri: Rows
) -> pa.Table:
    if not condition.residual_columns:
        return pa.table({"#pair": pa.array(li)})
    batch = gather(condition.residual_columns, left.batch, li, right.batch, ri)
    return pa.Table.from_batches([batch])


def gather(
    columns: tuple[JoinedColumn, ...],
    left: pa.RecordBatch | None,
    left_rows: Rows,
    right: pa.RecordBatch | None,
    right_rows: Rows,
) -> pa.RecordBatch:
    """Joined rows of pairs: columns in the given order, event times in their native types.

    A side that is None is padded with NULLs.
    """
    chosen = {Side.LEFT: pa.array(left_rows), Side.RIGHT: pa.array(right_rows)}
    batches = {Side.LEFT: left, Side.RIGHT: right}
    rows = len(right_rows) if left is None else len(left_rows)
    arrays = []
    for column in columns:
        batch = batches[column.side]
        if batch is None:
            arrays.append(pa.nulls(rows, column.type))
        else:
            array = batch.column(column.column).take(chosen[column.side])
            if column.null_column is not None:
                missing = batch.column(column.null_column).take(chosen[column.side])
                array = pc.if_else(missing, pa.scalar(None, array.type), array)
            arrays.append(to_native(array, column.type))
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])
