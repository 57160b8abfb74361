"""Ingest of files that tasks read themselves, by Arrow: no row goes through Java.

Spark lists the files, keeps what was read, and runs the tasks. It is so where all sources of a job are
plain streams of local files of which nothing but columns is asked, and where Arrow reads a file as
Spark does (`engine.tasks.files`). Few rows the driver reads in the place of tasks. Whoever finds a
file that it does not know tells so, and Spark reads the tick, and some that follow: what was written of it by
then is named nowhere.

The stream's frame has no rows then (`listing_of`): to plan a scan takes Spark longer than to list its files.
When it comes to Spark to read, the stream ends, and begins again with rows, with the batch that it was at, as
after a run that was killed.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from watersmeet.at_once import at_once
from watersmeet.engine.driver.amount import SMALL_BYTES, shares_of
from watersmeet.engine.messages.work import TickStart
from watersmeet.engine.spark.carried import Carrying
from watersmeet.engine.spark.configuration import context_settings, names_in
from watersmeet.engine.spark.job.run_settings import asks_files_in_order
from watersmeet.engine.spark.properties import PARTS
from watersmeet.engine.spark.sources.files.read import BatchFiles
from watersmeet.engine.spark.sources.files.there import local_of
from watersmeet.engine.spark.sources.scan import Scan
from watersmeet.engine.spark.sources.views import BROKEN, ROUNDED, SourceView
from watersmeet.engine.spark.tick.ingest import SCHEMA, SourceTask, start_of_tick, told_of_tick, told_rows
from watersmeet.engine.spark.tick.reading.plain_source import SETTINGS, is_plain
from watersmeet.engine.spark.tick.reading.readers import (
    SAID,
    begins_plain,
    columns_told,
    reader_of,
)
from watersmeet.engine.tasks.files.dealing import Dealt, dealt
from watersmeet.engine.tasks.files.parquet_rows import UNREADABLE
from watersmeet.engine.tasks.files.part import NotPlain, Part, Reader
from watersmeet.errors import EngineError
from watersmeet.kernel.batches import size
from watersmeet.plan.model.job import JobPlan
from watersmeet.spec.options.files import FileReader, format_of
from watersmeet.spec.options.spark_settings import TIME_ZONE, says_how
from watersmeet.state.store import Store
from watersmeet.types.arrow import has_longer
from watersmeet.types.sql_type import SqlType

NOT_PLAIN = "refused"
"""In the place of `REPORT`: a file is for Spark to read; why."""

MOST_TOLD = 1 << 20
"""Of the text that says which files there are, which goes with every task: characters."""

LEAVES_OUT_SCANS = "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan"
"""By which Spark plans no scan of a stream below WHERE false. Not its default: state would go too."""

_STARTING = threading.Lock()
"""Of two jobs that begin at once in one session, neither takes the other's setting for the user's."""

MOST_PASSED = 256
"""Ticks that Spark reads, at most, behind one that it had to read: one, and after each further try in vain
twice as many."""

MOST_FILES = 16
"""That the driver reads in the place of tasks."""


class _ManyBytes(Exception):
    """Rows come to more bytes than the driver is to read."""


@dataclass(frozen=True)
class _Source:
    """``columns``: those that are wanted: of the frame -> declared, with its type."""

    view: SourceView
    columns: Mapping[str, tuple[str, SqlType]]
    reader: Reader

    def rows_of(self, part: Part) -> Iterator[pa.RecordBatch]:
        """As the frame has them. Raises: NotPlain."""
        for rows in self.reader.rows_of(part, dict(self.columns.values())):
            for declared, type_ in self.columns.values():
                if has_longer(rows.column(declared), type_):
                    raise NotPlain(f"{part.path}: {declared} has texts that are too long")
            arrays = [rows.column(declared) for declared, _ in self.columns.values()]
            names = list(self.columns)
            if self.view.parses:  # what has a record that does not parse is no plain file
                arrays.append(pa.nulls(rows.num_rows))
                names.append(BROKEN)
            if self.view.rounds:  # and neither is what has a number that would be rounded
                arrays.append(pa.nulls(rows.num_rows))
                names.append(ROUNDED)
            yield pa.RecordBatch.from_arrays(arrays, names=names)


def few_rows(files: Sequence[tuple[str, str, int]], most: int) -> int | None:
    """How many rows files have, about, if the driver may read them in the place of tasks.

    Args:
        files: their formats, paths, and sizes.
        most: rows; less than none: it may read none.
    """
    if most < 0 or len(files) > MOST_FILES or sum(nbytes for *_, nbytes in files) > SMALL_BYTES:
        return None
    try:
        said = [SAID[wanted](path) for wanted, path, _ in files]
    except UNREADABLE:
        return None  # who reads it says what is wrong with it
    rows = sum(of_file for of_file, _ in said)
    return rows if rows <= most and sum(nbytes for _, nbytes in said) <= SMALL_BYTES else None


class ReadByTasks:
    """Of one run of a job; see the module. ``gave_up``: Spark is to read a tick of the stream that is there,
    which has no rows."""

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
        self.why_not = _why_not(spark, plan, scanned, reader)
        """Why Spark reads the files in all of this run; None: tasks do, but for single ones."""
        self._in_vain = self._passed = 0
        self._refused: str | None = None
        self.gave_up, self._may_list = False, True
        if self.why_not is None:
            sources = dict(enumerate(_taken(plan, scanned, str(spark.conf.get(TIME_ZONE)))))
            if len(sources) < len(plan.sources):
                self.why_not = "some files of a source have too few or too many columns"
            elif not all(begins_plain(source, sources[n].reader) for n, source in enumerate(plan.sources)):
                self._may_list, self._in_vain, self._passed = False, 1, 1
        self._ingest = IngestFiles(sources, store)
        self._function = Carrying(self._ingest)

    def begin_stream(self) -> bool:
        """A stream begins; whether it needs no rows, since tasks read its files. Once it turned out that it
        does, those that follow have rows, also for the ticks that tasks read."""
        self.gave_up = False
        return self.why_not is None and self._may_list

    def started(self, writer: DataStreamWriter) -> StreamingQuery:
        """A stream of `listing_of`, begun; streams keep the settings that they begin with."""
        conf = self._spark.conf
        with _STARTING:
            before = conf.get(LEAVES_OUT_SCANS, None)
            conf.set(LEAVES_OUT_SCANS, "true")
            try:
                return writer.start()
            finally:
                if before is None:
                    conf.unset(LEAVES_OUT_SCANS)
                else:
                    conf.set(LEAVES_OUT_SCANS, before)

    def give_up(self) -> None:
        """Spark is to read a tick of a stream without rows: it begins anew."""
        self.gave_up, self._may_list = True, False

    def told(self, batch: BatchFiles | None, start: TickStart) -> list[Any] | None:
        """What ingest tells of the rows of a batch's files; None: Spark is to read them. Within a tick."""
        if batch is None or self.why_not is not None:
            return None
        shares = self._dealt(batch)
        if shares is None:
            return None
        if not shares:
            return []
        if self._is_passed(batch):
            return None
        few = self._few(batch)
        told = None if few is None else self._by_driver(shares, start, few)
        if told is None:
            told = self._by_tasks(shares)
        if told is None:
            return None
        if all(kind != NOT_PLAIN for kind, _ in told):
            self._in_vain = 0
            return told
        self._refused = batch.digest
        self._passed = min(2**self._in_vain, MOST_PASSED)
        self._in_vain += 1
        return None

    def _is_passed(self, batch: BatchFiles) -> bool:
        """Whether Spark is to read a batch since it had to read this one, or those before."""
        if self._refused is not None and batch.digest == self._refused:
            return True  # it comes again, to a stream that has rows
        if self._passed:
            self._passed -= 1
            return True
        return False

    def _few(self, batch: BatchFiles) -> int | None:
        """How many rows the files have, about, if these are few, and so are the bytes."""
        files = [file for file in batch.files if file.batch >= 0 and file.size]
        said = [(self._formats[file.source], str(local_of(file.path)), file.size) for file in files]
        return few_rows(said, self._small_rows)

    def _by_driver(self, shares: Dealt, start: TickStart, rows: int) -> list[Any] | None:
        """What tasks would tell of so many rows. None: they come to more bytes than was to be seen, and what
        was written is garbage."""
        threads = 1 if start.ordered else min(shares_of(rows, self._threads), len(shares))
        own = [[part for share in shares[first::threads] for part in share] for first in range(threads)]

        def told(parts: Sequence[tuple[int, Part]]) -> list[tuple[str, str]]:
            return list(self._ingest.told(parts, start, SMALL_BYTES // threads))

        try:
            with self._ingest.store.together():
                return [row for of_share in at_once(told, own) for row in of_share]
        except NotPlain as why:
            return [(NOT_PLAIN, str(why))]
        except _ManyBytes:
            return None

    def _by_tasks(self, shares: Dealt) -> list[Any] | None:
        text = json.dumps([[(n, part.path, part.start, part.end) for n, part in share] for share in shares])
        if len(text) > MOST_TOLD:
            return None
        context = self._spark.sparkContext
        context.setLocalProperty(PARTS, text)
        try:
            return list(self._frame(len(shares)).collect())
        finally:
            context.setLocalProperty(PARTS, "")  # or it goes with all tasks of the tick

    def _dealt(self, batch: BatchFiles) -> Dealt | None:
        files = []
        for file in batch.files:
            if file.batch < 0:
                continue  # of another batch
            path = local_of(file.path)
            if path is None or file.size < 0 or "=" in os.path.dirname(path):
                return None  # elsewhere, gone, or with columns in its path
            if file.size:
                files.append((file.source, path, file.size))
        return dealt(files, self._spark.sparkContext.defaultParallelism) if files else []

    def _frame(self, tasks: int) -> DataFrame:
        """The same in every tick of so many tasks: it is planned once."""
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
                told = list(self.told(parts_in(told_of_tick(PARTS))[number], start_of_tick()))
            except NotPlain as why:
                told = [(NOT_PLAIN, str(why))]
            if told:
                yield told_rows(told)

    def told(
        self, parts: Sequence[tuple[int, Part]], start: TickStart, most_bytes: int | None = None
    ) -> Iterator[tuple[str, str]]:
        """What ingest tells of the rows of the parts, each with the number of its source.

        Raises:
            NotPlain: a file is for Spark to read.
            _ManyBytes: they come to more than ``most_bytes``.
        """
        tasks: dict[int, SourceTask] = {}
        nbytes = 0
        for number, part in parts:
            source = self.sources[number]
            for rows in source.rows_of(part):
                nbytes += size(rows.columns)
                if most_bytes is not None and nbytes > most_bytes:
                    raise _ManyBytes
                if number not in tasks:
                    tasks[number] = SourceTask(source.view, start, self.store)
                tasks[number].take(rows)
        for task in tasks.values():
            yield from task.finish()


def parts_in(text: str | None) -> Dealt:
    """What the driver told of the files of a tick."""
    if not text:
        raise EngineError(
            "files were read outside of a tick",
            code="internal",
            hint="this is a bug in watersmeet: please report it with this message",
        )
    return [
        [(source, Part(path, start, end)) for source, path, start, end in share] for share in json.loads(text)
    ]


def _why_not(spark: SparkSession, plan: JobPlan, scanned: Scan, reader: FileReader) -> str | None:
    if reader is FileReader.SPARK:
        return "file_reader = 'spark' is set"
    if _is_set(spark):
        return "a setting of Spark for reading files is set"
    if asks_files_in_order(plan):
        return "an ASOF join depends on the order in which Spark reads rows"
    for source in plan.sources:
        if not is_plain(source):
            return f'"{source.name}" is not a plain stream of local files'
        if not scanned.plain.get(source.name):
            return f'the job evaluates expressions on rows of "{source.name}"'
    return None


def _taken(plan: JobPlan, scanned: Scan, time_zone: str) -> Iterator[_Source]:
    """The sources of a plan, in its order, up to one that only Spark reads."""
    frames = {view.source: (frame, view) for frame, view in scanned.sources}
    for source in plan.sources:
        frame, view = frames[source.name]
        reader = reader_of(source, partial(columns_told, frame), time_zone)
        if reader is None:
            return
        types = {column.name: column.type for column in source.columns}
        wanted = {name: (declared, types[declared]) for name, declared in scanned.plain[source.name].items()}
        yield _Source(view, wanted, reader)


def _is_set(spark: SparkSession) -> bool:
    """Whether the user told Spark how to read files."""
    return says_how([*context_settings(spark.sparkContext), *names_in(spark)], *SETTINGS)
