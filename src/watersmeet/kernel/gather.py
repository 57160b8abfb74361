"""Gather rows of several batches, and joined rows from pairs of row numbers, without a copy of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.event_time import Side
from watersmeet.kernel.batches import (
    Rows,
    Sizes,
    bound,
    concat_arrays,
    one_batch,
    size,
    sizes,
    take_rows,
    take_values,
    widen_offsets,
)
from watersmeet.kernel.ordinals import to_native

# Rows of several batches in one order, without a copy of all of them: columns are taken where they lie.
#
# A task that merges what came for it in a tick needs times, keys and whatever look-ups go by in one
# order. The rest it needs of rows that leave alone. So where there is much of it, it stays in the runs,
# which are mapped into memory, and is read from there when rows leave.


class ChunkedRows:
    """Stands for a `pa.RecordBatch` where rows are looked up and gathered.

    Args:
        batches: of equal columns.
        places: int64[n], per row its place in all rows of the batches, one after the other.
    """

    def __init__(self, batches: Sequence[pa.RecordBatch], places: Rows) -> None:
        self._batches = batches
        self._starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
        self._places = places
        self._columns: dict[str, pa.Array] = {}
        self._asked: Rows | None = None
        self._found: list[_Part] = []

    def __len__(self) -> int:
        return len(self._places)

    @property
    def num_rows(self) -> int:
        return len(self._places)

    @property
    def schema(self) -> pa.Schema:
        return self._batches[0].schema

    def column(self, name: str) -> pa.Array:
        """Return a whole column and cache it; use it for columns that look-ups read."""
        if name not in self._columns:
            self._columns[name] = self._gather_from_batches(name, None)
        return self._columns[name]

    def taken(self, name: str, rows: Rows) -> pa.Array:
        """Return the chosen values of a column."""
        if name in self._columns:
            return take_values(self._columns[name], rows)
        return self._gather_from_batches(name, rows)

    def sizes(self, names: Sequence[str], rows: Rows) -> Sizes:
        """See `kernel.batches.sizes`."""
        row_bytes = np.zeros(len(rows), dtype=np.int64)
        for batch, chosen, own in self._by_batch(rows):
            row_bytes[chosen] = sizes([batch.column(name) for name in names], own)
        return row_bytes

    def bound(self, names: Sequence[str], rows: Rows) -> int:
        """See `kernel.batches.bound`."""
        return sum(
            bound([batch.column(name) for name in names], own) for batch, _, own in self._by_batch(rows)
        )

    def reordered(self, order: Rows) -> ChunkedRows:
        """Return the chosen rows in the given order."""
        return ChunkedRows(self._batches, self._places[order])

    def slice(self, start: int, length: int) -> ChunkedRows:
        return ChunkedRows(self._batches, self._places[start : start + length])

    def whole(self) -> pa.RecordBatch:
        """Copy all columns into one batch."""
        names = self.schema.names
        return pa.RecordBatch.from_arrays(
            [self._gather_from_batches(name, None) for name in names], names=names
        )

    def _gather_from_batches(self, name: str, rows: Rows | None) -> pa.Array:
        """Gather the chosen values of a column; ``rows`` None selects all of them."""
        parts, order = [], np.zeros(len(self._places) if rows is None else len(rows), dtype=np.int64)
        done = 0
        for batch, chosen, own in self._by_batch(rows):
            parts.append(take_values(batch.column(name), own))
            order[chosen] = np.arange(done, done + len(own))
            done += len(own)
        if not parts:
            return self._batches[0].column(name).slice(0, 0)
        return take_values(concat_arrays(parts), order)

    def _by_batch(self, rows: Rows | None) -> list[_Part]:
        """Group the chosen rows by batch; cache the result, since callers gather several columns."""
        if not self._found or self._asked is not rows:
            places = self._places if rows is None else self._places[rows]
            origin = np.searchsorted(self._starts, places, side="right") - 1
            parts = []
            for number in np.unique(origin).tolist():
                chosen = np.flatnonzero(origin == number)
                parts.append((self._batches[number], chosen, places[chosen] - self._starts[number]))
            self._asked, self._found = rows, parts
        return self._found


_Part = tuple[pa.RecordBatch, Rows, Rows]
"""A batch, which of the rows asked for are in it, and which of its rows they are."""

Columns: TypeAlias = "pa.RecordBatch | ChunkedRows"
"""Rows in one batch, or in several."""


class HasColumns(Protocol):
    """A source of rows to gather: `Columns`, or a `kernel.sorted_rows.SortedRows` of one batch."""

    def column(self, name: str) -> pa.Array:
        """Return a whole column."""


class ChosenRows:
    """Rows chosen from several batches by look-ups, for one gathering of all of them or of a range.

    The rows of each batch follow those of the batch before, unless ``order`` gives another order.

    Args:
        parts: pairs (rows, batch) whose batches have equal columns; at least one.
        order: int64[n], for each wanted row its position among the chosen rows, which are numbered part after
            part; None: all of them in their own order.
    """

    def __init__(self, parts: Sequence[tuple[Rows, HasColumns]], order: Rows | None = None) -> None:
        self._parts = parts
        self._order = order
        self._starts = np.cumsum([0, *(len(rows) for rows, _ in parts)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def taken(self, name: str, rows: Rows, *, fits: bool = False) -> pa.Array:
        """Return the values of a column for ``rows``: a range of all rows, ascending."""
        if len(rows) == len(self):
            columns = [take_column(batch, name, own, fits=fits) for own, batch in self._parts]
            whole_column = concat_arrays(columns)
            return whole_column if self._order is None else take_values(whole_column, self._order, fits=fits)
        columns, places, done = [], np.zeros(len(rows), dtype=np.int64), 0
        for number, chosen, own in self._by_part(rows):
            columns.append(take_column(self._parts[number][1], name, own, fits=fits))
            places[chosen] = np.arange(done, done + len(own))
            done += len(own)
        if not columns:
            return take_column(self._parts[0][1], name, rows)
        return take_values(concat_arrays(columns), places, fits=fits)

    def sizes(self, names: Sequence[str], rows: Rows) -> Sizes:
        """See `kernel.batches.sizes`."""
        row_bytes = np.zeros(len(rows), dtype=np.int64)
        for number, chosen, own in self._by_part(rows):
            row_bytes[chosen] = row_sizes(self._parts[number][1], names, own)
        return row_bytes

    def bound(self, names: Sequence[str], rows: Rows) -> int:
        """Compute an upper bound of the bytes of all rows; see `kernel.batches.bound`."""
        return sum(rows_bound(batch, names, own) for own, batch in self._parts)

    def _by_part(self, rows: Rows) -> Iterator[tuple[int, Rows, Rows]]:
        places = rows if self._order is None else self._order[rows]
        for number, (own, _) in enumerate(self._parts):
            low, high = self._starts[number : number + 2]
            chosen = np.flatnonzero((places >= low) & (places < high))
            if len(chosen):
                yield number, chosen, own[places[chosen] - low]


def pieces_of(batches: Sequence[pa.RecordBatch]) -> Columns:
    """Combine all rows of the batches, one after the other, without a copy."""
    if len(batches) == 1:
        return batches[0]
    return ChunkedRows(batches, np.arange(sum(batch.num_rows for batch in batches)))


def join_batches(batches: Sequence[pa.RecordBatch], most: int) -> Columns:
    """Combine all rows of the batches, in order; copy them into one batch up to ``most`` bytes."""
    if sum(size(batch.columns) for batch in batches) <= most:
        return one_batch(batches)
    return pieces_of(batches)


def reorder_rows(batch: Columns, order: Rows) -> Columns:
    """Return the chosen rows in the given order."""
    return batch.reordered(order) if isinstance(batch, ChunkedRows) else take_rows(batch, order)


def take_column(batch: HasColumns | ChosenRows, name: str, rows: Rows, *, fits: bool = False) -> pa.Array:
    """Select values of a column in the given order.

    Args:
        fits: see `kernel.batches.take_values`.
    """
    if isinstance(batch, ChosenRows):
        return batch.taken(name, rows, fits=fits)
    if isinstance(batch, ChunkedRows):
        return batch.taken(name, rows)
    return take_values(batch.column(name), rows, fits=fits)


def row_sizes(batch: HasColumns | ChosenRows, names: Sequence[str], rows: Rows) -> Sizes:
    """Estimate the bytes of each chosen row in these columns."""
    if isinstance(batch, ChunkedRows | ChosenRows):
        return batch.sizes(names, rows)
    return sizes([batch.column(name) for name in names], rows)


def rows_bound(batch: HasColumns | ChosenRows, names: Sequence[str], rows: Rows) -> int:
    """Compute an approximate upper bound of the bytes of the chosen rows in these columns.

    See `kernel.batches.bound`.
    """
    if isinstance(batch, ChunkedRows | ChosenRows):
        return batch.bound(names, rows)
    return bound([batch.column(name) for name in names], rows)


def as_one_batch(batch: Columns) -> pa.RecordBatch:
    """Return the rows as one batch; copy chunked rows."""
    return batch.whole() if isinstance(batch, ChunkedRows) else batch


def estimate_bytes(batch: Columns) -> int:
    """Estimate the bytes of all rows without copying them."""
    if isinstance(batch, pa.RecordBatch):
        return size(batch.columns)
    return int(batch.sizes(batch.schema.names, np.arange(len(batch))).sum())


# Joined rows: from pairs of row numbers to columns, and how many bytes they will have.


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


def pair_sizes(
    columns: tuple[JoinedColumn, ...],
    left: HasColumns | ChosenRows | None,
    left_rows: Rows,
    right: HasColumns | ChosenRows | None,
    right_rows: Rows,
) -> Sizes:
    """Estimate the bytes of each joined row of the pairs before building it: int64[n]."""
    row_bytes = np.zeros(len(right_rows) if left is None else len(left_rows), dtype=np.int64)
    for side, batch, rows in ((Side.LEFT, left, left_rows), (Side.RIGHT, right, right_rows)):
        if batch is not None:
            row_bytes += row_sizes(batch, [column.column for column in columns if column.side is side], rows)
    return row_bytes


def pairs_bound(
    columns: tuple[JoinedColumn, ...],
    left: HasColumns | ChosenRows | None,
    left_rows: Rows,
    right: HasColumns | ChosenRows | None,
    right_rows: Rows,
) -> int:
    """Compute an approximate upper bound of the bytes of the pairs' joined rows.

    It is never less than the sum of `pair_sizes`, and cheaper.
    """
    total = 0
    for side, batch, rows in ((Side.LEFT, left, left_rows), (Side.RIGHT, right, right_rows)):
        if batch is not None:
            total += rows_bound(batch, [column.column for column in columns if column.side is side], rows)
    return total


def gather(
    columns: tuple[JoinedColumn, ...],
    left: HasColumns | ChosenRows | None,
    left_rows: Rows,
    right: HasColumns | ChosenRows | None,
    right_rows: Rows,
    *,
    fits: bool = False,
) -> pa.RecordBatch:
    """Build the joined rows of pairs: columns in the given order, event times in native types.

    A side that is None is padded with NULLs. Columns of many bytes may have 64-bit offsets.

    Args:
        fits: see `kernel.batches.take_values`.
    """
    chosen = {Side.LEFT: left_rows, Side.RIGHT: right_rows}
    batches = {Side.LEFT: left, Side.RIGHT: right}
    rows = len(right_rows) if left is None else len(left_rows)
    arrays = []
    for column in columns:
        batch = batches[column.side]
        if batch is None:
            arrays.append(pa.nulls(rows, column.type))
        else:
            array = take_column(batch, column.column, chosen[column.side], fits=fits)
            if column.null_column is not None:
                missing = take_column(batch, column.null_column, chosen[column.side])
                array = pc.if_else(missing, pa.scalar(None, array.type), array)
            if array.type != column.type and array.type != widen_offsets(column.type):
                array = to_native(array, column.type)
            arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])
