"""Says when a run stands still because no Kafka broker answers, and when it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

PATIENCE_S = 10.0
"""A trigger of Spark that takes so long, and each further time so long, is a reason to ask the brokers."""


class Waiting:
    """``silent``: which servers do not answer now, with the names of their sources; ``tell``: called once
    when there are some, and once when the stream goes on."""

    def __init__(
        self, silent: Callable[[], Mapping[str, Sequence[str]]], tell: Callable[[str], None]
    ) -> None:
        self._silent, self._tell = silent, tell
        self._busy_since: float | None = None
        self._away_since: float | None = None
        self._asked = 0.0

    def look(self, busy: bool) -> None:
        """``busy``: Spark is within a trigger; it looks for rows, or a tick is in hand."""
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
