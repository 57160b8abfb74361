"""Define the command ``why``; the command line imports this, so it imports nothing heavy."""

from __future__ import annotations

from typing import Annotated

import typer

from watersmeet.cli import flags
from watersmeet.cli.job_file import default_checkpoint, text_of
from watersmeet.cli.state_commands.commands import Directory


def why(
    job: flags.JobFile,
    input: Annotated[str, typer.Option(metavar="ALIAS", help="The input to which the rows belong.")] = "",
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[COLUMN=]VALUE",
            help="Value of a join key, or of any column; NULL is allowed; repeatable.",
        ),
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Event time of the row: '2024-07-01 10:00:00'.")
    ] = None,
    query: Annotated[str | None, typer.Option(help="The query, if several have such an input.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows to explain per query.")] = 20,
    checkpoint: Directory = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON line per query.")] = False,
) -> None:
    """Explain what became of a row: joined, waiting, late, filtered or rejected, and its near misses."""
    from watersmeet.cli.why.command import why_text
    from watersmeet.why.question import Question

    question = Question(input, tuple(key or ()), time, query, limit)
    why_text(text_of(job), job, question, checkpoint, default_checkpoint(job), as_json=json)
