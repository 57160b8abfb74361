"""What is known of a table with a primary key of which not all records can be read again: they were
compacted, have expired, or their files have gone.

Two things are certain all the same. Of a tick of which no record is missing it is known what it did to a key,
and so it is from a record on up to the next one of its key if none is missing of the ticks between them. And
where Kafka has compacted a topic, the last record of a key is there unless it was a delete: if the table has
as many rows as there are keys whose last record brings one, then it has these rows, and no others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from watersmeet.event_time import Mask
from watersmeet.history.points import subject_of
from watersmeet.why.answer import Record, Tick, Told, What, line_of
from watersmeet.why.changed.versions import Kind, Records
from watersmeet.why.judged import BENEATH, FILTERED
from watersmeet.why.rows import QueryRows, Spot

NOTHING = -1
"""In place of a record's number."""


class Remains:
    """Tells fates of records of an input that is a table with a primary key. ``record``: a record by its
    number, for an answer."""

    def __init__(
        self, rows: QueryRows, records: Records, alias: str, source: str, record: Callable[[int], Record]
    ) -> None:
        self._rows, self._records, self._alias, self._source = rows, records, alias, source
        self._record, self._certainty = record, rows.certainty[source]

    @property
    def _can_tell(self) -> bool:
        """Of changes that count by a sequence it is not known which were older than ones that are missing."""
        is_keyed = self._records.kind is Kind.KEYED and self._records.sequence is None
        return is_keyed and self._certainty.is_ordered and not self._rows.shed

    def told(self, spot: Spot, number: int, failed: Callable[[], str], lacking: str) -> Told | None:
        """Of a record that some tick read; None: nothing is known of it. ``lacking``: why not more is."""
        if not self._can_tell:
            return None
        slot = int(self._records.slots[number])
        group = [one for one in self._records.of_group(number) if self._records.diffs[one]]
        at = group.index(number)
        before, after = group[:at], group[at + 1 :]
        if self._records.diffs[number] < 0:
            told = self._of_delete(slot, before, after)
        else:
            told = self._of_row(spot, number, before, after)
        if told is None:
            return None
        what, text, more = told
        if what in ("there", "replaced", "withdrawn"):
            if spot.came_to in (FILTERED, BENEATH):
                return "filtered", f"{text}; filtered by {failed()}", more
            text += f"; what was made of it is not known: {lacking}"
        return what, text, more

    def _of_delete(self, slot: int, before: list[int], after: list[int]) -> Told | None:
        tick = self._tick(slot)
        if not self._is_whole(slot, slot) or (after and self._records.slots[after[0]] == slot):
            return None
        other = self._before(slot, before)
        if other is None:
            return "delete", f"deleted its key {tick}; what was there before is not known", {}
        if other == NOTHING or self._records.diffs[other] < 0:
            return "delete_of_nothing", f"a delete of what was not there {tick}: not applied", {}
        taken = self._record(other)
        return "delete", f"took {line_of(taken.row)} away {tick}", {"instead_of": taken}

    def _of_row(self, spot: Spot, number: int, before: list[int], after: list[int]) -> Told | None:
        slots, slot = self._records.slots, int(self._records.slots[number])
        since = str(self._rows.tick(spot)).removeprefix("in ").removeprefix("by ")
        if not self._exact[number]:
            since += " or before"
        if after and slots[after[0]] == slot and self._exact[[number, after[0]]].all():
            other = self._record(after[0])
            words = (
                "its key was deleted" if self._records.diffs[after[0]] < 0 else f"{line_of(other.row)} came"
            )
            return "never_there", f"there after no tick: {words} after it in {since}", {"by": other}
        more: dict[str, Any] = {}
        was = self._before(slot, [one for one in before if slots[one] < slot])
        if was is None:
            since += ", in the place of nothing, or of what is not known"
        elif was != NOTHING and self._records.diffs[was] > 0:
            more["instead_of"] = self._record(was)
            since += f", in the place of {line_of(more['instead_of'].row)}"
        last = len(self._rows.history) - 1
        if not after:
            if self._is_whole(slot, last) or self._stays(number):
                return "there", f"there since {since}", more
            return None
        until = int(slots[after[0]])
        if until == slot or not self._is_whole(slot, until):
            return None
        left = self._tick(until)
        by = [one for one in after if slots[one] == until][-1]
        more |= {"left": left, "by": self._record(by)}
        what: What = "replaced" if self._records.diffs[by] > 0 else "withdrawn"
        words = f"{line_of(more['by'].row)} took its place" if what == "replaced" else "it was deleted"
        return what, f"there from {since}, until {str(left).removeprefix('in ')}, in which {words}", more

    # what is certain

    def _before(self, slot: int, before: list[int]) -> int | None:
        """The record of its key that counted last before those of a tick; `NOTHING`: there was none; None:
        that is not known."""
        if before:
            return before[-1] if self._is_whole(int(self._records.slots[before[-1]]), slot) else None
        from_begin = self._is_whole(0, slot) and not self._rows.history.is_behind_gap(0)
        return NOTHING if from_begin else None

    def _is_whole(self, first: int, last: int) -> bool:
        """Whether all is there that the ticks of these slots, and of those between them, did to the table."""
        history, query = self._rows.history, self._rows.query
        began = history.levels(subject_of("query", query.name), "total_rows_out")[first] is not None
        unknown = history.levels(subject_of("input", query.name, self._alias), "unknown")[last]
        return (
            began
            and not unknown
            and all(slot in self._certainty.whole for slot in range(first, last + 1))
            and not any(history.is_behind_gap(slot) for slot in range(first + 1, last + 1))
            and not self._may_be_earlier[self._records.slots >= first].any()
        )

    @cached_property
    def _exact(self) -> Mask:
        exact: Mask = np.concatenate([own.of.exact for own in self._rows.inputs[self._alias]])
        return exact

    @cached_property
    def _may_be_earlier(self) -> Mask:
        """The records that a tick has read, or may have, that is maybe not the one of their slot, but one
        before."""
        exact, count = self._exact, len(self._rows.history)
        untold = np.concatenate([own.of.untold for own in self._rows.inputs[self._alias]])
        earlier: Mask = untold | (~exact & (self._records.slots < count))
        return earlier

    def _stays(self, number: int) -> bool:
        """Whether the row of a key's last record is there after the last tick, whatever else of it is."""
        return self.rows_there is not None and number in self.rows_there

    @cached_property
    def rows_there(self) -> frozenset[int] | None:
        """The records whose rows the table has after the last tick, but for those of keys that have records
        which came later; None: that is not known."""
        history, records = self._rows.history, self._records
        if not (self._can_tell and self._certainty.is_compacted):
            return None
        unsure = np.concatenate([own.unsure for own in self._rows.inputs[self._alias]])
        if (unsure & (records.slots < len(history))).any():
            return None
        subject = subject_of("input", self._rows.query.name, f"{self._alias}.{self._source}")
        count = history.levels(subject, "retained")[-1]
        taken = np.flatnonzero(records.taken & (records.diffs != 0))
        order = taken[np.lexsort((taken, records.slots[taken], records.group[taken]))]
        is_last = np.append(records.group[order][1:] != records.group[order][:-1], len(order) > 0)[
            : len(order)
        ]
        alive = order[is_last & (records.diffs[order] > 0)]
        later = np.unique(records.group[~records.taken & (records.slots >= len(history))])
        if count is None or count != len(alive) or not np.isin(later, records.group[alive]).all():
            return None
        return frozenset(alive[~np.isin(records.group[alive], later)].tolist())

    def _tick(self, slot: int) -> Tick:
        return Tick(self._rows.history.ticks[slot])
