"""Work that may never come back: it is done in a thread of its own, which whoever waits for it may give up.

For calls of libraries that wait for a server inside, where neither a signal nor a limit reaches them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

CHECK_S = 0.2
"""So often it is looked whether the time is over."""

NOTICE_S = 15.0
"""After so long it is first said that something is waited for; then after twice as long, and so on."""


class StepTimeout(Exception):
    """A step has taken longer than its limit, and was given up: nobody can say what came of it."""


class WorkCancelled(Exception):
    """Error raised in the work when its caller no longer waits for it."""


class Steps:
    """Progress of cancellable work.

    The work reports each step and in doing so learns that its caller gave up.

    Attributes:
        step: a description of the current step.
    """

    def __init__(self) -> None:
        self.step = ""
        self.given_up = False
        self._lock = threading.Lock()
        self._since = time.monotonic()
        self._limit_s: float | None = None

    def begin(self, step: str, limit_s: float | None) -> None:
        """Begin ``step``; the caller gives up after ``limit_s`` seconds, or never if it is None.

        Raises:
            WorkCancelled: the caller no longer waits, so the step must not begin.
        """
        with self._lock:
            if self.given_up:
                raise WorkCancelled
            self.step, self._since, self._limit_s = step, time.monotonic(), limit_s

    def current_wait(self) -> tuple[str, float, bool]:
        """Return the current step, its duration in seconds, and True if it exceeds its limit."""
        with self._lock:
            seconds = time.monotonic() - self._since
            return self.step, seconds, self._limit_s is not None and seconds > self._limit_s

    def give_up(self) -> None:
        """Prevent all further steps."""
        with self._lock:
            self.given_up = True


def run_cancellable(work: Callable[[], Result], steps: Steps, notice: Callable[[str, float], None]) -> Result:
    """Run ``work`` in a thread; return its result or raise its error.

    Args:
        notice: called with the step and its seconds at intervals while one takes long.

    Raises:
        StepTimeout: a step took too long. The thread continues to the end of that step and then stops.
    """
    done = threading.Event()
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="watersmeet-awaited", daemon=True).start()
    next_notice, last_step = NOTICE_S, ""
    try:
        while not done.wait(CHECK_S):
            step, seconds, is_over = steps.current_wait()
            if step != last_step:
                next_notice, last_step = NOTICE_S, step
            if is_over:
                raise StepTimeout(f"no answer for {seconds:.0f} s ({step})")
            if seconds >= next_notice:
                notice(step, seconds)
                next_notice *= 2
    except BaseException:  # a signal, too
        steps.give_up()
        raise
    if errors:
        raise errors.pop()
    return results.pop()
