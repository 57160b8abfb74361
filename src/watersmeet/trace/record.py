"""What one step of a replayed case did, as plain data: what came in, met, left, stayed, and by which times.

Times are canonical (`event_time`); `Trace.time` writes them as a case file does. Rows hold the columns that
a side keeps, by name, with values as in case files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from watersmeet.conditions import Bound, Horizon
from watersmeet.engine.driver.late import lateness_of
from watersmeet.engine.replay import CaseOutput, CaseStep, shown_time
from watersmeet.event_time import Side, Watermark
from watersmeet.plan.explain.durations import distance
from watersmeet.plan.join_inputs import unit_of_type
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import AggregatePlan, JoinPlan, MatchPlan
from watersmeet.types.sql_type import SqlType

Row = dict[str, Any]


@dataclass(frozen=True)
class Arrived:
    """A row that came in, once per input that takes it.

    ``row``: as it was given. ``fate``: ``kept`` (it may match), or what it is counted as (see
    `engine.tasks.ingest`). ``key``: the watermark key that decided it, if a time did, with the row's ``time``
    and, of a late row, the least time that was not (``below``). ``null_keys``: keys that are NULL.
    """

    stream: str
    alias: str
    branch: int
    row: Mapping[str, Any]
    diff: int
    fate: str
    key: str | None = None
    time: int | None = None
    below: Watermark | None = None
    null_keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Partition:
    """A partition of a source: its newest time per event-time column. Or a branch that is a stage (``of``:
    its watermark key there): the watermark that leaves it."""

    name: str
    newest: Watermark
    idle: bool
    of: str | None = None


@dataclass(frozen=True)
class InputWatermark:
    """W of one key of an input. ``partitions``: by which it moves, with what they are behind by: the lag of
    their branch (and allowed_lateness, beside stages; None: by explicit advances alone)."""

    key: str
    value: Watermark
    before: Watermark
    partitions: tuple[tuple[Partition, int | None], ...]


@dataclass(frozen=True)
class Pair:
    """A row that the join put out: of two rows, or of one with NULLs (the other is None)."""

    left: Row | None
    right: Row | None
    diff: int


@dataclass(frozen=True)
class Released:
    """A row that left a side because its ``key`` was below the limit; ``matched``: it had a match.
    ``superseded``: because an ASOF join will take a later row of its key instead."""

    side: Side
    row: Row
    key: str
    time: int
    matched: bool
    superseded: bool = False


@dataclass(frozen=True)
class Kept:
    """A row that a side keeps. ``matched``: it has had a match (changelog mode: has one now)."""

    row: Row
    matched: bool


@dataclass(frozen=True)
class Limit:
    """Of one key: rows below ``value`` can match nothing any more.

    ``parts``: each bound on the key, W of what bounds it, and the limit that follows from the two.
    """

    key: str
    value: Watermark
    parts: tuple[tuple[Bound, Watermark, Watermark], ...]


@dataclass(frozen=True)
class OutputWatermark:
    """What the join promises of a key, and of what that is the least.

    ``watermark``: W of the key; ``lateness``: what is taken off it; ``least``: among the rows that its side
    keeps, None without any; ``limit``: None without a bound.
    """

    key: str
    value: Watermark
    before: Watermark
    watermark: Watermark
    lateness: int
    least: int | None
    limit: Watermark | None


@dataclass(frozen=True)
class JoinStep:
    """One join in one step.

    ``brought``: per side that takes the rows of a join beneath, the rows that may match here; ``dropped``:
    how many others there were. ``fed``: the watermarks out of the joins beneath. ``table_rows``: of a join
    with a table as of the tick, how many rows could be met; it has no limits and no buffers.
    """

    join: MatchPlan
    brought: Mapping[Side, list[Row]]
    dropped: Mapping[Side, int]
    fed: Mapping[str, Watermark]
    pairs: list[Pair]
    limits: list[Limit]
    released: list[Released]
    buffers: Mapping[Side, list[Kept]]
    outputs: list[OutputWatermark]
    table_rows: int | None = None


@dataclass(frozen=True)
class WindowStep:
    """One aggregation in one step. ``watermark``: the one that closes its windows; ``results``: of those that
    closed, before HAVING; ``kept``: how many rows are in open windows; ``outputs``: per key the watermark
    that is put out, and the one before."""

    node: AggregatePlan
    watermark: Watermark
    results: list[Row]
    kept: int
    outputs: Mapping[str, tuple[Watermark, Watermark]]


@dataclass(frozen=True)
class TickTrace:
    """One tick. ``late_below``: per key, what was late in it. ``too_late``: rows that a join beneath a UNION
    ALL gave, and that were late there."""

    step: CaseStep
    output: CaseOutput
    arrived: list[Arrived]
    inputs: list[InputWatermark]
    late_below: Mapping[str, Watermark]
    joins: list[JoinStep]
    too_late: list[Arrived] = field(default_factory=list)
    windows: list[WindowStep] = field(default_factory=list)


@dataclass(frozen=True)
class Opened:
    """The job began, or went on from what was committed."""

    tick: int


@dataclass
class Trace:
    """Of one case: its plan, and an entry per step that ended (the first one is the start)."""

    plan: JobPlan
    entries: list[Opened | TickTrace] = field(default_factory=list)

    @property
    def query(self) -> QueryPlan:
        return self.plan.queries[0]

    def lateness(self, key: str) -> int:
        """What is taken off the watermark of an input's key to judge its rows."""
        side = next(s for s in self.query.sides if key in map(s.watermark_key, s.event_times))
        return lateness_of(self.query, side)

    def horizon(self, key: str) -> Horizon | None:
        """That of the join that rows with this time come to, if it goes by one."""
        of_joins = (join.horizon for join in self.query.every(JoinPlan) if join.horizon is not None)
        return next((horizon for horizon in of_joins if key in horizon.keys), None)

    def _type(self, key: str) -> SqlType:
        for side in self.query.sides:
            for column in side.input.columns:
                if side.watermark_key(column.name) == key:
                    return column.type
        return next(c.type for node in self.query.nodes for c in node.columns if c.name == key)

    def time(self, key: str, value: Watermark) -> str:
        """A time of the key in its type."""
        if isinstance(value, float):
            return "none yet" if value < 0 else "+∞"
        try:
            return str(shown_time(value, self._type(key)))
        except OverflowError:  # no calendar goes that far
            return f"{value} µs"

    def distance(self, key: str, value: int) -> str:
        """A distance between times of the key."""
        return distance(value, unit_of_type(self._type(key)).is_time)
