"""By which of its bands a join looks rows up: whichever leaves the fewest candidates.

Rows of a run are sorted by one index (`RunLayout.indexes`). Every task estimates how many candidates each
index would leave of this tick's look-ups (`choose_orders`). Where another one than a run's own would save
more than sorting costs, the task sorts that run's index column for itself, for this tick; the driver sums the
estimates up (`next_index`) and has the next runs sorted by the best: those of new rows, and merged ones. So
runs of one arrangement may be sorted differently, and every look-up goes by what its run says.
"""

from __future__ import annotations

from watersmeet.engine.messages.shapes import JoinShape
from watersmeet.engine.tasks.share import Share
from watersmeet.engine.tasks.slice import NewRows, RunSlice, SideSlice
from watersmeet.event_time import Side
from watersmeet.kernel.match.candidates import estimated
from watersmeet.kernel.sorted_rows import SortedRows

FEW_PAIRS = 4_096
"""Of so few pairs of needles and rows no candidates are estimated."""
LOOKED_AT = 8
"""Of so many runs of a side, the largest, candidates are estimated."""
SORTING = 4
"""Sorting a row costs as much as so many candidates."""


def choose_orders(
    shape: JoinShape,
    side: Side,
    looked_up: SideSlice,
    needles: SortedRows | None,
    share: Share,
    *,
    new_too: bool,
) -> None:
    """Decide by what the rows of one side's slices are looked up with these needles of the other side.

    Args:
        new_too: new rows are looked up, too, and not needles alone.

    Raises:
        ManyMatches: more rows would be sorted anew than the share may look at.
    """
    report = share.report.side(side)
    indexes = looked_up.task.layout.indexes
    if needles is None or len(indexes) < 2:
        return
    pieces: list[RunSlice | NewRows] = [*looked_up.old]
    if looked_up.new is not None:
        pieces.append(looked_up.new)
    pieces = [piece for piece in pieces if len(piece.rows) * len(needles) > FEW_PAIRS]
    for piece in sorted(pieces, key=lambda p: -len(p.rows))[:LOOKED_AT]:
        estimates = estimated(shape.condition, needles, side.other, piece.rows, indexes)
        for index, candidates in zip(indexes, estimates, strict=True):
            report.candidates[index.name] = report.candidates.get(index.name, 0.0) + candidates
        own = next(c for index, c in zip(indexes, estimates, strict=True) if index == piece.rows.index)
        best = min(range(len(indexes)), key=lambda n: estimates[n])
        if own - estimates[best] > SORTING * len(piece.rows) and (new_too or piece is not looked_up.new):
            share.sees(len(piece.rows))
            piece.looked_up = piece.rows.sorted_by(indexes[best])
