"""Signals that end a run: the tick in hand is finished first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopped_by_signals(stop_event: threading.Event) -> Iterator[None]:
    """``stop_event`` is set by SIGINT and SIGTERM; a second one stops at once. In the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if stop_event.is_set():
            raise KeyboardInterrupt
        stop_event.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
