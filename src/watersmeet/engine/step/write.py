"""Rows of one side of a join on their way into the state: held, sorted, written as runs.

Rows come as stored columns (see `state.run`): those of an input from ingest, those of a join beneath from
that join's tasks. At most ``flush_rows`` of them are held.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from watersmeet.engine.step.tasks import PadFile, SideTask
from watersmeet.kernel.hashing import hash_columns
from watersmeet.kernel.slots import Slots
from watersmeet.state.run import Run, sort_rows, write_run
from watersmeet.state.store import Store

FLUSH_ROWS = 1_000_000
FLUSH_BYTES = 256 << 20

Placing = Callable[[Slots], Slots]
"""For tests: where in the hash space keys fall."""


class SideWriter:
    """Writes the runs and pads of one side in one task. ``index``: by what runs are sorted."""

    def __init__(
        self,
        side: SideTask,
        store: Store,
        tick: int,
        flush_rows: int = FLUSH_ROWS,
        flush_bytes: int = FLUSH_BYTES,
        placing: Placing | None = None,
        index: str | None = None,
    ) -> None:
        self._side, self._store, self._tick = side, store, tick
        self._flush_rows, self._flush_bytes = flush_rows, flush_bytes
        self._placing = placing
        self._index = index
        self._held: list[tuple[pa.RecordBatch, Slots]] = []
        self._held_rows = self._held_bytes = 0
        self._pads: list[pa.RecordBatch] = []
        self.runs: list[Run] = []

    def hold(self, rows: pa.RecordBatch) -> None:
        """Rows that may match; they go into a run."""
        hashes = hash_columns([rows.column(name) for name in self._side.keys], rows.num_rows)
        if self._placing is not None:
            hashes = self._placing(hashes)
        self._held.append((rows, hashes))
        self._held_rows += rows.num_rows
        self._held_bytes += rows.nbytes
        if self._held_rows >= self._flush_rows or self._held_bytes >= self._flush_bytes:
            self._flush()

    def pad(self, rows: pa.RecordBatch) -> None:
        """Rows of a padded side that can match nothing: they are padded in this tick."""
        self._pads.append(rows)

    def finish(self) -> tuple[list[Run], list[PadFile]]:
        """Write what is held."""
        self._flush()
        if not self._pads:
            return self.runs, []
        table = pa.Table.from_batches(self._pads).combine_chunks()
        name = f"aside/pads-{self._tick}-{uuid.uuid4().hex[:16]}.arrow"
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        self._store.write(name, sink.getvalue())
        self._pads = []
        return self.runs, [PadFile(name=name, rows=table.num_rows)]

    def _flush(self) -> None:
        if not self._held:
            return
        table = pa.Table.from_batches([rows for rows, _ in self._held]).combine_chunks()
        hashes = np.concatenate([found for _, found in self._held])
        self._held, self._held_rows, self._held_bytes = [], 0, 0
        rows, _ = sort_rows(table.to_batches()[0], hashes, self._side.layout, self._index)
        run = write_run(self._store, self._side.arrangement, rows, self._side.layout, tick=self._tick)
        self.runs.append(run)
