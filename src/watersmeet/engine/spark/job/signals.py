"""Signals that end a run: the tick in hand is finished first, and none is lost while a process is started."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopped_by_signals(stop_event: threading.Event) -> Iterator[None]:
    """Set ``stop_event`` on SIGINT or SIGTERM; a second signal stops at once. In the main thread only.

    An ignored SIGINT stays ignored: a shell starts a background job so (``nohup watersmeet run job.sql &``).
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if stop_event.is_set():
            raise KeyboardInterrupt
        stop_event.set()

    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    numbers = [signal.SIGTERM] if is_ignored else [signal.SIGINT, signal.SIGTERM]
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def keep_ctrl_c_ignored() -> Iterator[None]:
    """Restore an ignored SIGINT after the block, in which PySpark sets a handler of its own."""
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    try:
        yield
    finally:
        if is_ignored and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def held_back() -> Iterator[None]:
    """SIGINT and SIGTERM come when the block has ended. For where a process is forked: what a handler raises
    in the hooks that libraries have for that is printed and forgotten, and a lock of theirs (`logging`'s)
    stays taken, for which threads wait from then on. In the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: one for number, one in handlers.items() if one is not None}  # None: not of Python
    for number in before:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for held in came:
            signal.raise_signal(held)
