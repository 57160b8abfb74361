"""The flags of ``why``. Loaded with the command line: nothing heavy is, before it is asked for."""

from __future__ import annotations

from typing import Annotated

import typer

from watersmeet.cli import flags
from watersmeet.cli.job_file import default_checkpoint, text_of
from watersmeet.cli.state_commands.commands import Directory


def why(
    job: flags.JobFile,
    input: Annotated[str, typer.Option(metavar="ALIAS", help="The input whose rows are asked for.")],
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[COLUMN=]VALUE",
            help="The value of an equality key of its join, or of a column; NULL; repeat.",
        ),
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="TIME", help="An event time of the row: '2024-07-01 10:00:00'.")
    ] = None,
    query: Annotated[str | None, typer.Option(help="Of which query, if several have such an input.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Rows that are told of, per query.")] = 20,
    checkpoint: Directory = None,
    json: Annotated[bool, typer.Option("--json", help="A JSON line per query.")] = False,
) -> None:
    """Say what became of rows of an input: joined, kept until when, late by how much, filtered by what, and
    who was near. From the job's history and its sources, read again. Nothing is run, and nothing written."""
    from watersmeet.cli.why.command import why_text
    from watersmeet.why.asked import Question

    question = Question(input, tuple(key or ()), time, query, limit)
    why_text(text_of(job), job, question, checkpoint, default_checkpoint(job), as_json=json)
