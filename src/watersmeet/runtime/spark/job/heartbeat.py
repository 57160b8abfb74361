"""Ticks without rows, and the notice that no Kafka broker answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

# Something that is done every so often, beside what this thread does: ticks without rows.

_LONGEST_S, _SHORTEST_S = 5.0, 1.0


class LastTick:
    """When the last tick of a run was; before the first one, when the run began."""

    def __init__(self) -> None:
        self._at = time.monotonic()

    def record_tick(self) -> None:
        """Record that a tick has just ended."""
        self._at = time.monotonic()

    @property
    def seconds_ago(self) -> float:
        return time.monotonic() - self._at


def heartbeat_pause(timeouts_us: Iterable[int]) -> float:
    """Return the seconds between ticks without rows, given the idle timeouts of sources in µs.

    >>> [heartbeat_pause(timeouts) for timeouts in ([], [30_000_000], [30_000_000, 4_000_000])]
    [1.0, 5.0, 2.0]
    """
    return min(_LONGEST_S, max(_SHORTEST_S, min(timeouts_us, default=0) / 2e6))


@contextmanager
def run_heartbeat(beat: Callable[[], None], pause_s: float, stop: threading.Event) -> Iterator[None]:
    """Call ``beat`` every ``pause_s`` seconds in a thread, within the block.

    The thread ends with the block or when ``stop`` is set.
    """
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


# Says when a run stands still because no Kafka broker answers, and when it goes on.

PATIENCE_S = 10.0
"""A trigger of Spark that takes so long, and each further time so long, is a reason to ask the brokers."""


class BrokerStall:
    """Detector of stalled brokers.

    Args:
        silent: returns the servers that do not answer now, with the names of their sources.
        tell: called once when there are such servers, and once when the stream continues.
    """

    def __init__(
        self, silent: Callable[[], Mapping[str, Sequence[str]]], tell: Callable[[str], None]
    ) -> None:
        self._silent, self._tell = silent, tell
        self._busy_since: float | None = None
        self._away_since: float | None = None
        self._asked = 0.0

    def look(self, busy: bool) -> None:
        """Check whether the broker is stalled.

        Args:
            busy: Spark is inside a trigger: it is looking for rows, or a tick is running.
        """
        now = time.monotonic()
        if not busy:
            self._busy_since = None
            self._is_back(now)
            return
        if self._busy_since is None:
            self._busy_since = self._asked = now
        if now - self._asked < PATIENCE_S:
            return
        silent = self._silent()
        self._asked = time.monotonic()
        if not silent:
            self._is_back(now)
        elif self._away_since is None:
            self._away_since = self._busy_since
            places = "; ".join(f"{servers} (source {', '.join(names)})" for servers, names in silent.items())
            self._tell(
                f"no Kafka broker answers at {places}: the job waits, and nothing is lost. Spark fails"
                " after some minutes (option 'fetchOffset.numRetries'); then run again"
            )

    def _is_back(self, now: float) -> None:
        if self._away_since is not None:
            self._tell(f"Kafka answers again after about {now - self._away_since:,.0f} seconds")
            self._away_since = None
