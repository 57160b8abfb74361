"""What became of every row of a case, by the nested-loop oracle, which shares no code with the engine: each
row gets a number (`numbered`), and the oracle's joins are listened to.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from tests.support.oracle.case import Oracle
from tests.support.oracle.join import Changes, Entry, JoinState
from tests.support.oracle.sql import Rows

ROW = "rid"
Who = tuple[str, int]
"""Input, number of the row."""


def number_rows(case: dict[str, Any]) -> dict[str, Any]:
    """The case with a number in every row, beside its columns."""
    case = copy.deepcopy(case)
    for declared in case["streams"].values():
        declared["columns"][ROW] = "BIGINT"
    case["query"] = (
        case["query"]
        .replace("(SELECT ", f"(SELECT {ROW}, ")
        .replace("UNION ALL SELECT ", f"UNION ALL SELECT {ROW}, ")
    )
    count = 0
    for step in case["steps"]:
        for given in step.get("rows", ()):
            given[1] = {**given[1], ROW: count}
            count += 1
    return case


@dataclass
class Known:
    """``came``: the tick it came in; ``what``: late, null_time, filtered, or new; ``met``: whom, in which
    tick; ``left``: the tick in which it left the join, and as what (None: as one that had met)."""

    came: int
    what: str
    met: dict[Who, int] = field(default_factory=dict)
    left: int | None = None
    as_what: str | None = None


class _Listening(JoinState):
    """The oracle's join; ``heard``: of all rows, ``tick``: the one at hand."""

    heard: dict[Who, Known]
    oracle: Any

    def _who(self, side: int, rows: Rows) -> Who:
        alias = self.plan.sides[side][0].alias
        return alias, rows[self.positions[alias]][ROW]

    def _matches(self, left: Rows, right: Rows) -> Rows | None:
        rows = super()._matches(left, right)
        if rows is not None:
            one, other = self._who(0, left), self._who(1, right)
            self.heard[one].met[other] = self.heard[other].met[one] = self.oracle.tick
        return rows

    def _let_go(self, side: int, entry: Entry, unmatched: str) -> Changes:
        known = self.heard[self._who(side, entry.rows)]
        known.left = self.oracle.tick
        if not entry.matches:
            known.as_what = "padded" if self.plan.pads[side] else unmatched
        return super()._let_go(side, entry, unmatched)


def fates(case: dict[str, Any]) -> dict[Who, Known]:
    """Of a case of two inputs, in append mode, whose rows are `numbered`; up to the end of its steps.

    Raises: Refused, Unsupported, as the oracle.
    """
    oracle: Any = Oracle(case)
    heard: dict[Who, Known] = {}
    (block,) = oracle.blocks
    assert type(block.joins[0]) is JoinState
    join: Any = block.joins[0]
    join.__class__ = _Listening
    join.heard, join.oracle, oracle.tick = heard, oracle, 0
    judge = block.judge

    def record_verdict(source: Any, branch: Any, rows: Rows, values: Any, diff: int) -> str:
        verdict: str = judge(source, branch, rows, values, diff)
        heard[source.alias, values[ROW]] = Known(oracle.tick, verdict)
        return verdict

    block.judge = record_verdict
    for step in case["steps"]:
        if "restart" not in step and "rescale" not in step:
            oracle.tick += 1
        oracle.step(step)
    return heard
