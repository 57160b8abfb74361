"""The output mode of a query, and columns that mark missing matches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from sqlglot import exp

from watersmeet.names import ours
from watersmeet.spec.model import Input, Insert, Options, OutputColumn, OutputMode, Query, Relation

# Rule: which mode a query has. What it says itself (EMIT), else what the job says (output_mode), else
# final rows where its sources only bring rows, and changes where rows may be taken back. Of rows that may
# be taken back final ones come of windows, which go out when they close.


def with_mode(options: Options, query: Query) -> Options:
    """Return the job's options with the output mode of this query."""
    said = query.mode or options.output_mode
    inputs = [i for part in query.every for i in part.inputs]
    by_sources = OutputMode.CHANGELOG if changing(inputs) else OutputMode.APPEND
    return replace(options, output_mode=said or by_sources)


def changing(inputs: Iterable[Input]) -> list[Input]:
    """Return the inputs whose rows can be retracted.

    These are changing sources, and tables unless they are read as of a tick. The inputs of a stage
    report their own changes.
    """
    return [i for i in inputs if not i.as_of and any(s.changes or s.is_table for s in i.sources)]


def closes_changes(query: Query) -> bool:
    """Return True if the windows of a query turn rows that can be retracted into final rows.

    False if windows below have already done so for all inputs, because the rows are then final.
    """
    window = None if query.aggregation is None else query.aggregation.window
    return window is not None and not _has_final_input(query)


def _has_final_input(query: Query) -> bool:
    """Return True if all input rows of the query are final, or can become so."""
    stages = (stage for i in query.inputs for stage in i.stages)
    return not changing(query.inputs) and all(closes_changes(s) or _has_final_input(s) for s in stages)


# Further columns of a query that say which inputs have no match in a result row.


def match_markers(insert: Insert) -> dict[str, str]:
    """Return per input that may have no match in a result row an event time, which is NULL only there."""
    if insert.is_index or insert.query.aggregation is not None or insert.sink.primary_key:
        return {}
    nullable = _nullable(insert.query.relation, False)
    return {own.alias: own.event_times[0] for own in nullable if own.event_times}


def with_markers(insert: Insert, markers: Mapping[str, str]) -> Insert:
    """Return the INSERT with these event times as further, last columns, called `marker_name`."""
    columns = tuple(
        OutputColumn(marker_name(alias), exp.column(time, table=alias), f"{alias}.{time}")
        for alias, time in markers.items()
    )
    return replace(insert, query=replace(insert.query, outputs=(*insert.query.outputs, *columns)))


def marker_name(alias: str) -> str:
    """Return the name of the column of an input's event time."""
    return ours(f"match:{alias}")


def _nullable(relation: Relation, is_nullable: bool) -> Iterator[Input]:
    """Yield the inputs whose columns are NULL in rows without a match."""
    if isinstance(relation, Input):
        yield from [relation] if is_nullable else []
        return
    yield from _nullable(relation.left, is_nullable or relation.kind.pads_right)
    if not relation.kind.hides_right:
        yield from _nullable(relation.right, is_nullable or relation.kind.pads_left)
