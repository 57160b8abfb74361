"""Signals that end a run: the tick in hand is finished first, and none is lost while a process is started."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
"""By which users, terminals and supervisors stop a process, often all processes of its group at once."""


@contextmanager
def stop_on_signals(stop_event: threading.Event) -> Iterator[threading.Event]:
    """Set ``stop_event`` on SIGINT, SIGTERM or SIGHUP. In the main thread only.

    A second SIGINT or SIGTERM stops at once; a second SIGHUP does not: both the shell and the kernel send
    one when a terminal is closed. SIGINT and SIGHUP stay ignored where the process ignores them, as with
    ``nohup watersmeet run job.sql &``.

    Yields an event that is set once a signal has come.
    """
    came = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

    def stop(number: int, frame: FrameType | None) -> None:
        came.set()
        if stop_event.is_set() and number in (signal.SIGINT, signal.SIGTERM):
            raise KeyboardInterrupt
        stop_event.set()

    before = {number: signal.signal(number, stop) for number in list_handled_signals()}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def list_handled_signals() -> list[signal.Signals]:
    """Return the signals of `STOPPING`, but for SIGINT and SIGHUP that the process ignores."""
    return [
        number
        for number in STOPPING
        if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN
    ]


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
def defer_signals() -> Iterator[None]:
    """Hold back signals that stop a run until the block has ended. For where a process is forked: what a
    handler raises in the hooks that libraries have for that is printed and forgotten, and a lock of theirs
    (`logging`'s) stays taken, for which threads wait from then on. In the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    handlers = {number: signal.getsignal(number) for number in STOPPING}
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
