"""Job that runs in its own thread, and the queries that other threads may make about it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import wraps
from traceback import format_exception
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from watersmeet.errors import SpecError, WatersmeetError, near_names, printable, without_hidden
from watersmeet.observe.listeners import Listener
from watersmeet.observe.notebook import Displays, Result, running_page
from watersmeet.observe.progress import RecentTicks, TickReport
from watersmeet.observe.reports import ObservedTick, account_of, integer_times
from watersmeet.observe.row_accounting import Account
from watersmeet.observe.watermark_holders import WaitingInput
from watersmeet.running import RunSettings, check_before_java, run_planned
from watersmeet.sinks.memory import MemorySink
from watersmeet.spec.connectors import MEMORY

if TYPE_CHECKING:
    from watersmeet.plan.model.job import JobPlan
    from watersmeet.spec.model import Job

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")

STARTING, RUNNING, STOPPED, FINISHED, FAILED = "starting", "running", "stopped", "finished", "failed"


class StartedJob:
    """Running job, made by `Job.start`.

    The job runs until it is stopped, reaches the end of its input, or fails. `await_termination` raises the
    error of a failed job; if no caller waits, the error is printed to stderr.

    Attributes:
        notices: messages for the user about problems that did not stop the job, in order.

    >>> from watersmeet import StartedJob, WatersmeetError, files, job, stream
    >>> clicks = stream({"id": "BIGINT", "at": "TIMESTAMP"}, time="at", name="clicks")
    >>> def run_for(seconds: float) -> str:
    ...     started: StartedJob = job(clicks.to_sink(files("out/clicks"))).start()
    ...     started.await_termination(timeout=seconds)
    ...     started.stop()
    ...     return started.status
    >>> try:  # it has no place for its state: no thread is begun, nor Spark
    ...     run_for(60)
    ... except WatersmeetError as error:
    ...     print(error.code)
    no-checkpoint
    """

    def __init__(
        self,
        description: Job,
        plan: JobPlan,
        settings: RunSettings,
        *,
        on_tick: Callable[[TickReport], None] | None = None,
        notices: Iterable[str] = (),
    ) -> None:
        self.notices = list(notices)
        self._stop = threading.Event()
        self._within = threading.local()
        settings = replace(
            settings,
            frames={name: self._of_a_table(frame) for name, frame in settings.frames.items()},
            functions={name: self._of_a_tick(function) for name, function in settings.functions.items()},
            is_background=True,
            stop=self._stop,
            on_notice=self.notices.append,
        )
        check_before_java(description, plan, settings, servers=False)
        self._begun = threading.Event()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._waiting, self._lock = 0, threading.Lock()
        self._result: Any = None
        self._recent = RecentTicks()
        self._integers = integer_times(plan)
        sinks = (*description.sinks, *(insert.sink for insert in description.inserts))
        self._in_memory = {sink.name for sink in sinks if sink.connector == MEMORY}
        self._displays = Displays(self._repr_html_, self.__repr__)
        self._last: ObservedTick | None = None
        self._told = on_tick

        def work() -> None:
            try:
                watcher = _Within(self._begun.set, self._report)
                self._result = run_planned(description, plan, settings, watchers=[watcher])
            except BaseException as error:
                self._error = error
            finally:
                self._end()

        self._thread = threading.Thread(target=work, name=f"watersmeet {settings.checkpoint}", daemon=True)
        self._thread.start()

    def _end(self) -> None:
        """Mark the job as ended; print what it failed with, unless `await_termination` will raise it."""
        with self._lock:
            self._ended.set()
            is_raised = self._waiting > 0
        error = self._error
        if error is not None and not is_raised:
            text = str(error) if isinstance(error, WatersmeetError) else "".join(format_exception(error))
            shown = printable(without_hidden(text))
            print(f"{self._thread.name}: the job has failed\n{shown}", file=sys.stderr)
        self._displays.update(at_once=True)

    def _report(self, report: TickReport, result: ObservedTick) -> None:
        self._last = result
        self._recent.add(report)
        self._displays.update()
        if self._told is not None:
            self._of_a_tick(self._told)(report)

    def _of_a_tick(self, function: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
        """Wrap a function that ticks call so that it cannot wait for this job while it runs.

        The wrapper has the parameters of the function.
        """

        @wraps(function)
        def call_within_tick(*arguments: Arguments.args, **named: Arguments.kwargs) -> Answer:
            self._within.tick = True
            try:
                return function(*arguments, **named)
            finally:
                self._within.tick = False

        return call_within_tick

    def _of_a_table(self, frame: Any) -> Any:
        """Wrap a callable that makes frames of a table, because it also runs in a tick.

        Returns other frames unchanged.
        """
        return self._of_a_tick(frame) if callable(frame) else frame

    @property
    def status(self) -> str:
        """starting, running, stopped, finished (its input had an end), or failed."""
        if not self._ended.is_set():
            return RUNNING if self._begun.is_set() else STARTING
        if self._error is not None:
            return FAILED
        return STOPPED if self._result.stopped else FINISHED

    @property
    def progress(self) -> TickReport | None:
        """The last tick: rows, watermarks, what is kept, seconds. None before the first one."""
        return self._recent.last

    @property
    def account(self) -> Account | None:
        """Row accounting since the job's first tick: the outcome of every row; None before it."""
        last = self._last
        return None if last is None else account_of(last)

    def result(self, name: str | None = None) -> Result:
        """Return the rows that a memory sink has received so far, for Arrow, pandas or Polars.

        Args:
            name: the name of the sink; None if there is only one.

        Raises:
            WatersmeetError: there is no such memory sink, or its rows are not a table.
        """
        if name is None and len(self._in_memory) == 1:
            (name,) = self._in_memory
        if name not in self._in_memory:
            said = "it has several" if name is None and self._in_memory else f'none is named "{name}"'
            raise SpecError(
                f"result() needs the name of a memory sink of the job: {said}",
                code="no-result",
                hint=near_names(name or "", sorted(self._in_memory)) or "relation.to_sink(ws.memory('name'))",
            )
        return Result(name, MemorySink.table(name))

    def stop(self, timeout: float | None = None) -> bool:
        """Stop the job after the current tick.

        A job that is started again continues from that tick.

        Args:
            timeout: the number of seconds to wait for the end; None waits without limit. A call from
                ``on_tick``, or from a function that receives rows, never waits, because the tick waits for
                that call.

        Returns:
            True if the job has ended.
        """
        self._stop.set()
        return False if self._in_tick else self._wait_for_end(timeout)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the job ends, and raise the error of a failed job.

        Args:
            timeout: the maximum number of seconds to wait.

        Returns:
            True if the job has ended.
        """
        if self._in_tick:
            raise SpecError(
                "await_termination() cannot be called from the job's own on_tick or function: the job"
                " waits for them",
                code="bad-argument",
                hint="call stop(), which ends the job after this tick",
            )
        with self._lock:
            self._waiting += 1
        try:
            self._wait_for_end(timeout)
        finally:
            with self._lock:
                self._waiting -= 1
                ended = self._ended.is_set()
        if ended and self._error is not None:
            raise self._error
        return ended

    def exception(self) -> BaseException | None:
        """Return the error with which the job failed; None if it has not failed."""
        return self._error

    @property
    def _in_tick(self) -> bool:
        return getattr(self._within, "tick", False)

    def _wait_for_end(self, timeout: float | None) -> bool:
        self._thread.join(timeout)
        return self._ended.is_set()

    def __repr__(self) -> str:
        return f"<StartedJob {self.status}>"

    def _repr_html_(self) -> str:
        return running_page(self.status, self._recent, self._integers, list(self.notices), self._error)

    def _ipython_display_(self) -> None:
        self._displays.show()


class _Within(Listener):
    """Tells a started job of its run."""

    def __init__(self, begun: Callable[[], None], ticked: Callable[[TickReport, ObservedTick], None]) -> None:
        self._begun, self._ticked = begun, ticked

    def started(self, waiting: Sequence[WaitingInput], before: ObservedTick | None) -> None:
        self._begun()

    def tick(self, report: TickReport, result: ObservedTick) -> None:
        self._ticked(report, result)
