"""The live view on a terminal that is not there: what it would show, of a job in this process."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests.observe.watched import TICKS, WatchedJob
from tests.support.screen import Screen
from watersmeet.errors import EngineError
from watersmeet.observe.listeners import ListenerGroup
from watersmeet.observe.live import view as view_module
from watersmeet.observe.live.formatting import glyphs_for
from watersmeet.observe.live.terminal import Terminal
from watersmeet.observe.live.view import LiveView
from watersmeet.observe.notebook import TablePrinter
from watersmeet.observe.watermark_holders import SilentPartition, WaitingInput


def on(screen: io.TextIOBase, **how: object) -> Console:
    size: dict = {"width": 80, "height": 24} | how
    return Console(file=screen, force_terminal=True, **size)  # type: ignore[arg-type]


def until(true: Callable[[], object]) -> None:
    """Wait for what another thread does."""
    ends = time.monotonic() + 20
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.01)


class Shown:
    """A job, the view of it, and the screen that shows that."""

    def __init__(self, **how: object) -> None:
        self.screen = Screen(80, 24)
        self.console = on(self.screen, **how)
        self.job = WatchedJob()
        self.view = LiveView(self.console, "job.sql", self.job.plan)
        self.job.watching = ListenerGroup([self.view])

    def says(self, words: str) -> bool:
        return any(words in line for line in self.screen.shown)


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(view_module, "REDRAW_S", 0.02)


def test_view_is_drawn_in_place_from_start_to_end():
    shown = Shown()
    with shown.view:
        until(lambda: shown.says("job.sql  starting for 0 s"))
        shown.job.ticks(TICKS)
        until(lambda: shown.says("tick 3"))
        until(lambda: shown.says("delivered.o.t  2026-11-26 00:01:39"))  # the screen may be half drawn
        shown.job.watching.begin(4)
        shown.job.watching.end(None)
    shown.console.print("Row accounting")
    (head,) = [line for line in shown.screen.all if line.startswith("job.sql")]
    assert head.startswith("job.sql  ended after ")
    assert shown.screen.all[0] == head
    assert shown.screen.all[-3:] == ["", "Row accounting", ""]
    assert not shown.screen.hidden


def test_what_others_print_goes_above(capsys):
    shown = Shown()
    before = sys.stdout
    with shown.view:
        shown.view.started([WaitingInput("o", (SilentPartition("orders", "2"),))], None)
        print("half a ", end="")
        shown.job.ticks(TICKS[:1])
        print("line\n\x1b[31mred\x1b[0m \x07bell\nand begun", end="")
        TablePrinter(shown.view).show("out", 1, ["k"], [("a\x1b[2J",)], 0)
        shown.job.ticks(TICKS[1:])
    assert sys.stdout is before
    text = shown.screen.all
    head = text.index(next(line for line in text if line.startswith("job.sql")))
    above = text[:head]
    for told in (
        "note: the watermark of o waits for a row in orders/2 (it has no idle_timeout)",
        "half a line", "out, tick 1", "and begun",
    ):  # fmt: skip
        assert above.count(told) == 1, told
    assert any("red" in line and "\x1b" not in line for line in above)
    assert any("a\\x1b[2J" in line for line in above)
    assert capsys.readouterr() == ("", "")


def test_view_redraws_cleanly_when_the_terminal_narrows():
    shown = Shown(height=60)
    shown.screen.rows = 60
    with shown.view:
        shown.job.ticks(TICKS)
        until(lambda: shown.says("climbed.b"))
        with shown.view._lock:  # between two frames
            time.sleep(0.1)
            shown.screen.narrow(50)
            shown.console.width = 50
        shown.job.tick(TICKS[0])
        until(lambda: shown.says("tick 4"))
    assert sum("job.sql" in line for line in shown.screen.all) == 1
    assert max(map(len, shown.screen.all)) < 50


@pytest.mark.parametrize(
    "how", [{}, {"no_color": True}, {"color_system": None}], ids=["colour", "no colour", "none"]
)
def test_colours_are_those_of_the_terminal(how):
    shown = Shown(**({"color_system": "standard"} | how))
    with shown.view:
        shown.job.ticks(TICKS)
    colours = {code for codes in shown.screen.styles for code in codes.split(";") if code.startswith("3")}
    assert bool(colours) is (not how)
    assert bool(shown.screen.styles) is (how.get("color_system", "") is not None)


class Hangs(Screen):
    """A terminal that takes nothing any more, as after Ctrl-S."""

    def __init__(self) -> None:
        super().__init__(80, 24)
        self.goes_on = threading.Event()

    def write(self, text: str) -> int:
        self.goes_on.wait(60)
        return super().write(text)


def test_a_terminal_that_hangs_holds_up_nothing(monkeypatch):
    monkeypatch.setattr(view_module, "LAST_S", 0.05)
    monkeypatch.setattr(view_module, "MAX_WAITING_LINES", 5)
    screen, job = Hangs(), WatchedJob()
    view = LiveView(on(screen), "job.sql", job.plan)
    job.watching = ListenerGroup([view])
    with view:
        time.sleep(0.1)
        job.ticks(TICKS)
        rows = threading.Thread(target=view.print, args=("row",), daemon=True)
        rows.start()  # and waits
        until(lambda: view._above)
        for n in range(12):
            print(f"line {n}")
    screen.goes_on.set()
    view._thread.join(20)
    rows.join(20)
    assert screen.all[:6] == [
        "… 8 lines were dropped: the terminal accepted none",
        "row",
        *(f"line {n}" for n in range(8, 12)),
    ]


class Gone(Screen):
    def __init__(self) -> None:
        super().__init__(80, 24)

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_terminal_that_goes_away_ends_the_view_and_not_the_run(capsys):
    job = WatchedJob()
    view = LiveView(on(Gone()), "job.sql", job.plan)
    job.watching = ListenerGroup([view])
    with view:
        until(lambda: view._failed)
        job.ticks(TICKS)
        print("gone")
        with pytest.raises(BrokenPipeError):  # rows are not for the view alone
            view.print("row")
    assert capsys.readouterr() == ("", "")


def test_view_error_is_reported_and_the_run_continues(capsys):
    shown = Shown()
    with shown.view:
        shown.view.tick(SimpleNamespace(inputs=(), rows_in={}), None)  # no report of a tick
        until(lambda: not shown.view._thread.is_alive())
        print("still there")
        shown.view.print("a row")
    assert [line for line in shown.screen.all if line in ("still there", "a row")] == ["still there", "a row"]
    assert "note: the live view ended before the run: AttributeError" in capsys.readouterr().err


def test_rows_buffered_by_a_failing_view_are_printed(monkeypatch, capsys):
    shown, draw = Shown(), Terminal.draw

    def fails(self, lines, above=()):
        if above:
            raise ValueError("no")
        draw(self, lines, above)

    monkeypatch.setattr(Terminal, "draw", fails)
    with shown.view:
        shown.view.print("a row")
    assert shown.screen.all.count("a row") == 1
    assert "note: the live view ended before the run: ValueError: no" in capsys.readouterr().err


def test_a_run_that_fails_says_so():
    shown = Shown()
    with suppress(EngineError), shown.view:
        shown.job.ticks(TICKS[:1])
        raise EngineError("no", code="no")
    assert shown.says("job.sql  failed after 0 s  tick 1")


def test_of_a_run_that_cannot_begin_nothing_is_left():
    shown = Shown()
    with suppress(EngineError), shown.view:
        until(lambda: shown.says("starting"))
        raise EngineError("no", code="no")
    assert shown.screen.all == [""]


def test_where_a_browser_sees_the_run_is_in_the_view():
    shown = Shown()
    with shown.view:
        shown.job.watching.announce_page("http://127.0.0.1:8765/", "token in a file")
        until(lambda: shown.says("for 0 s                                http://127.0.0.1:8765/"))


def test_frames_that_do_not_differ_are_not_written(monkeypatch):
    stopped = SimpleNamespace(monotonic=lambda: 0.0, time_ns=lambda: 0)
    monkeypatch.setattr(view_module, "time", stopped)
    shown = Shown()
    with shown.view:
        until(lambda: shown.says("starting"))
        time.sleep(0.1)
        writes = shown.screen.writes
        time.sleep(0.2)
        assert shown.screen.writes == writes


def test_glyphs_are_those_that_the_terminal_knows():
    assert glyphs_for("cp1252").levels == "_.:-=+*#"
