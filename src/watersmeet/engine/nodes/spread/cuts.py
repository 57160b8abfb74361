"""How the rows of a join with hot keys are cut: every task has an equal range of hashes, and of each hot key,
wherever its hash is, an equal part of every run.

What a task owns it releases, pads, and merges. It looks its own rows up in all rows of the other side that
they may match: of a hot key one side is cut, and of the other every task looks through all rows
(`HotKey.whole`). So each pair is found once, by the owner of its row of the side that is cut. What the other
side's owners have to know of matches that other tasks found is as with the hint BROADCAST
(`engine.nodes.broadcast`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from watersmeet.engine.messages.shapes import JoinShape
from watersmeet.engine.nodes.broadcast import Whole
from watersmeet.engine.nodes.ranges import united
from watersmeet.engine.nodes.spread.hot import HotKey
from watersmeet.engine.tasks.cut import Cut, HashRange
from watersmeet.engine.tasks.share import Share
from watersmeet.engine.tasks.slice import SideSlice
from watersmeet.event_time import Side
from watersmeet.kernel.match.overflow import Spans
from watersmeet.kernel.match.pairs import Condition
from watersmeet.kernel.match.probe import ranges
from watersmeet.kernel.slots import TIME_BITS, slice_of
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.state.runs.run import Run


@dataclass(frozen=True)
class Spread(Cut):
    """Rows of ``side``: those of ``own`` hashes that are of none of the ``hot`` buckets (ascending), of those
    buckets that are ``whole`` all, and of each other one the ``partition``-th of so many parts.

    ``reaching``: spans of the other side's new rows: what they reach of a bucket is cut into equal parts,
    the rows before and behind go with the first and the last (None: the whole bucket is).
    """

    condition: Condition
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
            first, end = _places(rows, bucket)
            add(done, min(first, high))
            done = max(done, min(end, high))
            add(*((first, end) if bucket in self.whole else self._part(rows, bucket, first, end)))
        add(done, high)
        return parts

    def answers_for(self, run: Run, number: int, partition: int, partitions: int) -> bool:
        return self.own.answers_for(run, number, partition, partitions)

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
class Buckets(Cut):
    """The rows of these buckets (ascending)."""

    buckets: tuple[int, ...]

    def misses(self, run: Run) -> bool:
        low, high = run.low >> TIME_BITS, run.high >> TIME_BITS
        return not any(low <= bucket <= high for bucket in self.buckets)

    def parts(self, rows: SortedRows) -> Sequence[tuple[int, int]]:
        places = (_places(rows, bucket) for bucket in self.buckets)
        return [(first, end) for first, end in places if first < end]


def _places(rows: SortedRows, bucket: int) -> tuple[int, int]:
    """Where the rows of a bucket are: [first, end)."""
    return slice_of(rows.slots, bucket << TIME_BITS, (bucket + 1) << TIME_BITS)


def spread(
    shape: JoinShape, share: Share, hot: Sequence[HotKey]
) -> tuple[dict[Side, SideSlice], Mapping[Side, Whole]]:
    """(what the task owns of both sides; the sides of which it looks through more than that)."""
    slices: dict[Side, SideSlice] = {}
    wholes: dict[Side, Whole] = {}
    for side in Side:
        whole = tuple(key.bucket for key in hot if key.whole is side)
        slices[side] = _rows(shape, share, side, hot, frozenset())
        if whole:
            rows = _rows(shape, share, side, hot, frozenset(whole))
            wholes[side] = Whole(rows, Buckets(whole), frozenset(whole))
    return slices, wholes


def _rows(
    shape: JoinShape, share: Share, side: Side, hot: Sequence[HotKey], whole: frozenset[int]
) -> SideSlice:
    of_new = Spread(
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
    of_old = replace(of_new, reaching=united(run.spans for run in arrived))
    return SideSlice(shape.side(side), share.work.side(side), share.store, of_old, of_new)
