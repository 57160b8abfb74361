"""Numbers of rows, sizes, durations and lags in settings and options."""

from __future__ import annotations

import re
from fractions import Fraction

from sqlglot import exp

from watersmeet.errors import SqlError
from watersmeet.parser.text.source_position import Text
from watersmeet.parser.text.tokens import parse_tokens, statements_of
from watersmeet.types.intervals import (
    IntervalError,
    interval_us,
    is_calendar,
    is_interval,
    text_us,
    written_as_interval,
)
from watersmeet.types.sql_type import INTEGERS, TIMES, SqlType

# Numbers of rows and sizes, as settings and options write them.

_UNITS = {"": 1, "B": 1} | {
    f"{letter}{i}B": 1 << 10 * power for power, letter in enumerate("KMGT", 1) for i in ("", "I")
}
_DIGITS = r"\d{1,18}"
"""No amount has more."""
_ROWS, _UNITS_OF_TIME = re.compile(_DIGITS), re.compile(rf"[+-]?{_DIGITS}")
_SIZE = re.compile(rf"({_DIGITS}(?:\.{_DIGITS})?)\s*([KMGT]?I?B|[KMGT]|)")

_SHARE = re.compile(rf"({_DIGITS}(?:\.{_DIGITS})?)\s*(%?)")

ROWS_HINT = "use a whole number above zero, or 'none'"


def is_none(written: str) -> bool:
    return written.strip().lower() in ("none", "off", "unlimited")


def rows_in(written: str) -> int | None:
    """Parse a whole number above zero; return None for any other text.

    >>> rows_in(" 10 "), rows_in("0"), rows_in("9" * 5000)
    (10, None, None)
    """
    return int(written) or None if _ROWS.fullmatch(written.strip()) else None


def count_or_share(written: str) -> int | Fraction | None:
    """Parse a whole number or a share: ``1 %``, ``0.01``; return None for any other text.

    >>> count_or_share("0"), count_or_share("0.5 %"), count_or_share("0.01"), count_or_share("101 %")
    (0, Fraction(1, 200), Fraction(1, 100), None)
    """
    match = _SHARE.fullmatch(written.strip())
    if match is None:
        return None
    if not match[2] and "." not in match[1]:
        return int(match[1])
    share = Fraction(match[1]) / (100 if match[2] else 1)
    return share if share <= 1 else None


def units_in(written: str) -> int | None:
    """Parse a whole number of time units; return None for any other text."""
    return int(written) if _UNITS_OF_TIME.fullmatch(written.strip()) else None


def bytes_in(written: str, least: int = 1) -> int | None:
    """Parse a size such as ``512 MB``, ``2g`` or ``1073741824`` and return the number of bytes.

    A kilobyte has 1,024 bytes, as in Spark. Return None if the text is not a size or is below
    ``least``.

    >>> bytes_in("2 KB"), bytes_in("1.5k"), bytes_in("0"), bytes_in("many"), bytes_in("9" * 400)
    (2048, 1536, None, None, None)
    """
    match = _SIZE.fullmatch(written.strip().upper())
    if match is None:
        return None
    unit = match[2] + "B" if match[2] in tuple("KMGT") and match[2] else match[2]
    size = int(float(match[1]) * _UNITS[unit])
    return size if size >= least else None


def bytes_hint(least: int = 1) -> str:
    return f"a size{f' of at least {least >> 20} MB' if least > 1 else ''}, such as '512 MB' or '2 GB'"


# Durations and lags from SQL and from option texts.

_HINT = "write a day-time interval, such as INTERVAL '10' SECONDS"


def duration_us(duration: str | exp.Expression, text: Text | None = None) -> int:
    """Return the µs of an interval expression or of a text.

    Accepted texts: ``10 seconds``, ``10s``, ``INTERVAL '10' SECONDS``.

    Raises:
        SqlError: bad-duration: a MONTH or YEAR, which has no fixed length, or any other text.
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


def whole_number_in(expr: exp.Expression) -> int | None:
    """Return the value of a whole number with or without a sign; None for any other expression."""
    plain, sign = expr.unnest(), 1
    if isinstance(plain, exp.Neg) and not is_interval(plain):
        plain, sign = plain.this.unnest(), -1
    is_number = isinstance(plain, exp.Literal) and not plain.is_string and plain.name.isdigit()
    return sign * int(plain.name) if is_number else None


def lag_of(expr: exp.Expression, column: str, kind: SqlType, text: Text) -> int:
    """Return the lag in the column's own unit.

    The lag is an interval for TIMESTAMP and DATE, and an integer for integer times.
    """
    if kind not in INTEGERS and kind not in TIMES:
        raise text.error(
            f'"{column}" is {kind}, which cannot be an event time',
            "wrong-type",
            expr,
            "declare it as TIMESTAMP, DATE or an integer type",
        )
    number = whole_number_in(expr)
    if number is not None and kind in INTEGERS:
        lag = number
    elif number is not None or (is_interval(expr) and kind in INTEGERS):
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
