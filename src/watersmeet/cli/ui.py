"""Define the command ``ui``, which serves a job's page, and read the value of ``run --ui``."""

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
from watersmeet.errors import SpecError
from watersmeet.spec.watched.access import TOKEN_FILE, load_token
from watersmeet.spec.watched.addresses import address_in

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
    from watersmeet.cli.state_commands.place import Place
    from watersmeet.history.segments import FOLDER
    from watersmeet.page.asking import AskedJob
    from watersmeet.page.listening import listening_at

    access = token_setting(token_file, no_token)
    address = address_in(listen)
    if address is None:
        raise SpecError(
            f'--listen "{listen}" is not a port or HOST:PORT',
            code="wrong-option",
            hint="8080, 0.0.0.0:8080 or [::]:8080",
        )
    place = Place.of(job, checkpoint, default_checkpoint(job))
    asked = AskedJob(place.text, place.named, str(place.checkpoint.root))
    token = load_token(access or place.settings.get(TOKEN_FILE))
    state = place.checkpoint
    serving = listening_at(address, state.store, state.job, token=token, asked=asked, is_held=state.is_held)
    print(f"the page of {state.place}: {serving.describe(sys.stdout)}", flush=True)
    if not place.checkpoint.store.names(FOLDER):
        to_stderr("note: there is no history there: the page is empty until a tick of the job writes one")
    serving.run()


def with_port(words: Sequence[str]) -> list[str]:
    """With the port that ``--ui`` stands for where none is behind it.

    >>> with_port(["run", "--ui", "job.sql"]), with_port(["run", "job.sql", "--ui", "[::]:80"])
    (['run', '--ui', '8765', 'job.sql'], ['run', 'job.sql', '--ui', '[::]:80'])

    What is neither a port nor a job is left to be refused as what it was meant for:

    >>> with_port(["run", "--ui", "localhost", "job.sql"])
    ['run', '--ui', 'localhost', 'job.sql']
    """
    spelled = []
    for n, word in enumerate(words):
        spelled.append(word)
        if word == "--ui" and (n + 1 == len(words) or not _is_address(words[n + 1])):
            spelled.append(UI_PORT)
    return spelled


def _is_address(word: str) -> bool:
    """Whether the word behind ``--ui`` is meant to be an address, and neither the job nor another flag."""
    if re.fullmatch(r"(.*:)?[0-9]+", word):
        return True
    return not (word.startswith("-") or word.lower().endswith((".sql", ".toml")) or Path(word).exists())
