"""Count late rows by their lateness, in fixed buckets per event-time column.

A row that is late by several columns counts for the one by which it is late the most (for the first of
them if the columns' units differ). Its lateness is in the unit of the column: µs for times, else a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from watersmeet.event_time import Mask, Times, Watermark, saturating_sub

_S = 1_000_000
TIME_BORDERS = (_S, 10 * _S, 60 * _S, 600 * _S, 3600 * _S, 6 * 3600 * _S, 24 * 3600 * _S)
TIME_BUCKETS = ("<1s", "<10s", "<1m", "<10m", "<1h", "<6h", "<1d", "more")
INTEGER_BORDERS = tuple(10**power for power in range(1, 19))
INTEGER_BUCKETS = (*(f"<{border}" for border in INTEGER_BORDERS), "more")


@dataclass
class LateBy:
    """Late rows of one column.

    Attributes:
        counts: number of rows per non-empty bucket, in order.
        most: lateness of the latest row.
        integer: lateness is in plain units instead of µs.
    """

    counts: dict[str, int] = field(default_factory=dict)
    most: int = 0
    integer: bool = False

    def add(self, late_by: Times, times: npt.NDArray[np.int64] | None = None) -> None:
        """Count rows by their lateness (all above 0).

        Args:
            times: number of rows that each row stands for; None: one.
        """
        borders, names = _buckets(self.integer)
        counts = np.zeros(len(names), dtype=np.int64)
        np.add.at(counts, np.searchsorted(borders, late_by, side="right"), 1 if times is None else times)
        self._add_counts({name: int(rows) for name, rows in zip(names, counts, strict=True)})
        self.most = max(self.most, int(late_by.max(initial=0)))

    def plus(self, other: LateBy) -> LateBy:
        total = LateBy(dict(self.counts), max(self.most, other.most), other.integer)
        total._add_counts(other.counts)
        return total

    def _add_counts(self, more: Mapping[str, int]) -> None:
        rows = {name: self.counts.get(name, 0) + more.get(name, 0) for name in _buckets(self.integer)[1]}
        self.counts = {name: number for name, number in rows.items() if number}


def _buckets(integer: bool) -> tuple[tuple[int, ...], tuple[str, ...]]:
    return (INTEGER_BORDERS, INTEGER_BUCKETS) if integer else (TIME_BORDERS, TIME_BUCKETS)


class MissedWatermarks:
    """The watermark that each late row of a batch missed, and by how much.

    Args:
        rows: the number of rows of the batch.
        columns: its event times, and whether they are integers.
    """

    def __init__(self, rows: int, columns: Mapping[str, bool]) -> None:
        self.columns: Sequence[str] = tuple(columns)
        self._integer = columns
        self._alike = len(set(columns.values())) == 1
        self.column = np.full(rows, -1, dtype=np.int8)
        """The column's number; −1: not late."""
        self.late_by = np.zeros(rows, dtype=np.int64)

    def note(self, column: str, late: Mask, values: Times, watermark: Watermark) -> None:
        """Note that rows ``late`` have values of ``column`` below ``watermark``."""
        rows = np.flatnonzero(late)
        by = saturating_sub(np.full(len(rows), watermark, dtype=np.int64), values[rows])
        noted = self.column[rows] >= 0
        chosen = ~noted | (self._alike & (by > self.late_by[rows]))
        self.column[rows[chosen]] = self.columns.index(column)
        self.late_by[rows[chosen]] = by[chosen]

    def count(self, total: dict[str, LateBy], times: npt.NDArray[np.int64] | None = None) -> None:
        """Add the rows to the columns' totals.

        Args:
            times: number of rows that each row of the batch stands for; None: one.
        """
        for number, column in enumerate(self.columns):
            chosen = self.column == number
            if chosen.any():
                late_by = total.setdefault(column, LateBy(integer=self._integer[column]))
                late_by.add(self.late_by[chosen], None if times is None else times[chosen])


def sum_by_column(totals: Sequence[Mapping[str, LateBy]]) -> dict[str, LateBy]:
    """Add up totals per column."""
    by_column: dict[str, LateBy] = {}
    for total in totals:
        for column, late_by in total.items():
            by_column[column] = by_column.get(column, LateBy(integer=late_by.integer)).plus(late_by)
    return by_column
