"""What ingest and the watermarks made of the rows of a query's inputs, by the rules of the engine.

Rows of which the tick is not known exactly, and that were late if it was the last that it can have been, are
``unsure``: nobody can tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from watersmeet.engine.values import to_table
from watersmeet.event_time import MIN_TIME, Mask, Times
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.spec.flags import FLAG_BENEATH, FLAG_CANDIDATE, FLAG_FILTERED
from watersmeet.whatif.judged import BranchRows, Kept, Marks, branch_rows, kept_of
from watersmeet.whatif.sample import Arrived, Sample
from watersmeet.why.recorded import Recorded
from watersmeet.why.reread import UNREAD, Numbers, Reread

BENEATH, AHEAD, LATE, NULL_TIME, FILTERED, UNMATCHABLE, MAY_MATCH, NOT_YET = range(8)
"""What a row came to. `NOT_YET`: no tick that is known has read it."""


@dataclass(frozen=True)
class SourceRows:
    """All rows of a source that were read again. ``slot``: that of the tick that read each, as far as
    ``exact`` says, or of a later one; the number of slots where none did. ``read``: some tick did;
    ``untold``: and it may have been any; ``later``: the tick of the slot before had not read it, for certain.
    ``portion``: which of `Reread.portions` each is of."""

    reread: Reread
    rows: pa.Table
    slot: Numbers
    exact: Mask
    read: Mask
    untold: Mask
    later: Mask
    portion: Numbers

    def place(self, row: int) -> str:
        """Where the row stands, for people."""
        number = int(self.portion[row])
        first = int(np.searchsorted(self.portion, number))
        return self.reread.portions[number].place_of(row - first)


def placed(reread: Reread, history: Recorded) -> SourceRows:
    """The rows, each with its tick. Raises: nothing; there may be no rows."""
    name, slots, exacts, reads, untold, later = reread.source.name, [], [], [], [], []
    for portion in reread.portions:
        read_by = None
        if portion.position != UNREAD:
            read_by = history.slot_of(name, portion.part, portion.position)
        slots.append(len(history) if read_by is None else read_by[0])
        exacts.append(read_by is not None and read_by[1])
        later.append(
            read_by is not None
            and history.is_after_slot_before(name, portion.part, portion.position, read_by[0])
        )
        is_read = portion.position != UNREAD
        reads.append(is_read)
        is_beyond = history.is_beyond(name, portion.part, portion.position)
        untold.append(is_read and read_by is None and not is_beyond)
    counts = [portion.rows.num_rows for portion in reread.portions]
    none = to_table(reread.source.columns, [], [])
    return SourceRows(
        reread,
        pa.concat_tables([none, *(portion.rows for portion in reread.portions)]).combine_chunks(),
        np.repeat(np.array(slots, dtype=np.int64), counts),
        np.repeat(np.array(exacts, dtype=np.bool_), counts),
        np.repeat(np.array(reads, dtype=np.bool_), counts),
        np.repeat(np.array(untold, dtype=np.bool_), counts),
        np.repeat(np.array(later, dtype=np.bool_), counts),
        np.repeat(np.arange(len(counts), dtype=np.int64), counts),
    )


@dataclass(frozen=True)
class InputRows:
    """The rows of one branch of an input. ``late_after``: see `Recorded`; ``released``: per row that may
    match the slot in which it left, ``never`` where it has not."""

    side: SidePlan
    of: SourceRows
    own: BranchRows
    kept: Kept
    marks: Marks
    late_after: Mapping[str, Times]
    never: int

    @property
    def number(self) -> int:
        """That of the branch."""
        return self.own.number

    @cached_property
    def came_to(self) -> Numbers:
        """Per row what it came to, by the order in which ingest judges."""
        own, flags = self.own, self.own.flags
        came = np.full(len(flags), UNMATCHABLE, dtype=np.int64)
        came[flags == FLAG_CANDIDATE] = MAY_MATCH
        came[flags == FLAG_FILTERED] = FILTERED
        came[own.null_time(self.kept.late)] = NULL_TIME
        came[self.kept.late] = LATE
        came[own.part & ~own.judged] = AHEAD
        came[flags == FLAG_BENEATH] = BENEATH
        came[self.of.slot >= self.never - 1] = NOT_YET
        return came

    @cached_property
    def unsure(self) -> Mask:
        """Per row whether what it came to goes by a tick that is not known."""
        late = (self.came_to == LATE) & ~self.of.exact & ~self.was_late_before
        ahead: Mask = np.zeros(len(late), dtype=np.bool_)
        if self.own.arrived.source.max_ahead_us is not None:
            ahead = ~self.of.exact & (self.came_to != BENEATH) & (self.came_to != NOT_YET)
        unsure: Mask = late | ahead | self.of.untold
        return unsure

    @cached_property
    def was_late_before(self) -> Mask:
        """Per row whether it was late whichever tick read it: by the watermark of one before them all."""
        late: Mask = np.zeros(len(self.of.slot), dtype=np.bool_)
        rows = np.flatnonzero(self.of.later)
        for column, times in self.own.times.items():
            present = self.own.present[column]
            below = self.late_after[self.side.watermark_key(column)][self.of.slot[rows] - 1]
            by_this = times[rows] < below
            late[rows] |= by_this if present is None else by_this & present[rows]
        return late

    @cached_property
    def released(self) -> Numbers:
        """Per row the slot in which it left the state; ``never``: none."""
        released = np.full(len(self.of.slot), self.never, dtype=np.int64)
        released[self.kept.rows] = self.kept.released
        return released

    def late_key(self, row: int) -> tuple[str, int, int]:
        """Of a late row: the watermark key by which it was late most, its time, and the least time that was
        not late."""
        slot, marks = int(self.of.slot[row]), self.marks.late_below
        if not self.of.exact[row] and self.was_late_before[row]:
            slot, marks = slot - 1, self.late_after  # which tick read it is not known
        late_by = []
        for column, times in self.own.times.items():
            present = self.own.present[column]
            if present is None or present[row]:
                key = self.side.watermark_key(column)
                below = int(marks[key][slot])
                late_by.append((key, int(times[row]), below))
        return max(late_by, key=lambda of: of[2] - of[1])


def inputs_of(
    query: QueryPlan, sources: Mapping[str, SourceRows], history: Recorded
) -> dict[str, list[InputRows]]:
    """The rows of all inputs of a query that are of sources, by alias.

    Raises:
        EngineError: an expression is one that only Spark computes, or fails.
    """
    marks, late_after = _with_one_more(history.marks_of(query)), history.late_after(query)
    never = len(history) + 1
    clocks = np.array([clock or 0 for clock in (*history.clocks(), 0)], dtype=np.int64)
    arrived = {
        name: Arrived(own.reread.source, own.rows, own.slot, np.zeros(len(own.slot), dtype=np.int64))
        for name, own in sources.items()
    }
    sample = Sample(arrived, clocks, by_arrival=True, in_time=True)
    inputs: dict[str, list[InputRows]] = {}
    branches = [(side, *own) for side in query.sides for own in side.ingested]
    for side, number, branch in branches:
        own = branch_rows(query, side, number, branch, sample)
        kept, of = kept_of(own, marks), sources[own.source]
        released = kept.released.copy()
        released[released >= len(history)] = never
        if history.ended is not None:
            released = np.where(
                of.slot[kept.rows] <= history.ended, np.minimum(released, history.ended), never
            )
        kept = Kept(kept.late, kept.null_time, kept.rows, released)
        inputs.setdefault(own.side.name, []).append(
            InputRows(own.side, of, own, kept, marks, late_after, never)
        )
    return inputs


def _with_one_more(marks: Marks) -> Marks:
    """With a slot for rows that no tick has read: nothing is late in it, and nothing leaves."""

    def more(times: Times, at_end: int | None) -> Times:
        return np.append(times, np.int64(times[-1] if at_end is None else at_end))

    return Marks(
        {key: more(times, MIN_TIME) for key, times in marks.late_below.items()},
        {key: more(times, None) for key, times in marks.limits.items()},
        {},
    )
