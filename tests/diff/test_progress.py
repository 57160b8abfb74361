"""The bar that a comparison shows while it runs."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from tests.diff.test_state import run_file_job
from watersmeet.cli.main import main


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("flags", [(), ("--json",)])
@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_steps_are_shown_on_a_terminal_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], stream: type[io.StringIO]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_file_job(tmp_path, "json")
    monkeypatch.setattr(sys, "stderr", errors := stream())
    monkeypatch.setenv("TERM", "xterm-256color")
    assert main(["diff", "job.sql", *flags]) in (0, 1)
    shown = errors.getvalue()
    assert bool(shown) is (stream is Terminal and not flags)
    assert "out: output" in shown or not shown
