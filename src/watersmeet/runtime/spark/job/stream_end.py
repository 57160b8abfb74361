"""How a stream ends: what a batch raises for that, what Spark is told of it, and whether a signal did it."""

from __future__ import annotations

import threading

from watersmeet.errors import WatersmeetError
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.runtime.spark.job import gateway

BY_SIGNAL = "the stop signal also ended another process of the job: the next run repeats its tick"
_LOST_PROCESS_CODES = ("spark-gone", "worker-gone")
_SIGNAL_S, _JAVA_S = 1.0, 10.0
"""By then a signal that was sent to all processes of a run has come here; and a Java that it ends is gone."""


POLL_S = 0.2
"""So often a run looks whether it is to stop."""


def stop_if_requested(checkpoint: Checkpoint, stop: threading.Event) -> None:
    """Stop if `watersmeet stop` says so, as from another machine that has the directory."""
    if checkpoint.is_stop_requested():
        stop.set()


class Stopping(Exception):
    """Ends a stream between ticks."""


class Failed(Exception):
    """Exception that Spark gets for a failed tick, in place of the original error.

    Spark retains the exception of a batch in a thread that never ends. The original error would retain
    all frames that it passed and their objects, and at exit libraries would report what they could not
    free.
    """


class Failure:
    """Why a run ends before its input does, told by whichever thread ran the tick.

    False while nothing has failed.
    """

    def __init__(self) -> None:
        self._error: BaseException | None = None

    def __bool__(self) -> bool:
        return self._error is not None

    def note(self, error: BaseException) -> None:
        """Record that a tick has failed. A stop is no failure where there is one."""
        if self._error is None or not isinstance(error, Stopping):
            self._error = error

    @property
    def error(self) -> BaseException | None:
        return self._error

    @property
    def is_stop(self) -> bool:
        """Return True if the run was stopped between two ticks."""
        return isinstance(self._error, Stopping)

    def throw(self) -> None:
        """Raise the error, if there is one."""
        if self._error is not None:
            raise self._error

    def forget(self) -> None:
        """Let go of the error, and of all that the frames which it passed hold."""
        self._error = None


def is_signal_failure(failed: WatersmeetError, signalled: threading.Event) -> bool:
    """Return True if a run failed because the signal that stops it has ended another process of the run.

    Args:
        failed: how it ended. A Java that is about to end says many things, most of them `spark-failed`.
        signalled: set when a signal has come.
    """
    if failed.code in _LOST_PROCESS_CODES:
        return signalled.wait(_SIGNAL_S)
    return failed.code == "spark-failed" and signalled.is_set() and gateway.has_ended(_JAVA_S)
