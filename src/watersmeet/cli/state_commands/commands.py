"""The commands themselves: arguments, and what is printed."""

from __future__ import annotations

import json as as_text
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from watersmeet.cli.completion import job_files
from watersmeet.cli.job_file import default_checkpoint, text_of
from watersmeet.errors import EngineError, SpecError, counted

if TYPE_CHECKING:
    from watersmeet.cli.state_commands.place import Place

app = typer.Typer(
    name="state",
    help="Look after what a job keeps: JOB.SQL stands for its checkpoint directory.",
    no_args_is_help=True,
)

Of = Annotated[
    Path,
    typer.Argument(
        metavar="JOB.SQL|DIR",
        help="The job's statements, or its checkpoint directory.",
        autocompletion=job_files,
    ),
]
Directory = Annotated[
    str | None,
    typer.Option("--checkpoint", help="Directory of the state (default: .watersmeet/<name of the job>)."),
]
Json = Annotated[bool, typer.Option("--json", help="As JSON.")]


@app.command()
def show(
    job: Annotated[
        Path,
        typer.Argument(metavar="JOB.SQL", help="The job's statements; - is stdin.", autocompletion=job_files),
    ],
    checkpoint: Directory = None,
    json: Json = False,
) -> None:
    """Show what a job keeps: rows and files per input, and which of them several queries have together."""
    from watersmeet.cli.run import state_text
    from watersmeet.cli.state_commands.place import needs_job

    if job.is_dir():
        raise needs_job(job)
    overrides = {} if checkpoint is None else {"checkpoint": checkpoint}
    state_text(text_of(job), str(job), overrides, default_checkpoint(job), as_json=json)


@app.command()
def ls(job: Of, checkpoint: Directory = None, json: Json = False) -> None:
    """List the ticks whose state is kept (SET keep_ticks), oldest first."""
    from rich.console import Console

    from watersmeet.cli.state_commands.ticks import kept_ticks, table_of

    ticks = list(kept_ticks(_place(job, checkpoint)))
    if json:
        print(as_text.dumps([tick.as_dict() for tick in ticks]))
    else:
        Console(file=sys.stdout, highlight=False).print(table_of(ticks))


@app.command()
def check(job: Of, checkpoint: Directory = None) -> None:
    """Read all that is kept and compare it with its checksums. Exit status 1: something is wrong."""
    from watersmeet.cli.state_commands.check import checked

    result = checked(_place(job, checkpoint))
    _print(result.lines())
    if result.problems:
        raise typer.Exit(1)


@app.command()
def gc(job: Of, checkpoint: Directory = None) -> None:
    """Remove files that no kept tick needs. A running job does that with every tick."""
    from watersmeet.cli.state_commands.check import collected

    print(f"removed {counted(len(collected(_place(job, checkpoint))), 'file')}")


@app.command()
def copy(
    job: Of,
    to: Annotated[
        str, typer.Argument(metavar="TO", help="An empty directory, or a store: s3://bucket/prefix.")
    ],
    checkpoint: Directory = None,
) -> None:
    """Copy the state as of the newest tick, and read the copy back. The job may be running."""
    from watersmeet.cli.state_commands.copy import copied

    _print(copied(_place(job, checkpoint), to))


@app.command()
def export(
    job: Annotated[
        Path, typer.Argument(metavar="JOB.SQL", help="The job's statements.", autocompletion=job_files)
    ],
    to: Annotated[Path, typer.Argument(metavar="DIR", help="An empty directory, or a new one.")],
    checkpoint: Directory = None,
) -> None:
    """Write the rows that a job retains as Parquet files, one per input. The job may be running."""
    from watersmeet.cli.state_commands.export import exported

    _print(exported(_place(job, checkpoint), to))


@app.command()
def restore(
    job: Of,
    tick: Annotated[int, typer.Option(min=1, help="To which to go back, of those that `state ls` shows.")],
    checkpoint: Directory = None,
    yes: Annotated[bool, typer.Option("--yes", help="Without asking.")] = False,
) -> None:
    """Go back to an earlier tick: what came after it is read and put out again."""
    from watersmeet.cli.state_commands.restore import planned

    restoring = planned(_place(job, checkpoint), tick)
    _print(restoring.lines())
    if not (yes or agreed("go back?")):
        print("nothing was changed")
        raise typer.Exit(1)
    restoring.run()
    flags = "--rebuild-spark-checkpoint --set-aside-newer-parts"
    print(f"done: the state is that of tick {tick:,}. Run the job with {flags}")


def stop(
    job: Of,
    checkpoint: Directory = None,
    savepoint: Annotated[
        str | None, typer.Option(metavar="TO", help="Then copy its state there, as `state copy` does.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long it may take.")] = 300.0,
) -> None:
    """Stop a running job after the tick in hand, as Ctrl-C does; it goes on when it is run again."""
    from watersmeet.cli.state_commands.copy import check_free, copied

    place = _place(job, checkpoint)
    if savepoint is not None:
        check_free(place, savepoint)
    directory, deadline = place.checkpoint, time.monotonic() + timeout
    run = directory.holder()
    if run is None and directory.stored_job is not None:
        raise EngineError(
            f"no run holds {directory.root} here, and whether one goes on elsewhere cannot be told: the state"
            f" is in {directory.place}",
            code="not-in-a-store",
            hint="stop it on its own machine, or by SIGTERM; `watersmeet state copy` copies it as it runs",
        )
    if run is None:
        print(f"no run holds {directory.root}")
    else:
        directory.ask_to_stop(run)
        while directory.holder() == run:
            if time.monotonic() > deadline:
                raise EngineError(
                    f"the run did not stop within {timeout:,.0f} seconds",
                    code="did-not-stop",
                    hint="it will once the tick in hand is done; --timeout waits longer",
                )
            time.sleep(0.1)
        directory.forget_stop()
        print("stopped")
    if savepoint is not None:
        _print(copied(place, savepoint))


def agreed(question: str) -> bool:
    """Asked on the terminal. Raises: SpecError where nobody can be asked."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise SpecError("nobody can be asked whether to do that", code="not-agreed", hint="--yes does it")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def _place(named: Path, checkpoint: str | None) -> Place:
    from watersmeet.cli.state_commands.place import Place

    return Place.of(named, checkpoint, default_checkpoint(named))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
