"""Spark's streaming query of a run: each of its batches is a tick. It ends between two ticks."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.engine.spark.checkpoint.host import ends_in
from watersmeet.engine.spark.errors import readable_error
from watersmeet.engine.spark.job.breaking import POLL_S, Failed, Stopping, stop_if_asked
from watersmeet.engine.spark.job.ticks import JobTicks
from watersmeet.engine.spark.job.waiting import Waiting
from watersmeet.engine.spark.tick.ingest import reports_of
from watersmeet.engine.spark.tick.reading.listing import listing_of
from watersmeet.engine.spark.tick.reading.of_tick import SparkReads
from watersmeet.state.store import make_private

_GRACE_S = 4.0
"""When a stop has waited so long for the tick in hand, it looks whether a broker is away."""


@dataclass(frozen=True)
class Stream:
    """One streaming query of a run.

    Args:
        is_listed: its batches have no rows, they list files that tasks read.
        started: the query, once Spark has started it.
        cancelled: its jobs were cancelled, since a broker is away.
    """

    spark: SparkSession
    job: JobTicks
    is_listed: bool
    started: deque[StreamingQuery] = field(default_factory=deque)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Run until it is stopped, has caught up, or fails. Raises: WatersmeetError."""
        job, settings, opened = self.job, self.job.settings, self.job.restored.opened
        query = self._start()
        waiting = Waiting(opened.brokers.silent, job.telling.note)
        was_left_behind = False
        try:
            job.alignment.begin(query)
            while not settings.stop.is_set():
                if query.awaitTermination(POLL_S):  # type: ignore[arg-type]
                    return
                waiting.look(bool(opened.topics) and query.status["isTriggerActive"])
                job.restored.files.look_if_due()
                stop_if_asked(job.checkpoint, settings.stop)
            was_left_behind = self._end_between_ticks(query)
            job.failure.throw()  # of the tick in hand, while it was waited for
        except Exception as error:
            gave_up = job.by_tasks.gave_up and not job.failure
            if not (gave_up or job.failure.is_stop):
                in_short = readable_error(job.failure.error or error)
                raise opened.topics.told(in_short, job.restored.topic_ids, ends_in(job.host)) from None
        finally:
            job.alignment.end()
            if query.isActive and not was_left_behind:
                settings.stop.set()
                self._end_between_ticks(query)
            self.started.clear()  # Java's query holds this object: each would keep the other

    def _start(self) -> StreamingQuery:
        job, settings, scanned = self.job, self.job.settings, self.job.restored.opened.scanned
        frames = [frame for frame, _ in scanned.sources]
        reports = listing_of(frames) if self.is_listed else reports_of(scanned.sources, job.checkpoint.store)
        writer = reports.writeStream.foreachBatch(self._batch)
        writer = writer.option("checkpointLocation", job.checkpoint.spark_url)
        name = job.plan.queries[0].name
        if all(stream.name != name for stream in self.spark.streams.active):  # else one was left behind
            writer = writer.queryName(name)
        once, every = settings.until_caught_up, f"{settings.trigger_ms} milliseconds"
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)
        make_private(job.checkpoint.spark)
        query = job.by_tasks.started(writer) if self.is_listed else writer.start()
        self.started.append(query)
        return query

    def _end_between_ticks(self, query: StreamingQuery) -> bool:
        """Stop the query when the tick in hand is done. Return True if it goes on waiting for a broker, in a
        thread that can begin no tick."""
        while not self.job.lock.acquire(timeout=_GRACE_S):
            if self.job.restored.opened.brokers.away():  # it would wait for minutes; the next run repeats it
                self.cancelled.set()
                self.spark.sparkContext.cancelJobGroup(str(query.runId))
        self.job.lock.release()  # no other tick will begin
        try:
            query.stop()
        except Exception as error:
            if "failed to stop within" not in str(error):
                raise
            return True
        return False

    def _batch(self, reports: DataFrame, batch: int) -> None:
        """Run the tick of a batch; Spark calls it for every one."""
        try:
            rows = None if self.is_listed else reports
            self.job.of_batch(rows, batch, lambda: self.started[0] if self.started else None)
        except SparkReads as why:
            failed = str(why)
        except BaseException as error:
            self.job.failure.note(Stopping() if self.cancelled.is_set() else error)
            failed = str(error)
        else:
            return
        raise Failed(failed)
