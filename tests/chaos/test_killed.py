"""What is said of a process that does work: no way in which it may end passes for the end of the work."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

import pytest

from tests.chaos.killed import in_a_process


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("work", "outcome"),
    [
        (partial(int, "1"), None),
        (kill_itself, "killed"),
        (partial(os._exit, 0), "it ended and reported nothing"),
        (partial(os._exit, 3), "it ended with status 3"),
    ],
    ids=["done", "killed", "silent", "status"],
)
def test_only_work_that_was_done_is_reported_as_done(work: Any, outcome: str | None) -> None:
    assert in_a_process(work) == outcome


def test_error_in_the_process_is_reported() -> None:
    assert "ValueError: invalid literal" in (in_a_process(partial(int, "x")) or "")
