"""Define the commands ``report`` and ``ui``. Imports nothing heavy."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from watersmeet.cli.flags import NoToken, TokenFile, token_setting
from watersmeet.cli.job_file import default_checkpoint
from watersmeet.cli.output import to_stderr
from watersmeet.cli.state_commands.commands import Directory, Of
from watersmeet.errors import EngineError, SpecError, StateError, format_count
from watersmeet.spec.monitoring import TOKEN_FILE, address_in, load_token

# Define the command ``report``: a job's history as one HTML file.

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
    from watersmeet.cli.state_commands.show import StateLocation
    from watersmeet.history.reader import read
    from watersmeet.page.document import document_of
    from watersmeet.page.html import page_of

    place = StateLocation.of(job, checkpoint, default_checkpoint(job))
    is_held = place.checkpoint.is_locked()  # before: a run that ends meanwhile is told as it was
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
    print(f"{file}: {format_count(len(past.runs), 'run')}, {until}")


# Define the command ``ui``, which serves a job's page, and read the value of ``run --ui``.

UI_PORT = "8765"
"""Where the page is, if nobody says."""

Listen = Annotated[
    str,
    typer.Option(
        metavar="[HOST:]PORT",
        help="Address to listen at; port 0 is any free port.",
    ),
]


def ui(
    job: Of,
    listen: Listen = UI_PORT,
    checkpoint: Directory = None,
    token_file: TokenFile = None,
    no_token: NoToken = False,
) -> None:
    """Serve the page of a running or ended job until Ctrl-C; read only."""
    from watersmeet.cli.state_commands.show import StateLocation
    from watersmeet.history.segments import FOLDER
    from watersmeet.page.live_server import listening_at
    from watersmeet.page.questions import JobReference

    access = token_setting(token_file, no_token)
    address = address_in(listen)
    if address is None:
        raise SpecError(
            f'--listen "{listen}" is not a port or HOST:PORT',
            code="wrong-option",
            hint="8080, 0.0.0.0:8080 or [::]:8080",
        )
    place = StateLocation.of(job, checkpoint, default_checkpoint(job))
    asked = JobReference(place.text, place.named, str(place.checkpoint.root))
    token = load_token(access or place.settings.get(TOKEN_FILE))
    state = place.checkpoint
    serving = listening_at(address, state.store, state.job, token=token, asked=asked, is_held=state.is_locked)
    print(f"the page of {state.place}: {serving.describe(sys.stdout)}", flush=True)
    if not place.checkpoint.store.names(FOLDER):
        to_stderr("note: there is no history there: the page is empty until a tick of the job writes one")
    serving.run()


def insert_default_port(words: Sequence[str]) -> list[str]:
    """Add the default port after each ``--ui`` that has none.

    >>> insert_default_port(["run", "--ui", "job.sql"])
    ['run', '--ui', '8765', 'job.sql']
    >>> insert_default_port(["run", "job.sql", "--ui", "[::]:80"])
    ['run', 'job.sql', '--ui', '[::]:80']

    A word that is neither a port nor a job stays, so that it is rejected as what it was meant to be:

    >>> insert_default_port(["run", "--ui", "localhost", "job.sql"])
    ['run', '--ui', 'localhost', 'job.sql']
    """
    spelled = []
    for n, word in enumerate(words):
        spelled.append(word)
        if word == "--ui" and (n + 1 == len(words) or not _is_address(words[n + 1])):
            spelled.append(UI_PORT)
    return spelled


def _is_address(word: str) -> bool:
    """Return True if the word after ``--ui`` is meant as an address, not as the job or a flag."""
    if re.fullmatch(r"(.*:)?[0-9]+", word):
        return True
    return not (word.startswith("-") or word.lower().endswith((".sql", ".toml")) or Path(word).exists())
