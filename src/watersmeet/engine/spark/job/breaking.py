"""What a batch raises to end the stream it is of, and what Spark is told of that."""

from __future__ import annotations


class Stopping(Exception):
    """Ends a stream between ticks."""


class Failed(Exception):
    """What Spark is told of a tick that failed.

    Spark keeps what a batch raises, in a thread that never ends. The error itself would be kept with all
    frames that it passed, and what these hold: at exit, libraries would report what they could not free.
    """
