"""Pairs of a join that lead to no result: a join above it refuses them, whatever comes.

Rows are released by bounds that follow from all joins of a query. Where some come from above, a released row
may still meet its own join's condition. In append mode look-ups pass such rows over. Where results are taken
back, a released row is looked up once more when a partner is deleted, or when it is deleted itself; what had
come of it then has to be told from what never would, and that is what the bounds say of the pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from watersmeet.conditions import Bound
from watersmeet.event_time import MAX_TIME, MIN_TIME, Mask, Side, TimeColumn, Times, saturating_add
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.sorted_rows import SortedRows


@dataclass(frozen=True)
class PairBound:
    """A bound on the rows of one side by those of the other: ``evicted >= by - bound.c`` in every result."""

    evicted: TimeColumn
    by: TimeColumn
    bound: Bound


def lasting(
    bounds: tuple[PairBound, ...], left: SortedRows, left_rows: Rows, right: SortedRows, right_rows: Rows
) -> Mask:
    """Which of these pairs meet all ``bounds``: bool[n].

    A NULL time is held as the greatest one, and meets a bound that releases it. Near the ends of int64, where
    arithmetic saturates, a pair that may meet a bound does.
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
