"""Signals that end a run: the tick in hand is finished first, and none is lost while a process is started."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
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

    with handle_signals(list_handled_signals(), stop):
        yield came


@contextmanager
def handle_signals(
    numbers: Iterable[int], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Handle signals by a function within the block; afterwards as before. In the main thread only."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)


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
    """Defer signals that stop a run until the block has ended.

    Use the block around a fork of the process. Libraries have hooks for forks, and Python prints and ignores
    an exception that a signal handler raises in such a hook; a lock of the library (such as that of
    `logging`) then remains locked, and threads wait for it forever. Only the main thread defers signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    of_python = [number for number in STOPPING if signal.getsignal(number) is not None]
    try:
        with handle_signals(of_python, note):
            yield
    finally:
        for held in came:
            signal.raise_signal(held)
