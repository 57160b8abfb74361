"""One join of the oracle: the rows that it keeps, every pair tested, every row looked at in every tick."""

from __future__ import annotations

from typing import Any

from tests.support.oracle.inputs import Key
from tests.support.oracle.model import JoinPlan, Query
from tests.support.oracle.sql import Rows
from tests.support.oracle.values import NEVER, saturate

COUNTS = ("in", "late", "null_time", "filtered", "matched", "padded", "released", "passed", "not_there")

Changes = list[tuple[Rows, int]]
"""Rows with their diffs. A row holds one dict per input of the query, empty for inputs that are not in it."""


class Entry:
    """A retained row (in changelog mode: a row and how many there are of it)."""

    def __init__(self, rows: Rows, count: int) -> None:
        self.rows = rows
        self.count = count
        self.delta = 0
        self.matches = 0
        """How many rows of the other side it has matched, gone ones included."""


class JoinState:
    """A join being run in append mode, tick by tick."""

    pads_when_released = True

    def __init__(self, plan: JoinPlan, query: Query, rule: str, counts: dict[str, dict[str, int]]) -> None:
        self.plan = plan
        self.rule = rule
        self.positions = {source.alias: i for i, source in enumerate(query.inputs)}
        self.keys: list[tuple[Key, int]] = [
            ((source.alias, t), side) for side in (0, 1) for source in plan.sides[side] for t in source.times
        ]
        self.shown = [(key, side) for key, side in self.keys if side == 0 or not plan.left_only]
        """The keys that it puts out watermarks of."""
        left = {source.alias for source in plan.sides[0]}
        self.from_left = [source.alias in left for source in query.inputs]
        self.nulls = [dict.fromkeys(source.kinds) for source in query.inputs]
        self.kept: tuple[list[Entry], list[Entry]] = ([], [])
        self.put_out: dict[Key, Any] = {key: NEVER for key, _ in self.shown}
        """Output watermarks so far."""
        self.counts = tuple(
            counts[plan.sides[side][0].alias] if plan.feeds[side] is None else dict.fromkeys(COUNTS, 0)
            for side in (0, 1)
        )
        """Per side, what became of its rows; nobody asks for that of rows between joins."""
        self.lateness = 0
        """allowed_lateness, for the rule ``join``."""

    def retained(self) -> int:
        """How many rows both sides keep."""
        return sum(entry.count for side in self.kept for entry in side)

    # 3, 6: matching

    def _joined(self, left: Rows, right: Rows) -> Rows:
        return tuple([a if of_left else b for a, b, of_left in zip(left, right, self.from_left, strict=True)])

    def _pad_row(self, side: int, rows: Rows) -> Rows:
        """A row with NULLs for the inputs of the other side; of an ANTI join, the row."""
        if self.plan.left_only:
            return rows
        other = {self.positions[source.alias] for source in self.plan.sides[1 - side]}
        return tuple(self.nulls[i] if i in other else rows[i] for i in range(len(rows)))

    def _never(self, side: int, rows: Rows) -> bool:
        """Whether a row can match nothing, whatever comes."""
        return any(f(rows) is not True for f in self.plan.never[side])

    def _matches(self, left: Rows, right: Rows) -> Rows | None:
        """The joined row, if the whole condition is TRUE."""
        rows = self._joined(left, right)
        for f in self.plan.condition:
            if f(rows) is not True:
                return None
        return rows

    def match(self, new: tuple[Changes, Changes]) -> Changes:
        """Every pair of which at least one is new; new rows are kept, or are padded at once.

        A left row of a SEMI join goes out with its first match and is not kept; one of an ANTI join does not
        go out with a match.
        """
        out: Changes = []
        fresh = tuple([Entry(rows, 1) for rows, _ in side] for side in new)
        for lefts, rights in ((self.kept[0], fresh[1]), (fresh[0], self.kept[1] + fresh[1])):
            for left in lefts:
                for right in rights:
                    rows = self._matches(left.rows, right.rows)
                    if rows is not None:
                        if self.plan.kind == "SEMI" and not left.matches:
                            out.append((left.rows, 1))
                        left.matches += 1
                        right.matches += 1
                        if not self.plan.left_only:
                            out.append((rows, 1))
        for side in (0, 1):
            for entry in fresh[side]:
                if self._never(side, entry.rows):
                    out += self._let_go(side, entry, "filtered")
                else:
                    self.kept[side].append(entry)
        if self.plan.kind == "SEMI":
            for entry in self.kept[0]:
                if entry.matches:
                    self._let_go(0, entry, "matched")
            self.kept[0][:] = [entry for entry in self.kept[0] if not entry.matches]
        return out

    def _let_go(self, side: int, entry: Entry, unmatched: str) -> Changes:
        """A row leaves the state: its pad, if it is owed one."""
        counts = self.counts[side]
        if entry.matches:
            counts["matched"] += entry.count
        elif self.plan.pads[side]:
            counts["padded"] += entry.count
            if self.pads_when_released:
                return [(self._pad_row(side, entry.rows), 1)]
        else:
            counts[unmatched] += entry.count
        return []

    # the rule ``join``, where lateness goes by the join

    def reach(self) -> int:
        """The greater of |min delta| and |max delta|, where delta is right time - left time."""
        return max(abs(c) for c in self.plan.links.values())

    def late(self, time: int, least: Any) -> bool:
        """Whether a row is late, or is to leave; ``least``: the least watermark of all sources."""
        return bool(time + self.reach() + self.lateness < least)

    # 5, 7: release and watermarks

    def _limit(self, key: Key, marks: dict[Key, tuple[Any, int]]) -> Any:
        """limit[key] less allowed_lateness, or None for a key with no bound on it."""
        limits = []
        for (evicted, by), chains in self.plan.chains.items():
            for chain in chains if evicted == key else ():
                mark, lateness = marks[by]
                for c in reversed(chain):
                    mark = saturate(mark - c)
                limits.append(saturate(mark - lateness))
        return max(limits) if limits else None

    def release(self, marks: dict[Key, tuple[Any, int]], ended: bool) -> Changes:
        """Let go of every row with a time below its limit; a NULL time (of a padded input) releases nothing.

        ``marks``: per key, the watermark with which it comes into this join and the lateness that is still to
        be taken off: allowed_lateness of an input's, 0 of one that another join put out.
        """
        out: Changes = []
        least = min((mark for mark, _ in marks.values()), default=NEVER)
        for side in (0, 1):
            limits = [(key, self._limit(key, marks)) for key, of in self.keys if of == side]
            kept = []
            for entry in self.kept[side]:
                gone = ended
                for (alias, column), limit in limits:
                    time = entry.rows[self.positions[alias]][column]
                    if self.rule == "join":
                        gone = gone or self.late(time, least)
                    elif limit is not None and time is not None and time < limit:
                        gone = True
                if gone:
                    out += self._let_go(side, entry, "released")
                else:
                    kept.append(entry)
            self.kept[side][:] = kept
        return out

    def advance(self, marks: dict[Key, tuple[Any, int]]) -> dict[Key, Any]:
        """The output watermarks that rose with this tick; to be called after ``release``."""
        rose = {}
        for key, side in self.shown:
            alias, column = key
            mark = saturate(marks[key][0] - marks[key][1])
            if self.rule == "join":
                mark = saturate(min(mark for mark, _ in marks.values()) - self.reach() - self.lateness)
            elif self.rule == "limit":
                limit = self._limit(key, marks)
                mark = NEVER if limit is None else min(mark, limit)
            else:
                times = [entry.rows[self.positions[alias]][column] for entry in self.kept[side]]
                mark = min([mark, *(t for t in times if t is not None)])
            if mark > self.put_out[key]:
                self.put_out[key] = rose[key] = mark
        return rose
