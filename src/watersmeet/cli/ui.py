"""`ui`: a job's page, served while it is looked at."""

from __future__ import annotations

from typing import Annotated

import typer

from watersmeet.cli.job_file import default_checkpoint
from watersmeet.cli.state_commands.commands import Directory, Of
from watersmeet.errors import SpecError
from watersmeet.spec.watched.addresses import address_in

UI_PORT = "8765"
"""Where the page is, if nobody says."""

Listen = Annotated[
    str,
    typer.Option(
        metavar="[HOST:]PORT",
        help="Where to listen; 0 is any free port. Other hosts than this one are asked for a token.",
    ),
]


def ui(job: Of, listen: Listen = UI_PORT, checkpoint: Directory = None) -> None:
    """Serve a page of a job that runs in another process, or has ended, until Ctrl-C: as `report`, and it
    goes on with the job. Read only."""
    from watersmeet.cli.state_commands.place import Place
    from watersmeet.page.listening import listening_at

    address = address_in(listen)
    if address is None:
        raise SpecError(
            f'--listen "{listen}" is no port to listen at',
            code="wrong-option",
            hint="8080, 0.0.0.0:8080 or [::]:8080",
        )
    place = Place.of(job, checkpoint, default_checkpoint(job))
    serving = listening_at(address, place.checkpoint.store, place.checkpoint.job)
    print(f"the page of {place.checkpoint.place}: {serving.url}", flush=True)
    serving.run()
