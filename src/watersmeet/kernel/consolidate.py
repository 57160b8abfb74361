"""Sum changes per equal row within a tick."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.aggregate import group_numbers
from watersmeet.kernel.batches import batch_of, same_rows, take_rows


def consolidate_table(rows: pa.Table, diff: str) -> pa.Table:
    """Merge equal rows into one with the sum of their diffs; drop rows whose sum is 0.

    The result is in the order of the first row of each group. Equality is that of SQL: NULL equals
    NULL, NaN equals NaN, 0.0 equals -0.0 (the result has 0.0; within nested values, the value that came
    first), and maps are equal regardless of the order of their entries.

    Args:
        diff: the column of diffs (int64), which is the last one.
    """
    batch = batch_of(rows)
    diffs = batch.column(diff).to_numpy()
    numbers = group_numbers(batch, [name for name in batch.schema.names if name != diff])
    _, firsts, groups = np.unique(numbers, return_index=True, return_inverse=True)
    sums = np.zeros(len(firsts), dtype=np.int64)
    np.add.at(sums, groups, diffs)
    same_rows("sum results up", int(diffs.sum()), int(sums.sum()))
    staying = np.flatnonzero(sums)
    staying = staying[np.argsort(firsts[staying])]
    left = take_rows(batch, firsts[staying])
    columns = [_one_zero(column) for column in left.columns[:-1]]
    return pa.table([*columns, pa.array(sums[staying])], names=batch.schema.names)


def _one_zero(column: pa.Array) -> pa.Array:
    """Replace -0.0 with 0.0."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.add(column, pa.scalar(0.0, column.type))
