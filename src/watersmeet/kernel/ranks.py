"""Rank rows within partitions before and after a tick's changes, and emit the difference.

Equal rows are stored once, with their multiplicity, and have that many consecutive numbers. So the old and
the new numbers of each distinct row are known, and the output is the difference of two ranges of numbers.
The order has no ties between different rows, so results do not depend on the order of arrival or storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.kernel.aggregate import ROWS, AggregateColumn, aggregate_groups, quote_identifier
from watersmeet.kernel.duckdb import connection
from watersmeet.kernel.groups import GROUP, GroupParts
from watersmeet.names import DIFF, ours

WAS, IS = ours("was"), ours("is")
"""How often a row was there, and is."""
_ROW = ours("row")

Numbers = npt.NDArray[np.int64]


def rank_parts(values: Sequence[str]) -> GroupParts:
    """Return what to retain per partition: the row count of each distinct row.

    Args:
        values: the columns in which rows of a partition differ.
    """
    rows = AggregateColumn(ROWS, f"CAST(sum({quote_identifier(DIFF)}) AS BIGINT)", pa.int64())
    return GroupParts(
        values=tuple(values),
        decimals=(),
        sums=(rows,),
        totals=(),
        chosen=(),
        counted=(),
        real_sums=(),
        reals=(),
    )


def order_sql(keys: Iterable[tuple[str, bool, bool]]) -> str:
    """Build the ORDER BY text from (column, descending, nulls first) triples."""
    return ", ".join(
        f"{quote_identifier(column)} {'DESC' if descending else 'ASC'} NULLS "
        f"{'FIRST' if nulls_first else 'LAST'}"
        for column, descending, nulls_first in keys
    )


@dataclass(frozen=True)
class Stretches:
    """Ranges of rank numbers that rows occupy (``diffs`` 1) or leave (``diffs`` −1).

    Attributes:
        rows: for each range, its row of the table.
        firsts: first number of each range.
        lengths: count of numbers in each range.
    """

    rows: Numbers
    firsts: Numbers
    lengths: Numbers
    diffs: Numbers

    def numbers(self, most: int) -> Iterator[tuple[Numbers, Numbers, Numbers]]:
        """Yield (row, number, diff) of every number, in chunks of about ``most``."""
        ends = np.cumsum(self.lengths)
        total = int(ends[-1]) if len(ends) else 0
        for low in range(0, total, most):
            places = np.arange(low, min(low + most, total))
            stretch = np.searchsorted(ends, places, side="right")
            within = places - (ends[stretch] - self.lengths[stretch])
            yield self.rows[stretch], self.firsts[stretch] + within, self.diffs[stretch]


def rank_changed_rows(
    rows: pa.Table, parts: GroupParts, order: str, most: int
) -> tuple[pa.Table, Numbers, Numbers]:
    """Rank the distinct rows that are, or were, among the first ``most`` of their partition.

    Args:
        rows: retained rows of partitions, numbered by `GROUP`, with `WAS` and `IS`; equal rows may
            repeat.
        order: the ORDER BY text; see `order_sql`.

    Returns:
        `GROUP`, the columns of ``parts``, `WAS` and `IS`, in no order; then the number of rows that
        were before each row, and the number that are before it now: int64[n] each.
    """
    sums = [
        AggregateColumn(name, f"CAST(greatest(sum({quote_identifier(name)}), 0) AS BIGINT)", pa.int64())
        for name in (WAS, IS)
    ]
    table = aggregate_groups(rows, [GROUP, *parts.values], sums, in_order=False)
    table = table.append_column(_ROW, pa.array(np.arange(table.num_rows)))
    within = f"PARTITION BY {quote_identifier(GROUP)}" + (f" ORDER BY {order}" if order else "")
    before = ", ".join(
        f"CAST(sum({quote_identifier(name)}) OVER w - {quote_identifier(name)} AS BIGINT) AS "
        f"{quote_identifier(name)}"
        for name in (WAS, IS)
    )
    text = (
        f"SELECT * FROM (SELECT {quote_identifier(_ROW)}, {before} FROM ranked_rows"
        f" WINDOW w AS ({within} ROWS UNBOUNDED PRECEDING))"
        f" WHERE {quote_identifier(WAS)} < {most} OR {quote_identifier(IS)} < {most}"
    )
    cursor = connection().cursor()
    try:
        cursor.register("ranked_rows", table)
        first = cursor.sql(text).to_arrow_table()
    finally:
        cursor.close()
    chosen = first.column(_ROW).to_numpy()
    return table.take(pa.array(chosen)), first.column(WAS).to_numpy(), first.column(IS).to_numpy()


def count_within(most: int, before: Numbers, there: Numbers) -> Numbers:
    """Count how many of ``there`` equal rows after ``before`` others are in the first ``most``."""
    return np.clip(np.minimum(there, most - before), 0, None)


def diff_ranks(was: tuple[Numbers, Numbers], now: tuple[Numbers, Numbers]) -> Stretches:
    """Compute the row numbers that rows lost and the row numbers that they gained.

    Args:
        was: per row the number of rows before it, and the number of copies of it that the output
            contained.
        now: the same two numbers for the current output.
    """
    rows = np.arange(len(was[0]))
    parts = [_subtract_ranges(rows, was, now, -1), _subtract_ranges(rows, now, was, 1)]
    every = [np.concatenate([getattr(part, name) for part in parts]) for name in _FIELDS]
    return Stretches(*every)


_FIELDS = ("rows", "firsts", "lengths", "diffs")


def _subtract_ranges(
    rows: Numbers, one: tuple[Numbers, Numbers], other: tuple[Numbers, Numbers], diff: int
) -> Stretches:
    """Subtract the numbers of ``other`` from those of ``one``.

    The result consists of the stretches before and after ``other``.
    """
    low, high = one[0] + 1, one[0] + one[1] + 1
    other_low, other_high = other[0] + 1, other[0] + other[1] + 1
    nothing = other[1] == 0
    ends = np.where(nothing, high, np.minimum(high, np.maximum(other_low, low)))
    begins = np.where(nothing, high, np.maximum(low, np.minimum(other_high, high)))
    firsts = np.concatenate([low, begins])
    lengths = np.concatenate([ends - low, high - begins])
    there = lengths > 0
    return Stretches(
        np.concatenate([rows, rows])[there], firsts[there], lengths[there], np.full(int(there.sum()), diff)
    )
