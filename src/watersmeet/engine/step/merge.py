"""Merging runs: many small ones become one, released rows fall away, marks come along.

The driver says which runs (`choose`), every join task does its hash range, after the tick's marks. The policy
is size-tiered: `FAN_IN` groups of about one size become one group of the next, so that a row is rewritten
O(log state) times; groups are not grown beyond `GROUP_ROWS`, so that what is kept on disk after its release
is bounded by one group per end of the retained span.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from watersmeet.engine.step.slice import RunSlice, SideSlice, concat_batches
from watersmeet.state.manifest import LiveRun
from watersmeet.state.marks import MarkArray, MarkKind, MarkWriter
from watersmeet.state.run import sort_rows, take_rows, write_run

FAN_IN = 8
GROUP_ROWS = 2_000_000
SMALL_ROWS = 4_096
"""Groups up to this size are of one tier: merging them costs next to nothing."""


def choose(runs: Sequence[LiveRun]) -> list[list[str]]:
    """The merges that are due: lists of run names, oldest group first. Every run is in at most one."""
    groups: dict[str, list[LiveRun]] = defaultdict(list)
    for live in runs:
        groups[live.run.group].append(live)
    tiers: dict[int, list[str]] = defaultdict(list)
    sizes = {name: sum(live.run.rows - live.released for live in members) for name, members in groups.items()}
    for name, size in sizes.items():
        tiers[_tier(size)].append(name)
    merges = []
    for names in tiers.values():
        if len(names) < FAN_IN:
            continue
        merges += [
            [live.run.name for name in chosen for live in groups[name]]
            for chosen in _filled(names, sizes)
            if len(chosen) >= FAN_IN // 2
        ]
    return merges


def _filled(names: Sequence[str], sizes: Mapping[str, int]) -> list[list[str]]:
    """The groups in order, cut so that each part holds at most `GROUP_ROWS` rows."""
    parts: list[list[str]] = [[]]
    total = 0
    for name in names:
        if parts[-1] and total + sizes[name] > GROUP_ROWS:
            parts.append([])
            total = 0
        parts[-1].append(name)
        total += sizes[name]
    return parts


def _tier(rows: int) -> int:
    tier, limit = 0, SMALL_ROWS
    while rows > limit:
        tier, limit = tier + 1, limit * FAN_IN
    return tier


def merge_runs(own: SideSlice, tick: int, marks: MarkWriter) -> list[LiveRun]:
    """Do the merges that the side's work asks for, within this task's range; their marks go to ``marks``."""
    by_name: dict[str, RunSlice] = {piece.name: piece for piece in own.old}
    merged = []
    for names in own.work.merges:
        pieces = [by_name[name] for name in names if name in by_name]
        group = f"{tick}-{zlib.crc32(names[0].encode()):08x}"
        found = _merge(own, pieces, tick, group, marks) if pieces else None
        if found is not None:
            merged.append(found)
    return merged


def _merge(
    own: SideSlice, pieces: list[RunSlice], tick: int, group: str, marks: MarkWriter
) -> LiveRun | None:
    batches, slots = [], []
    kinds = sorted({kind for piece in pieces for kind in (*piece.live.marks, *piece.touched)})
    kept_marks: dict[MarkKind, list[MarkArray]] = {kind: [] for kind in kinds}
    for piece in pieces:
        live = piece.run.live(own.work.new_limits, piece.start, piece.stop)
        if "gone" in kinds:
            live &= ~piece.marks("gone")
        rows = np.flatnonzero(live)
        if len(rows) == 0:
            continue
        whole = len(rows) == len(piece.rows)
        batches.append(piece.batch() if whole else take_rows(piece.batch(), rows))
        slots.append(piece.rows.slots[rows])
        for kind in kinds:
            kept_marks[kind].append(piece.marks(kind)[rows])
    if not batches:
        return None
    layout = own.task.layout
    sorted_rows, order = sort_rows(concat_batches(batches), np.concatenate(slots), layout, own.work.index)
    level = 1 + max(piece.run.run.level for piece in pieces)
    newest = max(piece.run.run.tick for piece in pieces)
    run = write_run(
        own.store, own.task.arrangement, sorted_rows, layout, tick=newest, level=level, group=group
    )
    for kind in kinds:
        if kind != "gone":
            marks.add(run.name, kind, 0, np.concatenate(kept_marks[kind])[order])
    return LiveRun(run=run)
