"""Define the command ``diff``; the command line imports this, so it imports nothing heavy."""

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
            help="Files with the rows of a source, instead of what the job has read; repeatable.",
        ),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            metavar="QUERY=PATH",
            help="Parquet, CSV or JSON files with a query's output, instead of its sink; repeatable.",
        ),
    ] = None,
    engine: Annotated[
        AnsweredBy,
        typer.Option(help="Engine of the batch answer: duckdb (in this process), spark, or auto."),
    ] = AnsweredBy.AUTO,
    limit: Annotated[int, typer.Option(min=0, help="Differing rows to show per query.")] = 20,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Write all differing rows to .parquet, .csv or .json, one file per query."
        ),
    ] = None,
    jars: Annotated[
        str | None, typer.Option(help="Local jars, separated by commas, instead of Maven's.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 also for differences that have a known reason.")
    ] = False,
    lateness: flags.By = None,
    allowed_lateness: flags.Lateness = None,
    output_mode: flags.Mode = None,
    plan: flags.Plan = None,
    time_zone: flags.TimeZone = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON line per query.")] = False,
) -> None:
    """Compare a job's output with the batch answer of its queries, and give a reason for each difference.

    Exit status: 0 the output is equal, or all differences are late rows or rows not yet due; 1 other
    differences (with --strict: any); 2 no comparison was possible.
    """
    from watersmeet.cli.diff.command import DiffFlags, diff_text
    from watersmeet.runtime.spark.start_failures import check_pyspark

    if engine is AnsweredBy.SPARK:
        check_pyspark("watersmeet diff --engine spark")
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
    asked = DiffFlags(
        tuple(inputs or ()), tuple(outputs or ()), engine.value, limit, to, as_json=json, strict=strict
    )
    if not diff_text(text_of(job), str(job), overrides, default_checkpoint(job), asked):
        raise typer.Exit(1)
