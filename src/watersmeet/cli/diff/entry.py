"""The flags of ``diff``. Loaded with the command line: nothing heavy is, before it is asked for."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from watersmeet.cli import flags
from watersmeet.cli.job_file import default_checkpoint, text_of


class AnsweredBy(StrEnum):
    AUTO = "auto"
    DUCKDB = "duckdb"
    SPARK = "spark"


def diff(
    job: flags.JobFile,
    checkpoint: flags.Checkpoint = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="SOURCE=FILES",
            help="The rows of a source, in the place of what the job has read of it; repeat.",
        ),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            metavar="SINK=PATH",
            help="What a query has put out: Parquet, CSV or JSON, in the place of its sink; repeat.",
        ),
    ] = None,
    engine: Annotated[
        AnsweredBy,
        typer.Option(help="What makes the batch answer: duckdb, in this process; spark; auto: as it fits."),
    ] = AnsweredBy.AUTO,
    limit: Annotated[int, typer.Option(min=0, help="Differing rows shown of each query.")] = 20,
    to: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="All differing rows: .parquet, .csv or .json, a file per query."),
    ] = None,
    jars: Annotated[
        str | None, typer.Option(help="Local jars instead of Maven's, by comma: where Spark answers.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 for differences that have a reason, too.")
    ] = False,
    lateness: flags.By = None,
    allowed_lateness: flags.Lateness = None,
    output_mode: flags.Mode = None,
    plan: flags.Plan = None,
    time_zone: flags.TimeZone = None,
    json: Annotated[bool, typer.Option("--json", help="A JSON line per query.")] = False,
) -> None:
    """Compare what a job has put out with the batch answer of its queries. Nothing is run or changed.

    Exit status: 0 equal, or all that differs is late or not yet due; 1 something else differs (--strict:
    anything); 2 they could not be compared.
    """
    from watersmeet.cli.diff.command import Asked, diff_text

    given = {
        "checkpoint": checkpoint,
        "lateness": lateness,
        "allowed_lateness": allowed_lateness,
        "output_mode": output_mode,
        "plan": plan,
        "time_zone": time_zone,
        "jars": jars,
    }
    overrides = {name: str(value) for name, value in given.items() if value is not None}
    asked = Asked(
        tuple(inputs or ()), tuple(outputs or ()), engine.value, limit, to, as_json=json, strict=strict
    )
    if not diff_text(text_of(job), str(job), overrides, default_checkpoint(job), asked):
        raise typer.Exit(1)
