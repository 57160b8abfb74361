"""Tables that rows meet as of their tick: when they are read, and what a tick decided about them.

A table is copied into runs, as rows of a side are, and looked up there. The copy stays until the table is
known or supposed to have changed; it is read in ticks alone in which rows come to meet it. The copy that a
tick uses is named in the tick's work file before any row goes out: an attempt that repeats the tick takes the
same one, so that its rows are the same, whatever became of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import pyarrow as pa

from watersmeet.engine.messages.shapes import SideShape
from watersmeet.engine.messages.work import SNAPSHOTS, NodeWork, read_work
from watersmeet.engine.tasks.flags import flags_of
from watersmeet.engine.tasks.write import Placing, SideWriter
from watersmeet.plan.model.nodes import LookupPlan
from watersmeet.spec.flags import FLAG_CANDIDATE
from watersmeet.state.manifest import TableCopy
from watersmeet.state.runs.opened import verify_run
from watersmeet.state.runs.run import Run
from watersmeet.state.store import Store


class TableReader(Protocol):
    """How an engine reads a table."""

    def version(self) -> str | None:
        """By what its content is known without reading it: other content, another text. None: by nothing."""

    def read(self, side: SideShape, store: Store, tick: int, placing: Placing | None) -> list[Run]:
        """Copy the table as it is now."""


class TableWriter:
    """Writes the copy of a table, or a part of it, in one task."""

    def __init__(self, side: SideShape, store: Store, tick: int, placing: Placing | None = None) -> None:
        self._side = side
        self._writer = SideWriter(side, store, tick, placing=placing)

    def add(self, rows: pa.RecordBatch) -> None:
        """The kept columns in native types, and `FLAG`, where some rows can match nothing: those are left
        out."""
        flags = flags_of(rows, self._side.not_null)
        if (flags != FLAG_CANDIDATE).any():
            rows = rows.filter(pa.array(flags == FLAG_CANDIDATE))
        if rows.num_rows:
            chosen = [rows.column(name) for name in self._side.schema.names]
            self._writer.take(pa.RecordBatch.from_arrays(chosen, schema=self._side.schema))

    def finish(self) -> list[Run]:
        return self._writer.finish()[0]


class Tables:
    """Of one driver. ``readers``: per ``query/alias``."""

    def __init__(self, readers: Mapping[str, TableReader]) -> None:
        self._readers = readers
        self._decided: dict[tuple[int, int], TableCopy] = {}

    def repeat(self, store: Store, tick: int) -> None:
        """``tick`` was begun by an earlier run, which may have put rows out: they meet what they met then."""
        for name in store.names("work"):
            if name.startswith(f"work/{tick}-") and not name.endswith(SNAPSHOTS):
                table = read_work(store, name).table
                if table is not None:
                    for run in table.runs:
                        verify_run(store, run)
                    query, node = name.removesuffix(".json").split("-")[-2:]
                    self._decided[int(query), int(node)] = table

    def committed(self) -> None:
        """A tick is done: nobody repeats it."""
        self._decided = {}

    def as_of(
        self,
        arrangement: str,
        place: tuple[int, int],
        node: LookupPlan,
        work: NodeWork,
        before: TableCopy | None,
        clock_us: int,
        read: Callable[[TableReader], list[Run]],
    ) -> TableCopy | None:
        """The copy that the tick's rows meet: ``before``, that of the last tick, or a new one.

        Args:
            arrangement: ``query/alias`` of the table.
            place: numbers of query and node.
            work: of the node; without rows to be looked up, nothing is read.
            read: reads the table.
        """
        if place in self._decided:
            return self._decided[place]
        if not work.sides[0].new_runs:
            return before
        if before is not None and not before.version.startswith(node.table_fingerprint):
            before = None
        refresh_us = node.source.refresh_us
        if refresh_us is None:
            refresh_us = node.source.traits.refresh_us or 0
        if before is not None and 0 <= clock_us - before.looked_us < refresh_us:  # below 0: it was set back
            return before
        reader = self._readers[arrangement]
        rows_version = reader.version()
        version = f"{node.table_fingerprint} {'' if rows_version is None else rows_version}"
        if before is not None and rows_version is not None and before.version == version:
            return before.model_copy(update={"looked_us": clock_us})
        return TableCopy(version=version, looked_us=clock_us, runs=read(reader))
