"""Rows that a query has emitted, as a relation of DuckDB."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from watersmeet.cli.diff.duckdb_rows import json_rows
from watersmeet.diff.bags import AS_IT_IS, COUNT, fetch_rows, is_exact, quote_identifier, text, types_of
from watersmeet.diff.statement import column_name
from watersmeet.errors import EngineError, SpecError, WatersmeetError
from watersmeet.names import SHOWN_DIFF, ours
from watersmeet.regular_files import named_files
from watersmeet.runtime.files.open_files import FORMATS, format_by_name
from watersmeet.sinks.read_hints import unreadable_error
from watersmeet.spec.model import OutputMode, Sink
from watersmeet.spec.options.files import format_of, in_store, path_of

# The rows of the tables that sinks write, as they are now, batch by batch.

Keep = Callable[[Any], None]
"""Takes a reader of Arrow's, and reads it to its end."""


@dataclass(frozen=True)
class Wished:
    """Request for the rows that a query wrote.

    Args:
        insert: Query whose rows are requested.
        columns: Columns of the query.
    """

    sink: Sink
    insert: str
    columns: frozenset[str]


def read(wished: Wished, keep: Keep) -> int | None:
    """Read a table.

    Returns:
        The last tick of the query that the table has rows of; None, where it does not say so.

    Raises:
        EngineError: the table cannot be read.
    """
    try:
        return READERS[wished.sink.connector](wished, keep)
    except WatersmeetError:
        raise
    except Exception as error:
        raise unreadable_error(wished.sink, str(error)) from None


def _delta(wished: Wished, keep: Keep) -> None:
    from deltalake import DeltaTable

    from watersmeet.sinks.lake.delta import DeltaLakeTable

    table = DeltaLakeTable(wished.sink)
    read = DeltaTable(table.place, storage_options=table.storage_options)
    keep(read.to_pyarrow_dataset().scanner().to_reader())


def _iceberg(wished: Wished, keep: Keep) -> None:
    from pyiceberg.catalog import load_catalog

    from watersmeet.spec.options.lake import IcebergOptions, catalog_options

    options = dict(catalog_options(wished.sink.options))
    catalog = load_catalog(options.pop("name", "default"), **options)
    keep(catalog.load_table(IcebergOptions.of(wished.sink.options).table).scan().to_arrow_batch_reader())


def _postgres(wished: Wished, keep: Keep) -> int | None:
    from watersmeet.sinks.postgres.read_back import read_back

    return read_back(wished.sink, wished.insert, wished.columns, keep)


READERS: Mapping[str, Callable[[Wished, Keep], int | None]] = {
    "delta": _delta,
    "iceberg": _iceberg,
    "postgres": _postgres,
}
"""By connector."""


# What a query has put out, as a relation of DuckDB: of its sink, or of files that were named.
#
# Of a sink of files those parts alone count that the job's state knows. Tables and topics are read as
# they are now.


@dataclass(frozen=True)
class Wanted:
    """An output of a query, to be compared with the batch answer.

    Attributes:
        name: Name of the query.
        columns: Columns of the query.
        mode: Output mode: whether the sink receives changes.
        tick: Tick of the state; None without a state.
        path: Files that the user named instead of the sink; None: read the sink.
        alone: No other query writes to the sink.
    """

    name: str
    sink: Sink
    columns: Sequence[str]
    mode: OutputMode
    tick: int | None
    path: str | None = None
    alone: bool = True


@dataclass(frozen=True)
class EmittedRows:
    """Rows that a query emitted.

    Attributes:
        relation: DuckDB relation with the columns `column_name` of each number, and `COUNT`.
        may_be_later: The relation may contain rows emitted after the tick of the state.
        is_later: The relation contains such rows.
    """

    relation: str
    may_be_later: bool
    is_later: bool = False


def output_of(db: Any, wanted: Wanted, answer: str, folder: str) -> EmittedRows:
    """Read the rows that a query emitted.

    Args:
        answer: Relation of the batch answer, which determines the types of text files.
        folder: Folder for files that must exist as long as the comparison.

    Raises:
        SpecError, EngineError: The output cannot be read; the error says what to do.
    """
    if wanted.path is not None:
        return EmittedRows(_select_from_files(db, wanted, answer, *_find_named_files(wanted)), False)
    sink = wanted.sink
    if sink.traits.files and not in_store(path_of(sink.options)):
        files = _parts(wanted)
        kind = format_of(sink.options)
        return EmittedRows(_select_from_files(db, wanted, answer, files, kind, sink.options), False)
    if sink.connector not in READERS and not sink.traits.log:
        raise SpecError(
            f'"{sink.name}": diff cannot read what a {sink.connector} sink has written',
            code="not-compared",
            hint=f"also write the rows to files, and pass them with --output {wanted.name}=PATH",
        )
    if not wanted.alone:
        raise SpecError(
            f'"{sink.name}" contains the rows of several queries, which diff cannot tell apart',
            code="not-compared",
            hint=f"give each query its own sink, or pass its rows with --output {wanted.name}=PATH",
        )
    if sink.traits.log:
        file = os.path.join(folder, f"topic{len(os.listdir(folder))}.json")
        from watersmeet.sinks.kafka.records import write_lines

        write_lines(sink, file)
        files = [file] if os.path.getsize(file) else []
        return EmittedRows(_select_from_files(db, wanted, answer, files, "json", {}), True)
    table = quote_identifier(f"table {wanted.name}")
    last = read(
        Wished(sink, wanted.name, frozenset(wanted.columns)), lambda rows: _keep_table(db, table, rows)
    )
    is_later = wanted.tick is not None and last is not None and last > wanted.tick
    return EmittedRows(
        _select_by_position(db, wanted, _cast_numeric_texts(db, wanted, answer, table)), True, is_later
    )


def _find_named_files(wanted: Wanted) -> tuple[list[str], str, Mapping[str, str]]:
    path = wanted.path or ""
    files = named_files(path)
    kinds = set(map(format_by_name, files))
    if len(kinds) != 1 or None in kinds:
        what = "there is no file" if not files else "files of one format that is known by its name are not"
        raise SpecError(
            f"--output {wanted.name}: {what} at {path}",
            code="path-missing" if not files else "unknown-format",
            hint=f"file names must end in {', '.join(FORMATS)}, and all files must have the same format",
        )
    (kind,) = kinds
    return files, kind or "", {}


def _parts(wanted: Wanted) -> list[str]:
    """List the files of the query's published parts, of ticks that the state has reached."""
    from watersmeet.sinks.file_sink import FileSink

    sink = FileSink(wanted.sink)
    if not sink.path.is_dir():
        return []
    files: list[str] = []
    for part, of_part in sorted(sink.row_files().items()):
        if unquote(part[:-13]) == wanted.name and (wanted.tick is None or int(part[-12:]) <= wanted.tick):
            files += map(str, of_part)
    return files


def _select_from_files(
    db: Any, wanted: Wanted, answer: str, files: Sequence[str], kind: str, options: Mapping[str, str]
) -> str:
    if not files:
        listed = ", ".join(column_name(n) for n in range(len(wanted.columns)))
        return f"(SELECT {listed}, CAST(1 AS BIGINT) AS {COUNT} FROM {answer} r WHERE FALSE)"
    names = "[" + ", ".join(map(text, files)) + "]"
    if kind == "parquet":
        return _select_by_position(db, wanted, f"read_parquet({names}, {AS_IT_IS})")
    types = _types_of_text(db, wanted, answer)
    if kind == "json":
        table = quote_identifier(f"table {wanted.name}")
        call = json_rows(db, table, files, types, f'"{wanted.sink.name}"')
    else:
        given = {name.lower(): value for name, value in options.items()}
        header = given.get("header", "true").strip().lower()
        separator = given.get("sep", given.get("delimiter", ","))
        unknown = set(given) - {"path", "format", "header", "sep", "delimiter", "nullvalue"}
        if unknown:
            raise SpecError(
                f'"{wanted.sink.name}": diff cannot read its files with the option {sorted(unknown)[0]!r}',
                code="not-compared",
                hint=f"pass the rows as Parquet files with --output {wanted.name}=PATH",
            )
        told = ", ".join(f"{text(name)}: {text(kind_)}" for name, kind_ in types.items())
        null = text(given.get("nullvalue", ""))
        call = (
            f"read_csv({names}, {AS_IT_IS}, auto_detect = false, header = {header},"
            f" delim = {text(separator)}, quote = '\"', escape = '\\', nullstr = {null},"
            f" allow_quoted_nulls = false, columns = {{{told}}})"
        )
    return _select_by_position(db, wanted, call)


def _types_of_text(db: Any, wanted: Wanted, answer: str) -> dict[str, str]:
    """Return the types of the columns in text files: those of the answer, with times as written.

    Times have a time zone, as in the files.

    Raises:
        EngineError: Values of a type cannot be read from text exactly as they were written.
    """
    types = types_of(db, answer)
    told = {}
    for number, name in enumerate(wanted.columns):
        kind = types[column_name(number)]
        if "BLOB" in kind or "INTERVAL" in kind or "MAP(" in kind:
            raise EngineError(
                f'"{wanted.sink.name}": column "{name}" is {kind}, which diff cannot read from text files',
                code="not-compared",
                hint=f"pass the rows as Parquet files with --output {wanted.name}=PATH",
            )
        told[name] = "TIMESTAMP WITH TIME ZONE" if kind == "TIMESTAMP" else kind
    if wanted.mode is OutputMode.CHANGELOG:
        told[SHOWN_DIFF] = "BIGINT"
    return told


def _keep_table(db: Any, table: str, rows: Any) -> None:
    """Store the rows of an Arrow reader as a DuckDB table."""
    given = ours("read")
    db.register(given, rows)
    fetch_rows(db, f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM {given}")
    db.unregister(given)


def _cast_numeric_texts(db: Any, wanted: Wanted, answer: str, table: str) -> str:
    """Cast numbers that the table has as texts (PostgreSQL's ``numeric``) to the answer's types.

    Raises:
        EngineError: A text is not a number of its type.
    """
    expected, given = types_of(db, answer), types_of(db, table)
    changed = []
    for number, name in enumerate(wanted.columns):
        kind = expected[column_name(number)]
        if given.get(name) != "VARCHAR" or not is_exact(kind):
            continue
        there = _strip_trailing_zeros(f"CAST(TRY_CAST({quote_identifier(name)} AS {kind}) AS VARCHAR)")
        differs = f"{there} IS DISTINCT FROM {_strip_trailing_zeros(quote_identifier(name))}"
        odd = fetch_rows(db, f"SELECT {quote_identifier(name)} FROM {table} WHERE {differs} LIMIT 1")
        if odd:
            raise EngineError(
                f'"{wanted.sink.name}": column "{name}" has {odd[0][0]}, and is {kind} in the batch answer',
                code="not-compared",
                hint="check that this query wrote the table",
            )
        changed.append(f"CAST({quote_identifier(name)} AS {kind}) AS {quote_identifier(name)}")
    return f"(SELECT * REPLACE ({', '.join(changed)}) FROM {table} r)" if changed else table


def _strip_trailing_zeros(number: str) -> str:
    """Build SQL that removes trailing zeros from the fraction of a number as text."""
    return f"regexp_replace({number}, '(\\.0*|(\\.\\d*[1-9])0*)$', '\\2')"


def _select_by_position(db: Any, wanted: Wanted, relation: str) -> str:
    """Build a query that names the relation's columns by their position in the job's query."""
    types = types_of(db, relation)
    by_lower = {name.lower(): name for name in types}
    missing = [name for name in wanted.columns if name.lower() not in by_lower]
    if missing:
        raise EngineError(
            f'the output of "{wanted.name}" has no column "{missing[0]}"; it has {", ".join(types)}',
            code="not-compared",
            hint="check that this is the output of this query",
        )
    shown = []
    for number, name in enumerate(wanted.columns):
        there = by_lower[name.lower()]
        zoned = types[there] == "TIMESTAMP WITH TIME ZONE"
        value = f"timezone('UTC', {quote_identifier(there)})" if zoned else quote_identifier(there)
        shown.append(f"{value} AS {column_name(number)}")
    by_diff = wanted.mode is OutputMode.CHANGELOG and SHOWN_DIFF in types
    shown.append(f"{quote_identifier(SHOWN_DIFF) if by_diff else 'CAST(1 AS BIGINT)'} AS {COUNT}")
    return f"(SELECT {', '.join(shown)} FROM {relation} r)"
