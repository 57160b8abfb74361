"""Which keys of a join are hot in a tick: those with too much of its work to be one task's.

Runs tell their heaviest keys (`state.runs.heavy`), the tick's new ones too. From them alone, without a look
at any row, a key's work is estimated: what it costs to look its new rows up, the pairs that these may come
to, and merging. Of keys that no run tells of only the rows count, so that a key's share is rather taken too
great: to split one that needs it not costs little. All tasks of a tick, and of its repeat, come to the same.

Keys are told apart by 32 bits of their hashes, as everywhere in a run (a *bucket*).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from watersmeet.engine.messages.reports import SplitKey
from watersmeet.engine.messages.shapes import JoinShape
from watersmeet.engine.messages.work import NodeWork, SideWork
from watersmeet.engine.tasks.told import key_as_written
from watersmeet.event_time import Side
from watersmeet.spec.model import JoinKind
from watersmeet.state.runs.heavy import HeavyKey

OF_A_TASK = 1 / 2
"""A key with more of the work than this share of what a task is to do is split."""
OF_A_ROW = 8.0
"""Looking a row up, or merging it, costs about as much as so many pairs."""
LEAST_WORK = 50_000.0
"""A key is split where each task's part of it is more than this, in pairs: less costs more than it helps."""


@dataclass(frozen=True)
class HotKey:
    """``whole``: the side all of whose rows of the bucket every task looks through; those of the other one
    are cut. ``share``: of the tick's work, about. ``key``: as JSON, as ``side`` tells it."""

    bucket: int
    whole: Side
    share: float
    key: str
    side: Side

    def told(self, shape: JoinShape) -> SplitKey:
        """As its users know it."""
        side = shape.side(self.side)
        return SplitKey(side=side.name, key=key_as_written(side, self.key), share=round(self.share, 3))


@dataclass(frozen=True)
class _Rows:
    """Of one side: rows per bucket, and of all, that are new, kept, and merged in the tick."""

    new: dict[int, int]
    old: dict[int, int]
    merged: dict[int, int]
    all_new: int
    all_merged: int
    keys: dict[int, str]

    @classmethod
    def of(cls, work: SideWork) -> _Rows:
        merged_away = work.merged_away()
        merged = [live for live in work.runs if live.run.name in merged_away]
        told: list[HeavyKey] = [key for run in work.new_runs for key in run.heavy]
        kept = [key for live in work.runs for key in live.heavy]
        return cls(
            _summed(told),
            _summed(kept),
            _summed(key for live in merged for key in live.heavy),
            sum(run.rows for run in work.new_runs),
            sum(live.stored for live in merged),
            {key.bucket: key.key for key in (*kept, *told)},
        )


def _summed(keys: Iterable[HeavyKey]) -> dict[int, int]:
    rows: dict[int, int] = {}
    for key in keys:
        rows[key.bucket] = rows.get(key.bucket, 0) + key.rows
    return rows


def hot_keys(shape: JoinShape, work: NodeWork, partitions: int) -> tuple[HotKey, ...]:
    """The keys that so many tasks split, by ascending buckets."""
    if partitions == 1 or not may_split(shape) or any(side.taken_over for side in work.sides):
        return ()
    of = {side: _Rows.of(work.side(side)) for side in Side}
    costs: dict[int, float] = {}
    pairs = 0.0
    for bucket, met in _met(of).items():
        new = sum(rows.new.get(bucket, 0) for rows in of.values())
        merged = sum(rows.merged.get(bucket, 0) for rows in of.values())
        pairs += met
        costs[bucket] = OF_A_ROW * (new + merged) + met
    total = pairs + OF_A_ROW * sum(rows.all_new + rows.all_merged for rows in of.values())
    least = max(total * OF_A_TASK / partitions, LEAST_WORK * partitions)
    return tuple(
        _hot(shape, of, bucket, costs[bucket] / total) for bucket in sorted(costs) if costs[bucket] > least
    )


def told_pairs(work: NodeWork) -> float:
    """The pairs that rows come to of which the runs tell the keys: at most these, and others besides."""
    return float(sum(_met({side: _Rows.of(work.side(side)) for side in Side}).values()))


def _met(of: Mapping[Side, _Rows]) -> dict[int, int]:
    """Per bucket with new or merged rows, the pairs that the new ones may come to."""
    left, right = of[Side.LEFT], of[Side.RIGHT]
    pairs: dict[int, int] = {}
    for bucket in {bucket for rows in of.values() for bucket in (*rows.new, *rows.merged)}:
        met = left.new.get(bucket, 0) * (right.old.get(bucket, 0) + right.new.get(bucket, 0))
        pairs[bucket] = met + right.new.get(bucket, 0) * left.old.get(bucket, 0)
    return pairs


def may_split(shape: JoinShape) -> bool:
    """Whether keys of the join are split at all. They are not where rows are changed or found in their order,
    nor where a condition is computed elsewhere; a join without a key, or with the hint, is spread anyhow."""
    return shape.goes_by_keys and shape.broadcast is None and shape.reach is None and not shape.changelog


def _hot(shape: JoinShape, of: dict[Side, _Rows], bucket: int, share: float) -> HotKey:
    def size(side: Side) -> tuple[int, int]:
        return of[side].new.get(bucket, 0), of[side].old.get(bucket, 0)

    less = Side.LEFT if size(Side.LEFT) < size(Side.RIGHT) else Side.RIGHT
    # of a SEMI join one task has to know that a left row has its first match
    whole = Side.RIGHT if shape.kind is JoinKind.SEMI else less
    told = less.other if bucket in of[less.other].keys else less
    return HotKey(bucket, whole, share, of[told].keys[bucket], told)
