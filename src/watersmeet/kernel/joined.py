"""Joined rows: from pairs of row numbers to columns, and how many bytes they will have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.event_time import Side
from watersmeet.kernel.batches import Rows, Sizes, wide
from watersmeet.kernel.pieces import HasColumns, Parts, column_taken, row_sizes, rows_bound
from watersmeet.kernel.times import to_native


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
    left: HasColumns | Parts | None,
    left_rows: Rows,
    right: HasColumns | Parts | None,
    right_rows: Rows,
) -> Sizes:
    """How many bytes the joined rows of pairs will have, about, before they are built: int64[n]."""
    row_bytes = np.zeros(len(right_rows) if left is None else len(left_rows), dtype=np.int64)
    for side, batch, rows in ((Side.LEFT, left, left_rows), (Side.RIGHT, right, right_rows)):
        if batch is not None:
            row_bytes += row_sizes(batch, [column.column for column in columns if column.side is side], rows)
    return row_bytes


def pairs_bound(
    columns: tuple[JoinedColumn, ...],
    left: HasColumns | Parts | None,
    left_rows: Rows,
    right: HasColumns | Parts | None,
    right_rows: Rows,
) -> int:
    """At most how many bytes the joined rows of pairs will have, about: never less than the sum of
    `pair_sizes`, and cheaper."""
    total = 0
    for side, batch, rows in ((Side.LEFT, left, left_rows), (Side.RIGHT, right, right_rows)):
        if batch is not None:
            total += rows_bound(batch, [column.column for column in columns if column.side is side], rows)
    return total


def gather(
    columns: tuple[JoinedColumn, ...],
    left: HasColumns | Parts | None,
    left_rows: Rows,
    right: HasColumns | Parts | None,
    right_rows: Rows,
    *,
    fits: bool = False,
) -> pa.RecordBatch:
    """Joined rows of pairs: columns in the given order, event times in their native types.

    A side that is None is padded with NULLs. Columns of many bytes may come with 64-bit offsets. ``fits``:
    see `kernel.batches.taken`.
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
            array = column_taken(batch, column.column, chosen[column.side], fits=fits)
            if column.null_column is not None:
                missing = column_taken(batch, column.null_column, chosen[column.side])
                array = pc.if_else(missing, pa.scalar(None, array.type), array)
            if array.type != column.type and array.type != wide(column.type):
                array = to_native(array, column.type)
            arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])
