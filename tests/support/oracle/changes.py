"""A join of the oracle in changelog mode: the difference of the joins before and after a tick."""

from __future__ import annotations

from typing import Any

from tests.support.oracle.join import Changes, Entry, JoinState
from tests.support.oracle.sql import Rows
from tests.support.oracle.values import bag_key


class ChangingJoin(JoinState):
    """A join whose rows may be deleted; it puts pads out at once and takes them back.

    A row that was released may still be deleted, as long as the delete is not late: what it was part of is
    taken back. ``gone``: those rows, per side; they are not retained, and rows that come later do not meet
    them. ``missed``: of an entry, by id, the ids of those that were gone when it came; ``ever``: all entries
    that there were, so that ids stay theirs.
    """

    pads_when_released = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.gone: tuple[list[Entry], list[Entry]] = ([], [])
        self.missed: dict[int, set[int]] = {}
        self.ever: list[Entry] = []

    def _let_go(self, side: int, entry: Entry, unmatched: str) -> Changes:
        self.gone[side].append(entry)
        return super()._let_go(side, entry, unmatched)

    def _key(self, side: int, rows: Rows) -> tuple[object, ...]:
        """Equal rows of a side have equal keys."""
        return tuple(bag_key(rows[self.positions[source.alias]]) for source in self.plan.sides[side])

    def match(self, new: tuple[Changes, Changes]) -> Changes:
        """The output diffs of a tick: pairs, and pads put out or taken back."""
        out: Changes = []
        everyone = tuple(kept + gone for kept, gone in zip(self.kept, self.gone, strict=True))
        for side in (0, 1):
            kept = {self._key(side, e.rows): e for e in self.kept[side]}
            gone: dict[Any, list[Entry]] = {}
            for entry in self.gone[side]:
                gone.setdefault(self._key(side, entry.rows), []).append(entry)
            came = {id(e) for e in self.gone[1 - side]}
            net: dict[Any, tuple[Rows, int]] = {}
            for rows, diff in new[side]:
                if self._never(side, rows):
                    if self.plan.pads[side]:
                        out.append((self._pad_row(side, rows), diff))
                    self.counts[side]["padded" if self.plan.pads[side] else "filtered"] += 1
                    continue
                key = self._key(side, rows)
                net[key] = (rows, net.get(key, (rows, 0))[1] + diff)
            for key, (rows, diff) in net.items():
                if diff < 0 and key in gone:  # those that are retained go first
                    there = kept[key].count if key in kept else 0
                    for entry in gone[key]:
                        taken = min(max(-diff - there, 0), entry.count)
                        entry.delta -= taken
                        diff += taken
                if key not in kept:
                    kept[key] = Entry(rows, 0)
                    self.ever.append(kept[key])
                    self.missed[id(kept[key])] = came
                    self.kept[side].append(kept[key])
                    everyone[side].append(kept[key])
                kept[key].delta += diff
        for side in (0, 1):
            for entry in everyone[side]:
                if entry.count + entry.delta < 0:
                    self.counts[side]["not_there"] -= entry.count + entry.delta
                    entry.delta = -entry.count
        before = {id(e): e.matches for side in everyone for e in side}
        for left in everyone[0]:
            for right in everyone[1]:
                if id(right) in self.missed[id(left)] or id(left) in self.missed[id(right)]:
                    continue
                joined = self._matches(left.rows, right.rows)
                if joined is None:
                    continue
                after = (left.count + left.delta) * (right.count + right.delta)
                if after != left.count * right.count:
                    out.append((joined, after - left.count * right.count))
                for entry, other in ((left, right), (right, left)):
                    entry.matches += other.delta
                    if entry.count == 0:  # it has just come: it meets all that are there
                        entry.matches += other.count
                        before[id(entry)] = 0
        for side in (0, 1):
            for entry in everyone[side]:
                total = entry.count + entry.delta
                if self.plan.pads[side]:
                    was = entry.count if before[id(entry)] == 0 else 0
                    now = total if entry.matches == 0 else 0
                    if now != was:
                        out.append((self._pad_row(side, entry.rows), now - was))
                entry.count, entry.delta = total, 0
            for entries_of in (self.kept, self.gone):
                entries_of[side][:] = [e for e in entries_of[side] if e.count]
        return out
