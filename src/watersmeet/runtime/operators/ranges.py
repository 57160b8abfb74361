"""Joins without an equality key: hash ranges by value, and the band by which rows are looked up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.event_time import Side
from watersmeet.kernel.match.overflow import Spans
from watersmeet.kernel.match.pairs import PairCondition, find, has_match
from watersmeet.kernel.slots import BUCKET_MASK, TIME_MASK
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.measure import Measured
from watersmeet.runtime.messages.reports import NodeReport
from watersmeet.runtime.messages.shapes import JoinShape
from watersmeet.runtime.tasks.results import emit_rows
from watersmeet.runtime.tasks.side import NewRows, OwnedRows, RunSlice, SideSlice, TaskPartition
from watersmeet.state.runs.layout import Run

NEEDLES = 64
PAIRS = 16_384
"""At most so many pairs are looked at."""


def estimate_candidates(
    condition: PairCondition, needles: SortedRows, side: Side, rows: SortedRows, indexes: Sequence[Measured]
) -> list[float]:
    """Estimate the candidates of all ``needles`` among ``rows`` for each of ``indexes``.

    ``needles`` are rows of ``side``.
    """
    if len(needles) == 0 or len(rows) == 0:
        return [0.0] * len(indexes)
    chosen = np.unique(np.linspace(0, len(needles) - 1, NEEDLES).astype(np.int64))
    if rows.by_value:
        first, end = np.zeros(len(chosen), np.int64), np.full(len(chosen), len(rows))
    else:
        buckets = needles.slots[chosen] & BUCKET_MASK
        first = np.searchsorted(rows.slots, buckets, side="left")
        end = np.searchsorted(rows.slots, buckets | TIME_MASK, side="right")
    sizes = end - first
    looked_at = np.minimum(sizes, PAIRS // NEEDLES)
    needle = np.repeat(np.arange(len(chosen)), looked_at)
    if len(needle) == 0:
        return [0.0] * len(indexes)
    place = np.arange(len(needle)) - np.repeat(np.cumsum(looked_at) - looked_at, looked_at)
    row = first[needle] + place * sizes[needle] // looked_at[needle]
    weights = sizes[needle] / looked_at[needle] * (len(needles) / len(chosen))
    candidates = []
    for index in indexes:
        low, high = condition.around(needles, side, index, rows.spans[index.name][1], chosen)
        values = rows.ordinals(index, row)
        candidates.append(float(weights[(values >= low[needle]) & (values <= high[needle])].sum()))
    return candidates


# How a join without an equality key is cut into tasks: by ranges of the values that its rows are sorted
# by.
#
# Every run is cut by itself, whatever it is sorted by: a new one into equal parts, an old one so that
# what this tick's new rows of the other side reach is. A task owns its parts of both sides' runs, and
# looks over their edges as far as the bands reach. A pair is put out by the owner of its left row. The
# owner of the right row looks the same pairs up for existence only: whether its row has had a match is
# for it to mark.


@dataclass(frozen=True)
class RangePart(OwnedRows):
    """One task's part of a run.

    Attributes:
        side: The side of the run.
        reaching: Spans of the other side's new rows, by which old runs are split; None: split into equal
            parts.
    """

    condition: PairCondition
    side: Side
    reaching: Spans | None
    partition: int
    partitions: int

    def contains_run(self, run: Run) -> bool:
        return self.partitions == 1

    def of(self, rows: SortedRows) -> tuple[int, int]:
        low, high = 0, len(rows)
        if self.reaching is not None:
            low, high = self.condition.reached(self.side.other, self.reaching, rows)
        if low == high:
            low, high = 0, len(rows)
        cuts = [low + (high - low) * part // self.partitions for part in range(self.partitions + 1)]
        cuts[0], cuts[-1] = 0, len(rows)
        return cuts[self.partition], cuts[self.partition + 1]


@dataclass(frozen=True)
class ReachedRows(OwnedRows):
    """The part of a run that needles of ``side`` with these spans reach; nothing when there are none."""

    condition: PairCondition
    side: Side
    spans: Spans | None

    def misses(self, run: Run) -> bool:
        return self.spans is None

    def of(self, rows: SortedRows) -> tuple[int, int]:
        assert self.spans is not None
        return self.condition.reached(self.side, self.spans, rows)


def merge_spans(spans: Iterable[Spans]) -> Spans | None:
    """Return the smallest spans that contain all given spans, or None if there are none."""
    union: dict[str, tuple[int, int]] = {}
    for span in spans:
        for name, (low, high) in span.items():
            before = union.get(name, (low, high))
            union[name] = (min(low, before[0]), max(high, before[1]))
    return union or None


def build_owned_slices(shape: JoinShape, share: TaskPartition) -> dict[Side, SideSlice]:
    """Build the slices of both sides that a task owns.

    Runs that are not sorted by value are divided into equal parts.
    """
    slices = {}
    for side in Side:
        arrived = share.work.side(side.other).new_runs if shape.left.layout.by_value else []
        reaching = merge_spans(run.spans for run in arrived)
        old, new = (
            RangePart(shape.condition, side, spans, share.partition, share.partitions)
            for spans in (reaching, None)
        )
        slices[side] = SideSlice(shape.side(side), share.work.side(side), share.store, old, new)
    return slices


def build_reach_slices(
    shape: JoinShape, share: TaskPartition, own: Mapping[Side, SideSlice]
) -> dict[Side, SideSlice]:
    """Build, per side, the slice of rows that may match the task's own rows of the other side."""
    slices = {}
    for side in Side:
        other = own[side.other]
        new = [] if other.new is None else [other.new.rows.spans]
        of_old = ReachedRows(shape.condition, side.other, merge_spans(new))
        of_new = ReachedRows(
            shape.condition, side.other, merge_spans([*new, *(piece.rows.spans for piece in other.old)])
        )
        slices[side] = SideSlice(shape.side(side), share.work.side(side), share.store, of_old, of_new)
    return slices


def matches_by_range(
    shape: JoinShape, slices: Mapping[Side, SideSlice], reach: Mapping[Side, SideSlice], report: NodeReport
) -> Iterator[pa.RecordBatch]:
    """Emit the pairs whose left row the task owns, and mark all own rows that have a match."""
    left, right = slices[Side.LEFT], slices[Side.RIGHT]
    around = reach[Side.RIGHT]
    if left.new is not None:
        needles = left.new.rows
        matches = [(p.rows, p.partners(shape.condition, needles, Side.LEFT)) for p in around.old]
        if around.new is not None:
            new = around.new
            matches.append((new.rows, find(shape.condition, needles, Side.LEFT, new.looked_up)))
        for rows, pairs in matches:
            for needle, row in pairs:
                left.new.matched[needle] = True
                report.matches += len(needle)
                yield from emit_rows(shape, needles.batch, needle, rows.batch, row)
    if around.new is not None:
        for piece in left.old:
            for needle, row in piece.partners(shape.condition, around.new.rows, Side.RIGHT):
                piece.mark_matched(row)
                report.matches += len(needle)
                yield from emit_rows(shape, piece.rows.batch, row, around.new.rows.batch, needle)
    _mark_right(shape, right, reach[Side.LEFT])


def _mark_right(shape: JoinShape, right: SideSlice, left: SideSlice) -> None:
    if right.new is not None:
        for piece in left.old:
            right.new.matched |= piece.has_match(shape.condition, right.new.rows, Side.RIGHT)
        if left.new is not None:
            matched = has_match(shape.condition, right.new.rows, Side.RIGHT, left.new.looked_up)
            right.new.matched |= matched
    if left.new is not None:
        for piece in right.old:
            piece.mark_matched(piece.rows_with(shape.condition, left.new.rows, Side.LEFT))


# By which of its bands a join looks rows up: whichever leaves the fewest candidates.
#
# Rows of a run are sorted by one index (`RunLayout.indexes`). Every task estimates how many candidates
# each index would leave of this tick's look-ups (`choose_orders`). Where another one than a run's own
# would save more than sorting costs, the task sorts that run's index column for itself, for this tick;
# the driver sums the estimates up (`next_index`) and has the next runs sorted by the best: those of new
# rows, and merged ones. So runs of one arrangement may be sorted differently, and every look-up goes by
# what its run says.

MIN_ESTIMATED_PAIRS = 4_096
"""Of so few pairs of needles and rows no candidates are estimated."""
MAX_ESTIMATED_RUNS = 8
"""Of so many runs of a side, the largest, candidates are estimated."""
SORTING = 4
"""Sorting a row costs as much as so many candidates."""


def choose_orders(
    shape: JoinShape,
    side: Side,
    looked_up: SideSlice,
    needles: SortedRows | None,
    share: TaskPartition,
    *,
    new_too: bool,
) -> None:
    """Decide by what the rows of one side's slices are looked up with these needles of the other side.

    Args:
        new_too: new rows are looked up, too, and not needles alone.

    Raises:
        ManyMatches: more rows would be sorted anew than the share may look at.
    """
    report = share.report.side(side)
    indexes = looked_up.task.layout.indexes
    if needles is None or len(indexes) < 2:
        return
    pieces: list[RunSlice | NewRows] = [*looked_up.old]
    if looked_up.new is not None:
        pieces.append(looked_up.new)
    pieces = [piece for piece in pieces if len(piece.rows) * len(needles) > MIN_ESTIMATED_PAIRS]
    for piece in sorted(pieces, key=lambda p: -len(p.rows))[:MAX_ESTIMATED_RUNS]:
        estimates = estimate_candidates(shape.condition, needles, side.other, piece.rows, indexes)
        for index, candidates in zip(indexes, estimates, strict=True):
            report.candidates[index.name] = report.candidates.get(index.name, 0.0) + candidates
        own = next(c for index, c in zip(indexes, estimates, strict=True) if index == piece.rows.index)
        best = min(range(len(indexes)), key=lambda n: estimates[n])
        if own - estimates[best] > SORTING * len(piece.rows) and (new_too or piece is not looked_up.new):
            share.count_candidates(len(piece.rows))
            piece.looked_up = piece.rows.sorted_by(indexes[best])
