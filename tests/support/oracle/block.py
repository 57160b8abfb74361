"""One query of the oracle in run: its inputs' watermarks, its joins, and the blocks of its branches that
join.

What one block puts out in a tick comes into the input of the next in the same tick; the watermarks that leave
it move the input's after that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.oracle.asof_join import FROM, AsofJoin
from tests.support.oracle.changes import ChangingJoin
from tests.support.oracle.clock import StreamClock, merge_watermarks
from tests.support.oracle.inputs import Branch, Key, Source, StageBranch
from tests.support.oracle.join import COUNTS, Changes, JoinState
from tests.support.oracle.lookup import Lookup
from tests.support.oracle.model import JoinPlan, Query
from tests.support.oracle.sql import Rows
from tests.support.oracle.values import (
    ENDED,
    NEVER,
    Refused,
    saturate,
    to_json,
)


@dataclass
class Rules:
    """What holds for all blocks of a case."""

    clocks: dict[str, StreamClock]
    lateness: int
    watermark_rule: str
    """``tight`` or ``limit``; ``join``: lateness goes by the join (see `oracle.join.JoinState.late`)."""
    changelog: bool
    max_rows: int | None


@dataclass
class Put:
    """What a block puts out in a tick: rows, per output one value, with their diffs; watermarks that rose."""

    rows: list[tuple[list[Any], int]]
    rose: dict[Key, Any]


@dataclass
class Block:
    """``prefix``: what stands before the names of its inputs, for people."""

    query: Query
    rules: Rules
    prefix: str = ""
    marks: dict[Key, Any] = field(init=False)
    late_below: dict[Key, Any] = field(init=False)
    """As of the tick's start."""
    least: Any = NEVER
    """The least watermark of all inputs, as of the tick's start."""
    stages: dict[tuple[int, int], Block] = field(default_factory=dict)
    put_out: dict[Key, Any] = field(default_factory=dict)
    """Watermarks that left it so far."""
    new: list[Changes] = field(default_factory=list)

    def __post_init__(self) -> None:
        inputs = self.query.inputs
        self.marks = {(s.alias, t): NEVER for s in inputs for t in s.times}
        self.counts = {s.alias: dict.fromkeys(COUNTS, 0) for s in inputs}
        make = ChangingJoin if self.rules.changelog else JoinState
        rule = self.rules.watermark_rule
        self.joins = [_join_of(plan, make)(plan, self.query, rule, self.counts) for plan in self.query.joins]
        for position, source in enumerate(inputs):
            for number, branch in source.stages:
                several = f"{number + 1}." if len(source.branches) > 1 else ""
                name = f"{self.prefix}{source.alias}.{several}"
                self.stages[position, number] = Block(branch.query, self.rules, name)

    @property
    def every(self) -> list[Block]:
        """This block and those beneath it."""
        return [block for stage in self.stages.values() for block in stage.every] + [self]

    @property
    def idle(self) -> bool:
        """All inputs are."""
        return all(self._idle(n) for n, source in enumerate(self.query.inputs) if not source.as_of)

    def _idle(self, position: int) -> bool:
        return all(
            self.rules.clocks[branch.stream].idle
            if isinstance(branch, Branch)
            else self.stages[position, number].idle
            for number, branch in enumerate(self.query.inputs[position].branches)
        )

    def _lateness(self, source: Source) -> int:
        """What is still to be taken off an input's watermarks: what comes out of a block has it off."""
        told = any(isinstance(b, Branch) and self.rules.clocks[b.stream].told for b in source.branches)
        return 0 if source.stages or told else self.rules.lateness

    def retained(self) -> dict[str, int]:
        """Per input, how many of its rows are kept in the join that it feeds directly."""
        streams = [source for source in self.query.inputs if not source.as_of]
        rows_by_alias = {self.prefix + source.alias: 0 for source in streams}
        for source in streams:
            for join in self.joins:
                for side in (0, 1):
                    if join.plan.feeds[side] is None and join.plan.sides[side] == [source]:
                        rows_by_alias[self.prefix + source.alias] = sum(
                            entry.count for entry in join.kept[side]
                        )
        return rows_by_alias

    def begin(self) -> None:
        """A tick begins: what is late is decided by the watermarks as they are now."""
        self.new = [[] for _ in self.query.inputs]
        self.late_below = {
            (s.alias, t): saturate(self.marks[s.alias, t] - self._lateness(s))
            for s in self.query.inputs
            for t in s.times
        }
        self.least = min(self.marks.values(), default=NEVER)

    # 1, 2: late rows, NULL times, filters

    def take(self, stream: str, values: dict[str, Any], diff: int, partition: str) -> bool:
        """A row of a stream's partition, for every branch that reads it; whether it was late for one."""
        is_late = False
        for position, source in enumerate(self.query.inputs):
            for number, branch in enumerate(source.branches):
                if isinstance(branch, Branch) and branch.stream == stream:
                    is_late |= self._take(position, (number, partition), values, diff)[0]
        return is_late

    def _take(self, position: int, origin: tuple[int, str], values: Any, diff: int) -> tuple[bool, Any]:
        """(whether it was late, the row as the input has it). ``origin``: number of the branch, partition."""
        source = self.query.inputs[position]
        branch = source.branches[origin[0]]
        row = {c: f((values,)) for c, f in branch.columns.items()}
        rows = tuple({**row, FROM: origin} if i == position else {} for i in range(len(self.new)))
        verdict = self.judge(source, branch, rows, values, diff)
        if verdict == "new":
            self.new[position].append((rows, diff))
        return verdict == "late", row

    def judge(self, source: Source, branch: Branch | StageBranch, rows: Rows, values: Any, diff: int) -> str:
        """Return what becomes of a row that arrives at an input: late, null_time, filtered or new.

        Every filter is above the ordering. A time that a join padded is NULL; it is never late, and no reason
        to drop the row.
        """
        counts = self.counts[source.alias]
        counts["in"] += abs(diff)
        position = self.query.inputs.index(source)
        times = [rows[position][t] for t in source.times]
        limits = [self.late_below[source.alias, t] for t in source.times]
        is_late = any(t is not None and t < limit for t, limit in zip(times, limits, strict=True))
        if self.rules.watermark_rule == "join":
            is_late = any(t is not None and self.joins[0].late(t, self.least) for t in times)
        if is_late:
            counts["late"] += abs(diff)
            return "late"
        if None in times and isinstance(branch, Branch):
            counts["null_time"] += abs(diff)
            return "null_time"
        passes = all(f((values,)) is True for f in branch.where)
        if not passes or any(f(rows) is not True for f in self.query.filters[position]):
            counts["filtered"] += abs(diff)
            return "filtered"
        return "new"

    # 4: watermarks

    def _advance(self, position: int, ended: bool) -> None:
        source = self.query.inputs[position]
        for column in source.times:
            key = (source.alias, column)
            marks = []
            for number, branch in enumerate(source.branches):
                if isinstance(branch, Branch):
                    clock = self.rules.clocks[branch.stream]
                    mark = clock.marks[branch.times[column]]
                    if source.stages:
                        mark = saturate(mark - self.rules.lateness)
                    marks.append((mark, clock.idle))
                else:
                    stage = self.stages[position, number]
                    marks.append((stage.put_out.get(branch.times[column], NEVER), stage.idle))
            self.marks[key] = ENDED if ended else merge_watermarks(marks, self.marks[key])

    # 3, 5, 6, 7: the joins

    def run(self, ended: bool, late: list[dict[str, Any]]) -> Put:
        """A tick, once all clocks have moved: blocks beneath first, then the joins, children first: what a
        join puts out, pads too, comes into the next at once. Fills ``late`` with rows of blocks beneath that
        are late for the input that takes them."""
        for position, source in enumerate(self.query.inputs):
            for number, _ in source.stages:
                for values, diff in self.stages[position, number].run(ended, late).rows:
                    is_late, row = self._take(position, (number, ""), values, diff)
                    if is_late:
                        shown = {c: to_json(v, source.kinds[c]) for c, v in row.items()}
                        late.append({"stream": self.prefix + source.alias, "row": shown})
            self._advance(position, ended)
        joined, rose = self.join_rows(ended) if self.joins else self.pass_through()
        self.put_out |= rose
        rows = [
            ([f(row) for _, _, f in self.query.outputs], diff)
            for row, diff in joined
            if all(f(row) is True for f in self.query.where)
        ]
        return Put(rows, rose)

    def pass_through(self) -> tuple[Changes, dict[Key, Any]]:
        """Return the new rows of the only input, and the output watermarks that rise."""
        (source,) = self.query.inputs
        (rows,) = self.new
        self.counts[source.alias]["passed"] += sum(abs(diff) for _, diff in rows)
        marks = {key: saturate(mark - self._lateness(source)) for key, mark in self.marks.items()}
        return rows, {key: mark for key, mark in marks.items() if mark > self.put_out.get(key, NEVER)}

    def join_rows(self, ended: bool) -> tuple[Changes, dict[Key, Any]]:
        """Return the rows of the last join of a tick, and the output watermarks that rise."""
        put_out: list[Changes] = []
        rose: dict[Key, Any] = {}
        for join in self.joins:
            marks: dict[Key, tuple[Any, int]] = {}
            sides: list[Changes] = []
            for side, feed in enumerate(join.plan.feeds):
                if feed is None:
                    source = join.plan.sides[side][0]
                    sides.append(self.new[self.query.inputs.index(source)])
                    marks |= {(source.alias, t): (self.marks[source.alias, t], self._lateness(source))
                              for t in source.times}  # fmt: skip
                else:
                    sides.append(put_out[feed])
                    marks |= {key: (mark, 0) for key, mark in self.joins[feed].put_out.items()}
            out = join.match((sides[0], sides[1]))
            out += join.release(marks, ended)
            rose = join.advance(marks)
            put_out.append([row for row in out if all(f(row[0]) is True for f in join.plan.after)])
            most = self.rules.max_rows
            if most is not None and join.retained() > most:
                raise Refused(f"max_rows: the join retains {join.retained()} rows, {most} are allowed")
        return put_out[-1], rose


def _join_of(plan: JoinPlan, make: type[JoinState]) -> type[JoinState]:
    if plan.as_of:
        return Lookup
    return make if plan.asof is None else AsofJoin
