"""One side of a node within one task: the rows of its runs that the task owns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.conditions import ExactBand, Key, RealBand
from watersmeet.event_time import NEVER, Mask, Side, Watermark, are_below
from watersmeet.kernel.asof import CAME
from watersmeet.kernel.batches import size
from watersmeet.kernel.gather import as_one_batch, join_batches, reorder_rows, take_column
from watersmeet.kernel.match.pairs import (
    PairCondition,
    Search,
    accept_pairs,
    distinct,
    has_match,
    may_pair,
    rows_matched,
)
from watersmeet.kernel.match.probe import Rows, expand
from watersmeet.kernel.slots import Slots, borders, hash_columns, order_of, slice_of, sorted_unique
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.measure import REAL
from watersmeet.runtime.messages.reports import NodeReport
from watersmeet.runtime.messages.shapes import SideShape
from watersmeet.runtime.messages.work import NodeWork, SideWork
from watersmeet.runtime.tasks.feed import FeedWriter
from watersmeet.runtime.tasks.memory import max_run_bytes
from watersmeet.state.manifest import LiveRun
from watersmeet.state.marks import (
    MAX_LISTED_SHARE,
    MarkArray,
    MarkKind,
    MarkWriter,
    marks_at,
    places_among,
    read_marks,
    sum_count_changes,
)
from watersmeet.state.runs.layout import Run, RunLayout
from watersmeet.state.runs.reader import OpenRun
from watersmeet.state.runs.writer import sort_rows
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
        """True if the task gives up when there is much to do."""
        return self.most_matches is not None

    def matched(self, rows: int) -> None:
        """Count matches.

        Raises:
            ManyMatches: There are too many.
        """
        self.report.matches += rows
        if self.most_matches is not None and self.report.matches > self.most_matches:
            raise ManyMatches

    def count_candidates(self, rows: int) -> None:
        """Count candidates, or released rows, before any of them is processed.

        Raises:
            ManyMatches: They are too many, alone or with those before them.
        """
        self.spent.seen += rows
        most = self.most_matches
        if most is not None and (rows > most * CANDIDATES or self.spent.seen > most * TOTAL_CANDIDATES):
            raise ManyMatches

    def holds(self, nbytes: int) -> None:
        """Count the bytes of rows before they are put together.

        Raises:
            ManyMatches: They are too many.
        """
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


# One side of a join within one task: the slice of every live run that the task's hash range owns, this
# tick's new rows, and the marks of both.

MIN_DENSE_MARKS = 1_000
"""So many rows are told apart by sorting in no time, however few the slice has."""


class RunSlice:
    """Rows [start, stop) of an open run; they and their marks are read when first asked for.

    Rows with a time below ``hidden_below`` are not there for look-ups, nor, with ``hides_gone``, those that
    left before this tick by mark. ``looked_up``: the same rows by the
    index that look-ups use. ``row_filter``: which of the rows are the slice's at all, where not all are
    (None).
    """

    def __init__(
        self,
        store: Store,
        live: LiveRun,
        run: OpenRun,
        start: int,
        stop: int,
        hidden_below: Mapping[str, Watermark],
        cut: OwnedRows,
        *,
        hides_gone: bool = False,
    ) -> None:
        self._store = store
        self._hidden_below = hidden_below
        self._hides_gone = hides_gone and "gone" in live.marks
        self.live = live
        self.run = run
        self.name = run.run.name
        self.start = start
        self.stop = stop
        self._cut = cut
        self._marks: dict[MarkKind, MarkArray] = {}
        self._marked: dict[MarkKind, list[Rows]] = {}
        self._in_order: set[MarkKind] = set()
        self._added: list[tuple[Rows, npt.NDArray[np.int64]]] = []
        self.touched: set[MarkKind] = set()

    @cached_property
    def rows(self) -> SortedRows:
        return self.run.sorted_rows.part(self.start, self.stop)

    @cached_property
    def looked_up(self) -> SortedRows:
        return self.rows

    @cached_property
    def row_filter(self) -> RowFilter | None:
        return self._cut.row_filter(self.rows)

    def batch(self, layout: RunLayout | None = None) -> pa.RecordBatch:
        """Return the slice's rows for a merge with rows of other runs.

        The values of `kernel.asof.CAME` include the run's offset.

        Args:
            layout: layout with the columns to read, if they differ from the side's own.
        """
        batch, offset = as_one_batch(self.rows.batch), self.run.run.offset
        if layout is not None and layout is not self.run.layout:
            opened = OpenRun.open(self._store, self.run.run, layout)
            batch = as_one_batch(opened.sorted_rows.part(self.start, self.stop).batch)
        if not offset:
            return batch
        came = pa.array(batch.column(CAME).to_numpy(zero_copy_only=True) + np.int64(offset))
        return batch.set_column(batch.schema.get_field_index(CAME), CAME, came)

    def arrival(self) -> Rows | None:
        """Return the arrival positions of the rows of a run of this tick; see `write_run`."""
        arrival = self.run.arrival
        return None if arrival is None else arrival[self.start : self.stop].astype(np.int64)

    def marks(self, kind: MarkKind) -> MarkArray:
        """Return the marks of all rows of the slice, to read or change.

        Callers that change them must add the kind to ``touched``. Cost: all rows; `read_marks` and `mark`
        cost only the chosen rows.
        """
        if kind not in self._marks:
            segments = self.live.marks.get(kind, ())
            marks = read_marks(self._store, kind, segments, self.start, self.stop)
            for rows in self._marked.pop(kind, ()):
                marks[rows] = True
            if kind == "count":
                for rows, changes in self._added:
                    np.add.at(marks, rows, changes.astype(np.int32))
                self._added.clear()
            self._marks[kind] = marks
        return self._marks[kind]

    def read_marks(self, kind: MarkKind, rows: Rows) -> MarkArray:
        """Return the marks of the chosen rows of the slice; the result is read-only."""
        if kind in self._marks or self._are_many(len(rows)):
            return self.marks(kind)[rows]
        marks = marks_at(self._store, kind, self.live.marks.get(kind, ()), rows + self.start)
        if kind in self._marked:
            marks |= places_among(rows, self._list_marked(kind)) >= 0
        if kind == "count" and self._added:
            changed, by = self._changes()
            places = places_among(rows, changed)
            marks[places >= 0] += by[places[places >= 0]].astype(np.int32)
        return marks

    def read_previous_marks(self, kind: MarkKind, rows: Rows) -> MarkArray:
        """Return the marks of the chosen rows of the slice before this tick."""
        return marks_at(self._store, kind, self.live.marks.get(kind, ()), rows + self.start)

    def mark(self, kind: MarkKind, rows: Rows) -> None:
        """Set the bool marks of these rows of the slice.

        Cost: these rows. If they are many, they are stored as an array, which needs no sort.
        """
        if not len(rows):
            return
        self.touched.add(kind)
        held = sum(len(rows_marked) for rows_marked in self._marked.get(kind, ()))
        if kind in self._marks or self._are_many(held + len(rows)):
            self.marks(kind)[rows] = True
        else:
            self._marked.setdefault(kind, []).append(rows)

    def add(self, rows: Rows, change: int) -> None:
        """Add to the counts of these rows of the slice, as often as they are named. Cost: as `mark`."""
        if not len(rows):
            return
        self.touched.add("count")
        held = sum(len(rows_marked) for rows_marked, _ in self._added)
        if "count" in self._marks or self._are_many(held + len(rows)):
            np.add.at(self.marks("count"), rows, change)
        else:
            self._added.append((rows, np.full(len(rows), change)))

    def list_newly_marked(self, kind: MarkKind) -> Rows:
        """List the rows of the slice that got a bool mark in this tick, ascending."""
        if kind not in self.touched:
            return np.zeros(0, dtype=np.int64)
        rows = np.flatnonzero(self._marks[kind]) if kind in self._marks else self._list_marked(kind)
        return rows[~self.read_previous_marks(kind, rows)]

    def counts_changed(self) -> tuple[Rows, MarkArray, MarkArray]:
        """Return the rows of the slice whose count changed in this tick, ascending.

        Returns:
            The rows, their old counts and their new counts.
        """
        if "count" in self._marks:
            segments = self.live.marks.get("count", ())
            old, new = read_marks(self._store, "count", segments, self.start, self.stop), self._marks["count"]
            rows = np.flatnonzero(old != new)
            return rows, old[rows], new[rows]
        rows, by = self._changes()
        rows, by = rows[by != 0], by[by != 0]
        old = self.read_previous_marks("count", rows)
        return rows, old, old + by

    def _changes(self) -> tuple[Rows, npt.NDArray[np.int64]]:
        """Return the changes of counts in this tick, per row, ascending."""
        if not self._added:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        if len(self._added) > 1 or "count" not in self._in_order:
            rows, changes = zip(*self._added, strict=True)
            self._added[:] = [sum_count_changes(np.concatenate(rows), np.concatenate(changes))]
            self._in_order.add("count")
        return self._added[0]

    def _are_many(self, rows: int) -> bool:
        """Return True if an array of all marks of the slice costs less than sorting this many rows."""
        return rows > max(MIN_DENSE_MARKS, MAX_LISTED_SHARE * len(self.rows))

    def keep_marks(self, marks: MarkWriter) -> None:
        """Give what was touched to be written."""
        for kind in sorted(self.touched):
            if kind in self._marks:
                marks.add(self.name, kind, self.start, self._marks[kind])
                continue
            segments = self.live.marks.get(kind, ())
            if kind == "count":
                rows, changes = self._changes()
                rows, changes = rows[changes != 0] + self.start, changes[changes != 0]
                marks.add_rows(self._store, self.name, kind, segments, self.start, self.stop, rows, changes)
                continue
            rows = self._list_marked(kind) + self.start
            rows = rows[~marks_at(self._store, kind, segments, rows)]
            marks.add_rows(self._store, self.name, kind, segments, self.start, self.stop, rows)

    def _list_marked(self, kind: MarkKind) -> Rows:
        """List the rows marked in this tick, ascending, each once; some may have an older mark."""
        marked = self._marked[kind]
        if len(marked) > 1 or kind not in self._in_order:
            marked[:] = [sorted_unique(marked[0] if len(marked) == 1 else np.concatenate(marked))]
            self._in_order.add(kind)
        return marked[0]

    def may_match(self, condition: PairCondition, needles: SortedRows, side: Side) -> bool:
        """Return True if needles (rows of ``side``) may have partners, by the run's metadata."""
        return may_pair(condition, needles, side, self.live.run.spans)

    def search(self, condition: PairCondition, needles: SortedRows, side: Side) -> Search | None:
        """Find where needles (rows of ``side``) have candidates in the slice.

        See `kernel.match.pairs.Search`; the result is None if there are none.
        """
        if not self.may_match(condition, needles, side):
            return None
        alive = self.alive if self._hides else None
        return Search.of(condition, needles, side, self.looked_up, alive)

    @property
    def _hides(self) -> bool:
        """True if look-ups may have to skip some rows."""
        return bool(self._hidden_below) or self._hides_gone

    def alive(self, rows: Rows) -> Mask:
        """Return the mask of these rows that look-ups see."""
        keep = np.ones(len(rows), dtype=np.bool_)
        for column, limit in self._hidden_below.items():
            keep &= ~are_below(self.rows.times(column)[rows], limit)
        if self._hides_gone:
            keep &= ~self.read_marks("gone", rows)
        return keep

    def partners(
        self, condition: PairCondition, needles: SortedRows, side: Side
    ) -> Iterator[tuple[Rows, Rows]]:
        """Yield pairs of needles (rows of ``side``) and rows; see `kernel.match.pairs.find`."""
        search = self.search(condition, needles, side)
        if search is not None:
            yield from search.pairs()

    def rows_with(self, condition: PairCondition, needles: SortedRows, side: Side) -> Rows:
        """Return rows of the slice with a partner, ascending; see `kernel.match.pairs.rows_matched`."""
        if not self.may_match(condition, needles, side):
            return np.zeros(0, dtype=np.int64)
        if not self._hides:
            return rows_matched(condition, needles, side, self.looked_up)
        return distinct((row for _, row in self.partners(condition, needles, side)), len(self.rows))

    def has_match(self, condition: PairCondition, needles: SortedRows, side: Side) -> Mask:
        """Return the mask of needles with a partner; see `kernel.match.pairs.has_match`."""
        hits = np.zeros(len(needles), dtype=np.bool_)
        if not self.may_match(condition, needles, side):
            return hits
        if not self._hides:
            return has_match(condition, needles, side, self.looked_up)
        for needle, _ in self.partners(condition, needles, side):
            hits[needle] = True
        return hits

    def own(self, rows: Rows) -> Rows:
        """Convert row numbers of the run to those of the slice, and drop rows outside it."""
        if len(rows):
            rows = rows[(rows >= self.start) & (rows < self.stop)] - self.start
        return rows if not len(rows) or self.row_filter is None else rows[self.row_filter(rows)]

    def chosen(self) -> Rows | None:
        """Return the rows of the slice, or None if it has all rows between its ends.

        Cost: all rows between its ends.
        """
        return None if self.row_filter is None else np.flatnonzero(self.row_filter(np.arange(len(self.rows))))

    def is_evicted(self, rows: Rows) -> Mask:
        """Return the mask of rows that left before their release, or are not in the slice."""
        gone: Mask = self.read_marks("gone", rows)
        return gone if self.row_filter is None else gone | ~self.row_filter(rows)

    def mark_matched(self, rows: Rows) -> None:
        """Mark these rows of the slice as matched."""
        self.mark("matched", rows)


@dataclass
class NewRows:
    """This tick's rows of the slice, merged from all new runs into one order.

    ``origin``: per row the number of its new run; ``position``: its row number in the slice of that run.
    ``matched``: bool[n], filled in while matching. ``looked_up``: see `RunSlice`. ``arrival``: int64[n], by
    which the rows are in the order in which they came, each number once; None: not known.
    """

    rows: SortedRows
    origin: npt.NDArray[np.int64]
    position: Rows
    matched: npt.NDArray[np.bool_]
    arrival: Rows | None = None
    looked_up: SortedRows = field(init=False)

    def __post_init__(self) -> None:
        self.looked_up = self.rows

    def mark_matched(self, rows: Rows) -> None:
        """Mark these rows as matched."""
        self.matched[rows] = True

    def share(self, partition: int, partitions: int) -> NewRows:
        """Return part number ``partition`` of ``partitions`` equal parts of the rows, in order."""
        low, high = (len(self.rows) * part // partitions for part in (partition, partition + 1))
        arrival = None if self.arrival is None else self.arrival[low:high]
        return NewRows(
            self.rows.part(low, high),
            self.origin[low:high],
            self.position[low:high],
            self.matched[low:high],
            arrival,
        )

    def order_by_arrival(self, rows: Rows) -> Rows:
        """Sort these distinct rows in arrival order, if it is known."""
        return rows if self.arrival is None else rows[order_of(self.arrival[rows])]


class SideSlice:
    """Rows of one side that a task owns; see the module.

    Attributes:
        old: Slices of the live runs with rows here; a run may have several (`OwnedRows.parts`).
        come: The runs of this tick.
        new_runs: Slices of ``come``.

    Args:
        of_old, of_new: Which rows of the live runs, and of this tick's runs, the task owns.
    """

    def __init__(
        self, task: SideShape, work: SideWork, store: Store, of_old: OwnedRows, of_new: OwnedRows
    ) -> None:
        self.task = task
        self.work = work
        self.store = store
        self.cut = of_old
        hidden: dict[str, Watermark] = {}
        if task.hides_released:
            hidden = {c: limit for c, limit in work.old_limits.items() if limit > NEVER}
        self.old = list(self._slices(work.runs, of_old, hidden))
        # a row is matched in the tick in which it arrives, though it be below the limits
        self.come = [LiveRun(run=run) for run in work.new_runs]
        self.new_runs = list(self._slices(self.come, of_new, {}))
        self._released: dict[str, Rows] = {}

    @cached_property
    def new(self) -> NewRows | None:
        """This tick's rows, merged."""
        return self._merge_new()

    def near(self, condition: PairCondition, needles: SortedRows, side: Side) -> list[RunSlice]:
        """Return the slices of live runs that may have partners of needles (rows of ``side``)."""
        return [piece for piece in self.old if piece.may_match(condition, needles, side)]

    def _slices(
        self, runs: list[LiveRun], cut: OwnedRows, hidden: Mapping[str, Watermark]
    ) -> Iterator[RunSlice]:
        own = [live for live in runs if not cut.misses(live.run)]
        runs_opened = OpenRun.open_all(self.store, [live.run for live in own], self.task.layout)
        for live, opened in zip(own, runs_opened, strict=True):
            everything = [(0, live.run.rows)]
            hides_gone = self.task.hides_gone
            for start, stop in everything if cut.contains_run(live.run) else cut.parts(opened.sorted_rows):
                if start < stop:
                    yield RunSlice(self.store, live, opened, start, stop, hidden, cut, hides_gone=hides_gone)

    def _merge_new(self) -> NewRows | None:
        if not self.new_runs:
            return None
        if any(piece.row_filter is not None for piece in self.new_runs):
            return self._merge_chosen()
        if len(self.new_runs) == 1:
            rows, batch = self.new_runs[0].rows, self.new_runs[0].batch()
            if batch is not rows.batch:
                rows = replace(rows, batch=batch, _columns={}, _raw={}, _ordinals={}, _around={})
            count = len(rows)
            return NewRows(
                rows,
                np.zeros(count, dtype=np.int64),
                np.arange(count),
                np.zeros(count, dtype=np.bool_),
                self.new_runs[0].arrival(),
            )
        batch = join_batches([piece.batch() for piece in self.new_runs], max_run_bytes(self.task.memory))
        slots = np.concatenate([piece.rows.slots for piece in self.new_runs])
        rows, order = sort_rows(batch, slots, self.task.layout, self.work.index)
        sizes = [len(piece.rows) for piece in self.new_runs]
        origin = np.repeat(np.arange(len(sizes)), sizes)[order]
        position = np.concatenate([np.arange(size) for size in sizes])[order]
        return NewRows(rows, origin, position, np.zeros(len(rows), dtype=np.bool_), self._arrival(order))

    def _merge_chosen(self) -> NewRows | None:
        """Merge the new runs if the slice has only some of their rows; arrival order is lost."""
        chosen = [
            np.arange(len(piece.rows)) if rows is None else rows
            for piece, rows in ((piece, piece.chosen()) for piece in self.new_runs)
        ]
        if not any(len(rows) for rows in chosen):
            return None
        starts = np.cumsum([0, *(len(piece.rows) for piece in self.new_runs)])
        places = np.concatenate([start + rows for start, rows in zip(starts, chosen, strict=False)])
        batches = [piece.batch() for piece in self.new_runs]
        batch = reorder_rows(join_batches(batches, max_run_bytes(self.task.memory)), places)
        slots = np.concatenate(
            [piece.rows.slots[rows] for piece, rows in zip(self.new_runs, chosen, strict=True)]
        )
        rows, order = sort_rows(batch, slots, self.task.layout, self.work.index)
        origin = np.repeat(np.arange(len(chosen)), [len(own) for own in chosen])[order]
        position = np.concatenate(chosen)[order]
        return NewRows(rows, origin, position, np.zeros(len(rows), dtype=np.bool_))

    def _arrival(self, order: Rows) -> Rows | None:
        """Return the arrival positions of this tick's rows over all runs.

        Rows of a run arrived after those of the runs before it. The result is None if a run has no order.
        """
        parts, start = [], 0
        for piece in self.new_runs:
            arrival = piece.arrival()
            if arrival is None:
                return None
            parts.append(arrival + start)
            start += piece.run.run.rows
        return np.concatenate(parts)[order]

    def list_new_matches(self) -> Iterator[tuple[RunSlice, Rows]]:
        """Yield the matches of the merged new rows as rows of the new runs that they came from."""
        if self.new is None:
            return
        hits = np.flatnonzero(self.new.matched)
        if not len(hits):
            return
        for number, piece in enumerate(self.new_runs):
            rows = self.new.position[hits[self.new.origin[hits] == number]]
            if len(rows):
                yield piece, rows

    def released(self, piece: RunSlice, *, is_new: bool) -> Rows:
        """Return the rows of the slice that this tick's limits release, numbered within the slice."""
        if piece.name not in self._released:
            before: dict[str, Watermark] = {} if is_new else self.work.old_limits
            self._released[piece.name] = piece.run.newly_released(before, self.work.new_limits)
        return piece.own(self._released[piece.name])


# Which stored rows are equal to given ones, in every stored column, NULLs equal.
#
# They are looked up as by a join. Where many rows share hash and value (one key for all of them), each
# given row would be compared with each of these; there the rows are told apart by the hash of all that
# they hold.

MAX_CANDIDATES_PER_ROW = 16
"""So many candidates for each row that there is of them cost more than its hash."""
FREE_CANDIDATES = 100_000
"""So few candidates cost nothing."""


def find_equal_rows(side: SideShape, needles: SortedRows, rows: SortedRows) -> Iterator[tuple[Rows, Rows]]:
    """Yield pairs of needles (rows of the side, too) and equal rows.

    See `kernel.match.pairs.find`. Cost: that of `find`, or that of all candidate rows once.
    """
    equal = _build_equality(side)
    search = Search.of(equal, needles, Side.LEFT, rows)
    if search is None:
        return
    if search.candidates <= FREE_CANDIDATES + MAX_CANDIDATES_PER_ROW * (len(needles) + len(rows)):
        yield from search.pairs()
        return
    named = np.zeros(len(rows) + 1, dtype=np.int64)
    np.add.at(named, search.first, 1)
    np.add.at(named, search.end, -1)
    candidates = np.flatnonzero(np.cumsum(named[:-1]) > 0)
    names = list_hashed_columns(side)
    hashes = hash_content(rows, candidates, names)
    order = order_of(hashes)
    hashes, candidates = hashes[order], candidates[order]
    wanted = hash_content(needles, np.arange(len(needles)), names)
    first = np.searchsorted(hashes, wanted, side="left")
    for needle, place in expand(first, np.searchsorted(hashes, wanted, side="right")):
        row = candidates[place]
        if rows.index is not None:
            same = needles.ordinals(rows.index, needle) == rows.ordinals(rows.index, row)
            needle, row = needle[same], row[same]
        keep = accept_pairs(equal, needles, Side.LEFT, needle, rows, row)
        if keep is not None:
            needle, row = needle[keep], row[keep]
        if len(needle):
            yield needle, row


def list_hashed_columns(side: SideShape) -> tuple[str, ...]:
    """List the columns whose hash distinguishes rows."""
    return tuple(field.name for field in side.stored_schema if not pa.types.is_nested(field.type))


def hash_content(rows: SortedRows, chosen: Rows, names: tuple[str, ...]) -> Slots:
    """Hashes of what the chosen rows hold in the columns ``names``: equal ones for equal rows. int64."""
    return hash_columns([take_column(rows.batch, name, chosen) for name in names], len(chosen))


def _build_equality(side: SideShape) -> PairCondition:
    """Build the condition: rows are equal in every stored column; NULLs are equal."""
    exact = [index for index in side.layout.indexes if index.measure != REAL]
    decided = {index.column for index in exact if index.measure.is_injective}
    return PairCondition(
        keys=tuple(
            Key(name, name, null_safe=True) for name in side.stored_schema.names if name not in decided
        ),
        bands=tuple(ExactBand(index, index, 0, 0) for index in exact),
        comparisons=(),
        rechecks=(),
        slack=0,
        residual=None,
        residual_columns=(),
        reals=tuple(
            RealBand(index, index, 0.0, 0.0, 0.0, 0.0, 2.0**1022, (), None)
            for index in side.layout.indexes
            if index.measure == REAL
        ),
    )
