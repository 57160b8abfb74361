"""What others write to standard error while a view is open."""

from __future__ import annotations

import os
import select
import sys
import time
from contextlib import contextmanager

import pytest

from watersmeet.observe.live.terminal import Lines, errors_above


@contextmanager
def a_terminal(monkeypatch):
    """Standard error is a terminal; gives its other side."""
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        yield ours
        monkeypatch.undo()
    os.close(ours)


def read_terminal(terminal: int) -> str:
    ready = select.select([terminal], [], [], 20)[0]
    return os.read(terminal, 65_536).decode().replace("\r\n", "\n") if ready else ""


def test_low_level_stderr_output_is_captured_then_restored(monkeypatch):
    taken: list[str] = []
    with a_terminal(monkeypatch) as terminal:
        goes_above(terminal, taken)


def goes_above(terminal: int, taken: list[str]) -> None:
    print("before", file=sys.stderr, flush=True)
    with errors_above(taken.append):
        print("of Python", file=sys.stderr, flush=True)
        os.write(sys.stderr.fileno(), "of a library\r\nand – begun".encode())
        of_a_process = os.dup(sys.stderr.fileno())
        ends = time.monotonic() + 20
        while len(taken) < 2:
            assert time.monotonic() < ends
            time.sleep(0.01)
    assert taken == ["of Python", "of a library", "and – begun"]
    print("after", file=sys.stderr, flush=True)
    os.write(of_a_process, b"of a process that goes on\n")
    os.close(of_a_process)
    text = ""
    while "goes on" not in text and (more := read_terminal(terminal)):
        text += more
    assert text == "before\nafter\nof a process that goes on\n"


def test_what_nobody_can_take_is_written_all_the_same(monkeypatch):
    def takes_none(line: str) -> None:
        raise ValueError(line)

    with a_terminal(monkeypatch) as terminal, errors_above(takes_none):
        os.write(sys.stderr.fileno(), b"one\n")
        assert read_terminal(terminal) == "one\n"
        os.write(sys.stderr.fileno(), b"two\n")
        assert read_terminal(terminal) == "two\n"


def test_what_goes_into_a_file_is_left_alone(tmp_path, monkeypatch):
    with open(tmp_path / "err", "w") as file:
        monkeypatch.setattr(sys, "stderr", file)
        with errors_above(pytest.fail):
            print("told", file=sys.stderr)
        monkeypatch.undo()
    assert (tmp_path / "err").read_text() == "told\n"
    monkeypatch.setattr(sys, "stderr", None)
    with errors_above(pytest.fail):
        pass
    monkeypatch.undo()


def test_a_stream_of_lines_is_as_what_it_stands_for(tmp_path):
    with open(tmp_path / "out", "w", encoding="latin-1") as file:
        lines = Lines(pytest.fail, file)
        assert (lines.encoding, lines.fileno(), lines.isatty()) == ("latin-1", file.fileno(), False)
        assert lines.writable()
        assert lines.write("") == 0
    assert Lines(pytest.fail, None).encoding == "utf-8"
