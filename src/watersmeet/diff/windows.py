"""Groups of a batch answer: windows over an event time, keys, aggregates; rows of a partition, numbered."""

from __future__ import annotations

import math
from collections.abc import Callable

from watersmeet.diff.dialect import Dialect, Named
from watersmeet.diff.known import Known
from watersmeet.diff.rows import Rows, number
from watersmeet.spec.model import WINDOW_END, WINDOW_START, Aggregation, Window, WindowKind
from watersmeet.types.sql_type import SqlType

New = Callable[[], str]


def grouped(
    aggregation: Aggregation,
    rows: Rows,
    where: str,
    pending: str,
    dialect: Dialect,
    facts: Known,
    new: New,
    prefix: str,
) -> Rows:
    """The groups of those of ``rows`` that pass ``where``, by the names of the aggregation's columns.

    Args:
        pending: whether a row of ``rows`` may come later.
        prefix: of the watermark keys of the result.
    """
    types = {column.name: column.type for column in aggregation.columns}
    own = new()
    keys = [(new(), key) for key in aggregation.keys]
    columns = [f"{dialect.expression(key.expr, rows.names)} AS {name}" for name, key in keys]
    inner = f"SELECT *, {', '.join([*columns, f'{pending} AS {own}'])} FROM ({rows.sql}) r{where}"
    names = {("", key.name): Named(name, types[key.name]) for name, key in keys}
    if aggregation.ranking is not None:
        return _ranked(aggregation, inner, names, own, new)
    by = [name for name, _ in keys]
    later = f"coalesce(bool_or({own}), FALSE)"
    if aggregation.window is not None:
        kind = types[WINDOW_START]
        start, end = new(), new()
        time = dialect.expression(aggregation.window.time, rows.names)
        inner = _windowed(aggregation.window, inner, dialect.micros(time, kind), by, (start, end), new)
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
    names |= {("", a.name): Named(name, types[a.name]) for name, a in aggregates}
    if aggregation.window is not None:
        ends = [(start, WINDOW_START), (end, WINDOW_END)]
        shown = [(new(), name, dialect.time(column, types[name])) for column, name in ends]
        more = ", ".join(f"{text} AS {column}" for column, _, text in shown)
        sql = f"SELECT *, {more} FROM ({sql}) r"
        names |= {("", name): Named(column, types[name]) for column, name, _ in shown}
    return Rows(sql, names, pending=(waits,))


def _windowed(
    window: Window, rows: str, micros: str, keys: list[str], ends: tuple[str, str], new: New
) -> str:
    """Each row in each of its windows, with their ends as numbers. A row without a time is in none."""
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
    """Rows no more than the gap apart are of one session; it ends a gap after its last row."""
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


def _ranked(
    aggregation: Aggregation, rows: str, names: dict[tuple[str, str], Named], pending: str, new: New
) -> Rows:
    """Rows with their numbers, those alone that go out."""
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
    numbered = {("", ranking.number): Named(ranked, kinds[ranking.number])}
    return Rows(sql, {**names, **numbered}, pending=(pending,))
