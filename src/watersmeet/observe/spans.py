"""A span per tick for OpenTelemetry, with one for each of its phases beneath.

They are made when a tick has ended, of the seconds that were measured anyway. Where the library is not
installed, or the process has no provider of traces, there are none, and nothing is done for them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from watersmeet.errors import WatersmeetError
from watersmeet.observe.listeners import Listener, WatchedRun
from watersmeet.observe.progress import TickReport
from watersmeet.observe.reports import ObservedTick

_NAME = "watersmeet"


def is_installed() -> bool:
    """Return True if the OpenTelemetry library is installed, without loading it."""
    return find_spec("opentelemetry") is not None and find_spec("opentelemetry.trace") is not None


class SpanWatcher(Listener):
    """Listener that records spans of one run."""

    def __init__(self, run: WatchedRun) -> None:
        from opentelemetry import trace

        self._trace: Any = trace
        self._job = run.job
        self._begun: tuple[int, int] | None = None

    def tick_begins(self, tick: int) -> None:
        self._begun = tick, time.time_ns()

    def tick(self, report: TickReport, result: ObservedTick) -> None:
        if self._begun is None or not self._is_wanted():
            return
        (_, start), self._begun = self._begun, None
        tracer = self._trace.get_tracer(_NAME)
        span = tracer.start_span("tick", start_time=start, attributes=dict(self._attributes(report, result)))
        within, at = self._trace.set_span_in_context(span), start
        for part, seconds in report.phases.items():
            of_part = tracer.start_span(part, within, start_time=at, attributes={"watersmeet.part": part})
            at += int(seconds * 1e9)
            of_part.end(at)
        span.end(max(at, start + int(report.seconds * 1e9)))

    def ended(self, error: BaseException | None) -> None:
        """Record the tick in progress as failed if the run failed."""
        begun, self._begun = self._begun, None
        if error is None or begun is None or not self._is_wanted():
            return
        tick, start = begun
        attributes = {"watersmeet.job": self._job, "watersmeet.tick": tick}
        if isinstance(error, WatersmeetError):
            attributes["error.type"] = error.code
        span = self._trace.get_tracer(_NAME).start_span("tick", start_time=start, attributes=attributes)
        span.set_status(self._trace.StatusCode.ERROR, str(error))
        span.end()

    def _is_wanted(self) -> bool:
        """Return True if a tracer provider is set; without one, OpenTelemetry returns a proxy."""
        return not isinstance(self._trace.get_tracer_provider(), self._trace.ProxyTracerProvider)

    def _attributes(self, report: TickReport, result: ObservedTick) -> Iterator[tuple[str, Any]]:
        yield "watersmeet.job", self._job
        yield "watersmeet.tick", report.tick
        yield "watersmeet.queries", tuple(result.queries)
        yield "watersmeet.rows_in", report.read
        yield "watersmeet.rows_out", report.written
        yield "watersmeet.rows_late", sum(row.late_in_tick for row in report.inputs)
        yield "watersmeet.rows_retained", sum(row.retained for row in report.inputs)
