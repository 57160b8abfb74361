"""Rule: which mode a query has. What it says itself (EMIT), else what the job says (output_mode), else final
rows where its sources only bring rows, and changes where rows may be taken back.
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
