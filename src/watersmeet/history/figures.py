"""The figures of a tick: what of its result is kept in the history, and under which names: those of `--json`
and of the account. What they were called before is in `renamed`.

subject                      figures
job                          duration_us, elapsed_us: amounts; clock_us: level, the one of the tick;
                             finished: 1, of the tick that ended the input
phase/PHASE                  duration_us
source/SOURCE                rows_in: amount; backlog, offset PARTITION: levels, how far it was read by then
                             (`engine.driver.results`), kept of ticks in which that has changed, of sources
                             of at most `MOST_PARTS` partitions: more would soon fill the history; partition
                             count: level, of sources with more; start offset PARTITION: level, where it was
                             read from in a tick that began, or went on elsewhere, of however many
query/QUERY                  matches: amount; total_rows_out (since the start), state_bytes: levels
input/QUERY/ALIAS            in, and every place of the account that has rows, since the start; retained;
                             late of COLUMN BUCKET, since the start: levels. standstill, hot_keys,
                             missing_delete_examples: words
time/QUERY/ALIAS/COLUMN      watermark, and late_below, by which rows of the tick were late: levels
out/QUERY/KEY                watermark of the output: level
"""

from __future__ import annotations

from watersmeet.history.points import Figures, level_of, subject_of, words_of
from watersmeet.observe.progress import TickReport
from watersmeet.observe.reports import QueryResult, TickResult, by_alias, standstill_of

JOB, OFFSET, START, COUNT = "job", "offset", "start offset", "partition count"
DURATION, ELAPSED, CLOCK = "duration_us", "elapsed_us", "clock_us"
MOST_PARTS = 1_000
"""Of a source that has come to more it is told that it has, and not how far they were read."""


def figures_of(report: TickReport, result: TickResult) -> Figures:
    """See the module. ``result``: what the report was made from."""
    amounts = {(JOB, DURATION): _us(report.seconds), (JOB, ELAPSED): _us(report.elapsed_seconds)}
    amounts |= {(subject_of("phase", phase), DURATION): _us(took) for phase, took in report.phases.items()}
    amounts |= {(subject_of("source", source), "rows_in"): rows for source, rows in report.rows_in.items()}
    levels: dict[tuple[str, str], int | None] = {
        (subject_of("source", source), "backlog"): behind.count for source, behind in report.backlog.items()
    }
    levels[JOB, CLOCK] = result.clock_us
    if result.finished:
        levels[JOB, "finished"] = 1
    for source, parts in result.read.items():
        if len(parts) > MOST_PARTS:
            levels[subject_of("source", source), COUNT] = len(parts)
        else:
            levels |= {(subject_of("source", source), f"{OFFSET} {part}"): end for part, end in parts.items()}
        for part, first in result.began.get(source, {}).items():
            levels[subject_of("source", source), f"{START} {part}"] = first
    told: list[tuple[str, str, str]] = []
    for query, of_query in result.queries.items():
        subject = subject_of("query", query)
        amounts[subject, "matches"] = of_query.matches
        levels[subject, "total_rows_out"] = of_query.total_rows_out
        levels[subject, "state_bytes"] = of_query.state_bytes
        for key, mark in of_query.output_watermarks.items():
            levels[subject_of("out", query, key), "watermark"] = level_of(mark)
        _of_inputs(query, of_query, levels, told)
    return Figures(amounts, levels, told)


def _of_inputs(
    query: str,
    result: QueryResult,
    levels: dict[tuple[str, str], int | None],
    told: list[tuple[str, str, str]],
) -> None:
    for figure, marks in (("watermark", result.input_watermarks), ("late_below", result.late_below)):
        for alias, of_alias in by_alias(marks, result.account).items():
            for column, mark in of_alias.items():
                levels[subject_of("time", query, alias, column), figure] = level_of(mark)
    for alias, places in result.account.items():
        subject = subject_of("input", query, alias)
        levels |= {(subject, place): rows for place, rows in places.items() if rows}
        levels[subject, "retained"] = places.get("retained", result.state.get(alias, 0))
        for column, late_by in result.late.get(alias, {}).items():
            levels |= {(subject, f"late of {column} {name}"): rows for name, rows in late_by.counts.items()}
        standstill = standstill_of(result, alias)
        if standstill is not None:
            told.append((subject, "standstill", words_of(standstill)))
        told += [(subject, "hot_keys", words_of(heavy.key)) for heavy in result.heavy.get(alias, ())]
        told += [
            (subject, "missing_delete_examples", words_of(text))
            for owner, text in result.missing_deletes
            if owner == alias
        ]


def _us(seconds: float) -> int:
    return round(seconds * 1_000_000)
