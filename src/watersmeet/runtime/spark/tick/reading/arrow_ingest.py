"""Ingest files that tasks read themselves, with Arrow."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from watersmeet.errors import EngineError
from watersmeet.kernel.batches import size
from watersmeet.parallel import parallel_map
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator.node_cost import SMALL_BYTES, count_thread_partitions
from watersmeet.runtime.files.file_split import (
    FileReadPlan,
    FileSplit,
    SplitAssignment,
    UnsupportedFile,
    assign_splits,
)
from watersmeet.runtime.files.listing import to_local_path
from watersmeet.runtime.files.parquet_files import UNREADABLE, measure_parquet_file
from watersmeet.runtime.files.reader import plan_reader, read_csv_columns
from watersmeet.runtime.files.table_files import is_hidden
from watersmeet.runtime.files.text_files import measure_text_file
from watersmeet.runtime.messages.work import TickStart
from watersmeet.runtime.spark.configuration import context_settings, list_setting_names, override_setting
from watersmeet.runtime.spark.errors import ErrorSealingTask
from watersmeet.runtime.spark.job.run_identity import needs_file_order
from watersmeet.runtime.spark.sources.columns import BROKEN, ROUNDED
from watersmeet.runtime.spark.sources.files.progress import BatchFiles
from watersmeet.runtime.spark.sources.scan import Scan
from watersmeet.runtime.spark.sources.views import SourceView
from watersmeet.runtime.spark.task_messages import PARTS
from watersmeet.runtime.spark.tick.ingest import (
    SCHEMA,
    SourceTask,
    encode_task_results,
    read_tick_property,
    start_of_tick,
)
from watersmeet.runtime.spark.tick.reading.arrow_sources import SETTINGS, is_arrow_readable
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import FileReader, format_of, local_path, path_of
from watersmeet.spec.options.spark import TIME_ZONE, says_how
from watersmeet.spec.options.values import lower_names
from watersmeet.spec.time_zones import UTC
from watersmeet.state.store import Store
from watersmeet.types.arrow import has_longer
from watersmeet.types.sql_type import SqlType

# How the files of plain sources are read, as far as the first of them show.

MAX_LISTED_FILES = 1_000
"""Of the files of a directory, whose times of change are asked for before Java is."""

SAMPLE_BYTES = 256 << 10
"""Bytes of a file: the lines that begin in them."""

FILE_MEASURES: Mapping[str, Callable[[str], tuple[int, int]]] = {
    "parquet": measure_parquet_file,
    "json": measure_text_file,
    "csv": measure_text_file,
}
"""Per format how many rows a file has, and of how many bytes, about."""


def list_reader_columns(frame: DataFrame) -> list[str]:
    """List the columns of the files in the order that Spark's reader of a source has."""
    leaf: Any = frame._jdf.queryExecution().logical().collectLeaves().head()
    names = [field["name"] for field in json.loads(leaf.schema().json())["fields"]]
    return [name for name in names if name != BROKEN]


def list_first_files(source: Source) -> list[str]:
    """List the files of a plain source that the first tick of a new job reads.

    Raises:
        OSError: they are unknown.
    """
    folder, options = local_path(path_of(source.options)), lower_names(source.options)
    if {"maxbytespertrigger", "pathglobfilter"} & options.keys():
        raise OSError("by bytes, or by names")
    if folder is not None and os.path.isfile(folder):
        return [folder]
    if folder is None or not os.path.isdir(folder):  # nor is what no path can be
        raise OSError("no directory")
    with os.scandir(folder) as entries:
        there = list(islice(entries, MAX_LISTED_FILES + 1))
    if len(there) > MAX_LISTED_FILES:
        raise OSError("too many to look at each")
    seen = [entry for entry in there if not is_hidden(entry.name)]
    if any(entry.is_dir() for entry in seen):
        raise OSError("some may be in its directories")
    files = [entry for entry in seen if entry.is_file()]
    files.sort(key=lambda entry: entry.stat().st_mtime)
    return [entry.path for entry in files[: int(options.get("maxfilespertrigger", len(files)))]]


def is_start_readable(source: Source, reader: FileReadPlan) -> bool:
    """Return True if tasks read the beginning of the first text file as Spark does.

    It is also True if there is no such file or if this is unknown. The result is only a hint: a stream
    that leaves the files to Spark from the start does not have to restart later.
    """
    beginning = _find_first_text(source)
    return beginning is None or _is_read(source, reader, beginning)


def is_likely_readable(source: Source) -> bool:
    """Return True if tasks can probably read the source's files, without asking Spark.

    It checks the beginning of the first text file.
    """
    beginning = _find_first_text(source)
    try:
        path = None if beginning is None else beginning.path
        reader = plan_reader(source, lambda: None if path is None else read_csv_columns(source, path), UTC)
    except (OSError, EngineError):  # it is gone, or the run will say what is wrong with it
        return False
    return reader is not None and (beginning is None or _is_read(source, reader, beginning))


def _is_read(source: Source, reader: FileReadPlan, part: FileSplit) -> bool:
    try:
        for _ in reader.rows_of(part, {column.name: column.type for column in source.columns}):
            pass
    except UnsupportedFile:
        return False
    return True


def _find_first_text(source: Source) -> FileSplit | None:
    """Find the beginning of the first text file that is not empty; None if none or unknown."""
    if format_of(source.options) == "parquet":
        return None
    try:
        for file in list_first_files(source):
            if nbytes := os.path.getsize(file):
                return FileSplit(file, 0, SAMPLE_BYTES if nbytes > SAMPLE_BYTES else None)
    except OSError:
        return None
    return None


# A stream that lists files and has no rows: driver or tasks read its files (`by_tasks`).


def build_listing_frame(sources: Sequence[DataFrame]) -> DataFrame:
    """Build a frame without rows that makes Spark list the files of all sources.

    It replaces `ingest_reports`.
    """
    nothing = [frame.selectExpr("'' AS kind", "'' AS text").where("false") for frame in sources]
    return reduce(DataFrame.unionAll, nothing)


# Ingest of files that tasks read themselves, by Arrow: no row goes through Java.
#
# Spark lists the files, keeps what was read, and runs the tasks. It is so where all sources of a job are
# plain streams of local files of which nothing but columns is asked, and where Arrow reads a file as
# Spark does (`runtime.files`). Few rows the driver reads in the place of tasks. Whoever finds a file
# that it does not know tells so, and Spark reads the tick, and some that follow: what was written of it
# by then is named nowhere.
#
# The stream's frame has no rows then (`build_listing_frame`): to plan a scan takes Spark longer than to list
# its
# files. When it comes to Spark to read, the stream ends, and begins again with rows, with the batch that
# it was at, as after a run that was killed.

UNSUPPORTED = "refused"
"""In the place of `REPORT`: a file is for Spark to read; why."""

MAX_TEXT = 1 << 20
"""Of the text that says which files there are, which goes with every task: characters."""

LEAVES_OUT_SCANS = "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan"
"""By which Spark plans no scan of a stream below WHERE false. Not its default: state would go too."""

_STARTING = threading.Lock()
"""Of two jobs that begin at once in one session, neither takes the other's setting for the user's."""

MAX_LEFT_TICKS = 256
"""Ticks that Spark reads, at most, behind one that it had to read: one, and after each further try in vain
twice as many."""

MAX_INLINE_FILES = 16
"""That the driver reads in the place of tasks."""


class _TooManyBytes(Exception):
    """Exception for rows with more bytes than the driver may read."""


@dataclass(frozen=True)
class _Source:
    """``columns``: those that are wanted: of the frame -> declared, with its type."""

    view: SourceView
    columns: Mapping[str, tuple[str, SqlType]]
    reader: FileReadPlan

    def rows_of(self, part: FileSplit) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file split in the form of the frame.

        Raises:
            UnsupportedFile: Spark has to read the file.
        """
        for rows in self.reader.rows_of(part, dict(self.columns.values())):
            for declared, type_ in self.columns.values():
                if has_longer(rows.column(declared), type_):
                    raise UnsupportedFile(f"{part.path}: {declared} has texts that are too long")
            arrays = [rows.column(declared) for declared, _ in self.columns.values()]
            names = list(self.columns)
            if self.view.parses:  # what has a record that does not parse is no plain file
                arrays.append(pa.nulls(rows.num_rows))
                names.append(BROKEN)
            if self.view.rounds:  # and neither is what has a number that would be rounded
                arrays.append(pa.nulls(rows.num_rows))
                names.append(ROUNDED)
            yield pa.RecordBatch.from_arrays(arrays, names=names)


def count_few_rows(files: Sequence[tuple[str, str, int]], most: int) -> int | None:
    """Estimate the number of rows of files if the driver may read them instead of tasks.

    Args:
        files: their formats, paths, and sizes.
        most: maximum number of rows; negative: the driver may read none.

    Returns:
        The number, or None if tasks have to read the files.
    """
    if most < 0 or len(files) > MAX_INLINE_FILES or sum(nbytes for *_, nbytes in files) > SMALL_BYTES:
        return None
    try:
        said = [FILE_MEASURES[wanted](path) for wanted, path, _ in files]
    except UNREADABLE:
        return None  # who reads it says what is wrong with it
    rows = sum(of_file for of_file, _ in said)
    return rows if rows <= most and sum(nbytes for _, nbytes in said) <= SMALL_BYTES else None


class ArrowReading:
    """Reading of files by tasks in one run of a job; see the module.

    ``gave_up``: Spark has to read a tick of the current stream, which has no rows.
    """

    def __init__(
        self,
        spark: SparkSession,
        plan: JobPlan,
        scanned: Scan,
        store: Store,
        reader: FileReader,
        small_rows: int,
        threads: int = 1,
    ) -> None:
        self._spark = spark
        self._small_rows, self._threads = small_rows, threads
        self._frames: dict[int, DataFrame] = {}
        self._formats = [format_of(source.options) for source in plan.sources]
        sources: dict[int, _Source] = {}
        self.why_not = _find_spark_reason(spark, plan, scanned, reader)
        """Why Spark reads the files in all of this run; None: tasks do, but for single ones."""
        self._in_vain = self._passed = 0
        self._refused: str | None = None
        self.gave_up, self._may_list = False, True
        if self.why_not is None:
            sources = dict(enumerate(_list_arrow_sources(plan, scanned, str(spark.conf.get(TIME_ZONE)))))
            if len(sources) < len(plan.sources):
                self.why_not = "some files of a source have too few or too many columns"
            elif not all(
                is_start_readable(source, sources[n].reader) for n, source in enumerate(plan.sources)
            ):
                self._may_list, self._in_vain, self._passed = False, 1, 1
        self._ingest = IngestFiles(sources, store)
        self._function = ErrorSealingTask(self._ingest)

    def begin_stream(self) -> bool:
        """Begin a stream; return True if it needs no rows because tasks read its files.

        After a stream turned out to need rows, all later streams have rows, even for ticks that tasks read.
        """
        self.gave_up = False
        return self.why_not is None and self._may_list

    def started(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start a stream of `build_listing_frame`; a stream retains the settings of its start."""
        with _STARTING, override_setting(self._spark, LEAVES_OUT_SCANS, "true"):
            return writer.start()

    def give_up(self) -> None:
        """Record that Spark has to read a tick of a stream without rows; the stream restarts."""
        self.gave_up, self._may_list = True, False

    def told(self, batch: BatchFiles | None, start: TickStart) -> list[Any] | None:
        """Read a batch's files within a tick and return the ingest results.

        Returns:
            The results, or None if Spark has to read the files.
        """
        if batch is None or self.why_not is not None:
            return None
        shares = self._assign_splits(batch)
        if shares is None:
            return None
        if not shares:
            return []
        if self._is_left_to_spark(batch):
            return None
        few = self._count_few_rows(batch)
        told = None if few is None else self._ingest_inline(shares, start, few)
        if told is None:
            told = self._ingest_in_tasks(shares)
        if told is None:
            return None
        if all(kind != UNSUPPORTED for kind, _ in told):
            self._in_vain = 0
            return told
        self._refused = batch.digest
        self._passed = min(2**self._in_vain, MAX_LEFT_TICKS)
        self._in_vain += 1
        return None

    def _is_left_to_spark(self, batch: BatchFiles) -> bool:
        """Return True if Spark has to read a batch because it had to read this one or earlier ones."""
        if self._refused is not None and batch.digest == self._refused:
            return True  # it comes again, to a stream that has rows
        if self._passed:
            self._passed -= 1
            return True
        return False

    def _count_few_rows(self, batch: BatchFiles) -> int | None:
        """Estimate the number of rows of the batch's files, if rows and bytes are few; else None."""
        files = [file for file in batch.files if file.batch >= 0 and file.size]
        said = [(self._formats[file.source], str(to_local_path(file.path)), file.size) for file in files]
        return count_few_rows(said, self._small_rows)

    def _ingest_inline(self, shares: SplitAssignment, start: TickStart, rows: int) -> list[Any] | None:
        """Read about ``rows`` rows in the driver and return the ingest results of tasks.

        Returns:
            The results, or None if the rows have more bytes than estimated; the files written until then
                are
            garbage.
        """
        threads = 1 if start.ordered else min(count_thread_partitions(rows, self._threads), len(shares))
        own = [[part for share in shares[first::threads] for part in share] for first in range(threads)]

        def list_ingest_results(parts: Sequence[tuple[int, FileSplit]]) -> list[tuple[str, str]]:
            return list(self._ingest.told(parts, start, SMALL_BYTES // threads))

        try:
            with self._ingest.store.together():
                return [row for of_share in parallel_map(list_ingest_results, own) for row in of_share]
        except UnsupportedFile as why:
            return [(UNSUPPORTED, str(why))]
        except _TooManyBytes:
            return None

    def _ingest_in_tasks(self, shares: SplitAssignment) -> list[Any] | None:
        text = json.dumps([[(n, part.path, part.start, part.end) for n, part in share] for share in shares])
        if len(text) > MAX_TEXT:
            return None
        context = self._spark.sparkContext
        context.setLocalProperty(PARTS, text)
        try:
            return list(self._frame(len(shares)).collect())
        finally:
            context.setLocalProperty(PARTS, "")  # or it goes with all tasks of the tick

    def _assign_splits(self, batch: BatchFiles) -> SplitAssignment | None:
        files = []
        for file in batch.files:
            if file.batch < 0:
                continue  # of another batch
            path = to_local_path(file.path)
            if path is None or file.size < 0 or "=" in os.path.dirname(path):
                return None  # elsewhere, gone, or with columns in its path
            if file.size:
                files.append((file.source, path, file.size))
        return assign_splits(files, self._spark.sparkContext.defaultParallelism) if files else []

    def _frame(self, tasks: int) -> DataFrame:
        """Return the frame for ``tasks`` tasks, which is planned once and reused in every tick."""
        if tasks not in self._frames:
            numbers = self._spark.range(0, tasks, 1, tasks)
            self._frames[tasks] = numbers.mapInArrow(self._function, SCHEMA)
        return self._frames[tasks]


@dataclass(frozen=True)
class IngestFiles:
    """The function given to `mapInArrow`: a row is the number of a task. ``sources``: by their numbers."""

    sources: Mapping[int, _Source]
    store: Store

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        for number in numbers:
            try:
                told = list(self.told(parse_splits(read_tick_property(PARTS))[number], start_of_tick()))
            except UnsupportedFile as why:
                told = [(UNSUPPORTED, str(why))]
            if told:
                yield encode_task_results(told)

    def told(
        self, parts: Sequence[tuple[int, FileSplit]], start: TickStart, most_bytes: int | None = None
    ) -> Iterator[tuple[str, str]]:
        """Yield the ingest results of the rows of file splits, each given with its source's number.

        Raises:
            UnsupportedFile: Spark has to read a file.
            _TooManyBytes: the rows exceed ``most_bytes``.
        """
        tasks: dict[int, SourceTask] = {}
        nbytes = 0
        for number, part in parts:
            source = self.sources[number]
            for rows in source.rows_of(part):
                nbytes += size(rows.columns)
                if most_bytes is not None and nbytes > most_bytes:
                    raise _TooManyBytes
                if number not in tasks:
                    tasks[number] = SourceTask(source.view, start, self.store)
                tasks[number].take(rows)
        for task in tasks.values():
            yield from task.finish()


def parse_splits(text: str | None) -> SplitAssignment:
    """Parse the file splits of a tick that the driver sent."""
    if not text:
        raise EngineError(
            "files were read outside of a tick",
            code="internal",
            hint="this is a bug in watersmeet: please report it with this message",
        )
    return [
        [(source, FileSplit(path, start, end)) for source, path, start, end in share]
        for share in json.loads(text)
    ]


def _find_spark_reason(spark: SparkSession, plan: JobPlan, scanned: Scan, reader: FileReader) -> str | None:
    if reader is FileReader.SPARK:
        return "file_reader = 'spark' is set"
    if _has_reader_settings(spark):
        return "a setting of Spark for reading files is set"
    if needs_file_order(plan):
        return "an ASOF join depends on the order in which Spark reads rows"
    for source in plan.sources:
        if not is_arrow_readable(source):
            return f'"{source.name}" is not a plain stream of local files'
        if not scanned.plain.get(source.name):
            return f'the job evaluates expressions on rows of "{source.name}"'
    return None


def _list_arrow_sources(plan: JobPlan, scanned: Scan, time_zone: str) -> Iterator[_Source]:
    """Yield the sources of a plan, in its order, up to the first that only Spark can read."""
    frames = {view.source: (frame, view) for frame, view in scanned.sources}
    for source in plan.sources:
        frame, view = frames[source.name]
        reader = plan_reader(source, partial(list_reader_columns, frame), time_zone)
        if reader is None:
            return
        types = {column.name: column.type for column in source.columns}
        wanted = {name: (declared, types[declared]) for name, declared in scanned.plain[source.name].items()}
        yield _Source(view, wanted, reader)


def _has_reader_settings(spark: SparkSession) -> bool:
    """Return True if the user configured how Spark reads files."""
    return says_how([*context_settings(spark.sparkContext), *list_setting_names(spark)], *SETTINGS)
