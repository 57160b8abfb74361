"""How a join without an equality key is cut into tasks: by ranges of the values that its rows are sorted by.

Every run is cut by itself, whatever it is sorted by: a new one into equal parts, an old one so that what this
tick's new rows of the other side reach is. A task owns its parts of both sides' runs, and looks over their
edges as far as the bands reach. A pair is put out by the owner of its left row. The owner of the right row
looks the same pairs up for existence only: whether its row has had a match is for it to mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.engine.messages.reports import NodeReport
from watersmeet.engine.messages.shapes import JoinShape
from watersmeet.engine.tasks.cut import Cut
from watersmeet.engine.tasks.results import put_out
from watersmeet.engine.tasks.share import Share
from watersmeet.engine.tasks.slice import SideSlice
from watersmeet.event_time import Side
from watersmeet.kernel.match.overflow import Spans
from watersmeet.kernel.match.pairs import Condition, find, has_match
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.state.runs.run import Run


@dataclass(frozen=True)
class Part(Cut):
    """One task's part of a run of ``side``. ``reaching``: spans of the other side's new rows, by which old
    runs are cut (None: into equal parts)."""

    condition: Condition
    side: Side
    reaching: Spans | None
    partition: int
    partitions: int

    def takes_all(self, run: Run) -> bool:
        return self.partitions == 1

    def of(self, rows: SortedRows) -> tuple[int, int]:
        low, high = 0, len(rows)
        if self.reaching is not None:
            low, high = self.condition.reached(self.side.other, self.reaching, rows)
        if low == high:
            low, high = 0, len(rows)
        cuts = [low + (high - low) * part // self.partitions for part in range(self.partitions + 1)]
        cuts[0], cuts[-1] = 0, len(rows)
        return cuts[self.partition], cuts[self.partition + 1]


@dataclass(frozen=True)
class Reached(Cut):
    """The part of a run that needles of ``side`` with these spans reach; nothing when there are none."""

    condition: Condition
    side: Side
    spans: Spans | None

    def misses(self, run: Run) -> bool:
        return self.spans is None

    def of(self, rows: SortedRows) -> tuple[int, int]:
        assert self.spans is not None
        return self.condition.reached(self.side, self.spans, rows)


def united(spans: Iterable[Spans]) -> Spans | None:
    """The least spans that hold all of these; None of none."""
    union: dict[str, tuple[int, int]] = {}
    for span in spans:
        for name, (low, high) in span.items():
            before = union.get(name, (low, high))
            union[name] = (min(low, before[0]), max(high, before[1]))
    return union or None


def owned(shape: JoinShape, share: Share) -> dict[Side, SideSlice]:
    """What a task owns of both sides; of runs that are not sorted by value equal parts."""
    slices = {}
    for side in Side:
        arrived = share.work.side(side.other).new_runs if shape.left.layout.by_value else []
        reaching = united(run.spans for run in arrived)
        old, new = (
            Part(shape.condition, side, spans, share.partition, share.partitions)
            for spans in (reaching, None)
        )
        slices[side] = SideSlice(shape.side(side), share.work.side(side), share.store, old, new)
    return slices


def reach_of(shape: JoinShape, share: Share, own: Mapping[Side, SideSlice]) -> dict[Side, SideSlice]:
    """Per side, the rows that may match what the task owns of the other side."""
    slices = {}
    for side in Side:
        other = own[side.other]
        new = [] if other.new is None else [other.new.rows.spans]
        of_old = Reached(shape.condition, side.other, united(new))
        of_new = Reached(
            shape.condition, side.other, united([*new, *(piece.rows.spans for piece in other.old)])
        )
        slices[side] = SideSlice(shape.side(side), share.work.side(side), share.store, of_old, of_new)
    return slices


def matches_by_range(
    shape: JoinShape, slices: Mapping[Side, SideSlice], reach: Mapping[Side, SideSlice], report: NodeReport
) -> Iterator[pa.RecordBatch]:
    """The pairs of which the left row is the task's own; all own rows that have a match are marked."""
    left, right = slices[Side.LEFT], slices[Side.RIGHT]
    around = reach[Side.RIGHT]
    if left.new is not None:
        needles = left.new.rows
        matches = [(p.rows, p.partners(shape.condition, needles, Side.LEFT)) for p in around.old]
        if around.new is not None:
            new = around.new
            matches.append((new.rows, find(shape.condition, needles, Side.LEFT, new.looked_up)))
        for rows, pairs in matches:
            for needle, row in pairs:
                left.new.matched[needle] = True
                report.matches += len(needle)
                yield from put_out(shape, needles.batch, needle, rows.batch, row)
    if around.new is not None:
        for piece in left.old:
            for needle, row in piece.partners(shape.condition, around.new.rows, Side.RIGHT):
                piece.mark_matched(row)
                report.matches += len(needle)
                yield from put_out(shape, piece.rows.batch, row, around.new.rows.batch, needle)
    _mark_right(shape, right, reach[Side.LEFT])


def _mark_right(shape: JoinShape, right: SideSlice, left: SideSlice) -> None:
    if right.new is not None:
        for piece in left.old:
            right.new.matched |= piece.has_match(shape.condition, right.new.rows, Side.RIGHT)
        if left.new is not None:
            matched = has_match(shape.condition, right.new.rows, Side.RIGHT, left.new.looked_up)
            right.new.matched |= matched
    if left.new is not None:
        for piece in right.old:
            piece.mark_matched(piece.rows_with(shape.condition, left.new.rows, Side.LEFT))
