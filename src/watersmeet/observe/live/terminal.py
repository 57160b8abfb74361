"""Draw lines in place at the end of a terminal, and print others above them."""

from __future__ import annotations

import codecs
import io
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.segment import Segment, Segments

from watersmeet.observe.live.formatting import Line
from watersmeet.observe.live.frame import width_of

# What others print while a view is open: it goes above the view, and not through it.
#
# Python's standard output, and whatever goes to the process's standard error, if that is the same
# terminal: Spark's JVM and libraries write there past Python.

Take = Callable[[str], None]
"""Takes a line, without its end."""

DRAINED_S = 0.2


class Lines(io.TextIOBase):
    """Text stream that passes each line to a function as soon as the line is complete.

    Args:
        take: receives a line, without its end.
        inner: the stream that this one replaces.
    """

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
        """Take the unfinished last line, too."""
        with self._lock:
            begun, self._begun = self._begun, ""
        if begun:
            self._take(begun)


@contextmanager
def printed_above(take: Take) -> Iterator[None]:
    """Pass each line printed to `sys.stdout` within the context to `take`."""
    before, lines = sys.stdout, Lines(take, sys.stdout)
    sys.stdout = lines
    try:
        yield
    finally:
        sys.stdout = before
        lines.end()


@contextmanager
def errors_above(take: Take) -> Iterator[None]:
    """Pass the process's standard error within the context to `take`, if it is a terminal.

    Child processes that were started within the context continue to write there after it ends; their
    output then reaches the terminal.
    """
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
        pump.detach()


class _Pump(threading.Thread):
    """Thread that reads standard error until no process can write there."""

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

    def detach(self) -> None:
        """Send all later output to the terminal itself."""
        self._ended.wait(DRAINED_S)
        self._is_over = True
        self._lines.end()


# Draws lines in place at the end of what a terminal shows, and prints others above them.
#
# All that changes is written at once, and what did not change is not written again. Nothing is left
# behind when the terminal's width changes: lines that it has wrapped meanwhile are counted as it wraps
# them. The cursor is hidden only while something is written, so that it is there however the process
# ends.

_BEGIN, _END = "\x1b[?2026h\x1b[?25l", "\x1b[?25h\x1b[?2026l"
"""Terminals that know of it show nothing of what is between them before it is whole."""
_TO_END_OF_LINE, _BELOW = "\x1b[K", "\x1b[J"


class Terminal:
    """Terminal that redraws lines in place.

    Args:
        console: provides the terminal's size, styles and encoding.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._styles = Console(
            file=io.StringIO(),
            force_terminal=console.is_terminal,
            color_system=console.color_system,  # type: ignore[arg-type]
            no_color=console.no_color,
        )
        self._drawn: list[Line] = []
        self._width = 0

    def draw(self, lines: Sequence[Line], above: Iterable[str] = ()) -> None:
        """Draw ``lines`` in place of those that were drawn last.

        Args:
            above: texts to print above them, each with its line end.

        Raises:
            OSError, WatersmeetError: the terminal takes no more.
        """
        width = self.console.width
        printed = "".join(above)
        if not printed and lines == self._drawn and width == self._width:
            return
        up = sum(max(1, -(-width_of(line) // width)) for line in self._drawn)
        whole = bool(printed) or width != self._width
        text = ["\r", f"\x1b[{up}A" if up else ""]
        if whole:
            text += [_BELOW, printed]
        for n, line in enumerate(lines):
            if whole or n >= len(self._drawn) or line != self._drawn[n]:
                pieces = [Segment(told, self._styles.get_style(style)) for told, style in line]
                text.append(self.render_text(Segments(pieces), end="", crop=False))
                text.append("" if whole else _TO_END_OF_LINE)
            text.append("\n")
        if not whole and len(lines) < len(self._drawn):
            text.append(_BELOW)
        self._drawn, self._width = list(lines), width
        self.console.file.write("".join([_BEGIN, *text, _END]))
        self.console.file.flush()

    def leave(self) -> None:
        """Retain the drawn lines on the terminal, so that later output appears below them."""
        if self._drawn:
            self._drawn = []
            self.console.file.write("\n")
            self.console.file.flush()

    def render_text(self, *printed: Any, **how: Any) -> str:
        """Return what `Console.print` would write to the terminal.

        Writes nothing to the terminal and does not wait for other writers.
        """
        with self._styles.capture() as captured:
            self._styles.print(*printed, width=self.console.width, **how)
        return captured.get()
