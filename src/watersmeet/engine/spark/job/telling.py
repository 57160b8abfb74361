"""What whoever asked is told of a run while it goes on (`RunSettings`): notices, that a tick begins, and what
it was when it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from watersmeet.engine.driver.driver import TickDriver
from watersmeet.engine.driver.opening.resumed import resumed
from watersmeet.engine.driver.results import TickResult
from watersmeet.engine.spark.job.settings import RunSettings
from watersmeet.engine.spark.sources.backlog import Backlog
from watersmeet.errors import counted


class Telling:
    """Of one run."""

    def __init__(self, settings: RunSettings) -> None:
        self._asked = settings
        self._since = time.perf_counter()
        self._broken: set[tuple[str, bool]] = set()

    def note(self, *texts: str) -> None:
        """What a person should know."""
        if (tell := self._asked.on_notice) is not None:
            for text in texts:
                tell(text)

    def starts(self, driver: TickDriver, unread: Callable[[], Mapping[str, Collection[str]]]) -> None:
        """The first tick comes next. ``unread``: the partitions of sources that have rows to be read; asked
        for where somebody wants to know."""
        if self._asked.on_start is not None:
            waiting = driver.waiting(self._asked.clock(), unread())
            self._asked.on_start(waiting, resumed(driver.plan, driver.manifest))

    def begins(self, tick: int) -> None:
        """A tick is begun now."""
        self._since = time.perf_counter()
        if self._asked.on_begin is not None:
            self._asked.on_begin(tick)

    def ended(self, result: TickResult, parts: Mapping[str, float], backlog: Callable[[], Backlog]) -> None:
        """The tick that was begun has ended well.

        Args:
            parts: seconds of its parts.
            backlog: what is not read yet; asked for where somebody wants to know.
        """
        self._tell_broken(result)
        if self._asked.on_backlog is not None:
            self._asked.on_backlog(backlog())
        if self._asked.on_tick is not None:
            self._asked.on_tick(result, time.perf_counter() - self._since, parts)

    def _tell_broken(self, result: TickResult) -> None:
        """Note the first tick in which records of a source did not parse, and the first in which none did."""
        for source, broken in result.broken.items():
            read = result.rows_in[source]
            told = (source, broken.rows == read)
            if told not in self._broken:
                self._broken.add(told)
                self.note(
                    f'"{source}": {broken.rows:,} of {counted(read, "record")} of tick {result.tick} did not'
                    f" parse into the declared columns and are in no result, such as {broken.text}"
                )
