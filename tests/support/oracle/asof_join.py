"""An ASOF join of the oracle, by plain loops.

In every tick every left row that is kept looks at every right row that is kept. It goes out when no right row
that may still come, by the watermark, could be nearer than what it found. Of equal times the row that came
first is taken: by tick, branch, source partition, place.
"""

from __future__ import annotations

from typing import Any

from tests.support.oracle.inputs import Key
from tests.support.oracle.join import Changes, Entry, JoinState
from tests.support.oracle.model import JoinPlan, Query
from tests.support.oracle.sql import Rows
from tests.support.oracle.values import ENDED, NEVER, same, saturate

FROM = "#from"
"""In a row of an input: (number of its branch, source partition)."""


class AsofJoin(JoinState):
    """A join of which every left row leaves once. Its output watermarks go by the rule ``tight``."""

    def __init__(self, plan: JoinPlan, query: Query, rule: str, counts: dict[str, dict[str, int]]) -> None:
        super().__init__(plan, query, "tight", counts)
        assert plan.asof is not None
        self.asof = plan.asof
        self.tick = 0
        self.asked: Any = NEVER
        self.came: dict[int, tuple[int, Any, int]] = {}

    def match(self, new: tuple[Changes, Changes]) -> Changes:
        """Take the rows of a tick; a left row that can match nothing goes out at once, padded or not."""
        self.tick += 1
        out: Changes = []
        for side in (0, 1):
            for place, (rows, _) in enumerate(new[side]):
                entry = Entry(rows, 1)
                if self._never(side, rows):
                    out += self._let_go(side, entry, "filtered")
                    continue
                if side == 1:
                    source = rows[self.asof.places[1]][FROM]
                    self.came[id(entry)] = (self.tick, source, place)
                self.kept[side].append(entry)
        return out

    def _time(self, side: int, entry: Entry) -> Any:
        alias, column = (self.asof.left, self.asof.right)[side]
        return entry.rows[self.positions[alias]][column]

    def _rank(self, entry: Entry) -> tuple[Any, Any]:
        """Right rows in the order in which they are taken."""
        time = self._time(1, entry)
        return (-time if self.asof.latest else time, self.came[id(entry)])

    def _nearest(self, left: Entry) -> Entry | None:
        matches = [right for right in self.kept[1] if self._matches(left.rows, right.rows) is not None]
        return min(matches, key=self._rank, default=None)

    def _is_decided(self, left: Entry, best: Entry | None, settled: Any) -> bool:
        """No time from ``settled`` on is nearer than that of the best one."""
        low, high = self.asof.reach(self._time(0, left))
        if best is not None and self.asof.latest:
            low = self._time(1, best) + 1
        elif best is not None:
            high = self._time(1, best) - 1
        open_yet: bool = max(low, settled) > high
        return open_yet

    def release(self, marks: dict[Key, tuple[Any, int]], ended: bool) -> Changes:
        left, settled = (saturate(marks[key][0] - marks[key][1]) for key in (self.asof.left, self.asof.right))
        out: Changes = []
        times = [self._time(0, entry) for entry in self.kept[0]]
        waiting = []
        for entry in self.kept[0]:
            best = self._nearest(entry)
            if not self._is_decided(entry, best, settled):
                waiting.append(entry)
                continue
            if best is not None:
                entry.matches += 1
                best.matches += 1
                out.append((self._joined(entry.rows, best.rows), 1))
            out += self._let_go(0, entry, "released")
        self.kept[0][:] = waiting
        self._release_right(self._still_asking(times, left, settled))
        return out

    def _still_asking(self, times: list[int], left: Any, settled: Any) -> Any:
        """The least left time that may ask from the next tick on: of rows on time, and of those that were
        there in this tick, unless the right watermark alone decided them."""
        if settled in (NEVER, ENDED):
            decided = settled
        else:
            first = self.asof.first_asking(settled)
            decided = ENDED if first is None else first
        asked = min(left, max(min(times), decided)) if times else left
        self.asked = max(self.asked, asked)
        return self.asked

    def _release_right(self, asked: Any) -> None:
        """Keep what lies in the reach of who still asks; of older rows the last one of each key, where the
        latest row is taken."""
        if asked == NEVER:
            return
        floor, last = ENDED, ENDED
        if asked != ENDED:
            bottom, top = self.asof.floor(asked), self.asof.ceiling(asked)
            floor, last = ENDED if bottom is None else bottom, NEVER if top is None else top
        kept = []
        for entry in self.kept[1]:
            time = self._time(1, entry)
            older = time < last and self.asof.latest
            if time >= floor and not (older and self._is_followed(entry, last)):
                kept.append(entry)
            else:
                self._let_go(1, entry, "released")
        self.kept[1][:] = kept

    def _is_followed(self, entry: Entry, last: Any) -> bool:
        """Whether a row of the same key, below ``last``, is taken before this one."""
        return any(
            self._time(1, other) < last
            and self._rank(other) < self._rank(entry)
            and self._same_key(entry.rows, other.rows)
            for other in self.kept[1]
        )

    def _same_key(self, one: Rows, other: Rows) -> bool:
        pairs = [(f(one), f(other)) for f in self.asof.keys]
        return all((a is None and b is None) or same(a, b) is True for a, b in pairs)
