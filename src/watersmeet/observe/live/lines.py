"""A run as a line per tick, for logs and pipes: of words, or of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any, TextIO

from watersmeet.event_time import ENDED, NEVER, Watermark, shown_time
from watersmeet.observe.listeners import Listener
from watersmeet.observe.live.formatting import glyphs_for, one_line
from watersmeet.observe.progress import DROPPED, ProgressNotices, TickReport
from watersmeet.observe.reports import ObservedTick
from watersmeet.observe.watermark_holders import WaitingInput, ahead_words
from watersmeet.plan.explain.wording import rounded_up

LINE = 120
"""Characters of a line, at most."""


class PlainLines(Listener):
    """Printer of one line of at most `LINE` characters per tick, for logs and pipes.

    A line has, in this order: the seconds and tasks of the tick; the rows read from sources, and their number
    per second of the clock; the rows written to sinks and the late rows; the retained rows; the backlog, if
    it is known; the requests to the state's store, if it is remote (beyond `LINE`); the sources that wait for
    others; and the lowest watermark, its distance to the clock, and why it does not advance. A line that is
    too long omits the tasks, or that distance, or both.
    """

    def __init__(self, out: TextIO, integers: frozenset[str] = frozenset()) -> None:
        self._out = out
        self._encoding = getattr(out, "encoding", None) or "utf-8"
        self._glyphs = glyphs_for(self._encoding)
        self._integers = integers
        self._told = ProgressNotices()

    def started(self, waiting: Sequence[WaitingInput], before: ObservedTick | None) -> None:
        for wait in waiting:
            self._print(wait.words(), None)

    def tick(self, report: TickReport, result: ObservedTick) -> None:
        asked = f", {report.store.words()}" if report.store else ""
        most = LINE + len(asked)
        for distance, tasks in product((True, False), (report.most_tasks, "")):
            line = self._line(report, tasks, asked, distance)
            if len(line) <= most:
                break
        self._print(line, most)
        for told in self._told.of(report):
            self._print(told, LINE)

    def _line(self, report: TickReport, tasks: str, asked: str, distance: bool) -> str:
        late, kept = (
            sum(getattr(row, what) for row in report.inputs) for what in ("late_in_tick", "retained")
        )
        line = (
            f"tick {report.tick}: {report.seconds:.2f} s, {tasks and f'{tasks}, '}"
            f"in {report.read:,} ({report.read / report.lasted:,.0f}/s), "
            f"out {report.written:,}, late {late:,}, {''.join(_format_dropped(report))}retained {kept:,}"
        )
        if report.behind:
            line += f", backlog {report.behind}"
        line += asked
        if report.paused_sources:
            line += f", {ahead_words(report.paused_sources, not self._integers)}"
        return "; ".join(filter(None, [line, self._watermark(report, distance), _standstill(report)]))

    def _print(self, text: str, most: int | None) -> None:
        """Print a line, escaped for the encoding and truncated to `most` characters."""
        line = one_line(text, self._glyphs, self._encoding)
        if most is not None and len(line) > most:
            line = f"{line[: most - 1]}{self._glyphs.more}"
        print(line, file=self._out, flush=True)

    def _watermark(self, report: TickReport, distance: bool) -> str:
        """Format the lowest watermark on the time axis, or of integers if there are no times.

        Args:
            distance: also show how far the watermark lags the clock.
        """
        marks = [
            (f"{row.input}.{column}", mark)
            for row in report.inputs
            for column, mark in row.watermarks.items()
        ]
        times = [time_mark for time_mark in marks if time_mark[0] not in self._integers] or marks
        if not times:
            return ""
        name, mark = min(times, key=lambda named: named[1])
        behind = self._format_delay(name, mark, report) if distance else ""
        return f"W[{name}] {shown_time(mark, name in self._integers)}{behind}"

    def _format_delay(self, name: str, mark: Watermark, report: TickReport) -> str:
        if name in self._integers or report.clock_us is None or mark in (NEVER, ENDED):
            return ""
        behind = report.clock_us - int(mark)
        return f", {rounded_up(behind)} ago" if behind > 0 else ""


def _format_dropped(report: TickReport) -> Iterator[str]:
    """Yield the number of rows of the tick that were dropped, per reason, and of rounded rows, if any."""
    for place, word in DROPPED.items():
        rows = sum(row.dropped.get(place, 0) for row in report.inputs)
        if rows:
            yield f"{word} {rows:,}, "
    if report.rounded:
        yield f"rounded {sum(report.rounded.values()):,}, "


class JsonLines(Listener):
    """Printer of one JSON object per tick.

    Watermarks are integers, null before the first row, and "end" after the last one. If inputs wait for
    silent partitions, an object ``waiting`` that lists these inputs precedes the ticks.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def started(self, waiting: Sequence[WaitingInput], before: ObservedTick | None) -> None:
        if waiting:
            print(json.dumps({"waiting": [asdict(wait) for wait in waiting]}), file=self._out, flush=True)

    def tick(self, report: TickReport, result: ObservedTick) -> None:
        line = asdict(report)
        line["seconds"] = round(report.seconds, 4)
        line["elapsed_seconds"] = round(report.elapsed_seconds, 4)
        line["phases"] = {phase: round(seconds, 4) for phase, seconds in report.phases.items()}
        for row in line["inputs"]:
            row["watermarks"] = {column: _json_mark(mark) for column, mark in row["watermarks"].items()}
        print(json.dumps(line), file=self._out, flush=True)


def _json_mark(mark: Watermark) -> Any:
    return None if mark == NEVER else "end" if mark == ENDED else mark


def _standstill(report: TickReport) -> str:
    standing = [(row.input, row.standstill) for row in report.inputs if row.standstill is not None]
    if not standing:
        return ""
    name, why = standing[0]
    return f"{name} {why}" + (f" (and {len(standing) - 1} more)" if len(standing) > 1 else "")
