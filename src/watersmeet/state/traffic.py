"""How much of a state came from its store and went there: counted where requests are made, by whoever makes
them, and told by each task to the driver."""

from __future__ import annotations

import threading
from typing import Protocol

from watersmeet.state.record import FrozenRecord


class Traffic(FrozenRecord):
    """``fetched``, ``cached``: bytes that came from the store, and that a cache had; ``written``: bytes that
    went there; ``requests``: to the store, each once, however often it was repeated."""

    fetched: int = 0
    cached: int = 0
    written: int = 0
    requests: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            fetched=self.fetched + other.fetched,
            cached=self.cached + other.cached,
            written=self.written + other.written,
            requests=self.requests + other.requests,
        )


class Meter:
    """Counts for one store in one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sum = Traffic()

    def add(self, *, fetched: int = 0, cached: int = 0, written: int = 0, requests: int = 0) -> None:
        with self._lock:
            self._sum += Traffic(fetched=fetched, cached=cached, written=written, requests=requests)

    def take(self) -> Traffic:
        """What came and went since this was asked last."""
        with self._lock:
            taken, self._sum = self._sum, Traffic()
            return taken


class _Metered(Protocol):
    @property
    def traffic(self) -> Meter | None: ...


def taken_of(store: _Metered) -> Traffic | None:
    """What came from a store and went there since this was asked last; None: of this one nobody counts."""
    return None if store.traffic is None else store.traffic.take()
