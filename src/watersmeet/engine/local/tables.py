"""Tables that rows meet as of their tick, read in this process: rows that were given, and local files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import duckdb
import pyarrow as pa

from watersmeet.engine.driver.tables import TableReader, TableWriter
from watersmeet.engine.files.csv_header import Layout, by_name, layout_of
from watersmeet.engine.files.table_files import Entry, local_files, version_of
from watersmeet.engine.messages.shapes import SideShape
from watersmeet.engine.tasks.write import Placing
from watersmeet.engine.values import HeldTables, arrow_type_of, to_table
from watersmeet.errors import EngineError, SpecError, near_names
from watersmeet.kernel.embedded import connection
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.files import local_path, path_of
from watersmeet.state.runs.run import Run
from watersmeet.state.store import Store
from watersmeet.types.arrow import has_longer


class Evaluate(Protocol):
    """What is asked of a table's rows. ``columns``: those of the table that it uses."""

    @property
    def columns(self) -> Sequence[Column]: ...

    def __call__(self, rows: pa.Table) -> pa.RecordBatch: ...


_KNOWN: dict[str, dict[str, str]] = {
    "parquet": {},
    "json": {},
    "csv": {"header": "header", "sep": "delim", "delimiter": "delim", "quote": "quote", "escape": "escape"},
}
"""Per format, the options of Spark's reader that are read here, and DuckDB's names for them."""


def reader_of(source: Source, evaluate: Evaluate, held: HeldTables, *, given: bool = False) -> TableReader:
    """What reads a table, once it is known to be there. Raises: EngineError, SpecError.

    Args:
        given: its rows are, whatever its connector.
    """
    if given or source.connector == "memory":
        return _Held(source, evaluate, held)
    if source.traits.files:
        reader = _Files(source, evaluate)
        _call(source)
        reader.version()
        return reader
    raise EngineError(
        f'the in-process engine does not read tables of type "{source.connector}"',
        code="unknown-connector",
        hint="run it on Spark: watersmeet run, or replay --engine spark",
    )


@dataclass(frozen=True)
class _Held:
    source: Source
    evaluate: Evaluate
    held: HeldTables

    def version(self) -> str | None:
        return self.held.version(self.source)

    def read(self, side: SideShape, store: Store, tick: int, placing: Placing | None) -> list[Run]:
        rows = self.held.rows(self.source)
        writer = TableWriter(side, store, tick, placing)
        writer.add(self.evaluate(to_table(self.source.columns, rows, [1] * len(rows))))
        return writer.finish()


@dataclass(frozen=True)
class _Files:
    source: Source
    evaluate: Evaluate

    def version(self) -> str | None:
        return version_of(local_files(self.source, _local(self.source)))

    def are_there(self) -> bool:
        return bool(local_files(self.source, _local(self.source)))

    def read(self, side: SideShape, store: Store, tick: int, placing: Placing | None) -> list[Run]:
        writer = TableWriter(side, store, tick, placing)
        table = _rows_of(self.source)
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
        self, sides: Sequence[SideShape], store: Store, tick: int, placing: Placing | None
    ) -> list[list[Run]] | None:
        if any(isinstance(reader, _Files) and not reader.are_there() for reader in self.readers.values()):
            return None
        return [self.readers[side.arrangement].read(side, store, tick, placing) for side in sides]


def _local(source: Source) -> str:
    path = path_of(source.options)
    local = local_path(path)
    if local is None:
        raise EngineError(
            f'the in-process engine reads local files only; "{path}" is not one',
            code="path-missing",
            hint="run it on Spark: watersmeet run, or replay --engine spark",
        )
    return local


def _rows_of(source: Source) -> pa.Table:
    """The declared columns of all files, in their declared types. Nested ones are Spark's: what DuckDB makes
    of records that do not fit is something else."""
    nested = next((column for column in source.columns if column.type.is_nested), None)
    if nested is not None:
        raise EngineError(
            f'table "{source.name}": column "{nested.name}" is {nested.type}, which the in-process '
            "engine does not read from files",
            code="unsupported-type",
            hint="run it on Spark: watersmeet run, or replay --engine spark",
        )
    schema = pa.schema([pa.field(column.name, arrow_type_of(column)) for column in source.columns])
    entries = [entry for entry in local_files(source, _local(source)) if entry[1]]
    if not entries:
        return schema.empty_table()
    call, arguments = _call(source, _layout(source, entries)), [[path for path, _, _ in entries]]
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


def _layout(source: Source, entries: Sequence[Entry]) -> Layout | None:
    """The columns of CSV files as their headers have them."""
    options = {name.lower(): value for name, value in source.options.items()}
    if options.get("format", "").strip().lower() != "csv" or not by_name(options):
        return None
    return layout_of(f'table "{source.name}"', source, entries, options)


def _call(source: Source, layout: Layout | None = None) -> str:
    options = {name.lower(): value for name, value in source.options.items() if name.lower() != "path"}
    kind = options.pop("format", "parquet").strip().lower()
    arguments = _KNOWN.get(kind)
    if arguments is None:
        raise SpecError(
            f'table "{source.name}" cannot have the format "{kind}"',
            code="unknown-format",
            hint=near_names(kind, _KNOWN),
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
    types = ", ".join(f"{_text(name)}: {_text(kind)}" for name, kind in columns)
    if kind == "json":
        return f"read_json(?, format = 'newline_delimited', columns = {{{types}}})"
    written = {arguments[name]: value for name, value in ({"header": "true"} | options).items()}
    others = ", ".join(f"{name} = {_text(value)}" for name, value in written.items())
    return f"read_csv(?, auto_detect = false, {others}, columns = {{{types}}})"


def _duckdb_type(kind: pa.DataType) -> str:
    empty = pa.table({"c": pa.nulls(0, kind)})  # noqa: F841
    return str(connection().cursor().sql("SELECT c FROM empty").types[0])


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
