"""Rows of one side of a node on their way into the state: held, sorted, written as runs.

Rows come as stored columns (see `state.runs.layout`): those of an input from ingest, those of a node
beneath from that node's tasks. At most ``flush_rows`` of them, of ``flush_bytes``, are held. Those that are
not retained are written as they come.

Of rows that an ASOF join looks for, it counts how many came before them, per source partition; these go into
runs of their own, so that the driver can say which partition's come first. Where they come in no order that a
repeated tick has again, a hash of the row stands in the place of that count.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from watersmeet.kernel.asof import CAME
from watersmeet.kernel.batches import cut_points, one_batch, same_rows, size, sizes
from watersmeet.kernel.slots import Slots, hash_columns, hash_rows
from watersmeet.runtime.messages.reports import PadFile
from watersmeet.runtime.messages.shapes import SideShape
from watersmeet.runtime.tasks.memory import RUN_BYTES, max_run_bytes
from watersmeet.state.runs.layout import Run
from watersmeet.state.runs.writer import sort_rows, write_run, write_sections
from watersmeet.state.store import Store

FLUSH_ROWS = 1_000_000
FLUSH_BYTES = RUN_BYTES

TICK_BITS = 34
"""``came`` is the tick in the upper bits, and how many rows of the tick came before in so many lower ones; or
the hash of the row."""

PlaceHashes = Callable[[Slots], Slots]
"""For tests: where in the hash space keys fall."""


class SideWriter:
    """Writer of the runs and pads of one side in one task.

    Args:
        place: the branch, and the number of the ingest task.
        index: index that sorts the runs.
        ordered: runs store the arrival order of their rows.
        lasting: the runs are state; otherwise they are changes, and tasks rewrite the rows to retain.
        tasks: approximate number of tasks that will read the runs, each its own part
            (`SideShape.ranged`).
    """

    def __init__(
        self,
        side: SideShape,
        store: Store,
        tick: int,
        flush_rows: int = FLUSH_ROWS,
        flush_bytes: int = FLUSH_BYTES,
        placing: PlaceHashes | None = None,
        place: tuple[int, int] = (0, 0),
        index: str | None = None,
        ordered: bool = False,
        lasting: bool = True,
        tasks: int = 1,
    ) -> None:
        self._ordered = ordered
        # A place in the order in which rows came is one within a run. And where nothing is fetched, nothing
        # is spared by fetching a part.
        is_cut = side.ranged and store.is_remote and not ordered
        self._tasks = tasks if is_cut else 1
        self._lasting = lasting
        self._side, self._store, self._tick = side, store, tick
        self._flush_rows, self._flush_bytes = flush_rows, min(flush_bytes, max_run_bytes(side.memory))
        self._rows = self._rows_out = 0
        self._placing = placing
        self._index = index
        self._place = place
        self._held: dict[str, list[tuple[pa.RecordBatch, Slots]]] = defaultdict(list)
        self._held_rows = self._held_bytes = 0
        self._came: dict[str, int] = defaultdict(int)
        self._out: list[pa.RecordBatch] = []
        self._out_rows = self._out_bytes = 0
        self.runs: list[Run] = []
        self.pads: list[PadFile] = []
        self._copies = [
            SideWriter(
                copy, store, tick, flush_rows, flush_bytes, placing, place, None, ordered, lasting, tasks
            )
            for copy in side.copies
        ]

    def take(self, rows: pa.RecordBatch, partition: str = "") -> None:
        """Add rows that may match to a run; rows of a passthrough side go to a file of emitted rows.

        Args:
            partition: source partition, if arrival order counts.
        """
        if self._side.passes:
            self.pad(rows)
            return
        for copy in self._copies:
            copy.take(rows, partition)
        if self._side.layout.ties is not None:
            rows = self._append_arrival_numbers(rows, partition)
        hashes = hash_columns([rows.column(name) for name in self._side.keys], rows.num_rows)
        if self._placing is not None:
            hashes = self._placing(hashes)
        self._rows += rows.num_rows
        for part, low, high, part_bytes in self._parts(rows):
            self._held[partition].append((part, hashes[low:high]))
            self._held_rows += part.num_rows
            self._held_bytes += part_bytes
            if self._held_rows >= self._flush_rows or self._held_bytes >= self._flush_bytes:
                self._flush()

    def pad(self, rows: pa.RecordBatch) -> None:
        """Add rows that are not retained and are emitted in this tick, for example pads."""
        self._rows_out += rows.num_rows
        for part, _, _, part_bytes in self._parts(rows):
            self._out.append(part)
            self._out_rows += part.num_rows
            self._out_bytes += part_bytes
            if self._out_rows >= self._flush_rows or self._out_bytes >= self._flush_bytes:
                self._flush_out()

    def _parts(self, rows: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, int, int, int]]:
        """Yield the rows in order in parts of at most ``flush_bytes``.

        Yields:
            (part, first row, end row, bytes).
        """
        held = size(rows.columns)
        if held <= self._flush_bytes:
            yield rows, 0, rows.num_rows, held
            return
        for low, high in pairwise(
            cut_points(sizes(rows.columns, np.arange(rows.num_rows)), self._flush_bytes)
        ):
            part = rows.slice(low, high - low)
            yield part, low, high, size(part.columns)

    def finish(self) -> tuple[list[Run], list[PadFile]]:
        """Write what is held."""
        self._flush()
        self._flush_out()
        same_rows("wrote runs", self._rows, sum(run.rows for run in self.runs))
        same_rows("wrote rows that go out", self._rows_out, sum(file.rows for file in self.pads))
        return self.runs, self.pads

    def copies(self) -> dict[str, list[Run]]:
        """Write the same rows as they are held in other ways; by the names of those sides."""
        return {copy._side.name: copy.finish()[0] for copy in self._copies}

    def _flush_out(self) -> None:
        if not self._out:
            return
        batches = [one_batch(self._out)] if self._out_bytes <= self._flush_bytes else self._out
        name = f"aside/pads-{self._tick}-{uuid.uuid4().hex[:16]}.arrow"
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, self._out[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        self._store.write(name, sink.getvalue(), lasting=False)
        self.pads.append(PadFile(name=name, rows=self._out_rows))
        self._out, self._out_rows, self._out_bytes = [], 0, 0

    def _flush(self) -> None:
        for partition, held in self._held.items():
            hashes = np.concatenate([hashes_of_batch for _, hashes_of_batch in held])
            batch = one_batch([rows for rows, _ in held])
            rows, order = sort_rows(batch, hashes, self._side.layout, self._index)
            branch, task = self._place
            is_counted = self._side.layout.ties is not None and self._side.in_order
            origin = (branch, partition, task) if is_counted else None
            layout = self._side.layout
            if (
                self._side.changes
            ):  # tasks store what the changes come to: nothing is released from these runs
                layout = replace(layout, releasing=(), watched=(), found_by=(), counts_keys=False)
            if self._tasks > 1:
                self.runs += write_sections(
                    self._store,
                    self._side.arrangement,
                    rows,
                    layout,
                    tick=self._tick,
                    tasks=self._tasks,
                    origin=origin,
                    lasting=self._lasting,
                )
                continue
            run = write_run(
                self._store,
                self._side.arrangement,
                rows,
                layout,
                tick=self._tick,
                origin=origin,
                arrival=order if self._ordered else None,
                lasting=self._lasting,
            )
            self.runs.append(run)
        self._held.clear()
        self._held_rows = self._held_bytes = 0

    def _append_arrival_numbers(self, rows: pa.RecordBatch, partition: str) -> pa.RecordBatch:
        first = self._tick << TICK_BITS
        if self._side.in_order:
            first += self._came[partition]
            self._came[partition] += rows.num_rows
            came = np.arange(first, first + rows.num_rows, dtype=np.int64)
        else:
            came = first + (hash_rows(rows.columns, rows.num_rows) & ((1 << TICK_BITS) - 1))
        return pa.RecordBatch.from_arrays([*rows.columns, pa.array(came)], names=[*rows.schema.names, CAME])
