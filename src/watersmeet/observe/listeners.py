"""Listeners of a run: a terminal, a log, metrics, spans.

Each listener receives the same calls in the same order. The thread that runs the job makes the calls, and
waits for each one:

    (shown_at) ── started ── tick_begins, tick ── tick_begins, tick ── … ── ended

A notice may arrive at any time, also from other threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from watersmeet.observe.progress import TickReport
from watersmeet.observe.reports import ObservedHolder, ObservedTick, Reporter, waiting_inputs
from watersmeet.observe.watermark_holders import WaitingInput
from watersmeet.plan.model.job import JobPlan

Ended = TypeVar("Ended")


@dataclass(frozen=True)
class WatchedRun:
    """Run that listeners observe.

    Attributes:
        job: the job's name, which is the name of its checkpoint directory.
        trigger_s: seconds between ticks; 0: a tick begins as soon as there are rows.
    """

    job: str
    plan: JobPlan
    trigger_s: float


class Listener:
    """Base class of listeners of a run; a subclass overrides the calls that it needs."""

    def announce_page(self, url: str, access: str) -> None:
        """Report the address at which a browser shows the run, from before its start to its end.

        The run calls this only if a page was requested.

        Args:
            access: a description of who may see the page; it contains no secret.
        """

    def started(self, waiting: Sequence[WaitingInput], before: ObservedTick | None) -> None:
        """Handle the start of the run; the first tick comes next.

        Args:
            waiting: inputs whose watermarks wait for silent partitions.
            before: the result of the last tick before this run; None if there was none.
        """

    def tick_begins(self, tick: int) -> None:
        """Handle the start of a tick."""

    def tick(self, report: TickReport, result: ObservedTick) -> None:
        """Handle the commit of a tick.

        Args:
            result: the result from which the report was made, with the row accounting.
        """

    def notice(self, said: str) -> None:
        """Handle a message that a person should read and that does not stop the job."""

    def ended(self, error: BaseException | None) -> None:
        """Handle the end of the run.

        Args:
            error: the error with which the run failed; None if it was stopped or reached its end.
        """


class ListenerGroup:
    """Group of listeners that forwards each of an engine's run events to all of its members."""

    def __init__(self, watchers: Iterable[Listener]) -> None:
        self._watchers = tuple(watchers)
        self._reporter = Reporter(self._notify_tick)

    def announce_page(self, url: str, access: str) -> None:
        for watcher in self._watchers:
            watcher.announce_page(url, access)

    def start(
        self, holdings: Mapping[str, Mapping[str, Sequence[ObservedHolder]]], before: ObservedTick | None
    ) -> None:
        waiting = waiting_inputs(holdings)
        for watcher in self._watchers:
            watcher.started(waiting, before)

    def begin(self, tick: int) -> None:
        for watcher in self._watchers:
            watcher.tick_begins(tick)

    def behind(self, backlog: Mapping[str, tuple[int, str]]) -> None:
        self._reporter.behind(backlog)

    def tick(self, result: ObservedTick, seconds: float, phases: Mapping[str, float]) -> None:
        self._reporter(result, seconds, phases)

    def notice(self, said: str) -> None:
        for watcher in self._watchers:
            watcher.notice(said)

    def end(self, error: BaseException | None) -> None:
        for watcher in self._watchers:
            watcher.ended(error)

    def _notify_tick(self, report: TickReport) -> None:
        assert self._reporter.last is not None
        for watcher in self._watchers:
            watcher.tick(report, self._reporter.last)


def run_with_listeners(watchers: Iterable[Listener], run: Callable[[ListenerGroup], Ended]) -> Ended:
    """Call `run` with a group of `watchers`, notify them of its end, and return its result.

    An exception other than `Exception`, such as an interrupt, counts as a stop.
    """
    watching = ListenerGroup(watchers)
    try:
        result = run(watching)
    except Exception as error:
        watching.end(error)
        raise
    except BaseException:
        watching.end(None)
        raise
    watching.end(None)
    return result
