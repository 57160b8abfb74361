"""The commands of ``watersmeet state``, and ``stop``."""

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
from watersmeet.errors import EngineError, SpecError, format_count

if TYPE_CHECKING:
    from watersmeet.cli.state_commands.show import StateLocation

app = typer.Typer(
    name="state",
    help="Inspect, check, copy and restore the state of a job.",
    no_args_is_help=True,
)

Of = Annotated[
    Path,
    typer.Argument(
        metavar="JOB.SQL|DIR",
        help="SQL file of the job, or its checkpoint directory.",
        autocompletion=job_files,
    ),
]
Directory = Annotated[
    str | None,
    typer.Option("--checkpoint", help="Checkpoint directory (default: .watersmeet/<name of the job>)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def show(
    job: Annotated[
        Path,
        typer.Argument(
            metavar="JOB.SQL", help="SQL file of the job; - is standard input.", autocompletion=job_files
        ),
    ],
    checkpoint: Directory = None,
    json: Json = False,
) -> None:
    """Show rows and files in state per input, and which of them queries share."""
    from watersmeet.cli.state_commands.show import needs_job, state_text

    if job.is_dir():
        raise needs_job(job)
    overrides = {} if checkpoint is None else {"checkpoint": checkpoint}
    state_text(text_of(job), str(job), overrides, default_checkpoint(job), as_json=json)


@app.command()
def ls(job: Of, checkpoint: Directory = None, json: Json = False) -> None:
    """List the ticks that the state can be restored to (SET keep_ticks), oldest first."""
    from rich.console import Console

    from watersmeet.cli.state_commands.show import load_ticks, table_of

    ticks = list(load_ticks(_place(job, checkpoint)))
    if json:
        print(as_text.dumps([tick.as_dict() for tick in ticks]))
    else:
        Console(file=sys.stdout, highlight=False).print(table_of(ticks))


@app.command()
def check(job: Of, checkpoint: Directory = None) -> None:
    """Verify the checksums of all state files; exit with 1 if one is damaged."""
    from watersmeet.cli.state_commands.maintenance import verify_state

    result = verify_state(_place(job, checkpoint))
    _print(result.lines())
    if result.problems:
        raise typer.Exit(1)


@app.command()
def gc(job: Of, checkpoint: Directory = None) -> None:
    """Delete files that no restorable tick needs; a running job does this in every tick."""
    from watersmeet.cli.state_commands.maintenance import collect_garbage

    print(f"removed {format_count(len(collect_garbage(_place(job, checkpoint))), 'file')}")


@app.command()
def copy(
    job: Of,
    to: Annotated[
        str, typer.Argument(metavar="TO", help="An empty directory, or a store: s3://bucket/prefix.")
    ],
    checkpoint: Directory = None,
) -> None:
    """Copy the state of the newest tick and verify the copy; the job can be running."""
    from watersmeet.cli.state_commands.maintenance import copy_state

    _print(copy_state(_place(job, checkpoint), to))


@app.command()
def export(
    job: Annotated[
        Path, typer.Argument(metavar="JOB.SQL", help="SQL file of the job.", autocompletion=job_files)
    ],
    to: Annotated[Path, typer.Argument(metavar="DIR", help="An empty directory, or a new one.")],
    checkpoint: Directory = None,
) -> None:
    """Write the rows in state as Parquet files, one per input; the job can be running."""
    from watersmeet.cli.state_commands.export import export_state

    _print(export_state(_place(job, checkpoint), to))


@app.command()
def restore(
    job: Of,
    tick: Annotated[
        int, typer.Option(min=1, help="The tick to restore, one of those that `state ls` lists.")
    ],
    checkpoint: Directory = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Restore an earlier tick; the job reads and emits later rows again."""
    from watersmeet.cli.state_commands.maintenance import plan_restore

    restoring = plan_restore(_place(job, checkpoint), tick)
    _print(restoring.lines())
    if not (yes or ask_confirmation("Restore?")):
        print("Nothing was changed.")
        raise typer.Exit(1)
    restoring.run()
    flags = "--rebuild-spark-checkpoint --replace-newer-files"
    print(f"Restored tick {tick:,}. Now run the job with {flags}")


def stop(
    job: Of,
    checkpoint: Directory = None,
    savepoint: Annotated[
        str | None,
        typer.Option(metavar="TO", help="Then copy its state to a directory or store, as `state copy` does."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the job to stop.")
    ] = 300.0,
) -> None:
    """Stop a running job after its current tick, as Ctrl-C does."""
    from watersmeet.cli.state_commands.maintenance import check_free, copy_state

    place = _place(job, checkpoint)
    if savepoint is not None:
        check_free(place, savepoint)
    directory, deadline = place.checkpoint, time.monotonic() + timeout
    run = directory.holder()
    if run is None and directory.stored_job is not None:
        raise EngineError(
            f"no run holds {directory.root} on this machine, and the command cannot tell whether one holds it"
            f" on another, because the state is in {directory.place}",
            code="not-in-a-store",
            hint="stop the run on its own machine or with SIGTERM; `watersmeet state copy` can copy the state"
            " of a running job",
        )
    if run is None:
        print(f"nothing to stop: no run uses {directory.root}")
    else:
        directory.ask_to_stop(run)
        while directory.holder() == run:
            if time.monotonic() > deadline:
                raise EngineError(
                    f"the run did not stop within {timeout:,.0f} seconds",
                    code="did-not-stop",
                    hint="it stops after the current tick; use --timeout to wait longer",
                )
            time.sleep(0.1)
        directory.forget_stop()
        print("Stopped.")
    if savepoint is not None:
        _print(copy_state(place, savepoint))


def ask_confirmation(question: str) -> bool:
    """Ask on the terminal. Raises: SpecError without a terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise SpecError(
            "this needs a confirmation, and there is no terminal", code="not-agreed", hint="add --yes"
        )
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def _place(named: Path, checkpoint: str | None) -> StateLocation:
    from watersmeet.cli.state_commands.show import StateLocation

    return StateLocation.of(named, checkpoint, default_checkpoint(named))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
