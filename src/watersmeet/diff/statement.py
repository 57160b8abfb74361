"""A query of a job as one SQL statement over all rows of its sources."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from sqlglot import exp

from watersmeet.diff.dialect import Dialect, NamedColumn, Names
from watersmeet.diff.explanations import AHEAD, QueryFacts
from watersmeet.errors import SpecError
from watersmeet.event_time import Watermark
from watersmeet.names import ours
from watersmeet.spec.model import (
    WINDOW_END,
    WINDOW_START,
    Aggregation,
    Branch,
    Input,
    Join,
    JoinKind,
    OnIdle,
    Query,
    Relation,
    StageBranch,
    Window,
    WindowKind,
    inputs_of,
)
from watersmeet.types.sql_type import UNKNOWN, SqlType

# A SELECT that is part of a batch answer, and what it knows of its rows.

_AFTER_ALL_TIMES = 10**25
"""More than any event time, with whatever is added to it."""


@dataclass(frozen=True)
class AnswerRows:
    """SELECT of rows, with what the rest of the statement needs to know about it.

    Args:
        names: Names that enclosing expressions may mention.
        times: Event times, as (column, type, watermark key).
        here: For each visible input, a column that is TRUE, or NULL where the input was padded.
        pending: Columns that are TRUE in rows that the job may emit later.
        waits: True if any row may be such a row, although none is padded.
    """

    sql: str
    names: Names
    times: tuple[tuple[str, SqlType, str], ...] = ()
    here: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    waits: bool = False


def number(mark: Watermark) -> str:
    """Format a watermark as a SQL number."""
    if isinstance(mark, float):
        return str(_AFTER_ALL_TIMES if mark > 0 else -_AFTER_ALL_TIMES)
    return str(mark)


# ASOF joins in a batch answer: every left row with the right row that is nearest to it.
#
# Of right rows with equal times the one that came first is taken by the job. The order of arrival is
# known only where sources are read in one; else any of them is taken here, and the answer may differ in
# such rows.

_UPPER: dict[type[exp.Expr], int] = {exp.GTE: 1, exp.GT: 1, exp.LTE: -1, exp.LT: -1}
"""Sign of the right time in ``left side - right side`` by which the comparison bounds it from above is −1."""


def nearest(join: Join, left: AnswerRows, right: AnswerRows, dialect: Dialect, new: Callable[[], str]) -> str:
    """Build the SELECT of an ASOF join's rows."""
    names = {**left.names, **right.names}
    conditions = [part for part in (join.on, join.match) if part is not None]
    on = " AND ".join(f"({dialect.expression(part, names)})" for part in conditions)
    time, latest = _deciding_time(join)
    by = dialect.expression(time, names)
    row, place = new(), new()
    here = right.here[0]
    word = "LEFT JOIN" if join.kind is JoinKind.ASOF_LEFT else "JOIN"
    return (
        f"SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY {row} ORDER BY {here} NULLS LAST, {by}"
        f" {'DESC' if latest else 'ASC'}) AS {place} FROM"
        f" (SELECT *, {dialect.row_id()} AS {row} FROM ({left.sql}) l) l {word} ({right.sql}) r ON {on}) r"
        f" WHERE {place} = 1"
    )


def _deciding_time(join: Join) -> tuple[exp.Expr, bool]:
    """Return the right-hand time that decides which row of an ASOF join is nearest.

    Returns:
        The time, and True if the latest row is the nearest.

    Raises:
        SpecError: The condition does not determine the nearest row.
    """
    right = next(inputs_of(join.right))
    for conjunct in _conjuncts(join.match if join.match is not None else join.on):
        if type(conjunct) not in _UPPER:
            continue
        times = [
            column
            for column in conjunct.find_all(exp.Column)
            if column.table == right.alias and column.name in right.event_times
        ]
        others = [column for column in conjunct.find_all(exp.Column) if column.table != right.alias]
        if len(times) == 1 and others:
            return times[0], _sign(times[0], conjunct) != _UPPER[type(conjunct)]
    raise SpecError(
        f"the ASOF join's condition does not determine the nearest row of {right.alias}",
        code="not-compared",
        hint="write MATCH_CONDITION (… >= …) between plain event times",
    )


def _conjuncts(expr: exp.Expr | None) -> list[exp.Expr]:
    if expr is None:
        return []
    if isinstance(expr, exp.Paren):
        return _conjuncts(expr.this)
    if isinstance(expr, exp.And):
        return [*_conjuncts(expr.this), *_conjuncts(expr.expression)]
    if isinstance(expr, exp.Between):
        return [
            exp.GTE(this=expr.this.copy(), expression=expr.args["low"].copy()),
            exp.LTE(this=expr.this.copy(), expression=expr.args["high"].copy()),
        ]
    return [expr]


def _sign(time: exp.Column, conjunct: exp.Expr) -> int:
    """Return the sign of a column in ``left side - right side``."""
    sign = 1
    node: exp.Expr = time
    while node is not conjunct:
        parent = node.parent
        assert parent is not None
        minus = isinstance(parent, exp.Neg) or (
            isinstance(parent, exp.Sub | exp.GTE | exp.GT | exp.LTE | exp.LT) and parent.expression is node
        )
        sign, node = (-sign if minus else sign), parent
    return sign


# Groups of a batch answer: windows over an event time, keys, aggregates; rows of a partition, numbered.

New = Callable[[], str]


def aggregate_answer(
    aggregation: Aggregation,
    rows: AnswerRows,
    where: str,
    pending: str,
    dialect: Dialect,
    facts: QueryFacts,
    new: New,
    prefix: str,
) -> AnswerRows:
    """Build the groups of those ``rows`` that satisfy ``where``.

    Args:
        pending: Condition that is true if a row of ``rows`` may arrive later.
        prefix: Prefix of the watermark keys of the result.

    Returns:
        The groups, by the names of the aggregation's columns.
    """
    types = {column.name: column.type for column in aggregation.columns}
    own = new()
    keys = [(new(), key) for key in aggregation.keys]
    columns = [f"{dialect.expression(key.expr, rows.names)} AS {name}" for name, key in keys]
    inner = f"SELECT *, {', '.join([*columns, f'{pending} AS {own}'])} FROM ({rows.sql}) r{where}"
    names = {("", key.name): NamedColumn(name, types[key.name]) for name, key in keys}
    if aggregation.ranking is not None:
        return _number_rows(aggregation, inner, names, own, new)
    by = [name for name, _ in keys]
    later = f"coalesce(bool_or({own}), FALSE)"
    if aggregation.window is not None:
        kind = types[WINDOW_START]
        start, end = new(), new()
        time = dialect.expression(aggregation.window.time, rows.names)
        inner = _assign_windows(aggregation.window, inner, dialect.micros(time, kind), by, (start, end), new)
        by = [start, end, *by]
        closed = facts.promised.get(f"{prefix}{WINDOW_END}", -math.inf)
        at = ">=" if aggregation.window.kind is WindowKind.SESSION else ">"
        if closed != -math.inf and not facts.settled:
            later = f"({later} OR {end} {at} {number(closed)})"
        elif not facts.settled:
            later = "TRUE"
    aggregates = [(new(), aggregate) for aggregate in aggregation.aggregates]
    computed = [f"{dialect.expression(a.expr, rows.names)} AS {name}" for name, a in aggregates]
    group = f" GROUP BY {', '.join(by)}" if by else ""
    waits = new()
    sql = f"SELECT {', '.join([*by, *computed, f'{later} AS {waits}'])} FROM ({inner}) r{group}"
    names |= {("", a.name): NamedColumn(name, types[a.name]) for name, a in aggregates}
    if aggregation.window is not None:
        ends = [(start, WINDOW_START), (end, WINDOW_END)]
        shown = [(new(), name, dialect.time(column, types[name])) for column, name in ends]
        more = ", ".join(f"{text} AS {column}" for column, _, text in shown)
        sql = f"SELECT *, {more} FROM ({sql}) r"
        names |= {("", name): NamedColumn(column, types[name]) for column, name, _ in shown}
    return AnswerRows(sql, names, pending=(waits,))


def _assign_windows(
    window: Window, rows: str, micros: str, keys: list[str], ends: tuple[str, str], new: New
) -> str:
    """Build SQL that returns each row once per window of it, with the window's ends as numbers.

    A row without a time is in no window.
    """
    at, (start, end) = new(), ends
    timed = f"SELECT * FROM (SELECT *, {micros} AS {at} FROM ({rows}) r) r WHERE {at} IS NOT NULL"
    if window.kind is WindowKind.SESSION:
        return _sessions(window.size, timed, at, keys, ends, new)
    last, nth = new(), new()
    slide, size = window.slide, window.size
    first = f"{at} - ((({at} % {slide}) + {slide}) % {slide})"
    windows = ", ".join(f"({n})" for n in range(-(-size // slide)))
    return (
        f"SELECT *, {last} - {nth} * {slide} AS {start}, {last} - {nth} * {slide} + {size} AS {end} FROM"
        f" (SELECT *, {first} AS {last} FROM ({timed}) r) r CROSS JOIN (VALUES {windows}) AS v({nth})"
        f" WHERE {last} - {nth} * {slide} + {size} > {at}"
    )


def _sessions(gap: int, rows: str, at: str, keys: list[str], ends: tuple[str, str], new: New) -> str:
    """Build SQL that assigns rows to sessions.

    Rows at most one gap apart belong to one session. It ends one gap after its last row.
    """
    begins, session = new(), new()
    by_key = f"PARTITION BY {', '.join(keys)} " if keys else ""
    of_session = f"PARTITION BY {', '.join([*keys, session])}"
    start, end = ends
    return (
        f"SELECT *, min({at}) OVER ({of_session}) AS {start}, max({at}) OVER ({of_session}) + {gap} AS {end}"
        f" FROM (SELECT *, sum({begins}) OVER ({by_key}ORDER BY {at}"
        f" RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS {session} FROM"
        f" (SELECT *, CASE WHEN {at} - lag({at}) OVER ({by_key}ORDER BY {at}) <= {gap} THEN 0 ELSE 1 END"
        f" AS {begins} FROM ({rows}) r) r) r"
    )


def _number_rows(
    aggregation: Aggregation, rows: str, names: dict[tuple[str, str], NamedColumn], pending: str, new: New
) -> AnswerRows:
    """Build SQL that numbers the rows, and retains only those that the query emits."""
    ranking = aggregation.ranking
    assert ranking is not None
    partition = ", ".join(names["", name].name for name in ranking.partition)
    order = ", ".join(
        f"{names['', key.name].name} {'DESC' if key.descending else 'ASC'}"
        f" NULLS {'FIRST' if key.nulls_first else 'LAST'}"
        for key in ranking.order
    )
    over = f"{f'PARTITION BY {partition} ' if partition else ''}{f'ORDER BY {order}' if order else ''}"
    ranked = new()
    most = "" if ranking.most is None else f" WHERE {ranked} <= {ranking.most}"
    sql = f"SELECT * FROM (SELECT *, row_number() OVER ({over}) AS {ranked} FROM ({rows}) r) r{most}"
    kinds: dict[str, SqlType] = {column.name: column.type for column in aggregation.columns}
    numbered = {("", ranking.number): NamedColumn(ranked, kinds[ranking.number])}
    return AnswerRows(sql, {**names, **numbered}, pending=(pending,))


# A query of a job as one SQL statement over all rows of its sources: its batch answer.
#
# Made of what the front read, before any plan: joins as they are written, with the whole condition of
# each. Watermarks play no part in it: no row is late, nothing is released. Rows without an event time are
# left out, as they are by the job. The statement's columns are `column_name(0)`, `column_name(1)`, … for
# the query's, and `PENDING`: whether the row is one that the job may only put out later.
#
# A table FOR SYSTEM_TIME AS OF is what it is given as: the caller knows that all rows have met that. Such
# a row waits for nothing, matched or not.

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
    """Return the name of a column of the statement.

    >>> column_name(0)
    '__ws_c0'
    """
    return ours(f"c{number}")


def statement(
    query: Query,
    dialect: Dialect,
    facts: QueryFacts,
    *,
    ordered: Iterable[str] = (),
    allowed_lateness: int = 0,
    without: frozenset[str] = frozenset(),
    now_us: int | None = None,
) -> str:
    """Build the SELECT of a query's batch answer.

    Args:
        ordered: Sources whose rows have `PART` and `AT`.
        without: Inputs from which rows that may have been late are left out.
        now_us: The clock in µs since 1970, for use when no state records one: any earlier tick would
            have moved rows that are further ahead of it than ``max_ahead`` to a side output. None: rows
            are in the answer whatever their times are.

    Raises:
        SpecError: The nearest row of an ASOF join cannot be determined.
        UnsupportedInDialect: The dialect may not have the same meaning as Spark.
    """
    return _Writer(dialect, facts, frozenset(ordered), allowed_lateness, without, now_us).query(query, "").sql


@dataclass
class _Writer:
    dialect: Dialect
    facts: QueryFacts
    ordered: frozenset[str]
    allowed_lateness: int
    without: frozenset[str]
    now_us: int | None
    _number: count[int] = field(default_factory=count)

    def new(self) -> str:
        return ours(f"d{next(self._number)}")

    def query(self, query: Query, prefix: str) -> AnswerRows:
        """Build the SELECT of a query, with the columns of `column_name`, and `PENDING`."""
        rows = self.relation(query.relation, prefix)
        where = "" if query.where is None else f" WHERE {self.dialect.expression(query.where, rows.names)}"
        pending = self._pending(rows, query.relation)
        if query.aggregation is not None:
            rows = aggregate_answer(
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
        return AnswerRows(sql, {}, waits=rows.waits)

    def _pending(self, rows: AnswerRows, relation: Relation) -> str:
        """Build the condition that a row is still waiting.

        Such a row is padded, or stands in for a missing one, and none of its times is below the watermark
        of later rows. In a join of two inputs, each row is stored as it arrived and has not been released.
        """
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

    def relation(self, relation: Relation, prefix: str) -> AnswerRows:
        if isinstance(relation, Input):
            return self.input(relation, prefix)
        left, right = self.relation(relation.left, prefix), self.relation(relation.right, prefix)
        rows = self.joined(relation, left, right)
        if relation.where is not None:
            condition = self.dialect.expression(relation.where, rows.names)
            rows = AnswerRows(
                f"SELECT * FROM ({rows.sql}) r WHERE {condition}",
                rows.names, rows.times, rows.here, rows.pending, rows.waits,
            )  # fmt: skip
        return rows

    def joined(self, join: Join, left: AnswerRows, right: AnswerRows) -> AnswerRows:
        names = {**left.names, **right.names}
        waits = left.waits or right.waits
        if join.kind.is_asof:
            sql = nearest(join, left, right, self.dialect, self.new)
            return AnswerRows(
                sql, names, left.times + right.times, left.here + right.here,
                left.pending + right.pending, waits=True,
            )  # fmt: skip
        on = "TRUE" if join.on is None else self.dialect.expression(join.on, names)
        if join.is_lookup:
            right = replace(right, here=())
        if join.kind.hides_right:
            no = "NOT " if join.kind is JoinKind.ANTI else ""
            sql = f"SELECT * FROM ({left.sql}) l WHERE {no}EXISTS (SELECT 1 FROM ({right.sql}) r WHERE {on})"
            return AnswerRows(
                sql, left.names, left.times, left.here, left.pending,
                waits or (join.kind is JoinKind.ANTI and not join.is_lookup),
            )  # fmt: skip
        return AnswerRows(
            f"SELECT * FROM ({left.sql}) l {_JOINS[join.kind]} ({right.sql}) r ON {on}",
            names, left.times + right.times, left.here + right.here, left.pending + right.pending, waits,
        )  # fmt: skip

    def input(self, i: Input, prefix: str) -> AnswerRows:
        name = f"{prefix}{i.alias}"
        here = self.new()
        columns = [NamedColumn(self.new(), column.type) for column in i.columns]
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
        return AnswerRows(
            " UNION ALL ".join(branches), names, times, (here,), (pending,) if pending else (), False
        )

    def branch(self, i: Input, name: str, branch: Branch, columns: list[NamedColumn]) -> str:
        """Build the SELECT of the rows that the input reads from a source.

        Rows without an event time, or with one too far ahead of the clock, are left out.
        """
        own: Names = {
            ("", c.name): NamedColumn(self.dialect.quoted(c.name), c.type) for c in branch.source.columns
        }
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
        """Build the branch's rows, and the condition that a row may have been late.

        Such a row has a time below the current watermark, and by more than the lag below the greatest time
        of rows that were read before.
        """
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
        """Build a condition for each event time of an input: it is below the current watermark."""
        return [
            f"{self.dialect.micros(column, kind)} < {number(mark)}"
            for column, kind, time in times
            if (mark := self.facts.late_below.get(f"{name}.{time}", math.inf)) != -math.inf
        ]

    def stage(
        self, branch: StageBranch, inside: str, columns: list[NamedColumn], pending: str
    ) -> tuple[str, bool]:
        rows = self.query(branch.stage, inside)
        own: Names = {
            ("", output.name): NamedColumn(column_name(nth), _type_of(branch.stage, nth))
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


def _times_of(i: Input, columns: Sequence[NamedColumn]) -> list[tuple[str, SqlType, str]]:
    """Return the event times of an input, as (column of the statement, type, name)."""
    by_name = {column.name: named for column, named in zip(i.columns, columns, strict=True)}
    return [(by_name[time].name, by_name[time].type, time) for time in i.event_times]


def group_columns(query: Query) -> tuple[int, ...]:
    """Return the columns of a query over groups that identify a group even if rows are late.

    Returns an empty tuple for other queries, and if the rows do not identify their groups. The ends of
    a session are not included, because they change if rows are missing.
    """
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
    """Return the type of an output if it is a column; else UNKNOWN."""
    expr = query.outputs[nth].expr
    if query.aggregation is not None:
        named = {column.name: column.type for column in query.aggregation.columns}
        return named.get(expr.name, UNKNOWN) if expr.key == "column" else UNKNOWN
    inputs = {i.alias: i for i in query.inputs}
    if expr.key == "column" and expr.text("table") in inputs:
        column = inputs[expr.text("table")].column(expr.name)
        return UNKNOWN if column is None else column.type
    return UNKNOWN
