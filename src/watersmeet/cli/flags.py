"""Arguments and flags that several commands take, each said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from watersmeet.cli.completion import job_files, words_of
from watersmeet.errors import SpecError
from watersmeet.spec import job_options
from watersmeet.spec.watched.access import NO_TOKEN
from watersmeet.spec.watched.log_format import LogFormat

JobFile = Annotated[
    Path,
    typer.Argument(
        metavar="JOB.SQL",
        help="The job's statements; - is standard input; .toml is a pipeline.",
        autocompletion=job_files,
    ),
]
Rule = Annotated[
    str | None,
    typer.Option(
        help="Output watermarks: tight or limit.", autocompletion=words_of(job_options.WatermarkRule)
    ),
]
By = Annotated[
    str | None,
    typer.Option(
        help="What makes a row late: its column's watermark, or the join.",
        autocompletion=words_of(job_options.Lateness),
    ),
]
Lateness = Annotated[
    str | None, typer.Option(help="How late a row may still be: '5 seconds', or a number for integer times.")
]
Mode = Annotated[
    str | None,
    typer.Option(
        help="append (final rows) or changelog, of queries without EMIT.",
        autocompletion=words_of(job_options.OutputMode),
    ),
]
Plan = Annotated[
    str | None,
    typer.Option(help="Of joins: auto, cascade or delta.", autocompletion=words_of(job_options.PlanChoice)),
]
MaxRows = Annotated[str | None, typer.Option(help="Retained rows allowed per join.")]
MaxBytes = Annotated[str | None, typer.Option(help="Bytes in files allowed per join (20 GB).")]
MaxPerKey = Annotated[str | None, typer.Option(help="Retained rows allowed per key of a join's side.")]
MaxOutput = Annotated[str | None, typer.Option(help="Rows that a query may put out in a tick.")]
MaxJobRows = Annotated[str | None, typer.Option(help="Retained rows allowed in the whole job.")]
MaxJobBytes = Annotated[str | None, typer.Option(help="Bytes in files allowed in the whole job (100 GB).")]
AtLimit = Annotated[
    str | None,
    typer.Option(
        help="At a limit of rows or bytes that are kept: stop, shed_oldest or shed_heaviest.",
        autocompletion=words_of(job_options.AtLimit),
    ),
]
MaxBroken = Annotated[
    str | None, typer.Option(help="Records of an input that may not parse: a number, or a share (1 %).")
]
MaxSkew = Annotated[str | None, typer.Option(help="So far is a source read ahead of others: 1 hour.")]
TaskMemory = Annotated[str | None, typer.Option(help="What one task may hold at once (1 GB).")]
NullTime = Annotated[
    str | None,
    typer.Option(
        help="A row without an event time: count or fail.", autocompletion=words_of(job_options.NullTime)
    ),
]
TimeZone = Annotated[str | None, typer.Option(help="Of days, hours and texts of times (default: UTC).")]
KeepTicks = Annotated[
    int | None,
    typer.Option(min=2, max=10_000, help="Ticks that the state can be restored to, the newest too."),
]
Checkpoint = Annotated[
    str | None, typer.Option(help="Directory of the state (default: .watersmeet/<name of the job>).")
]
Metrics = Annotated[
    str | None,
    typer.Option(metavar="PORT", help="Metrics for Prometheus: PORT of this machine alone, or HOST:PORT."),
]
Ui = Annotated[
    str | None,
    typer.Option(
        metavar="[PORT]",
        help="A page of the job: at PORT (8765) of this machine alone, or at HOST:PORT.",
    ),
]
TokenFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="The token that page and metrics ask for; made if missing (~/.config/watersmeet/token).",
    ),
]
NoToken = Annotated[
    bool,
    typer.Option(
        "--no-token",
        help="Page and metrics ask for no token: every user of this machine, and whoever reaches HOST:PORT,"
        " sees the job, and rows of it on the page.",
    ),
]
LoggedAs = Annotated[
    str | None,
    typer.Option(
        help="Log the run to standard error, in place of what is shown of it: text or json.",
        autocompletion=words_of(LogFormat),
    ),
]


def token_setting(token_file: str | None, no_token: bool) -> str | None:
    """The setting `token_file` that the two flags stand for.

    Raises:
        SpecError: both are given.
    """
    if no_token and token_file is not None:
        raise SpecError(
            "--token-file and --no-token exclude each other",
            code="wrong-option",
            hint="leave out --no-token",
        )
    return NO_TOKEN if no_token else token_file
