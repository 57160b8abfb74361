"""Further columns of a query that say which inputs have no match in a result row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from sqlglot import exp

from watersmeet.names import ours
from watersmeet.spec.model import Input, Insert, OutputColumn, Relation


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
