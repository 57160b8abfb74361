"""Whether rows of the tick in hand may be out, where sinks cannot be asked.

A tick that failed while no sink had rows of it, by a limit or an expression, leaves nothing that says that it
was begun: the next run makes it however it is set then. What a run that is killed leaves says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from watersmeet.engine.driver.driver import TickDriver
from watersmeet.engine.messages.work import TickStart
from watersmeet.sinks.base import Sink


class Leaving:
    """Of one run. ``sinks``: those of the job."""

    def __init__(self, driver: TickDriver, sinks: Sequence[Sink]) -> None:
        self._driver = driver
        self._is_asked = any(not sink.idempotent for sink in sinks)
        self._may_be_out = False

    def by(self, sink: Sink) -> None:
        """Rows are about to be written to ``sink``."""
        self._may_be_out |= not sink.stages

    def by_all(self) -> None:
        """Rows are about to be published."""
        self._may_be_out = True

    @contextmanager
    def attempt(self, clock_us: int) -> Iterator[TickStart]:
        """Begin a tick. If it fails while nothing is out, the attempt counts for nothing."""
        self._may_be_out, start = False, self._driver.begin(clock_us)
        try:
            yield start
        except Exception:
            if self._is_asked and not self._may_be_out:
                with suppress(Exception):  # then the next run takes it that rows may be out
                    self._driver.give_up(start)
            raise
