"""Windows of the oracle: rows are kept in a list, every window of every row is looked at in every tick.

Written from semantics.md section 4. A TUMBLE or HOP window closes when the watermark has reached its end, a
session when the watermark is beyond its end: a row exactly the gap after the last one still belongs to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from tests.support.oracle.aggregates import ORDER, compile_aggregate
from tests.support.oracle.sql import (
    Function,
    Rows,
    Scope,
    compile_expr,
    interval_us,
)
from tests.support.oracle.values import (
    ENDED,
    NEVER,
    Refused,
    Unsupported,
    bag_key,
    saturate,
)

GROUP = "#group"
"""The input, of one row, that expressions over a group's result are compiled for."""
WINDOW = ("window_start", "window_end")


@dataclass
class WindowPlan:
    """``keys``, ``aggregates``, ``outputs``: (name, kind, function); those of ``outputs`` and ``having`` take
    the result of a group."""

    kind: str
    size: int
    slide: int
    time: Function
    key: tuple[str, str]
    """(alias, column) of the time: its watermark closes the windows."""
    time_kind: str
    keys: list[tuple[str, str, Function]]
    aggregates: list[tuple[str, str, Callable[[Any], Any]]]
    outputs: list[tuple[str, str, Function]]
    having: Function | None


def read_windows(
    select: exp.Select,
    function: exp.Anonymous,
    key: tuple[str, str],
    scope: Scope,
    resolve: Callable[[exp.Expression], exp.Expression],
) -> WindowPlan:
    """A SELECT over a window function.

    Args:
        function: ``TUMBLE_OF(…, DESCRIPTOR(t), …)``.
        key: (alias, column) of the time.
        scope: of the rows that are grouped.
        resolve: names every column of an expression over those rows; window_start and window_end stay.
    """
    kind = function.name.upper().removesuffix("_OF")
    time_kind, time = compile_expr(exp.column(key[1], table=key[0]), scope)
    sizes = [_size(e, time_kind) for e in function.expressions[2:]]
    if min(sizes) <= 0:
        raise Refused(f"{kind}: the size must be greater than 0")
    group = select.args.get("group")
    if group is None:
        raise Refused(f"{kind} without GROUP BY")
    by = [resolve(e) for e in group.expressions]
    if not any(isinstance(e, exp.Column) and not e.table and e.name in WINDOW for e in by):
        raise Refused("GROUP BY without the window")
    by = [e for e in by if not (isinstance(e, exp.Column) and not e.table and e.name in WINDOW)]
    window_kind = "int" if time_kind == "int" else "ts"
    kinds = dict.fromkeys(WINDOW, window_kind)
    keys: list[tuple[str, str, Function]] = []
    aggregates: list[tuple[str, str, Callable[[Any], Any]]] = []
    named: list[tuple[exp.Expression, str]] = []
    for number, node in enumerate(by):
        key_kind, f = compile_expr(node, scope)
        keys.append((f"k{number}", key_kind, f))
        kinds[f"k{number}"] = key_kind
        named.append((node, f"k{number}"))

    def cut(node: exp.Expression) -> exp.Expression:
        for named_node, name in named:
            if node == named_node:
                return exp.column(name, table=GROUP)
        if isinstance(node, exp.AggFunc | exp.Filter):
            name = f"a{len(aggregates)}"
            result_kind, f = compile_aggregate(node, scope)
            aggregates.append((name, result_kind, f))
            kinds[name] = result_kind
            named.append((node, name))
            return exp.column(name, table=GROUP)
        if isinstance(node, exp.Column):
            if node.name in WINDOW and not node.table:
                return exp.column(node.name, table=GROUP)
            raise Refused(f'"{node.sql()}" is not grouped by')
        copied = node.copy()
        for place, child in node.args.items():
            if isinstance(child, exp.Expression):
                copied.set(place, cut(child))
            elif isinstance(child, list):
                copied.set(place, [cut(e) if isinstance(e, exp.Expression) else e for e in child])
        return copied

    items = []
    for item in select.expressions:
        plain = item.this if isinstance(item, exp.Alias) else item
        items.append((item.alias_or_name or item.sql(dialect="spark"), cut(resolve(plain))))
    having = select.args.get("having")
    condition = None if having is None else cut(resolve(having.this))
    results = Scope({GROUP: kinds})
    return WindowPlan(
        kind,
        max(sizes),
        min(sizes),
        time,
        key,
        time_kind,
        keys,
        aggregates,
        [(name, *compile_expr(node, results)) for name, node in items],
        None if condition is None else compile_expr(condition, results)[1],
    )


def _size(node: exp.Expression, kind: str) -> int:
    if isinstance(node, exp.Interval):
        if kind == "int":
            raise Refused(f"an interval for an integer time: {node.sql()}")
        return interval_us(node)[1]
    if isinstance(node, exp.Literal) and kind == "int":
        return int(node.name)
    if isinstance(node, exp.Neg) and kind == "int":
        return -int(node.this.name)
    raise Unsupported(f"the size {node.sql()}")


@dataclass
class WindowState:
    """The rows of windows that are open, and the watermarks put out."""

    plan: WindowPlan
    kept: list[tuple[int, tuple[Any, ...], Rows]] = field(default_factory=list)
    """(time, key values, row)."""
    mark: Any = NEVER
    put_out: dict[tuple[str, str], Any] = field(default_factory=dict)
    null_time: int = 0
    grouped: int = 0

    def tick(self, rows: list[Rows], mark: Any) -> list[dict[str, Any]]:
        """Take the tick's rows, and close windows by the watermark of the time (less allowed_lateness); the
        results, as values by output name. ``mark`` is never less than before."""
        for row in rows:
            time = self.plan.time(row)
            if time is None:
                self.null_time += 1
            else:
                self.kept.append((time, tuple(f(row) for _, _, f in self.plan.keys), row))
        before, self.mark = self.mark, max(mark, self.mark)
        groups = self._sessions() if self.plan.kind == "SESSION" else self._windows(before)
        results = [self._result(*group) for group in groups]
        self._advance()
        return [
            {name: f((result,)) for name, _, f in self.plan.outputs}
            for result in results
            if self.plan.having is None or self.plan.having((result,)) is True
        ]

    def _windows(self, before: Any) -> list[tuple[int, int, tuple[Any, ...], list[Rows]]]:
        """Windows that close between two watermarks; forgets rows of which all windows are closed."""
        size, slide = self.plan.size, self.plan.slide
        groups: dict[Any, tuple[int, int, tuple[Any, ...], list[Rows]]] = {}
        for time, keys, row in self.kept:
            start = time // slide * slide
            while start + size > time:
                if before < start + size <= self.mark:
                    group = groups.setdefault((start, _key(keys)), (start, start + size, keys, []))
                    group[3].append(row)
                start -= slide
        still = [entry for entry in self.kept if entry[0] // slide * slide + size > self.mark]
        self.grouped += len(self.kept) - len(still)
        self.kept = still
        return list(groups.values())

    def _sessions(self) -> list[tuple[int, int, tuple[Any, ...], list[Rows]]]:
        """Sessions that the watermark is beyond the end of; forgets their rows."""
        gap = self.plan.size
        closed, still = [], []
        for session in self._all_sessions():
            if session[-1][0] + gap < self.mark:
                rows = [row for _, _, row in session]
                closed.append((session[0][0], session[-1][0] + gap, session[0][1], rows))
            else:
                still += session
        self.grouped += len(self.kept) - len(still)
        self.kept = still
        return closed

    def _all_sessions(self) -> list[list[tuple[int, tuple[Any, ...], Rows]]]:
        """The rows that are kept, those of each session together."""
        every = []
        per_key: dict[Any, list[tuple[int, tuple[Any, ...], Rows]]] = {}
        for entry in sorted(self.kept, key=lambda e: e[0]):
            per_key.setdefault(_key(entry[1]), []).append(entry)
        for entries in per_key.values():
            sessions: list[list[tuple[int, tuple[Any, ...], Rows]]] = []
            for entry in entries:
                if sessions and entry[0] - sessions[-1][-1][0] <= self.plan.size:
                    sessions[-1].append(entry)
                else:
                    sessions.append([entry])
            every += sessions
        return every

    def _result(self, start: int, end: int, keys: tuple[Any, ...], rows: list[Rows]) -> dict[str, Any]:
        result: dict[str, Any] = {"window_start": saturate(start), "window_end": saturate(end)}
        result |= {name: value for (name, _, _), value in zip(self.plan.keys, keys, strict=True)}
        return result | {name: f(rows) for name, _, f in self.plan.aggregates}

    def _advance(self) -> None:
        """The output watermarks of the two ends of windows; never going back."""
        if self.mark == NEVER:
            return
        if self.plan.kind == "SESSION":
            start = min([self.mark, *(time for time, _, _ in self.kept)])
        else:
            start = self.mark if self.mark == ENDED else saturate(self.mark - self.plan.size)
        for name, mark in zip(WINDOW, (start, self.mark), strict=True):
            self.put_out["", name] = max(mark, self.put_out.get(("", name), NEVER))


class ChangingWindowState(WindowState):
    """Windows whose rows come and go: all windows that are open are computed anew in every tick, before its
    changes and after; or those that close, then."""

    def changes(self, rows: list[tuple[Rows, int]], mark: Any) -> list[tuple[dict[str, Any], int]]:
        """The results that go and come in a tick, summed per equal one."""
        before = self._open()
        self._take(rows)
        sums: dict[Any, tuple[dict[str, Any], int]] = {}
        for results, diff in ((before, -1), (self._open(), 1)):
            for result in results:
                made = {name: f((result,)) for name, _, f in self.plan.outputs}
                if self.plan.having is None or self.plan.having((result,)) is True:
                    key = bag_key(made)
                    sums[key] = (made, sums.get(key, (made, 0))[1] + diff)
        self.mark = max(mark, self.mark)
        if self.plan.kind == "SESSION":
            self._sessions()
        else:
            size, slide = self.plan.size, self.plan.slide
            self.kept = [entry for entry in self.kept if entry[0] // slide * slide + size > self.mark]
        self._advance()
        return [change for change in sums.values() if change[1]]

    def closed(self, rows: list[tuple[Rows, int]], mark: Any) -> list[dict[str, Any]]:
        """The final results of the windows that close in a tick, of the rows that are there then."""
        self._take(rows)
        return self.tick([], mark)

    def _take(self, rows: list[tuple[Rows, int]]) -> None:
        for row, diff in rows:
            time = self.plan.time(row)
            if time is None:
                self.null_time += abs(diff)
                continue
            entry = (time, tuple(f(row) for _, _, f in self.plan.keys), row)
            for _ in range(diff):
                self.kept.append(entry)
            for _ in range(-diff):
                same = (kept for kept in self.kept if _row_key(kept[2]) == _row_key(row))
                self.kept.remove(next(same))

    def _open(self) -> list[dict[str, Any]]:
        """The results of the windows that the watermark has not reached the end of; all sessions: the rows of
        closed ones are kept no more."""
        if self.plan.kind == "SESSION":
            return [
                self._result(rows[0][0], rows[-1][0] + self.plan.size, rows[0][1], [row for *_, row in rows])
                for rows in self._all_sessions()
            ]
        size, slide = self.plan.size, self.plan.slide
        groups: dict[Any, tuple[int, tuple[Any, ...], list[Rows]]] = {}
        for time, keys, row in self.kept:
            start = time // slide * slide
            while start + size > time:
                if start + size > self.mark:
                    groups.setdefault((start, _key(keys)), (start, keys, []))[2].append(row)
                start -= slide
        return [self._result(start, start + size, keys, rows) for start, keys, rows in groups.values()]


def _row_key(rows: Rows) -> tuple[Any, ...]:
    return tuple(map(bag_key, rows))


def _key(keys: tuple[Any, ...]) -> tuple[Any, ...]:
    return bag_key({str(number): value for number, value in enumerate(keys)})


__all__ = ["ORDER", "ChangingWindowState", "WindowPlan", "WindowState", "read_windows"]
