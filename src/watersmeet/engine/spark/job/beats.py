"""Something that is done every so often, beside what this thread does: ticks without rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

_LONGEST_S, _SHORTEST_S = 5.0, 1.0


class LastTick:
    """When the last tick of a run was; before the first one, when the run began."""

    def __init__(self) -> None:
        self._at = time.monotonic()

    def is_now(self) -> None:
        """Record that a tick has just ended."""
        self._at = time.monotonic()

    @property
    def seconds_ago(self) -> float:
        return time.monotonic() - self._at


def pause_between(timeouts_us: Iterable[int]) -> float:
    """How far apart ticks without rows come, in seconds, where sources go idle after so many microseconds.

    >>> [pause_between(timeouts) for timeouts in ([], [30_000_000], [30_000_000, 4_000_000])]
    [1.0, 5.0, 2.0]
    """
    return min(_LONGEST_S, max(_SHORTEST_S, min(timeouts_us, default=0) / 2e6))


@contextmanager
def beating(beat: Callable[[], None], pause_s: float, stop: threading.Event) -> Iterator[None]:
    """``beat`` is called in a thread of its own, which ends with the block, or by ``stop``."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(pause_s) and not stop.is_set():
            beat()

    thread = threading.Thread(target=run, name="idle-ticks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
