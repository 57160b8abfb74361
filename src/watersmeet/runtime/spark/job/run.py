"""A job on Spark from start to end:

    open_job ──> restore_job ──> driver, sinks ──> stream: batch → tick, … ──> (end of input) ──> result

Stopping (SIGINT, SIGTERM, SIGHUP, `JobRun.stop`) lets the tick in hand finish. What a run leaves behind, the
next goes on with.
"""

from __future__ import annotations

import re
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from watersmeet.errors import EngineError, SpecError, raise_all
from watersmeet.kernel.duckdb import connection
from watersmeet.plan.checks.endpoints import SIDE_OUTPUT_SETTINGS
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.model.nodes import GroupedPlan
from watersmeet.runtime.coordinator.commit import ResumePoint
from watersmeet.runtime.coordinator.driver import TickDriver, check_not_finished
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.runtime.spark.checkpoint.remote_checkpoint import TickIntent
from watersmeet.runtime.spark.checkpoint.spark_positions import load_end_offsets
from watersmeet.runtime.spark.errors import explain_java_end, readable_error
from watersmeet.runtime.spark.java_start import build_conf
from watersmeet.runtime.spark.job import gateway, session
from watersmeet.runtime.spark.job.alignment import Alignment
from watersmeet.runtime.spark.job.external_session import find_frames_session
from watersmeet.runtime.spark.job.listeners import RunListeners
from watersmeet.runtime.spark.job.restore import RestoredJob, open_job, restore_job
from watersmeet.runtime.spark.job.session import hold_fixed
from watersmeet.runtime.spark.job.settings import RunResult, RunSettings
from watersmeet.runtime.spark.job.signals import stop_on_signals
from watersmeet.runtime.spark.job.stream import JobTicks, Stream
from watersmeet.runtime.spark.job.stream_end import BY_SIGNAL, POLL_S, is_signal_failure, stop_if_requested
from watersmeet.runtime.spark.preflight.sources import list_table_notes
from watersmeet.runtime.spark.sources.dataframes import inspect_frames
from watersmeet.runtime.spark.sources.files.progress import load_changed_files
from watersmeet.runtime.spark.tick.outputs import (
    BROKEN_INSERT,
    LATE_INSERT,
    PROGRESS_INSERT,
    SHED_INSERT,
    Outputs,
)
from watersmeet.runtime.spark.tick.reading.arrow_ingest import ArrowReading
from watersmeet.runtime.spark.tick.reading.read_path import needs_tasks
from watersmeet.runtime.spark.tick.reading.text_validation import Rereading
from watersmeet.runtime.spark.tick.sink_row_counts import SinkRowCounter
from watersmeet.runtime.spark.tick.task_placement import Descriptions
from watersmeet.runtime.spark.tick.tick import SparkTicks
from watersmeet.sinks.base import Sink
from watersmeet.sinks.registry import make_sink, target_sinks
from watersmeet.spec.model import Job
from watersmeet.spec.options.files import reader_in
from watersmeet.zones import FIRST_COMMON_S, LAST_COMMON_S, SECOND_US, zone


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


_STARTING = threading.Lock()
"""Two jobs that start at once make one session."""


def run_job(job: Job, plan: JobPlan, settings: RunSettings) -> RunResult:
    """Run ``plan``, the plan of ``job``, until it ends or is stopped.

    Raises:
        WatersmeetError: whatever went wrong, readable.
    """
    settings = settings.resolve(job)
    outputs = build_outputs(job, plan, settings)
    with explain_java_end():
        theirs = find_frames_session(settings.given)
        looked = inspect_frames(plan, settings.given)
    raise_all(looked.problems)
    with explain_java_end():
        conf = build_conf(job, plan)
    notes = [*looked.notes, *list_table_notes(plan)]
    if theirs is None and (exposed := gateway.list_exposed_settings(conf)):
        notes.append(
            f"all users of this machine can read {', '.join(exposed)} among the arguments of the Java"
            " process: keep secrets out of these settings"
        )
    for note in notes:
        if settings.on_notice is not None:
            settings.on_notice(note)
    if any(query.every(GroupedPlan) for query in plan.queries):
        connection()  # loaded before rows come; where Java was begun ahead, it starts meanwhile
    with _STARTING, explain_java_end():
        if theirs is None and settings.is_background:
            theirs = session.find_session()
        if theirs is None:
            spark = session.start(conf, workers=needs_tasks(plan, settings.run))
        else:
            spark = session.clone_session(theirs, conf)
    with explain_java_end():
        return run(spark, plan, settings, outputs)


def build_outputs(job: Job, plan: JobPlan, settings: RunSettings) -> Outputs:
    """Build the sinks of all queries, one object per declared sink, and the side-output sinks.

    See `SIDE_OUTPUT_SETTINGS` for side outputs.

    Raises:
        SpecError: options are wrong, an INSERT uses a name reserved for side outputs, or a sink of
            ``accept_target`` does not remember its target.
    """
    made: dict[str, Sink] = {}

    def sink_named(name: str) -> Sink:
        if name not in made:
            made[name] = make_sink(declared[name], console=settings.console, functions=settings.functions)
        return made[name]

    into = {query.name: query.sink for query in plan.queries if not query.is_index}
    declared = {sink.name: sink for sink in (*job.sinks, *into.values())}
    for name in (LATE_INSERT, BROKEN_INSERT, SHED_INSERT, PROGRESS_INSERT):
        if name in into:
            raise SpecError(
                f'the name "{name}" is reserved for side outputs; an INSERT cannot use it',
                code="reserved-name",
                hint="give the sink another name",
            )
    queries = {name: sink_named(sink.name) for name, sink in into.items()}
    beside: dict[str, Sink | None] = {}
    for setting in SIDE_OUTPUT_SETTINGS:
        wanted = job.run.get(setting)
        beside[setting] = None if wanted is None else sink_named(wanted)
    for sink in target_sinks(made, settings.accept_target):
        sink.accept_target()
    late, broken, shed, progress = (beside[name] for name in SIDE_OUTPUT_SETTINGS)
    return Outputs(queries, late, broken, progress, shed)


OffsetChanges = list[tuple[int, int]]
"""Instants, in seconds since 1970, and the UTC offsets from then on, in seconds; the first is the start."""

FIRST = int(datetime(1900, 1, 1, tzinfo=UTC).timestamp())
_EPOCH = datetime(1970, 1, 1)
_OFFSET = r"(Z|[+-]\d\d:\d\d(?::\d\d)?)"
_CHANGE = re.compile(rf"(?:Gap|Overlap) at (\d{{4}}-\d\d-\d\dT[\d:]+?){_OFFSET} to {_OFFSET}\]")


def check_zone(session: SparkSession, name: str) -> str | None:
    """Check that Java and Python have the same rules for a time zone.

    Returns:
        A notice if the rules differ only before 1970; else None.

    Raises:
        EngineError: they differ from 1970 to 2100.
    """
    if "/" not in name:
        return None  # UTC and fixed offsets have no rules
    differ = find_differences(load_java_rules(session, name), load_python_rules(name))
    if not differ:
        return None
    when = " and ".join(
        dict.fromkeys(
            (_EPOCH + timedelta(seconds=moment)).strftime("%Y-%m-%d") for moment in (differ[0], differ[-1])
        )
    )
    both = f"Java and Python have different rules for the time zone {name}"
    if differ[-1] < FIRST_COMMON_S:
        return (
            f"{both} before 1970 (first and last at {when}): for such times, hours and days that Spark"
            " computes may differ from those that tasks compute"
        )
    raise EngineError(
        f"{both} (first and last at {when}), so Spark and its Python tasks would compute different"
        " local times",
        code="time-zone-rules",
        hint="update both: install a newer Java, and run `pip install -U tzdata`; or SET time_zone to"
        " an offset, such as '+01:00'",
    )


def find_differences(one: OffsetChanges, other: OffsetChanges) -> list[int]:
    """Find the instants at which a change in either list leads to different offsets."""
    instants = sorted({at for changes in (one, other) for at, _ in changes})
    return [at for at in instants if _offset(one, at) != _offset(other, at)]


def _offset(changes: OffsetChanges, at: int) -> int:
    place = bisect_left(changes, (at + 1,))
    return changes[max(place - 1, 0)][1]


def load_python_rules(name: str) -> OffsetChanges:
    """Load the time zone rules that tasks compute with."""
    own = zone(name)
    starts = (own.starts // SECOND_US).tolist()
    offsets = (own.offsets // SECOND_US).tolist()
    before = [offset for at, offset in zip([FIRST, *starts], offsets, strict=True) if at <= FIRST]
    return [(FIRST, before[-1])] + [
        (at, offset) for at, offset in zip(starts, offsets[1:], strict=True) if FIRST < at < LAST_COMMON_S
    ]


def load_java_rules(session: SparkSession, name: str) -> OffsetChanges:
    """Load the time zone rules of the running JVM.

    One call reads the listed changes; the later changes, which follow a rule, are read one by one.
    """
    jvm: Any = session.sparkContext._jvm
    try:
        rules = jvm.java.time.ZoneId.of(name).getRules()
    except (Py4JJavaError, PySparkException):
        raise EngineError(
            f"Java does not know the time zone {name}, but Python does",
            code="time-zone-rules",
            hint="install a newer Java, or SET time_zone to an offset, such as '+01:00'",
        ) from None
    first = rules.getOffset(jvm.java.time.Instant.ofEpochSecond(FIRST)).getTotalSeconds()
    changes = [(at, offset) for at, offset in _read(rules.getTransitions().toString()) if at < LAST_COMMON_S]
    following = rules.nextTransition(
        jvm.java.time.Instant.ofEpochSecond(changes[-1][0] if changes else FIRST)
    )
    while following is not None:
        ((at, offset),) = _read(following.toString())
        if at >= LAST_COMMON_S:
            break
        changes.append((at, offset))
        following = rules.nextTransition(following.getInstant())
    return [(FIRST, first)] + [(at, offset) for at, offset in changes if at > FIRST]


def _read(text: str) -> OffsetChanges:
    changes = []
    for local, before, after in _CHANGE.findall(text):
        wall = (datetime.fromisoformat(local) - _EPOCH) // timedelta(seconds=1)
        changes.append((wall - _seconds(before), _seconds(after)))
    return changes


def _seconds(offset: str) -> int:
    if offset == "Z":
        return 0
    parts = [int(part) for part in offset[1:].split(":")]
    size = parts[0] * 3_600 + parts[1] * 60 + (parts[2] if len(parts) > 2 else 0)
    return -size if offset[0] == "-" else size
