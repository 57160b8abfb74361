"""The partition of a node that one task has, and the hash range of its rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet.event_time import Mask
from watersmeet.kernel.batches import size
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.slots import borders, slice_of
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.runtime.messages.reports import NodeReport
from watersmeet.runtime.messages.work import NodeWork
from watersmeet.runtime.tasks.feed import FeedWriter
from watersmeet.state.runs.layout import Run
from watersmeet.state.store import Store

# The share of a node that one task has.

CANDIDATES, TOTAL_CANDIDATES = 2, 4
"""For each match that a task is to find at most, it may look at so many candidates of one run, or release so
many rows of it; and at so many, and rows, in all."""
INLINE_BYTES = 128 << 20
"""Of rows that leave a node that is run without Spark, wherever they go, to each that takes them; and of
those that it holds with their windows. Each of its shares has its part of this."""


class ManyMatches(Exception):
    """A task found more matches than it was to, or is about to do as much."""


@dataclass
class SpentWork:
    """Work of a task partition so far.

    ``seen``: candidates and rows; ``held``, ``left``: bytes held, and bytes emitted.
    """

    seen: int = 0
    held: int = 0
    left: int = 0


@dataclass(frozen=True)
class TaskPartition:
    """Input of one task of a node: the node's work, and the number of its partition among all partitions.

    The task fills in its ``report``. ``paths``: writers of the rows of each path through the node;
    ``paths_abroad``: likewise for other queries. ``most_matches``: the task gives up after this many
    matches, or after as much work or memory (None: never); ``spent``: the work so far.
    """

    store: Store
    tick: int
    work: NodeWork
    report: NodeReport
    partition: int
    partitions: int
    paths: Sequence[FeedWriter] = ()
    paths_abroad: Mapping[int, Sequence[FeedWriter]] = field(default_factory=dict)
    most_matches: int | None = None
    spent: SpentWork = field(default_factory=SpentWork)

    @property
    def is_bounded(self) -> bool:
        """It gives up where there is much to do."""
        return self.most_matches is not None

    def matched(self, rows: int) -> None:
        """Count matches. Raises: ManyMatches."""
        self.report.matches += rows
        if self.most_matches is not None and self.report.matches > self.most_matches:
            raise ManyMatches

    def count_candidates(self, rows: int) -> None:
        """Say how many candidates, or rows that are released, come next, before any is taken. Raises:
        ManyMatches: they are too many, or are with those before them."""
        self.spent.seen += rows
        most = self.most_matches
        if most is not None and (rows > most * CANDIDATES or self.spent.seen > most * TOTAL_CANDIDATES):
            raise ManyMatches

    def holds(self, nbytes: int) -> None:
        """Say how many bytes rows that are put together next have, before they are. Raises: ManyMatches."""
        self.spent.held += nbytes
        if self.is_bounded and self.spent.held > INLINE_BYTES // self.partitions:
            raise ManyMatches

    def count_emitted(self, rows: pa.RecordBatch, takers: int = 1) -> None:
        """Count the bytes of emitted rows, once per consumer that holds them until the tick ends.

        Raises:
            ManyMatches: the bytes exceed the partition's part of `INLINE_BYTES`.
        """
        if not self.is_bounded:
            return
        self.spent.left += size(rows.columns) * takers
        if self.spent.left > INLINE_BYTES // self.partitions:
            raise ManyMatches


# Which rows of a run belong to a task: by their hashes, all of them, or none. Other cuts are beside what
# they are for, in `runtime.operators`.

RowFilter = Callable[[Rows], Mask]
"""Which of these rows of a slice are in it."""


class OwnedRows:
    """Rows of a run that belong to a task; all rows, unless a subclass restricts them."""

    def misses(self, run: Run) -> bool:
        """Return True if it is certain, without opening the run, that no row belongs to the task."""
        return False

    def contains_run(self, run: Run) -> bool:
        """Return True if it is certain, without opening the run, that all rows belong to the task."""
        return False

    def of(self, rows: SortedRows) -> tuple[int, int]:
        """Return the half-open range of positions."""
        return 0, len(rows)

    def parts(self, rows: SortedRows) -> Sequence[tuple[int, int]]:
        """Return the ranges of positions, ascending and disjoint; there may be several."""
        return [self.of(rows)]

    def row_filter(self, rows: SortedRows) -> RowFilter | None:
        """Return the filter of the range's rows that belong to the task, or None if all do."""
        return None

    def is_responsible_for(self, run: Run, number: int, partition: int, partitions: int) -> bool:
        """Return True if this task answers for all rows of the ``number``-th run.

        Exactly one task does.
        """
        return number % partitions == partition


@dataclass(frozen=True)
class HashRange(OwnedRows):
    """The rows with hashes in [low, high)."""

    low: int
    high: int

    @classmethod
    def of_share(cls, share: TaskPartition) -> HashRange:
        low, high = borders(share.partitions)[share.partition : share.partition + 2]
        return cls(low, high)

    def misses(self, run: Run) -> bool:
        return run.high < self.low or run.low >= self.high

    def contains_run(self, run: Run) -> bool:
        return self.low <= run.low and run.high < self.high

    def of(self, rows: SortedRows) -> tuple[int, int]:
        return slice_of(rows.slots, self.low, self.high)

    def is_responsible_for(self, run: Run, number: int, partition: int, partitions: int) -> bool:
        """Return True if this task answers for all rows of the run; exactly one task does.

        It is one of the tasks that have rows of the run, so that no task fetches the run only for this.
        """
        if partitions == 1:
            return True
        ends = borders(partitions)[1:-1]
        first, last = bisect_right(ends, run.low), bisect_right(ends, run.high)
        return first + number % (last - first + 1) == partition


class Everything(OwnedRows):
    """All rows of every run."""

    def contains_run(self, run: Run) -> bool:
        return True


@dataclass(frozen=True)
class Nothing(OwnedRows):
    """No row of any run."""

    def misses(self, run: Run) -> bool:
        return True

    def of(self, rows: SortedRows) -> tuple[int, int]:
        return 0, 0
