"""The figures of a run, by name: what it has come to after a tick, and how it stands at a moment.

Nothing here has a clock, or knows who asks. Names and units are those of Prometheus's conventions: seconds,
bytes, ``_total`` for what only grows. Counters of rows are since the job's first tick, as the account has
them: a restart does not begin them anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from watersmeet.event_time import ENDED, NEVER
from watersmeet.names import input_of
from watersmeet.observe.account import PLACES
from watersmeet.observe.kept import kept_of
from watersmeet.observe.progress import TickReport
from watersmeet.observe.reports import TickResult, by_alias, input_name, integer_columns
from watersmeet.plan.model.job import JobPlan

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


class Reading(NamedTuple):
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

    def of_tick(self, report: TickReport, result: TickResult, now_us: int) -> Iterator[Reading]:
        """What a tick has come to. ``now_us``: the clock, for what is behind it."""
        yield Reading(TICK, (), report.tick)
        if report.clock_us is not None:
            yield Reading(TICK_TIME, (), report.clock_us / 1e6)
        for query, own in result.queries.items():
            yield Reading(OUTPUT_ROWS, (query,), own.total_rows_out)
            yield Reading(STATE_BYTES, (query,), own.state_bytes)
            for inputs, rows in own.shed_joined.items():
                yield Reading(SHED_JOINED, (query, inputs), rows)
        yield from self._accounts(result)
        yield from self._watermarks(result, now_us)
        yield from self._kept(result)
        for source, backlog in report.backlog.items():
            yield Reading(BACKLOGS[backlog.unit], (source,), backlog.count)
        for source in {**report.rows_in, **report.paused_sources}:
            yield Reading(PAUSED, (source,), source in report.paused_sources)

    def _accounts(self, result: TickResult) -> Iterator[Reading]:
        for query, own in result.queries.items():
            for alias, counts in own.account.items():
                labels = _labels(query, alias)
                yield Reading(INPUT_ROWS, labels, counts.get("in", 0))
                yield Reading(RETAINED_ROWS, labels, counts.get("retained", own.state.get(alias, 0)))
                for outcome in OUTCOMES:
                    yield Reading(ROWS, (*labels, outcome), counts.get(outcome, 0))
                for column, late in own.late.get(alias, {}).items():
                    for lateness, rows in late.counts.items():
                        yield Reading(LATE_BY, (*labels, column, lateness), rows)

    def _watermarks(self, result: TickResult, now_us: int) -> Iterator[Reading]:
        for query, own in result.queries.items():
            for alias, marks in by_alias(own.input_watermarks, own.account).items():
                yield Reading(HOLDERS, _labels(query, alias), len(own.holding.get(alias, ())))
                yield Reading(IDLE, _labels(query, alias), alias in own.idle)
                for column, mark in marks.items():
                    if mark in (NEVER, ENDED):
                        continue
                    labels = (*_labels(query, alias), column)
                    if (query, alias, column) in self._integers:
                        yield Reading(WATERMARK_INTEGER, labels, mark)
                        continue
                    yield Reading(WATERMARK, labels, mark / 1e6)
                    yield Reading(WATERMARK_LAG, labels, (now_us - mark) / 1e6)

    def _kept(self, result: TickResult) -> Iterator[Reading]:
        for labels, kept in kept_of(self._plan, result).items():
            if kept.file_bytes is not None:
                yield Reading(RETAINED_BYTES, labels, kept.file_bytes)
            for by, most in kept.most.items():
                yield Reading(FORECAST_ROWS, (*labels, by), most.rows)
                yield Reading(FORECAST_BYTES, (*labels, by), most.file_bytes)


def _labels(query: str, side: str) -> tuple[str, str]:
    """The query, and the input as users know it; of a way of holding its rows the input's."""
    return query, input_name(input_of(side))


def readings_of_store(traffic: Mapping[str, int], requests: int) -> Iterator[Reading]:
    """Of what was asked of a remote store. ``traffic``: bytes per direction."""
    for direction, count in traffic.items():
        yield Reading(STORE_BYTES, (direction,), count)
    yield Reading(STORE_REQUESTS, (), requests)
