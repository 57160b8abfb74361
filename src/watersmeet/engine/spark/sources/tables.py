"""Tables that rows meet as of their tick, read by Spark: files, and what databases hold (JDBC).

Reading is one Spark job: the kept columns and the flag are evaluated by Spark, and tasks write them into
runs. Files are looked at in every tick in which rows come, and read when one has changed; a database is read
again after a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.engine.driver.tables import TableReader, TableWriter
from watersmeet.engine.files import csv_header
from watersmeet.engine.files.table_files import Entry, local_files, version_of
from watersmeet.engine.messages.shapes import SideShape
from watersmeet.engine.spark.carried import Carrying
from watersmeet.engine.spark.errors import readable_error
from watersmeet.engine.spark.sources import jdbc
from watersmeet.engine.spark.sources.files.there import check_table
from watersmeet.engine.spark.sources.frames import (
    check_columns,
    check_parquet,
    check_path,
    check_there,
    hadoop_path,
    layout_at,
    lowered,
    read_records,
)
from watersmeet.engine.spark.sources.scan import Scan
from watersmeet.engine.spark.sources.views import BROKEN
from watersmeet.engine.tasks.write import Placing
from watersmeet.errors import EngineError, SpecError, WatersmeetError, near_names, raise_all
from watersmeet.plan.model.job import JobPlan
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import format_of, local_path, path_of, source_problems
from watersmeet.state.run import Run
from watersmeet.state.store import Store

ATTEMPTS = 3
"""Files that are replaced while they are being read are read again, so often."""


@dataclass(frozen=True)
class Table:
    """How a table is read: ``frame`` gives its declared columns (and `BROKEN`, for formats that parse),
    anew in each call; ``version``: see `TableReader`."""

    frame: Callable[[], DataFrame]
    version: Callable[[], str | None]


def table_of(spark: SparkSession, source: Source) -> Table:
    """How Spark reads ``source``; what can be checked without its rows is.

    Raises:
        EngineError: it is not there, or is not as declared.
        SpecError: an option is missing or wrong.
    """
    if source.traits.snapshot:
        return Table(jdbc.checked(spark, source), lambda: None)
    if source.traits.files:
        return _files(spark, source)
    raise SpecError(
        f'"{source.name}": there is no table of type "{source.connector}" on Spark',
        code="unknown-connector",
        hint=near_names(source.connector, ("file", "jdbc")),
    )


def table_readers(plan: JobPlan, scanned: Scan, read: Callable[[Source], Table]) -> dict[str, TableReader]:
    """What reads the tables of a plan, per ``query/alias``; ``read``: how each source is read."""
    tables = {node.source.name: read(node.source) for _, node in plan.lookups}
    return {
        name: SparkTable(node.source, tables[node.source.name], scanned.tables[name])
        for query, node in plan.lookups
        for name in [f"{query.name}/{node.table.name}"]
    }


def check_table_files(source: Source) -> bool:
    """What can be seen of a table of files without Spark; see `frames.check_files`. Returns whether the
    columns of Parquet files were seen."""
    raise_all(source_problems(source, table=True))
    path, wanted = path_of(source.options), format_of(source.options)
    local = local_path(path)
    if local is None:
        return False
    what = f'table "{source.name}"'
    check_there(what, path)
    check_table(source)
    if wanted == "csv" and csv_header.by_name(given := lowered(source.options)):
        layout_at(what, source, path, given)
    return wanted == "parquet" and check_parquet(what, source, path)


def _files(spark: SparkSession, source: Source) -> Table:
    seen = check_table_files(source)
    path, wanted = path_of(source.options), format_of(source.options)
    local = local_path(path)
    check_path(spark, f'table "{source.name}"', path)

    def listed() -> list[Entry]:
        if local is None:
            return _listed(spark, source, path)
        check_table(source)
        return local_files(source, local)

    if wanted == "parquet" and not seen and listed():
        _check_columns(spark, source, path)
    return Table(lambda: read_records(spark.read, source, wanted, path), lambda: version_of(listed()))


def _check_columns(spark: SparkSession, source: Source, path: str) -> None:
    """Of files that this process cannot look at: a column that they lack would be NULL in every row. Spark
    reads no schema that has types it does not know, asked for or not."""
    try:
        columns = spark.read.parquet(hadoop_path(path, stream=False)).columns
    except Exception as error:
        raise readable_error(error, f'table "{source.name}"') from None
    check_columns(f'table "{source.name}"', source, columns, f"the files at {path} have")


def _listed(spark: SparkSession, source: Source, path: str) -> list[Entry]:
    """The same for any file system that Hadoop knows. One call into the JVM per file and property."""
    jvm: Any = spark._jvm
    root = jvm.org.apache.hadoop.fs.Path(path)
    system = root.getFileSystem(spark._jsc.hadoopConfiguration())
    roots = system.globStatus(root)
    if not roots:
        raise EngineError(
            f'table "{source.name}": there is no "{path}"',
            code="path-missing",
            hint="name a file, or a directory of files, that is there",
        )
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

    def read(self, side: SideShape, store: Store, tick: int, placing: Placing | None) -> list[Run]:
        for attempt in range(1, ATTEMPTS + 1):
            before = self.table.version()
            try:
                return self._copied(side, store, tick, placing)
            except Exception as error:
                if attempt == ATTEMPTS or before == self.table.version():
                    raise _unreadable(self.source, error) from None
        raise AssertionError

    def _copied(self, side: SideShape, store: Store, tick: int, placing: Placing | None) -> list[Run]:
        frame = self.table.frame()
        broken = BROKEN in frame.columns
        chosen = [F.expr(text).alias(name) for text, name in self.columns]
        frame = frame.select(*chosen, *([F.col(BROKEN)] if broken else []))
        copier = Copier(side, store, tick, placing, self.source.name)
        return [
            Run.model_validate_json(row[0])
            for row in frame.mapInArrow(Carrying(copier), "run STRING").collect()
        ]


def _unreadable(source: Source, error: Exception) -> WatersmeetError:
    if source.traits.snapshot:
        return jdbc.readable(source, error)
    return readable_error(error, f'table "{source.name}"')


@dataclass(frozen=True)
class Copier:
    """The function given to `mapInArrow`: rows in, descriptions of runs out."""

    side: SideShape
    store: Store
    tick: int
    placing: Placing | None
    name: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = TableWriter(self.side, self.store, self.tick, self.placing)
        for batch in batches:
            if BROKEN in batch.schema.names:
                self._check(batch.column(BROKEN))
                batch = batch.drop_columns([BROKEN])
            writer.add(batch)
        runs = [run.model_dump_json() for run in writer.finish()]
        yield pa.RecordBatch.from_arrays([pa.array(runs, type=pa.string())], names=["run"])

    def _check(self, broken: pa.Array) -> None:
        broken_texts = broken.drop_null()
        if len(broken_texts):
            raise EngineError(
                f'table "{self.name}": a record does not parse as declared: {broken_texts[0].as_py()[:200]}',
                code="table-unreadable",
                hint="mend the file, or declare the columns as they are: rows would miss their partners",
            )
