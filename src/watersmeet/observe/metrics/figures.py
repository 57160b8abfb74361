"""The metrics of a run, by name."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

from prometheus_client import Histogram

from watersmeet.event_time import ENDED, NEVER
from watersmeet.names import input_of
from watersmeet.observe.listeners import Listener, WatchedRun
from watersmeet.observe.progress import TickReport
from watersmeet.observe.reports import (
    ObservedTick,
    input_name,
    integer_columns,
    report_of,
    split_by_alias,
)
from watersmeet.observe.retained_rows import collect_retained_state
from watersmeet.observe.row_accounting import PLACES
from watersmeet.observe.watermark_holders import WaitingInput
from watersmeet.plan.model.job import JobPlan

# How many warnings the package has logged in this process, by logger: a server is away and is asked
# again, and the like. Where nobody has set up logging they are still printed, as they are if nobody
# counts.

LOGGER = "watersmeet"
"""The logger above all of the package's."""


class WarningCounts(logging.Handler):
    """Counts from the first `begin` to the last `end`."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.counts: Counter[str] = Counter()
        self._users, self._users_lock = 0, Lock()

    def begin(self) -> None:
        """Add one user; attach the handler to the logger."""
        with self._users_lock:
            self._users += 1
            logging.getLogger(LOGGER).addHandler(self)  # it is there once, however often it is added

    def end(self) -> None:
        """Remove one user; detach the handler after the last one."""
        with self._users_lock:
            self._users -= 1
            if not self._users:
                logging.getLogger(LOGGER).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.counts[record.name] += 1
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and not is_logging_set_up(record.name):
            last.handle(record)


WARNED = WarningCounts()
"""Of this process."""


def is_logging_set_up(name: str) -> bool:
    """Return whether a logger, or one above it, has a handler of somebody's."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(handler is not WARNED for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


# The figures of a run, by name: what it has come to after a tick, and how it stands at a moment.
#
# Nothing here has a clock, or knows who asks. Names and units are those of Prometheus's conventions:
# seconds, bytes, ``_total`` for what only grows. Counters of rows are since the job's first tick, as the
# account has them: a restart does not begin them anew.

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

OUTCOMES = tuple(place for place in PLACES if place != "retained")
"""Where a row ended that came in and is not kept any more."""


@dataclass(frozen=True)
class Figure:
    """``labels``: behind that of the job, which all have."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


class MetricValue(NamedTuple):
    """A value of a figure. ``labels``: in the figure's order."""

    figure: Figure
    labels: tuple[str, ...]
    value: float


_INPUT = ("query", "input")
_KEY = (*_INPUT, "column")

INPUT_ROWS = Figure(
    "watersmeet_input_rows_total", COUNTER, "Rows that came to an input since the job's first tick.", _INPUT
)
ROWS = Figure(
    "watersmeet_rows_total",
    COUNTER,
    "Rows of an input that are kept no more, by what became of them, since the job's first tick.",
    (*_INPUT, "outcome"),
)
RETAINED_ROWS = Figure("watersmeet_retained_rows", GAUGE, "Rows of an input that are kept.", _INPUT)
RETAINED_BYTES = Figure(
    "watersmeet_retained_bytes",
    GAUGE,
    "Bytes in files of the rows of an input that are kept; released ones are in them until they are merged.",
    _INPUT,
)
FORECAST_ROWS = Figure(
    "watersmeet_forecast_rows",
    GAUGE,
    "Rows of an input that are kept at most, by the declared rate of its sources or the measured one.",
    (*_INPUT, "rate"),
)
FORECAST_BYTES = Figure("watersmeet_forecast_bytes", GAUGE, "What these take in files.", (*_INPUT, "rate"))
STATE_BYTES = Figure("watersmeet_state_bytes", GAUGE, "Bytes in files of all that a query keeps.", ("query",))
OUTPUT_ROWS = Figure(
    "watersmeet_output_rows_total", COUNTER, "Rows to the sink since the job's first tick.", ("query",)
)
SHED_JOINED = Figure(
    "watersmeet_shed_joined_rows_total",
    COUNTER,
    "Joined rows that were shed at a limit on their way to another join, by the inputs joined in them.",
    ("query", "inputs"),
)
LATE_BY = Figure(
    "watersmeet_late_rows_total",
    COUNTER,
    "Late rows, by how late they were.",
    (*_KEY, "lateness"),
)
WATERMARK = Figure(
    "watersmeet_watermark_timestamp_seconds",
    GAUGE,
    "Watermark of an event time, in seconds since 1970; none before the first row and after the last.",
    _KEY,
)
WATERMARK_LAG = Figure(
    "watersmeet_watermark_lag_seconds", GAUGE, "How far the watermark is behind the clock.", _KEY
)
WATERMARK_INTEGER = Figure(
    "watersmeet_watermark_integer", GAUGE, "Watermark of an event time that is an integer.", _KEY
)
HOLDERS = Figure(
    "watersmeet_watermark_holders",
    GAUGE,
    "Silent partitions that hold an input's watermark back.",
    _INPUT,
)
IDLE = Figure("watersmeet_input_idle", GAUGE, "1: all partitions of the input are idle.", _INPUT)
BACKLOGS = {
    unit: Figure(
        f"watersmeet_backlog_{unit}", GAUGE, f"{unit.title()} of a source not read yet.", ("source",)
    )
    for unit in ("rows", "files")
}
PAUSED = Figure(
    "watersmeet_source_paused", GAUGE, "1: the source is not read, for it is too far ahead.", ("source",)
)
TICK = Figure("watersmeet_last_tick", GAUGE, "Number of the last tick that was committed.")
TICK_TIME = Figure("watersmeet_last_tick_timestamp_seconds", GAUGE, "When that was, in seconds since 1970.")
RUNNING_TICK_AGE = Figure(
    "watersmeet_running_tick_age_seconds",
    GAUGE,
    "Age of the running tick; 0: none runs.",
)
TRIGGER = Figure(
    "watersmeet_trigger_interval_seconds",
    GAUGE,
    "Seconds between ticks as set; 0: as soon as rows come.",
)
UP = Figure("watersmeet_up", GAUGE, "1: the job runs, 0: it is starting or has ended.")
FAILING = Figure("watersmeet_failing", GAUGE, "1: the job's last run has failed.")
NOTICES = Figure("watersmeet_notices_total", COUNTER, "What a person should know and did not stop the job.")
WARNINGS = Figure(
    "watersmeet_warnings_total",
    COUNTER,
    "Warnings in this process's log: a server is away and is asked again, and the like.",
    ("logger",),
)
STORE_BYTES = Figure(
    "watersmeet_store_bytes_total",
    COUNTER,
    "Bytes of a state in a remote store: fetched, read from the cache instead, written.",
    ("direction",),
)
STORE_REQUESTS = Figure("watersmeet_store_requests_total", COUNTER, "Requests to that store.")
TICK_SECONDS = Figure("watersmeet_tick_duration_seconds", HISTOGRAM, "How long ticks took.")
PHASE_SECONDS = Figure(
    "watersmeet_tick_phase_duration_seconds", HISTOGRAM, "How long a phase of a tick took.", ("phase",)
)

FIGURES: tuple[Figure, ...] = (
    *(value for value in list(globals().values()) if isinstance(value, Figure)),
    *BACKLOGS.values(),
)
"""All there are."""


class Readings:
    """Reads a job's ticks by its plan."""

    def __init__(self, plan: JobPlan) -> None:
        self._plan = plan
        self._integers = integer_columns(plan)

    def read_tick(self, report: TickReport, result: ObservedTick, now_us: int) -> Iterator[MetricValue]:
        """Yield the metric values of a tick.

        Args:
            now_us: the clock, from which delays are computed.
        """
        yield MetricValue(TICK, (), report.tick)
        if report.clock_us is not None:
            yield MetricValue(TICK_TIME, (), report.clock_us / 1e6)
        for query, own in result.queries.items():
            yield MetricValue(OUTPUT_ROWS, (query,), own.total_rows_out)
            yield MetricValue(STATE_BYTES, (query,), own.state_bytes)
            for inputs, rows in own.shed_joined.items():
                yield MetricValue(SHED_JOINED, (query, inputs), rows)
        yield from self._accounts(result)
        yield from self._watermarks(result, now_us)
        yield from self._collect_retention_metrics(result)
        for source, backlog in report.backlog.items():
            yield MetricValue(BACKLOGS[backlog.unit], (source,), backlog.count)
        for source in {**report.rows_in, **report.paused_sources}:
            yield MetricValue(PAUSED, (source,), source in report.paused_sources)

    def _accounts(self, result: ObservedTick) -> Iterator[MetricValue]:
        for query, own in result.queries.items():
            for alias, counts in own.account.items():
                labels = _labels(query, alias)
                yield MetricValue(INPUT_ROWS, labels, counts.get("in", 0))
                yield MetricValue(RETAINED_ROWS, labels, counts.get("retained", own.state.get(alias, 0)))
                for outcome in OUTCOMES:
                    yield MetricValue(ROWS, (*labels, outcome), counts.get(outcome, 0))
                for column, late in own.late.get(alias, {}).items():
                    for lateness, rows in late.counts.items():
                        yield MetricValue(LATE_BY, (*labels, column, lateness), rows)

    def _watermarks(self, result: ObservedTick, now_us: int) -> Iterator[MetricValue]:
        for query, own in result.queries.items():
            for alias, marks in split_by_alias(own.input_watermarks, own.account).items():
                yield MetricValue(HOLDERS, _labels(query, alias), len(own.holding.get(alias, ())))
                yield MetricValue(IDLE, _labels(query, alias), alias in own.idle)
                for column, mark in marks.items():
                    if mark in (NEVER, ENDED):
                        continue
                    labels = (*_labels(query, alias), column)
                    if (query, alias, column) in self._integers:
                        yield MetricValue(WATERMARK_INTEGER, labels, mark)
                        continue
                    yield MetricValue(WATERMARK, labels, mark / 1e6)
                    yield MetricValue(WATERMARK_LAG, labels, (now_us - mark) / 1e6)

    def _collect_retention_metrics(self, result: ObservedTick) -> Iterator[MetricValue]:
        for labels, kept in collect_retained_state(self._plan, result).items():
            if kept.file_bytes is not None:
                yield MetricValue(RETAINED_BYTES, labels, kept.file_bytes)
            for by, most in kept.most.items():
                yield MetricValue(FORECAST_ROWS, (*labels, by), most.rows)
                yield MetricValue(FORECAST_BYTES, (*labels, by), most.file_bytes)


def _labels(query: str, side: str) -> tuple[str, str]:
    """Return the query and the input name that users know; for an arrangement, its input's."""
    return query, input_name(input_of(side))


def readings_of_store(traffic: Mapping[str, int], requests: int) -> Iterator[MetricValue]:
    """Yield the metric values of the requests to a remote store.

    Args:
        traffic: bytes per direction.
    """
    for direction, count in traffic.items():
        yield MetricValue(STORE_BYTES, (direction,), count)
    yield MetricValue(STORE_REQUESTS, (), requests)


# What one run has come to, kept for whoever asks next.
#
# A tick costs next to nothing here: its result is held on to, and its seconds are put into histograms.
# All other figures are made of it when somebody asks, in the thread that asks.

PHASE_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds. A phase of a tick may take ten milliseconds, a tick that waits for a server minutes."""

STARTING, RUNNING, RUN_ENDED, FAILED = "starting", "running", "ended", "failed"


def histograms() -> dict[Figure, Histogram]:
    """Return histograms of ticks and their phases for all jobs that are shown at one address."""
    return {
        figure: Histogram(
            figure.name, figure.help, ("job", *figure.labels), registry=None, buckets=PHASE_BUCKETS
        )
        for figure in (TICK_SECONDS, PHASE_SECONDS)
    }


class RunMetrics(Listener):
    """Metrics of one job over its runs in this process; counters continue when the job restarts.

    Args:
        seconds: the histograms to which its ticks are added.
        when_over: called when one of its runs ends.
    """

    def __init__(self, job: str, seconds: Mapping[Figure, Histogram], when_over: Callable[[], None]) -> None:
        self.job = job
        self._when_over = when_over
        self.state = RUN_ENDED
        self._lock = Lock()
        self._figures: Readings | None = None
        self._trigger_s = 0.0
        self._last: tuple[TickReport, ObservedTick] | None = None
        self._since: float | None = None
        self._notices = self._requests = 0
        self._store: Counter[str] = Counter()
        self._tick_seconds = seconds[TICK_SECONDS].labels(job)
        self._phase_seconds = seconds[PHASE_SECONDS]
        self._of_phases: dict[str, Histogram] = {}

    def begins(self, run: WatchedRun) -> None:
        """Begin a run of the job, which is about to start.

        The figures of its last tick in this process remain visible until the state is restored.
        """
        with self._lock:
            self._figures, self._trigger_s = Readings(run.plan), run.trigger_s
            self.state, self._since = STARTING, None
        WARNED.begin()

    def started(self, waiting: Sequence[WaitingInput], before: ObservedTick | None) -> None:
        with self._lock:
            self.state = RUNNING
            if before is not None:
                self._last = report_of(before, 0.0, clock_us=before.clock_us), before

    def tick_begins(self, tick: int) -> None:
        self._since = time.monotonic()

    def tick(self, report: TickReport, result: ObservedTick) -> None:
        self._tick_seconds.observe(report.seconds)
        for phase, seconds in report.phases.items():
            of_phase = self._of_phases.get(phase)
            if of_phase is None:
                of_phase = self._of_phases[phase] = self._phase_seconds.labels(self.job, phase)
            of_phase.observe(seconds)
        with self._lock:
            self._last, self._since = (report, result), None
            if report.store is not None:
                self._requests += report.store.requests
                self._store["fetched"] += report.store.fetched_bytes
                self._store["cached"] += report.store.cached_bytes
                self._store["written"] += report.store.written_bytes

    def notice(self, said: str) -> None:
        with self._lock:
            self._notices += 1

    def ended(self, error: BaseException | None) -> None:
        WARNED.end()
        with self._lock:
            self.state, self._since = RUN_ENDED if error is None else FAILED, None
        self._when_over()

    def readings(self) -> Iterator[MetricValue]:
        """Yield all current metric values."""
        with self._lock:
            last, made, since, state = self._last, self._figures, self._since, self.state
            store, requests, notices = dict(self._store), self._requests, self._notices
        yield MetricValue(UP, (), state == RUNNING)
        yield MetricValue(FAILING, (), state == FAILED)
        yield MetricValue(TRIGGER, (), self._trigger_s)
        yield MetricValue(RUNNING_TICK_AGE, (), 0.0 if since is None else time.monotonic() - since)
        yield MetricValue(NOTICES, (), notices)
        for logger, count in dict(WARNED.counts).items():
            yield MetricValue(WARNINGS, (logger,), count)
        if store:
            yield from readings_of_store(store, requests)
        if last is not None and made is not None:
            yield from made.read_tick(*last, now_us=time.time_ns() // 1000)
