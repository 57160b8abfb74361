"""Partitions of topics that were read again: whether all is there that the ticks read of them.

A tick counted its records: where as many are there, none has gone, whatever offsets are free (of
transactions, for example). Of ticks that are not known one by one a free offset may have been a record that
was compacted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from watersmeet.errors import counted
from watersmeet.why.recorded import Recorded
from watersmeet.why.reread import Missing, Numbers


class Others(Exception):
    """The records are not those that the ticks read, in words."""


@dataclass(frozen=True)
class PartRead:
    """``name``: as of a `Portion`; ``first``: the offset from which on it was read again; ``until``: up to
    which the job has read it; ``offsets``: of the records that are there from ``first`` on, rising;
    ``counted``: how many rows a tick counts of each, below zero: that is not known; None: one of each."""

    name: str
    first: int
    until: int
    offsets: Numbers
    counted: Numbers | None = None

    def rows_between(self, first: int, end: int) -> int | None:
        """Of the records that are there; None: that is not known."""
        low, high = np.searchsorted(self.offsets, [first, end])
        if self.counted is None:
            return int(high - low)
        counted = self.counted[low:high]
        return None if (counted < 0).any() else int(counted.sum())


def gone(
    history: Recorded, source: str, parts: Sequence[PartRead], *, by_keys: bool = False
) -> list[Missing]:
    """What is not there any more of what was read, of parts that are read again from ``first`` on.
    ``by_keys``: where records were compacted, that was by the keys of their table.

    Raises:
        Others: a tick read fewer records than there are.
    """
    missing: list[Missing] = []
    noun = "record" if all(part.counted is None for part in parts) else "row"
    why: Literal["gone", "compacted"] = "compacted" if by_keys else "gone"
    counts = _counts(history, source, parts)
    rows_in = history.rows_in(source)
    for slot, count in enumerate(counts):
        if count is None or count[0] == rows_in[slot]:
            continue
        there, name, position = count
        tick = history.ticks[slot]
        if there > rows_in[slot]:
            raise Others(
                f"where tick {tick} read {counted(rows_in[slot], noun)}, there are {there:,} now:"
                " they are others than those that the job has read"
            )
        lost = rows_in[slot] - there
        words = f"of the {noun}s that tick {tick} read {lost:,} can be read no more: were they compacted?"
        missing.append(Missing(words, name, position, why=why))
    for part in parts:
        missing += (replace(own, why=why) for own in _holes(history, source, part, counts))
    return missing


def _counts(history: Recorded, source: str, parts: Sequence[PartRead]) -> list[tuple[int, str, int] | None]:
    """Per slot the rows that are there of those that it read, and the first place that it read; None: not
    all of what it read is known, or was read again."""
    counts: list[tuple[int, str, int] | None] = [(0, "", 0)] * len(history)
    for part in parts:
        for slot, span in enumerate(history.spans_of(source, part.name)):
            so_far = counts[slot]
            if so_far is None or span is None or (span[0] < span[1] and span[0] < part.first):
                counts[slot] = None
                continue
            first, end = span
            if first < end:
                rows = part.rows_between(first, end)
                place = so_far[1:] if so_far[1] else (part.name, first)
                counts[slot] = None if rows is None else (so_far[0] + rows, *place)
    return counts


def _holes(
    history: Recorded, source: str, part: PartRead, counts: Sequence[tuple[int, str, int] | None]
) -> list[Missing]:
    """The first free offset of each tick whose records were not counted."""
    there = part.offsets[: np.searchsorted(part.offsets, part.until)]
    edges = np.concatenate([[part.first - 1], there, [max(part.until, part.first)]])
    starts, stops = edges[:-1] + 1, edges[1:]
    free = starts < stops
    steps = np.array(history.steps_of(source, part.name), dtype=np.int64)
    at = np.searchsorted(edges, steps) - 1
    within = (at >= 0) & (at < len(free))
    within[within] = free[at[within]] & (steps[within] < stops[at[within]])
    positions = np.unique(np.concatenate([starts[free], steps[within]]))
    _, chosen = np.unique(np.searchsorted(steps, positions, side="right"), return_index=True)
    holes: dict[int | None, int] = {}
    for position in positions[chosen].tolist():
        read_by = history.slot_of(source, part.name, position)
        slot = None if read_by is None or not read_by[1] else read_by[0]
        if slot is None or counts[slot] is None:
            holes.setdefault(slot, position)
    return [
        Missing(
            "records may have gone that were read by ticks that the history does not have one by one: not all"
            " offsets are there",
            part.name,
            position,
        )
        for position in holes.values()
    ]
