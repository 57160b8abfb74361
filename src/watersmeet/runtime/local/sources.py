"""Sources and tables as the in-process job reads them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from watersmeet.errors import EngineError, SpecError, near_names
from watersmeet.kernel.batches import one_table
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.query_inputs import needed_source_columns
from watersmeet.runtime.coordinator.table_reads import TableReader, TableWriter
from watersmeet.runtime.files.csv_header import matches_by_name, read_layout
from watersmeet.runtime.files.file_split import UnsupportedFile
from watersmeet.runtime.files.parquet_files import UNREADABLE
from watersmeet.runtime.files.parquet_types import compare_columns
from watersmeet.runtime.files.reader import read_file
from watersmeet.runtime.files.table_files import digest_listing, list_local_files
from watersmeet.runtime.local.evaluate import BranchEvaluator, declared_schema
from watersmeet.runtime.messages.shapes import SideShape
from watersmeet.runtime.tasks.run_writer import PlaceHashes
from watersmeet.runtime.values import InMemoryTables, arrow_type, to_table
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.files import OURS, format_of, local_path, path_of
from watersmeet.spec.options.values import lower_names
from watersmeet.spec.time_zones import UTC
from watersmeet.state.runs.layout import Run
from watersmeet.state.store import Store
from watersmeet.types.arrow import has_longer

# Tables that rows meet as of their tick, read in this process: rows that were given, and local files.


class Evaluate(Protocol):
    """Evaluator of a table's rows. ``columns`` lists the table columns that it uses."""

    @property
    def columns(self) -> Sequence[Column]: ...

    def __call__(self, rows: pa.Table) -> pa.RecordBatch: ...


_SUPPORTED_OPTIONS: dict[str, frozenset[str]] = {
    "parquet": frozenset(),
    "json": frozenset(),
    "csv": frozenset({"header", "sep", "delimiter", "quote", "escape"}),
}
"""Per format, the options of Spark's reader that are read here."""


def open_reader(
    source: Source,
    evaluate: Evaluate,
    held: InMemoryTables,
    *,
    given: bool = False,
    time_zone: str = UTC,
) -> TableReader:
    """Open the reader of a table and check that the table exists.

    Args:
        given: True if the caller provides the rows, whatever the connector.
        time_zone: time zone of clock times without a zone in text files.

    Raises:
        EngineError: this engine cannot read the table, or the table does not exist.
        SpecError: the format or an option is not supported.
    """
    if given or source.connector == "memory":
        return _InMemoryTableReader(source, evaluate, held)
    if source.traits.files:
        reader = _FileTableReader(source, evaluate, time_zone)
        _check_options(source)
        reader.version()
        return reader
    raise EngineError(
        f'the in-process engine does not read tables of type "{source.connector}"',
        code="unknown-connector",
        hint="run it on Spark: watersmeet run, or replay --engine spark",
    )


@dataclass(frozen=True)
class _InMemoryTableReader:
    source: Source
    evaluate: Evaluate
    held: InMemoryTables

    def version(self) -> str | None:
        return self.held.version(self.source)

    def read(self, side: SideShape, store: Store, tick: int, placing: PlaceHashes | None) -> list[Run]:
        rows = self.held.rows(self.source)
        writer = TableWriter(side, store, tick, placing)
        writer.add(self.evaluate(to_table(self.source.columns, rows, [1] * len(rows))))
        return writer.finish()


@dataclass(frozen=True)
class _FileTableReader:
    source: Source
    evaluate: Evaluate
    time_zone: str

    def version(self) -> str | None:
        return digest_listing(list_local_files(self.source, _require_local_path(self.source)))

    def has_files(self) -> bool:
        return bool(list_local_files(self.source, _require_local_path(self.source)))

    def read(self, side: SideShape, store: Store, tick: int, placing: PlaceHashes | None) -> list[Run]:
        writer = TableWriter(side, store, tick, placing)
        table = _read_rows(self.source, {column.name for column in self.evaluate.columns}, self.time_zone)
        _check_lengths(self.source, self.evaluate.columns, table)
        extra = to_table((), [{}] * table.num_rows, [1] * table.num_rows)
        for name in extra.column_names:
            table = table.append_column(name, extra.column(name))
        writer.add(self.evaluate(table))
        return writer.finish()


@dataclass(frozen=True)
class LocalSnapshot:
    """A table as it is compared; a `SnapshotReader`. ``readers``: of its rows for each arrangement."""

    readers: dict[str, TableReader] = field(default_factory=dict)

    def version(self) -> str | None:
        return next(iter(self.readers.values())).version()

    def read(
        self, sides: Sequence[SideShape], store: Store, tick: int, placing: PlaceHashes | None
    ) -> list[list[Run]] | None:
        if any(
            isinstance(reader, _FileTableReader) and not reader.has_files()
            for reader in self.readers.values()
        ):
            return None
        return [self.readers[side.arrangement].read(side, store, tick, placing) for side in sides]


def _require_local_path(source: Source) -> str:
    path = path_of(source.options)
    local = local_path(path)
    if local is None:
        raise EngineError(
            f'the in-process engine reads local files only; "{path}" is not one',
            code="path-missing",
            hint="run it on Spark: watersmeet run, or replay --engine spark",
        )
    return local


def _read_rows(source: Source, needed: Set[str], time_zone: str) -> pa.Table:
    """Read the needed columns of all files, in their declared types.

    Raises:
        EngineError: a file lacks a column, or only Spark can read it.
    """
    entries = [entry for entry in list_local_files(source, _require_local_path(source)) if entry[1]]
    options, what = lower_names(source.options), f'table "{source.name}"'
    if format_of(options) == "csv" and matches_by_name(options):
        read_layout(what, source, entries, options)
    columns = [column for column in source.columns if column.name in needed]
    tables = [to_table(columns, [], []).select([column.name for column in columns])]
    try:
        for path, _, _ in entries:
            if format_of(options) == "parquet" and (missing := compare_columns(what, source, path)):
                raise UnsupportedFile(f"{path} has no column {', '.join(missing)}")
            tables.append(read_file(source, path, time_zone, needed))
    except (EngineError, UnsupportedFile, *UNREADABLE) as error:
        raise EngineError(
            f"{what} cannot be read: {getattr(error, 'message', error)}",
            code="table-unreadable",
            hint="correct the file; or run the job on Spark: watersmeet run, or replay --engine spark",
        ) from None
    return one_table(tables)


def _check_lengths(source: Source, columns: Sequence[Column], rows: pa.Table) -> None:
    for column in columns:
        if has_longer(rows.column(column.name), column.type):
            kind = f"VARCHAR({column.type.length})"
            raise EngineError(
                f'table "{source.name}": column "{column.name}" is {kind}, but a value in its files is'
                " longer",
                code="table-unreadable",
                hint="declare it STRING, or correct the file",
            )


def _check_options(source: Source) -> None:
    options, wanted = lower_names(source.options), format_of(source.options)
    if wanted not in _SUPPORTED_OPTIONS:
        raise SpecError(
            f'table "{source.name}" cannot have the format "{wanted}"',
            code="unknown-format",
            hint=near_names(wanted, _SUPPORTED_OPTIONS),
        )
    for name in options.keys() - _SUPPORTED_OPTIONS[wanted] - {*OURS}:
        raise SpecError(
            f'the in-process engine does not read the option "{name}" of table "{source.name}"',
            code="unknown-option",
            hint="run it on Spark: watersmeet run, or replay --engine spark",
        )


# The sources of a plan as the in-process job reads them: streams branch by branch, and tables.


class JobSources:
    """The sources of a plan, as the in-process job reads them.

    Attributes:
        declared: All sources, by name.
        streams: Sources that are ingested, with the columns that count.
        tables: Tables that are looked up as of the tick, or compared with their previous contents.
        branches: Per (arrangement, number), the name of the stream and the evaluator of its rows.
        schemas: Schema of the retained columns, per arrangement.
        readers, compared: See `restore`.

    Args:
        given: See `LocalJob`.
    """

    def __init__(self, plan: JobPlan, held: InMemoryTables, *, given: bool) -> None:
        self.branches = {
            (f"{query.name}/{side.name}", number): (
                branch.source.name,
                BranchEvaluator(side, branch, query.options.time_zone, f'INSERT "{query.name}": '),
            )
            for query in plan.queries
            for side in query.sides
            for number, branch in side.ingested
        }
        streams = {source.name: source for source in plan.sources}
        self.streams, self.tables = streams, {source.name: source for source in plan.tables}
        self.declared = self.streams | self.tables
        if given:  # columns of types that are not known here may be there, if nobody asks for them
            self.streams = {
                name: replace(source, columns=self._list_used_columns(source))
                for name, source in streams.items()
            }
            self.tables = {
                name: replace(source, columns=_select_supported_columns(source.columns))
                for name, source in self.tables.items()
            }
        self.schemas: dict[str, pa.Schema] = {
            f"{query.name}/{side.name}": declared_schema(side)
            for query in plan.queries
            for side in query.sides
            if not side.sources
        }
        for (arrangement, _), (source, evaluator) in self.branches.items():
            if arrangement not in self.schemas:
                self.schemas[arrangement] = evaluator.schema(streams[source])
        self.readers: dict[str, TableReader] = {}
        for query, node in plan.lookups:
            ((_, branch),) = node.table.sources
            evaluator = BranchEvaluator(node.table, branch, query.options.time_zone)
            name = f"{query.name}/{node.table.name}"
            self.schemas[name] = evaluator.schema(branch.source)
            self.readers[name] = open_reader(
                self.tables[branch.source.name],
                evaluator,
                held,
                given=given,
                time_zone=query.options.time_zone,
            )
        self.compared: dict[str, LocalSnapshot] = {}
        for query, snapshot in plan.compared:
            side, ((_, branch),) = snapshot.side, snapshot.side.sources
            evaluator = BranchEvaluator(side, branch, query.options.time_zone)
            name = f"{query.name}/{side.name}"
            self.schemas[name] = evaluator.schema(branch.source)
            reader = open_reader(
                self.tables[branch.source.name],
                evaluator,
                held,
                given=given,
                time_zone=query.options.time_zone,
            )
            self.compared.setdefault(branch.source.name, LocalSnapshot()).readers[name] = reader

    def _list_used_columns(self, source: Source) -> tuple[Column, ...]:
        """List the columns of a source that its branches use and that its change column needs."""
        columns = [
            column
            for name, evaluator in self.branches.values()
            if name == source.name
            for column in evaluator.columns
        ]
        names = needed_source_columns(source, ()).union(column.name for column in columns)
        return tuple(column for column in source.columns if column.name in names)


def _select_supported_columns(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Select the columns whose types this engine supports."""
    kept = []
    for column in columns:
        with suppress(EngineError):
            arrow_type(column.type)
            kept.append(column)
    return tuple(kept)
