"""A terminal of so many columns and rows, as far as programs of tests use one: what it would show of what is
written to it. It wraps lines that are longer, again when it becomes narrower, and scrolls."""

from __future__ import annotations

import io
import re

from rich.cells import cell_len, chop_cells

_TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]+|\x1b")


class Screen(io.TextIOBase):
    """A stream. ``hidden``: whether the cursor is; ``styles``: the codes of styles that were asked for."""

    encoding = "utf-8"

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self._lines: list[str] = [""]
        self._at = 0
        self._column = 0
        self.hidden = False
        self.styles: set[str] = set()
        self.writes = 0

    def isatty(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.writes += 1
        for token in _TOKEN.finditer(text):
            what = token.group(0)
            if token.group(2):
                self._steer(token.group(1), token.group(2))
            elif what == "\r":
                self._column = 0
            elif what == "\n":  # as with ONLCR
                self._column = 0
                self._at += 1
                if self._at == len(self._lines):
                    self._lines.append("")
            else:
                assert what != "\x1b", "a sequence that is not known here"
                self._put(what)
        return len(text)

    def _steer(self, numbers: str, letter: str) -> None:
        if letter == "A":
            top = max(0, len(self._lines) - self.rows)
            self._at = max(top, self._at - int(numbers or 1))
        elif letter == "K":
            self._lines[self._at] = _cells(self._lines[self._at], self._column)
        elif letter == "J":
            self._lines[self._at] = _cells(self._lines[self._at], self._column)
            del self._lines[self._at + 1 :]
        elif letter == "m":
            self.styles.add(numbers)
        elif letter in "hl" and numbers == "?25":
            self.hidden = letter == "l"
        else:
            assert letter in "hl", f"\\x1b[{numbers}{letter} is not known here"

    def _put(self, text: str) -> None:
        for n, piece in enumerate(chop_cells(text, self.columns - self._column) if self._column else [text]):
            for m, part in enumerate(chop_cells(piece, self.columns)):
                if n or m:
                    self._at, self._column = self._at + 1, 0
                    if self._at == len(self._lines):
                        self._lines.append("")
                line = self._lines[self._at]
                before = _cells(line, self._column).ljust(self._column)
                after = line[len(_cells(line, self._column + cell_len(part))) :]
                self._lines[self._at] = before + part + after
                self._column += cell_len(part)

    def narrow(self, columns: int) -> None:
        """It becomes narrower, and wraps what it shows, the cursor at the start of the last line."""
        assert self._column == 0
        assert self._at == len(self._lines) - 1
        self.columns = columns
        self._lines = [part for line in self._lines for part in (chop_cells(line, columns) or [""])]
        self._at = len(self._lines) - 1

    @property
    def all(self) -> list[str]:
        """All lines, those that were scrolled away, too."""
        return [line.rstrip() for line in self._lines]

    @property
    def shown(self) -> list[str]:
        """The lines that fit."""
        return self.all[-self.rows :]


def _cells(text: str, cells: int) -> str:
    """So much of it as fits into these."""
    while cell_len(text) > cells:
        text = text[:-1]
    return text
