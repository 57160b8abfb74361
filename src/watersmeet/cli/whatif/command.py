"""`whatif`: settings of a job tried on a sample of its rows, in this process. A plot alone is written."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from watersmeet.cli.job_file import is_pipeline, job_in
from watersmeet.cli.output import to_stderr
from watersmeet.cli.whatif.options import SHARES, Request, WhatifFlags, read
from watersmeet.cli.whatif.report import Findings, Suggestion, print_csv, print_json, print_text
from watersmeet.errors import EngineError, SpecError, WatersmeetError, format_count, raise_all
from watersmeet.spec.model import Job
from watersmeet.whatif.files import read as read_files
from watersmeet.whatif.lags import (
    Disorder,
    EventStream,
    disorder_of,
    least_lags,
    round_lags,
    streams_of,
)
from watersmeet.whatif.sample import TICKS, Sample, is_on_clock, sample_of
from watersmeet.whatif.settings import Setting, limits_of, without_limits
from watersmeet.whatif.trial import Trials, check_tried, is_played

PLAYED_TICKS = 100
"""So many, about, where the engine plays them one by one."""


def whatif_text(
    text: str,
    source_name: str,
    overrides: Mapping[str, str],
    words: WhatifFlags,
    *,
    matches: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Try settings of a job on a sample, and print the outcomes.

    Raises:
        WatersmeetError: The job, the flags or the sample are wrong; all problems of the first of these
            that is wrong are reported together.
    """
    from watersmeet.plan.planner import plan_job
    from watersmeet.runtime.spark.job.column_inference import ColumnInference

    if as_json and as_csv:
        raise SpecError("--json and --csv exclude each other", code="wrong-option", hint="give one")
    before = time.monotonic()
    job = job_in(text, source_name, overrides, ColumnInference(say=None if as_json or as_csv else to_stderr))
    if not job.inserts:
        raise SpecError("the job has no query to try", code="no-query", hint="add an INSERT, or a SELECT")
    plan = plan_job(job)
    check_tried(plan)
    streams = streams_of(plan)
    request = read(words, streams)
    given = read_files(request.asked, job.options.time_zone)
    aside = _limits_note(job)
    job = without_limits(job)
    ticks = PLAYED_TICKS if is_played(plan) else TICKS
    idle_us = [stream.source.idle_timeout_us for stream in streams.values()]
    _check_clock(request, in_time=is_on_clock(given))
    sample = sample_of(
        given,
        ticks=ticks,
        rows_per_tick=request.rows_per_tick,
        tick_length=None if request.tick is None else request.tick.length,
        idle_us=[us for us in (*idle_us, *(idle.us for idle in request.idles)) if us is not None],
    )
    trials = Trials(job, sample, with_matches=matches)
    try:
        disorder = [] if request.lags and request.share is None else disorder_of(job, sample)
        outcomes = [trials.run(setting) for setting in request.settings(_find_lags(disorder, streams))]
        suggestion = None
        if request.share is not None:
            pipeline = is_pipeline(source_name)
            suggestion = _suggest_lags(trials, disorder, streams, request.share, pipeline=pipeline)
    except EngineError as error:
        from watersmeet.cli.run import locate_error

        raise locate_error(error, job, text, source_name) from None
    if request.plot is not None:
        from watersmeet.cli.whatif.report import plot

        plot(request.plot, outcomes, suggestion, streams)
    notes = [*aside, *trials.notes, *_notes(sample, request)]
    findings = Findings(outcomes, suggestion, streams, sample, notes, time.monotonic() - before)
    if as_json:
        print_json(findings)
    elif as_csv:
        print_csv(findings)
    else:
        print_text(findings, request.plot)


def _check_clock(request: Request, *, in_time: bool) -> None:
    """Check that the lengths in the request use the sample's clock.

    Raises:
        WatersmeetError: A length is in time and the sample's clock is not, or the reverse.
    """
    problems: list[WatersmeetError] = []
    if request.idles and not in_time:
        problems.append(_wrong_clock_error("--idle says times on the clock", in_time))
    if request.tick is not None and request.tick.in_time != in_time:
        said = "a time on the clock" if request.tick.in_time else "a number"
        problems.append(_wrong_clock_error(f"--tick says {said}", in_time))
    raise_all(problems)


def _wrong_clock_error(said: str, in_time: bool) -> SpecError:
    return SpecError(
        f"{said}, and rows of the sample arrive by {'times' if in_time else 'numbers'}",
        code="wrong-option",
        hint="such as '2 seconds'" if in_time else "name columns of times by --arrival, or give a number",
    )


def _find_lags(disorder: Sequence[Disorder], streams: Mapping[str, EventStream]) -> dict[str, dict[str, int]]:
    """Find lags to try, each for a share of rows that it leaves late."""
    in_time = {name: stream.in_time for name, stream in streams.items()}
    declared = _settable_lags({name: stream.lag or 0 for name, stream in streams.items()}, streams)
    titles: dict[tuple[tuple[str, int], ...], str] = {}
    for share in SHARES:
        lags = round_lags(_settable_lags(least_lags(disorder, share), streams), in_time)
        if lags and lags != declared:
            titles[tuple(lags.items())] = f"late ≤ {100 * share:g}%" if share else "none late"
    return {title: dict(lags) for lags, title in titles.items()}


def _settable_lags(lags: Mapping[str, int], streams: Mapping[str, EventStream]) -> dict[str, int]:
    return {
        name: lag
        for name, lag in lags.items()
        if streams[name].lag is not None and len(streams[name].units) == 1
    }


def _suggest_lags(
    trials: Trials,
    disorder: Sequence[Disorder],
    streams: Mapping[str, EventStream],
    share: float,
    *,
    pipeline: bool,
) -> Suggestion:
    least = _settable_lags(least_lags(disorder, share), streams)
    lags = round_lags(least, {name: stream.in_time for name, stream in streams.items()})
    outcome = trials.run(Setting(lags=lags, title="suggested"))
    lines = [line for name, lag in lags.items() for line in streams[name].written(lag, pipeline)]
    return Suggestion(share, least, lags, outcome, lines)


def _limits_note(job: Job) -> list[str]:
    """Return a note about the job's limits, which the trial ignores."""
    limits = limits_of(job)
    if not limits:
        return []
    shed = ", and no rows are shed" if job.options.at_limit.sheds else ""
    return [f"limits are set aside{shed}: {', '.join(limits)}"]


def _notes(sample: Sample, request: Request) -> list[str]:
    notes = [
        "rows arrived when the columns of --arrival say"
        if sample.by_arrival
        else "rows arrived in the order of the files, each at the newest event time of its source until then"
        " (--arrival names columns that say when)"
    ]
    nulls = {name: rows for name, rows in sample.nulls.items() if rows}
    notes += [f"{name}: {format_count(rows, 'row')} without an event time" for name, rows in nulls.items()]
    if request.idles and not sample.by_arrival:
        notes.append("silence was measured by event times, for nothing else says when rows arrived")
    return notes
