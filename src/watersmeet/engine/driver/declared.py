"""Partitions that a tick saw or that are declared, beside those that were known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from watersmeet.engine.messages.reports import IngestReport
from watersmeet.plan.model.job import QueryPlan
from watersmeet.watermark import tracker


def _seen(
    query: QueryPlan,
    reports: Sequence[IngestReport],
    advances: Mapping[str, Mapping[str, int]],
    idle: Mapping[str, Iterable[str]],
    busy: Mapping[str, Iterable[str]],
) -> dict[tuple[str, int], tracker.Seen]:
    """What the tick brought, per (alias, branch)."""
    seen: dict[tuple[str, int], tracker.Seen] = {}
    for side in query.sides:
        for number, branch in side.sources:
            source = branch.source.name
            explicit = advances.get(source, {})
            of_input = {
                column: explicit[expr.name]
                for column, expr in branch.columns
                if column in side.event_times and expr.key == "column" and expr.name in explicit
            }
            seen[side.name, number] = tracker.Seen(
                advances=of_input,
                idle=tuple(idle[source]) if source in idle else None,
                busy=tuple(busy.get(source, ())),
            )
    for report in reports:
        name, _, alias = report.arrangement.rpartition("/")
        if name != query.name:
            continue
        greatest = seen[alias, report.branch].greatest
        for partition, times in report.greatest.items():
            greatest_times = greatest.setdefault(partition, {})
            for column, time in times.items():
                greatest_times[column] = max(greatest_times.get(column, time), time)
    return seen


def _with_sources(
    query: QueryPlan, inputs: Mapping[str, tracker.InputState]
) -> Iterator[tuple[str, tracker.InputState, list[str]]]:
    """Alias, its state, and the names of its branches' sources ("" for stages)."""
    for side in query.sides:
        names = dict.fromkeys(range(len(side.branches)), "")
        names |= {number: branch.source.name for number, branch in side.sources}
        yield side.name, inputs[side.name], list(names.values())
