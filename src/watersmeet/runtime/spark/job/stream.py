"""Spark's streaming query of a run, and its ticks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint, Intent
from watersmeet.runtime.spark.checkpoint.remote_checkpoint import TickIntent
from watersmeet.runtime.spark.checkpoint.restart import build_batch_identity, build_host, is_committed
from watersmeet.runtime.spark.checkpoint.spark_positions import load_end_offsets
from watersmeet.runtime.spark.errors import readable_error
from watersmeet.runtime.spark.job.alignment import Alignment
from watersmeet.runtime.spark.job.error_messages import explain_error
from watersmeet.runtime.spark.job.heartbeat import BrokerStall, LastTick, heartbeat_pause, run_heartbeat
from watersmeet.runtime.spark.job.listeners import RunListeners
from watersmeet.runtime.spark.job.restore import RestoredJob, is_batch_due
from watersmeet.runtime.spark.job.settings import RunSettings
from watersmeet.runtime.spark.job.stream_end import POLL_S, Failed, Failure, Stopping, stop_if_requested
from watersmeet.runtime.spark.sources.backlog import Backlog, count_backlog_rows, load_last_report
from watersmeet.runtime.spark.sources.files.progress import BatchFiles
from watersmeet.runtime.spark.tick.ingest import ingest_reports
from watersmeet.runtime.spark.tick.reading.arrow_ingest import ArrowReading, build_listing_frame
from watersmeet.runtime.spark.tick.reading.source_rows import SparkMustRead, TickReading
from watersmeet.runtime.spark.tick.reading.text_validation import Rereading
from watersmeet.runtime.spark.tick.tick import SparkTicks
from watersmeet.runtime.tick import TickInput
from watersmeet.state.store import make_private

# The ticks of a run: those that Spark's batches make, and those of its own, without rows of streams.

Host = Mapping[str, Any]
Check = Callable[[], None]


@dataclass(frozen=True)
class JobTicks:
    """Runner of the ticks of a run, one after the other.

    Args:
        restored: the restored job that the run continues.
        rereading, by_tasks: how tasks read files.
        lock: locked while a tick runs.
        last_tick: the time of the last tick.
        failure: the reason why the run ends before its input.
    """

    settings: RunSettings
    checkpoint: Checkpoint
    begun: TickIntent
    telling: RunListeners
    restored: RestoredJob
    driver: TickDriver
    ticks: SparkTicks
    alignment: Alignment
    rereading: Rereading
    by_tasks: ArrowReading
    lock: threading.Lock = field(default_factory=threading.Lock)
    last_tick: LastTick = field(default_factory=LastTick)
    failure: Failure = field(default_factory=Failure)

    @property
    def plan(self) -> JobPlan:
        return self.driver.plan

    @property
    def host(self) -> Host:
        """Host fields of the last batch; empty if there was none."""
        newest, state = self.driver.manifest, self.restored.opened.state
        return self.restored.host if newest is None or newest.tick == state.tick else newest.host

    def of_batch(
        self, reports: DataFrame | None, batch: int, query: Callable[[], StreamingQuery | None]
    ) -> None:
        """Run the tick of a batch of Spark, if it is not committed yet.

        Args:
            reports: its scan; None: the stream lists files alone.
            query: gives that of the stream, once it has started.
        """
        with self.lock:
            if self.settings.stop.is_set():
                raise Stopping
            restored = self.restored
            query_id = self.checkpoint.query_id() or ""
            offsets = self.checkpoint.offsets(batch)
            if is_committed(self.driver.manifest, query_id, offsets, self.plan):
                return
            self.checkpoint.spark_files.sync(batch)
            again = restored.planned_before is not None and batch <= restored.planned_before
            files = restored.files.of_batch(offsets, again=again)
            host = build_host(query_id, offsets, self.plan, restored.topic_ids, files, self.settings.inferred)
            self.driver.inputs.declare_partitions(
                restored.opened.brokers.list_read_partitions(offsets.sources)
            )
            remembered = self.begun.remember(self.driver.manifest, host)

            def check() -> None:
                remembered()
                restored.files.check(files)
                restored.opened.topics.check(restored.topic_ids)

            reading = TickReading(reports, files, self.by_tasks, self.rereading)
            self._tick(reading, offsets.clock_us, host, check=check, query=query)
            restored.files.committed(files)

    def own(self, intent: Intent, host: Host | None = None) -> None:
        """Run a tick without rows of streams.

        Args:
            host: host fields to save; None: those of the last batch.
        """
        self._tick(None, intent.clock_us, self.host if host is None else host, end=intent.end)

    def record_intent(self, *, end: bool = False) -> Intent:
        """Record the next tick as one without a Spark batch; after a crash, it runs first, unchanged."""
        intent = Intent(self.driver.tick + 1, self.settings.clock(), end)
        self.begun.intend(self.driver.manifest, intent)
        return intent

    def read_tables(self) -> None:
        """Run a tick without rows of streams, if a table is due that is compared and may have changed."""
        with self.lock:
            if not self.settings.stop.is_set() and self.driver.is_table_read_due(self.settings.clock()):
                self.own(self.record_intent())

    def record_files(self) -> Host:
        """Save the final findings about files that could not be found again, and return the host fields.

        If no tick follows, a tick without rows saves them.

        Returns:
            The host fields that the last tick has to save.
        """
        restored = self.restored
        files = restored.files.build_final_batch()
        if files is None:
            return self.host
        host = {**self.host, **files.host}
        if not self.settings.finish:
            self.own(self.record_intent(), host)
        restored.files.committed(files)
        return host

    @contextmanager
    def run_idle_ticks(self) -> Iterator[None]:
        """Run ticks without rows while the stream delivers none.

        Does nothing unless a source may become idle or a table is compared.
        """
        timeouts = [s.idle_timeout_us for s in self.plan.sources if s.idle_timeout_us is not None]
        if not (timeouts or self.plan.compared) or self.settings.until_caught_up:
            yield
            return
        pause_s = heartbeat_pause(timeouts)

        def beat() -> None:
            with self.lock:
                self.driver.look(self.settings.clock())
                if self.settings.stop.is_set() or self.last_tick.seconds_ago < pause_s:
                    return
                try:
                    if self._is_own_tick_due():
                        self.own(self.record_intent())
                except BaseException as error:
                    self.failure.note(error)
                    self.settings.stop.set()

        with run_heartbeat(beat, pause_s / 2, self.settings.stop):
            yield
        if self.failure.error is not None and not self.failure.is_stop:
            raise readable_error(self.failure.error) from None

    def _tick(
        self,
        reading: TickReading | None,
        clock_us: int,
        host: Host,
        *,
        check: Check | None = None,
        end: bool = False,
        query: Callable[[], StreamingQuery | None] = lambda: None,
    ) -> None:
        before, files = self.host, None if reading is None else reading.files
        self.telling.begins(self.driver.tick + 1)
        self.driver.look(self.settings.clock())  # a batch of an earlier run has that one's clock
        given = TickInput(
            clock_us,
            told=build_batch_identity(host, self.driver.settings.digest),
            unread=lambda names: self._unread(names, host),
            check=check,
            end=end,
            ends=partial(self._ends, host, files) if self.settings.until_caught_up else None,
        )
        try:
            result = self.ticks.run(self.driver, reading, host, given)
        except SparkMustRead:
            raise
        except Exception as error:
            raise explain_error(error, self.plan) from None
        result = self.restored.reached.add_progress(result, host, None if reading is None else before)
        self.alignment.align()
        self.last_tick.record_tick()
        self.telling.ended(result, lambda: self._backlog(host, files, query()))

    def _backlog(self, host: Host, files: BatchFiles | None, query: StreamingQuery | None) -> Backlog:
        """Return the known backlog of the sources."""
        behind = {name: (count, "files") for name, count in self.restored.files.behind(files).items()}
        offsets = load_end_offsets(host)
        if query is not None and offsets is not None and self.restored.opened.topics:
            rows = count_backlog_rows(load_last_report(query), self.plan.sources, offsets)
            behind |= {name: (count, "rows") for name, count in rows.items()}
        return behind

    def _is_own_tick_due(self) -> bool:
        """Return True if a table is due for comparison, or a partition becomes idle.

        False if a source has rows to read: the tick that reads them runs first.
        """
        if is_batch_due(self.checkpoint, self.begun, self.host):
            return False
        if self.driver.is_table_read_due(self.settings.clock()):
            return True
        if not self.host or not self.driver.is_due(self.settings.clock()):
            return False
        held = self.driver.held()
        names = [source.name for source in self.plan.sources if source.name not in held]
        return not any(self._unread(names, self.host).values())

    def _unread(self, names: Collection[str], host: Host) -> dict[str, tuple[str, ...]]:
        """Return the partitions of these sources that have rows which ``host``'s batch did not read."""
        offsets = load_end_offsets(host)
        return {} if offsets is None else self.restored.opened.brokers.unread(names, offsets)

    def _ends(self, host: Host, files: BatchFiles | None, name: str) -> bool:
        """Return whether it is known that this batch reads the last that there is of a source."""
        return is_read_to_its_end(name, self.restored.files.is_read(name, files), self._unread([name], host))


def is_read_to_its_end(name: str, files_are_read: bool, unread: Mapping[str, tuple[str, ...]]) -> bool:
    """Return True if it is known that a source has nothing left to read.

    Either its files have been read, or its brokers have been asked and have no rows left.

    Args:
        unread: per source, the partitions with unread rows.
    """
    return files_are_read or unread.get(name) == ()


# Spark's streaming query of a run: each of its batches is a tick. It ends between two ticks.

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
        waiting = BrokerStall(opened.brokers.list_silent_servers, job.telling.note)
        was_left_behind = False
        try:
            job.alignment.begin(query)
            while not settings.stop.is_set():
                if query.awaitTermination(POLL_S):  # type: ignore[arg-type]
                    return
                waiting.look(bool(opened.topics) and query.status["isTriggerActive"])
                job.restored.files.compare_if_due()
                stop_if_requested(job.checkpoint, settings.stop)
            was_left_behind = self._stop_between_ticks(query)
            job.failure.throw()  # of the tick in hand, while it was waited for
        except Exception as error:
            gave_up = job.by_tasks.gave_up and not job.failure
            if not (gave_up or job.failure.is_stop):
                in_short = readable_error(job.failure.error or error)
                raise opened.topics.told(
                    in_short, job.restored.topic_ids, load_end_offsets(job.host)
                ) from None
        finally:
            job.alignment.end()
            if query.isActive and not was_left_behind:
                settings.stop.set()
                self._stop_between_ticks(query)
            self.started.clear()  # Java's query holds this object: each would keep the other

    def _start(self) -> StreamingQuery:
        job, settings, scanned = self.job, self.job.settings, self.job.restored.opened.scanned
        frames = [frame for frame, _ in scanned.sources]
        reports = (
            build_listing_frame(frames)
            if self.is_listed
            else ingest_reports(scanned.sources, job.checkpoint.store)
        )
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

    def _stop_between_ticks(self, query: StreamingQuery) -> bool:
        """Stop the query after the current tick.

        Returns:
            True if the query is still waiting for a broker, in a thread that cannot begin a tick.
        """
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
        except SparkMustRead as why:
            failed = str(why)
        except BaseException as error:
            self.job.failure.note(Stopping() if self.cancelled.is_set() else error)
            failed = str(error)
        else:
            return
        raise Failed(failed)
