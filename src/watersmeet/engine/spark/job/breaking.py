"""How a stream ends: what a batch raises for that, what Spark is told of it, and whether a signal did it."""

from __future__ import annotations

import threading

from watersmeet.engine.spark.job import gateway
from watersmeet.errors import WatersmeetError

BY_SIGNAL = "the stop signal also ended another process of the job: the next run repeats its tick"
_PROCESS_GONE = ("spark-gone", "worker-gone")
_SIGNAL_S, _JAVA_S = 1.0, 10.0
"""By then a signal that was sent to all processes of a run has come here; and a Java that it ends is gone."""


class Stopping(Exception):
    """Ends a stream between ticks."""


class Failed(Exception):
    """What Spark is told of a tick that failed.

    Spark keeps what a batch raises, in a thread that never ends. The error itself would be kept with all
    frames that it passed, and what these hold: at exit, libraries would report what they could not free.
    """


def ended_by_signal(failed: WatersmeetError, signalled: threading.Event) -> bool:
    """Return True if a run failed because the signal that stops it has ended another process of the run.

    Args:
        failed: how it ended. A Java that is about to end says many things, most of them `spark-failed`.
        signalled: set when a signal has come.
    """
    if failed.code in _PROCESS_GONE:
        return signalled.wait(_SIGNAL_S)
    return failed.code == "spark-failed" and signalled.is_set() and gateway.has_ended(_JAVA_S)
