"""A query of a job as one SQL statement over all rows of its sources: its batch answer.

Made of what the front read, before any plan: joins as they are written, with the whole condition of each.
Watermarks play no part in it: no row is late, nothing is released. Rows without an event time are left out,
as they are by the job. The statement's columns are `column_name(0)`, `column_name(1)`, … for the query's, and
`PENDING`: whether the row is one that the job may only put out later.

A table FOR SYSTEM_TIME AS OF is what it is given as: the caller knows that all rows have met that. Such a row
waits for nothing, matched or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from watersmeet.diff.dialect import Dialect, Named, Names
from watersmeet.diff.known import AHEAD, Known
from watersmeet.diff.nearest import nearest
from watersmeet.diff.rows import Rows, number
from watersmeet.diff.windows import grouped
from watersmeet.names import ours
from watersmeet.spec.model import (
    WINDOW_END,
    WINDOW_START,
    Branch,
    Input,
    Join,
    JoinKind,
    OnIdle,
    Query,
    Relation,
    StageBranch,
    WindowKind,
)
from watersmeet.types.sql_type import UNKNOWN, SqlType

PENDING = ours("pending")
PART, AT = ours("part"), ours("at")
"""Columns of a source's rows: of a part (a partition of Kafka's; files: one for all) those with a greater
``AT`` were read in no earlier tick than those with a lesser one. Missing where no order is facts."""

_JOINS = {
    JoinKind.INNER: "JOIN",
    JoinKind.LEFT: "LEFT JOIN",
    JoinKind.RIGHT: "RIGHT JOIN",
    JoinKind.FULL: "FULL JOIN",
}


def column_name(number: int) -> str:
    """The name of a column of the statement.

    >>> column_name(0)
    '__ws_c0'
    """
    return ours(f"c{number}")


def statement(
    query: Query,
    dialect: Dialect,
    facts: Known,
    *,
    ordered: Iterable[str] = (),
    allowed_lateness: int = 0,
    without: frozenset[str] = frozenset(),
    now_us: int | None = None,
) -> str:
    """The SELECT of a query's batch answer.

    Args:
        ordered: sources whose rows have `PART` and `AT`.
        without: inputs whose rows that may have been late are left out.
        now_us: the clock, in µs since 1970, where there is no state that has one: rows further ahead of it
            than ``max_ahead`` were set aside by any tick before. None: rows are in the answer whatever their
            times are.

    Raises:
        SpecError: which row of an ASOF join is nearest cannot be told.
        Uncommon: the dialect is not certain to say the same as Spark.
    """
    return _Writer(dialect, facts, frozenset(ordered), allowed_lateness, without, now_us).query(query, "").sql


@dataclass
class _Writer:
    dialect: Dialect
    facts: Known
    ordered: frozenset[str]
    allowed_lateness: int
    without: frozenset[str]
    now_us: int | None
    _number: count[int] = field(default_factory=count)

    def new(self) -> str:
        return ours(f"d{next(self._number)}")

    def query(self, query: Query, prefix: str) -> Rows:
        """Columns `column_name`, and `PENDING`."""
        rows = self.relation(query.relation, prefix)
        where = "" if query.where is None else f" WHERE {self.dialect.expression(query.where, rows.names)}"
        pending = self._pending(rows, query.relation)
        if query.aggregation is not None:
            rows = grouped(
                query.aggregation, rows, where, pending, self.dialect, self.facts, self.new, prefix
            )
            where = ""
            if query.aggregation.having is not None:
                where = f" WHERE {self.dialect.expression(query.aggregation.having, rows.names)}"
            pending = rows.pending[0]
        outputs = [
            f"{self.dialect.expression(output.expr, rows.names)} AS {column_name(nth)}"
            for nth, output in enumerate(query.outputs)
        ]
        sql = f"SELECT {', '.join([*outputs, f'{pending} AS {PENDING}'])} FROM ({rows.sql}) r{where}"
        return Rows(sql, {}, waits=rows.waits)

    def _pending(self, rows: Rows, relation: Relation) -> str:
        """Whether a row is one that waits: it is padded, or taken for what is not there, and no time of it is
        below what was promised of later rows. Of two inputs each row is kept as it came, and has not left."""
        if self.facts.settled:
            return "FALSE"
        waits = ["TRUE"] if rows.waits else [f"{name} IS NULL" for name in rows.here] if rows.here[1:] else []
        beneath = [f"coalesce({name}, FALSE)" for name in rows.pending]
        if not waits:
            return " OR ".join(beneath) if beneath else "FALSE"
        marks = dict(self.facts.promised)
        if (
            isinstance(relation, Join)
            and isinstance(relation.left, Input)
            and isinstance(relation.right, Input)
        ):
            for key, limit in self.facts.released_below.items():
                marks[key] = max(limit, marks.get(key, -math.inf))
        above = [
            f"coalesce({self.dialect.micros(name, kind)} >= {number(marks[key])}, TRUE)"
            for name, kind, key in rows.times
            if marks.get(key, -math.inf) != -math.inf
        ]
        own = " AND ".join([f"({' OR '.join(waits)})", *above])
        return " OR ".join([f"({own})", *beneath])

    def relation(self, relation: Relation, prefix: str) -> Rows:
        if isinstance(relation, Input):
            return self.input(relation, prefix)
        left, right = self.relation(relation.left, prefix), self.relation(relation.right, prefix)
        rows = self.joined(relation, left, right)
        if relation.where is not None:
            condition = self.dialect.expression(relation.where, rows.names)
            rows = Rows(
                f"SELECT * FROM ({rows.sql}) r WHERE {condition}",
                rows.names, rows.times, rows.here, rows.pending, rows.waits,
            )  # fmt: skip
        return rows

    def joined(self, join: Join, left: Rows, right: Rows) -> Rows:
        names = {**left.names, **right.names}
        waits = left.waits or right.waits
        if join.kind.is_asof:
            sql = nearest(join, left, right, self.dialect, self.new)
            return Rows(
                sql, names, left.times + right.times, left.here + right.here,
                left.pending + right.pending, waits=True,
            )  # fmt: skip
        on = "TRUE" if join.on is None else self.dialect.expression(join.on, names)
        if join.is_lookup:
            right = replace(right, here=())
        if join.kind.hides_right:
            no = "NOT " if join.kind is JoinKind.ANTI else ""
            sql = f"SELECT * FROM ({left.sql}) l WHERE {no}EXISTS (SELECT 1 FROM ({right.sql}) r WHERE {on})"
            return Rows(
                sql, left.names, left.times, left.here, left.pending,
                waits or (join.kind is JoinKind.ANTI and not join.is_lookup),
            )  # fmt: skip
        return Rows(
            f"SELECT * FROM ({left.sql}) l {_JOINS[join.kind]} ({right.sql}) r ON {on}",
            names, left.times + right.times, left.here + right.here, left.pending + right.pending, waits,
        )  # fmt: skip

    def input(self, i: Input, prefix: str) -> Rows:
        name = f"{prefix}{i.alias}"
        here = self.new()
        columns = [Named(self.new(), column.type) for column in i.columns]
        pending = self.new() if i.stages else None
        branches, waits = [], False
        for nth, branch in enumerate(i.branches, 1):
            if isinstance(branch, Branch):
                sql = self.branch(i, name, branch, columns)
            else:
                inside = f"{name}.{nth}." if len(i.branches) > 1 else f"{name}."
                sql, waiting = self.stage(branch, inside, columns, pending or "")
                waits = waits or waiting
                if name in self.without and (late := self._below(name, _times_of(i, columns))):
                    sql = f"SELECT * FROM ({sql}) r WHERE NOT coalesce({' OR '.join(late)}, FALSE)"
            shown = [named.name for named in columns]
            if pending:
                shown.append(f"FALSE AS {pending}" if isinstance(branch, Branch) else pending)
            branches.append(f"SELECT {', '.join(shown)}, TRUE AS {here} FROM ({sql}) r")
        names = {(i.alias, column.name): named for column, named in zip(i.columns, columns, strict=True)}
        times = tuple(
            (named.name, named.type, f"{name}.{column.name}")
            for column, named in zip(i.columns, columns, strict=True)
            if column.name in i.event_times
        )
        return Rows(" UNION ALL ".join(branches), names, times, (here,), (pending,) if pending else (), False)

    def branch(self, i: Input, name: str, branch: Branch, columns: list[Named]) -> str:
        """The rows of a source that the input has, without those that have no event time, or one too far
        ahead of the clock."""
        own: Names = {("", c.name): Named(self.dialect.quoted(c.name), c.type) for c in branch.source.columns}
        expressions = [
            f"{self.dialect.expression(expr, own)} AS {named.name}"
            for expr, named in zip(branch.columns, columns, strict=True)
        ]
        passes = self.new()
        if branch.above is not None:
            expressions.append(f"{self.dialect.expression(branch.above, own)} AS {passes}")
        in_order = branch.source.name in self.ordered
        if in_order:
            expressions += [PART, AT]
        sql = f"SELECT {', '.join(expressions)} FROM {self.dialect.table(branch.source.name)}"
        if branch.beneath is not None:
            sql += f" WHERE {self.dialect.expression(branch.beneath, own)}"
        times = _times_of(i, columns)
        conditions = [f"{column} IS NOT NULL" for column, _, _ in times]
        clock_us = self.now_us if self.facts.clock_us is None else self.facts.clock_us
        may_be_ahead = not self.facts.tick or name in self.facts.counted(AHEAD)
        if clock_us is not None and branch.source.max_ahead_us is not None and may_be_ahead:
            latest = number(clock_us + branch.source.max_ahead_us)
            of_clock = [(column, kind) for column, kind, _ in times if not kind.is_integer]
            conditions += [f"{self.dialect.micros(column, kind)} <= {latest}" for column, kind in of_clock]
        if branch.above is not None:
            conditions.append(passes)
        source = f"({sql}) r"
        if name in self.without and times:
            source, late = self.late(i, name, branch, sql, times, in_order)
            conditions.append(f"NOT coalesce({late}, FALSE)")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {', '.join(named.name for named in columns)} FROM {source}{where}"

    def late(
        self,
        i: Input,
        name: str,
        branch: Branch,
        sql: str,
        times: list[tuple[str, SqlType, str]],
        in_order: bool,
    ) -> tuple[str, str]:
        """The branch's rows, and which of them may have been late: those that have a time below the watermark
        of now, and by more than the lag below the greatest time of rows that were read before."""
        below = self._below(name, times)
        sources = i.sources
        steady = all(s.idle_timeout_us is None and s.on_idle is OnIdle.HOLD for s in sources)
        lags = branch.lags if branch.lags else (None,) * len(times)
        if not (in_order and steady and None not in lags and self.facts.late_by_column):
            return f"({sql}) r", " OR ".join(below) or "FALSE"
        part, at = self.new(), self.new()
        greatest = [self.new() for _ in times]
        most = ", ".join(
            f"max({self.dialect.micros(column, kind)}) AS {name_}"
            for (column, kind, _), name_ in zip(times, greatest, strict=True)
        )
        before = ", ".join(
            f"max({name_}) OVER (PARTITION BY {PART} ORDER BY {AT}"
            f" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS {name_}"
            for name_ in greatest
        )
        beneath = [
            f"({self.dialect.micros(column, kind)} < {number(mark)} AND {self.dialect.micros(column, kind)}"
            f" < {name_} - {(lag or 0) + self.allowed_lateness})"
            for (column, kind, time), name_, lag in zip(times, greatest, lags, strict=True)
            if (mark := self.facts.late_below.get(f"{name}.{time}", math.inf)) != -math.inf
        ]
        source = (
            f"({sql}) r LEFT JOIN (SELECT {PART} AS {part}, {AT} AS {at}, {before} FROM"
            f" (SELECT {PART}, {AT}, {most} FROM ({sql}) r GROUP BY {PART}, {AT}) r) b"
            f" ON {PART} = {part} AND {AT} = {at}"
        )
        return source, " OR ".join(beneath) or "FALSE"

    def _below(self, name: str, times: Sequence[tuple[str, SqlType, str]]) -> list[str]:
        """Per event time of an input, whether it is below the watermark of now."""
        return [
            f"{self.dialect.micros(column, kind)} < {number(mark)}"
            for column, kind, time in times
            if (mark := self.facts.late_below.get(f"{name}.{time}", math.inf)) != -math.inf
        ]

    def stage(self, branch: StageBranch, inside: str, columns: list[Named], pending: str) -> tuple[str, bool]:
        rows = self.query(branch.stage, inside)
        own: Names = {
            ("", output.name): Named(column_name(nth), _type_of(branch.stage, nth))
            for nth, output in enumerate(branch.stage.outputs)
        }
        expressions = [
            f"{self.dialect.expression(expr, own)} AS {named.name}"
            for expr, named in zip(branch.columns, columns, strict=True)
        ]
        sql = f"SELECT {', '.join([*expressions, f'{PENDING} AS {pending}'])} FROM ({rows.sql}) r"
        if branch.above is not None:
            sql += f" WHERE {self.dialect.expression(branch.above, own)}"
        return sql, rows.waits


def _times_of(i: Input, columns: Sequence[Named]) -> list[tuple[str, SqlType, str]]:
    """The event times of an input: (column of the statement, type, name)."""
    by_name = {column.name: named for column, named in zip(i.columns, columns, strict=True)}
    return [(by_name[time].name, by_name[time].type, time) for time in i.event_times]


def group_columns(query: Query) -> tuple[int, ...]:
    """Of a query over groups: by which of its columns rows are of one group, though late rows be missing in
    it; empty for others, and where its rows do not tell their groups. A session has other ends then."""
    grouping = query.aggregation
    if grouping is None or grouping.ranking is not None:
        return ()
    keys, ends = {key.name for key in grouping.keys}, set[str]()
    if grouping.window is not None and grouping.window.kind is not WindowKind.SESSION:
        ends = {WINDOW_START, WINDOW_END}
    told = {
        n: output.expr.name
        for n, output in enumerate(query.outputs)
        if output.expr.key == "column" and not output.expr.text("table") and output.expr.name in keys | ends
    }
    is_told = keys <= set(told.values()) and (not ends or not ends.isdisjoint(told.values()))
    return tuple(told) if is_told else ()


def _type_of(query: Query, nth: int) -> SqlType:
    """Of an output, where it is a column."""
    expr = query.outputs[nth].expr
    if query.aggregation is not None:
        named = {column.name: column.type for column in query.aggregation.columns}
        return named.get(expr.name, UNKNOWN) if expr.key == "column" else UNKNOWN
    inputs = {i.alias: i for i in query.inputs}
    if expr.key == "column" and expr.text("table") in inputs:
        column = inputs[expr.text("table")].column(expr.name)
        return UNKNOWN if column is None else column.type
    return UNKNOWN
