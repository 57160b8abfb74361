"""Tables that Spark reads as a whole, to be met as of a tick or compared: files, and what databases hold.

Reading is one Spark job: the kept columns and the flag are evaluated by Spark, and tasks write them into
runs. Files are looked at in every tick in which rows come, and read when one has changed; a database is read
again after a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from watersmeet.errors import EngineError, SpecError, WatersmeetError, near_names, raise_all
from watersmeet.names import ours
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator.table_reads import SnapshotReader, TableReader, TableWriter
from watersmeet.runtime.files import csv_header
from watersmeet.runtime.files.listing import check_table, hadoop_path
from watersmeet.runtime.files.long_lines import check_lines
from watersmeet.runtime.files.parquet_types import (
    compare_columns_if_readable,
    nanosecond_columns,
)
from watersmeet.runtime.files.partitions import check_partitions
from watersmeet.runtime.files.table_files import (
    Entry,
    digest_listing,
    list_local_files,
    missing_path_error,
)
from watersmeet.runtime.messages.shapes import SideShape
from watersmeet.runtime.spark import lazy_functions as F
from watersmeet.runtime.spark.broken_records import record_check
from watersmeet.runtime.spark.configuration import max_line_bytes
from watersmeet.runtime.spark.errors import ErrorSealingTask, readable_error
from watersmeet.runtime.spark.job.external_session import find_frames_session
from watersmeet.runtime.spark.read_types import cast_to_declared, use_read_types
from watersmeet.runtime.spark.rejected_values import misfit_sql
from watersmeet.runtime.spark.sources import jdbc
from watersmeet.runtime.spark.sources.columns import BROKEN, check_columns, check_types
from watersmeet.runtime.spark.sources.dataframes import Maker, move_to_session
from watersmeet.runtime.spark.sources.files.json_texts import (
    JsonTexts,
    find_first_trailing,
    has_other_case_fields,
    read_repaired_rows,
)
from watersmeet.runtime.spark.sources.files.text_files import CsvTexts, format_text
from watersmeet.runtime.spark.sources.frames import (
    check_directories,
    check_parquet,
    check_path,
    check_there,
    list_local_paths,
    read_csv_layout,
    read_records,
)
from watersmeet.runtime.spark.sources.scan import Scan
from watersmeet.runtime.spark.sql_text import quote_name
from watersmeet.runtime.tasks.run_writer import PlaceHashes
from watersmeet.spec.connectors import DATAFRAME_TABLE
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import format_of, local_path, path_of, source_problems
from watersmeet.spec.options.values import lower_names
from watersmeet.state.runs.layout import Run
from watersmeet.state.store import Store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ATTEMPTS = 3
"""Files that are replaced while they are being read are read again, so often."""


@dataclass(frozen=True)
class Table:
    """Access to a table.

    ``frame`` makes a new frame of its declared columns (and `BROKEN`, for formats that parse) in each
    call; ``version``: see `TableReader`; ``files``: lists the existing files of a table of files;
    ``check``: checks, after the rows were read, what Spark's readers do not report. It raises
    EngineError.
    """

    frame: Callable[[], DataFrame]
    version: Callable[[], str | None]
    files: Callable[[], list[Entry]] | None = None
    check: Callable[[], None] = lambda: None


def open_table(
    spark: SparkSession, source: Source, makers: Mapping[str, Maker] = MappingProxyType({})
) -> Table:
    """Open ``source`` as a table, and check everything that does not need its rows.

    Args:
        makers: by name, the functions that make the DataFrames of tables.

    Raises:
        EngineError: it does not exist, or is not as declared.
        SpecError: an option is missing or wrong.
    """
    if source.connector == DATAFRAME_TABLE:
        return _open_function_table(spark, source, makers.get(source.name))
    if source.traits.snapshot:
        return Table(jdbc.open_checked_table(spark, source), lambda: None)
    if source.traits.files:
        return _open_file_table(spark, source)
    raise SpecError(
        f'"{source.name}": watersmeet on Spark has no table of TYPE "{source.connector}"',
        code="unknown-connector",
        hint=near_names(source.connector, ("file", "jdbc")),
    )


def table_readers(plan: JobPlan, scanned: Scan, read: Callable[[Source], Table]) -> dict[str, TableReader]:
    """Build the readers of a plan's lookup tables, per ``query/alias``.

    Args:
        read: opens the table of a source.
    """
    tables = {node.source.name: read(node.source) for _, node in plan.lookups}
    return {
        name: SparkTable(node.source, tables[node.source.name], scanned.tables[name])
        for query, node in plan.lookups
        for name in [f"{query.name}/{node.table.name}"]
    }


def snapshot_readers(
    plan: JobPlan, scanned: Scan, read: Callable[[Source], Table], note: Callable[[str], None]
) -> dict[str, SnapshotReader]:
    """Build the readers of a plan's compared tables, per source.

    Args:
        read: opens the table of a source.
        note: receives notices for the user.
    """
    columns: dict[str, dict[str, tuple[tuple[str, str], ...]]] = {}
    for query, node in plan.compared:
        name = f"{query.name}/{node.side.name}"
        columns.setdefault(node.source.name, {})[name] = scanned.tables[name]
    return {
        source.name: SparkSnapshot(source, read(source), columns[source.name], note)
        for source in plan.tables
        if source.name in columns
    }


def _open_function_table(spark: SparkSession, source: Source, maker: Maker | None) -> Table:
    what = f'table "{source.name}"'
    if maker is None:
        raise SpecError(
            f"{what} needs a function that returns its DataFrame, which only the Python program of the"
            " job has",
            code="not-supported",
            hint="run the job in the Python program that calls table(function, …)",
        )

    def frame() -> DataFrame:
        from pyspark.sql import DataFrame

        try:
            made = maker()
        except Exception as error:  # of the user's function
            raise readable_error(error, what) from None
        if not isinstance(made, DataFrame) or made.isStreaming:
            raise EngineError(
                f"{what}: its function returned"
                f" {'a streaming DataFrame' if isinstance(made, DataFrame) else type(made).__name__},"
                " not a batch DataFrame",
                code="not-read",
                hint="let the function return spark.read…, not spark.readStream…",
            )
        find_frames_session({source.name: made})
        check_columns(what, source, made.columns, "the DataFrame has")
        check_types(spark, what, source, made)
        return move_to_session(spark, made).select(
            *(F.col(quote_name(column.name)) for column in source.columns)
        )

    frame()
    return Table(frame, lambda: None)


def check_table_files(source: Source) -> bool:
    """Check what is visible of a table of files without Spark; see `frames.check_files`.

    Returns:
        True if the columns of Parquet files were checked.
    """
    raise_all(source_problems(source, table=True))
    path, wanted = path_of(source.options), format_of(source.options)
    local = local_path(path)
    if local is None:
        return False
    what = f'table "{source.name}"'
    check_there(what, path)
    check_table(source)
    check_directories(what, source, list_local_paths(source))
    if wanted == "csv" and csv_header.matches_by_name(given := lower_names(source.options)):
        read_csv_layout(what, source, path, given)
    return wanted == "parquet" and check_parquet(what, source, path)


def _open_file_table(spark: SparkSession, source: Source) -> Table:
    seen = check_table_files(source)
    path, wanted = path_of(source.options), format_of(source.options)
    local = local_path(path)
    what, where = f'table "{source.name}"', hadoop_path(path, stream=False)
    check_path(spark, what, path)

    def list_files() -> list[Entry]:
        if local is None:
            return _list_hadoop_files(spark, source, path)
        check_table(source)
        return list_local_files(source, local)

    if wanted == "parquet" and not seen and list_files():
        _check_columns(spark, source, path)

    def frame() -> DataFrame:
        nanos = nanosecond_columns(source) if wanted == "parquet" else None
        longest = max_line_bytes(spark)
        for name, nbytes, _ in list_files() if local is not None else ():
            check_partitions(what, source, name)
            check_lines(what, source, name, nbytes, longest)
            if wanted == "parquet":
                compare_columns_if_readable(what, source, name, nanos)
        if wanted == "json" and has_other_case_fields(spark, source, where):
            return read_repaired_rows(spark, source, JsonTexts.of(source), path)
        frame = read_records(spark.read, use_read_types(source), wanted, path, nanos=nanos)
        return cast_to_declared(frame, source)

    return Table(
        frame,
        lambda: digest_listing(list_files()),
        list_files,
        lambda: _check_texts(spark, source, wanted, where),
    )


def _check_texts(spark: SparkSession, source: Source, wanted: str, where: str) -> None:
    """Check that no JSON record has trailing tokens and that Spark misreads no CSV line."""
    if wanted == "json" and (run_on := find_first_trailing(spark, source, where)) is not None:
        raise _broken_record_error(source, run_on)
    if wanted == "csv":
        texts = CsvTexts.of(source)
        problem = texts.first_problem(f'table "{source.name}"', texts.list_misread_lines(spark, where))
        if problem is not None:
            raise problem


def _check_columns(spark: SparkSession, source: Source, path: str) -> None:
    """Check the columns of files that this process cannot open, through Spark.

    A column that they lack would be NULL in every row. Spark cannot read a schema with types that it
    does
    not know, even in columns that are not needed.
    """
    try:
        columns = spark.read.parquet(hadoop_path(path, stream=False)).columns
    except Exception as error:
        raise readable_error(error, f'table "{source.name}"') from None
    check_columns(f'table "{source.name}"', source, columns, f"the files at {path} have")


def _list_hadoop_files(spark: SparkSession, source: Source, path: str) -> list[Entry]:
    """List the table's files on any file system that Hadoop supports.

    It makes one call into the JVM per file and property.
    """
    jvm: Any = spark._jvm
    root = jvm.org.apache.hadoop.fs.Path(path)
    system = root.getFileSystem(spark._jsc.hadoopConfiguration())
    roots = system.globStatus(root)
    if not roots:
        raise missing_path_error(f'table "{source.name}"', path)
    entries: list[Entry] = []
    for file_root in roots:
        files = system.listFiles(file_root.getPath(), True)
        while files.hasNext():
            status = files.next()
            name = status.getPath().toString()
            if not any(
                part.startswith((".", "_")) for part in name[len(str(file_root.getPath())) :].split("/")
            ):
                entries.append((name, status.getLen(), status.getModificationTime()))
    return entries


@dataclass(frozen=True)
class SparkTable:
    """A table as one join asks for it; a `TableReader`.

    Args:
        columns: Spark SQL over the declared columns: (text, name), see `Scan.tables`.
    """

    source: Source
    table: Table
    columns: tuple[tuple[str, str], ...]

    def version(self) -> str | None:
        return self.table.version()

    def read(self, side: SideShape, store: Store, tick: int, placing: PlaceHashes | None) -> list[Run]:
        for attempt in range(1, ATTEMPTS + 1):
            before = self.table.version()
            try:
                runs = jdbc.retry_while_away(
                    self.source, lambda: self._copy_table(side, store, tick, placing)
                )
                self.table.check()
                return runs
            except Exception as error:
                if attempt == ATTEMPTS or before == self.table.version():
                    raise _unreadable_error(self.source, error) from None
        raise AssertionError

    def _copy_table(self, side: SideShape, store: Store, tick: int, placing: PlaceHashes | None) -> list[Run]:
        frame = self.table.frame()
        chosen = [F.expr(text).alias(name) for text, name in self.columns]
        frame = frame.select(
            *chosen, *_broken_columns(frame, self.source, [text for text, _ in self.columns])
        )
        columns = tuple((name, name) for _, name in self.columns)
        (runs,) = _run_copier(frame, Copier((side,), (columns,), store, tick, placing, self.source))
        return runs


def _unreadable_error(source: Source, error: Exception) -> WatersmeetError:
    if source.traits.snapshot and source.connector != DATAFRAME_TABLE:
        return jdbc.explain_jdbc_error(source, error)
    return readable_error(error, f'table "{source.name}"')


@dataclass(frozen=True)
class SparkSnapshot:
    """Reader of a compared table for all inputs that use it; a `SnapshotReader`.

    Args:
        columns: per arrangement, as in `SparkTable`.
        note: receives a notice when there is nothing to read.
    """

    source: Source
    table: Table
    columns: Mapping[str, tuple[tuple[str, str], ...]]
    note: Callable[[str], None]

    def version(self) -> str | None:
        return self.table.version()

    def read(
        self, sides: Sequence[SideShape], store: Store, tick: int, placing: PlaceHashes | None
    ) -> list[list[Run]] | None:
        """Read the table in one Spark job.

        If files change or disappear during the read, it reads them again: with only some of them, rows that
        nobody deleted would be missing.

        Returns:
            The runs of each side, or None if the table has no file.
        """
        for _ in range(ATTEMPTS):
            before = self._files()
            if before is not None and not before:
                self.note(
                    f'table "{self.source.name}" has no file, so the job keeps the rows that it read'
                    " last (write a file without rows to empty the table)"
                )
                return None
            problem: Exception | None = None
            try:
                runs = jdbc.retry_while_away(
                    self.source, lambda: self._copy_table(sides, store, tick, placing)
                )
                self.table.check()
            except Exception as error:
                problem = error
            after = self._files()
            if before is None or after is None or before <= after:
                if problem is not None:
                    raise _unreadable_error(self.source, problem) from None
                return runs
        raise EngineError(
            f'table "{self.source.name}": its files were replaced {ATTEMPTS} times while they were read',
            code="table-changing",
            hint="write complete files elsewhere and move them into place, less often than a read takes",
        )

    def _files(self) -> set[Entry] | None:
        return None if self.table.files is None else set(self.table.files())

    def _copy_table(
        self, sides: Sequence[SideShape], store: Store, tick: int, placing: PlaceHashes | None
    ) -> list[list[Run]]:
        asked = [self.columns[side.arrangement] for side in sides]
        texts = list(dict.fromkeys(text for columns in asked for text, _ in columns))
        name_of = {text: ours(str(number)) for number, text in enumerate(texts)}
        frame = self.table.frame()
        chosen = [F.expr(text).alias(name) for text, name in name_of.items()]
        frame = frame.select(*chosen, *_broken_columns(frame, self.source, texts))
        given = tuple(tuple((name_of[text], name) for text, name in columns) for columns in asked)
        return _run_copier(frame, Copier(tuple(sides), given, store, tick, placing, self.source))


def _broken_columns(frame: DataFrame, source: Source, texts: Sequence[str]) -> list[Column]:
    """Return `BROKEN` of a table's frame, if its records may be broken.

    Args:
        texts: the expressions that the job evaluates on the table.
    """
    told = [BROKEN] if BROKEN in frame.columns else []
    if (misfit := misfit_sql(source, texts)) is not None:
        told.append(misfit)
    return [F.coalesce(*map(F.expr, told)).alias(BROKEN)] if told else []


def _run_copier(frame: DataFrame, copier: Copier) -> list[list[Run]]:
    """Run the copier's tasks and return the runs of each side."""
    runs: list[list[Run]] = [[] for _ in copier.sides]
    for row in frame.mapInArrow(ErrorSealingTask(copier), "side INT, run STRING").collect():
        runs[row[0]].append(Run.model_validate_json(row[1]))
    return runs


@dataclass(frozen=True)
class Copier:
    """The function given to `mapInArrow`: rows in, descriptions of runs out, with the number of their side.

    ``columns``: per side, (column of the rows, its name there).
    """

    sides: tuple[SideShape, ...]
    columns: tuple[tuple[tuple[str, str], ...], ...]
    store: Store
    tick: int
    placing: PlaceHashes | None
    source: Source

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writers = [TableWriter(side, self.store, self.tick, self.placing) for side in self.sides]
        for batch in batches:
            if BROKEN in batch.schema.names:
                self._check(batch.column(BROKEN))
            for writer, columns in zip(writers, self.columns, strict=True):
                chosen = [batch.column(column) for column, _ in columns]
                writer.add(pa.RecordBatch.from_arrays(chosen, names=[name for _, name in columns]))
        runs = [
            (number, run.model_dump_json())
            for number, writer in enumerate(writers)
            for run in writer.finish()
        ]
        numbers, texts = [number for number, _ in runs], [text for _, text in runs]
        yield pa.RecordBatch.from_arrays(
            [pa.array(numbers, type=pa.int32()), pa.array(texts, type=pa.string())], names=["side", "run"]
        )

    def _check(self, broken: pa.Array) -> None:
        broken_texts = broken.drop_null()
        if len(broken_texts):
            raise _broken_record_error(self.source, format_text(broken_texts[0]))


def _broken_record_error(source: Source, record: str) -> EngineError:
    why = ""
    with suppress(EngineError):  # of files that have changed by now: the record says enough
        check = record_check(source)
        why = "" if check is None else check.explain(record)
    shown = f"{record[:200]} ({why})" if why else record[:200]
    return EngineError(
        f'table "{source.name}": a record does not parse as declared: {shown}',
        code="table-unreadable",
        hint="correct the file, or declare the columns as the file has them; otherwise rows would miss"
        " matches",
    )
