"""Tables that rows meet as of their tick, read in this process: rows that were given, and local files."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import pyarrow as pa

from watersmeet.engine.local.evaluate import BranchEvaluator
from watersmeet.engine.step.table_files import local_files, version_of
from watersmeet.engine.step.tables import TableReader, TableWriter
from watersmeet.engine.step.tasks import SideTask
from watersmeet.engine.step.write import Placing
from watersmeet.engine.values import HeldTables, arrow_type, to_table
from watersmeet.errors import EngineError, SpecError, near_names
from watersmeet.kernel.residual import connection
from watersmeet.plan.model import BranchPlan
from watersmeet.spec.files import local_path, path_of
from watersmeet.spec.model import Source
from watersmeet.state.run import Run
from watersmeet.state.store import Store

_KNOWN: dict[str, dict[str, str]] = {
    "parquet": {},
    "json": {},
    "csv": {"header": "header", "sep": "delim", "delimiter": "delim", "quote": "quote", "escape": "escape"},
}
"""Per format, the options of Spark's reader that are read here, and DuckDB's names for them."""


def reader_of(branch: BranchPlan, evaluate: BranchEvaluator, held: HeldTables) -> TableReader:
    """What reads the table of a branch, once it is known to be there. Raises: EngineError, SpecError."""
    if branch.source.connector == "memory":
        return _Held(branch.source, evaluate, held)
    if branch.source.connector == "file":
        found = _Files(branch.source, evaluate)
        _call(branch.source)
        found.version()
        return found
    raise EngineError(
        f'the in-process engine does not read tables of type "{branch.source.connector}"',
        code="unknown-connector",
        hint="run it on Spark (--engine spark)",
    )


@dataclass(frozen=True)
class _Held:
    source: Source
    evaluate: BranchEvaluator
    held: HeldTables

    def version(self) -> str | None:
        return self.held.version(self.source)

    def read(self, side: SideTask, store: Store, tick: int, placing: Placing | None) -> list[Run]:
        rows = self.held.rows(self.source)
        writer = TableWriter(side, store, tick, placing)
        writer.add(self.evaluate(to_table(self.source.columns, rows, [1] * len(rows))))
        return writer.finish()


@dataclass(frozen=True)
class _Files:
    source: Source
    evaluate: BranchEvaluator

    def version(self) -> str | None:
        return version_of(local_files(self.source, _local(self.source)))

    def read(self, side: SideTask, store: Store, tick: int, placing: Placing | None) -> list[Run]:
        writer = TableWriter(side, store, tick, placing)
        table = _rows_of(self.source)
        extra = to_table((), [{}] * table.num_rows, [1] * table.num_rows)
        for name in extra.column_names:
            table = table.append_column(name, extra.column(name))
        writer.add(self.evaluate(table))
        return writer.finish()


def _local(source: Source) -> str:
    path = path_of(source.options)
    local = local_path(path)
    if local is None:
        raise EngineError(
            f'the in-process engine reads local files, and "{path}" is none',
            code="path-missing",
            hint="run it on Spark (--engine spark)",
        )
    return local


def _rows_of(source: Source) -> pa.Table:
    """The declared columns of all files, in their declared types."""
    schema = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in source.columns])
    files = [path for path, size, _ in local_files(source, _local(source)) if size]
    if not files:
        return schema.empty_table()
    call, arguments = _call(source), [files]
    cursor = connection().cursor()
    try:
        names = ", ".join('"' + name.replace('"', '""') + '"' for name in schema.names)
        found: pa.Table = cursor.sql(f"SELECT {names} FROM {call}", params=arguments).to_arrow_table()
    except duckdb.Error as error:
        raise EngineError(
            f'table "{source.name}" cannot be read: {str(error).splitlines()[0]}', code="table-unreadable"
        ) from None
    finally:
        cursor.close()
    return found.cast(schema)


def _call(source: Source) -> str:
    options = {name.lower(): value for name, value in source.options.items() if name.lower() != "path"}
    kind = options.pop("format", "parquet").strip().lower()
    known = _KNOWN.get(kind)
    if known is None:
        raise SpecError(
            f'table "{source.name}" cannot have the format "{kind}"',
            code="unknown-format",
            hint=near_names(kind, _KNOWN),
        )
    for name in options:
        if name not in known:
            raise SpecError(
                f'the in-process engine does not read the option "{name}" of table "{source.name}"',
                code="unknown-option",
                hint="run it on Spark (--engine spark)",
            )
    if kind == "parquet":
        return "read_parquet(?)"
    types = ", ".join(f"{_text(c.name)}: {_text(_duckdb_type(arrow_type(c.type)))}" for c in source.columns)
    if kind == "json":
        return f"read_json(?, format = 'newline_delimited', columns = {{{types}}})"
    written = {known[name]: value for name, value in ({"header": "true"} | options).items()}
    others = ", ".join(f"{name} = {_text(value)}" for name, value in written.items())
    return f"read_csv(?, auto_detect = false, {others}, columns = {{{types}}})"


def _duckdb_type(kind: pa.DataType) -> str:
    empty = pa.table({"c": pa.nulls(0, kind)})  # noqa: F841
    return str(connection().cursor().sql("SELECT c FROM empty").types[0])


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
