"""How the rows of a tick are read, and what ingest tells of them.

As a rule Spark reads them: the stream's frame is evaluated (`ingest_reports`). Where its files can be read by
tasks (`by_tasks`), it is not, and what it would tell comes from there. Rows of single sources may come from
frames of their own (`Reread`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from watersmeet.runtime.messages.work import TickStart
from watersmeet.runtime.spark.sources.files.progress import BatchFiles
from watersmeet.runtime.spark.task_messages import REREAD, START, names_text, start_text
from watersmeet.runtime.spark.tick.reading.arrow_ingest import ArrowReading
from watersmeet.runtime.spark.tick.reading.text_validation import Rereading


class SparkMustRead(Exception):
    """Error when a stream that only lists files has a tick whose rows Spark must read.

    The stream must then restart with its rows. The text of the error is the reason.
    """


@dataclass(frozen=True)
class TickReading:
    """Reading of the source rows of one tick.

    Args:
        reports: the scan with `Ingest` over it; None: the stream has no rows and only lists files.
        files: the files of its file sources.
        by_tasks, rereading: those of the run, if it has them.
    """

    reports: DataFrame | None
    files: BatchFiles | None = None
    by_tasks: ArrowReading | None = None
    rereading: Rereading | None = None

    def told(self, spark: SparkSession, start: TickStart) -> list[Any]:
        """Return the ingest results of the rows of all sources: (kind, text) each.

        Raises:
            SparkMustRead: Spark has to read them, and there are no ``reports``.
        """
        context = spark.sparkContext
        context.setLocalProperty(START, start_text(start))
        told = None if self.by_tasks is None else self.by_tasks.told(self.files, start)
        if told is not None:
            return told
        if self.reports is None:
            if self.by_tasks is not None:
                self.by_tasks.give_up()
            raise SparkMustRead("files of this tick are not for tasks to read")
        reread = None if self.rereading is None else self.rereading.of_batch(self.files)
        context.setLocalProperty(REREAD, names_text(() if reread is None else reread.names))
        try:
            rows: list[Any] = self.reports.collect()
        finally:
            context.setLocalProperty(REREAD, names_text(()))
        if self.rereading is not None:
            rows = self.rereading.add_reread_rows(rows, self.files)
        return rows if reread is None else [*rows, *reread.reports.collect()]
