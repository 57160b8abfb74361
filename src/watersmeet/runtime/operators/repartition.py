"""How the rows of a join over changes are dealt to tasks, where not by the hash of a key.

Equal rows, old and new ones, are one task's: it sums them up, and a delete takes one of them away. So rows
are cut by what they hold, and every run at the same borders:

- Without an equality key by ranges of the values that they are sorted by (`BorderRange`). The borders come
from
  estimates of the tick's work. A value that is much of it is cut further, by the hash of what rows hold.
- With the hint BROADCAST by that hash alone (`ContentRange`), whatever keys or values there are.

A task looks its own rows up in those that are `near`: all that its own rows of the other side may match.
There it takes deletes away for itself, too. Each pair is put out by the owner of its row of one side
(``putting``); how many partners a row of the other side has is counted by that row's owner, who looks the
same pairs up once more, if anybody asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from watersmeet.event_time import MAX_TIME, MIN_TIME, Mask, Side
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.measure import Measured
from watersmeet.runtime.messages.shapes import JoinShape
from watersmeet.runtime.operators.ranges import ReachedRows, merge_spans
from watersmeet.runtime.tasks.partition import (
    Everything,
    HashRange,
    OwnedRows,
    RowFilter,
    TaskPartition,
)
from watersmeet.runtime.tasks.side import SideSlice, hash_content, list_hashed_columns
from watersmeet.state.runs.layout import Run
from watersmeet.state.runs.reader import OpenRun

SAMPLES = 512
"""Of so many rows of a side, at least, the work is estimated, over all runs."""
SAMPLES_EACH = 16
"""And of at least so many for each task."""
CHANGE_COST = 8.0
"""Summing up and storing a changed row costs about as much as so many pairs."""


@dataclass(frozen=True)
class RepartitionedRows:
    """``own``: the rows of a task; ``near``: see the module (None: its own rows match nothing else);
    ``putting``: the side whose rows' owners put pairs out."""

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
    """Rows of lesser values are before it, and of those with its value the ones whose hash is below
    ``part``, of 1."""

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
