"""The ticks of a run: those that Spark's batches make, and those of its own, without rows of streams."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.engine.driver.driver import TickDriver
from watersmeet.engine.spark.checkpoint.directory import Checkpoint, Intent
from watersmeet.engine.spark.checkpoint.elsewhere import Begun
from watersmeet.engine.spark.checkpoint.host import ends_in
from watersmeet.engine.spark.checkpoint.restart import host_of, is_committed, told_of
from watersmeet.engine.spark.errors import readable_error
from watersmeet.engine.spark.job.alignment import Alignment
from watersmeet.engine.spark.job.beats import LastTick, beating, pause_between
from watersmeet.engine.spark.job.breaking import Failure, Stopping
from watersmeet.engine.spark.job.restore import RestoredJob, is_batch_due
from watersmeet.engine.spark.job.settings import RunSettings
from watersmeet.engine.spark.job.telling import Telling
from watersmeet.engine.spark.job.words import in_words
from watersmeet.engine.spark.sources.backlog import Backlog, last_report, rows_behind
from watersmeet.engine.spark.sources.files.read import BatchFiles
from watersmeet.engine.spark.tick.reading.again import Rereading
from watersmeet.engine.spark.tick.reading.by_tasks import ReadByTasks
from watersmeet.engine.spark.tick.reading.of_tick import Reading, SparkReads
from watersmeet.engine.spark.tick.tick import Ticks
from watersmeet.engine.tick import TickInput
from watersmeet.plan.model.job import JobPlan

Host = Mapping[str, Any]
Check = Callable[[], None]


@dataclass(frozen=True)
class JobTicks:
    """What makes the ticks of a run, one after the other.

    Args:
        restored: from where the run goes on.
        rereading, by_tasks: how tasks read files.
        lock: held while a tick runs.
        last_tick: when it was.
        failure: why the run ends before its input.
    """

    settings: RunSettings
    checkpoint: Checkpoint
    begun: Begun
    telling: Telling
    restored: RestoredJob
    driver: TickDriver
    ticks: Ticks
    alignment: Alignment
    rereading: Rereading
    by_tasks: ReadByTasks
    lock: threading.Lock = field(default_factory=threading.Lock)
    last_tick: LastTick = field(default_factory=LastTick)
    failure: Failure = field(default_factory=Failure)

    @property
    def plan(self) -> JobPlan:
        return self.driver.plan

    @property
    def host(self) -> Host:
        """Return what is remembered of the last batch; empty: there was none."""
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
            host = host_of(query_id, offsets, self.plan, restored.topic_ids, files, self.settings.inferred)
            self.driver.inputs.declare_partitions(restored.opened.brokers.in_offsets(offsets.sources))
            remembered = self.begun.remember(self.driver.manifest, host)

            def check() -> None:
                remembered()
                restored.files.check(files)
                restored.opened.topics.check(restored.topic_ids)

            reading = Reading(reports, files, self.by_tasks, self.rereading)
            self._tick(reading, offsets.clock_us, host, check=check, query=query)
            restored.files.committed(files)

    def own(self, intent: Intent, host: Host | None = None) -> None:
        """Run a tick without rows of streams. ``host``: None: that of the last batch."""
        self._tick(None, intent.clock_us, self.host if host is None else host, end=intent.end)

    def intended(self, *, end: bool = False) -> Intent:
        """Record the next tick as one without a batch of Spark: after a crash it comes first, as it was."""
        intent = Intent(self.driver.tick + 1, self.settings.clock(), end)
        self.begun.intend(self.driver.manifest, intent)
        return intent

    def read_tables(self) -> None:
        """Run a tick without rows of streams, if a table is due that is compared and may have changed."""
        with self.lock:
            if not self.settings.stop.is_set() and self.driver.reads_tables(self.settings.clock()):
                self.own(self.intended())

    def keep_files(self) -> Host:
        """Remember what was found of files in the end and could not be found again, by a tick without rows if
        none follows. Return what the last tick has to remember."""
        restored = self.restored
        files = restored.files.to_be_kept()
        if files is None:
            return self.host
        host = {**self.host, **files.host}
        if not self.settings.finish:
            self.own(self.intended(), host)
        restored.files.committed(files)
        return host

    @contextmanager
    def while_idle(self) -> Iterator[None]:
        """Run ticks without rows while the stream gives none, if a source may go idle or a table is
        compared."""
        timeouts = [s.idle_timeout_us for s in self.plan.sources if s.idle_timeout_us is not None]
        if not (timeouts or self.plan.compared) or self.settings.until_caught_up:
            yield
            return
        pause_s = pause_between(timeouts)

        def beat() -> None:
            with self.lock:
                self.driver.look(self.settings.clock())
                if self.settings.stop.is_set() or self.last_tick.seconds_ago < pause_s:
                    return
                try:
                    if self._own_tick_is_due():
                        self.own(self.intended())
                except BaseException as error:
                    self.failure.note(error)
                    self.settings.stop.set()

        with beating(beat, pause_s / 2, self.settings.stop):
            yield
        if self.failure.error is not None and not self.failure.is_stop:
            raise readable_error(self.failure.error) from None

    def _tick(
        self,
        reading: Reading | None,
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
            told=told_of(host, self.driver.settings.digest),
            unread=lambda names: self._unread(names, host),
            check=check,
            end=end,
            ends=partial(self._ends, host, files) if self.settings.until_caught_up else None,
        )
        try:
            result = self.ticks.run(self.driver, reading, host, given)
        except SparkReads:
            raise
        except Exception as error:
            raise in_words(error, self.plan) from None
        result = self.restored.reached.with_read(result, host, None if reading is None else before)
        self.alignment.align()
        self.last_tick.is_now()
        self.telling.ended(result, lambda: self._backlog(host, files, query()))

    def _backlog(self, host: Host, files: BatchFiles | None, query: StreamingQuery | None) -> Backlog:
        """Return what is not read yet, as far as it is known."""
        behind = {name: (count, "files") for name, count in self.restored.files.behind(files).items()}
        offsets = ends_in(host)
        if query is not None and offsets is not None and self.restored.opened.topics:
            rows = rows_behind(last_report(query), self.plan.sources, offsets)
            behind |= {name: (count, "rows") for name, count in rows.items()}
        return behind

    def _own_tick_is_due(self) -> bool:
        """Return True if a table is due that is compared, or a partition goes idle and no source has rows to
        read: a tick with those comes first."""
        if is_batch_due(self.checkpoint, self.begun, self.host):
            return False
        if self.driver.reads_tables(self.settings.clock()):
            return True
        if not self.host or not self.driver.is_due(self.settings.clock()):
            return False
        held = self.driver.held()
        names = [source.name for source in self.plan.sources if source.name not in held]
        return not any(self._unread(names, self.host).values())

    def _unread(self, names: Collection[str], host: Host) -> dict[str, tuple[str, ...]]:
        """Return the partitions of these sources that have rows which ``host``'s batch did not read."""
        offsets = ends_in(host)
        return {} if offsets is None else self.restored.opened.brokers.unread(names, offsets)

    def _ends(self, host: Host, files: BatchFiles | None, name: str) -> bool:
        """Return whether it is known that this batch reads the last that there is of a source."""
        return is_read_to_its_end(name, self.restored.files.is_read(name, files), self._unread([name], host))


def is_read_to_its_end(name: str, files_are_read: bool, unread: Mapping[str, tuple[str, ...]]) -> bool:
    """Return True if it is known that a source has no more to read: its files are read, or its brokers have
    been asked (``unread``: per source) and have no rows left."""
    return files_are_read or unread.get(name) == ()
