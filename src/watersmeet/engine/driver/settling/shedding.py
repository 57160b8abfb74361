"""Shedding: a join that keeps more rows than it may lets some go at the end of a tick (SET at_limit).

A shed row is marked as ``gone``, so no file is written anew. From the next tick on it is matched with
nothing; it is not padded when it would have been released, nor put out by ANTI, and it is not retained. Which
rows go follows from the rows that are kept alone, and so a tick that is repeated sheds the same, by however
many tasks it is run: the oldest, all of one time together, or all rows of the heaviest keys. What it costs
goes, for the oldest, by the rows that are shed, now and since limits last passed them; for the heaviest keys
by all rows that the join keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from watersmeet.engine.messages.reports import PadFile
from watersmeet.engine.messages.shapes import NodeShape, SideShape
from watersmeet.engine.tasks.aside import ASIDE_COLUMNS, write_aside
from watersmeet.engine.tasks.memory import output_bytes
from watersmeet.event_time import NEVER, Mask
from watersmeet.kernel.batches import cuts, take_rows
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.pieces import row_sizes, rows_bound
from watersmeet.kernel.slots import TIME_BITS
from watersmeet.kernel.times import to_native
from watersmeet.plan.model.job import QueryPlan
from watersmeet.spec.model import AtLimit
from watersmeet.state.manifest import Arrangement, LiveRun
from watersmeet.state.marks import MarkWriter, marks_at, overlay
from watersmeet.state.runs.opened import OpenRun
from watersmeet.state.store import Store

WRITTEN_AT_ONCE = 1 << 16
"""Rows for the side output that are taken from a run at once, if they are not large."""


@dataclass(frozen=True)
class Shed:
    """What a side has shed: how many rows, and files of them for the side output."""

    rows: int
    files: Sequence[PadFile]


def shed_rows(
    query: QueryPlan,
    shape: NodeShape,
    arrangements: MutableMapping[str, Arrangement],
    store: Store,
    tick: int,
    *,
    told: bool,
) -> Mapping[str, Shed]:
    """Bring what a node keeps down to ``max_rows``, where the query says so.

    Args:
        arrangements: of its sides, after the tick; those that shed rows are replaced.
        told: the rows are wanted, in files.

    Returns:
        Per side that has shed rows, how many, and which.
    """
    options = query.options
    if options.max_rows is None or not options.at_limit.sheds:
        return {}
    excess = sum(kept.stored for kept in arrangements.values()) - options.max_rows
    if excess <= 0:
        return {}
    ages = query.nodes[shape.number].ages or [None] * len(shape.sides)
    parts = [
        _Part(store, side, live, arrangements[side.name], OpenRun.open(store, live.run, side.layout), age)
        for side, age in zip(shape.sides, ages, strict=True)
        for live in arrangements[side.name].runs
    ]
    oldest = options.at_limit is AtLimit.SHED_OLDEST
    chosen = _oldest(parts, excess) if oldest else _heaviest(parts, excess)
    shed: dict[str, Shed] = {}
    for side in shape.sides:
        own = [
            (part, np.sort(rows))
            for part, rows in zip(parts, chosen, strict=True)
            if part.side is side and len(rows)
        ]
        if not own:
            continue
        kept = arrangements[side.name]
        runs = _less(kept.runs, own, store, tick)
        update = {"runs": runs, "retained": sum(live.retained for live in runs)}
        arrangements[side.name] = kept.model_copy(update=update)
        reason = options.at_limit.value
        files = [file for part, rows in own for file in part.written(rows, reason, tick)] if told else []
        shed[side.name] = Shed(sum(len(rows) for _, rows in own), files)
    return shed


def _less(
    runs: Sequence[LiveRun], shed: Sequence[tuple[_Part, Rows]], store: Store, tick: int
) -> list[LiveRun]:
    """The runs of a side without rows of them. Files may be those of the other side, too: marks are not."""
    marks, gone = MarkWriter(), dict[str, int]()
    for part, rows in shed:
        run = part.live.run
        marks.add_rows(store, run.name, "gone", part.live.marks.get("gone", ()), 0, run.rows, rows)
        gone[run.name] = len(rows)
    added = marks.write(store, tick)
    left: list[LiveRun] = []
    for live in runs:
        if live.run.name in gone:
            before = live.marks.get("gone", ())
            marked = {**live.marks, "gone": overlay(before, added[live.run.name]["gone"])}
            update = {"released": live.released + gone[live.run.name], "marks": marked}
            live = live.model_copy(update=update)
        if live.released < live.run.rows:
            left.append(live)
    return left


@dataclass(frozen=True)
class _Part:
    """A run of a side, after the tick. ``age``: the event time by which its rows are old; None: rows are not
    shed by their ages."""

    store: Store
    side: SideShape
    live: LiveRun
    kept: Arrangement
    run: OpenRun
    age: str | None

    @property
    def column(self) -> str:
        assert self.age is not None
        return self.age

    def retained(self, rows: Rows) -> Mask:
        """Which of these rows are."""
        there: Mask = ~marks_at(self.store, "gone", self.live.marks.get("gone", ()), rows)
        for column in self.side.layout.releasing:
            there &= self.run.sorted_rows.times(column)[rows] >= self.kept.limits.get(column, NEVER)
        return there

    def oldest(self, most: int) -> Rows:
        """The times of the so many oldest of its rows; of fewer, if it has no more."""
        low, times, count = self.kept.limits.get(self.column, NEVER), [], 0
        first = max(self.run.below(self.column, low), self.live.cursors.get(self.column, 0))
        while first < self.live.run.rows and count < most:
            rows = self.run.in_order(self.column, first, first + max(most, 1024))
            first += len(rows)
            rows = rows[self.retained(rows)]
            times.append(self.run.sorted_rows.times(self.column)[rows])
            count += len(rows)
        return np.concatenate(times) if times else np.zeros(0, dtype=np.int64)

    def up_to(self, time: int) -> Rows:
        """Its rows with no later time."""
        low = self.kept.limits.get(self.column, NEVER)
        first = max(self.run.below(self.column, low), self.live.cursors.get(self.column, 0))
        rows = self.run.in_order(self.column, first, self.run.below(self.column, time + 1))
        return rows[self.retained(rows)]

    def every(self) -> Rows:
        """All of its rows."""
        rows = np.arange(self.live.run.rows)
        return rows[self.retained(rows)]

    def buckets(self, rows: Rows) -> Rows:
        """The upper halves of their hashes."""
        return self.run.sorted_rows.slots[rows] >> np.int64(TIME_BITS)

    def written(self, rows: Rows, reason: str, tick: int) -> Iterator[PadFile]:
        """Files of the rows, for the side output, with the columns that are kept of them."""
        for taken in self._taken(rows):
            batch = take_rows(self.run.sorted_rows.batch, taken)
            native = [to_native(batch.column(of.name), of.type) for of in self.side.schema]
            record = pa.StructArray.from_arrays(native, names=self.side.schema.names)
            nulls = [pa.nulls(len(record), kind) for kind in (pa.string(), pa.string(), pa.int64())]
            told = pa.RecordBatch.from_arrays([record, *nulls], names=list(ASIDE_COLUMNS))
            file = write_aside(self.store, reason, tick, [told])
            yield file.model_copy(update={"reason": reason})

    def _taken(self, rows: Rows) -> Iterator[Rows]:
        """The rows in order, as many at once as are to be held; a row may be larger than that."""
        batch, names, most = (
            self.run.sorted_rows.batch,
            self.side.schema.names,
            output_bytes(self.side.memory),
        )
        for low in range(0, len(rows), WRITTEN_AT_ONCE):
            some = rows[low : low + WRITTEN_AT_ONCE]
            if rows_bound(batch, names, some) <= most:
                yield some
                continue
            for first, end in pairwise(cuts(row_sizes(batch, names, some), most)):
                yield some[first:end]


def _oldest(parts: list[_Part], excess: int) -> list[Rows]:
    """Of each part the rows that are not later than the ``excess``-th of all."""
    times = np.concatenate([part.oldest(excess) for part in parts])
    last = int(np.partition(times, excess - 1)[excess - 1])
    return [part.up_to(last) for part in parts]


def _heaviest(parts: list[_Part], excess: int) -> list[Rows]:
    """Of each part the rows of the heaviest keys, as many keys as it takes."""
    rows = [part.every() for part in parts]
    buckets = [part.buckets(own) for part, own in zip(parts, rows, strict=True)]
    heavy, counts = np.unique(np.concatenate(buckets), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    keys = int(np.searchsorted(np.cumsum(counts[order]), excess)) + 1
    chosen = heavy[order[:keys]]
    return [own[np.isin(of_rows, chosen)] for own, of_rows in zip(rows, buckets, strict=True)]
