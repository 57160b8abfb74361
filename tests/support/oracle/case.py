"""A plain nested-loop interpreter of semantics.md for case files: the second opinion on the engine.

It keeps lists of dicts, tests every pair with the whole condition, and looks at every row at every tick. It
shares no code with the engine: agreement is evidence. Joins of any number of inputs, as a tree of INNER,
LEFT, RIGHT, FULL, SEMI, ANTI and ASOF joins that cascades within one tick, with UNION ALL beneath, between
and above them; append, or (of two streams or tables, and none of the last three) changelog. What it does not
know raises `Unsupported`; a refused plan becomes the case's error line.
"""

from __future__ import annotations

from typing import Any

from tests.support.oracle.block import Block, Put, Rules
from tests.support.oracle.clock import StreamClock, tick_all
from tests.support.oracle.inputs import Branch
from tests.support.oracle.join import JoinState
from tests.support.oracle.model import Query
from tests.support.oracle.query import read_query
from tests.support.oracle.values import (
    Refused,
    Unsupported,
    bag_key,
    duration,
    from_json,
    to_json,
)

__all__ = ["Oracle", "Refused", "Unsupported", "may_still_match", "run_case", "run_case_with_account"]


def run_case(case: dict[str, Any]) -> list[dict[str, Any]]:
    """The output lines of a case (semantics.md, section 6): one per step, or one with ``error``."""
    return run_case_with_account(case)[0]


def run_case_with_account(case: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, dict[str, int]]]:
    """The output lines, and per input what became of its rows."""
    try:
        oracle = Oracle(case)
    except Refused as refusal:
        return [{"case": case["case"], "error": str(refusal)}], {}
    lines = []
    for index, step in enumerate(case["steps"]):
        line: dict[str, Any] = {"case": case["case"], "step": index}
        try:
            lines.append(line | oracle.step(step))
        except Refused as failure:
            lines.append(line | {"error": str(failure)})
            break
    return lines, oracle.account()


def may_still_match(case: dict[str, Any]) -> list[dict[str, int]]:
    """Per step and input alias: how many rows the join that they feed has no reason yet to forget.

    Those are rows on time, not filtered and not without hope (semantics.md, section 2.6), none of whose
    times has fallen below a limit of the join's bounds: what the oracle itself retains, as it looks at
    every row at every tick and decides by nothing but those bounds. Some future of rows on time may still
    bring such a row into a result, or its pad is undecided; other reasons why it can match no more are not
    thought of. So it is an upper bound for what an engine may keep. Steps from a failing one on are left
    out.
    """
    return [line["state"] for line in run_case(case) if "state" in line]


class Oracle:
    """One case being run, step by step."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        options = case.get("options", {})
        self.query: Query = read_query(case)
        self.changelog = options.get("output_mode", "append") == "changelog"
        if self.changelog and any(join.left_only for join in self.query.joins):
            raise Unsupported("a changelog of a SEMI or ANTI join")
        if self.changelog and any(join.asof for join in self.query.joins):
            raise Refused("a changelog of an ASOF join")
        self.declared = {**case.get("streams", {}), **case.get("tables", {})}
        rule = options.get("watermark_rule", "tight")
        if options.get("lateness", "column") == "join":
            _check_by_join(self.query, rule, changelog=self.changelog)
            rule = "join"
        rules = Rules({}, 0, rule, self.changelog, options.get("max_rows"))
        self.root = Block(self.query, rules)
        self.blocks = self.root.every
        used = {
            branch.stream: None
            for block in self.blocks
            for source in block.query.inputs
            for branch in source.branches
            if isinstance(branch, Branch)
        }
        met = {
            branch.stream
            for block in self.blocks
            for source in block.query.inputs
            for branch in source.branches
            if source.as_of and isinstance(branch, Branch)
        }
        if met and self.changelog:
            raise Refused("a join with a table FOR SYSTEM_TIME AS OF is not run in output_mode changelog")
        if not self.changelog:
            for name in used.keys() - met:
                if name in case.get("tables", {}) or self.declared[name].get("changes"):
                    raise Refused(f'append mode, but "{name}" carries deletes; use output_mode changelog')
        self.clocks = {n: StreamClock(n, self.declared[n]) for n in used}
        kinds = {k for c in self.clocks.values() for k in c.kinds.values()}
        if any(c.follow for c in self.clocks.values()) and "int" in kinds and len(kinds) > 1:
            raise Refused('on_idle = "follow" needs event times of one unit')
        rules.clocks = self.clocks
        rules.lateness = duration(options.get("allowed_lateness") or 0, "int" if kinds <= {"int"} else "ts")
        for join in self.joins:
            join.lateness = rules.lateness
        self.now = 0.0
        self.lenient = options.get("lenient", False)
        self.ended = False

    @property
    def joins(self) -> list[JoinState]:
        """Of all blocks."""
        return [join for block in self.blocks for join in block.joins]

    def retained(self) -> dict[str, int]:
        """Per input, how many of its rows are kept in the join that it feeds directly."""
        rows_by_alias: dict[str, int] = {}
        for block in self.blocks:
            rows_by_alias |= block.retained()
        return rows_by_alias

    def account(self) -> dict[str, dict[str, int]]:
        """Per input: ``in`` = the sum of the others (append mode, ``not_there`` aside)."""
        retained = self.retained()
        return {
            name: {**counts, "retained": retained[name]}
            for block in self.blocks
            for alias, counts in block.counts.items()
            for name in [block.prefix + alias]
            if name in retained
        }

    def step(self, step: dict[str, Any]) -> dict[str, Any]:
        """One step; its rows, watermarks, late rows and state."""
        if "restart" in step or "rescale" in step:
            for clock in self.clocks.values():
                clock.restart(self.now)
            return self._line(Put([], {}), [])
        if self.ended and (step.get("rows") or step.get("advance")):
            raise Refused("the input has ended: no more rows")
        self.now += step.get("clock", 0)
        arrived = [(r[0], r[1], r[2] if len(r) > 2 else 1) for r in step.get("rows", [])]
        late: list[dict[str, Any]] = []
        for block in self.blocks:
            block.begin()
        self._arrive(arrived, late)
        for stream, raw, _ in arrived:
            if stream in self.clocks:
                values = self._values(stream, raw)
                self.clocks[stream].row(values, raw.get("_partition") or "", self.now)
        self._advance(step)
        return self._line(self.root.run(self.ended, late), late)

    def _line(self, put: Put, late: list[Any]) -> dict[str, Any]:
        kinds = {(s.alias, column): kind for s in self.query.inputs for column, kind in s.kinds.items()}
        marks = {
            ".".join(key): to_json(mark, kinds[key])
            for key, mark in put.rose.items()
            if not isinstance(mark, float)  # +∞ has no JSON form
        }
        return {"rows": self._rows(put), "watermarks": marks, "late": late, "state": self.retained()}

    def _values(self, stream: str, raw: dict[str, Any]) -> dict[str, Any]:
        return {c: from_json(raw.get(c), t) for c, t in self.declared[stream]["columns"].items()}

    def _arrive(self, arrived: list[Any], late: list[Any]) -> None:
        """Hand the tick's rows to all blocks; fills ``late``."""
        for stream, _, _ in arrived:
            if stream not in self.declared:
                raise Refused(f'unknown stream "{stream}"')
        changes: list[Any] = [(s, raw, d, self._values(s, raw)) for s, raw, d in arrived]
        if self.changelog:
            sums: dict[Any, Any] = {}
            for s, raw, d, values in changes:
                entry = sums.get((s, bag_key(values)), (s, raw, 0, values))
                sums[s, bag_key(values)] = (s, raw, entry[2] + d, values)
            changes = [r for r in sums.values() if r[2] != 0]
        for stream, raw, diff, values in changes:
            partition = raw.get("_partition") or ""
            is_late = [block.take(stream, values, diff, partition) for block in self.blocks]
            if any(is_late):
                shown = {c: raw.get(c) for c in self.declared[stream]["columns"]}
                late += [{"stream": stream, "row": dict(shown)} for _ in range(abs(diff))]

    def _advance(self, step: dict[str, Any]) -> None:
        """Move the streams' watermarks."""
        for name in step.get("idle", []):
            stream, _, partition = name.partition("/")
            self.clocks[stream].go_idle(partition or None)
        for key, mark in step.get("advance", {}).items():
            stream, _, column = key.rpartition(".")
            clock = self.clocks.get(stream)
            if clock is not None:
                declared = self.declared[stream]["columns"].get(column, "BIGINT")
                clock.advance(column, from_json(mark, declared), self.now, self.lenient)
        if step.get("end"):
            self.ended = True
            for clock in self.clocks.values():
                clock.end()
        tick_all(self.clocks, self.now)

    def _rows(self, put: Put) -> list[dict[str, Any]]:
        names = [(name, kind) for name, kind, _ in self.query.outputs]
        rows = [
            ({name: to_json(value, kind) for (name, kind), value in zip(names, values, strict=True)}, diff)
            for values, diff in put.rows
        ]
        if not self.changelog:
            return [row for row, _ in rows]
        sums: dict[Any, Any] = {}
        for row, diff in rows:
            sums[bag_key(row)] = (row, sums.get(bag_key(row), (row, 0))[1] + diff)
        return [{**row, "_diff": diff} for row, diff in sums.values() if diff]


def _check_by_join(query: Query, rule: str, *, changelog: bool) -> None:
    """Lateness goes by the join of two streams with one event time each, apart by no more than is said."""
    inputs = query.inputs[:2]  # behind them, tables as of the tick
    if rule == "limit" or changelog or len(inputs) != 2 or not all(s.as_of for s in query.inputs[2:]):
        raise Refused("lateness = join: it is for one join of two streams")
    join = query.joins[0]
    keys = [(source.alias, t) for source in inputs for t in source.times]
    if join.kind not in ("INNER", "LEFT", "RIGHT", "FULL") or any(
        len(source.times) != 1 for source in inputs
    ):
        raise Refused("lateness = join: no such join, or not one event time per side")
    if any(source.stages or source.as_of or source.table for source in inputs):
        raise Refused("lateness = join: it is for streams")
    if {evicted for evicted, _ in join.links} != set(keys):
        raise Refused("lateness = join: both ends of the distance are to be said")
