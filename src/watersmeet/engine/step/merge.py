"""Merging runs: many small ones become one, released rows fall away, marks come along.

The driver says which runs (`choose`), every join task does its hash range, after the tick's marks. The policy
is size-tiered: `FAN_IN` groups of about one size become one group of the next, so that a row is rewritten
O(log state) times; groups are not grown beyond `GROUP_ROWS` rows or `GROUP_BYTES`, so that what is kept on
disk after its release is bounded by one group per end of the retained span. What is merged of wide rows
becomes several runs (`run_bytes`), which count as one group.

Merging partial aggregates combines those of one pane and group. There the number of groups of runs bounds how
often one is kept, so fewer are left unmerged (`COMBINING_FAN_IN`), and they grow as far as they have to; a
merge is then done in parts of the hash range, each of which leaves a run.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from watersmeet.engine.step.memory import run_bytes
from watersmeet.engine.step.slice import RunSlice, SideSlice
from watersmeet.kernel.batches import cuts, one_batch, same_rows, size, take_rows
from watersmeet.kernel.pairs import SortedRows
from watersmeet.kernel.partial import ROWS
from watersmeet.kernel.pieces import pieces_of, reordered, row_sizes, whole
from watersmeet.kernel.probe import Rows
from watersmeet.kernel.slots import BUCKET_MASK, Slots, order_of
from watersmeet.state.manifest import LiveRun
from watersmeet.state.marks import MarkArray, MarkKind, MarkWriter
from watersmeet.state.run import Run, sort_rows, write_run

FAN_IN = 8
COMBINING_FAN_IN = 4
GROUP_ROWS = 2_000_000
GROUP_BYTES = 1 << 30
SMALL_ROWS = 4_096
"""Groups up to this size are of one tier: merging them costs next to nothing."""


Combine = Callable[[pa.RecordBatch, Slots], tuple[pa.RecordBatch, Slots]]
"""Partial rows with the upper halves of their slots, to fewer ones."""


def choose(runs: Sequence[LiveRun], *, combining: bool = False) -> list[list[str]]:
    """The merges that are due: lists of run names, oldest group first. Every run is in at most one."""
    fan_in = COMBINING_FAN_IN if combining else FAN_IN
    groups: dict[str, list[LiveRun]] = defaultdict(list)
    for live in runs:
        groups[live.run.group].append(live)
    tiers: dict[int, list[str]] = defaultdict(list)
    sizes = {name: sum(live.stored for live in members) for name, members in groups.items()}
    held = {name: sum(_stored_bytes(live) for live in members) for name, members in groups.items()}
    for name, rows in sizes.items():
        tiers[_tier(rows, fan_in)].append(name)
    merges = []
    for names in tiers.values():
        if len(names) < fan_in:
            continue
        merges += [
            [live.run.name for name in chosen for live in groups[name]]
            for chosen in ([names] if combining else _filled(names, sizes, held))
            if len(chosen) >= fan_in // 2
        ]
    return merges


def _filled(names: Sequence[str], sizes: Mapping[str, int], held: Mapping[str, int]) -> list[list[str]]:
    """The groups in order, cut so that each part holds at most `GROUP_ROWS` rows and `GROUP_BYTES`."""
    parts: list[list[str]] = [[]]
    rows = of_rows = 0
    for name in names:
        if parts[-1] and (rows + sizes[name] > GROUP_ROWS or of_rows + held[name] > GROUP_BYTES):
            parts.append([])
            rows = of_rows = 0
        parts[-1].append(name)
        rows += sizes[name]
        of_rows += held[name]
    return parts


def _stored_bytes(live: LiveRun) -> int:
    return live.run.nbytes * live.stored // max(live.run.rows, 1)


def _tier(rows: int, fan_in: int) -> int:
    tier, limit = 0, SMALL_ROWS
    while rows > limit:
        tier, limit = tier + 1, limit * fan_in
    return tier


def merge_runs(own: SideSlice, tick: int, marks: MarkWriter, combine: Combine | None = None) -> list[LiveRun]:
    """Do the merges that the side's work asks for, within this task's range; their marks go to ``marks``.

    Args:
        combine: of runs of partial aggregates, which have no marks.
    """
    by_name: dict[str, RunSlice] = {piece.name: piece for piece in own.old}
    merged = []
    for names in own.work.merges:
        pieces = [by_name[name] for name in names if name in by_name]
        group = f"{tick}-{zlib.crc32(names[0].encode()):08x}"
        if pieces and combine is not None:
            merged += list(_combined(own, pieces, group, combine))
        elif pieces:
            merged += list(_merge(own, pieces, group, marks))
    return merged


def _merge(own: SideSlice, pieces: list[RunSlice], group: str, marks: MarkWriter) -> Iterator[LiveRun]:
    """One run, or several where the rows are many bytes."""
    kinds = sorted({kind for piece in pieces for kind in (*piece.live.marks, *piece.touched)})
    batches, slots, chosen, start = [], [], [], 0
    kept_marks: dict[MarkKind, list[MarkArray]] = {kind: [] for kind in kinds}
    for piece in pieces:
        live = piece.run.live(own.work.new_limits, piece.start, piece.stop)
        if "gone" in kinds:
            live &= ~piece.marks("gone")
        rows = np.flatnonzero(live)
        if len(rows) == 0:
            continue
        batches.append(piece.batch())
        chosen.append(start + rows)
        start += len(piece.rows)
        slots.append(piece.rows.slots[rows])
        for kind in kinds:
            kept_marks[kind].append(piece.marks(kind)[rows])
    if not batches:
        return
    together, places = np.concatenate(slots), np.concatenate(chosen)
    known = {kind: np.concatenate(kept) for kind, kept in kept_marks.items() if kind != "gone"}
    merged = 0
    for rows in _parts(batches, places, together, run_bytes(own.task.memory)):
        part = reordered(pieces_of(batches), places[rows])
        sorted_rows, order = sort_rows(part, together[rows], own.task.layout, own.work.index)
        run = _written(own, pieces, sorted_rows, group)
        for kind, found in known.items():
            marks.add(run.name, kind, 0, found[rows][order])
        merged += run.rows
        yield LiveRun(run=run)
    same_rows(f'merged runs of "{own.task.name}"', len(places), merged)


def _parts(batches: Sequence[pa.RecordBatch], places: Rows, slots: Slots, most: int) -> Iterator[Rows]:
    """The rows that are merged, by number: all, or, in the order of their hashes, so many at a time that they
    are about ``most`` bytes."""
    if sum(size(batch.columns) for batch in batches) <= most:
        yield np.arange(len(places))
        return
    order = order_of(slots)
    of_rows = row_sizes(pieces_of(batches), batches[0].schema.names, places[order])
    for low, high in pairwise(cuts(of_rows, most)):
        yield order[low:high]


def _combined(own: SideSlice, pieces: list[RunSlice], group: str, combine: Combine) -> Iterator[LiveRun]:
    for ranges in zip(*(_cuts(pieces, piece, run_bytes(own.task.memory)) for piece in pieces), strict=True):
        batches, slots = [], []
        for piece, (first, end) in zip(pieces, ranges, strict=True):
            live = piece.run.live(own.work.new_limits, piece.start + first, piece.start + end)
            rows = first + np.flatnonzero(live)
            if len(rows):
                batches.append(take_rows(piece.rows.batch, rows))
                slots.append(piece.rows.slots[rows] & BUCKET_MASK)
        if batches:
            batch, buckets = combine(one_batch(batches), np.concatenate(slots))
            rows_stood_for = int(batch.column(ROWS).to_numpy(zero_copy_only=True).sum())
            sorted_rows, _ = sort_rows(batch, buckets, own.task.layout, own.work.index)
            yield LiveRun(run=_written(own, pieces, sorted_rows, group, rows_stood_for))


def _cuts(pieces: list[RunSlice], piece: RunSlice, most: int) -> list[tuple[int, int]]:
    """The positions of ``piece`` at which it is cut, by ranges of hashes that are the same for all of them:
    so many that in each part there are about `GROUP_ROWS` rows, or ``most`` bytes, of all pieces."""
    largest = max(pieces, key=lambda each: len(each.rows)).rows.slots
    held = sum(size(whole(each.rows.batch).columns) for each in pieces)
    rows = sum(len(each.rows) for each in pieces)
    parts = max(-(-rows // GROUP_ROWS), -(-held // most))
    parts = min(parts, max(1, len(largest)))
    places = [len(largest) * part // parts for part in range(1, parts)]
    found = np.searchsorted(piece.rows.slots, largest[places] & BUCKET_MASK).tolist()
    return list(zip([0, *found], [*found, len(piece.rows)], strict=True))


def _written(
    own: SideSlice, pieces: list[RunSlice], rows: SortedRows, group: str, stands_for: int | None = None
) -> Run:
    return write_run(
        own.store,
        own.task.arrangement,
        rows,
        own.task.layout,
        tick=max(piece.run.run.tick for piece in pieces),
        level=1 + max(piece.run.run.level for piece in pieces),
        group=group,
        stands_for=stands_for,
    )
