"""`doctor`: what is installed and what a machine lacks for running jobs, with what to type."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from watersmeet.cli.completion import job_files
from watersmeet.cli.flags import Checkpoint
from watersmeet.errors import SeveralErrors, WatersmeetError, format_count, printable, without_hidden

if TYPE_CHECKING:
    from watersmeet.cli.install.checks import Check

NOT_POSSIBLE = 1

Job = Annotated[
    Path | None,
    typer.Argument(
        metavar="JOB.SQL",
        help="Look at what this job needs, and at its sources, sinks and state; .toml is a pipeline.",
        autocompletion=job_files,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="A JSON document.")]


def doctor(job: Job = None, checkpoint: Checkpoint = None, as_json: AsJson = False) -> None:
    """Say what is installed here, what is missing for running jobs, and what to type. Nothing is started.

    Exit status: 0 a job can be run, or the one that is named; 1 it cannot.
    """
    from watersmeet.cli.install.checks import Status

    checks = _checks_of_job(job, checkpoint) if job is not None else _checks_of_machine()
    failed = [check for check in checks if check.status is Status.FAIL]
    if as_json:
        shown = [{**asdict(check), "status": check.status.value.lower()} for check in checks]
        print(without_hidden(json.dumps({"can_run": not failed, "checks": shown})))
    else:
        _print_text(checks, "a job" if job is None else str(job), len(failed))
    if failed:
        raise typer.Exit(NOT_POSSIBLE)


def _checks_of_machine() -> list[Check]:
    from watersmeet.cli.install.checks import (
        check_extensions,
        check_extras,
        check_folder,
        check_port,
        check_programs,
    )
    from watersmeet.cli.job_file import default_checkpoint
    from watersmeet.cli.page_commands import UI_PORT
    from watersmeet.spec.monitoring import LOOPBACK, Address

    return [
        *check_programs(),
        *check_extras(),
        *check_extensions(),
        *_checks_of_system(),
        check_folder("Checkpoints", default_checkpoint(Path("job")).parent, "--checkpoint DIR"),
        check_port("Page", Address(LOOPBACK, int(UI_PORT)), "--ui PORT").as_note(),
    ]


def _checks_of_system() -> list[Check]:
    from watersmeet.cli.install.checks import check_clock, check_folder, check_memory

    return [
        check_memory(),
        check_clock(),
        check_folder("Temporary", Path(tempfile.gettempdir()), "TMPDIR=DIR, and spark.local.dir"),
    ]


def _checks_of_job(job: Path, checkpoint: str | None) -> list[Check]:
    """Return the checks of one job: programs, directories, ports, and the job itself.

    Raises:
        SpecError: the file cannot be read.
    """
    from watersmeet.cli.install.checks import Check, Status, check_folder, check_port, check_programs
    from watersmeet.cli.job_file import default_checkpoint, settings_in, text_of
    from watersmeet.spec.monitoring import address_in

    text, name = text_of(job), str(job)
    overrides = {} if checkpoint is None else {"checkpoint": checkpoint}
    checks = [*check_programs(), *_checks_of_system()]
    try:
        settings = settings_in(text, name, overrides)
    except WatersmeetError:  # of a pipeline, which is told below
        settings = {}
    directory = settings.get("checkpoint", str(default_checkpoint(job)))
    checks.append(check_folder("Checkpoint", Path(directory), "--checkpoint DIR"))
    for what in ("ui", "metrics"):
        address = address_in(settings.get(what, ""))
        if address is not None and address.port:
            checks.append(check_port("Page" if what == "ui" else "Metrics", address, f"--{what} PORT"))
    details = {check.detail for check in checks}
    try:
        answer = _look_at_job(text, name, directory, overrides)
    except WatersmeetError as error:
        problems = error.errors if isinstance(error, SeveralErrors) else (error,)
        told = [problem for problem in problems if not _is_reported(problem, details)]
        return [*checks, *(Check(job.name, Status.FAIL, _words(problem), problem.hint) for problem in told)]
    return [*checks, Check(job.name, Status.OK, answer)]


def _look_at_job(text: str, name: str, directory: str, overrides: Mapping[str, str]) -> str:
    """Check everything about a job's run that needs no Java, and return a summary.

    Raises:
        WatersmeetError: All problems.
    """
    from watersmeet.cli.job_file import job_in, settings_in
    from watersmeet.cli.output import to_stderr
    from watersmeet.objects.settings import store_of
    from watersmeet.plan.planner import plan_job
    from watersmeet.running import RunSettings, check_before_java
    from watersmeet.runtime.spark.job.column_inference import ColumnInference

    store = store_of(settings_in(text, name, overrides))
    job = job_in(text, name, overrides, ColumnInference(directory, None, store))
    if not job.inserts:
        return "no INSERT: there is nothing to run"
    plan = plan_job(job)
    check_before_java(job, plan, RunSettings(directory, on_notice=to_stderr))
    return (
        f"{format_count(len(plan.sources), 'source')}, "
        f"{format_count(len(job.inserts), 'INSERT')}: nothing is missing"
    )


def _is_reported(problem: WatersmeetError, details: set[str]) -> bool:
    """Return True if a line says it already: it says it of every job."""
    from watersmeet.runtime.spark.start_failures import SPARK_EXTRA

    return problem.message in details or problem.hint == SPARK_EXTRA


def _words(problem: WatersmeetError) -> str:
    return f"{problem.message} ({problem.location})" if problem.location else problem.message


def _print_text(checks: Sequence[Check], what: str, failed: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from watersmeet.cli.install.checks import Status

    styles = {Status.OK: "green", Status.NOTE: "yellow", Status.FAIL: "bold red"}
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        cell = Text(printable(without_hidden(check.detail)))
        if check.hint is not None:
            cell.append(printable(without_hidden(f"\nHint: {check.hint}")))
        table.add_row(Text(check.status.value, styles[check.status]), Text(printable(check.name)), cell)
    Console(file=sys.stdout, highlight=False).print(table)
    print(f"{what} cannot be run: {format_count(failed, 'problem')}" if failed else f"{what} can be run")
