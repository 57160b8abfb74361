"""Distribute the rows of a join over tasks: by hash, by hot key, by ranges.

A join over changes sums equal rows, and a delete removes one of them, so equal rows must reach one task.
Rows are therefore partitioned by content, with the same borders in every run. Without an equality key: by
ranges of the values that rows are sorted by (`BorderRange`), with borders estimated from the tick's work; a
value with a large part of the work is split further, by the hash of the rows. With the hint BROADCAST: by
that hash alone (`ContentRange`), for any keys and values.

A task looks its rows up in `near`: all rows of the other side that they may match, deletes applied. The
owner of one side's row (``putting``) emits the pair. The owner of the other side's row counts its partners
by the same lookup, if an operator needs the count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from watersmeet.event_time import MAX_TIME, MIN_TIME, Mask, Side
from watersmeet.kernel.match.overflow import Spans
from watersmeet.kernel.match.pairs import PairCondition
from watersmeet.kernel.match.probe import Rows, ranges
from watersmeet.kernel.slots import TIME_BITS, slice_of
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.measure import Measured
from watersmeet.runtime.messages.reports import SplitKey
from watersmeet.runtime.messages.shapes import JoinShape
from watersmeet.runtime.messages.work import NodeWork, SideWork
from watersmeet.runtime.operators.broadcast import WholeSide
from watersmeet.runtime.operators.ranges import ReachedRows, merge_spans
from watersmeet.runtime.tasks.results import key_as_written
from watersmeet.runtime.tasks.side import (
    Everything,
    HashRange,
    OwnedRows,
    RowFilter,
    SideSlice,
    TaskPartition,
    hash_content,
    list_hashed_columns,
)
from watersmeet.spec.model import JoinKind
from watersmeet.state.runs.heavy_hitters import HeavyKey
from watersmeet.state.runs.layout import Run
from watersmeet.state.runs.reader import OpenRun

# Which keys of a join are hot in a tick: those with too much of its work to be one task's.
#
# Runs tell their heaviest keys (`state.runs.heavy_hitters`), the tick's new ones too. From them alone,
# without a
# look at any row, a key's work is estimated: what it costs to look its new rows up, the pairs that these
# may come to, and merging. Of keys that no run tells of only the rows count, so that a key's share is
# rather taken too great: to split one that needs it not costs little. All tasks of a tick, and of its
# repeat, come to the same.
#
# Keys are told apart by 32 bits of their hashes, as everywhere in a run (a *bucket*).

MIN_SPLIT_SHARE = 1 / 2
"""A key with more of the work than this share of what a task is to do is split."""
ROW_COST = 8.0
"""Looking a row up, or merging it, costs about as much as so many pairs."""
MIN_SPLIT_WORK = 50_000.0
"""A key is split where each task's part of it is more than this, in pairs: less costs more than it helps."""


@dataclass(frozen=True)
class HotKey:
    """A key whose rows are split over all tasks of a tick.

    Attributes:
        whole: The side of whose rows of the bucket every task reads all; the other side's are split.
        share: Approximate share of the tick's work.
        key: The key as JSON, in the form of ``side``.
    """

    bucket: int
    whole: Side
    share: float
    key: str
    side: Side

    def told(self, shape: JoinShape) -> SplitKey:
        """Return the key in the form that the report shows to users."""
        side = shape.side(self.side)
        return SplitKey(side=side.name, key=key_as_written(side, self.key), share=round(self.share, 3))


@dataclass(frozen=True)
class _Rows:
    """Row counts of one side per bucket and in total: new, retained and merged in the tick."""

    new: dict[int, int]
    old: dict[int, int]
    merged: dict[int, int]
    all_new: int
    all_merged: int
    keys: dict[int, str]

    @classmethod
    def of(cls, work: SideWork) -> _Rows:
        merged_away = work.list_merged_runs()
        merged = [live for live in work.runs if live.run.name in merged_away]
        told: list[HeavyKey] = [key for run in work.new_runs for key in run.heavy]
        kept = [key for live in work.runs for key in live.heavy]
        return cls(
            _sum_rows_by_bucket(told),
            _sum_rows_by_bucket(kept),
            _sum_rows_by_bucket(key for live in merged for key in live.heavy),
            sum(run.rows for run in work.new_runs),
            sum(live.stored for live in merged),
            {key.bucket: key.key for key in (*kept, *told)},
        )


def _sum_rows_by_bucket(keys: Iterable[HeavyKey]) -> dict[int, int]:
    rows: dict[int, int] = {}
    for key in keys:
        rows[key.bucket] = rows.get(key.bucket, 0) + key.rows
    return rows


def hot_keys(shape: JoinShape, work: NodeWork, partitions: int) -> tuple[HotKey, ...]:
    """Return the keys that ``partitions`` tasks split, by ascending bucket."""
    if partitions == 1 or not can_split_keys(shape) or any(side.taken_over for side in work.sides):
        return ()
    of = {side: _Rows.of(work.side(side)) for side in Side}
    costs: dict[int, float] = {}
    pairs = 0.0
    for bucket, met in _estimate_pairs_by_bucket(of).items():
        new = sum(rows.new.get(bucket, 0) for rows in of.values())
        merged = sum(rows.merged.get(bucket, 0) for rows in of.values())
        pairs += met
        costs[bucket] = ROW_COST * (new + merged) + met
    total = pairs + ROW_COST * sum(rows.all_new + rows.all_merged for rows in of.values())
    least = max(total * MIN_SPLIT_SHARE / partitions, MIN_SPLIT_WORK * partitions)
    return tuple(
        _build_hot_key(shape, of, bucket, costs[bucket] / total)
        for bucket in sorted(costs)
        if costs[bucket] > least
    )


def estimate_heavy_pairs(work: NodeWork) -> float:
    """Estimate the pairs of rows whose keys the runs report as heavy hitters.

    The result is an upper bound for these keys; other keys have more pairs.
    """
    return float(sum(_estimate_pairs_by_bucket({side: _Rows.of(work.side(side)) for side in Side}).values()))


def _estimate_pairs_by_bucket(of: Mapping[Side, _Rows]) -> dict[int, int]:
    """Estimate, per bucket with new or merged rows, how many pairs the new rows may produce."""
    left, right = of[Side.LEFT], of[Side.RIGHT]
    pairs: dict[int, int] = {}
    for bucket in {bucket for rows in of.values() for bucket in (*rows.new, *rows.merged)}:
        met = left.new.get(bucket, 0) * (right.old.get(bucket, 0) + right.new.get(bucket, 0))
        pairs[bucket] = met + right.new.get(bucket, 0) * left.old.get(bucket, 0)
    return pairs


def can_split_keys(shape: JoinShape) -> bool:
    """Return True if the join may split hot keys.

    It may not in changelog mode, in ASOF joins, and where Spark evaluates the condition. A join without
    a key, or with the broadcast hint, is distributed without splitting.
    """
    return shape.goes_by_keys and shape.broadcast is None and shape.reach is None and not shape.changelog


def _build_hot_key(shape: JoinShape, of: dict[Side, _Rows], bucket: int, share: float) -> HotKey:
    def size(side: Side) -> tuple[int, int]:
        return of[side].new.get(bucket, 0), of[side].old.get(bucket, 0)

    less = Side.LEFT if size(Side.LEFT) < size(Side.RIGHT) else Side.RIGHT
    # of a SEMI join one task has to know that a left row has its first match
    whole = Side.RIGHT if shape.kind is JoinKind.SEMI else less
    told = less.other if bucket in of[less.other].keys else less
    return HotKey(bucket, whole, share, of[told].keys[bucket], told)


# How the rows of a join with hot keys are cut: every task has an equal range of hashes, and of each hot
# key, wherever its hash is, an equal part of every run.
#
# What a task owns it releases, pads, and merges. It looks its own rows up in all rows of the other side
# that they may match: of a hot key one side is cut, and of the other every task looks through all rows
# (`HotKey.whole`). So each pair is found once, by the owner of its row of the side that is cut. What the
# other side's owners have to know of matches that other tasks found is as with the hint BROADCAST
# (`runtime.operators.broadcast`).


@dataclass(frozen=True)
class SplitRows(OwnedRows):
    """Rows of ``side`` that one task owns when hot keys are split.

    These are the rows of the ``own`` hashes outside the ``hot`` buckets (ascending), all rows of the
    ``whole`` buckets, and of each other hot bucket part number ``partition`` of ``partitions`` parts.

    ``reaching``: spans of the other side's new rows. The rows of a bucket that they reach are divided
    into equal parts; the rows before and after these belong to the first and the last part. None
    divides the whole bucket.
    """

    condition: PairCondition
    side: Side
    own: HashRange
    hot: tuple[int, ...]
    whole: frozenset[int]
    reaching: Spans | None
    partition: int
    partitions: int

    def misses(self, run: Run) -> bool:
        low, high = run.low >> TIME_BITS, run.high >> TIME_BITS
        return self.own.misses(run) and not any(low <= bucket <= high for bucket in self.hot)

    def of(self, rows: SortedRows) -> tuple[int, int]:
        parts = self.parts(rows)
        return (parts[0][0], parts[-1][1]) if parts else (0, 0)

    def parts(self, rows: SortedRows) -> Sequence[tuple[int, int]]:
        low, high = self.own.of(rows)
        parts: list[tuple[int, int]] = []

        def add(start: int, stop: int) -> None:
            if start >= stop:
                return
            if parts and parts[-1][1] == start:
                start = parts.pop()[0]
            parts.append((start, stop))

        done = low
        for bucket in self.hot:
            first, end = _find_bucket_range(rows, bucket)
            add(done, min(first, high))
            done = max(done, min(end, high))
            add(*((first, end) if bucket in self.whole else self._part(rows, bucket, first, end)))
        add(done, high)
        return parts

    def is_responsible_for(self, run: Run, number: int, partition: int, partitions: int) -> bool:
        return self.own.is_responsible_for(run, number, partition, partitions)

    def _part(self, rows: SortedRows, bucket: int, first: int, end: int) -> tuple[int, int]:
        low, high = first, end
        if self.reaching is not None and rows.index is not None and first < end:
            times = self.condition.over(self.side.other, self.reaching, rows.index, rows.greatest)
            least, most = (np.array([time]) for time in times)
            wanted = np.array([bucket << TIME_BITS])
            start, stop = ranges(wanted, least, most, rows.slots, rows.base, rows.shift, rows.greatest)
            if start[0] < stop[0]:
                low, high = int(start[0]), int(stop[0])
        cuts = [low + (high - low) * part // self.partitions for part in range(self.partitions + 1)]
        cuts[0], cuts[-1] = first, end
        return cuts[self.partition], cuts[self.partition + 1]


@dataclass(frozen=True)
class Buckets(OwnedRows):
    """The rows of these buckets (ascending)."""

    buckets: tuple[int, ...]

    def misses(self, run: Run) -> bool:
        low, high = run.low >> TIME_BITS, run.high >> TIME_BITS
        return not any(low <= bucket <= high for bucket in self.buckets)

    def parts(self, rows: SortedRows) -> Sequence[tuple[int, int]]:
        places = (_find_bucket_range(rows, bucket) for bucket in self.buckets)
        return [(first, end) for first, end in places if first < end]


def _find_bucket_range(rows: SortedRows, bucket: int) -> tuple[int, int]:
    """Find the half-open range of positions [first, end) of a bucket's rows."""
    return slice_of(rows.slots, bucket << TIME_BITS, (bucket + 1) << TIME_BITS)


def split_hot_keys(
    shape: JoinShape, share: TaskPartition, hot: Sequence[HotKey]
) -> tuple[dict[Side, SideSlice], Mapping[Side, WholeSide]]:
    """Build the slices of a task when hot keys are split.

    Returns:
        The slices that the task owns of both sides, and the sides of which it searches more rows than
        it owns.
    """
    slices: dict[Side, SideSlice] = {}
    wholes: dict[Side, WholeSide] = {}
    for side in Side:
        whole = tuple(key.bucket for key in hot if key.whole is side)
        slices[side] = _build_side_slice(shape, share, side, hot, frozenset())
        if whole:
            rows = _build_side_slice(shape, share, side, hot, frozenset(whole))
            wholes[side] = WholeSide(rows, Buckets(whole), frozenset(whole))
    return slices, wholes


def _build_side_slice(
    shape: JoinShape, share: TaskPartition, side: Side, hot: Sequence[HotKey], whole: frozenset[int]
) -> SideSlice:
    of_new = SplitRows(
        condition=shape.condition,
        side=side,
        own=HashRange.of_share(share),
        hot=tuple(key.bucket for key in hot),
        whole=whole,
        reaching=None,
        partition=share.partition,
        partitions=share.partitions,
    )
    arrived = share.work.side(side.other).new_runs
    of_old = replace(of_new, reaching=merge_spans(run.spans for run in arrived))
    return SideSlice(shape.side(side), share.work.side(side), share.store, of_old, of_new)


SAMPLES = 512
"""Of so many rows of a side, at least, the work is estimated, over all runs."""
SAMPLES_EACH = 16
"""And of at least so many for each task."""
CHANGE_COST = 8.0
"""Summing up and storing a changed row costs about as much as so many pairs."""


@dataclass(frozen=True)
class RepartitionedRows:
    """The rows that one task of a join reads.

    Attributes:
        own: Rows that the task owns.
        near: Rows of each side that own rows of the other may match; see the module. None: own rows match
            only each other.
        putting: The side whose rows' owners emit pairs.
    """

    own: Mapping[Side, SideSlice]
    near: Mapping[Side, SideSlice] | None = None
    putting: Side = Side.LEFT


def repartition(shape: JoinShape, share: TaskPartition) -> RepartitionedRows:
    """Return the rows of one task of a join in changelog mode."""
    by_value = shape.left.layout.by_value
    if share.partitions == 1 or (shape.broadcast is None and not by_value):
        cut = Everything() if by_value else HashRange.of_share(share)
        return RepartitionedRows({side: _slice(shape, share, side, cut, cut) for side in Side})
    if shape.broadcast is not None:
        low, high = (part / share.partitions for part in (share.partition, share.partition + 1))
        cuts: dict[Side, OwnedRows] = {
            side: ContentRange(low, high, list_hashed_columns(shape.side(side))) for side in Side
        }
    else:
        cuts = {side: _choose_border_range(shape, share, side) for side in Side}
    own = {side: _slice(shape, share, side, cuts[side], cuts[side]) for side in Side}
    everything = Everything()
    if shape.broadcast is None:
        near = {
            side: _slice(shape, share, side, everything, _build_reached_rows(shape, own, side))
            for side in Side
        }
        return RepartitionedRows(own, near)
    near = {side: _slice(shape, share, side, everything, everything) for side in Side}
    return RepartitionedRows(own, near, Side.LEFT if shape.kind.hides_right else shape.broadcast.other)


def _slice(
    shape: JoinShape, share: TaskPartition, side: Side, of_old: OwnedRows, of_new: OwnedRows
) -> SideSlice:
    return SideSlice(shape.side(side), share.work.side(side), share.store, of_old, of_new)


def _build_reached_rows(shape: JoinShape, own: Mapping[Side, SideSlice], side: Side) -> ReachedRows:
    """Return the new rows of a side that may match the task's own rows of the other side."""
    other = own[side.other]
    new = [] if other.new is None else [other.new.rows.spans]
    old = [piece.rows.spans for piece in other.old]
    return ReachedRows(shape.condition, side.other, merge_spans([*new, *old]))


def _content_fractions(rows: SortedRows, chosen: Rows, names: tuple[str, ...]) -> npt.NDArray[np.float64]:
    """Map the content hash of each chosen row to [0, 1); equal rows have equal values."""
    return (hash_content(rows, chosen, names).view(np.uint64) >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class ContentRange(OwnedRows):
    """The rows whose hashes by the columns ``names`` are in [low, high), of 1."""

    low: float
    high: float
    names: tuple[str, ...]

    def row_filter(self, rows: SortedRows) -> RowFilter:
        def inside(chosen: Rows) -> Mask:
            places = _content_fractions(rows, chosen, self.names)
            within: Mask = (places >= self.low) & (places < self.high)
            return within

        return inside


@dataclass(frozen=True)
class Border:
    """A border in the order of rows by value, then by hash.

    Attributes:
        value: Rows of lesser values are before the border.
        part: Of the rows with ``value``, those whose hash is below this fraction of 1 are before the border.
    """

    value: int
    part: float


FIRST, LAST = Border(MIN_TIME, 0.0), Border(MAX_TIME, 1.0)


@dataclass(frozen=True)
class BorderRange(OwnedRows):
    """The rows between two borders, by values of ``index`` and hashes by the columns ``names``."""

    low: Border
    high: Border
    index: Measured
    names: tuple[str, ...]

    def of(self, rows: SortedRows) -> tuple[int, int]:
        if rows.index != self.index:
            return 0, len(rows)
        start = int(np.searchsorted(rows.slots, self.low.value, side="left"))
        end = "right" if self.high.part > 0 else "left"
        return start, max(start, int(np.searchsorted(rows.slots, self.high.value, side=end)))  # type: ignore[call-overload]

    def row_filter(self, rows: SortedRows) -> RowFilter | None:
        is_whole = self.low.part == 0 and self.high.part in (0, 1)
        if is_whole and rows.index == self.index:
            return None

        def inside(chosen: Rows) -> Mask:
            values = rows.slots[chosen] if rows.index == self.index else rows.ordinals(self.index, chosen)
            within: Mask = (values >= self.low.value) & (values <= self.high.value)
            for border, before in ((self.low, False), (self.high, True)):
                if border.part == float(before):
                    continue
                at = np.flatnonzero(within & (values == border.value))
                within[at] = (_content_fractions(rows, chosen[at], self.names) < border.part) == before
            return within

        return inside


def _choose_border_range(shape: JoinShape, share: TaskPartition, side: Side) -> BorderRange:
    """Choose the value range of one task by the estimated work of the tick's changes."""
    task = shape.side(side)
    index = task.layout.index(share.work.side(side).index)
    assert index is not None
    values, work = _estimate_work(shape, share, side, index)
    borders = choose_borders(values, work, share.partitions)
    low, high = borders[share.partition : share.partition + 2]
    return BorderRange(low, high, index, list_hashed_columns(task))


def choose_borders(
    values: npt.NDArray[np.int64], work: npt.NDArray[np.float64], partitions: int
) -> list[Border]:
    """Choose ``partitions + 1`` borders with about equal work between neighbors.

    Args:
        values: values of samples.
        work: work of each sample.
    """
    distinct, of = np.unique(values, return_inverse=True)
    of_value = np.bincount(of, weights=work, minlength=len(distinct))
    ends = np.cumsum(of_value)
    total = float(ends[-1]) if len(ends) else 0.0
    borders = [FIRST]
    for number in range(1, partitions):
        target = total * number / partitions
        place = int(np.searchsorted(ends, target, side="right"))
        if place >= len(distinct):
            borders.append(LAST)
            continue
        part = 0.0
        if of_value[place] * 2 * partitions > total:  # more than half of what a task is to do
            part = (target - (float(ends[place]) - float(of_value[place]))) / float(of_value[place])
        borders.append(Border(int(distinct[place]), min(max(part, 0.0), 1.0)))
    return [*borders, LAST]


def _estimate_work(
    shape: JoinShape, share: TaskPartition, side: Side, index: Measured
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Estimate the work per value of a side from evenly spaced sample rows.

    A new row costs storing it and its pairs with all rows of the other side. An old row costs its
    pairs with new rows of the other side.

    Returns:
        The values of the samples, and the work of the rows that each sample represents.
    """
    other = share.work.side(side.other)
    other_index = shape.side(side.other).layout.index(other.index)
    assert other_index is not None
    new = _read_runs_sorted_by(shape, share, side.other, other.new_runs, other_index)
    old = _read_runs_sorted_by(shape, share, side.other, [live.run for live in other.runs], other_index)
    reaching = merge_spans(rows.spans for rows in new)
    work = share.work.side(side)
    samples = [
        (rows, 0, len(rows), True) for rows in _read_runs_sorted_by(shape, share, side, work.new_runs, index)
    ]
    for rows in _read_runs_sorted_by(shape, share, side, [live.run for live in work.runs], index):
        if reaching is not None:
            low, high = shape.condition.reached(side.other, reaching, rows)
            if low < high:
                samples.append((rows, low, high, False))
    count = sum(high - low for _, low, high, _ in samples)
    wanted = max(SAMPLES, SAMPLES_EACH * share.partitions)
    greatest = max((rows.greatest for rows in [*new, *old]), default=MIN_TIME)
    values, costs = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
    for rows, low, high, is_new in samples:
        taken = min(high - low, -(-wanted * (high - low) // count))
        chosen = low + (np.arange(taken) * 2 + 1) * (high - low) // (2 * taken)
        least, most = shape.condition.around(rows, side, other_index, greatest, chosen)
        pairs = np.zeros(taken)
        for partners in [*new, *old] if is_new else new:
            first = np.searchsorted(partners.slots, least, side="left")
            pairs += np.maximum(np.searchsorted(partners.slots, most, side="right") - first, 0)
        values.append(rows.slots[chosen])
        costs.append((pairs + (CHANGE_COST if is_new else 0.0)) * ((high - low) / taken))
    return np.concatenate(values), np.concatenate(costs)


def _read_runs_sorted_by(
    shape: JoinShape, share: TaskPartition, side: Side, runs: list[Run], index: Measured
) -> list[SortedRows]:
    """Read the rows of those runs that are sorted by ``index``."""
    layout = shape.side(side).layout
    opened = [OpenRun.open(share.store, run, layout).sorted_rows for run in runs]
    return [rows for rows in opened if rows.index == index]
