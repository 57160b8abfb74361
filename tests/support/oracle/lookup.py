"""A join of the oracle with a table as of the tick: every row against all that the table holds."""

from __future__ import annotations

from typing import Any

from tests.support.oracle.inputs import Key
from tests.support.oracle.join import Changes, Entry, JoinState
from tests.support.oracle.model import JoinPlan, Query
from tests.support.oracle.sql import Rows
from tests.support.oracle.values import Refused, saturate


class Lookup(JoinState):
    """See the module; ``held``: the rows of the table."""

    def __init__(self, plan: JoinPlan, query: Query, rule: str, counts: dict[str, dict[str, int]]) -> None:
        super().__init__(plan, query, rule, counts)
        self.held: list[Rows] = []

    def match(self, new: tuple[Changes, Changes]) -> Changes:
        """The tick's rows of the left side, with what the table holds after the tick's changes to it."""
        for rows, diff in sorted(new[1], key=lambda change: -change[1]):
            for _ in range(abs(diff)):
                if diff > 0:
                    self.held.append(rows)
                elif rows in self.held:
                    self.held.remove(rows)
                else:
                    raise Refused("a row of a table is deleted that is not there")
        out: Changes = []
        for rows, _ in new[0]:
            entry = Entry(rows, 1)
            for held in self.held:
                joined = self._matches(rows, held)
                if joined is not None:
                    entry.matches += 1
                    if not self.plan.left_only:
                        out.append((joined, 1))
            if entry.matches and self.plan.kind == "SEMI":
                out.append((rows, 1))
            out += self._let_go(0, entry, "filtered" if self._never(0, rows) else "released")
        return out

    def release(self, marks: dict[Key, tuple[Any, int]], ended: bool) -> Changes:
        """Nothing is kept."""
        return []

    def advance(self, marks: dict[Key, tuple[Any, int]]) -> dict[Key, Any]:
        """Watermarks pass, whatever the rule."""
        rose = {}
        for key, _ in self.shown:
            mark = saturate(marks[key][0] - marks[key][1])
            if mark > self.put_out[key]:
                self.put_out[key] = rose[key] = mark
        return rose
