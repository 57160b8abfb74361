"""ASOF joins in a batch answer: every left row with the right row that is nearest to it.

Of right rows with equal times the one that came first is taken by the job. The order of arrival is known only
where sources are read in one; else any of them is taken here, and the answer may differ in such rows.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from watersmeet.diff.dialect import Dialect
from watersmeet.diff.rows import Rows
from watersmeet.errors import SpecError
from watersmeet.spec.model import Join, JoinKind, inputs_of

_UPPER: dict[type[exp.Expr], int] = {exp.GTE: 1, exp.GT: 1, exp.LTE: -1, exp.LT: -1}
"""Sign of the right time in ``left side - right side`` by which the comparison bounds it from above is −1."""


def nearest(join: Join, left: Rows, right: Rows, dialect: Dialect, new: Callable[[], str]) -> str:
    """The SELECT of the join's rows."""
    names = {**left.names, **right.names}
    conditions = [part for part in (join.on, join.match) if part is not None]
    on = " AND ".join(f"({dialect.expression(part, names)})" for part in conditions)
    time, latest = _deciding(join)
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


def _deciding(join: Join) -> tuple[exp.Expr, bool]:
    """The right time by which one row is nearer than another, and whether the latest is."""
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
    """Of a column in ``left side - right side``."""
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
