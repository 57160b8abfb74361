"""Rows that a job has read of its sources, by its state."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from watersmeet.cli.why.sources import FILES
from watersmeet.errors import EngineError, SpecError, StateError, format_count, near_names
from watersmeet.history.reader import read as past_of
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import LookupPlan, SnapshotPlan
from watersmeet.plan.query_inputs import needed_source_columns
from watersmeet.regular_files import named_files
from watersmeet.runtime.files.listing import reader_path, to_local_path
from watersmeet.runtime.files.table_files import Entry, digest_listing, list_local_files
from watersmeet.runtime.spark.checkpoint.spark_positions import NOTHING_READ, load_end_offsets
from watersmeet.runtime.spark.sources.files.reread import tick_order_text
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import local_path, path_of
from watersmeet.state import file_lists
from watersmeet.state.file_lists import FileRead
from watersmeet.state.garbage_collection import tick_of
from watersmeet.state.manifest import Manifest, TableCopy
from watersmeet.state.store import Store
from watersmeet.why.ticks import TickHistory, tick_history

# In which order the files of a source counted: those of an earlier tick first, and those of one tick by
# their times of change and their names (`tick_order_text`).
#
# A tick may have read several places of Spark's log of the source, as after a crash; which, the history
# says. Where that is not known, and where a file was listed with another time of change than it had when
# it was read, more than one order is possible.

_MS_NS = 1_000_000

Orders = list[list[int]]
"""Per possible order the rank of each file; files that are in no order in it have the same."""


def orders_of(
    files: Sequence[FileRead], source: str, part: str, history: Callable[[], TickHistory]
) -> Orders:
    """Return all orders in which the files may have been read.

    Args:
        part: Part of the source by which the history records how far files were read.
        history: Function that loads the history; called only where it makes a difference.
    """
    alone = {file.batch: file.batch for file in files}
    orders = _rank_places(files, [alone, dict.fromkeys(alone, 0)])
    if len(orders) == 1:
        return orders
    told = history()
    if not len(told):
        return orders
    steps = sorted(alone)
    apart, together = [0], [0]
    for one, other in pairwise(steps):
        first, second = (told.slot_of(source, part, step) for step in (one, other))
        ended = first is not None and told.is_after_slot_before(source, part, other, first[0] + 1)
        is_one = first is not None and first == second and first[1]
        apart.append(apart[-1] + (not is_one))
        together.append(together[-1] + ended)
    return _rank_places(files, [dict(zip(steps, own, strict=True)) for own in (apart, together)])


def _rank_places(files: Sequence[FileRead], ticks: Iterable[dict[int, int]]) -> Orders:
    """Rank the files for each assignment of places to ticks and each possible time of the files.

    Args:
        ticks: Possible assignments of a place to the tick that read it.
    """
    orders: Orders = []
    times = [[file.time_ms for file in files], [file.changed_ns // _MS_NS for file in files]]
    for of_step in ticks:
        for changed in times:
            keys = [
                (of_step[file.batch], tick_order_text(file, time_ms))
                for file, time_ms in zip(files, changed, strict=True)
            ]
            ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
            order = [ranks[key] for key in keys]
            if order not in orders:
                orders.append(order)
    return orders


# What a job has read of its sources, by its state: files, offsets of topics; or files that were named.


@dataclass(frozen=True)
class SourceFiles:
    """Files or offsets that were read from one source.

    Args:
        files: In the order in which they were read, in the form that Spark's readers accept.
        urls: The names of the same files as URLs.
        ends: For each topic and partition, the offset after the last record read.
        named: True if the files were named for the comparison, so it is unknown which were read.
        changed: Files that were changed since.
        gone: Files that no longer exist, and so are not in ``files``.
        batches: The batch in which each file was read; one tick reads all files of a batch.
        orders: Orders in which the files of a table with a primary key may count (`orders_of`).
        asked: Columns that the job reads. A text there that is longer than its VARCHAR(n) makes its
            record invalid.
    """

    source: Source
    files: Sequence[str] = ()
    urls: Sequence[str] = ()
    ends: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    named: bool = False
    changed: Sequence[str] = ()
    gone: Sequence[str] = ()
    batches: Sequence[int] = ()
    orders: Sequence[Sequence[int]] = ()
    asked: frozenset[str] = frozenset()

    @property
    def local_files(self) -> list[str] | None:
        """Paths for the operating system; None if not all files are local."""
        files = [to_local_path(file) for file in self.files]
        return None if None in files else [file for file in files if file is not None]

    def notes(self) -> list[str]:
        """Return notes for the user about files that changed or disappeared since they were read."""
        notes = []
        for one, several, files in (
            ("was changed since it was", "were changed since they were", self.changed),
            ("is gone since it was", "are gone since they were", self.gone),
        ):
            if files:
                notes.append(
                    f"{self.source.name}: {format_count(len(files), 'file')} "
                    f"{several if files[1:] else one} read:"
                    f" {', '.join(files[:3])}{', …' if files[3:] else ''}"
                )
        return notes


def collect_source_files(
    plan: JobPlan,
    manifest: Manifest | None,
    store: Store,
    named: Mapping[str, str],
    history: Callable[[], TickHistory],
    *,
    keeps_late: bool = False,
) -> dict[str, SourceFiles]:
    """Collect the files or offsets of each source that is read as a stream.

    Args:
        named: Files that the user named per source: a file, a directory, or a pattern.
        history: Function that loads the history; called only where it makes a difference.
        keeps_late: True if the job stores late rows with all of their columns.

    Raises:
        SpecError: A name is not a source's, a file does not exist, or nothing records what was read.
        StateError: The state belongs to other sources.
    """
    sources = {source.name: source for source in plan.sources}
    for name in named:
        if name not in sources:
            raise SpecError(
                f'--input {name}: the job has no stream "{name}"',
                code="wrong-option",
                hint=near_names(name, sources),
            )
    if manifest is not None and manifest.sources != [source.name for source in plan.sources]:
        raise StateError(
            "the state belongs to other sources, or to the same ones in another order",
            code="sources-changed",
            hint="pass the job's text with which the state was made",
        )
    by_number: dict[int, list[file_lists.FileRead]] = {}
    if manifest is not None:
        for file in file_lists.read(store, file_lists.lists_of(manifest.host)):
            if file.batch >= 0:  # others were found changed or gone: they are told of once more
                by_number.setdefault(file.source, []).append(file)
    read = {
        source.name: _read_named_files(source, named[source.name])
        if source.name in named
        else _read_recorded_files(source, number, manifest, by_number.get(number, []), history)
        for number, source in enumerate(plan.sources)
    }
    return {
        name: replace(of, asked=_needed_columns(plan, of.source, keeps_late)) for name, of in read.items()
    }


def _needed_columns(plan: JobPlan, source: Source, keeps_late: bool) -> frozenset[str]:
    if keeps_late:
        return frozenset(column.name for column in source.columns)
    sides = [side for query in plan.queries for side in query.sides]
    branches = [branch for side in sides for _, branch in side.sources if branch.source.name == source.name]
    return needed_source_columns(source, branches)


def _read_named_files(source: Source, path: str) -> SourceFiles:
    files = [os.path.abspath(file) for file in named_files(path)]
    if not files:
        raise SpecError(
            f"--input {source.name}: no file exists at {path}",
            code="path-missing",
            hint="name a file, a directory of files, or a pattern such as 'orders/*.parquet'",
        )
    return SourceFiles(
        source, [f"file:{file}" for file in files], [Path(file).as_uri() for file in files], named=True
    )


def _read_recorded_files(
    source: Source,
    number: int,
    manifest: Manifest | None,
    files: Sequence[file_lists.FileRead],
    history: Callable[[], TickHistory],
) -> SourceFiles:
    if manifest is None:
        raise SpecError(
            f'the job has read no rows of "{source.name}" yet: no tick is committed',
            code="no-state",
            hint="run the job first, or name its checkpoint directory (--checkpoint DIR), or the rows:"
            f" --input {source.name}=FILES",
        )
    if source.traits.files:
        there: list[tuple[str, file_lists.FileRead]] = []
        changed, gone = [], []
        for file in files:
            local = to_local_path(file.path)
            if local is not None and file.size >= 0:
                try:
                    now = os.stat(local)
                except OSError:
                    gone.append(local)
                    continue
                if (now.st_size, now.st_mtime_ns) != (file.size, file.changed_ns):
                    changed.append(local)
            path = reader_path(file)
            if path is None:
                gone.append(file.path)
            else:
                there.append((path, file))
        paths, read = [path for path, _ in there], [file for _, file in there]
        orders: Orders = []
        if source.primary_key is not None:
            orders = orders_of(read, source.name, FILES, history)
        return SourceFiles(
            source,
            paths,
            [file.path for file in read],
            changed=changed,
            gone=gone,
            batches=[file.batch for file in read],
            orders=orders,
        )
    if source.traits.log:
        texts = load_end_offsets(manifest.host)
        text = NOTHING_READ if texts is None else texts[number]
        ends = {} if text == NOTHING_READ else json.loads(text)
        return SourceFiles(source, ends=ends if isinstance(ends, dict) else {})
    raise SpecError(
        f'"{source.name}" cannot be read again, because it is {source.traits.called}',
        code="not-compared",
        hint=f"pass the rows that it gave with --input {source.name}=FILES",
    )


def history_of(store: Store, tick: int) -> TickHistory:
    """Load the history of the ticks up to that of the state."""
    return tick_history(past_of(store), tick)


# What tables held that are read as a whole, where that follows from the state: of files, if they are now
# what they were when they were read last, by their names, sizes and times of change, as the job itself
# tells.
#
# Of a table that rows meet as of their tick this has to be what all of them have met: the copy that was
# met last was made before the first row came. Which copies there were before it is not kept.

NOT_RETAINED = "what it held is not kept"


class WholeTables:
    """Tables of one job that are read as a whole.

    Args:
        read: Files of each such table, where they are known.
    """

    def __init__(self, plan: JobPlan, manifest: Manifest | None, history: Callable[[], TickHistory]) -> None:
        self._manifest, self._history = manifest, history
        self.read: dict[str, SourceFiles] = {}
        self._refused: dict[tuple[str, str], str] = {}
        self._entries = {source.name: _list_table_files(source) for source in plan.tables}
        told = [(query, node.source, self._unmatched_reason(query, node)) for query, node in plan.lookups]
        told += [(query, node.source, self._unknown_reason(query, node)) for query, node in plan.compared]
        for query, source, why in told:
            if why is not None:
                self._refused[query.name, source.name] = why
        for source in plan.tables:
            entries = self._entries[source.name]
            if entries is None:
                continue
            files = [os.path.abspath(path) for path, _, _ in entries]
            urls = [Path(file).as_uri() for file in files]
            self.read[source.name] = SourceFiles(source, [f"file:{file}" for file in files], urls)

    def refused(self, query: str, source: str) -> str | None:
        """Return why the table rows that a query used are unknown; None if they are known."""
        return self._refused.get((query, source))

    def _unknown_reason(self, query: QueryPlan, node: SnapshotPlan) -> str | None:
        entries, copy = self._entries[node.source.name], self._copy(query, node.number)
        if entries is None or copy is None:
            return NOT_RETAINED
        return None if entries and copy.version.partition(" ")[0] == digest_listing(entries) else _CHANGED

    def _unmatched_reason(self, query: QueryPlan, node: LookupPlan) -> str | None:
        entries, copy = self._entries[node.source.name], self._copy(query, node.number)
        if entries is None or copy is None:
            return NOT_RETAINED
        version = digest_listing(entries)
        if copy.version != f"{node.table_fingerprint} {version}":
            return _CHANGED
        ticks = [tick_of(run.name) for run in copy.runs]
        if not ticks or None in ticks:
            return NOT_RETAINED
        first = min(tick for tick in ticks if tick is not None)
        if first > 1 and not self._is_first_input(first, query, node):
            return f"before tick {first} it held something else, and {NOT_RETAINED}"
        return None

    def _copy(self, query: QueryPlan, node: int) -> TableCopy | None:
        state = None if self._manifest is None else self._manifest.queries.get(query.name)
        return None if state is None else state.nodes[node].table

    def _is_first_input(self, tick: int, query: QueryPlan, node: LookupPlan) -> bool:
        """Return True if the history shows that the query's streams had no rows before a tick."""
        history = self._history()
        if list(history.ticks[: tick - 1]) != list(range(1, tick)):
            return False
        streams = {branch.source.name for side in query.sides for _, branch in side.sources}
        rows = [history.rows_in(name)[: tick - 1] for name in streams - {node.source.name}]
        return not any(map(any, rows))


_CHANGED = f"its files are not those that were read last, and {NOT_RETAINED}"


def _list_table_files(source: Source) -> list[Entry] | None:
    """List the files of a table.

    Returns None if this process cannot list them or they are not plain files.
    """
    path = local_path(path_of(source.options)) if source.traits.files else None
    if path is None:
        return None
    try:
        entries = list_local_files(source, path)
    except EngineError:
        return None
    return None if any("=" in name for name, _, _ in entries) else entries
