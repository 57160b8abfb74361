"""WATERMARK FOR in a declaration: ``WATERMARK FOR t AS t - INTERVAL '10' SECONDS``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.errors import near_names
from watersmeet.front.ddl.durations import lag_of
from watersmeet.front.text.place import Text
from watersmeet.front.text.tokens import Cursor, parse_tokens
from watersmeet.spec.model import Column, EventTime
from watersmeet.types.sql_type import INTEGERS, TIMES


@dataclass(frozen=True)
class WatermarkClause:
    """An event time as written, its lag (None: 0), and where it stands."""

    column: str
    lag: exp.Expression | None
    start: int


def watermark_clause(cursor: Cursor) -> WatermarkClause:
    """Read ``FOR t AS t - lag``; the lag is None for ``AS t`` and where it is left out."""
    cursor.expect("FOR")
    start = cursor.offset
    name = cursor.name("a column name")
    if cursor.looks_at("."):
        path = f"{name}{cursor.fields()}"
        message = f"WATERMARK FOR {path}: it is a field of a STRUCT, but an event time must be a column"
        own = path.rsplit(".", 1)[-1]
        hint = (
            f"compute a column of it: {own} AS {path}, WATERMARK FOR {own} AS {own} - INTERVAL '10' SECONDS"
        )
        raise cursor.text.error(message, "not-supported", start, hint)
    if not cursor.accept("AS"):
        return WatermarkClause(name, None, start)
    tree = parse_tokens(cursor.text, cursor.until_comma()).unnest()
    lag = None
    if isinstance(tree, exp.Sub):
        tree, lag = tree.this.unnest(), tree.expression
    if not isinstance(tree, exp.Column) or tree.name.lower() != name.lower():
        raise cursor.text.error(
            f'the watermark of "{name}" must be {name} or {name} - lag',
            "bad-lag",
            start,
            f"write WATERMARK FOR {name} AS {name} - INTERVAL '10' SECONDS",
        )
    return WatermarkClause(name, lag, start)


def event_times_of(
    clauses: Sequence[WatermarkClause], columns: Sequence[Column], text: Text, *, by_files: bool
) -> list[EventTime]:
    """Return the event times of a source.

    Args:
        columns: all of the source, computed ones too.
        by_files: columns were inferred.

    Raises: SqlError.
    """
    times: list[EventTime] = []
    for clause in clauses:
        column = next((c for c in columns if c.name.lower() == clause.column.lower()), None)
        if column is None:
            hint = near_names(clause.column, [c.name for c in columns])
            message = f'WATERMARK FOR: unknown column "{clause.column}"'
            raise text.error(message, "unknown-column", clause.start, hint)
        if any(time.column == column.name for time in times):
            raise text.error(f'"{column.name}" has two watermarks', "already-ordered", clause.start)
        if column.type not in INTEGERS and column.type not in TIMES:
            inferred = (
                f"; or declare only that column, ({column.name} TIMESTAMP, WATERMARK …), with 'columns'"
                " = 'infer'"
            )
            raise text.error(
                f'"{column.name}" is {column.type}, which cannot be an event time',
                "wrong-type",
                clause.start,
                "declare it as TIMESTAMP, DATE or an integer type" + (inferred if by_files else ""),
            )
        lag = 0 if clause.lag is None else lag_of(clause.lag, column.name, column.type, text)
        times.append(EventTime(column.name, lag))
    return times
