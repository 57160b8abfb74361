"""Outputs of a notebook that are drawn again while a job runs, where IPython is there: it is not needed.

Whatever goes wrong with an output is the notebook's affair, never the job's: one that cannot be drawn any
more is forgotten.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any

OUTPUTS = 4
"""So many of a job are drawn again, the newest: a cell that is run again leaves those before behind."""
EVERY_S = 1.0


class Displays:
    """The outputs that show one thing. ``html`` and ``text``: what it looks like at the moment."""

    def __init__(self, html: Callable[[], str], text: Callable[[], str]) -> None:
        self._html, self._text = html, text
        self._handles: deque[Any] = deque(maxlen=OUTPUTS)
        self._drawn = 0.0

    def show(self) -> None:
        """One more, in the cell that is run. Raises: ImportError without IPython."""
        display = import_module("IPython.display").display
        self._handles.append(display(self._shown(), raw=True, display_id=True))

    def update(self, *, at_once: bool = False) -> None:
        """Draw them again, if that is longer ago than `EVERY_S`, or ``at_once``."""
        if not self._handles or (not at_once and time.monotonic() - self._drawn < EVERY_S):
            return
        self._drawn = time.monotonic()
        for handle in list(self._handles):
            try:
                handle.update(self._shown(), raw=True)
            except Exception:  # a kernel that goes away, a front end without such outputs
                self._handles.remove(handle)

    def _shown(self) -> dict[str, str]:
        return {"text/plain": self._text(), "text/html": self._html()}
