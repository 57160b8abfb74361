"""Durations and lags from SQL and from option texts."""

from __future__ import annotations

from sqlglot import exp

from watersmeet.errors import SqlError
from watersmeet.front.text.place import Text
from watersmeet.front.text.tokens import parse_tokens, statements_of
from watersmeet.types.intervals import (
    IntervalError,
    interval_us,
    is_calendar,
    is_interval,
    text_us,
    written_as_interval,
)
from watersmeet.types.sql_type import INTEGERS, TIMES, SqlType

_HINT = "write a day-time interval, such as INTERVAL '10' SECONDS"


def duration_us(duration: str | exp.Expression, text: Text | None = None) -> int:
    """µs of an interval expression, or of a text: ``10 seconds``, ``10s``, ``INTERVAL '10' SECONDS``.

    Raises: SqlError[bad-duration] for MONTH and YEAR, which have no fixed length, and for anything else.
    """
    if isinstance(duration, exp.Expression):
        return _expression_us(duration, text or Text(""))
    stripped = duration.strip()
    if not stripped.lstrip("-+ ").lower().startswith("interval"):
        try:
            return text_us(stripped)
        except IntervalError as error:
            raise SqlError(str(error), code="bad-duration", hint=error.hint) from None
    inner = Text(stripped)
    statements = statements_of(inner)
    tree = parse_tokens(inner, statements[0]) if len(statements) == 1 else None
    if tree is None:
        raise SqlError(f"{stripped!r} is not a duration", code="bad-duration", hint=_HINT)
    return _expression_us(tree, text or inner)


def _expression_us(expr: exp.Expression, text: Text) -> int:
    value = interval_us(expr)
    if value is not None:
        return value
    written = expr.sql("spark")
    if any(is_calendar(node) for node in expr.find_all(exp.Interval)):
        raise text.error(
            f"{written} has no fixed length: months and years differ", "bad-duration", expr, "use days"
        )
    if (interval := written_as_interval(expr)) is not None:
        raise text.error(f"{written} is a text, not an interval", "bad-duration", expr, f"write {interval}")
    raise text.error(f"{written} is not a constant day-time interval", "bad-duration", expr, _HINT)


def lag_of(expr: exp.Expression, column: str, kind: SqlType, text: Text) -> int:
    """The lag in the column's own unit: an interval for TIMESTAMP and DATE, an integer for integer times."""
    if kind not in INTEGERS and kind not in TIMES:
        raise text.error(
            f'"{column}" is {kind}, which cannot be an event time',
            "wrong-type",
            expr,
            "declare it as TIMESTAMP, DATE or an integer type",
        )
    plain = expr.unnest()
    sign = 1
    if isinstance(plain, exp.Neg) and not is_interval(plain):
        plain, sign = plain.this.unnest(), -1
    number = isinstance(plain, exp.Literal) and not plain.is_string and plain.name.isdigit()
    if number and kind in INTEGERS:
        lag = sign * int(plain.name)
    elif number or (is_interval(expr) and kind in INTEGERS):
        needed, lag_text = "an integer", "10000, in the unit of the column; or declare it as TIMESTAMP"
        if kind not in INTEGERS:
            needed, lag_text = "an interval", "INTERVAL '10' SECONDS"
        hint = f"WATERMARK FOR {column} AS {column} - {lag_text}"
        raise text.error(f'the lag of "{column}" ({kind}) must be {needed}', "bad-lag", expr, hint)
    else:
        lag = duration_us(expr, text)
    if lag < 0:
        raise text.error(f'the lag of "{column}" is negative: every row would be late', "bad-lag", expr)
    return lag
