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
    """Of one query, after the tick ``tick``; without a state, nothing.

    ``raise_late_thresholds``: per watermark key, rows with lesser times are late by now. ``counts``: per
    input what
    became of its rows. ``promised``: per key, no later row of the result (or of the stage beneath) has a
    lesser time. ``released_below``: per key of an input, rows with lesser times have left the join that takes
    them. ``complete_from``: per key, results with lesser times may be missing, for the query was
    another one. ``late_by_column``: a row is late by one of its own times, and not by the join it comes to.
    ``settled``: nothing waits any more: the input was ended, or results change as rows come. ``clock_us``:
    that of the tick.
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
        """Per input, how many rows were counted so; inputs without any are left out."""
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
    """What is known of a query.

    Args:
        settled: its results change as rows come, and wait for nothing.
        elsewhere: inputs whose rows another query accounts for: alias, that query, alias there.
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
    """Of all nodes; of a key that several have, that of the last one."""
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
    """The marks of the input called ``there``, as those of ``own``."""
    start = f"{there}."
    return {
        f"{own}.{key.removeprefix(start)}": mark
        for key, mark in marks.items()
        if key.startswith(start) and "." not in key.removeprefix(start)
    }
