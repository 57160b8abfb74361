"""Sources and tables as the in-process job reads them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

import duckdb
import pyarrow as pa

from watersmeet.errors import EngineError, SpecError, near_names
from watersmeet.kernel.duckdb import connection
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.query_inputs import needed_source_columns
from watersmeet.runtime.coordinator.table_reads import TableReader, TableWriter
from watersmeet.runtime.files.csv_header import Layout, matches_by_name, read_layout
from watersmeet.runtime.files.table_files import Entry, digest_listing, list_local_files
from watersmeet.runtime.local.evaluate import BranchEvaluator, declared_schema
from watersmeet.runtime.messages.shapes import SideShape
from watersmeet.runtime.tasks.run_writer import PlaceHashes
from watersmeet.runtime.values import InMemoryTables, arrow_type, arrow_type_of, to_table
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.files import local_path, path_of
from watersmeet.state.runs.layout import Run
from watersmeet.state.store import Store
from watersmeet.types.arrow import has_longer

# Tables that rows meet as of their tick, read in this process: rows that were given, and local files.


class Evaluate(Protocol):
    """Evaluator of a table's rows. ``columns`` lists the table columns that it uses."""

    @property
    def columns(self) -> Sequence[Column]: ...

    def __call__(self, rows: pa.Table) -> pa.RecordBatch: ...


_SUPPORTED_OPTIONS: dict[str, dict[str, str]] = {
    "parquet": {},
    "json": {},
    "csv": {"header": "header", "sep": "delim", "delimiter": "delim", "quote": "quote", "escape": "escape"},
}
"""Per format, the options of Spark's reader that are read here, and DuckDB's names for them."""


def open_reader(
    source: Source, evaluate: Evaluate, held: InMemoryTables, *, given: bool = False
) -> TableReader:
    """Open the reader of a table and check that the table exists.

    Args:
        given: True if the caller provides the rows, whatever the connector.

    Raises:
        EngineError: this engine cannot read the table, or the table does not exist.
        SpecError: the format or an option is not supported.
    """
    if given or source.connector == "memory":
        return _InMemoryTableReader(source, evaluate, held)
    if source.traits.files:
        reader = _FileTableReader(source, evaluate)
        _build_read_call(source)
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

    def version(self) -> str | None:
        return digest_listing(list_local_files(self.source, _require_local_path(self.source)))

    def has_files(self) -> bool:
        return bool(list_local_files(self.source, _require_local_path(self.source)))

    def read(self, side: SideShape, store: Store, tick: int, placing: PlaceHashes | None) -> list[Run]:
        writer = TableWriter(side, store, tick, placing)
        table = _read_rows(self.source)
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


def _read_rows(source: Source) -> pa.Table:
    """Read the declared columns of all files, in their declared types.

    Nested columns are rejected, because DuckDB treats records that do not fit differently from Spark.

    Raises:
        EngineError: a column is nested.
    """
    nested = next((column for column in source.columns if column.type.is_nested), None)
    if nested is not None:
        raise EngineError(
            f'table "{source.name}": column "{nested.name}" is {nested.type}, which the in-process '
            "engine does not read from files",
            code="unsupported-type",
            hint="run it on Spark: watersmeet run, or replay --engine spark",
        )
    schema = pa.schema([pa.field(column.name, arrow_type_of(column)) for column in source.columns])
    entries = [entry for entry in list_local_files(source, _require_local_path(source)) if entry[1]]
    if not entries:
        return schema.empty_table()
    call, arguments = (
        _build_read_call(source, _read_csv_layout(source, entries)),
        [[path for path, _, _ in entries]],
    )
    cursor = connection().cursor()
    try:
        names = ", ".join('"' + name.replace('"', '""') + '"' for name in schema.names)
        table: pa.Table = cursor.sql(f"SELECT {names} FROM {call}", params=arguments).to_arrow_table()
        return table.cast(schema)
    except (duckdb.Error, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise EngineError(
            f'table "{source.name}" cannot be read: {str(error).splitlines()[0]}', code="table-unreadable"
        ) from None
    finally:
        cursor.close()


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


def _read_csv_layout(source: Source, entries: Sequence[Entry]) -> Layout | None:
    """Read the columns of CSV files from their headers; None unless columns are matched by name."""
    options = {name.lower(): value for name, value in source.options.items()}
    if options.get("format", "").strip().lower() != "csv" or not matches_by_name(options):
        return None
    return read_layout(f'table "{source.name}"', source, entries, options)


def _build_read_call(source: Source, layout: Layout | None = None) -> str:
    options = {name.lower(): value for name, value in source.options.items() if name.lower() != "path"}
    kind = options.pop("format", "parquet").strip().lower()
    arguments = _SUPPORTED_OPTIONS.get(kind)
    if arguments is None:
        raise SpecError(
            f'table "{source.name}" cannot have the format "{kind}"',
            code="unknown-format",
            hint=near_names(kind, _SUPPORTED_OPTIONS),
        )
    for name in options:
        if name not in arguments:
            raise SpecError(
                f'the in-process engine does not read the option "{name}" of table "{source.name}"',
                code="unknown-option",
                hint="run it on Spark: watersmeet run, or replay --engine spark",
            )
    if kind == "parquet":
        return "read_parquet(?)"
    columns = [(c.name, _duckdb_type(arrow_type_of(c))) for c in source.columns]
    if layout is not None:  # as they stand in the files
        kinds = dict(columns)
        columns = [
            (f"__ws_{n}", "VARCHAR") if column is None else (column.name, kinds[column.name])
            for n, (_, column) in enumerate(layout)
        ]
    types = ", ".join(f"{_quote_text(name)}: {_quote_text(kind)}" for name, kind in columns)
    if kind == "json":
        return f"read_json(?, format = 'newline_delimited', columns = {{{types}}})"
    written = {arguments[name]: value for name, value in ({"header": "true"} | options).items()}
    others = ", ".join(f"{name} = {_quote_text(value)}" for name, value in written.items())
    return f"read_csv(?, auto_detect = false, {others}, columns = {{{types}}})"


def _duckdb_type(kind: pa.DataType) -> str:
    empty = pa.table({"c": pa.nulls(0, kind)})  # noqa: F841
    return str(connection().cursor().sql("SELECT c FROM empty").types[0])


def _quote_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


# The sources of a plan as the in-process job reads them: streams branch by branch, and tables.


class JobSources:
    """``declared``: all of them, by name; ``streams``: those that are ingested, with the columns that count;
    ``tables``: those that rows meet as of their tick, or that are compared. ``branches``: per (arrangement,
    number) the stream's name and what it gives; ``schemas``: of the kept columns, per arrangement;
    ``readers``, ``compared``: as `restore`.

    Args:
        given: see `LocalJob`.
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
            self.readers[name] = open_reader(self.tables[branch.source.name], evaluator, held, given=given)
        self.compared: dict[str, LocalSnapshot] = {}
        for query, snapshot in plan.compared:
            side, ((_, branch),) = snapshot.side, snapshot.side.sources
            evaluator = BranchEvaluator(side, branch, query.options.time_zone)
            name = f"{query.name}/{side.name}"
            self.schemas[name] = evaluator.schema(branch.source)
            reader = open_reader(self.tables[branch.source.name], evaluator, held, given=given)
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
