"""What the steps of a replayed case did: rows with values as in case files, and lines that say why.

Times are canonical (`event_time`); `Trace.time` writes them as a case file does. Rows hold the columns that
a side keeps, by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from watersmeet.conditions import Horizon
from watersmeet.event_time import NEVER, Side, Watermark
from watersmeet.plan.explain.wording import distance
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import AggregatePlan, JoinPlan, MatchPlan
from watersmeet.plan.query_inputs import unit_of_type
from watersmeet.runtime.coordinator.input_watermarks import find_lateness
from watersmeet.runtime.replay import CaseOutput, format_case_time
from watersmeet.types.sql_type import SqlType

Row = dict[str, Any]


class Pair(NamedTuple):
    """A row that a join emitted: of two rows, or of one with NULLs (the other is None)."""

    left: Row | None
    right: Row | None
    diff: int


class Arrived(NamedTuple):
    """A row that arrived, once per input that takes it.

    Attributes:
        fate: ``kept`` (it may match), a reason of ingest, or ``dropped``.
        text: A line with the reason.
    """

    alias: str
    row: Mapping[str, Any]
    fate: str
    text: str


class Mark(NamedTuple):
    """A watermark of a key; ``text``: a line with what made it."""

    key: str
    value: Watermark
    text: str


class Released(NamedTuple):
    """A row that left a side because its ``key`` was below the limit.

    Attributes:
        matched: The row had a match.
        superseded: The row left because an ASOF join will take a later row of its key instead.
    """

    side: Side
    row: Row
    key: str
    time: int
    matched: bool
    superseded: bool = False


@dataclass(frozen=True)
class JoinStep:
    """One join in one step.

    Attributes:
        brought: per side that reads the output of another join, the rows that may match here.
        dropped: the number of other rows of such a side.
        pairs: what the join emitted.
        buffers: per side the retained rows, as lines; empty for a join with a table as of the tick.
        fed: lines on the watermarks of the joins that feed it.
        limits: lines on the limits, each with its cause.
        released: the rows that left.
        releases: lines on the rows that left, each with its cause.
        table_rows: for a table as of the tick, the number of rows that could match.
    """

    join: MatchPlan
    brought: Mapping[Side, Sequence[Row]]
    dropped: Mapping[Side, int]
    pairs: Sequence[Pair]
    buffers: Mapping[Side, Sequence[str]]
    fed: Sequence[str]
    limits: Sequence[str]
    released: Sequence[Released]
    releases: Sequence[str]
    outputs: Sequence[Mark]
    table_rows: int | None = None


@dataclass(frozen=True)
class WindowStep:
    """One aggregation in one step.

    Attributes:
        watermark: The watermark that closes its windows.
        results: Results of the windows that closed, before HAVING.
        kept: Number of rows in open windows.
        outputs: The output watermarks that rose.
    """

    node: AggregatePlan
    watermark: str
    results: Sequence[Row]
    kept: int
    outputs: Sequence[str]


@dataclass(frozen=True)
class TickTrace:
    """Trace of one tick.

    Attributes:
        too_late: lines on rows that a join feeding a UNION ALL emitted and that were late there.
        inputs: the watermarks of inputs.
    """

    output: CaseOutput
    arrived: Sequence[Arrived]
    too_late: Sequence[str]
    inputs: Sequence[Mark]
    joins: Sequence[JoinStep]
    windows: Sequence[WindowStep]


@dataclass(frozen=True)
class Opened:
    """The job began, or resumed from what was committed."""

    tick: int


@dataclass
class Trace:
    """Trace of one case: its plan, and an entry per completed step (the first one is the start)."""

    plan: JobPlan
    entries: list[Opened | TickTrace] = field(default_factory=list)

    @property
    def query(self) -> QueryPlan:
        return self.plan.queries[0]

    def lateness(self, key: str) -> int:
        """Return what is taken off the watermark of an input's key to judge its rows."""
        side = next(s for s in self.query.sides if key in map(s.watermark_key, s.event_times))
        return find_lateness(self.query, side)

    def horizon(self, key: str) -> Horizon | None:
        """Return the horizon of the join that rows with this time reach; None if it has none."""
        of_joins = (join.horizon for join in self.query.every(JoinPlan) if join.horizon is not None)
        return next((horizon for horizon in of_joins if key in horizon.keys), None)

    def _type(self, key: str) -> SqlType:
        for side in self.query.sides:
            for column in side.input.columns:
                if side.watermark_key(column.name) == key:
                    return column.type
        return next(c.type for node in self.query.nodes for c in node.columns if c.name == key)

    def time(self, key: str, value: Watermark) -> str:
        """Write a time of the key in its type."""
        if isinstance(value, float):
            return "none yet" if value < 0 else "+∞"
        try:
            return str(format_case_time(value, self._type(key)))
        except OverflowError:  # no calendar goes that far
            return f"{value} µs"

    def distance(self, key: str, value: int) -> str:
        """Write a distance between times of the key."""
        return distance(value, unit_of_type(self._type(key)).is_time)

    def less(self, key: str, by: str, watermark: Watermark, c: int, lateness: int) -> str:
        """Write the watermark of ``by`` less what makes a time of ``key`` of it."""
        text = f"W[{by}] {self.time(by, watermark)}"
        if not isinstance(watermark, int):
            return text
        if c:
            text += f" {'-' if c > 0 else '+'} {self.distance(key, abs(c))}"
        return f"{text} - {self.distance(key, lateness)} allowed lateness" if lateness else text

    def rise(self, key: str, value: Watermark, before: Watermark) -> str:
        """Write a watermark, and whether it rose."""
        if value <= NEVER:
            return f"{key}: none yet"
        was = "none" if before == NEVER else self.time(key, before)
        return f"{key} = {self.time(key, value)}{'' if value == before else f', rose from {was}'}"


def row_text(row: Mapping[str, Any]) -> str:
    """Write a row as a case file does."""
    return json.dumps(row, ensure_ascii=False)
