"""How a join without an equality key is cut into tasks: by ranges of the time that its rows are sorted by.

A task owns the rows of both sides in its range, and looks over its edges as far as the band reaches. A pair
is put out by the owner of its left row. The owner of the right row looks the same pairs up for existence
only: whether its row has had a match is for it to mark.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.engine.step.slice import SideSlice
from watersmeet.engine.step.tasks import JoinShape, NodeReport, NodeWork
from watersmeet.event_time import MAX_TIME, MIN_TIME, Side, saturate
from watersmeet.kernel.pairs import find, gather, matched
from watersmeet.state.run import Run
from watersmeet.state.store import Store


def value_borders(shape: JoinShape, work: NodeWork, partitions: int) -> list[int]:
    """``partitions + 1`` borders, so that about as many rows lie between each two: the tick's new ones, or
    all when nothing is new. The same in every task."""
    band = shape.condition.bands[0]
    middle = 0 if band.lower is None or band.upper is None else (band.lower + band.upper) // 2
    weights: list[tuple[int, int, int]] = []
    for everything in (False, True):
        for side in Side:
            own = work.side(side)
            runs = [live.run for live in own.runs] if everything else own.new_runs
            weights += _weighted(runs, 0 if side is Side.LEFT else -middle)
        if weights:
            break
    return [MIN_TIME, *_quantiles(weights, partitions), MAX_TIME + 1]


def _weighted(runs: Sequence[Run], by: int) -> list[tuple[int, int, int]]:
    return [(saturate(run.low + by), saturate(run.high + by), run.rows) for run in runs]


def _quantiles(weights: Sequence[tuple[int, int, int]], partitions: int) -> list[int]:
    """Where the rows of spans (least, greatest, rows), each taken as even, are cut into equal parts."""
    if not weights:
        return [0] * (partitions - 1)
    edges = sorted({edge for low, high, _ in weights for edge in (low, high + 1)})
    held = [0.0] * (len(edges) - 1)
    for low, high, rows in weights:
        for n, (first, end) in enumerate(itertools.pairwise(edges)):
            if low <= first and end <= high + 1:
                held[n] += rows * ((end - first) / (high + 1 - low))
    total, cuts, done, n = sum(held), [], 0.0, 0
    for part in range(1, partitions):
        wanted = total * part / partitions
        while n < len(held) - 1 and done + held[n] < wanted:
            done += held[n]
            n += 1
        share = (wanted - done) / held[n] if held[n] else 0.0
        offset = int((edges[n + 1] - edges[n]) * min(max(share, 0.0), 1.0))
        cuts.append(saturate(min(edges[n] + offset, edges[n + 1])))
    return sorted(cuts)


@dataclass(frozen=True)
class Reach:
    """Per side, the rows that may match what the task owns of the other side."""

    left: SideSlice
    right: SideSlice

    @classmethod
    def of(cls, shape: JoinShape, work: NodeWork, store: Store, low: int, high: int) -> Reach:
        """For the range [low, high), which is not empty."""
        slices = {}
        for side in Side:
            least, greatest = shape.condition.window(side.other).over(low, min(high - 1, MAX_TIME))
            slices[side] = SideSlice(shape.side(side), work.side(side), store, least, greatest + 1)
        return cls(slices[Side.LEFT], slices[Side.RIGHT])


def matches_by_range(
    shape: JoinShape, slices: dict[Side, SideSlice], reach: Reach, report: NodeReport
) -> Iterator[pa.RecordBatch]:
    """The pairs of which the left row is the task's own; all own rows that have a match are marked."""
    left, right = slices[Side.LEFT], slices[Side.RIGHT]
    columns = shape.columns
    if left.new is not None:
        found = [(p.rows, p.partners(shape.condition, left.new.rows, Side.LEFT)) for p in reach.right.old]
        if reach.right.new is not None:
            rows = reach.right.new.rows
            found.append((rows, find(shape.condition, left.new.rows, Side.LEFT, rows)))
        for rows, pairs in found:
            for needle, row in pairs:
                left.new.matched[needle] = True
                report.matches += len(needle)
                yield gather(columns, left.new.rows.batch, needle, rows.batch, row)
    if reach.right.new is not None:
        for piece in left.old:
            for needle, row in piece.partners(shape.condition, reach.right.new.rows, Side.RIGHT):
                piece.mark_matched(row)
                report.matches += len(needle)
                yield gather(columns, piece.rows.batch, row, reach.right.new.rows.batch, needle)
    _mark_right(shape, right, reach.left)


def _mark_right(shape: JoinShape, right: SideSlice, left: SideSlice) -> None:
    if right.new is not None:
        for piece in left.old:
            right.new.matched |= piece.matched_with(shape.condition, right.new.rows, Side.RIGHT)[0]
        if left.new is not None:
            right.new.matched |= matched(shape.condition, right.new.rows, Side.RIGHT, left.new.rows)[0]
    if left.new is not None:
        for piece in right.old:
            _, hits = piece.matched_with(shape.condition, left.new.rows, Side.LEFT)
            if hits.any():
                piece.mark_matched(np.flatnonzero(hits))
