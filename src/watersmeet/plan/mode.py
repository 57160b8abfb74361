"""Rule: which mode a query has. What it says itself (EMIT), else what the job says (output_mode), else final
rows where its sources only bring rows, and changes where rows may be taken back. Of rows that may be taken
back final ones come of windows, which go out when they close.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from watersmeet.spec.model import Input, Options, OutputMode, Query


def with_mode(options: Options, query: Query) -> Options:
    """The job's options, as they are of this query."""
    said = query.mode or options.output_mode
    inputs = [i for part in query.every for i in part.inputs]
    by_sources = OutputMode.CHANGELOG if changing(inputs) else OutputMode.APPEND
    return replace(options, output_mode=said or by_sources)


def changing(inputs: Iterable[Input]) -> list[Input]:
    """Those of which rows may be taken back: of changing sources, and of tables but as of a tick. What is
    beneath a stage its own inputs tell."""
    return [i for i in inputs if not i.as_of and any(s.changes or s.is_table for s in i.sources)]


def closes_changes(query: Query) -> bool:
    """Whether windows make final rows of ones that may be taken back: windows over such rows. Where windows
    beneath have done so for all, these are windows over final rows."""
    window = None if query.aggregation is None else query.aggregation.window
    return window is not None and not _is_final_beneath(query)


def _is_final_beneath(query: Query) -> bool:
    """Whether all rows that come to it are final, or can be."""
    stages = (stage for i in query.inputs for stage in i.stages)
    return not changing(query.inputs) and all(closes_changes(s) or _is_final_beneath(s) for s in stages)
