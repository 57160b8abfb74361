"""Taking over runs that another side has merged: its rows are the same, what is known of them is one's own.

The other side merged in the last tick, and kept every row that anybody still retained. Here each row is found
again by where it was before (`state.runs.merged_from`): it gets its marks, and counts as released if it is.
"""

from __future__ import annotations

import numpy as np

from watersmeet.engine.messages.reports import SideReport
from watersmeet.engine.tasks.slice import RunSlice, SideSlice
from watersmeet.kernel.batches import same_rows
from watersmeet.state.marks import MarkArray, MarkKind, MarkWriter
from watersmeet.state.runs.merged_from import read_places
from watersmeet.state.runs.opened import OpenRun


def take_over(own: SideSlice, report: SideReport, marks: MarkWriter) -> None:
    """Do what the side's work says, within this task's range. ``marks``: takes what is known of the rows."""
    by_name: dict[str, RunSlice] = {piece.name: piece for piece in own.old}
    for live in own.work.taken_over:
        if own.cut.misses(live.run):
            continue
        opened = OpenRun.open(own.store, live.run, own.task.layout)
        start, stop = own.cut.of(opened.sorted_rows)
        if start == stop:
            continue
        assert live.merged_from is not None
        numbers, rows = read_places(own.store, live.merged_from, start, stop)
        retained = opened.live(own.work.new_limits, start, stop)
        taken: dict[MarkKind, MarkArray] = {}
        there = np.zeros(stop - start, dtype=np.bool_)
        for number in np.unique(numbers).tolist():
            piece = by_name.get(live.merged_from.runs[number])
            if piece is None:
                continue
            chosen = np.flatnonzero(numbers == number)
            before = rows[chosen] - piece.start
            there[chosen] = True
            for kind in {*piece.live.marks, *piece.touched}:
                marked = piece.marks(kind)[before]
                if kind not in taken:
                    taken[kind] = np.zeros(stop - start, dtype=marked.dtype)
                taken[kind][chosen] = marked
        same_rows(
            f'rows of "{own.task.name}" that another merged',
            int(retained.sum()),
            int((retained & there).sum()),
        )
        for kind, marked in sorted(taken.items()):
            if marked.any():
                marks.add(live.run.name, kind, start, marked)
        report.released[live.run.name] = int(len(retained) - retained.sum())
