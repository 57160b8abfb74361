"""What one run has come to, kept for whoever asks next.

A tick costs next to nothing here: its result is held on to, and its seconds are put into histograms. All
other figures are made of it when somebody asks, in the thread that asks.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock

from prometheus_client import Histogram

from watersmeet.observe.held import Waiting
from watersmeet.observe.metrics import figures
from watersmeet.observe.metrics.figures import Reading, Readings
from watersmeet.observe.metrics.warned import WARNED
from watersmeet.observe.progress import TickReport
from watersmeet.observe.reports import TickResult, report_of
from watersmeet.observe.watching import Watched, Watcher

PHASE_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds. A phase of a tick may take ten milliseconds, a tick that waits for a server minutes."""

STARTING, RUNNING, ENDED, FAILED = "starting", "running", "ended", "failed"


def histograms() -> dict[figures.Figure, Histogram]:
    """Of ticks and their phases, of all jobs that are shown at one address."""
    return {
        figure: Histogram(
            figure.name, figure.help, ("job", *figure.labels), registry=None, buckets=PHASE_BUCKETS
        )
        for figure in (figures.TICK_SECONDS, figures.PHASE_SECONDS)
    }


class RunMetrics(Watcher):
    """Of one job, over its runs in this process: what is counted goes on when it is started again.

    Args:
        seconds: the histograms that its ticks go into.
        when_over: called when a run of it is.
    """

    def __init__(
        self, job: str, seconds: Mapping[figures.Figure, Histogram], when_over: Callable[[], None]
    ) -> None:
        self.job = job
        self._when_over = when_over
        self.state = ENDED
        self._lock = Lock()
        self._figures: Readings | None = None
        self._trigger_s = 0.0
        self._last: tuple[TickReport, TickResult] | None = None
        self._since: float | None = None
        self._notices = self._requests = 0
        self._store: Counter[str] = Counter()
        self._tick_seconds = seconds[figures.TICK_SECONDS].labels(job)
        self._phase_seconds = seconds[figures.PHASE_SECONDS]
        self._of_phases: dict[str, Histogram] = {}

    def begins(self, run: Watched) -> None:
        """A run of the job, which is about to start. What its last tick in this process has come to is shown
        until the state is read."""
        with self._lock:
            self._figures, self._trigger_s = Readings(run.plan), run.trigger_s
            self.state, self._since = STARTING, None
        WARNED.begin()

    def started(self, waiting: Sequence[Waiting], before: TickResult | None) -> None:
        with self._lock:
            self.state = RUNNING
            if before is not None:
                self._last = report_of(before, 0.0, clock_us=before.clock_us), before

    def tick_begins(self, tick: int) -> None:
        self._since = time.monotonic()

    def tick(self, report: TickReport, result: TickResult) -> None:
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
            self.state, self._since = ENDED if error is None else FAILED, None
        self._when_over()

    def readings(self) -> Iterator[Reading]:
        """All of now."""
        with self._lock:
            last, made, since, state = self._last, self._figures, self._since, self.state
            store, requests, notices = dict(self._store), self._requests, self._notices
        yield Reading(figures.UP, (), state == RUNNING)
        yield Reading(figures.FAILING, (), state == FAILED)
        yield Reading(figures.TRIGGER, (), self._trigger_s)
        yield Reading(figures.RUNNING_TICK_AGE, (), 0.0 if since is None else time.monotonic() - since)
        yield Reading(figures.NOTICES, (), notices)
        for logger, count in dict(WARNED.counts).items():
            yield Reading(figures.WARNINGS, (logger,), count)
        if store:
            yield from figures.readings_of_store(store, requests)
        if last is not None and made is not None:
            yield from made.of_tick(*last, now_us=time.time_ns() // 1000)
