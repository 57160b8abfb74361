"""Show a comparison, and its progress."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from watersmeet.cli.output import format_json_value
from watersmeet.diff.bags import (
    CHANGED_FILE,
    CHANGED_QUERY,
    EXTRA,
    LATE,
    LATER,
    MISSING,
    NOT_DUE,
    SHED,
    UNEXPLAINED,
    Differences,
)
from watersmeet.diff.explanations import QueryFacts
from watersmeet.errors import format_count, printable

# A progress bar on standard error while a comparison runs.

Step = Callable[[str], None]
"""Begins a step, which it names."""


@contextmanager
def progress(steps: int, *, shown: bool) -> Iterator[Step]:
    """Show each step and the elapsed time within the block; remove the bar at the end.

    Args:
        steps: Approximate number of steps.
        shown: False to show nothing, as when standard error is not a terminal.
    """
    if not shown:
        yield lambda name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(20), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("", total=steps)
        begun = 0

        def step(name: str) -> None:
            nonlocal begun
            bar.update(task, completed=begun, description=printable(name), total=max(steps, begun + 1))
            begun += 1

        yield step


def is_terminal(stream: TextIO | None) -> bool:
    """Return True if a person sees what is written to the stream."""
    return stream is not None and stream.isatty()


# What a comparison shows, for people and for programs.

_SIGNS = {MISSING: "-", EXTRA: "+"}
_MEANINGS = {
    CHANGED_FILE: "a file was changed or deleted since it was read, see the notes",
    CHANGED_QUERY: "the query was another one when these rows arrived",
    LATER: "the sink is newer than the state",
}


@dataclass(frozen=True)
class QueryReport:
    """Comparison of one query.

    Args:
        by: Engine that computed the batch answer.
        why: Why DuckDB did not compute it.
        notes: Notes about the query's sources.
    """

    query: str
    differences: Differences
    facts: QueryFacts
    by: str
    why: str
    notes: Sequence[str]


def print_json(shown: Sequence[QueryReport]) -> None:
    """Print one line of JSON per query."""
    for of in shown:
        both = of.differences
        line = {
            "query": of.query,
            "equal": both.equal,
            "batch_rows": both.answered,
            "output_rows": both.put_out,
            "differences": [
                {"side": side, "reason": reason, "rows": rows}
                for (side, reason), rows in sorted(both.counts.items())
            ],
            "late": of.facts.counted("late"),
            "columns": list(both.names),
            "rows": [
                {"side": side, "reason": reason, "count": n, "row": list(values)}
                for side, reason, n, values in both.rows
            ],
            "more_rows": both.more,
            "engine": of.by,
            "notes": list(of.notes),
        }
        print(json.dumps(line, ensure_ascii=False, allow_nan=False))


def print_text(shown: Sequence[QueryReport], tick: int | None, seconds: float, to: str | None) -> None:
    """Print tables of the first differing rows, and the number of rows for each reason."""
    from rich.console import Console

    from watersmeet.observe.notebook import table_of

    out = Console(file=sys.stdout)
    for of in shown:
        both = of.differences
        for line in _head(of):
            print(printable(line))
        if both.rows:
            rows = [
                [_SIGNS[side], str(n), reason, *map(format_json_value, values)]
                for side, reason, n, values in both.rows
            ]
            out.print(table_of(["", "rows", "reason", *both.names], rows))
        if both.more:
            hint = "" if to else " (all of them: --to differences.parquet)"
            print(f"… and {format_count(both.more, 'more row')}{hint}")
        for line in of.notes:
            print(printable(f"note: {line}"))
    when = "without a state" if tick is None else f"as of tick {tick:,}"
    print(f"Compared {when} in {seconds:.1f} s. Nothing was changed.")


def _head(of: QueryReport) -> Iterator[str]:
    both = of.differences
    rows = f"{format_count(both.put_out, 'row')} in the output, {both.answered:,} in the batch answer"
    by = f" (by Spark: {of.why})" if of.why else " (from its ticks, run again)" if of.by == "ticks" else ""
    yield f"{of.query}: {'EQUAL' if both.equal else 'differs'}: {rows}{by}"
    for (side, reason), n in sorted(both.counts.items()):
        yield f"  {_SIGNS[side]} {format_count(n, 'row')} {side}: {_words(reason, of.facts)}"


def _words(reason: str, facts: QueryFacts) -> str:
    if reason == NOT_DUE:
        return "not yet due: waiting for a watermark"
    if reason == LATE:
        late = ", ".join(f"{rows:,} of {alias}" for alias, rows in facts.counted("late").items())
        return f"late: late rows may explain it; late so far: {late}"
    if reason == SHED:
        shed = ", ".join(f"{rows:,} of {alias}" for alias, rows in facts.counted("shed").items())
        return f"shed: rows were shed at a limit, which ones is not recorded; shed so far: {shed}"
    if reason == UNEXPLAINED:
        return "UNEXPLAINED"
    return f"{reason}: {_MEANINGS[reason]}" if reason in _MEANINGS else reason
