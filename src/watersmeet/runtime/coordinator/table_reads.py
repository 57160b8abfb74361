"""Decide when tables that are read as a whole are read again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pydantic import Field

from watersmeet.errors import EngineError
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.model.nodes import LookupPlan, SnapshotPlan
from watersmeet.runtime.messages.shapes import NodeShape, SideShape
from watersmeet.runtime.messages.work import SNAPSHOTS, NodeWork, TickStart, read_work
from watersmeet.runtime.tasks.ingest import compute_flags
from watersmeet.runtime.tasks.run_writer import PlaceHashes, SideWriter
from watersmeet.spec.flags import FLAG_CANDIDATE
from watersmeet.spec.model import Source
from watersmeet.state.checksums import add_checksum, verify_checksum
from watersmeet.state.manifest import Manifest, TableCopy
from watersmeet.state.runs.layout import Run
from watersmeet.state.runs.reader import verify_run
from watersmeet.state.store import Store
from watersmeet.state.stored_record import StoredRecord

# Tables that rows meet as of their tick: when they are read, and what a tick decided about them.
#
# A table is copied into runs, as rows of a side are, and looked up there. The copy stays until the table
# is known or supposed to have changed; it is read in ticks alone in which rows come to meet it. The copy
# that a tick uses is named in the tick's work file before any row goes out: an attempt that repeats the
# tick takes the same one, so that its rows are the same, whatever became of the table.


class TableReader(Protocol):
    """Interface by which an engine reads a table."""

    def version(self) -> str | None:
        """Return a text that changes with the contents, found without reading them; None if unknown."""

    def read(self, side: SideShape, store: Store, tick: int, placing: PlaceHashes | None) -> list[Run]:
        """Copy the table as it is now."""


class TableWriter:
    """Writes the copy of a table, or a part of it, in one task."""

    def __init__(self, side: SideShape, store: Store, tick: int, placing: PlaceHashes | None = None) -> None:
        self._side = side
        self._writer = SideWriter(side, store, tick, placing=placing)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows: the stored columns in native types, and `FLAG`.

        Rows that cannot match anything are left out.
        """
        flags = compute_flags(rows, self._side.not_null)
        if (flags != FLAG_CANDIDATE).any():
            rows = rows.filter(pa.array(flags == FLAG_CANDIDATE))
        if rows.num_rows:
            chosen = [rows.column(name) for name in self._side.schema.names]
            self._writer.take(pa.RecordBatch.from_arrays(chosen, schema=self._side.schema))

    def finish(self) -> list[Run]:
        return self._writer.finish()[0]


class Tables:
    """Table copies of one driver.

    Args:
        readers: the reader per ``query/alias``.
    """

    def __init__(self, readers: Mapping[str, TableReader]) -> None:
        self._readers = readers
        self._decided: dict[tuple[int, int], TableCopy] = {}

    def repeat(self, store: Store, tick: int) -> None:
        """Load the table copies that an earlier run used in ``tick``.

        That run may have published rows, so the rows of the repeated tick join with the same copies.
        """
        for name in store.names("work"):
            if name.startswith(f"work/{tick}-") and not name.endswith(SNAPSHOTS):
                table = read_work(store, name).table
                if table is not None:
                    for run in table.runs:
                        verify_run(store, run)
                    query, node = name.removesuffix(".json").split("-")[-2:]
                    self._decided[int(query), int(node)] = table

    def committed(self) -> None:
        """Forget the copies of the committed tick: no run repeats it."""
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
        """Return the copy that the tick's rows join with: ``before`` of the last tick, or a new one.

        Args:
            arrangement: ``query/alias`` of the table.
            place: the numbers of query and node.
            work: the work of the node; the table is not read if it has no rows to look up.
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


# Tables that are compared with what they held before: when they are read, and what a tick decided of
# them.
#
# All that a job reads of a table in a tick is one reading, whatever joins it, so that all results are of
# one state of it. What was read, or that nothing was, is in a file of the tick before any row goes out:
# an attempt that repeats the tick compares the same.


class SnapshotReader(Protocol):
    """Interface by which an engine reads a table that is compared with its previous contents."""

    def version(self) -> str | None:
        """Return a text that changes with the contents, found without reading them; None if unknown."""

    def read(
        self, sides: Sequence[SideShape], store: Store, tick: int, placing: PlaceHashes | None
    ) -> list[list[Run]] | None:
        """Copy the current contents of the table, for all sides at once.

        Returns:
            Runs for each side; None if the contents cannot be determined, and the rows stay as they were.
        """


class SnapshotRead(StoredRecord):
    """Result of reading a compared table in a tick.

    Attributes:
        copy: the table as a side has it in this tick.
        anew: True if the table was read in this tick and its contents differ from the previous ones, as far
            as this is known without comparing.
    """

    copy_: TableCopy = Field(alias="copy")
    anew: bool


class _ReadInTick(StoredRecord):
    """Tables that an attempt at a tick has read.

    Attributes:
        settings: digest of the run's settings.
        taken: results by arrangement.
    """

    settings: str
    taken: dict[str, SnapshotRead] = Field(default_factory=dict)


@dataclass(frozen=True)
class _SnapshotSide:
    """A side that compares a table with its previous contents.

    Attributes:
        before: the table as last read; None if it was never read.
    """

    node: SnapshotPlan
    side: SideShape
    before: TableCopy | None


class Snapshots:
    """Tables of one driver that are compared with their previous contents.

    Args:
        readers: the reader per source.
        shapes: the shapes of the nodes, per query.
    """

    def __init__(
        self, readers: Mapping[str, SnapshotReader], plan: JobPlan, shapes: Mapping[str, Sequence[NodeShape]]
    ) -> None:
        self._readers = readers
        self._nodes = [
            (query.name, node, shapes[query.name][node.number].sides[0]) for query, node in plan.compared
        ]
        self._decided: dict[str, SnapshotRead] | None = None

    def _sides(self, manifest: Manifest | None) -> list[_SnapshotSide]:
        states = {} if manifest is None else manifest.queries
        return [
            _SnapshotSide(node, side, states[query].nodes[node.number].table if query in states else None)
            for query, node, side in self._nodes
        ]

    def repeat(self, store: Store, tick: int, settings: str) -> None:
        """Load the contents that an earlier run read in ``tick``, if that run had the same settings.

        That run may have published rows, so the repeated tick compares the same contents. If the settings
        differ, nothing is published.
        """
        for name in _list_snapshot_files(store, tick):
            told = _ReadInTick.model_validate_json(verify_checksum(name, bytes(store.read(name))))
            if told.settings != settings:
                continue
            for taken in told.taken.values():
                for run in taken.copy_.runs if taken.anew else ():
                    verify_run(store, run)
            self._decided = told.taken

    def committed(self) -> None:
        """Forget the contents read for the committed tick: no run repeats it."""
        self._decided = None

    def is_due(self, manifest: Manifest | None, clock_us: int) -> bool:
        """Return True if a tick at this clock would read a table that may have changed."""
        return any(
            _is_due(c, clock_us) and _has_changed(c, self._readers[c.node.source.name].version())
            for c in self._sides(manifest)
        )

    def take(
        self,
        manifest: Manifest | None,
        store: Store,
        start: TickStart,
        placing: PlaceHashes | None,
        settings: str,
    ) -> Mapping[str, SnapshotRead]:
        """Read what each side of the job compares in this attempt at a tick; call it only once.

        Args:
            manifest: the manifest of the last tick.
            settings: a digest of the run's settings.

        Returns:
            The contents, by arrangement.
        """
        if self._decided is not None:
            return self._decided
        sides, taken = self._sides(manifest), dict[str, SnapshotRead]()
        for source in dict.fromkeys(compared.node.source.name for compared in sides):
            own = [compared for compared in sides if compared.node.source.name == source]
            taken |= self._read_table_if_changed(
                self._readers[source], own, store, start.tick, start.clock_us, placing
            )
        for name in _list_snapshot_files(store, start.tick):  # of attempts of which nothing can be out
            store.delete(name)
        name = f"work/{start.tick}-{start.attempt}{SNAPSHOTS}"
        told = _ReadInTick(taken=taken, settings=settings)
        store.write(name, add_checksum(name, told.model_dump_json()))
        return taken

    def _read_table_if_changed(
        self,
        reader: SnapshotReader,
        sides: Sequence[_SnapshotSide],
        store: Store,
        tick: int,
        clock_us: int,
        placing: PlaceHashes | None,
    ) -> dict[str, SnapshotRead]:
        """Read one table for all its sides, unless their previous contents are still valid."""
        before = {c.side.arrangement: c.before for c in sides if c.before is not None}
        complete = len(before) == len(sides)
        kept = {name: SnapshotRead(copy=copy, anew=False) for name, copy in before.items()}
        if complete and not any(_is_due(c, clock_us) for c in sides):
            return kept
        version = reader.version()
        looked = {
            name: SnapshotRead(copy=copy.model_copy(update={"looked_us": clock_us}), anew=False)
            for name, copy in before.items()
        }
        if complete and not any(_has_changed(c, version) for c in sides):
            return looked
        read = reader.read([c.side for c in sides], store, tick, placing)
        if read is None:
            if complete:
                return looked
            raise _no_files_error(sides[0].node.source)
        return {
            c.side.arrangement: SnapshotRead(
                copy=TableCopy(version=_version(version, runs), looked_us=clock_us, runs=runs), anew=True
            )
            for c, runs in zip(sides, read, strict=True)
        }


def _list_snapshot_files(store: Store, tick: int) -> list[str]:
    return [
        name for name in store.names("work") if name.startswith(f"work/{tick}-") and name.endswith(SNAPSHOTS)
    ]


def _is_due(compared: _SnapshotSide, clock_us: int) -> bool:
    source, before = compared.node.source, compared.before
    refresh_us = source.traits.refresh_us if source.refresh_us is None else source.refresh_us
    # Below 0: the clock was set back.
    return before is None or not 0 <= clock_us - before.looked_us < (refresh_us or 0)


def _has_changed(compared: _SnapshotSide, version: str | None) -> bool:
    before = compared.before
    return before is None or version is None or before.version.partition(" ")[0] != version


def _version(version: str | None, runs: Sequence[Run]) -> str:
    """Combine the version found without reading and a digest of the runs' checksums."""
    content = hashlib.blake2b(repr([run.checksum for run in runs]).encode(), digest_size=8).hexdigest()
    return f"{'' if version is None else version} {content}"


def _no_files_error(source: Source) -> EngineError:
    return EngineError(
        f'table "{source.name}" has no file, so its rows are unknown',
        code="table-without-files",
        hint="write a file without rows if the table is empty",
    )
