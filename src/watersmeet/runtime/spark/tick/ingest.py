"""The ingest task: Arrow batches of the scan → runs in the store, one report per branch.

Runs inside of the streaming plan (`mapInArrow` on the scan), so that its plan is made once per batch and
rows are not copied again. What differs from tick to tick comes as a local property of the job, not in the
closure: the pickled function is the same for the life of the query.

Rows of its output: ``kind`` (`REPORT`, `SIDE_OUTPUT` or `INEXACT`) and ``text`` (JSON).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame

from watersmeet.errors import EngineError, printable
from watersmeet.kernel.batches import size
from watersmeet.runtime.files.listing import format_path, to_local_path
from watersmeet.runtime.messages.work import TickStart
from watersmeet.runtime.spark.errors import ErrorSealingTask
from watersmeet.runtime.spark.rounded_decimals import UNCERTAIN_MARK
from watersmeet.runtime.spark.sources.columns import (
    BROKEN,
    BROKEN_CHARACTERS,
    BROKEN_FILE,
    FILE_NUMBER,
    ROUNDED,
    SAMPLE_CHARACTERS,
    SKIPPED,
    TRUNCATED,
)
from watersmeet.runtime.spark.sources.views import BranchView, SourceView
from watersmeet.runtime.spark.task_messages import REREAD, START, parse_names, parse_start
from watersmeet.runtime.tasks.file_counter import FileCounter
from watersmeet.runtime.tasks.ingest import (
    ON_TIME,
    REASONS,
    SIDE_OUTPUT_COLUMNS,
    IngestWriter,
    write_aside,
)
from watersmeet.runtime.tasks.memory import RUN_BYTES
from watersmeet.state.store import Store

REPORT, SIDE_OUTPUT = "report", "aside"
INEXACT = "inexact"
"""Of a source whose rows are to be read again, by the declared types; its text is the source's name."""
SCHEMA = "kind STRING, text STRING"
BROKEN_REASON = "broken"
"""Of files of rows set aside; those of broken records hold the first alone."""


def ingest_reports(sources: Sequence[tuple[DataFrame, SourceView]], store: Store) -> DataFrame:
    """Build the frame of ingest reports of all sources, to evaluate within a tick.

    Each source has a function of its own, because its rows have only its columns.
    """
    told = [frame.mapInArrow(ErrorSealingTask(IngestTask(view, store)), SCHEMA) for frame, view in sources]
    return reduce(DataFrame.unionAll, told)


@dataclass(frozen=True)
class IngestTask:
    """The function given to `mapInArrow`, for the rows of one source."""

    view: SourceView
    store: Store

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task: SourceTask | None = None
        for batch in batches:
            if batch.num_rows and self.view.source not in parse_names(read_tick_property(REREAD)):
                task = task or SourceTask(self.view, start_of_tick(), self.store)
                task.take(batch)
        results = [] if task is None else list(task.finish())
        if results:
            yield encode_task_results(results)


@dataclass
class SourceTask:
    """One source's rows within one task."""

    view: SourceView
    start: TickStart
    store: Store
    writers: list[tuple[BranchView, IngestWriter]] = field(init=False)
    rejected: list[tuple[str, str, pa.RecordBatch]] = field(default_factory=list)
    aside: list[tuple[str, str]] = field(default_factory=list)
    held: int = 0
    """Bytes of ``rejected``."""
    is_unsure: bool = False
    """Some of its decimals are not known: see `rounded_decimals.round_decimals`."""
    files: FileCounter = field(init=False)

    def __post_init__(self) -> None:
        self.writers = [
            (branch, IngestWriter(self.start, branch.arrangement, branch.branch, self.store, _task_number()))
            for branch in self.view.branches
        ]
        self.files = FileCounter(self._explain_broken_record)

    def take(self, rows: pa.RecordBatch) -> None:
        broken = rows.column(BROKEN).is_valid() if self.view.parses else None
        if broken is None or not pc.any(broken).as_py():
            self._add(rows)
            return
        skipped = pc.equal(rows.column(BROKEN), SKIPPED)
        self._count("skipped", pc.sum(skipped).as_py() or 0)
        rest = rows.filter(pc.invert(broken))
        if rest.num_rows:
            self._add(rest)
        unread = rows.filter(pc.and_not(broken, pc.fill_null(skipped, False)))
        if unread.num_rows:
            self._add_broken(unread)

    def _add(self, rows: pa.RecordBatch) -> None:
        if FILE_NUMBER in rows.schema.names:  # else tasks read the file, and none of its records is broken
            self.files.add(rows.column(FILE_NUMBER))
        if self.view.rounds:
            self._count_rounded(rows.column(ROUNDED))
        for branch, writer in self.writers:
            names = [name for name, _ in branch.columns]
            arrays = [rows.column(column) for _, column in branch.columns]
            judgement = writer.add(pa.RecordBatch.from_arrays(arrays, names=names))
            if self.view.late is None or not judgement.any():
                continue
            record = pa.StructArray.from_arrays(
                [rows.column(column) for _, column in self.view.late],
                names=[name for name, _ in self.view.late],
            )
            for code in np.unique(judgement).tolist():
                if code != ON_TIME:
                    mask = judgement == code
                    arrays = [record.filter(pa.array(mask)), *writer.missed_columns(mask)]
                    chosen = pa.RecordBatch.from_arrays(arrays, names=list(SIDE_OUTPUT_COLUMNS))
                    self._reject(branch.arrangement, REASONS[code], chosen)

    def _add_broken(self, rows: pa.RecordBatch) -> None:
        """Count records that did not parse for every branch; no branch gets rows of them.

        Raises:
            EngineError: The table was emptied by TRUNCATE.
        """
        if pc.any(pc.equal(rows.column(BROKEN), TRUNCATED)).as_py():
            raise EngineError(
                f'"{self.view.source}": its table was emptied by TRUNCATE, but its rows are still in the'
                " results",
                code="table-truncated",
                hint="start over with a new checkpoint directory and a new snapshot; or set"
                " 'debezium.truncate' = 'skip' to continue and keep the rows",
            )
        if not self.writers[0][1].report.broken_text:
            text = self._explain_broken_record(rows.column(BROKEN)[0])
            for _, writer in self.writers:
                writer.report.broken_text = text
        self._count("broken", rows.num_rows)
        if FILE_NUMBER in rows.schema.names:
            self.files.add_broken(*map(rows.column, (FILE_NUMBER, BROKEN_FILE, BROKEN)))
        if self.view.keeps_broken:
            text = pa.RecordBatch.from_arrays([rows.column(BROKEN)], names=["record"])
            self._reject(self.view.source, BROKEN_REASON, text)

    def _count_rounded(self, values: pa.Array) -> None:
        rounded = values.drop_null()
        if not len(rounded):
            return
        self.is_unsure |= pc.any(pc.starts_with(rounded, UNCERTAIN_MARK)).as_py()
        shown = rounded.filter(pc.not_equal(rounded, UNCERTAIN_MARK))
        for _, writer in self.writers if len(shown) else ():
            report = writer.report
            report.rounded += len(shown)
            report.rounded_text = report.rounded_text or printable(shown[0].as_py()[1:])  # behind its mark

    def _explain_broken_record(self, record: pa.Scalar) -> str:
        """Return the beginning of a broken record, and why it is broken, where that is known."""
        first: bytes = record.cast(pa.large_binary()).as_py()  # which may be no UTF-8
        text = first.decode("utf-8", "backslashreplace")
        shown = printable(text[:BROKEN_CHARACTERS]).replace("\n", "\\n")
        is_whole = self.view.keeps_broken or len(text) <= SAMPLE_CHARACTERS
        why = self.view.check.explain(text) if self.view.check is not None and is_whole else ""
        return f"{shown} ({why})" if why else shown

    def _count(self, what: str, records: int) -> None:
        """Count records that are not rows, for every branch."""
        for _, writer in self.writers if records else ():
            counts = writer.report.counts
            for name in ("in", what):
                counts[name] = counts.get(name, 0) + records

    def finish(self) -> Iterator[tuple[str, str]]:
        if (files := self.files.finish()) is not None:
            for file in files.broken.values():
                file.name = format_path(to_local_path(file.name) or unquote(file.name))
            self.writers[0][1].report.files = files  # which tells of the source as a whole (`find_branches`)
        for _, writer in self.writers:
            yield REPORT, writer.finish().model_dump_json()
        if self.is_unsure:
            yield INEXACT, self.view.source
        self._write_aside()
        yield from self.aside

    def _reject(self, owner: str, reason: str, rows: pa.RecordBatch) -> None:
        """Add rows to the side output; write them immediately if there are many."""
        self.rejected.append((owner, reason, rows))
        self.held += size(rows.columns)
        if self.held >= RUN_BYTES:
            self._write_aside()

    def _write_aside(self) -> None:
        kinds = dict.fromkeys((owner, reason) for owner, reason, _ in self.rejected)
        for owner, reason in kinds:
            batches = [batch for o, r, batch in self.rejected if (o, r) == (owner, reason)]
            file = write_aside(self.store, reason, self.start.tick, batches)
            told = {
                "source": self.view.source,
                "owner": owner,
                "reason": reason,
                "name": file.name,
                "rows": file.rows,
            }
            self.aside.append((SIDE_OUTPUT, json.dumps(told)))
        self.rejected, self.held = [], 0


def _task_number() -> int:
    """Return the number of this task in the scan, in the order of sources and their partitions."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def read_tick_property(name: str) -> str | None:
    """Read a local property of the tick; None outside of a task."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def encode_task_results(told: Sequence[tuple[str, str]]) -> pa.RecordBatch:
    """Encode the results of a task as rows of `SCHEMA`."""
    kinds, texts = zip(*told, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(kinds), pa.array(texts)], names=["kind", "text"])


def start_of_tick() -> TickStart:
    text = read_tick_property(START)
    if not text:
        raise EngineError(
            "the rows of the scan were evaluated outside of a tick",
            code="internal",
            hint="this is a bug in watersmeet: please report it with this message",
        )
    return _parsed_start(text)


@lru_cache(maxsize=2)
def _parsed_start(text: str) -> TickStart:
    return parse_start(text)
