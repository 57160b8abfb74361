"""A job's file as commands are given it: its text, and where its state is if nobody says."""

from __future__ import annotations

import sys
from pathlib import Path

from watersmeet.errors import SpecError


def default_checkpoint(job: Path) -> Path:
    return Path(".watersmeet") / ("stdin" if str(job) == "-" else job.stem)


def text_of(job: Path) -> str:
    """Raises: SpecError when it cannot be read."""
    from watersmeet.cli.run import read_text

    if str(job) != "-":
        return read_text(job)
    if sys.stdin is None:
        raise SpecError("there is no job: standard input is closed", code="not-readable")
    return sys.stdin.read()
