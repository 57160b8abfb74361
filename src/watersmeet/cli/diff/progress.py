"""A progress bar on standard error while a comparison runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from watersmeet.errors import printable

Step = Callable[[str], None]
"""Begins a step, which it names."""


@contextmanager
def progress(steps: int, *, shown: bool) -> Iterator[Step]:
    """Within, show each step and for how long the comparison has run; the bar is removed at the end.

    Args:
        steps: how many there are, about.
        shown: False shows nothing, as where standard error is no terminal.
    """
    if not shown:
        yield lambda name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(20), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("", total=steps)
        begun = 0

        def step(name: str) -> None:
            nonlocal begun
            bar.update(task, completed=begun, description=printable(name), total=max(steps, begun + 1))
            begun += 1

        yield step


def is_terminal(stream: TextIO | None) -> bool:
    """Return True if a person sees what is written to the stream."""
    return stream is not None and stream.isatty()
