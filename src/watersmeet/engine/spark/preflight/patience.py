"""Servers that do not answer are asked again, for as long as the run itself would wait for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event

from watersmeet.errors import EngineError

BROKERS_S = 15.0
"""Seconds to wait for Kafka brokers before a run."""
DATABASE_S = 15.0
"""Seconds to wait for a database that is read as a table."""
PAUSE_S = 0.5


def waiting_notice(server: str, limit_s: float) -> str:
    """Return what is said of a server that is asked again."""
    return f"waiting up to {limit_s:.0f} s for {server}"


def _say_nothing(notice: str) -> None:
    """For a check whose caller waits for its result."""


@dataclass(frozen=True)
class Patience:
    """Whether servers are waited for. ``waits``: no, if False; ``given_up``, ``stop``: each ends all waiting;
    ``say`` is told of what is waited for."""

    waits: bool = False
    given_up: Event = field(default_factory=Event)
    stop: Event = field(default_factory=Event)
    say: Callable[[str], None] = _say_nothing

    def ask(self, ask: Callable[[], None], code: str, limit_s: float, server: str) -> None:
        """Call ``ask`` until it raises no error of this code, for ``limit_s`` seconds at most.

        Args:
            server: what is waited for, for people.

        Raises:
            WatersmeetError: what ``ask`` raised last.
        """
        until = time.monotonic() + (limit_s if self.waits else 0)
        is_told = False
        while True:
            try:
                ask()
                return
            except EngineError as error:
                left_s = until - time.monotonic()
                if error.code != code or left_s <= 0 or self.given_up.is_set() or self.stop.is_set():
                    raise
                if not is_told:
                    self.say(waiting_notice(server, limit_s))
                    is_told = True
                self.given_up.wait(min(PAUSE_S, left_s))
