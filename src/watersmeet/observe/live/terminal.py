"""Draws lines in place at the end of what a terminal shows, and prints others above them.

All that changes is written at once, and what did not change is not written again. Nothing is left behind when
the terminal's width changes: lines that it has wrapped meanwhile are counted as it wraps them. The cursor is
hidden only while something is written, so that it is there however the process ends.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.segment import Segment, Segments

from watersmeet.observe.live.columns import Line
from watersmeet.observe.live.frame import width_of

_BEGIN, _END = "\x1b[?2026h\x1b[?25l", "\x1b[?25h\x1b[?2026l"
"""Terminals that know of it show nothing of what is between them before it is whole."""
_TO_END_OF_LINE, _BELOW = "\x1b[K", "\x1b[J"


class Terminal:
    """``console``: has the size, the styles and the encoding of it."""

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
                text.append(self.rendered(Segments(pieces), end="", crop=False))
                text.append("" if whole else _TO_END_OF_LINE)
            text.append("\n")
        if not whole and len(lines) < len(self._drawn):
            text.append(_BELOW)
        self._drawn, self._width = list(lines), width
        self.console.file.write("".join([_BEGIN, *text, _END]))
        self.console.file.flush()

    def leave(self) -> None:
        """What was drawn stays; what is printed from now on comes below it."""
        if self._drawn:
            self._drawn = []
            self.console.file.write("\n")
            self.console.file.flush()

    def rendered(self, *printed: Any, **how: Any) -> str:
        """What `Console.print` would write to the terminal. Writes nothing there, nor waits for who does."""
        with self._styles.capture() as captured:
            self._styles.print(*printed, width=self.console.width, **how)
        return captured.get()
