"""Queries with windows, for the oracle: a chain of small ones, each an oracle of its own.

What is beneath a window, or beside others in a join, is run for itself; its rows of a tick and its watermarks
are told to what is above, as those of one more stream. A stream is judged where it comes in: allowed_lateness
is taken off there, and nowhere above.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp

from tests.support.oracle.case import Oracle
from tests.support.oracle.clock import StreamClock, tick_all
from tests.support.oracle.inputs import Branch
from tests.support.oracle.sql import Rows, Scope, compile_expr
from tests.support.oracle.values import (
    ENDED,
    NEVER,
    Refused,
    Unsupported,
    bag_key,
    duration,
    from_json,
    kind_of,
    saturate,
    to_json,
)
from tests.support.oracle.windows import WINDOW, ChangingWindowState, WindowState, read_windows

DECLARED = {
    "int": "BIGINT",
    "ts": "TIMESTAMP",
    "date": "DATE",
    "double": "DOUBLE",
    "decimal": "DECIMAL(38,2)",
    "string": "STRING",
    "bool": "BOOLEAN",
}


def has_windows(case: dict[str, Any]) -> bool:
    """Whether this oracle is the one for the case."""
    return re.search(r"\b(TUMBLE|HOP|SESSION)\s*\(", case["query"]) is not None


def run_windowed_case(case: dict[str, Any]) -> list[dict[str, Any]]:
    """The output lines of a case, as `oracle.case.run_case` gives them."""
    try:
        top = build(_parse_query(case["query"]), case, "", changes=is_changelog(case))
    except Refused as refusal:
        return [{"case": case["case"], "error": str(refusal)}]
    before: dict[str, Any] = {}
    lines = []
    for index, step in enumerate(case["steps"]):
        line: dict[str, Any] = {"case": case["case"], "step": index}
        try:
            told = top.step(step)
        except Refused as failure:
            lines.append(line | {"error": str(failure)})
            break
        rose = {key: mark for key, mark in told.marks.items() if mark > before.get(key, NEVER)}
        before |= rose
        shown = {key: mark for key, mark in rose.items() if not isinstance(mark, float)}
        lines.append(
            line
            | {
                "rows": told.rows,
                "watermarks": {key: to_json(mark, top.mark_kinds[key]) for key, mark in shown.items()},
                "late": told.late,
                "state": told.state,
            }
        )
    return lines


def is_changelog(case: dict[str, Any]) -> bool:
    return bool(case.get("options", {}).get("output_mode") == "changelog")


def _without_diff(row: dict[str, Any]) -> tuple[dict[str, Any], int]:
    return {name: value for name, value in row.items() if name != "_diff"}, row.get("_diff", 1)


def _parse_query(query: str) -> exp.Select:
    """Spark's grammar has no table as an argument, and SESSION is a word of its own there."""
    text = re.sub(r"\b(TUMBLE|HOP|SESSION)\s*\(\s*TABLE\s+(\w+)", r"\1_OF((SELECT * FROM \2)", query)
    text = re.sub(r"\b(TUMBLE|HOP|SESSION)\s*\(", r"\1_OF(", text)
    tree = sqlglot.parse_one(text, dialect="spark")
    if not isinstance(tree, exp.Select):
        raise Unsupported("only a SELECT")
    return tree


@dataclass
class Told:
    """Of one tick: the rows as case files write them (of changes with `_diff`), all output watermarks, late
    rows, retained rows."""

    rows: list[dict[str, Any]]
    marks: dict[str, Any]
    late: list[dict[str, Any]]
    state: dict[str, int]


class NotFinal(Refused):
    """Rows that may be taken back, where final ones are wanted."""


def build(select: exp.Select, case: dict[str, Any], prefix: str, *, changes: bool) -> Windows | Joined:
    """The oracle of a SELECT: over windows, or of a join. ``changes``: its results may be taken back."""
    function = _function(select.args["from_"].this)
    if function is not None:
        return Windows(select, function, case, prefix, changes=changes)
    return Joined(select, case, prefix, changes=changes)


def _function(node: exp.Expression) -> exp.Anonymous | None:
    """The window function that an item of FROM is."""
    inner: Any = node.this if isinstance(node, exp.Table) else node
    if isinstance(inner, exp.Anonymous) and inner.name.upper() == "TABLE":
        inner = inner.expressions[0]
    named = isinstance(inner, exp.Anonymous) and inner.name.upper().endswith("_OF")
    return inner if named else None


class Stream:
    """One stream as it comes in: late rows and rows without a time fall away."""

    def __init__(self, name: str, alias: str, case: dict[str, Any], prefix: str, *, changes: bool) -> None:
        self.name = next((n for n in case["streams"] if n.lower() == name.lower()), "")
        if not self.name:
            raise Refused(f'unknown stream "{name}"')
        self.alias, self.prefix = alias, prefix
        self.declared = case["streams"][self.name]
        self.kinds = {c: kind_of(t) for c, t in self.declared["columns"].items()}
        self.columns = dict(self.declared["columns"])
        self.clock = StreamClock(self.name, self.declared)
        times = {self.kinds[t] for t in self.declared.get("time", {})}
        lateness = case.get("options", {}).get("allowed_lateness") or 0
        self.lateness = duration(lateness, "int" if times <= {"int"} else "ts")
        self.marks = dict.fromkeys(self.declared.get("time", {}), NEVER)
        self.now = 0.0
        self.lenient = case.get("options", {}).get("lenient", False)
        self.mark_kinds = {f"{prefix}{alias}.{t}": self.kinds[t] for t in self.marks}
        if self.declared.get("changes") and not changes:
            raise NotFinal(f'rows of "{self.name}" can be retracted')
        self.changes = changes
        self.there: Counter[Any] = Counter()

    @property
    def times(self) -> dict[str, str]:
        """Column -> the key of its watermark."""
        return {t: f"{self.prefix}{self.alias}.{t}" for t in self.marks}

    def step(self, step: dict[str, Any]) -> Told:
        if "restart" in step or "rescale" in step:
            self.clock.restart(self.now)
            return self._told([], [])
        self.now += step.get("clock", 0)
        rows: list[dict[str, Any]] = []
        late: list[dict[str, Any]] = []
        for raw, diff in self._sum_rows(step):
            values = {c: from_json(raw.get(c), t) for c, t in self.columns.items()}
            below = {t: saturate(mark - self.lateness) for t, mark in self.marks.items()}
            if any(values[t] is not None and values[t] < limit for t, limit in below.items()):
                late += [{"stream": self.name, "row": {c: raw.get(c) for c in self.columns}}] * abs(diff)
            elif all(values[t] is not None for t in self.marks):
                rows += self._taken(values, diff) if self.changes else [values]
        for name, raw, *_ in step.get("rows", []):
            if name != self.name:
                continue
            values = {c: from_json(raw.get(c), t) for c, t in self.columns.items()}
            self.clock.row(values, raw.get("_partition") or "", self.now)
        for name in step.get("idle", []):
            stream, _, partition = name.partition("/")
            if stream == self.name:
                self.clock.go_idle(partition or None)
        for key, mark in step.get("advance", {}).items():
            stream, _, column = key.rpartition(".")
            if stream == self.name:
                self.clock.advance(column, from_json(mark, self.columns[column]), self.now, self.lenient)
        if step.get("end"):
            self.clock.end()
        tick_all({self.name: self.clock}, self.now)
        self.marks = {t: max(mark, self.clock.marks[t]) for t, mark in self.marks.items()}
        return self._told(rows, late)

    def _sum_rows(self, step: dict[str, Any]) -> list[tuple[dict[str, Any], int]]:
        """The stream's rows of a step with their diffs; changes summed per equal row."""
        rows = [
            (raw, diff[0] if diff else 1) for name, raw, *diff in step.get("rows", []) if name == self.name
        ]
        if not self.changes:
            return rows
        sums: dict[Any, tuple[dict[str, Any], int]] = {}
        for raw, diff in rows:
            key = bag_key({c: from_json(raw.get(c), t) for c, t in self.columns.items()})
            sums[key] = (raw, sums.get(key, (raw, 0))[1] + diff)
        return [change for change in sums.values() if change[1]]

    def _taken(self, values: dict[str, Any], diff: int) -> list[dict[str, Any]]:
        """A change on time; of a delete what there is to delete."""
        diff = max(diff, -self.there[bag_key(values)])
        self.there[bag_key(values)] += diff
        return [{**values, "_diff": diff}] if diff else []

    def _told(self, rows: list[dict[str, Any]], late: list[dict[str, Any]]) -> Told:
        marks = {self.times[t]: saturate(mark - self.lateness) for t, mark in self.marks.items()}
        return Told(rows, marks, late, {})


class Joined:
    """A SELECT that joins, of streams and of sub-queries with windows."""

    def __init__(self, select: exp.Select, case: dict[str, Any], prefix: str, *, changes: bool) -> None:
        self.prefix = prefix
        self.stages: dict[str, Windows] = {}
        tree = select.copy()
        streams = dict(case["streams"])
        for node in list(tree.find_all(exp.Subquery)):
            inner = node.this
            if not isinstance(inner, exp.Select) or _function(inner.args["from_"].this) is None:
                continue
            stage = Windows(
                inner,
                _function(inner.args["from_"].this) or exp.Anonymous(),
                case,
                f"{prefix}{node.alias}.",
                changes=changes,
            )
            name = f"stage_{len(self.stages)}"
            self.stages[name] = stage
            streams[name] = {
                "columns": stage.columns,
                "time": {column: {"lag": None} for column in stage.times},
                "stage": True,
            }
            node.replace(exp.alias_(exp.to_table(name), node.alias, table=True))
        read = {table.name.lower() for table in tree.find_all(exp.Table)}
        if not changes and any(streams[name].get("changes") for name in streams if name.lower() in read):
            raise NotFinal("rows of a stream can be retracted")
        options = {**case.get("options", {}), "output_mode": "changelog" if changes else "append"}
        own = {**case, "streams": streams, "options": options, "steps": []}
        self.oracle = Oracle({**own, "query": tree.sql(dialect="spark")})
        self.kinds = {name: kind for name, kind, _ in self.oracle.query.outputs}
        self.columns: dict[str, str] = {name: DECLARED[kind] for name, kind in self.kinds.items()}
        self.mark_kinds = {
            f"{prefix}{s.alias}.{column}": kind
            for s in self.oracle.query.inputs
            for column, kind in s.kinds.items()
        }
        self.times = {}
        for item in select.expressions:
            plain = item.this if isinstance(item, exp.Alias) else item
            if isinstance(plain, exp.Column) and plain.table:
                owner = next(s for s in self.oracle.query.inputs if s.alias == plain.table)
                if plain.name in owner.times:
                    self.times[item.alias_or_name] = f"{prefix}{plain.table}.{plain.name}"

    def step(self, step: dict[str, Any]) -> Told:
        late: list[dict[str, Any]] = []
        state: dict[str, int] = {}
        own = {**step, "rows": list(step.get("rows", [])), "advance": dict(step.get("advance", {}))}
        if "restart" in step or "rescale" in step:
            own = step
        for name, stage in self.stages.items():
            told = stage.step(step)
            state |= told.state
            late = _together(late, told.late)
            if own is step:
                continue
            for row in told.rows:
                values, diff = _without_diff(row)
                own["rows"].append([name, values, diff])
            for column, key in stage.times.items():
                mark = told.marks.get(key, NEVER)
                if not isinstance(mark, float):
                    own["advance"][f"{name}.{column}"] = to_json(mark, kind_of(stage.columns[column]))
        branches = [b for s in self.oracle.query.inputs for b in s.branches]
        streams = {branch.stream for branch in branches if isinstance(branch, Branch)}
        if own is not step:
            own["rows"] = [r for r in own["rows"] if r[0] in streams]
            own["advance"] = {k: v for k, v in own["advance"].items() if k.rpartition(".")[0] in streams}
            own["idle"] = [n for n in own.get("idle", []) if n.partition("/")[0] in streams]
        line = self.oracle.step(own)
        late = _together(late, line["late"])
        state |= {f"{self.prefix}{alias}": rows for alias, rows in line["state"].items()}
        put_out = self.oracle.root.put_out
        marks = {f"{self.prefix}{'.'.join(key)}": mark for key, mark in put_out.items()}
        return Told(line["rows"], marks, late, state)


class Windows:
    """A SELECT over TUMBLE, HOP or SESSION."""

    def __init__(
        self,
        select: exp.Select,
        function: exp.Anonymous,
        case: dict[str, Any],
        prefix: str,
        *,
        changes: bool,
    ) -> None:
        node = select.args["from_"].this
        alias = node.alias
        kind = function.name.upper().removesuffix("_OF").lower()
        self.prefix = prefix
        where = select.args.get("where")
        beneath = changes
        try:
            self.source = self._source(function.expressions[0], case, alias, kind, where, changes=changes)
        except NotFinal:
            beneath = True
            self.source = self._source(function.expressions[0], case, alias, kind, where, changes=True)
        named = alias or (self.source.alias if isinstance(self.source, Stream) else "rows")
        kinds = {c: kind_of(t) for c, t in self.source.columns.items()}
        scope = Scope({named: kinds})
        time = function.expressions[1].expressions[0].name
        if time not in self.source.times:
            raise Refused(f'"{time}" is not an event time')
        self.time_key = self.source.times[time]

        def resolve(tree: exp.Expression) -> exp.Expression:
            def one(part: exp.Expression) -> exp.Expression:
                if not isinstance(part, exp.Column):
                    return part
                if part.name in WINDOW:
                    return exp.column(part.name)
                _, column = scope.find(part)
                return exp.column(column, table=named)

            return tree.copy().transform(one)

        plan = read_windows(select, function, (named, time), scope, resolve)
        if isinstance(self.source, Joined):
            where = None  # it is asked in the join
        self.where = None if where is None else compile_expr(resolve(where.this), scope)[1]
        self.changes = changes
        self.state = (ChangingWindowState if beneath else WindowState)(plan)
        self.kinds = {name: kind for name, kind, _ in plan.outputs}
        self.columns: dict[str, str] = {name: DECLARED[kind] for name, kind in self.kinds.items()}
        window_kind = "int" if plan.time_kind == "int" else "ts"
        self.mark_kinds = dict.fromkeys(WINDOW, window_kind)
        self.times: dict[str, str] = {}
        for item in select.expressions:
            plain = item.this if isinstance(item, exp.Alias) else item
            if isinstance(plain, exp.Column) and plain.name in WINDOW:
                self.times[item.alias_or_name] = plain.name

    def _source(
        self,
        node: exp.Expression,
        case: dict[str, Any],
        alias: str,
        kind: str,
        where: exp.Expression | None,
        *,
        changes: bool,
    ) -> Stream | Joined | Windows:
        inner: Any = node
        while isinstance(inner, exp.Subquery | exp.Paren) or (
            isinstance(inner, exp.Anonymous) and inner.name.upper() == "TABLE"
        ):
            inner = inner.expressions[0] if isinstance(inner, exp.Anonymous) else inner.this
        if not isinstance(inner, exp.Select):
            raise Unsupported(node.sql())
        item = inner.args["from_"].this
        if _function(item) is not None:
            function = _function(item) or exp.Anonymous()
            return Windows(inner, function, case, f"{self.prefix}{alias or kind}.", changes=changes)
        if inner.args.get("joins"):
            if where is not None:
                inner = _add_condition(inner, where.this)
            return Joined(inner, case, f"{self.prefix}{alias}." if alias else self.prefix, changes=changes)
        if isinstance(item, exp.Table) and isinstance(inner.expressions[0], exp.Star):
            return Stream(item.name, alias or item.name, case, self.prefix, changes=changes)
        raise Unsupported(inner.sql())

    def step(self, step: dict[str, Any]) -> Told:
        told = self.source.step(step)
        rows = [_without_diff(row) for row in told.rows]
        if not isinstance(self.source, Stream):
            rows = [
                ({c: from_json(row[c], self.source.columns[c]) for c in self.source.columns}, diff)
                for row, diff in rows
            ]
        given: list[tuple[Rows, int]] = [
            ((row,), diff) for row, diff in rows if self.where is None or self.where((row,)) is True
        ]
        mark = ENDED if step.get("end") else told.marks.get(self.time_key, NEVER)
        if isinstance(self.state, ChangingWindowState) and not self.changes:
            shown = [self._shown(row) for row in self.state.closed(given, mark)]
        elif isinstance(self.state, ChangingWindowState):
            changes = self.state.changes(given, mark)
            shown = [{**self._shown(row), "_diff": diff} for row, diff in changes]
        else:
            shown = [self._shown(row) for row in self.state.tick([row for row, _ in given], mark)]
        state = dict(told.state)
        if isinstance(self.source, Stream):
            state[f"{self.source.prefix}{self.source.alias}"] = len(self.state.kept)
        elif isinstance(self.source, Windows):
            state[self._stage_alias()] = len(self.state.kept)
        marks = {name: mark for (_, name), mark in self.state.put_out.items()}
        return Told(shown, marks, told.late, state)

    def _shown(self, row: dict[str, Any]) -> dict[str, Any]:
        return {name: to_json(row[name], kind) for name, kind in self.kinds.items()}

    def _stage_alias(self) -> str:
        assert isinstance(self.source, Windows)
        return self.source.prefix.removesuffix(".")


def _add_condition(select: exp.Select, condition: exp.Expression) -> exp.Select:
    """A SELECT with one more condition, over its outputs."""
    items = {
        item.alias_or_name: item.this if isinstance(item, exp.Alias) else item for item in select.expressions
    }

    def meant(node: exp.Expression) -> exp.Expression:
        return items[node.name].copy() if isinstance(node, exp.Column) else node

    return select.copy().where(condition.copy().transform(meant))


def _together(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Late rows of two readers of the same streams: a row that is late for both is one."""
    merged = list(first)
    left = list(first)
    for row in second:
        if row in left:
            left.remove(row)
        else:
            merged.append(row)
    return merged


__all__ = ["build", "has_windows", "run_windowed_case"]
