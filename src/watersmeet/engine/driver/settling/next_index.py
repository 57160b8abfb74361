"""By which of its indexes the next runs of an arrangement are sorted: the best by what tasks estimated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from watersmeet.engine.messages.reports import SideReport
from watersmeet.state.runs.layout import RunLayout

FEW_CANDIDATES = 1_000
"""Differences of so many candidates in a tick are no reason to sort otherwise."""
TIMES_BETTER = 2


def next_index(
    layout: RunLayout, index: str | None, before: Mapping[str, float], reports: Iterable[SideReport]
) -> tuple[str | None, dict[str, float]]:
    """(what the next runs are sorted by, what is remembered of the candidates).

    Args:
        index: by what this tick's were.
        before: what was remembered: it counts half as much as this tick's.
    """
    if len(layout.indexes) < 2:
        return None, {}
    names = [indexed.name for indexed in layout.indexes]
    sums = {name: before.get(name, 0.0) / 2 for name in names}
    for report in reports:
        for name, candidates in report.candidates.items():
            sums[name] = sums.get(name, 0.0) + candidates
    kept = {name: round(total, 1) for name, total in sums.items() if total >= 1}
    current = layout.index(index)
    assert current is not None
    best = min(names, key=lambda name: sums[name])
    if TIMES_BETTER * (sums[best] + FEW_CANDIDATES) < sums[current.name] + FEW_CANDIDATES:
        return best, kept
    return current.name, kept
