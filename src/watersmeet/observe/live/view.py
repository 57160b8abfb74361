"""The live view of a run: drawn in place, a few times a second, by a thread of its own.

The run waits for none of it: a terminal that hangs or goes away harms the view alone. Only rows of console
sinks are waited for, which are results.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.text import Text

from watersmeet.errors import WatersmeetError, printable
from watersmeet.observe.listeners import Listener
from watersmeet.observe.live.formatting import glyphs_for
from watersmeet.observe.live.frame import FrameRenderer, RunMoment, ViewSettings
from watersmeet.observe.live.terminal import Terminal, errors_above, printed_above
from watersmeet.observe.live.totals import ENDED_WELL, FAILED, RUNNING, STARTING, RunTotals
from watersmeet.observe.progress import ProgressNotices, TickReport
from watersmeet.observe.reports import ObservedTick
from watersmeet.observe.watermark_holders import WaitingInput
from watersmeet.plan.model.job import JobPlan

REDRAW_S = 0.25
MAX_WAITING_LINES = 1_000
"""Lines that wait for a terminal that takes none; of more the oldest are let go, and counted."""
LAST_S = 2.0
"""So long is waited in the end for a terminal that takes nothing."""


class LiveView(Listener):
    """A context in which a run is shown.

    Args:
        bounded: the input has an end, up to which the run goes on.
    """

    def __init__(self, console: Console, title: str, plan: JobPlan, *, bounded: bool = False) -> None:
        self._terminal = Terminal(console)
        self._title, self._bounded = title, bounded
        self._page: str | None = None
        self._gathered, self._frames = RunTotals(plan), FrameRenderer()
        self._told = ProgressNotices()
        self._state = STARTING
        self._since = time.monotonic()
        self._over: float | None = None
        self._in_hand: tuple[int, float] | None = None
        self._above: deque[tuple[str, bool]] = deque()  # texts, and whether somebody waits for them
        self._lost = 0
        self._lock = threading.Lock()
        self._wake, self._done, self._drawn = threading.Event(), threading.Event(), threading.Event()
        self._failed: Exception | None = None
        self._thread = threading.Thread(target=self._draw_until_done, name="live view", daemon=True)
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        self._opened.enter_context(printed_above(self._print))
        self._opened.enter_context(errors_above(self._print))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()
        if self._over is None:
            self._end(FAILED if isinstance(error, Exception) else ENDED_WELL)
        self._done.set()
        self._wake.set()
        self._thread.join(LAST_S)
        if self._failed is not None and not isinstance(self._failed, OSError | WatersmeetError):
            complaint = f"{type(self._failed).__name__}: {self._failed}"
            print(f"note: the live view ended before the run: {printable(complaint)}", file=sys.stderr)

    def announce_page(self, url: str, access: str) -> None:
        self._page = url

    def started(self, waiting: Sequence[WaitingInput], before: ObservedTick | None) -> None:
        self._state = RUNNING
        for wait in waiting:
            self._print(wait.words())

    def tick_begins(self, tick: int) -> None:
        self._in_hand = tick, time.monotonic()

    def tick(self, report: TickReport, result: ObservedTick) -> None:
        self._in_hand = None
        try:
            for line in self._told.of(report):
                self._print(line)
            self._gathered.add(report, result)
        except Exception as error:  # it is for people: no job ends by it
            self._fail(error)

    def ended(self, error: BaseException | None) -> None:
        self._end(FAILED if error is not None else ENDED_WELL)

    def print(self, *printed: Any, **how: Any) -> None:
        """Print as `Console.print` does, above the view, and wait until the text is on the terminal.

        If the view has failed, print without it.

        Raises:
            OSError: the terminal failed.
            WatersmeetError: the view failed with this error.
        """
        text = self._terminal.render_text(*printed, **how)
        with self._lock:
            self._above.append((text, True))
            self._drawn.clear()
        while self._failed is None and self._thread.is_alive() and not self._drawn.is_set():
            self._wake.set()
            self._drawn.wait(1.0)
        if isinstance(self._failed, OSError | WatersmeetError):
            raise self._failed
        if self._failed is not None or not self._thread.is_alive():
            self._print_waiting()

    def _print(self, line: str) -> None:
        """Queue a line that other code prints; do not wait for it."""
        told = Text.from_ansi(line)
        told.plain = printable(told.plain)
        text = self._terminal.render_text(told, highlight=False, soft_wrap=True)
        with self._lock:
            is_over = self._failed is not None
            if not is_over and len(self._above) >= MAX_WAITING_LINES:
                oldest = next((n for n, (_, waited) in enumerate(self._above) if not waited), None)
                if oldest is not None:
                    del self._above[oldest]
                    self._lost += 1
            self._above.append((text, False))
        if is_over:
            with suppress(Exception):  # it is for people: no job ends by it
                self._print_waiting()

    def _print_waiting(self) -> None:
        """Print the queued texts when the view does not draw any longer."""
        with self._lock:
            texts = [text for text, _ in self._above]
            self._above.clear()
            self._terminal.console.file.write("".join(texts))
            self._terminal.console.file.flush()

    def _end(self, state: str) -> None:
        self._state, self._in_hand, self._over = state, None, time.monotonic()

    def _draw_until_done(self) -> None:
        try:
            while not self._done.is_set():
                self._draw()
                self._wake.wait(REDRAW_S)
                self._wake.clear()
            self._draw()
            self._terminal.leave()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Record the error and stop drawing the view."""
        self._failed = self._failed or error
        self._done.set()
        self._drawn.set()

    def _draw(self) -> None:
        with self._lock:
            taken, lost = list(self._above), self._lost
            self._above.clear()
            self._lost = 0
        above = [text for text, _ in taken]
        if lost:
            above.insert(0, f"… {lost:,} lines were dropped: the terminal accepted none\n")
        try:
            console = self._terminal.console
            encoding = console.encoding
            width, height = console.size
            look = ViewSettings(max(width - 1, 1), max(height - 1, 1), glyphs_for(encoding), encoding)
            self._terminal.draw(
                self._frames.lines(self._gathered.snapshot(), self._current_moment(), look), above
            )
        except Exception:  # rows among them are results
            with self._lock:
                self._above.extendleft(reversed(taken))
            raise
        with self._lock:
            if not self._above:
                self._drawn.set()

    def _current_moment(self) -> RunMoment:
        now, in_hand = time.monotonic(), self._in_hand
        return RunMoment(
            self._title,
            self._state,
            (self._over or now) - self._since,
            time.time_ns() // 1_000,
            self._bounded,
            None if in_hand is None else (in_hand[0], now - in_hand[1]),
            self._page,
        )
