"""What ingest would say of the rows of a sample, setting by setting, without running a tick.

The rules are those of the engine: watermarks are moved by `watermark.tracker`, what is late is decided by
`runtime.coordinator.input_watermarks`, what is released by the nodes' drivers. Only what becomes of each row
by these is worked out for all ticks at once, over columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.event_time import MAX_TIME, MIN_TIME, NEVER, Mask, Times, Watermark, shift
from watersmeet.kernel.ordinals import known_times
from watersmeet.names import PARTITION
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.sides import BranchPlan, SidePlan
from watersmeet.runtime.coordinator.input_watermarks import find_lateness, raise_late_thresholds
from watersmeet.runtime.coordinator.operators.base import NodeInputs
from watersmeet.runtime.coordinator.operators.registry import find_driver
from watersmeet.runtime.coordinator.shapes import tracker_rules
from watersmeet.runtime.local.evaluate import BranchEvaluator
from watersmeet.runtime.tasks.ingest import Flags, compute_flags
from watersmeet.spec.flags import FLAG_BENEATH, FLAG_CANDIDATE
from watersmeet.state.manifest import Arrangement, NodeState
from watersmeet.watermark import tracker
from watersmeet.whatif.sample import ArrivedRows, Numbers, Sample


@dataclass(frozen=True)
class BranchRows:
    """The rows of one branch of an input.

    Attributes:
        arrived: Rows of the source.
        part: Mask of the rows that are part of the stream.
        judged: Mask of the rows of ``part`` that are not ahead of the clock.
        times: Times per event time.
        present: Per event time, a mask of the rows that have it; None: all have it.
        flags: Flags of each row for the node.
        greatest: Per tick, the greatest times as in `tracker.BranchProgress`.
        row_bytes: Mean Arrow bytes per row of the retained columns.
    """

    side: SidePlan
    number: int
    arrived: ArrivedRows
    part: Mask
    judged: Mask
    times: Mapping[str, Times]
    present: Mapping[str, Mask | None]
    flags: Flags
    greatest: Mapping[int, dict[str, dict[str, int]]]
    row_bytes: float

    @property
    def source(self) -> str:
        return self.arrived.source.name

    @property
    def candidate(self) -> Mask:
        """Mask of rows that may match."""
        may: Mask = self.flags == FLAG_CANDIDATE
        return may

    def null_time(self, late: Mask) -> Mask:
        missing = np.zeros(len(late), dtype=np.bool_)
        for present in self.present.values():
            if present is not None:
                missing |= ~present
        return self.judged & missing & ~late


@dataclass(frozen=True)
class TickWatermarks:
    """Watermarks of every tick of one query, as arrays by tick.

    Attributes:
        late_below: late thresholds per watermark key.
        limits: release limits per watermark key.
        before: per (alias, branch, column) the branch's own watermark before the tick.
    """

    late_below: Mapping[str, Times]
    limits: Mapping[str, Times]
    before: Mapping[tuple[str, int, str], Times]


@dataclass(frozen=True)
class IngestCounts:
    """Outcomes of the rows of a branch.

    Attributes:
        late: mask of late rows.
        null_time: number of rows whose time is NULL.
        rows: indexes of the retained rows.
        released: the tick that releases each retained row; the number of ticks if no tick of the sample
            does.
    """

    late: Mask
    null_time: int
    rows: Numbers
    released: Numbers


def is_direct(query: QueryPlan) -> bool:
    """Return True if times and watermarks alone determine which rows are late and retained.

    This holds for one join of streams that retains rows until it releases them, for delta joins, and
    for queries without a join.
    """
    return all(side.sources and not side.stages and not side.kept_by for side in query.sides) and all(
        node.keeps_by_times for node in query.nodes
    )


def rows_of_query(query: QueryPlan, sample: Sample) -> list[BranchRows]:
    """Return, for every branch, the rows that ingest reads.

    They depend on the query's expressions and not on lags.

    Raises:
        EngineError: only Spark computes an expression, or an expression fails.
    """
    return [
        branch_rows(query, side, number, branch, sample)
        for side in query.sides
        for number, branch in side.sources
    ]


def branch_rows(
    query: QueryPlan, side: SidePlan, number: int, branch: BranchPlan, sample: Sample
) -> BranchRows:
    """Return the rows that ingest reads of one branch.

    Raises:
        EngineError: only Spark computes an expression, or an expression fails.
    """
    arrived = sample.sources[branch.source.name]
    evaluate = BranchEvaluator(side, branch, query.options.time_zone, f'INSERT "{query.name}": ')
    batch = evaluate(arrived.rows)
    flags = compute_flags(batch, side.not_null)
    part = flags != FLAG_BENEATH
    times: dict[str, Times] = {}
    present_by_column: dict[str, Mask | None] = {}
    ahead = np.zeros(len(part), dtype=np.bool_)
    for column in side.event_times:
        given = batch.column(column)
        values = known_times(given)
        present: Mask | None = None
        if values.null_count:
            present = values.is_valid().to_numpy(zero_copy_only=False)
            values = pc.fill_null(values, 0)
        present_by_column[column] = present
        times[column] = values.to_numpy(zero_copy_only=True)
        if branch.source.max_ahead_us is not None and not pa.types.is_integer(given.type):
            clocks = _clocks(sample)[arrived.ticks]
            is_there = part if present is None else part & present
            ahead |= is_there & (times[column] > clocks + np.int64(branch.source.max_ahead_us))
    judged = part & ~ahead
    kept = [batch.column(name) for name in batch.schema.names if name in side.kept]
    return BranchRows(
        side=side,
        number=number,
        arrived=arrived,
        part=part,
        judged=judged,
        times=times,
        present=present_by_column,
        flags=flags,
        greatest=_greatest(batch, part, judged, times, present_by_column, arrived.ticks),
        row_bytes=sum(map(_bytes, kept)) / max(1, batch.num_rows),
    )


def _bytes(column: pa.Array) -> int:
    """Return the bytes of a column's values; count validity bits only if there are NULLs."""
    marks = column.buffers()[0] is not None and not column.null_count
    return int(column.nbytes) - (-(-len(column) // 8) if marks else 0)


def _clocks(sample: Sample) -> Times:
    return sample.clocks if sample.in_time else np.zeros(sample.ticks, dtype=np.int64)


def _greatest(
    batch: pa.RecordBatch,
    part: Mask,
    judged: Mask,
    times: Mapping[str, Times],
    present_by_column: Mapping[str, Mask | None],
    ticks: Numbers,
) -> dict[int, dict[str, dict[str, int]]]:
    """Return the greatest times per tick with rows, partition and column, late rows included."""
    coded = pc.dictionary_encode(batch.column(PARTITION), null_encoding="encode")
    names = ["" if name is None else str(name) for name in coded.dictionary.to_pylist()]
    codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    greatest: dict[int, dict[str, dict[str, int]]] = {}
    group = ticks * np.int64(len(names)) + codes
    for number in np.unique(group[part]):
        tick, code = divmod(int(number), len(names))
        greatest.setdefault(tick, {})[names[code]] = {}
    for column, values in times.items():
        present = present_by_column[column]
        is_there = judged if present is None else judged & present
        groups, tops = _greatest_per_group(group[is_there], values[is_there])
        for number, top in zip(groups.tolist(), tops.tolist(), strict=True):
            tick, code = divmod(number, len(names))
            greatest[tick][names[code]][column] = top
    return greatest


def _greatest_per_group(groups: Numbers, values: Times) -> tuple[Numbers, Times]:
    if not len(groups):
        return groups, values
    if (groups[1:] < groups[:-1]).any():
        order = np.argsort(groups, kind="stable")
        groups, values = groups[order], values[order]
    first = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
    return groups[first], np.maximum.reduceat(values, first)


def marks_of(query: QueryPlan, rows: Sequence[BranchRows], sample: Sample) -> TickWatermarks:
    """Compute the watermarks of a query, tick by tick."""
    rules = tracker_rules(query)
    started_us = sample.clock_us(0)
    inputs = {alias: tracker.fresh_input(own, started_us) for alias, own in rules.items()}
    releases = is_direct(query)
    keys = [side.watermark_key(column) for side in query.sides for column in side.event_times]
    late_by_tick = {key: np.full(sample.ticks, MIN_TIME, dtype=np.int64) for key in keys}
    limit_by_tick = {key: np.full(sample.ticks, MIN_TIME, dtype=np.int64) for key in keys}
    before = {
        (own.side.name, own.number, column): np.full(sample.ticks, MIN_TIME, dtype=np.int64)
        for own in rows
        for column in own.side.event_times
    }
    late: dict[str, Watermark] = {}
    for tick in range(sample.ticks):
        late = raise_late_thresholds(query, inputs, late)
        for key, mark in late.items():
            late_by_tick[key][tick] = clamp_time(mark)
        for (alias, number, column), marks in before.items():
            marks[tick] = clamp_time(inputs[alias].branches[number].watermarks.get(column, NEVER))
        seen = {
            (own.side.name, own.number): tracker.BranchProgress(own.greatest.get(tick, {})) for own in rows
        }
        tracker.advance(inputs, rules, seen, sample.clock_us(tick))
        if releases:
            for key, limit in release_limits(
                query, _watermarks(query, inputs), sample.clock_us(tick)
            ).items():
                limit_by_tick[key][tick] = clamp_time(limit)
    return TickWatermarks(late_by_tick, limit_by_tick, before)


def clamp_time(mark: Watermark) -> int:
    """Return a watermark as a time that an array can hold."""
    return int(min(max(mark, MIN_TIME), MAX_TIME))


def _watermarks(query: QueryPlan, inputs: Mapping[str, tracker.InputState]) -> dict[str, Watermark]:
    return {
        side.watermark_key(column): inputs[side.name].watermarks.get(column, NEVER)
        for side in query.sides
        for column in side.event_times
    }


def release_limits(
    query: QueryPlan, watermarks: Mapping[str, Watermark], clock_us: int
) -> Mapping[str, Watermark]:
    """Return the times below which rows are released, as the nodes' drivers decide.

    Args:
        watermarks: watermarks of all keys of the query's inputs, after the tick.
    """
    lateness = {
        side.watermark_key(column): find_lateness(query, side)
        for side in query.sides
        for column in side.event_times
    }
    on_time = {key: shift(mark, -lateness[key]) for key, mark in watermarks.items()}
    given = NodeInputs(
        watermarks=watermarks,
        lateness=lateness,
        on_time=on_time,
        before=NodeState(),
        kept_before=lambda _: Arrangement(),
        brought=lambda _: (),
        clock_us=clock_us,
    )
    limits: dict[str, Watermark] = {}
    for node in query.nodes:
        limits |= find_driver(node).decide(node, given).limits
    return limits


def count_ingested(own: BranchRows, marks: TickWatermarks) -> IngestCounts:
    """Compute the outcomes of the rows of a branch."""
    ticks, count = own.arrived.ticks, len(next(iter(marks.late_below.values()), ()))
    late = np.zeros(len(ticks), dtype=np.bool_)
    for column, values in own.times.items():
        below = values < marks.late_below[own.side.watermark_key(column)][ticks]
        present = own.present[column]
        late |= own.judged & below if present is None else own.judged & present & below
    null_time = own.null_time(late)
    rows = np.flatnonzero(own.candidate & own.judged & ~late & ~null_time)
    if own.side.passes:
        rows = rows[:0]
    released = np.full(len(rows), count, dtype=np.int64)
    for column, values in own.times.items():
        limits = marks.limits[own.side.watermark_key(column)]
        released = np.minimum(released, np.searchsorted(limits, values[rows], side="right"))
    return IngestCounts(late, int(null_time.sum()), rows, np.maximum(released, ticks[rows]))


def retained(kept: IngestCounts, ticks: Numbers, count: int) -> Numbers:
    """Return the number of retained rows after each tick."""
    come = np.bincount(ticks[kept.rows], minlength=count + 1)
    gone = np.bincount(kept.released, minlength=count + 1)
    return np.cumsum(come - gone)[:count].astype(np.int64)
