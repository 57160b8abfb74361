"""Partitions that a tick saw or that are declared, beside those that were known."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from watersmeet.engine.driver.settling.shared_inputs import values_by_query
from watersmeet.engine.messages.reports import IngestReport
from watersmeet.plan.model.job import QueryPlan
from watersmeet.watermark import tracker
from watersmeet.watermark.holding import Holding, holding, unheard


def seen_in(
    query: QueryPlan,
    reports: Sequence[IngestReport],
    advances: Mapping[str, Mapping[str, int]],
    idle: Mapping[str, Iterable[str]],
    busy: Mapping[str, Iterable[str]],
    by_key: Mapping[str, int],
) -> dict[tuple[str, int], tracker.Seen]:
    """What the tick brought, per (alias, branch). ``advances``: per source and column; ``by_key``: per
    ``alias.column``."""
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
            for column in side.event_times:
                mark = by_key.get(f"{side.name}.{column}")
                if mark is not None:
                    of_input[column] = max(of_input.get(column, mark), mark)
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


def going_idle(
    query: QueryPlan,
    inputs: Mapping[str, tracker.InputState],
    rules: Mapping[str, Sequence[tracker.BranchRules]],
    reports: Sequence[IngestReport],
    clock_us: int,
) -> set[str]:
    """The sources of a query of which a partition goes idle, when nobody says otherwise."""
    seen = seen_in(query, reports, {}, {}, {}, {})
    branches = {(s.name, n): b.source.name for s in query.sides for n, b in s.sources}
    return {branches[key] for key in tracker.going_idle(inputs, rules, seen, clock_us)}


_Inputs = Mapping[str, Mapping[str, tracker.InputState]]
_Rules = Mapping[str, Mapping[str, Sequence[tracker.BranchRules]]]
"""Per query and alias."""


def waiting_for(
    queries: Sequence[QueryPlan], inputs: _Inputs, rules: _Rules, unread: Mapping[str, Collection[str]]
) -> dict[str, dict[str, tuple[Holding, ...]]]:
    """Per query and alias the declared partitions that never had a row, and have none to be read."""

    def of_query(query: QueryPlan) -> dict[str, tuple[Holding, ...]]:
        return {
            alias: unheard(state, rules[query.name][alias], names, unread)
            for alias, state, names in _with_sources(query, inputs[query.name])
        }

    return values_by_query(queries, of_query)


def held_by(
    queries: Sequence[QueryPlan], inputs: _Inputs, rules: _Rules, clock_us: int
) -> dict[str, dict[str, tuple[Holding, ...]]]:
    """Per query and alias the partitions that hold its watermark."""

    def of_query(query: QueryPlan) -> dict[str, tuple[Holding, ...]]:
        return {
            alias: holding(state, rules[query.name][alias], names, clock_us)
            for alias, state, names in _with_sources(query, inputs[query.name])
        }

    return values_by_query(queries, of_query)
