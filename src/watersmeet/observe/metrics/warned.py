"""How many warnings the package has logged in this process, by logger: a server is away and is asked again,
and the like. Where nobody has set up logging they are still printed, as they are if nobody counts."""

from __future__ import annotations

import logging
from collections import Counter
from threading import Lock

LOGGER = "watersmeet"
"""The logger above all of the package's."""


class WarningCounts(logging.Handler):
    """Counts from the first `begin` to the last `end`."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.counts: Counter[str] = Counter()
        self._users, self._users_lock = 0, Lock()

    def begin(self) -> None:
        """One more is interested."""
        with self._users_lock:
            self._users += 1
            logging.getLogger(LOGGER).addHandler(self)  # it is there once, however often it is added

    def end(self) -> None:
        """One less is."""
        with self._users_lock:
            self._users -= 1
            if not self._users:
                logging.getLogger(LOGGER).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.counts[record.name] += 1
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and not is_logging_set_up(record.name):
            last.handle(record)


WARNED = WarningCounts()
"""Of this process."""


def is_logging_set_up(name: str) -> bool:
    """Return whether a logger, or one above it, has a handler of somebody's."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(handler is not WARNED for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False
