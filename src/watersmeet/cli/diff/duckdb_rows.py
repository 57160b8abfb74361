"""Rows of a job's sources in DuckDB."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyarrow import json, parquet

from watersmeet.cli.diff.source_rows import SourceFiles
from watersmeet.diff.bags import AS_IT_IS, fetch_rows, quote_identifier, text, types_of
from watersmeet.diff.dialect import NamedColumn, Names, UnsupportedInDialect
from watersmeet.diff.duckdb_sql import DuckDb
from watersmeet.diff.statement import AT, PART
from watersmeet.diff.table_contents import FILE, POSITION, fold_changes
from watersmeet.errors import EngineError, SpecError, format_count
from watersmeet.kernel.batches import one_table
from watersmeet.names import ours
from watersmeet.runtime.files.file_split import UnsupportedFile
from watersmeet.runtime.files.reader import read_file
from watersmeet.runtime.spark.rejected_values import has_length
from watersmeet.runtime.values import arrow_type, to_table
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import OF_SOURCES, format_of
from watersmeet.spec.records.changes import computed_of_changes
from watersmeet.spec.time_zones import UTC
from watersmeet.types.sql_type import TIMESTAMP

# Rows of JSON files in DuckDB. It reads numbers with a point as DOUBLEs: DECIMALs of more digits than
# these hold are read by Arrow, to the last digit, and stand beside the other columns; so do ARRAYs and
# STRUCTs of them, if what else is in these is read by both alike.

_OF_DOUBLES = 15
"""So many digits a DOUBLE holds, whichever they are."""


def json_rows(db: Any, table: str, files: Sequence[str], columns: Mapping[str, str], who: str) -> str:
    """Return a relation of the rows of JSON files.

    Args:
        table: Name of the table, if the rows are stored as one.
        columns: DuckDB types by column name.
        who: Owner of the files, for errors.

    Raises:
        EngineError: A DECIMAL of many digits is next to values that cannot be read here, or a file
            cannot be read.
    """
    wide = _wide_decimals(db, columns, who)
    told = {name: "JSON" if name in wide else kind for name, kind in columns.items()}
    if not wide:
        return _read(files, told)
    part = ours("part")
    options = json.ParseOptions(pa.schema(list(wide.items())), unexpected_field_behavior="ignore")
    fetch_rows(db, "SET preserve_insertion_order = true")
    for number, file in enumerate(files):
        rows = db.sql(f"SELECT * FROM {_read([file], told)}").to_arrow_table()
        try:
            exact = json.read_json(file, parse_options=options) if rows.num_rows else None
        except pa.ArrowInvalid as error:
            raise EngineError(
                f"{who}: {file} cannot be read: {error}",
                code="file-unreadable",
                hint="the job wrote this file: restore it, or pass the rows with --output",
            ) from None
        for name, kind in wide.items():
            values = pa.nulls(0, kind) if exact is None else exact.column(name)
            rows = rows.set_column(rows.schema.get_field_index(name), name, values)
        db.register(part, rows)
        into = f"INSERT INTO {table}" if number else f"CREATE OR REPLACE TABLE {table} AS"
        fetch_rows(db, f"{into} SELECT * FROM {part}")
        db.unregister(part)
    fetch_rows(db, "SET preserve_insertion_order = false")
    return table


def _read(files: Sequence[str], columns: Mapping[str, str]) -> str:
    names = "[" + ", ".join(map(text, files)) + "]"
    told = ", ".join(f"{text(name)}: {text(kind)}" for name, kind in columns.items())
    return f"read_json({names}, {AS_IT_IS}, format = 'newline_delimited', columns = {{{told}}})"


def _wide_decimals(db: Any, columns: Mapping[str, str], who: str) -> dict[str, pa.DataType]:
    """Return the columns that contain DECIMALs that a DOUBLE may not represent exactly."""
    none = ", ".join(f"CAST(NULL AS {kind}) AS {quote_identifier(name)}" for name, kind in columns.items())
    wide = {}
    for field in db.sql(f"SELECT {none}").to_arrow_table().schema:
        if not _has_wide(field.type):
            continue
        if not _is_alike(field.type):
            raise EngineError(
                f'{who}: column "{field.name}" is {columns[field.name]}, '
                " which diff cannot read from JSON files",
                code="not-compared",
                hint="pass the rows as Parquet files with --output",
            )
        wide[field.name] = field.type
    return wide


def _is_alike(kind: pa.DataType) -> bool:
    """Return True if Arrow reads values of this type as DuckDB does.

    That excludes times, and numbers that may be texts (NaN).
    """
    if pa.types.is_list(kind) or pa.types.is_struct(kind):
        return all(_is_alike(kind.field(n).type) for n in range(kind.num_fields))
    plain = (pa.types.is_decimal, pa.types.is_signed_integer, pa.types.is_string, pa.types.is_boolean)
    return any(is_one(kind) for is_one in plain)


def _has_wide(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return bool(kind.precision > _OF_DOUBLES)
    return any(_has_wide(kind.field(n).type) for n in range(kind.num_fields))


# The rows of a job's sources in DuckDB, where it is certain in this process what Spark reads of them; of
# changing tables, what they hold after all of that.

MAX_RECORDS = 200_000
"""Of text, which is read one by one here; Spark reads more of them sooner."""


class LocalTables(dict[str, str]):
    """Tables with the declared columns of each source, by source name, created on first access.

    They also have the columns `PART` and `AT` if the files arrived in an order. An error in one table
    does not affect queries that do not use it.

    Raises on access:
        UnsupportedInDialect: Only Spark can read the source.
        SpecError: The content of a changing table cannot be determined.
    """

    def __init__(
        self,
        db: Any,
        read: Mapping[str, SourceFiles],
        time_zone: str,
        step: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Create the tables; nothing is read yet.

        Args:
            step: Function that receives the name of each source when it is read.
        """
        self._db, self._read, self._time_zone, self._step = db, read, time_zone, step
        self._records = MAX_RECORDS
        self._refused: dict[str, UnsupportedInDialect | SpecError] = {}

    def __missing__(self, name: str) -> str:
        import duckdb

        if name not in self._refused:
            try:
                self[name] = self._load_table(name)
                return self[name]
            except (UnsupportedInDialect, SpecError) as error:
                self._refused[name] = error
            except duckdb.Error as error:
                self._refused[name] = UnsupportedInDialect(str(error).splitlines()[0])
        raise self._refused[name]

    def _load_table(self, name: str) -> str:
        db, of = self._db, self._read[name]
        files, source = of.local_files, of.source
        self._step(f"{name}: {format_count(len(of.files), 'file')}")
        if not source.traits.files and not of.named:
            raise UnsupportedInDialect(f'"{name}" is {source.traits.called}')
        if files is None:
            raise UnsupportedInDialect(f'"{name}" is in another file system')
        if any("=" in os.path.dirname(file) for file in files):
            raise UnsupportedInDialect(f'"{name}" has columns in the names of directories')
        if source.changes and of.named:
            raise SpecError(
                f"--input {name}: the order of changes is not known for files passed with --input",
                code="not-compared",
                hint="remove --input: the state stores which files were read, and in which order",
            )
        number = len(self)
        table = quote_identifier(ours(f"source{number}"))
        if _format(of) == "parquet":
            _load_parquet(db, table, source, files, of.asked)
        else:
            self._records -= _load_text(db, table, of, files, self._records, self._time_zone)
        more = _computed_columns(source, utc=self._time_zone == UTC)
        computed = f"(SELECT *, {', '.join(more)} FROM {table})" if more else table
        if source.compared:
            _check_keys(db, source, f"{computed} r")
        elif source.changes:
            batches = "[" + ", ".join(map(str, of.batches)) + "]"
            given = quote_identifier(ours(f"records{number}"))
            in_batches = f"* REPLACE (list_extract({batches}, {AT}) AS {AT}), {AT} AS {FILE}"
            fetch_rows(db, f"CREATE OR REPLACE TABLE {given} AS SELECT {in_batches} FROM {computed} r")
            fold_changes(db, source, given, table, of.orders)
        return table


def _computed_columns(source: Source, *, utc: bool) -> list[str]:
    """Return the columns that say which change a record is, where they are computed.

    Raises: Uncommon, where Spark is to compute them.
    """
    computed = computed_of_changes(source)
    if computed and source.primary_key is None:
        raise UnsupportedInDialect(
            f'"{source.name}" has rows that are computed of what says what becomes of them'
        )
    names: Names = {
        ("", column.name): NamedColumn(quote_identifier(column.name), column.type)
        for column in source.columns
    }
    sql = DuckDb({}, utc=utc).expression
    return [f"{sql(own.expr, names)} AS {quote_identifier(own.column.name)}" for own in computed]


def _check_keys(db: Any, source: Source, table: str) -> None:
    """Check that each key of a table that is read as a whole has one row, and is not NULL.

    Otherwise the row that counts would depend on which columns a query needs.

    Raises:
        SpecError: Several rows have the same key, or a key is NULL.
    """
    if source.primary_key is None:
        return
    keys = [quote_identifier(name) for name in source.primary_key.columns]
    unclear = " OR ".join(["count(*) > 1", *(f"{key} IS NULL" for key in keys)])
    listed = ", ".join(keys)
    if fetch_rows(db, f"SELECT {listed} FROM {table} GROUP BY {listed} HAVING {unclear} LIMIT 1"):
        raise SpecError(
            f'the rows of "{source.name}" cannot be determined: several have the same key, or a key is NULL',
            code="not-compared",
            hint="remove the duplicate keys; watersmeet run counts such rows as broken",
        )


def _format(read: SourceFiles) -> str:
    kind = format_of(read.source.options) if read.source.traits.files else ""
    if not read.named:
        return kind
    endings = {os.path.splitext(file)[1].lower() for file in read.files}
    if endings <= {".parquet", ".pq"}:
        return "parquet"
    return kind or ("csv" if endings <= {".csv"} else "json")


def _load_parquet(db: Any, table: str, source: Source, files: list[str], asked: Collection[str]) -> None:
    wanted = {column.name: column for column in source.columns}
    limited = [column for column in source.columns if column.name in asked and has_length(column.type)]
    if any(not column.type.length for column in limited):
        raise UnsupportedInDialect(f'"{source.name}" has texts of a limited length within others')
    if any(name.lower() not in OF_SOURCES for name in source.options if source.traits.files):
        raise UnsupportedInDialect(f'"{source.name}" has options of Spark\'s reader')
    for file in files:
        try:
            there = {field.name: field.type for field in parquet.read_schema(file)}
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise EngineError(
                f'"{source.name}": {file} cannot be read: {str(error).splitlines()[0]}',
                code="file-unreadable",
                hint="the job has read this file: restore it, or pass the other files with --input",
            ) from None
        for name, column in wanted.items():
            kind = pa.timestamp("us", "UTC") if column.type == TIMESTAMP else arrow_type(column.type)
            if there.get(name) not in (kind, pa.large_string() if kind == pa.string() else kind):
                raise UnsupportedInDialect(f'"{source.name}": {name} is {there.get(name)} in {file}')
    if not files:
        _load_arrow(db, table, source, to_table(source.columns, [], []), [])
        return
    listed = "[" + ", ".join(map(text, files)) + "]"
    relation = f"read_parquet({listed}, {AS_IT_IS}, filename = {text(ours('file'))}, file_row_number = true)"
    if limited:
        fits = (f"coalesce(length({quote_identifier(c.name)}) <= {c.type.length}, TRUE)" for c in limited)
        relation = f"(SELECT * FROM {relation} WHERE {' AND '.join(fits)})"
    place = f"CAST(list_position({listed}, {quote_identifier(ours('file'))}) AS BIGINT)"
    _create_table(db, table, source, relation, place, "file_row_number")


def _load_text(db: Any, table: str, read: SourceFiles, files: list[str], records: int, time_zone: str) -> int:
    """Load the records of text files into a table, and return the number of records."""
    source, kind = read.source, _format(read)
    if not source.traits.files:
        source = replace(source, connector="file", options={"format": kind})
    parts, numbers, left = [], list[int](), records
    needed = {column.name for column in source.columns}
    for number, file in enumerate(files):
        of_file = replace(source, options={**source.options, "path": file, "format": kind})
        if not os.path.getsize(file):
            continue
        try:
            parts.append(read_file(of_file, file, time_zone, needed, left + 1))
        except (EngineError, UnsupportedFile) as error:
            raise UnsupportedInDialect(f'"{source.name}": {getattr(error, "message", error)}') from None
        left -= parts[-1].num_rows
        if left < 0:
            raise UnsupportedInDialect(f'"{source.name}" has many rows')
        numbers += [number + 1] * parts[-1].num_rows
    rows = one_table(parts or [to_table(source.columns, [], [])])
    _load_arrow(db, table, source, rows, numbers)
    return records - left


def _load_arrow(db: Any, table: str, source: Source, rows: pa.Table, numbers: list[int]) -> None:
    given = rows.select([column.name for column in source.columns])
    given = given.append_column(ours("number"), pa.array(numbers, pa.int64()))
    given = given.append_column(ours("row"), pa.array(range(len(numbers)), pa.int64()))
    db.register(ours("given"), given)
    _create_table(
        db, table, source, ours("given"), quote_identifier(ours("number")), quote_identifier(ours("row"))
    )
    db.unregister(ours("given"))


def _create_table(db: Any, table: str, source: Source, relation: str, number: str, position: str) -> None:
    columns = [*_columns(db, source, relation), f"'' AS {PART}", f"{number} AS {AT}"]
    columns += [f"{position} AS {POSITION}"] if source.changes else []
    fetch_rows(db, f"CREATE OR REPLACE TABLE {table} AS SELECT {', '.join(columns)} FROM {relation}")


def _columns(db: Any, source: Source, relation: str) -> Iterator[str]:
    """Yield SQL for each column of a source; times with a zone are converted to UTC."""
    types = types_of(db, relation)
    for column in source.columns:
        name = quote_identifier(column.name)
        zoned = types[column.name] == "TIMESTAMP WITH TIME ZONE"
        yield f"timezone('UTC', {name}) AS {name}" if zoned else name
