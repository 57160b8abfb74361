"""A plain nested-loop interpreter of semantics.md for case files: the second opinion on the engine.

It keeps lists of dicts, tests every pair with the whole condition, and looks at every row at every tick. It
shares no code with the engine: agreement is evidence. Joins of any number of inputs, as a tree of INNER,
LEFT, RIGHT, FULL, SEMI and ANTI joins that cascades within one tick; append, or (of two inputs, and neither
SEMI nor ANTI) changelog. What it does not know raises `Unsupported`; a refused plan becomes the case's error
line.
"""

from __future__ import annotations

from typing import Any

from watersmeet.testing.oracle_changes import ChangingJoin
from watersmeet.testing.oracle_clock import StreamClock, merged, tick_all
from watersmeet.testing.oracle_inputs import Branch, Key, Source
from watersmeet.testing.oracle_join import COUNTS, Changes, JoinState
from watersmeet.testing.oracle_lookup import Lookup
from watersmeet.testing.oracle_query import Query, read_query
from watersmeet.testing.oracle_sql import Rows
from watersmeet.testing.oracle_values import (
    NEVER,
    Refused,
    Unsupported,
    bag_key,
    duration,
    from_json,
    saturate,
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
        if self.changelog and len(self.query.joins) > 1:
            raise Unsupported("a changelog of more than two inputs")
        if self.changelog and self.query.joins[-1].left_only:
            raise Unsupported("a changelog of a SEMI or ANTI join")
        self.max_rows = options.get("max_rows")
        self.declared = {**case.get("streams", {}), **case.get("tables", {})}
        used = {b.stream: None for s in self.query.inputs for b in s.branches}
        if not self.changelog:
            for name in used:
                met = {b.stream for s in self.query.inputs if s.as_of for b in s.branches}
                if name in met:
                    continue
                if name in case.get("tables", {}) or self.declared[name].get("changes"):
                    raise Refused(f'append mode, but "{name}" carries deletes; use output_mode changelog')
        self.clocks = {n: StreamClock(n, self.declared[n]) for n in used}
        kinds = {k for c in self.clocks.values() for k in c.kinds.values()}
        if any(c.follow for c in self.clocks.values()) and "int" in kinds and len(kinds) > 1:
            raise Refused('on_idle = "follow" needs event times of one unit')
        self.lateness = duration(options.get("allowed_lateness") or 0, "int" if kinds <= {"int"} else "ts")
        self.marks: dict[Key, Any] = {(s.alias, t): NEVER for s in self.query.inputs for t in s.times}
        self.now = 0.0
        self.ended = False
        self.counts = {s.alias: dict.fromkeys(COUNTS, 0) for s in self.query.inputs}
        rule = options.get("watermark_rule", "tight")
        if self.changelog and any(plan.as_of for plan in self.query.joins):
            raise Refused("a join with a table FOR SYSTEM_TIME AS OF is not run in output_mode changelog")
        make = ChangingJoin if self.changelog else JoinState
        self.joins = [
            (Lookup if plan.as_of else make)(plan, self.query, rule, self.counts) for plan in self.query.joins
        ]

    def retained(self) -> dict[str, int]:
        """Per input, how many of its rows are kept in the join that it feeds directly."""
        found = {}
        for source in self.query.inputs:
            if source.as_of:
                continue
            for join in self.joins:
                for side in (0, 1):
                    if join.plan.feeds[side] is None and join.plan.sides[side] == [source]:
                        found[source.alias] = sum(entry.count for entry in join.kept[side])
        return found

    def account(self) -> dict[str, dict[str, int]]:
        """Per input: ``in`` = the sum of the others (append mode, ``not_there`` aside)."""
        retained = self.retained()
        return {
            alias: {**counts, "retained": retained[alias]}
            for alias, counts in self.counts.items()
            if alias in retained
        }

    def step(self, step: dict[str, Any]) -> dict[str, Any]:
        """One step; its rows, watermarks, late rows and state."""
        if "restart" in step or "rescale" in step:
            for clock in self.clocks.values():
                clock.restart(self.now)
            return self._line([], {}, [])
        if self.ended and (step.get("rows") or step.get("advance")):
            raise Refused("the input has ended: no more rows")
        self.now += step.get("clock", 0)
        arrived = [(r[0], r[1], r[2] if len(r) > 2 else 1) for r in step.get("rows", [])]
        late: list[dict[str, Any]] = []
        new = self._arrive(arrived, late)
        for stream, raw, _ in arrived:
            if stream in self.clocks:
                values = self._values(stream, raw)
                self.clocks[stream].row(values, raw.get("_partition"), self.now)
        self._advance(step)
        out, rose = self._join(new)
        return self._line(out, rose, late)

    def _line(self, out: Changes, rose: dict[Key, Any], late: list[Any]) -> dict[str, Any]:
        kinds = {(s.alias, column): kind for s in self.query.inputs for column, kind in s.kinds.items()}
        marks = {
            ".".join(key): to_json(mark, kinds[key])
            for key, mark in rose.items()
            if not isinstance(mark, float)  # +∞ has no JSON form
        }
        return {"rows": self._rows(out), "watermarks": marks, "late": late, "state": self.retained()}

    # 1, 2: late rows, NULL times, filters

    def _values(self, stream: str, raw: dict[str, Any]) -> dict[str, Any]:
        return {c: from_json(raw.get(c), t) for c, t in self.declared[stream]["columns"].items()}

    def _arrive(self, arrived: list[Any], late: list[Any]) -> list[Changes]:
        """Per input, the rows of this tick that take part, with their diffs; fills ``late``."""
        for stream, _, _ in arrived:
            if stream not in self.declared:
                raise Refused(f'unknown stream "{stream}"')
        changes: list[Any] = [(s, raw, d, self._values(s, raw)) for s, raw, d in arrived]
        if self.changelog:
            sums: dict[Any, Any] = {}
            for s, raw, d, values in changes:
                known = sums.get((s, bag_key(values)), (s, raw, 0, values))
                sums[s, bag_key(values)] = (s, raw, known[2] + d, values)
            changes = [r for r in sums.values() if r[2] != 0]
        new: list[Changes] = [[] for _ in self.query.inputs]
        for stream, raw, diff, values in changes:
            is_late = False
            for position, source in enumerate(self.query.inputs):
                for branch in source.branches:
                    if branch.stream == stream:
                        row = {c: f((values,)) for c, f in branch.columns.items()}
                        rows = tuple(row if i == position else {} for i in range(len(new)))
                        verdict = self._judge(source, branch, rows, values, diff)
                        is_late |= verdict == "late"
                        if verdict == "new":
                            new[position].append((rows, diff))
            if is_late:
                shown = {c: raw.get(c) for c in self.declared[stream]["columns"]}
                late += [{"stream": stream, "row": dict(shown)} for _ in range(abs(diff))]
        return new

    def _judge(self, source: Source, branch: Branch, rows: Rows, values: dict[str, Any], diff: int) -> str:
        """What becomes of a row that arrives at an input; every filter is above the ordering."""
        counts = self.counts[source.alias]
        counts["in"] += abs(diff)
        position = self.query.inputs.index(source)
        times = [rows[position][t] for t in source.times]
        limits = [saturate(self.marks[source.alias, t] - self.lateness) for t in source.times]
        if any(t is not None and t < limit for t, limit in zip(times, limits, strict=True)):
            counts["late"] += abs(diff)
            return "late"
        if None in times:
            counts["null_time"] += abs(diff)
            return "null_time"
        passes = branch.where is None or branch.where((values,)) is True
        if not passes or any(f(rows) is not True for f in self.query.filters[position]):
            counts["filtered"] += abs(diff)
            return "filtered"
        return "new"

    # 4: watermarks

    def _advance(self, step: dict[str, Any]) -> None:
        for name in step.get("idle", []):
            stream, _, partition = name.partition("/")
            self.clocks[stream].go_idle(partition or None)
        for key, mark in step.get("advance", {}).items():
            stream, _, column = key.rpartition(".")
            clock = self.clocks.get(stream)
            if clock is not None:
                declared = self.declared[stream]["columns"].get(column, "BIGINT")
                clock.advance(column, from_json(mark, declared), self.now)
        if step.get("end"):
            self.ended = True
            for clock in self.clocks.values():
                clock.end()
        tick_all(self.clocks, self.now)
        for source in self.query.inputs:
            for column in source.times:
                key = (source.alias, column)
                marks = [
                    (self.clocks[b.stream].marks[b.times[column]], self.clocks[b.stream].idle)
                    for b in source.branches
                ]
                self.marks[key] = merged(marks, self.marks[key])

    # 3, 5, 6, 7: the joins

    def _join(self, new: list[Changes]) -> tuple[Changes, dict[Key, Any]]:
        """One tick of all joins, children first: what a join puts out, pads too, comes into the next at once.

        The result is that of the last join: its rows, and its output watermarks that rose.
        """
        put_out: list[Changes] = []
        rose: dict[Key, Any] = {}
        for join in self.joins:
            marks: dict[Key, tuple[Any, int]] = {}
            sides: list[Changes] = []
            for side, feed in enumerate(join.plan.feeds):
                if feed is None:
                    source = join.plan.sides[side][0]
                    sides.append(new[self.query.inputs.index(source)])
                    marks |= {(source.alias, t): (self.marks[source.alias, t], self.lateness)
                              for t in source.times}  # fmt: skip
                else:
                    sides.append(put_out[feed])
                    marks |= {key: (mark, 0) for key, mark in self.joins[feed].put_out.items()}
            out = join.match((sides[0], sides[1]))
            out += join.release(marks, self.ended)
            rose = join.advance(marks)
            put_out.append([row for row in out if all(f(row[0]) is True for f in join.plan.after)])
            if self.max_rows is not None and join.retained() > self.max_rows:
                raise Refused(
                    f"max_rows: the join retains {join.retained()} rows, {self.max_rows} are allowed"
                )
        return put_out[-1], rose

    # output rows

    def _rows(self, out: Changes) -> list[dict[str, Any]]:
        rows = []
        for joined, diff in out:
            if all(f(joined) is True for f in self.query.where):
                rows.append(({name: to_json(f(joined), kind) for name, kind, f in self.query.outputs}, diff))
        if not self.changelog:
            return [row for row, _ in rows]
        sums: dict[Any, Any] = {}
        for row, diff in rows:
            sums[bag_key(row)] = (row, sums.get(bag_key(row), (row, 0))[1] + diff)
        return [{**row, "_diff": diff} for row, diff in sums.values() if diff]
