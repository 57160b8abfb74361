"""What tables held that are read as a whole, where that follows from the state: of files, if they are now
what they were when they were read last, by their names, sizes and times of change, as the job itself tells.

Of a table that rows meet as of their tick this has to be what all of them have met: the copy that was met
last was made before the first row came. Which copies there were before it is not kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from watersmeet.cli.diff.read import Read
from watersmeet.engine.files.table_files import Entry, local_files, version_of
from watersmeet.errors import EngineError
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import LookupPlan, SnapshotPlan
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import local_path, path_of
from watersmeet.state.behind import tick_of
from watersmeet.state.manifest import Manifest, TableCopy
from watersmeet.why.ticks import TickHistory

NOT_KEPT = "what it held is not kept"


class WholeTables:
    """Of one job. ``read``: per source that is such a table, its files, where they are known."""

    def __init__(self, plan: JobPlan, manifest: Manifest | None, history: Callable[[], TickHistory]) -> None:
        self._manifest, self._history = manifest, history
        self.read: dict[str, Read] = {}
        self._refused: dict[tuple[str, str], str] = {}
        self._entries = {source.name: _listed(source) for source in plan.tables}
        told = [(query, node.source, self._why_not_met(query, node)) for query, node in plan.lookups]
        told += [(query, node.source, self._why_not_held(query, node)) for query, node in plan.compared]
        for query, source, why in told:
            if why is not None:
                self._refused[query.name, source.name] = why
        for source in plan.tables:
            entries = self._entries[source.name]
            if entries is None:
                continue
            files = [os.path.abspath(path) for path, _, _ in entries]
            urls = [Path(file).as_uri() for file in files]
            self.read[source.name] = Read(source, [f"file:{file}" for file in files], urls)

    def refused(self, query: str, source: str) -> str | None:
        """Why it is not known what rows of a query have met, or were made of; None: it is."""
        return self._refused.get((query, source))

    def _why_not_held(self, query: QueryPlan, node: SnapshotPlan) -> str | None:
        entries, copy = self._entries[node.source.name], self._copy(query, node.number)
        if entries is None or copy is None:
            return NOT_KEPT
        return None if entries and copy.version.partition(" ")[0] == version_of(entries) else _CHANGED

    def _why_not_met(self, query: QueryPlan, node: LookupPlan) -> str | None:
        entries, copy = self._entries[node.source.name], self._copy(query, node.number)
        if entries is None or copy is None:
            return NOT_KEPT
        version = version_of(entries)
        if copy.version != f"{node.table_fingerprint} {version}":
            return _CHANGED
        ticks = [tick_of(run.name) for run in copy.runs]
        if not ticks or None in ticks:
            return NOT_KEPT
        first = min(tick for tick in ticks if tick is not None)
        if first > 1 and not self._nothing_came_before(first, query, node):
            return f"before tick {first} it held something else, and {NOT_KEPT}"
        return None

    def _copy(self, query: QueryPlan, node: int) -> TableCopy | None:
        state = None if self._manifest is None else self._manifest.queries.get(query.name)
        return None if state is None else state.nodes[node].table

    def _nothing_came_before(self, tick: int, query: QueryPlan, node: LookupPlan) -> bool:
        """Whether it is known that no row of the query's streams came before a tick."""
        history = self._history()
        if list(history.ticks[: tick - 1]) != list(range(1, tick)):
            return False
        streams = {branch.source.name for side in query.sides for _, branch in side.sources}
        rows = [history.rows_in(name)[: tick - 1] for name in streams - {node.source.name}]
        return not any(map(any, rows))


_CHANGED = f"its files are not those that were read last, and {NOT_KEPT}"


def _listed(source: Source) -> list[Entry] | None:
    """The files of a table; None: they cannot be listed in this process, or are no plain ones."""
    path = local_path(path_of(source.options)) if source.traits.files else None
    if path is None:
        return None
    try:
        entries = local_files(source, path)
    except EngineError:
        return None
    return None if any("=" in name for name, _, _ in entries) else entries
