"""A job on Spark from start to end:

    open_job ──> restore_job ──> driver, sinks ──> stream: batch → tick, … ──> (end of input) ──> result

Stopping (SIGINT, SIGTERM, SIGHUP, `JobRun.stop`) lets the tick in hand finish. What a run leaves behind, the
next goes on with.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator.commit import ResumePoint
from watersmeet.runtime.coordinator.driver import TickDriver, check_not_finished
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.runtime.spark.checkpoint.remote_checkpoint import TickIntent
from watersmeet.runtime.spark.checkpoint.spark_positions import load_end_offsets
from watersmeet.runtime.spark.errors import readable_error
from watersmeet.runtime.spark.job.alignment import Alignment
from watersmeet.runtime.spark.job.listeners import RunListeners
from watersmeet.runtime.spark.job.restore import RestoredJob, open_job, restore_job
from watersmeet.runtime.spark.job.session import hold_fixed
from watersmeet.runtime.spark.job.settings import RunResult, RunSettings
from watersmeet.runtime.spark.job.signals import stop_on_signals
from watersmeet.runtime.spark.job.stream import JobTicks, Stream
from watersmeet.runtime.spark.job.stream_end import (
    BY_SIGNAL,
    POLL_S,
    is_signal_failure,
    stop_if_requested,
)
from watersmeet.runtime.spark.job.zone_rules import check_zone
from watersmeet.runtime.spark.sources.files.progress import load_changed_files
from watersmeet.runtime.spark.tick.outputs import Outputs
from watersmeet.runtime.spark.tick.reading.arrow_ingest import ArrowReading
from watersmeet.runtime.spark.tick.reading.text_validation import Rereading
from watersmeet.runtime.spark.tick.sink_row_counts import SinkRowCounter
from watersmeet.runtime.spark.tick.task_placement import Descriptions
from watersmeet.runtime.spark.tick.tick import SparkTicks
from watersmeet.spec.options.files import reader_in


@dataclass(frozen=True)
class JobRun:
    """One run of a job. ``signalled``: set when a signal has come."""

    spark: SparkSession
    plan: JobPlan
    settings: RunSettings
    outputs: Outputs
    checkpoint: Checkpoint
    signalled: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """End the run after the tick in hand. May be called from any thread, and from a signal handler."""
        self.settings.stop.set()

    def execute(self) -> RunResult:
        """Run the job to its end, in this thread. Raises: WatersmeetError."""
        telling = RunListeners(self.settings)
        telling.note(*filter(None, [check_zone(self.spark, self.plan.queries[0].options.time_zone)]))
        try:
            with ExitStack() as closing:
                return self._execute(closing, telling)
        except Exception as error:  # of what is closed, too
            raise readable_error(error) from None

    def _execute(self, closing: ExitStack, telling: RunListeners) -> RunResult:
        spark, settings, outputs = self.spark, self.settings, self.outputs
        begun, takings = TickIntent(self.checkpoint), SinkRowCounter(spark)
        closing.callback(_call_suppressing_errors, begun.close)
        closing.callback(_call_suppressing_errors, takings.close)
        goes_on_from: ResumePoint | None = None
        restored: RestoredJob | None = None
        try:
            closing.enter_context(self.checkpoint.lock())
            for sink in outputs.sinks:
                closing.callback(sink.close)
            self.checkpoint.forget_stop()
            opened = open_job(spark, self.plan, settings, outputs, self.checkpoint, telling)
            closing.callback(_call_suppressing_errors, opened.topics.close)
            goes_on_from = opened.state
            manifest = opened.state.manifest
            if manifest is not None and manifest.finished:
                if not settings.finish:
                    check_not_finished(manifest)
                return RunResult(finished=True, changed=load_changed_files(manifest.host))
            described = Descriptions(spark, self.checkpoint.job)
            context = opened.state.context
            ticks = SparkTicks(spark, context, outputs, settings.partitions, takings, described)
            outputs.lend(spark, self.checkpoint.store)
            restored = restore_job(spark, opened, settings, outputs, self.checkpoint, begun, telling)
            driver = TickDriver(restored.opened.state, restored.owner, repeats=restored.repeats)
            closing.callback(driver.close)  # nothing is deleted beside the next run
            goes_on_from = driver
            job = self._job_ticks(restored, driver, ticks, begun, telling)
            try:
                self._run(job)
            finally:
                job.failure.forget()
            driver.ledger.check()
            is_finished, stopped = driver.is_finished, settings.stop.is_set()
        except Exception as error:
            failed = readable_error(error)
            if not is_signal_failure(failed, self.signalled):
                raise begun.told(failed, goes_on_from) from None
            telling.note(BY_SIGNAL)
            is_finished, stopped = False, True
        changed = {} if restored is None else restored.files.changed
        return telling.result(finished=is_finished, stopped=stopped, changed=changed)

    def _job_ticks(
        self,
        restored: RestoredJob,
        driver: TickDriver,
        ticks: SparkTicks,
        begun: TickIntent,
        telling: RunListeners,
    ) -> JobTicks:
        """Return what makes the ticks of the run; the sinks have checked what they can."""
        spark, settings, opened = self.spark, self.settings, restored.opened
        store, of_ticks = self.checkpoint.store, opened.state.context.settings
        aside = settings.replace_newer_files
        telling.note(
            *ticks.prepare(driver.manifest, restored.owner, pending=restored.pending, set_aside=aside)
        )
        few, threads = of_ticks.small_rows, of_ticks.threads
        return JobTicks(
            settings=settings,
            checkpoint=self.checkpoint,
            begun=begun,
            telling=telling,
            restored=restored,
            driver=driver,
            ticks=ticks,
            alignment=Alignment(spark, opened.plan.sources, driver),
            rereading=Rereading(spark, opened.plan.sources, opened.scanned, store, restored.files.check),
            by_tasks=ArrowReading(
                spark, opened.plan, opened.scanned, store, reader_in(settings.run), few, threads
            ),
        )

    def _run(self, job: JobTicks) -> None:
        """Run all ticks, from the one that is repeated to the end of the input."""
        settings, restored, driver = self.settings, job.restored, job.driver
        job.telling.starts(
            driver, lambda: restored.opened.brokers.list_unread_at_start(load_end_offsets(job.host))
        )
        if restored.repeated is not None:
            job.begun.intend(driver.manifest, restored.repeated)  # it may have been forgotten just now
            job.own(restored.repeated)
        elif restored.is_changed and not restored.pending:
            job.own(job.record_intent())
        if driver.is_finished:
            return
        self._stream(job)
        host = job.host
        if settings.until_caught_up and not settings.stop.is_set():
            restored.files.finish()
            host = job.record_files()
        if settings.finish and not settings.stop.is_set():
            job.own(job.record_intent(end=True), host)

    def _stream(self, job: JobTicks) -> None:
        """Run ticks from the stream until it is stopped, has caught up, or fails."""
        if not job.restored.opened.scanned.sources:
            self._run_table_ticks(job)
            return
        with job.run_idle_ticks():
            while not self.settings.stop.is_set():
                Stream(self.spark, job, job.by_tasks.begin_stream()).run()
                if job.by_tasks.gave_up:  # the batch in hand comes again
                    continue
                if not (
                    self.settings.until_caught_up and job.alignment.goes_on(load_end_offsets(job.host) or [])
                ):
                    break
        if self.settings.until_caught_up:
            job.read_tables()

    def _run_table_ticks(self, job: JobTicks) -> None:
        """Run the ticks of a job without streams: when a table that is compared may have changed."""
        stop = self.settings.stop
        while not stop.is_set():
            job.read_tables()
            if self.settings.until_caught_up:
                return
            wake = time.monotonic() + self.settings.trigger_ms / 1000
            while not stop.wait(POLL_S) and time.monotonic() < wake:
                stop_if_requested(self.checkpoint, stop)


def run(spark: SparkSession, plan: JobPlan, settings: RunSettings, outputs: Outputs) -> RunResult:
    """Run ``plan`` until it ends or a signal stops it (`stop_on_signals`).

    Raises:
        WatersmeetError: whatever went wrong, readable.
    """
    hold_fixed(spark, plan.queries[0].options.time_zone)
    with stop_on_signals(settings.stop) as signalled:
        checkpoint = Checkpoint(settings.checkpoint, settings.store)
        return JobRun(spark, plan, settings, outputs, checkpoint, signalled).execute()


def _call_suppressing_errors(close: Callable[[], None]) -> None:
    """Close, whatever comes of it: Java may be gone, and how the run ended is what counts."""
    with suppress(Exception):
        close()
