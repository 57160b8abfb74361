"""A run of a side after a tick, asked which of its rows are kept, how old they are and what keys they have;
and which of them are to be shed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.engine.messages.reports import PadFile
from watersmeet.engine.messages.shapes import SideShape
from watersmeet.engine.tasks.aside import ASIDE_COLUMNS, write_aside
from watersmeet.engine.tasks.memory import output_bytes
from watersmeet.event_time import NEVER, Mask
from watersmeet.kernel.batches import cuts, take_rows
from watersmeet.kernel.hashing import hash_columns
from watersmeet.kernel.match.probe import Rows, expand
from watersmeet.kernel.pieces import row_sizes, rows_bound
from watersmeet.kernel.slots import TIME_BITS, TIME_MASK, Slots
from watersmeet.kernel.times import to_native
from watersmeet.names import is_ours
from watersmeet.state.manifest import Arrangement, LiveRun
from watersmeet.state.marks import marks_at, places_among
from watersmeet.state.runs.columns import null_column
from watersmeet.state.runs.opened import OpenRun
from watersmeet.state.store import Store

BUCKET_BITS = 64 - TIME_BITS
BUCKETS = 1 << BUCKET_BITS
"""How many upper halves of hashes there are, half of them below zero."""
TAKEN_AT_ONCE = 1 << 16
"""Rows that are taken from a run at once, if they are not large."""


@dataclass
class Part:
    """A run of a side, after the tick. ``age``: the event time by which its rows are old; None: rows are not
    shed by their ages. ``group``: the number of its node: no key is that of two nodes. ``is_copy``: another
    side of the node holds the same rows. ``shed``: the rows that are to be, ascending."""

    store: Store
    side: SideShape
    live: LiveRun
    kept: Arrangement
    run: OpenRun
    age: str | None
    group: int = 0
    is_copy: bool = False
    shed: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def stored(self) -> int:
        """How many rows stay, as it looks by now."""
        return self.live.stored - len(self.shed)

    def add(self, rows: Rows) -> None:
        """These are to be shed, too; each is retained so far."""
        self.shed = np.sort(np.concatenate([self.shed, rows]))

    def times(self, rows: Rows) -> Rows:
        """How old they are."""
        times: Rows = self.run.sorted_rows.times(self._age)[rows]
        return times

    def oldest(self, most: int) -> Rows:
        """The times of the so many oldest of its rows; of fewer, if it has no more."""
        first, times, count = self._first, [], 0
        while first < self.live.run.rows and count < most:
            rows = self.run.in_order(self._age, first, first + max(most, 1024))
            first += len(rows)
            rows = rows[self._stay(rows)]
            times.append(self.times(rows))
            count += len(rows)
        return np.sort(np.concatenate(times))[:most] if times else np.zeros(0, dtype=np.int64)

    def up_to(self, time: int) -> Rows:
        """Its rows with no later time."""
        rows = self.run.in_order(self._age, self._first, self.run.below(self._age, time + 1))
        return rows[self._stay(rows)]

    def every(self) -> Rows:
        """All of its rows."""
        rows = np.arange(self.live.run.rows)
        return rows[self._stay(rows)]

    def of_buckets(self, buckets: Slots) -> Rows:
        """The rows whose hashes have one of these upper halves, each named once; of buckets of other groups
        there are none. Cost: those rows, with the ones that are not there any more."""
        own = buckets - (self.group << BUCKET_BITS)
        buckets = own[(own >= -BUCKETS // 2) & (own < BUCKETS // 2)]
        slots, least = self.run.sorted_rows.slots, buckets << np.int64(TIME_BITS)
        first = np.searchsorted(slots, least, side="left")
        end = np.searchsorted(slots, least | TIME_MASK, side="right")
        rows = [rows[self._stay(rows)] for _, rows in expand(first, end)]
        return np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)

    def buckets(self, rows: Rows) -> Slots:
        """The upper halves of their hashes, beside the number of the group."""
        return (self.run.sorted_rows.slots[rows] >> np.int64(TIME_BITS)) + np.int64(self.group << BUCKET_BITS)

    def hashes(self, rows: Rows) -> Slots:
        """Whole hashes of their keys: what rows of a run are sorted by has lost the lower half."""
        names, batch = list(self.side.layout.key), self.run.sorted_rows.batch
        parts = [
            hash_columns([batch.column(name).take(pa.array(some)) for name in names], len(some))
            for some in self._taken(rows, names)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def written(self, reason: str, tick: int) -> Iterator[PadFile]:
        """Files of the rows that are shed, for the side output, with the columns that are kept of them."""
        for taken in self._taken(self.shed, self.side.schema.names):
            batch = take_rows(self.run.sorted_rows.batch, taken)
            told = [of for of in self.side.schema if not is_ours(of.name)]
            record = pa.StructArray.from_arrays(
                [self._native(batch, of) for of in told], names=[of.name for of in told]
            )
            nulls = [pa.nulls(len(record), kind) for kind in (pa.string(), pa.string(), pa.int64())]
            rows = pa.RecordBatch.from_arrays([record, *nulls], names=list(ASIDE_COLUMNS))
            file = write_aside(self.store, reason, tick, [rows])
            yield file.model_copy(update={"reason": reason})

    def _native(self, batch: pa.RecordBatch, of: pa.Field) -> pa.Array:
        """A column as it came; times of joined rows may be NULL."""
        array = to_native(batch.column(of.name), of.type)
        if of.name not in self.side.nullable:
            return array
        return pc.if_else(batch.column(null_column(of.name)), pa.scalar(None, of.type), array)

    @property
    def _age(self) -> str:
        assert self.age is not None
        return self.age

    @property
    def _first(self) -> int:
        """The place in the order of ages before which no row is retained."""
        passed = self.run.below(self._age, self.kept.limits.get(self._age, NEVER))
        return max(passed, self.live.cursors.get(self._age, 0))

    def _stay(self, rows: Rows) -> Mask:
        """Which of these rows are kept, and are not to be shed."""
        there: Mask = ~marks_at(self.store, "gone", self.live.marks.get("gone", ()), rows)
        for column in self.side.layout.releasing:
            there &= self.run.sorted_rows.times(column)[rows] >= self.kept.limits.get(column, NEVER)
        return there & (places_among(rows, self.shed) < 0)

    def _taken(self, rows: Rows, names: Sequence[str]) -> Iterator[Rows]:
        """The rows in order, as many at once as are to be held; a row may be larger than that."""
        batch, most = self.run.sorted_rows.batch, output_bytes(self.side.memory)
        for low in range(0, len(rows), TAKEN_AT_ONCE):
            some = rows[low : low + TAKEN_AT_ONCE]
            if rows_bound(batch, names, some) <= most:
                yield some
                continue
            for first, end in pairwise(cuts(row_sizes(batch, names, some), most)):
                yield some[first:end]
