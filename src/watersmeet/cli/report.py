"""Define the command ``report``: a job's history as one HTML file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from watersmeet.cli.job_file import default_checkpoint
from watersmeet.cli.state_commands.commands import Directory, Of
from watersmeet.errors import EngineError, StateError, counted

Output = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Output file (default: <name>-report.html; - is standard output).",
    ),
]


def report(job: Of, output: Output = None, checkpoint: Directory = None) -> None:
    """Write a job's history as one HTML file: watermarks, rows, state, late rows, plan and runs."""
    from watersmeet.cli.state_commands.place import Place
    from watersmeet.history.past import read
    from watersmeet.page.document import document_of
    from watersmeet.page.html import page_of

    place = Place.of(job, checkpoint, default_checkpoint(job))
    is_held = place.checkpoint.is_held()  # before: a run that ends meanwhile is told as it was
    past = read(place.checkpoint.store)
    if not past:
        place.ticks()  # there is no state either, as of another directory, or of what is no job
        raise StateError(
            f"there is no history in {place.checkpoint.place}",
            code="no-history",
            hint="a job writes a history from its next tick on, unless SET history = off",
        )
    name = place.checkpoint.job
    page = page_of(document_of(past, name, is_held=is_held))
    if str(output) == "-":
        sys.stdout.write(page)
        return
    file = output or Path(f"{name}-report.html")
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise EngineError(
            f"{file} cannot be written: {error.strerror or error}",
            code="file-not-writable",
            hint="pass a file that you may write to: --output FILE",
        ) from None
    ticks = past.points.column("last_tick")
    until = f"until tick {ticks[-1]}" if len(ticks) else "of no tick"
    print(f"{file}: {counted(len(past.runs), 'run')}, {until}")
