"""Call a run's listeners (`RunSettings`): notices, tick started, tick finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from watersmeet.errors import format_count, without_hidden
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.limits import broken_files_text
from watersmeet.runtime.coordinator.restore.job_state import restore_last_result
from watersmeet.runtime.coordinator.results import Broken, TickResult
from watersmeet.runtime.spark.job.settings import RunResult, RunSettings
from watersmeet.runtime.spark.sources.backlog import Backlog
from watersmeet.runtime.spark.sources.files.progress import ChangedFiles

_YEAR_US = int(365.2425 * 86_400_000_000)
_NINETIES_US = 20 * _YEAR_US
"""Since 1970: of earlier times nobody streams events."""

REREAD_HALVES_NOTE = "; files of ticks with exact halves, such as 1.005 for DECIMAL(9,2), are read twice"


class RunListeners:
    """Listeners of one run."""

    def __init__(self, settings: RunSettings) -> None:
        self._asked = settings
        self._since = time.perf_counter()
        self._broken: set[tuple[str, bool]] = set()
        self._broken_files: dict[str, tuple[int, int]] = {}
        self._far_ahead: set[str] = set()
        self._told_rounded: set[str] = set()
        self._ticks = 0
        self._last: TickResult | None = None

    def note(self, *texts: str) -> None:
        """Send notices for the user to the listener."""
        if (tell := self._asked.on_notice) is not None:
            for text in texts:
                tell(without_hidden(text))

    def starts(self, driver: TickDriver, unread: Callable[[], Mapping[str, Collection[str]]]) -> None:
        """Notify the listener that the first tick comes next.

        Args:
            unread: returns the partitions of sources that have unread rows; called only if there is a
                listener.
        """
        if self._asked.on_start is not None:
            waiting = driver.waiting(self._asked.clock(), unread())
            self._asked.on_start(waiting, restore_last_result(driver.plan, driver.manifest))

    def begins(self, tick: int) -> None:
        """Notify the listener that a tick begins now."""
        self._since = time.perf_counter()
        if self._asked.on_begin is not None:
            self._asked.on_begin(tick)

    def ended(self, result: TickResult, backlog: Callable[[], Backlog]) -> None:
        """Notify the listeners that the current tick succeeded.

        Args:
            backlog: returns the unread input; called only if there is a listener for it.
        """
        self._ticks, self._last = self._ticks + 1, result
        self._tell_broken(result)
        self._tell_far_ahead(result)
        self._tell_rounded(result)
        if self._asked.on_backlog is not None:
            self._asked.on_backlog(backlog())
        if self._asked.on_tick is not None:
            self._asked.on_tick(result, time.perf_counter() - self._since, result.seconds)

    def result(
        self, *, finished: bool = False, stopped: bool, changed: Mapping[str, ChangedFiles] | None = None
    ) -> RunResult:
        """Return the result of the run; see `RunResult`."""
        return RunResult(self._ticks, self._last, finished, stopped, changed or {})

    def _tell_broken(self, result: TickResult) -> None:
        """Note the first tick in which records of a source do not parse, and the first in which none does.

        The second notice is repeated only if records of the source parsed in between.
        """
        for source, rows in result.rows_in.items():
            if rows and not (source in result.broken and result.broken[source].is_all):
                self._broken.discard((source, True))
        for source, broken in result.broken.items():
            told, files = (source, broken.is_all), self._broken_files_text(source, broken)
            if told not in self._broken:
                self._broken.add(told)
                records = format_count(result.rows_in[source], "record")
                self.note(
                    f'"{source}": {broken.rows:,} of {records} of tick {result.tick} did not parse into'
                    f" the declared columns and were dropped, for example {broken.text}"
                )
            if files:
                self.note(f'"{source}": tick {result.tick}: {files}')

    def _broken_files_text(self, source: str, broken: Broken) -> str:
        """Describe files in which no record can be parsed.

        Returns:
            The text; "" if there are no such files, or if many were already named: the next text comes when
            their number has doubled.
        """
        before, named = self._broken_files.get(source, (0, 0))
        files = before + len(broken.files)
        is_due = files >= max(1, 2 * named) and broken.files
        self._broken_files[source] = (files, files if is_due else named)
        if not is_due:
            return ""
        return broken_files_text(broken) + (f"; {files:,} such files so far" if before else "")

    def _tell_far_ahead(self, result: TickResult) -> None:
        """Note the first tick in which rows of a source have times too far ahead of the clock."""
        for source, ahead in result.far_ahead.items():
            if source in self._far_ahead:
                continue
            self._far_ahead.add(source)
            year = 1970 + int(ahead.time_us // _YEAR_US)
            millis = (
                ". Milliseconds may have been read as seconds: for JSON, set 'timestamp.unit' = 'ms'"
                if _NINETIES_US < ahead.time_us // 1000 < result.clock_us + _YEAR_US
                else ""
            )
            rows = format_count(result.rows_in[source], "row")
            self.note(
                f'"{source}": {ahead.rows:,} of {rows} of tick {result.tick} are ahead of the clock by'
                f" more than 'max_ahead' and were dropped: {ahead.column} is about the year"
                f" {year}{millis}"
            )

    def _tell_rounded(self, result: TickResult) -> None:
        """Note the first tick in which decimals of a source were rounded to their columns' digits."""
        for source, own in result.rounded.items():
            if source not in self._told_rounded:
                self._told_rounded.add(source)
                rows = format_count(own.rows, "row")
                self.note(
                    f'"{source}": decimals of {rows} of tick {result.tick} have more digits after the'
                    f" point than declared and were rounded, for example {own.text}. To keep all"
                    f" digits, declare a larger scale{REREAD_HALVES_NOTE if own.of_files else ''}"
                )
