"""What a job's last manifest says of a query that explains why its result is not the batch answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from watersmeet.event_time import Watermark
from watersmeet.state.manifest import Manifest, QueryState

LATE, SHED, AHEAD = "late", "shed", "ahead"
"""Counts of the account that say that rows are in no result."""


@dataclass(frozen=True)
class QueryFacts:
    """Facts about one query after the tick ``tick``; empty without a state.

    Args:
        late_below: For each watermark key, the late threshold: rows with smaller times are now late.
        counts: For each input, the row accounting.
        promised: For each key, no later row of the result (or of the stage that feeds it) has a smaller
            time.
        released_below: For each key of an input, rows with smaller times have left the join that reads
            them.
        complete_from: For each key, results with smaller times may be missing, because the query was
            changed.
        late_by_column: True if a row is late by one of its own times; False if by the join it reaches.
        settled: True if no row waits: the input has ended, or results change as rows arrive.
        clock_us: Clock of the tick in µs.
    """

    tick: int = 0
    late_below: Mapping[str, Watermark] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    promised: Mapping[str, Watermark] = field(default_factory=dict)
    released_below: Mapping[str, Watermark] = field(default_factory=dict)
    complete_from: Mapping[str, Watermark] = field(default_factory=dict)
    late_by_column: bool = True
    settled: bool = False
    clock_us: int | None = None

    def counted(self, what: str) -> dict[str, int]:
        """Return the number of rows counted under ``what`` for each input, without zeros."""
        return {alias: rows for alias, counts in self.counts.items() if (rows := counts.get(what, 0))}

    @property
    def late_inputs(self) -> list[frozenset[str]]:
        """Inputs of which rows were late: all of them, and where they are several, each alone."""
        late = sorted(self.counted(LATE))
        alone = [frozenset([alias]) for alias in late] if late[1:] else []
        return [frozenset(late), *alone] if late else []


def collect_query_facts(
    manifest: Manifest,
    query: str,
    elsewhere: Iterable[tuple[str, str, str]] = (),
    *,
    late_by_column: bool = True,
    settled: bool = False,
) -> QueryFacts:
    """Collect the facts about a query from a manifest.

    Args:
        settled: True if the query's results change as rows arrive, and never wait.
        elsewhere: Inputs whose rows another query accounts for, as (alias, that query, alias there).
    """
    state = manifest.queries[query]
    late_below, counts = dict(state.late_below), dict(state.account)
    for own, other, there in elsewhere:
        of_other = manifest.queries[other]
        counts[own] = of_other.account.get(there, {})
        late_below |= _rename_marks(of_other.late_below, own, there)
    return QueryFacts(
        manifest.tick,
        late_below,
        counts,
        _emitted_watermarks(manifest, state),
        {
            f"{alias}.{column}": limit
            for node in state.nodes
            for alias, kept in node.arrangements.items()
            for column, limit in kept.limits.items()
        },
        state.complete_from,
        late_by_column,
        settled or manifest.finished,
        manifest.clock_us,
    )


def _emitted_watermarks(manifest: Manifest, state: QueryState) -> dict[str, Watermark]:
    """Return the watermarks that the nodes emitted, by key.

    If several nodes have a key, the last one counts.
    """
    promised: dict[str, Watermark] = {}
    for node in state.nodes:
        place = node.elsewhere
        if place is not None:
            there = manifest.queries[place.query].nodes[place.node].emitted
            for own, other in place.aliases.items():
                promised |= _rename_marks(there, own, other)
        promised |= node.emitted
    return promised


def _rename_marks(marks: Mapping[str, Watermark], own: str, there: str) -> dict[str, Watermark]:
    """Return the marks of the input called ``there``, renamed to ``own``."""
    start = f"{there}."
    return {
        f"{own}.{key.removeprefix(start)}": mark
        for key, mark in marks.items()
        if key.startswith(start) and "." not in key.removeprefix(start)
    }
