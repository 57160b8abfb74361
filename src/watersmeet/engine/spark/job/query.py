"""A job on Spark from start to end: one streaming query whose batches are ticks.

    run ── checkpoint, session, scan, driver, checks, sinks ── stream: batch → tick, … ── (end of input) ──
    result

Stopping (SIGINT, SIGTERM, SIGHUP, `JobRun.stop`) lets the tick in hand finish. What a run leaves behind, the
next goes on with.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.engine.driver.amount import small_rows_in, threads_of_driver
from watersmeet.engine.driver.driver import TickDriver, restore
from watersmeet.engine.driver.opening.as_kept import as_kept
from watersmeet.engine.driver.opening.changed_sources import are_others
from watersmeet.engine.driver.opening.checks import check_not_finished
from watersmeet.engine.driver.settings import TickSettings
from watersmeet.engine.spark.checkpoint.directory import Checkpoint, Intent
from watersmeet.engine.spark.checkpoint.elsewhere import Begun
from watersmeet.engine.spark.checkpoint.host import BATCH, COMPACT_INTERVAL, TOPICS, ends_in
from watersmeet.engine.spark.checkpoint.restart import (
    batch_in,
    check_checkpoint,
    check_settings,
    host_of,
    is_committed,
    told_of,
)
from watersmeet.engine.spark.configuration import cores_of_driver, max_line_bytes
from watersmeet.engine.spark.errors import readable_error
from watersmeet.engine.spark.job.alignment import Alignment
from watersmeet.engine.spark.job.beats import beating, pause_between
from watersmeet.engine.spark.job.breaking import BY_SIGNAL, Failed, Stopping, ended_by_signal
from watersmeet.engine.spark.job.going_on import of_the_sources, recovered
from watersmeet.engine.spark.job.run_settings import all_settings
from watersmeet.engine.spark.job.session import hold_fixed
from watersmeet.engine.spark.job.settings import RunResult, RunSettings
from watersmeet.engine.spark.job.signals import stopped_by_signals
from watersmeet.engine.spark.job.telling import Telling
from watersmeet.engine.spark.job.waiting import Waiting
from watersmeet.engine.spark.job.words import in_words
from watersmeet.engine.spark.job.zone_rules import check_zone
from watersmeet.engine.spark.sources.backlog import Backlog, Reached, last_report, rows_behind
from watersmeet.engine.spark.sources.brokers import Brokers
from watersmeet.engine.spark.sources.files.elsewhere import gone_in
from watersmeet.engine.spark.sources.files.read import BatchFiles, FilesRead, changed_in
from watersmeet.engine.spark.sources.frames import read
from watersmeet.engine.spark.sources.scan import scan
from watersmeet.engine.spark.sources.tables import snapshot_readers, table_of, table_readers
from watersmeet.engine.spark.sources.topics import TopicIds, Topics
from watersmeet.engine.spark.tick.described import Descriptions
from watersmeet.engine.spark.tick.ingest import reports_of
from watersmeet.engine.spark.tick.outputs import Outputs
from watersmeet.engine.spark.tick.reading.again import Rereading
from watersmeet.engine.spark.tick.reading.by_tasks import ReadByTasks
from watersmeet.engine.spark.tick.reading.listing import listing_of
from watersmeet.engine.spark.tick.reading.of_tick import Reading, SparkReads
from watersmeet.engine.spark.tick.taken import Takings
from watersmeet.engine.spark.tick.tick import Ticks
from watersmeet.engine.tick import TickInput
from watersmeet.plan.identity.settings import digest_of
from watersmeet.plan.model.job import JobPlan
from watersmeet.spec.options.files import reader_in
from watersmeet.state.manifest import load_newest
from watersmeet.state.store import make_private

Host = Mapping[str, Any]
Check = Callable[[], None] | None

_POLL_S = 0.2
_GRACE_S = 4.0
"""When a stop has waited so long for the tick in hand, it looks whether a broker is away."""


@dataclass
class JobRun:
    """One run of a job; use `run`."""

    spark: SparkSession
    plan: JobPlan
    settings: RunSettings
    outputs: Outputs
    checkpoint: Checkpoint
    result: RunResult = field(default_factory=RunResult)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _failure: BaseException | None = None
    _cancelled: bool = False
    _left_behind: bool = False
    _query: StreamingQuery | None = None
    _reading: BatchFiles | None = None
    _host: dict[str, Any] = field(default_factory=dict)
    _topics: TopicIds = field(default_factory=dict)
    _planned_before: int | None = None
    _last_tick: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.telling = Telling(self.settings)

    def stop(self) -> None:
        """End the run after the tick in hand. May be called from any thread, and from a signal handler."""
        self.settings.stop.set()

    def execute(self) -> RunResult:
        """The whole run, in this thread. Raises: WatersmeetError."""
        self.begun = Begun(self.checkpoint)
        self.topics, self.takings = Topics(self.spark, ()), Takings(self.spark)
        try:
            return self._execute()
        finally:
            self._query = None  # Java's query holds this run: each would keep the other
            for watcher in (self.topics, self.takings, self.begun):
                with suppress(Exception):  # Java may be gone, and how the run ended is what counts
                    watcher.close()

    def _execute(self) -> RunResult:
        with self.checkpoint.locked(), self._sinks_closed():
            self.checkpoint.forget_stop()
            self._build()
            manifest = self.restored.manifest
            repeated = self.begun.intent(manifest)
            if manifest is not None and manifest.finished:
                if not self.settings.finish:
                    check_not_finished(manifest)
                self.result.finished = True
                self.result.changed = changed_in(manifest.host)
                return self.result
            interval = int(self.spark.conf.get(COMPACT_INTERVAL, "10") or 10)
            self.telling.note(*self.begun.fit(self.restored.tick + 1, manifest, self.plan, interval))
            other_sources = manifest is not None and are_others(manifest, self.plan)
            if manifest is not None and other_sources:
                self._host = batch_in(manifest)
                self._as_begun(repeated is not None or self._batch_is_due())  # else it is planned no more
                self.begun.forget()
                manifest = of_the_sources(manifest, self.plan, self.checkpoint, self.settings)
            self._host = recovered(
                manifest,
                self.plan,
                self.checkpoint,
                self.topics,
                self.settings,
                self.telling.note,
                interval=interval,
                other_sources=other_sources,
            )
            kept, spark = ({} if manifest is None else manifest.host), self.checkpoint.spark_files
            self._reached = Reached(self.plan.sources, self._host, kept, spark)
            self.begun.recovered()
            check_checkpoint(self.checkpoint, None if manifest is None else self._host, self.plan)
            self._planned_before = self.checkpoint.last_planned()
            self.files = FilesRead(
                self.plan.sources, spark, self.checkpoint.store, kept, self.telling.note, gone_in(self.spark)
            )
            self.result.changed = self.files.changed
            self._topics = {**self.topics.ids(), **self._host.get(TOPICS, {})}
            self.files.start(max_line_bytes(self.spark))
            pending = repeated is not None or self._batch_is_due()
            as_begun = self._as_begun(pending)
            if not as_begun:
                self.restored.forget_begun()
                self.begun.forget()
            owner = self.checkpoint.owner(manifest.owner if manifest is not None else None)
            self._drive(owner, pending=pending, repeats=pending and as_begun)
            self.telling.starts(self.driver, lambda: self.brokers.to_be_read(ends_in(self._host)))
            if repeated is not None:
                self.begun.intend(self.driver.manifest, repeated)  # it may have been forgotten just now
                self._own_tick(repeated)
            elif self.driver.said and not pending:  # queries came or went: the state is to say so
                self._own_tick(self._intended(end=False))
            if not self.result.finished:
                self._stream()
                if self.settings.until_caught_up and not self.settings.stop.is_set():
                    self.files.finish()
                    self._keep_files()
                if self.settings.finish and not self.settings.stop.is_set():
                    self._own_tick(self._intended(end=True))
            self.driver.ledger.check()
        self.result.stopped = self.settings.stop.is_set()
        return self.result

    def _as_begun(self, pending: bool) -> bool:
        """Whether the next tick, if it was begun, was begun with the settings of this run."""
        begun = self.restored.begun_with() if pending else None
        out: list[str] = []
        if begun is not None:
            manifest, aside = self.restored.manifest, self.settings.replace_newer_files
            owner = self.checkpoint.owner(None if manifest is None else manifest.owner)
            following = self.restored.tick + 1
            out = self.outputs.may_be_out(self.checkpoint.store, following, owner, set_aside=aside)
        return check_settings(self.checkpoint, self.run_settings, begun, out)

    @contextmanager
    def _sinks_closed(self) -> Iterator[None]:
        try:
            yield
        finally:
            with suppress(AttributeError):  # there is no driver yet
                self.driver.close()  # nothing is deleted beside the next run
            for sink in self.outputs.sinks:
                sink.close()

    def _build(self) -> None:
        settings, spark = self.settings, self.spark
        self.plan = as_kept(self.plan, load_newest(self.checkpoint.store))
        self.run_settings = all_settings(self.plan, settings.run, spark.sparkContext, settings.secrets)
        sources = self.plan.sources
        self.topics = Topics(spark, sources)  # by their places, which are those of the state
        self.brokers = Brokers(spark, sources)
        partitions, trigger_s = self.brokers.partitions(), settings.trigger_ms / 1000
        scanned = scan(
            spark,
            self.plan,
            partial(read, spark, sources=len(sources), trigger_s=trigger_s, given=settings.given),
            keep_late=self.outputs.late is not None,
            keep_broken=self.outputs.broken is not None,
        )
        store, read_table = self.checkpoint.store, partial(table_of, spark, makers=settings.makers)
        threads = threads_of_driver(cores_of_driver(spark.sparkContext))
        few = small_rows_in(settings.run, threads)
        tick_settings = TickSettings(
            digest=digest_of(self.run_settings),
            change_queries=settings.change_queries,
            keep_ticks=settings.keep_ticks,
            keep_late=self.outputs.late is not None or self.outputs.shed is not None,
            keep_broken=self.outputs.broken is not None,
            tasks_asked=settings.partitions is not None,
            small_rows=few,
            threads=threads,
        )
        self.restored = restore(
            self.plan,
            scanned.schemas,
            store,
            tick_settings,
            started_us=self.settings.clock(),
            tables=table_readers(self.plan, scanned, read_table),
            snapshots=snapshot_readers(self.plan, scanned, read_table, self.telling.note),
        )
        self.telling.note(*self.restored.said)
        self.restored.context.inputs.declare_partitions(partitions)
        self._scanned = scanned.sources
        self.rereading = Rereading(spark, sources, scanned, store, lambda batch: self.files.check(batch))
        self.by_tasks = ReadByTasks(spark, self.plan, scanned, store, reader_in(settings.run), few, threads)
        self.outputs.lend(spark, store)

    def _drive(self, owner: str, *, pending: bool, repeats: bool) -> None:
        """Make the driver, and let the sinks check what they can. ``pending``: the next tick was begun by an
        earlier run; ``repeats``: and is repeated as that one began it."""
        spark, settings = self.spark, self.settings
        self.driver = TickDriver(self.restored, owner, repeats=repeats)
        self.alignment = Alignment(spark, self.plan.sources, self.driver)
        told, tasks = Descriptions(spark, self.checkpoint.job), settings.partitions
        self.ticks = Ticks(spark, self.plan, self.driver, self.outputs, tasks, self.takings, told)
        aside = settings.replace_newer_files
        self.telling.note(*self.ticks.prepare(owner, pending=pending, set_aside=aside))

    def _stream(self) -> None:
        """Ticks from the stream until it is stopped, caught up, or fails."""
        if not self._scanned:
            self._only_read_tables()
            return
        with self._heartbeat():
            while not self.settings.stop.is_set():
                self._stream_once()
                if self.by_tasks.gave_up:  # the batch in hand comes again
                    continue
                if not (self.settings.until_caught_up and self.alignment.goes_on(ends_in(self._host) or [])):
                    break
        if self.settings.until_caught_up:
            self._read_tables()

    def _only_read_tables(self) -> None:
        """Ticks of a job without streams: when a table that is compared may have changed."""
        while not self.settings.stop.is_set():
            self._read_tables()
            if self.settings.until_caught_up:
                return
            wake = time.monotonic() + self.settings.trigger_ms / 1000
            while not self.settings.stop.wait(_POLL_S) and time.monotonic() < wake:
                self._stop_if_asked()

    def _stop_if_asked(self) -> None:
        """By `watersmeet stop`, as from another machine that has the directory."""
        if self.checkpoint.stop_asked():
            self.stop()

    def _read_tables(self) -> None:
        """A tick without rows of streams, if a table is due that is compared and may have changed."""
        with self._lock:
            if not self.settings.stop.is_set() and self.driver.reads_tables(self.settings.clock()):
                self._own_tick(self._intended(end=False))

    def _stream_once(self) -> None:
        self._is_listed, frames = self.by_tasks.begin_stream(), [frame for frame, _ in self._scanned]
        reports = listing_of(frames) if self._is_listed else reports_of(self._scanned, self.checkpoint.store)
        writer = reports.writeStream.foreachBatch(self._batch)
        writer = writer.option("checkpointLocation", self.checkpoint.spark_url)
        name = self.plan.queries[0].name
        if all(stream.name != name for stream in self.spark.streams.active):  # else one was left behind
            writer = writer.queryName(name)
        once, every = self.settings.until_caught_up, f"{self.settings.trigger_ms} milliseconds"
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)
        make_private(self.checkpoint.spark)
        query = self._query = self.by_tasks.started(writer) if self._is_listed else writer.start()
        waiting = Waiting(self.brokers.silent, self.telling.note)
        try:
            self.alignment.begin(query)
            while not self.settings.stop.is_set():
                if query.awaitTermination(_POLL_S):  # type: ignore[arg-type]
                    return
                waiting.look(bool(self.topics) and query.status["isTriggerActive"])
                self.files.look_if_due()
                self._stop_if_asked()
            self._end_between_ticks(query)
            if self._failure is not None:  # of the tick in hand, while it was waited for
                raise self._failure
        except Exception as error:
            gave_up = self.by_tasks.gave_up and self._failure is None
            if not (gave_up or isinstance(self._failure, Stopping)):
                in_short = readable_error(self._failure or error)
                raise self.topics.told(in_short, self._topics, ends_in(self._host)) from None
        finally:
            self.alignment.end()
            if query.isActive and not self._left_behind:
                self.settings.stop.set()
                self._end_between_ticks(query)

    def _end_between_ticks(self, query: StreamingQuery) -> None:
        while not self._lock.acquire(timeout=_GRACE_S):
            if self.brokers.away():  # it would wait for rows for minutes; the next run repeats it
                self._cancelled = True
                self.spark.sparkContext.cancelJobGroup(str(query.runId))
        self._lock.release()  # the tick in hand is done, and no other will begin
        try:
            query.stop()
        except Exception as error:
            if "failed to stop within" not in str(error):
                raise
            self._left_behind = True  # its thread waits for a broker; it can begin no tick

    def _batch(self, reports: DataFrame, batch: int) -> None:
        """What Spark calls for every batch."""
        try:
            with self._lock:
                if self.settings.stop.is_set():
                    raise Stopping
                query_id = self.checkpoint.query_id() or ""
                offsets = self.checkpoint.offsets(batch)
                if is_committed(self.driver.manifest, query_id, offsets, self.plan):
                    return
                self.checkpoint.spark_files.sync(batch)
                again = self._planned_before is not None and batch <= self._planned_before
                files = self.files.of_batch(offsets, again=again)
                host = host_of(query_id, offsets, self.plan, self._topics, files, self.settings.inferred)
                self.driver.inputs.declare_partitions(self.brokers.in_offsets(offsets.sources))

                remembered = self.begun.remember(self.driver.manifest, host)

                def check() -> None:
                    remembered()
                    self.files.check(files)
                    self.topics.check(self._topics)

                self._reading = files
                reading = Reading(None if self._is_listed else reports, files, self.by_tasks, self.rereading)
                self._tick(reading, offsets.clock_us, host, check=check)
                self.files.committed(files)
                self._host = host
        except SparkReads as why:
            failed = str(why)
        except BaseException as error:
            if self._failure is None or not isinstance(error, Stopping):
                self._failure = Stopping() if self._cancelled else error
            failed = str(error)
        else:
            return
        raise Failed(failed)

    def _tick(
        self, reading: Reading | None, clock_us: int, host: Host, *, check: Check = None, end: bool = False
    ) -> None:
        self.telling.begins(self.driver.tick + 1)
        self.driver.look(self.settings.clock())  # a batch of an earlier run has that one's clock
        try:
            given = TickInput(
                clock_us,
                told=told_of(host, self.driver.settings.digest),
                unread=lambda names: self._unread(names, host),
                check=check,
                end=end,
                ends=partial(self._ends, host) if self.settings.until_caught_up else None,
            )
            result = self.ticks.run(reading, host, given)
        except SparkReads:
            raise
        except Exception as error:
            raise in_words(error, self.plan) from None
        result = self._reached.with_read(result, host, None if reading is None else self._host)
        self.alignment.align()
        self._last_tick = time.monotonic()
        self.result.ticks += 1
        self.result.last = result
        self.telling.ended(result, lambda: self._backlog(host))

    def _backlog(self, host: Mapping[str, Any]) -> Backlog:
        """What is not read yet, as far as it is known."""
        behind = {name: (count, "files") for name, count in self.files.behind(self._reading).items()}
        offsets = ends_in(host)
        if self._query is not None and offsets is not None and self.topics:
            rows = rows_behind(last_report(self._query), self.plan.sources, offsets)
            behind |= {name: (count, "rows") for name, count in rows.items()}
        return behind

    def _intended(self, *, end: bool) -> Intent:
        """The next tick as one of our own, recorded: after a crash it comes first, as it was."""
        intent = Intent(self.driver.tick + 1, self.settings.clock(), end)
        self.begun.intend(self.driver.manifest, intent)
        return intent

    def _own_tick(self, intent: Intent) -> None:
        self._tick(None, intent.clock_us, self._host, end=intent.end)
        self.result.finished = intent.end

    def _keep_files(self) -> None:
        """What was found of files in the end, and could not be found again, is remembered by a tick without
        rows, if none follows anyway."""
        files = self.files.to_be_kept()
        if files is None:
            return
        self._host = {**self._host, **files.host}
        if not self.settings.finish:
            self._own_tick(self._intended(end=False))
        self.files.committed(files)

    def _own_tick_is_due(self) -> bool:
        """Whether a table is due that is compared, or something goes idle and no source has rows left to
        read: a tick with those comes first."""
        if self._batch_is_due():
            return False
        if self.driver.reads_tables(self.settings.clock()):
            return True
        if not self._host or not self.driver.is_due(self.settings.clock()):
            return False
        held = self.driver.held()
        names = [source.name for source in self.plan.sources if source.name not in held]
        return not any(self._unread(names, self._host).values())

    def _unread(self, names: Collection[str], host: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """The partitions of these sources that have rows which ``host``'s batch did not read."""
        offsets = ends_in(host)
        return {} if offsets is None else self.brokers.unread(names, offsets)

    def _ends(self, host: Host, name: str) -> bool:
        """Return whether it is known that this batch reads the last that there is of a source."""
        return self.files.is_read(name, self._reading) or self._unread([name], host).get(name) == ()

    def _batch_is_due(self) -> bool:
        """Whether Spark has planned a batch that is no tick yet: a killed run may have put out part of it."""
        planned = self.checkpoint.last_planned()
        return self.begun.is_due or (planned is not None and planned > self._host.get(BATCH, -1))

    @contextmanager
    def _heartbeat(self) -> Iterator[None]:
        """Ticks without rows while the stream gives none, if a source may go idle or a table is compared."""
        timeouts = [s.idle_timeout_us for s in self.plan.sources if s.idle_timeout_us is not None]
        if not (timeouts or self.plan.compared) or self.settings.until_caught_up:
            yield
            return
        pause_s = pause_between(timeouts)

        def beat() -> None:
            with self._lock:
                self.driver.look(self.settings.clock())
                if self.settings.stop.is_set() or time.monotonic() - self._last_tick < pause_s:
                    return
                try:
                    if self._own_tick_is_due():
                        self._own_tick(self._intended(end=False))
                except BaseException as error:
                    self._failure = error
                    self.settings.stop.set()

        with beating(beat, pause_s / 2, self.settings.stop):
            yield
        if self._failure is not None and not isinstance(self._failure, Stopping):
            raise readable_error(self._failure) from None


def run(spark: SparkSession, plan: JobPlan, settings: RunSettings, outputs: Outputs) -> RunResult:
    """Run ``plan`` until it ends or a signal stops it (`stopped_by_signals`).

    Raises:
        WatersmeetError: whatever went wrong, readable.
    """
    time_zone = plan.queries[0].options.time_zone
    hold_fixed(spark, time_zone)
    started = JobRun(spark, plan, settings, outputs, Checkpoint(settings.checkpoint, settings.store))
    started.telling.note(*filter(None, [check_zone(spark, time_zone)]))
    with stopped_by_signals(settings.stop) as signalled:
        try:
            return started.execute()
        except Exception as error:
            failed = readable_error(error)
            if not ended_by_signal(failed, signalled):
                raise started.begun.told(failed, getattr(started, "driver", None)) from None
            started.telling.note(BY_SIGNAL)
            started.result.stopped = True
            return started.result
        finally:
            started._failure = None
