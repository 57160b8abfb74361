"""Arguments and flags that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from watersmeet.cli.completion import job_files, words_of
from watersmeet.errors import SpecError
from watersmeet.spec import job_options
from watersmeet.spec.monitoring import NO_TOKEN, LogFormat

JobFile = Annotated[
    Path,
    typer.Argument(
        metavar="JOB.SQL",
        help="SQL file of the job, a TOML pipeline, or - for standard input.",
        autocompletion=job_files,
    ),
]
Rule = Annotated[
    str | None,
    typer.Option(
        help="Rule for output watermarks: tight or limit.", autocompletion=words_of(job_options.WatermarkRule)
    ),
]
By = Annotated[
    str | None,
    typer.Option(
        help="What makes a row late: the watermark of its column, or the join.",
        autocompletion=words_of(job_options.Lateness),
    ),
]
Lateness = Annotated[
    str | None, typer.Option(help="Extra lateness allowed: '5 seconds', or a number for integer times.")
]
Mode = Annotated[
    str | None,
    typer.Option(
        help="append (final rows) or changelog (changes), for queries without EMIT.",
        autocompletion=words_of(job_options.OutputMode),
    ),
]
Plan = Annotated[
    str | None,
    typer.Option(
        help="Join strategy: auto, cascade or delta.", autocompletion=words_of(job_options.PlanChoice)
    ),
]
MaxRows = Annotated[str | None, typer.Option(help="Maximum rows in state per join.")]
MaxBytes = Annotated[str | None, typer.Option(help="Maximum bytes of state per join (20 GB).")]
MaxPerKey = Annotated[str | None, typer.Option(help="Maximum rows in state per key and join side.")]
MaxOutput = Annotated[str | None, typer.Option(help="Maximum rows that a query emits per tick.")]
MaxJobRows = Annotated[str | None, typer.Option(help="Maximum rows in state of the whole job.")]
MaxJobBytes = Annotated[str | None, typer.Option(help="Maximum bytes of state of the whole job (100 GB).")]
AtLimit = Annotated[
    str | None,
    typer.Option(
        help="At a state limit: stop, shed_oldest or shed_heaviest.",
        autocompletion=words_of(job_options.AtLimit),
    ),
]
MaxBroken = Annotated[
    str | None, typer.Option(help="Maximum records per input that do not parse: a number, or a share (1 %).")
]
MaxDrift = Annotated[
    str | None, typer.Option(help="Maximum time that a source is read ahead of the others: '1 hour'.")
]
TaskMemory = Annotated[str | None, typer.Option(help="Memory limit per task (1 GB).")]
OnNullTime = Annotated[
    str | None,
    typer.Option(
        help="Rows without an event time: count or fail.", autocompletion=words_of(job_options.NullTime)
    ),
]
TimeZone = Annotated[str | None, typer.Option(help="Time zone of days, hours and time texts (default: UTC).")]
KeepTicks = Annotated[
    int | None,
    typer.Option(min=2, max=10_000, help="Number of ticks that the state can be restored to."),
]
Checkpoint = Annotated[
    str | None, typer.Option(help="Checkpoint directory (default: .watersmeet/<name of the job>).")
]
Metrics = Annotated[
    str | None,
    typer.Option(metavar="PORT", help="Serve Prometheus metrics at PORT (this machine only) or HOST:PORT."),
]
Ui = Annotated[
    str | None,
    typer.Option(
        metavar="[PORT]",
        help="Serve the job's page at PORT (8765, this machine only) or HOST:PORT.",
    ),
]
TokenFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="File with the token for page and metrics; created if missing (~/.config/watersmeet/token).",
    ),
]
NoToken = Annotated[
    bool,
    typer.Option(
        "--no-token",
        help="Serve page and metrics without a token: everybody who reaches the port can see the job and its"
        " rows.",
    ),
]
LoggedAs = Annotated[
    str | None,
    typer.Option(
        help="Log to standard error as text or json, instead of showing progress.",
        autocompletion=words_of(LogFormat),
    ),
]


def token_setting(token_file: str | None, no_token: bool) -> str | None:
    """Return the setting `token_file` for the two flags.

    Raises:
        SpecError: Both flags are given.
    """
    if no_token and token_file is not None:
        raise SpecError(
            "--token-file and --no-token exclude each other",
            code="wrong-option",
            hint="leave out --no-token",
        )
    return NO_TOKEN if no_token else token_file
