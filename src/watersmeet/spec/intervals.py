"""Day-time intervals of SQL as exact µs: the one place that knows ``INTERVAL '1 02:03' DAY TO MINUTE``.

Pure arithmetic over sqlglot trees and texts. MONTH, QUARTER and YEAR have no fixed length: they give None, as
does everything that is no constant interval.
"""

from __future__ import annotations

import re
from fractions import Fraction

from sqlglot import exp

_UNIT_US = {
    "nanosecond": Fraction(1, 1000),
    "microsecond": Fraction(1),
    "millisecond": Fraction(1_000),
    "second": Fraction(1_000_000),
    "minute": Fraction(60_000_000),
    "hour": Fraction(3_600_000_000),
    "day": Fraction(86_400_000_000),
    "week": Fraction(604_800_000_000),
}
_SHORT = {
    "ns": "nanosecond",
    "us": "microsecond",
    "µs": "microsecond",
    "ms": "millisecond",
    "msec": "millisecond",
    "s": "second",
    "sec": "second",
    "m": "minute",
    "min": "minute",
    "h": "hour",
    "hr": "hour",
    "d": "day",
    "w": "week",
}
_CALENDAR = {"month", "mon", "quarter", "year", "y", "yr", "decade", "century"}
_FIELDS = ("day", "hour", "minute", "second")

_NUMBER = re.compile(r"[+-]?\s*(?:\d+(?:\.\d*)?|\.\d+)$")
_PART = re.compile(r"\s*([+-]?)\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Zµ]+)")
_CLOCK = re.compile(r"([+-]?)\s*(?:(\d+)\s+)?(\d+):(\d+)(?::(\d+(?:\.\d*)?))?$")


def unit_name(text: str) -> str | None:
    """The singular lower-case unit, ``MINUTES`` → ``minute``, calendar units too; None if it is no unit."""
    word = text.strip().lower()
    for candidate in (word, word.removesuffix("s")):
        if candidate in _UNIT_US or candidate in _CALENDAR:
            return candidate
        if candidate in _SHORT:
            return _SHORT[candidate]
    return None


def is_calendar_unit(unit: str | None) -> bool:
    return unit in _CALENDAR


def text_us(text: str) -> int | None:
    """µs of ``10 seconds``, ``10s``, ``1 hour 30 minutes``, ``1 02:03``, ``02:03:04.5``; None otherwise."""
    rest = text.strip()
    if clock := _CLOCK.match(rest):
        return _clock_us(clock)
    total = Fraction(0)
    found = False
    while rest:
        part = _PART.match(rest)
        unit = unit_name(part.group(3)) if part else None
        if part is None or unit not in _UNIT_US:
            return None
        amount = Fraction(part.group(2)) * _UNIT_US[unit]
        total += -amount if part.group(1) == "-" else amount
        rest = rest[part.end() :].lstrip(" ,")
        found = True
    return int(total) if found else None


def _clock_us(clock: re.Match[str]) -> int:
    """``[days] h:m[:s]``."""
    sign, days, hours, minutes, seconds = clock.groups()
    total = (
        int(days or 0) * _UNIT_US["day"]
        + int(hours) * _UNIT_US["hour"]
        + int(minutes) * _UNIT_US["minute"]
        + Fraction(seconds or 0) * _UNIT_US["second"]
    )
    return int(-total if sign == "-" else total)


def _span_us(text: str, first: str, last: str) -> int | None:
    """``'1 02:03' DAY TO MINUTE``: the fields from ``first`` to ``last``, one sign for all."""
    if first not in _FIELDS or last not in _FIELDS:
        return None
    fields = _FIELDS[_FIELDS.index(first) : _FIELDS.index(last) + 1]
    text = text.strip()
    sign = -1 if text.startswith("-") else 1
    numbers = re.split(r"[\s:]+", text.lstrip("+-").strip())
    if len(numbers) != len(fields) or not all(re.fullmatch(r"\d+(\.\d*)?", n) for n in numbers):
        return None
    total = sum((Fraction(n) * _UNIT_US[f] for n, f in zip(numbers, fields, strict=True)), Fraction(0))
    return sign * int(total)


def is_interval(expr: exp.Expression | None) -> bool:
    """Is this an interval of any kind, constant or not: ``INTERVAL …``, its negation, a sum of such?"""
    if isinstance(expr, (exp.Paren, exp.Neg)):
        return is_interval(expr.this)
    if isinstance(expr, (exp.Add, exp.Sub)):
        return is_interval(expr.this) and is_interval(expr.expression)
    if isinstance(expr, exp.Mul):
        return is_interval(expr.this) or is_interval(expr.expression)
    return isinstance(expr, exp.Interval)


def interval_us(expr: exp.Expression | None) -> int | None:
    """µs of a constant day-time interval; None for month and year kinds and for whatever is no interval.

    Parentheses, negation, sums of intervals and whole multiples are understood. Parts of a µs are cut off.
    """
    if isinstance(expr, exp.Paren):
        return interval_us(expr.this)
    if isinstance(expr, exp.Neg):
        value = interval_us(expr.this)
        return None if value is None else -value
    if isinstance(expr, (exp.Add, exp.Sub)):
        left, right = interval_us(expr.this), interval_us(expr.expression)
        if left is None or right is None:
            return None
        return left + right if isinstance(expr, exp.Add) else left - right
    if isinstance(expr, exp.Mul):
        return _multiple_us(expr)
    if isinstance(expr, exp.Interval):
        return _literal_us(expr)
    return None


def _multiple_us(expr: exp.Mul) -> int | None:
    for interval, factor in ((expr.this, expr.expression), (expr.expression, expr.this)):
        value = interval_us(interval)
        if value is not None and isinstance(factor, exp.Literal) and not factor.is_string:
            return value * int(factor.name) if factor.name.isdigit() else None
    return None


def _literal_us(expr: exp.Interval) -> int | None:
    amount, unit = expr.this, expr.args.get("unit")
    if not isinstance(amount, exp.Literal):
        return None
    text = amount.name
    if isinstance(unit, exp.IntervalSpan):
        first, last = unit_name(unit.this.name), unit_name(unit.expression.name)
        return _span_us(text, first or "", last or "")
    if unit is None:
        return text_us(re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE))
    name = unit_name(unit.name)
    if name not in _UNIT_US:
        return None
    if _NUMBER.match(text.strip()):
        return int(Fraction(text.replace(" ", "")) * _UNIT_US[name])
    return text_us(text)
