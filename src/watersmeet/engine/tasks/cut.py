"""Which rows of a run belong to a task: by their hashes, all of them, or none. Other cuts are beside what
they are for, in `engine.nodes`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from watersmeet.engine.tasks.share import Share
from watersmeet.event_time import Mask
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.slots import borders, slice_of
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.state.runs.run import Run

Picked = Callable[[Rows], Mask]
"""Which of these rows of a slice are in it."""


class Cut:
    """Which rows of a run belong to a task: all of them, unless it says otherwise."""

    def misses(self, run: Run) -> bool:
        """Whether it can be said without opening the run that none does."""
        return False

    def takes_all(self, run: Run) -> bool:
        """Whether it can be said without opening the run that all of its rows do."""
        return False

    def of(self, rows: SortedRows) -> tuple[int, int]:
        """The half-open range of positions."""
        return 0, len(rows)

    def parts(self, rows: SortedRows) -> Sequence[tuple[int, int]]:
        """The same as several ranges, ascending and apart, where it is more than one."""
        return [self.of(rows)]

    def picked(self, rows: SortedRows) -> Picked | None:
        """Of the rows in that range, if not all of them (None) belong to the task, which do."""
        return None

    def answers_for(self, run: Run, number: int, partition: int, partitions: int) -> bool:
        """Whether it is this one of so many tasks that is asked of all rows of the ``number``-th run. It is
        one task alone."""
        return number % partitions == partition


@dataclass(frozen=True)
class HashRange(Cut):
    """The rows with hashes in [low, high)."""

    low: int
    high: int

    @classmethod
    def of_share(cls, share: Share) -> HashRange:
        low, high = borders(share.partitions)[share.partition : share.partition + 2]
        return cls(low, high)

    def misses(self, run: Run) -> bool:
        return run.high < self.low or run.low >= self.high

    def takes_all(self, run: Run) -> bool:
        return self.low <= run.low and run.high < self.high

    def of(self, rows: SortedRows) -> tuple[int, int]:
        return slice_of(rows.slots, self.low, self.high)

    def answers_for(self, run: Run, number: int, partition: int, partitions: int) -> bool:
        """One of those that do not pass the run over: nobody has to fetch it for that alone."""
        if partitions == 1:
            return True
        ends = borders(partitions)[1:-1]
        first, last = bisect_right(ends, run.low), bisect_right(ends, run.high)
        return first + number % (last - first + 1) == partition


class Everything(Cut):
    """All rows of every run."""

    def takes_all(self, run: Run) -> bool:
        return True


@dataclass(frozen=True)
class Nothing(Cut):
    """No row of any run."""

    def misses(self, run: Run) -> bool:
        return True

    def of(self, rows: SortedRows) -> tuple[int, int]:
        return 0, 0
