"""Tables that are compared with what they held before: when they are read, and what a tick decided of them.

All that a job reads of a table in a tick is one reading, whatever joins it, so that all results are of one
state of it. What was read, or that nothing was, is in a file of the tick before any row goes out: an attempt
that repeats the tick compares the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import Field

from watersmeet.engine.messages.shapes import NodeShape, SideShape
from watersmeet.engine.messages.work import SNAPSHOTS, TickStart
from watersmeet.engine.tasks.write import Placing
from watersmeet.errors import EngineError
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.model.nodes import SnapshotPlan
from watersmeet.spec.model import Source
from watersmeet.state.manifest import Manifest, TableCopy
from watersmeet.state.record import Record
from watersmeet.state.runs.opened import verify_run
from watersmeet.state.runs.run import Run
from watersmeet.state.sealed import sealed, unsealed
from watersmeet.state.store import Store


class SnapshotReader(Protocol):
    """How an engine reads a table that is compared."""

    def version(self) -> str | None:
        """By what its content is known without reading it: other content, another text. None: by nothing."""

    def read(
        self, sides: Sequence[SideShape], store: Store, tick: int, placing: Placing | None
    ) -> list[list[Run]] | None:
        """Copy the table as it is now, for all sides at once; None: what is there says nothing of its
        rows, and they stay as they were."""


class Reading(Record):
    """``copy``: the table as a side has it in this tick; ``anew``: it was read in this tick, and has other
    content than before, as far as is known without comparing."""

    copy_: TableCopy = Field(alias="copy")
    anew: bool


class _ReadInTick(Record):
    """Per arrangement. ``settings``: how the run was set (a digest)."""

    settings: str
    taken: dict[str, Reading] = Field(default_factory=dict)


@dataclass(frozen=True)
class _Compared:
    """A side of the job that is such a table, with what it was when it was read last (None: never)."""

    node: SnapshotPlan
    side: SideShape
    before: TableCopy | None


class Snapshots:
    """Of one driver. ``readers``: per source; ``shapes``: per query, of its nodes."""

    def __init__(
        self, readers: Mapping[str, SnapshotReader], plan: JobPlan, shapes: Mapping[str, Sequence[NodeShape]]
    ) -> None:
        self._readers = readers
        self._nodes = [
            (query.name, node, shapes[query.name][node.number].sides[0]) for query, node in plan.compared
        ]
        self._decided: dict[str, Reading] | None = None

    def _sides(self, manifest: Manifest | None) -> list[_Compared]:
        states = {} if manifest is None else manifest.queries
        return [
            _Compared(node, side, states[query].nodes[node.number].table if query in states else None)
            for query, node, side in self._nodes
        ]

    def repeat(self, store: Store, tick: int, settings: str) -> None:
        """``tick`` was begun by an earlier run, which may have put rows out: it compares what that one read,
        if that was set in the same way. If it was not, nothing is out."""
        for name in _files(store, tick):
            told = _ReadInTick.model_validate_json(unsealed(name, bytes(store.read(name))))
            if told.settings != settings:
                continue
            for taken in told.taken.values():
                for run in taken.copy_.runs if taken.anew else ():
                    verify_run(store, run)
            self._decided = told.taken

    def committed(self) -> None:
        """A tick is done: nobody repeats it."""
        self._decided = None

    def is_due(self, manifest: Manifest | None, clock_us: int) -> bool:
        """Whether a tick at this clock would read a table, which may have changed since."""
        return any(
            _is_due(c, clock_us) and _has_changed(c, self._readers[c.node.source.name].version())
            for c in self._sides(manifest)
        )

    def take(
        self,
        manifest: Manifest | None,
        store: Store,
        start: TickStart,
        placing: Placing | None,
        settings: str,
    ) -> Mapping[str, Reading]:
        """What each side of the job compares in this attempt at a tick, by its arrangement. Ask once.

        Args:
            manifest: of the tick before.
            settings: how the run is set (a digest).
        """
        if self._decided is not None:
            return self._decided
        sides, taken = self._sides(manifest), dict[str, Reading]()
        for source in dict.fromkeys(compared.node.source.name for compared in sides):
            own = [compared for compared in sides if compared.node.source.name == source]
            taken |= self._taken(self._readers[source], own, store, start.tick, start.clock_us, placing)
        for name in _files(store, start.tick):  # of attempts of which nothing can be out
            store.delete(name)
        name = f"work/{start.tick}-{start.attempt}{SNAPSHOTS}"
        told = _ReadInTick(taken=taken, settings=settings)
        store.write(name, sealed(name, told.model_dump_json()))
        return taken

    def _taken(
        self,
        reader: SnapshotReader,
        sides: Sequence[_Compared],
        store: Store,
        tick: int,
        clock_us: int,
        placing: Placing | None,
    ) -> dict[str, Reading]:
        """Of all sides that are one table."""
        before = {c.side.arrangement: c.before for c in sides if c.before is not None}
        complete = len(before) == len(sides)
        kept = {name: Reading(copy=copy, anew=False) for name, copy in before.items()}
        if complete and not any(_is_due(c, clock_us) for c in sides):
            return kept
        version = reader.version()
        looked = {
            name: Reading(copy=copy.model_copy(update={"looked_us": clock_us}), anew=False)
            for name, copy in before.items()
        }
        if complete and not any(_has_changed(c, version) for c in sides):
            return looked
        read = reader.read([c.side for c in sides], store, tick, placing)
        if read is None:
            if complete:
                return looked
            raise _says_nothing(sides[0].node.source)
        return {
            c.side.arrangement: Reading(
                copy=TableCopy(version=_version(version, runs), looked_us=clock_us, runs=runs), anew=True
            )
            for c, runs in zip(sides, read, strict=True)
        }


def _files(store: Store, tick: int) -> list[str]:
    return [
        name for name in store.names("work") if name.startswith(f"work/{tick}-") and name.endswith(SNAPSHOTS)
    ]


def _is_due(compared: _Compared, clock_us: int) -> bool:
    source, before = compared.node.source, compared.before
    refresh_us = source.traits.refresh_us if source.refresh_us is None else source.refresh_us
    # Below 0: the clock was set back.
    return before is None or not 0 <= clock_us - before.looked_us < (refresh_us or 0)


def _has_changed(compared: _Compared, version: str | None) -> bool:
    before = compared.before
    return before is None or version is None or before.version.partition(" ")[0] != version


def _version(version: str | None, runs: Sequence[Run]) -> str:
    """What is known of the content without reading it, and what the runs say of it."""
    content = hashlib.blake2b(repr([run.checksum for run in runs]).encode(), digest_size=8).hexdigest()
    return f"{'' if version is None else version} {content}"


def _says_nothing(source: Source) -> EngineError:
    return EngineError(
        f'table "{source.name}" has no file, so its rows are unknown',
        code="table-without-files",
        hint="write a file without rows if the table is empty",
    )
