"""What others print while a view is open: it goes above the view, and not through it.

Python's standard output, and whatever goes to the process's standard error, if that is the same terminal:
Spark's JVM and libraries write there past Python.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Take = Callable[[str], None]
"""Takes a line, without its end."""

DRAINED_S = 0.2


class Lines(io.TextIOBase):
    """A text stream whose lines are taken by somebody, each when it is whole. ``inner``: what it stands
    for."""

    def __init__(self, take: Take, inner: object) -> None:
        self._take = take
        self._inner = inner
        self._begun = ""
        self._lock = threading.Lock()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(self._inner, "encoding", None) or "utf-8"

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._inner.fileno()  # type: ignore[attr-defined, no-any-return]

    def write(self, text: str) -> int:
        with self._lock:
            *whole, self._begun = (self._begun + text).split("\n")
            for line in whole:
                self._take(line)
        return len(text)

    def end(self) -> None:
        """What is begun of a line is taken, too."""
        with self._lock:
            begun, self._begun = self._begun, ""
        if begun:
            self._take(begun)


@contextmanager
def printed_above(take: Take) -> Iterator[None]:
    """Within, what is printed to `sys.stdout` is taken, line by line."""
    before, lines = sys.stdout, Lines(take, sys.stdout)
    sys.stdout = lines
    try:
        yield
    finally:
        sys.stdout = before
        lines.end()


@contextmanager
def errors_above(take: Take) -> Iterator[None]:
    """Within, what is written to standard error of the process is taken, if that is a terminal. Processes
    that were started within go on writing there when it is over: then it goes where it went before."""
    try:
        descriptor = sys.stderr.fileno()
        to_terminal = os.isatty(descriptor)
    except (AttributeError, OSError, ValueError):
        to_terminal = False
    if not to_terminal:
        yield
        return
    sys.stderr.flush()
    terminal = os.dup(descriptor)
    read, write = os.pipe()
    os.dup2(write, descriptor)
    os.close(write)
    pump = _Pump(read, terminal, take)
    pump.start()
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os.dup2(terminal, descriptor)
        pump.let_go()


class _Pump(threading.Thread):
    """Reads what is written to standard error until nobody can write there any more."""

    def __init__(self, read: int, terminal: int, take: Take) -> None:
        super().__init__(name="standard error", daemon=True)
        self._read, self._terminal = read, terminal
        self._lines = Lines(take, None)
        self._is_over = False
        self._ended = threading.Event()

    def run(self) -> None:
        texts = codecs.getincrementaldecoder("utf-8")(errors="replace")
        decoder = io.IncrementalNewlineDecoder(texts, translate=True)
        while got := os.read(self._read, 65_536):  # whatever comes: who writes there would wait for ever
            try:
                if not self._is_over:
                    self._lines.write(decoder.decode(got))
                    continue
            except Exception:
                self._is_over = True
            with suppress(OSError):
                os.write(self._terminal, got)
        self._ended.set()

    def let_go(self) -> None:
        """What comes from now on goes to the terminal itself."""
        self._ended.wait(DRAINED_S)
        self._is_over = True
        self._lines.end()
