"""The rows of a job's sources in DuckDB, where it is certain in this process what Spark reads of them; of
changing tables, what they hold after all of that."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from watersmeet.cli.diff.read import Read
from watersmeet.diff.contents import FILE, POSITION, fold
from watersmeet.diff.database import AS_IT_IS, quoted, ran, text, types_of
from watersmeet.diff.dialect import Named, Names, Uncommon
from watersmeet.diff.duckdb_sql import DuckDb
from watersmeet.diff.statement import AT, PART
from watersmeet.engine.spark.misfits import has_length
from watersmeet.engine.spark.sources.files.first_rows import first_rows
from watersmeet.engine.values import arrow_type, to_table
from watersmeet.errors import EngineError, SpecError, counted
from watersmeet.kernel.batches import one_table
from watersmeet.names import ours
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import OF_SOURCES, format_of
from watersmeet.spec.records.changes import computed_of_changes
from watersmeet.spec.time_zones import UTC
from watersmeet.types.sql_type import TIMESTAMP

MOST_RECORDS = 200_000
"""Of text, which is read one by one here; Spark reads more of them sooner."""


class TablesHere(dict[str, str]):
    """Per source the name of a table with its declared columns, and `PART` and `AT` where files came in an
    order. It is made when it is first asked for: what is wrong with one is nothing to queries without it.

    Raises, where it is asked for:
        Uncommon: Spark is to read it.
        SpecError: what a changing table holds cannot be decided.
    """

    def __init__(
        self, db: Any, read: Mapping[str, Read], time_zone: str, step: Callable[[str], None] = lambda _: None
    ) -> None:
        """``step``: is told which source is read."""
        self._db, self._read, self._time_zone, self._step = db, read, time_zone, step
        self._records = MOST_RECORDS
        self._refused: dict[str, Uncommon | SpecError] = {}

    def __missing__(self, name: str) -> str:
        import duckdb

        if name not in self._refused:
            try:
                self[name] = self._made(name)
                return self[name]
            except (Uncommon, SpecError) as error:
                self._refused[name] = error
            except duckdb.Error as error:
                self._refused[name] = Uncommon(str(error).splitlines()[0])
        raise self._refused[name]

    def _made(self, name: str) -> str:
        db, of = self._db, self._read[name]
        files, source = of.local_files, of.source
        self._step(f"{name}: {counted(len(of.files), 'file')}")
        if not source.traits.files and not of.named:
            raise Uncommon(f'"{name}" is {source.traits.called}')
        if files is None:
            raise Uncommon(f'"{name}" is in another file system')
        if any("=" in os.path.dirname(file) for file in files):
            raise Uncommon(f'"{name}" has columns in the names of directories')
        if source.changes and of.named:
            raise SpecError(
                f"--input {name}: the order of changes is not known for files passed with --input",
                code="not-compared",
                hint="remove --input: the state stores which files were read, and in which order",
            )
        number = len(self)
        table = quoted(ours(f"source{number}"))
        if _format(of) == "parquet":
            _of_parquet(db, table, source, files, of.asked)
        else:
            self._records -= _of_text(db, table, of, files, self._records, self._time_zone)
        more = _computed(source, utc=self._time_zone == UTC)
        computed = f"(SELECT *, {', '.join(more)} FROM {table})" if more else table
        if source.compared:
            _check_keys(db, source, f"{computed} r")
        elif source.changes:
            batches = "[" + ", ".join(map(str, of.batches)) + "]"
            given = quoted(ours(f"records{number}"))
            in_batches = f"* REPLACE (list_extract({batches}, {AT}) AS {AT}), {AT} AS {FILE}"
            ran(db, f"CREATE OR REPLACE TABLE {given} AS SELECT {in_batches} FROM {computed} r")
            fold(db, source, given, table, of.orders)
        return table


def _computed(source: Source, *, utc: bool) -> list[str]:
    """Return the columns that say which change a record is, where they are computed.

    Raises: Uncommon, where Spark is to compute them.
    """
    computed = computed_of_changes(source)
    if computed and source.primary_key is None:
        raise Uncommon(f'"{source.name}" has rows that are computed of what says what becomes of them')
    names: Names = {("", column.name): Named(quoted(column.name), column.type) for column in source.columns}
    sql = DuckDb({}, utc=utc).expression
    return [f"{sql(own.expr, names)} AS {quoted(own.column.name)}" for own in computed]


def _check_keys(db: Any, source: Source, table: str) -> None:
    """Raises: SpecError: several rows of a table that is read as a whole have one key, or NULL in it. Which
    of them is there goes by the columns that a query needs."""
    if source.primary_key is None:
        return
    keys = [quoted(name) for name in source.primary_key.columns]
    unclear = " OR ".join(["count(*) > 1", *(f"{key} IS NULL" for key in keys)])
    listed = ", ".join(keys)
    if ran(db, f"SELECT {listed} FROM {table} GROUP BY {listed} HAVING {unclear} LIMIT 1"):
        raise SpecError(
            f'the rows of "{source.name}" cannot be determined: several have the same key, or a key is NULL',
            code="not-compared",
            hint="remove the duplicate keys; watersmeet run counts such rows as broken",
        )


def _format(read: Read) -> str:
    kind = format_of(read.source.options) if read.source.traits.files else ""
    if not read.named:
        return kind
    endings = {os.path.splitext(file)[1].lower() for file in read.files}
    if endings <= {".parquet", ".pq"}:
        return "parquet"
    return kind or ("csv" if endings <= {".csv"} else "json")


def _of_parquet(db: Any, table: str, source: Source, files: list[str], asked: Collection[str]) -> None:
    wanted = {column.name: column for column in source.columns}
    limited = [column for column in source.columns if column.name in asked and has_length(column.type)]
    if any(not column.type.length for column in limited):
        raise Uncommon(f'"{source.name}" has texts of a limited length within others')
    if any(name.lower() not in OF_SOURCES for name in source.options if source.traits.files):
        raise Uncommon(f'"{source.name}" has options of Spark\'s reader')
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
                raise Uncommon(f'"{source.name}": {name} is {there.get(name)} in {file}')
    if not files:
        _of_arrow(db, table, source, to_table(source.columns, [], []), [])
        return
    listed = "[" + ", ".join(map(text, files)) + "]"
    relation = f"read_parquet({listed}, {AS_IT_IS}, filename = {text(ours('file'))}, file_row_number = true)"
    if limited:
        fits = (f"coalesce(length({quoted(c.name)}) <= {c.type.length}, TRUE)" for c in limited)
        relation = f"(SELECT * FROM {relation} WHERE {' AND '.join(fits)})"
    place = f"CAST(list_position({listed}, {quoted(ours('file'))}) AS BIGINT)"
    _kept(db, table, source, relation, place, "file_row_number")


def _of_text(db: Any, table: str, read: Read, files: list[str], records: int, time_zone: str) -> int:
    """How many records there were."""
    source, kind = read.source, _format(read)
    if not source.traits.files:
        source = replace(source, connector="file", options={"format": kind})
    parts, numbers, left = [], [], records
    for number, file in enumerate(files):
        of_file = replace(source, options={**source.options, "path": file, "format": kind})
        try:
            first = first_rows(of_file, left + 1, time_zone, needed=frozenset(c.name for c in source.columns))
        except EngineError as error:
            if not os.path.getsize(file):
                continue
            raise Uncommon(f'"{source.name}": {error.message}') from None
        if first.left_out:
            raise Uncommon(f'"{source.name}": records of which only Spark knows how they are read')
        left -= len(first.rows)
        if first.more or left < 0:
            raise Uncommon(f'"{source.name}" has many rows')
        parts.append(to_table(source.columns, first.rows, [1] * len(first.rows)))
        numbers += [number + 1] * len(first.rows)
    rows = one_table([*parts, to_table(source.columns, [], [])])
    _of_arrow(db, table, source, rows, numbers)
    return records - left


def _of_arrow(db: Any, table: str, source: Source, rows: pa.Table, numbers: list[int]) -> None:
    given = rows.select([column.name for column in source.columns])
    given = given.append_column(ours("number"), pa.array(numbers, pa.int64()))
    given = given.append_column(ours("row"), pa.array(range(len(numbers)), pa.int64()))
    db.register(ours("given"), given)
    _kept(db, table, source, ours("given"), quoted(ours("number")), quoted(ours("row")))
    db.unregister(ours("given"))


def _kept(db: Any, table: str, source: Source, relation: str, number: str, position: str) -> None:
    columns = [*_columns(db, source, relation), f"'' AS {PART}", f"{number} AS {AT}"]
    columns += [f"{position} AS {POSITION}"] if source.changes else []
    ran(db, f"CREATE OR REPLACE TABLE {table} AS SELECT {', '.join(columns)} FROM {relation}")


def _columns(db: Any, source: Source, relation: str) -> Iterator[str]:
    """Times as they are in UTC."""
    types = types_of(db, relation)
    for column in source.columns:
        name = quoted(column.name)
        zoned = types[column.name] == "TIMESTAMP WITH TIME ZONE"
        yield f"timezone('UTC', {name}) AS {name}" if zoned else name
