"""By which of its bands a join looks rows up: whichever leaves the fewest candidates.

Rows of a run are sorted by one index (`RunLayout.indexes`). Every task estimates how many candidates each
index would leave of this tick's look-ups (`choose_orders`). Where another one than a run's own would save
more than sorting costs, the task sorts that run's index column for itself, for this tick; the driver sums the
estimates up (`next_index`) and has the next runs sorted by the best: those of new rows, and merged ones. So
runs of one arrangement may be sorted differently, and every look-up goes by what its run says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from watersmeet.engine.step.slice import NewRows, RunSlice, SideSlice
from watersmeet.engine.step.tasks import JoinShape, SideReport
from watersmeet.event_time import Side
from watersmeet.kernel.candidates import estimated
from watersmeet.kernel.pairs import SortedRows
from watersmeet.state.run import RunLayout

FEW_PAIRS = 4_096
"""Of so few pairs of needles and rows no candidates are estimated."""
LOOKED_AT = 8
"""Of so many runs of a side, the largest, candidates are estimated."""
SORTING = 4
"""Sorting a row costs as much as so many candidates."""
FEW_CANDIDATES = 1_000
"""Differences of so many candidates in a tick are no reason to sort otherwise."""
TIMES_BETTER = 2


def choose_orders(
    shape: JoinShape,
    side: Side,
    looked_up: SideSlice,
    needles: SortedRows | None,
    report: SideReport,
    *,
    new_too: bool,
) -> None:
    """Decide by what the rows of one side's slices are looked up with these needles of the other side.

    Args:
        new_too: new rows are looked up, too, and not needles alone.
    """
    indexes = looked_up.task.layout.indexes
    if needles is None or len(indexes) < 2:
        return
    pieces: list[RunSlice | NewRows] = [*looked_up.old]
    if looked_up.new is not None:
        pieces.append(looked_up.new)
    pieces = [piece for piece in pieces if len(piece.rows) * len(needles) > FEW_PAIRS]
    for piece in sorted(pieces, key=lambda each: -len(each.rows))[:LOOKED_AT]:
        found = estimated(shape.condition, needles, side.other, piece.rows, indexes)
        for index, candidates in zip(indexes, found, strict=True):
            report.candidates[index.name] = report.candidates.get(index.name, 0.0) + candidates
        own = next(c for index, c in zip(indexes, found, strict=True) if index == piece.rows.index)
        best = min(range(len(indexes)), key=lambda n: found[n])
        if own - found[best] > SORTING * len(piece.rows) and (new_too or piece is not looked_up.new):
            piece.looked_up = piece.rows.sorted_by(indexes[best])


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
    names = [each.name for each in layout.indexes]
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
