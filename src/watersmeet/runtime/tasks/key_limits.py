"""Count the rows that a side retains per key.

Only keys of new rows can have become too many: after a limit was lowered, a key that has more already stands
until a row of it comes. Rows of a key lie next to each other in each run, so how many there are at most, with
those released and not merged away yet, is two binary searches per key and run. Where that is more than
allowed, the rows that stay are counted, of all such places of the hash space at once; keys are read only
where those are too many.

Where rows are shed (SET at_limit) nothing stops here: rows of a tick are all matched, those that it sheds,
too. The driver is told where keys may have too many, and looks at their rows when the tick is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.errors import EngineError
from watersmeet.event_time import NEVER, are_below
from watersmeet.kernel.match.probe import Rows, expand
from watersmeet.kernel.slots import TIME_BITS, TIME_MASK, Slots, hash_columns
from watersmeet.names import input_of
from watersmeet.runtime.messages.shapes import NodeShape, SideShape
from watersmeet.runtime.messages.work import SideWork
from watersmeet.runtime.tasks.results import key_as_written
from watersmeet.runtime.tasks.side import HashRange, TaskPartition
from watersmeet.state.manifest import LiveRun
from watersmeet.state.marks import marks_at
from watersmeet.state.runs.heavy_hitters import format_key
from watersmeet.state.runs.reader import OpenRun
from watersmeet.state.store import Store

MAX_REPORTED_KEYS = 3

ExcessKey = tuple[int, str]
"""How many rows a key has, and the key as its users know it."""


def check_keys(shape: NodeShape, share: TaskPartition) -> None:
    """Check that all keys of the partition are within the limits of their sides after the tick.

    Cost: the new rows, as many binary searches per run as the new rows have keys, and the rows of keys
    at the limit. Where load shedding applies, the partition's report lists where keys may exceed it.

    Raises:
        EngineError: keys exceed the limit; the error names the partition's keys with most rows.
    """
    if shape.tasks_write_state:
        return
    over: list[ExcessKey] = []
    most = None
    for side, work, report in zip(shape.sides, share.work.sides, share.report.sides, strict=False):
        if side.most_per_key is None or not side.layout.key or side.passes:
            continue
        most = side.most_per_key
        crowded = _find_crowded_buckets(side, work, share, most)
        if crowded is not None and side.sheds_keys:
            report.crowded = crowded.buckets.tolist()
        elif crowded is not None:
            over += _list_excess_keys(side, crowded, most)
    if not over:
        return
    over.sort(key=lambda told: (-told[0], told[1]))
    told = ", ".join(f"{key}: {rows}" for rows, key in over[:MAX_REPORTED_KEYS])
    more = ", and at least one more" if len(over) > MAX_REPORTED_KEYS else ""
    raise EngineError(
        f'"{shape.query}" would retain more than max_rows_per_key = {most} rows for each of these keys:'
        f" {told}{more}",
        code="max-rows-per-key",
        hint="filter out such keys, raise max_rows_per_key, narrow the time bounds, or check which"
        " input's watermark does not advance",
    )


@dataclass(frozen=True)
class _CrowdedBuckets:
    """Buckets of hashes with more retained rows of a side than a key may have.

    Attributes:
        buckets: The upper halves of the hashes.
        rows: Number of rows per bucket.
        parts: The runs that contain the rows.
    """

    buckets: Slots
    rows: Rows
    parts: Sequence[_Part]


def _find_crowded_buckets(
    side: SideShape, work: SideWork, share: TaskPartition, most: int
) -> _CrowdedBuckets | None:
    own = HashRange.of_share(share)
    come = [*(LiveRun(run=run) for run in work.new_runs), *work.contents]
    new = list(_open_parts(come, side, work, share.store, own))
    if not new:
        return None
    slots = [part.slots[slice(*own.of(part.run.sorted_rows))] for part in new]
    buckets = np.unique(np.concatenate(slots) >> np.int64(TIME_BITS))
    parts = [*new, *_open_parts(work.runs, side, work, share.store, own)]
    buckets = buckets[np.sum([part.at_most(buckets) for part in parts], axis=0) > most]
    if not len(buckets):
        return None
    rows: Rows = np.sum([part.count_retained_rows(buckets) for part in parts], axis=0)
    return _CrowdedBuckets(buckets[rows > most], rows[rows > most], parts)


def _list_excess_keys(side: SideShape, crowded: _CrowdedBuckets, most: int) -> list[ExcessKey]:
    """List keys with too many rows.

    If there are more than `MAX_REPORTED_KEYS`, the list has those with most rows and at least one
    extra.
    """
    over: list[ExcessKey] = []
    for number in np.argsort(-crowded.rows, kind="stable").tolist():
        bucket = crowded.buckets[number : number + 1]
        over += _find_excess_keys(side, [part.keys(bucket) for part in crowded.parts], most)
        if len(over) > MAX_REPORTED_KEYS:
            break
    return over


def _open_parts(
    runs: Sequence[LiveRun], side: SideShape, work: SideWork, store: Store, own: HashRange
) -> Iterator[_Part]:
    """Open those of the runs that have rows of the partition."""
    for live in runs:
        if not own.misses(live.run):
            yield _Part(side, work, store, live, OpenRun.open(store, live.run, side.layout))


@dataclass(frozen=True)
class _Part:
    """A run, asked for rows by the upper halves of their hashes."""

    side: SideShape
    work: SideWork
    store: Store
    live: LiveRun
    run: OpenRun

    @property
    def slots(self) -> Slots:
        return self.run.sorted_rows.slots

    def _places(self, buckets: Slots) -> tuple[Rows, Rows]:
        """Find the half-open range of positions [first, end) of each bucket's rows."""
        least = buckets << np.int64(TIME_BITS)
        first = np.searchsorted(self.slots, least, side="left")
        return first, np.searchsorted(self.slots, least | TIME_MASK, side="right")

    def at_most(self, buckets: Slots) -> Rows:
        """Count the rows of each bucket, including released and evicted rows."""
        first, end = self._places(buckets)
        return end - first

    def _rows(self, buckets: Slots) -> Iterator[tuple[Rows, Rows]]:
        """Yield the retained rows and the number of each one's bucket, in chunks."""
        for numbers, rows in expand(*self._places(buckets)):
            stay = ~marks_at(self.store, "gone", self.live.marks.get("gone", ()), rows)
            for column in self.side.layout.releasing:
                limit = self.work.new_limits.get(column, NEVER)
                stay &= ~are_below(self.run.sorted_rows.times(column)[rows], limit)
            yield numbers[stay], rows[stay]

    def count_retained_rows(self, buckets: Slots) -> Rows:
        """Count the retained rows of each bucket."""
        counts = np.zeros(len(buckets), dtype=np.int64)
        for numbers, _ in self._rows(buckets):
            counts += np.bincount(numbers, minlength=len(buckets))
        return counts

    def keys(self, buckets: Slots) -> pa.RecordBatch:
        """Return the keys of the retained rows."""
        rows = [rows for _, rows in self._rows(buckets)]
        taken = pa.array(np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64))
        batch, names = self.run.sorted_rows.batch, list(self.side.layout.key)
        return pa.RecordBatch.from_arrays([batch.column(name).take(taken) for name in names], names=names)


def _find_excess_keys(side: SideShape, keys: Sequence[pa.RecordBatch], most: int) -> Iterator[ExcessKey]:
    """Find keys with too many rows among keys whose hashes share the upper half."""
    hashes = [hash_columns(part.columns, part.num_rows) for part in keys]
    _, first_places, counts = np.unique(np.concatenate(hashes), return_index=True, return_counts=True)
    starts = np.cumsum([0, *(len(part) for part in hashes)])
    for number in np.flatnonzero(counts > most).tolist():
        place = int(first_places[number])
        part = int(np.searchsorted(starts, place, side="right")) - 1
        key = format_key(keys[part], side.layout.key, place - int(starts[part]))
        yield int(counts[number]), f"{key_as_written(side, key)} of {input_of(side.name)}"
