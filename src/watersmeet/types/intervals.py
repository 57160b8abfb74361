"""Intervals of SQL: the one grammar, wherever a length of time is written.

It is Spark's. For people who write them elsewhere its units may be shortened (``10 sec``, ``500ms``), and
days and clock times stand without their fields (``'1 02:03:04'``); `read_interval` writes both as Spark does,
so that Spark reads the same. Parts of a microsecond, which Spark cuts off without a word, are refused.

MONTH and YEAR have no fixed length: they are intervals, but no number of µs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from watersmeet.types.sql_type import INTERVAL_FIELDS, MAX_NUMBER_CHARACTERS, SqlType
from watersmeet.types.sql_type import interval as interval_of

UNIT_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_CALENDAR = ("month", "year")
_SHORT = {
    "us": "microsecond",
    "µs": "microsecond",
    "usec": "microsecond",
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
    "mon": "month",
    "y": "year",
    "yr": "year",
}
_FIELDS = ("day", "hour", "minute", "second")

_DIGITS = "[0-9]"
_NUMBER = re.compile(rf"([+-]?)\s*({_DIGITS}+(?:\.{_DIGITS}*)?|\.{_DIGITS}+)")
_WORD = re.compile(r"\s*([a-zA-Zµ]+)")
_CLOCK = re.compile(rf"[+-]?(?:({_DIGITS}+) )?{_DIGITS}+:{_DIGITS}+(:{_DIGITS}+(?:\.{_DIGITS}+)?)?")
_MAX_INT64 = 2**63 - 1


class IntervalError(ValueError):
    """A text is no interval. ``hint``: what to write instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint

    def about(self, given: object) -> str:
        """Return what is wrong with ``given``, to go on from "is".

        >>> IntervalError("'never' is not an interval", "").about("never")
        "'never', which is not an interval"
        """
        problem = str(self).removeprefix(repr(given))
        return f"{given!r}{', which' if problem != str(self) else ':'} {problem.lstrip()}"


_HINT = "write it as INTERVAL '10' SECONDS, '1 hour 30 minutes' or INTERVAL '1 02:03:04' DAY TO SECOND"


@dataclass(frozen=True)
class _Part:
    """Part of an interval.

    Attributes:
        amount: the number as Spark reads it, with its sign.
        unit: the unit in the singular.
        written: the unit as written, if Spark knows that name; otherwise a name that Spark knows.
    """

    amount: str
    unit: str
    written: str

    @property
    def us(self) -> int:
        value = Fraction(self.amount) * UNIT_US[self.unit]
        return int(value)


def unit_name(text: str) -> str | None:
    """Return the unit in the singular and lower case, or None if it is not a unit.

    ``MINUTES`` → ``minute``, ``secs`` → ``second``; months and years are units, too.
    """
    word = text.strip().lower()
    for candidate in (word, word.removesuffix("s")):
        if candidate in UNIT_US or candidate in _CALENDAR:
            return candidate
        if candidate in _SHORT:
            return _SHORT[candidate]
    return None


def unit_us(name: str) -> int | None:
    """Return the µs of a unit by its full name, in singular or plural.

    Return None for months, years and unknown units.
    """
    word = name.lower()
    return UNIT_US.get(word, UNIT_US.get(word.removesuffix("s")))


def read_interval(values: Sequence[tuple[str, str | None]], last: str | None = None) -> exp.Interval:
    """Build an INTERVAL literal in Spark's form.

    Args:
        values: Amounts, each with its sign and its unit; or one text without a unit: ``'1 hour 2
            minutes'``.
        last: The unit after TO; it needs a single value.

    Raises:
        IntervalError: The value is not an interval, is finer than a µs, or is longer than Spark's
            maximum.
    """
    if any(len(written) > MAX_NUMBER_CHARACTERS for written, _ in values):
        raise IntervalError(f"the interval has more than {MAX_NUMBER_CHARACTERS} characters", _HINT)
    (text, unit), *more = values
    if last is not None and unit is not None and not more:
        return _span(text, unit_name(unit) or unit, unit_name(last) or last)
    if unit is not None:
        return _of_parts([_part(amount, unit_written or "") for amount, unit_written in values])
    stripped = re.sub(r"^\s*interval\s+", "", text, flags=re.IGNORECASE).strip()
    clock = _CLOCK.fullmatch(stripped)
    if clock is not None:
        first = "hour" if clock.group(1) is None else "day"
        return _span(stripped, first, "minute" if clock.group(2) is None else "second")
    return _of_parts(_parts_of(stripped, text))


def _parts_of(rest: str, text: str) -> list[_Part]:
    parts: list[_Part] = []
    while rest:
        number = _NUMBER.match(rest)
        word = _WORD.match(rest, number.end()) if number else None
        if number is None or word is None:
            raise IntervalError(f"{text!r} is not an interval", _HINT)
        parts.append(_part(number.group(), word.group(1)))
        rest = rest[word.end() :].lstrip(" ,\t\n\r")
    if not parts:
        raise IntervalError(f"{text!r} is not an interval", _HINT)
    return parts


def _part(amount: str, unit: str) -> _Part:
    name = unit_name(unit)
    if name is None:
        units = ", ".join(unit_text.upper() for unit_text in (*reversed(UNIT_US), *_CALENDAR))
        raise IntervalError(f'"{unit}" is not a unit of time', f"use one of {units}")
    number = _NUMBER.fullmatch(amount.strip())
    if number is None:
        raise IntervalError(f"{amount!r} is not a number of {unit}", _HINT)
    sign, digits = number.groups()
    whole, _, fraction = digits.partition(".")
    if "." in digits and name != "second":
        raise IntervalError(
            f"{amount.strip()} {unit}: Spark allows fractions only in SECONDS", "write it in a smaller unit"
        )
    _check_fraction(fraction)
    spark = unit.lower().removesuffix("s") == name
    plain = ("-" if sign == "-" else "") + (whole or "0") + (f".{fraction}" if fraction else "")
    return _Part(plain, name, unit if spark else name.upper())


def _check_fraction(fraction: str) -> None:
    if fraction[6:].strip("0") or len(fraction) > 9:
        raise IntervalError(
            f"0.{fraction} seconds has more digits than microseconds",
            "use at most six digits after the point",
        )


def _of_parts(parts: list[_Part]) -> exp.Interval:
    calendar = [part.unit in _CALENDAR for part in parts]
    if any(calendar) and not all(calendar):
        raise IntervalError(
            "the interval mixes months and days, for which Spark has no type",
            "add two separate intervals to the time",
        )
    if not any(calendar):
        _check_length(sum(part.us for part in parts))
    if len(parts) == 1:
        (part,) = parts
        return exp.Interval(this=exp.Literal.string(part.amount), unit=exp.Var(this=part.written.upper()))
    text = " ".join(f"{part.amount} {part.written.lower()}" for part in parts)
    return exp.Interval(this=exp.Literal.string(text))


def _check_length(us: int) -> None:
    if not -_MAX_INT64 - 1 <= us <= _MAX_INT64:
        raise IntervalError(
            "the interval has more than 106751991 days, the maximum of Spark", "use a shorter interval"
        )


_MAX_MONTHS = 11
"""Of a year that is not over."""


def _span(text: str, first: str, last: str) -> exp.Interval:
    """Build an interval such as ``'1 02:03' DAY TO MINUTE``."""
    literal = exp.Interval(
        this=exp.Literal.string(text.strip()),
        unit=exp.IntervalSpan(this=exp.Var(this=first.upper()), expression=exp.Var(this=last.upper())),
    )
    if (first, last) == ("year", "month") and re.fullmatch(rf"\s*[+-]?{_DIGITS}+-{_DIGITS}+\s*", text):
        if int(text.rpartition("-")[2]) > _MAX_MONTHS:
            raise IntervalError(
                f"{text!r}: the months of an INTERVAL YEAR TO MONTH must be 0 to 11", "add them to the years"
            )
        return literal
    _check_length(_span_us(text, first, last))
    return literal


def _span_us(text: str, first: str, last: str) -> int:
    """Return the µs of the fields from ``first`` to ``last``; one sign applies to all fields."""
    wrong = IntervalError(f"{text!r} is not an interval {first.upper()} TO {last.upper()}", _HINT)
    if first not in _FIELDS or last not in _FIELDS or _FIELDS.index(first) >= _FIELDS.index(last):
        raise wrong
    fields = _FIELDS[_FIELDS.index(first) : _FIELDS.index(last) + 1]
    stripped = text.strip()
    sign = -1 if stripped.startswith("-") else 1
    numbers = re.split(r"[ :]", stripped[1:] if stripped[:1] in ("+", "-") else stripped)
    separators = re.findall(r"[ :]", stripped)
    if len(numbers) != len(fields) or separators != [" " if f == "day" else ":" for f in fields[:-1]]:
        raise wrong
    total = Fraction(0)
    for number, field in zip(numbers, fields, strict=True):
        fraction = rf"(?:\.{_DIGITS}{{1,9}})?" if field == "second" else ""
        digits = "{1,2}" if field not in (first, "day") else "+"
        if not re.fullmatch(rf"{_DIGITS}{digits}{fraction}", number):
            raise wrong
        if field != first and Fraction(number) >= (24 if field == "hour" else 60):
            raise IntervalError(
                f"{text!r}: {field}s within {first.upper()} TO {last.upper()} end at "
                + ("23" if field == "hour" else "59"),
                f"add them to the {fields[fields.index(field) - 1]}s",
            )
        _check_fraction(number.partition(".")[2])
        total += Fraction(number) * UNIT_US[field]
    return sign * int(total)


def text_us(text: str) -> int:
    """Return the µs of an interval text.

    Forms: ``10 seconds``, ``10s``, ``1 hour 30 minutes``, ``1 02:03``, ``02:03:04.5``.

    Raises:
        IntervalError: The text is not an interval, or has months or years.
    """
    value = interval_us(read_interval([(text, None)]))
    if value is None:
        raise IntervalError(f"{text!r} has no fixed length: months and years differ", "use days")
    return value


def written_as_interval(expr: exp.Expression) -> str | None:
    """Return how a text that reads as an interval with units is written as one; None for anything else.

    >>> from sqlglot import exp
    >>> written_as_interval(exp.Literal.string("10 minutes"))
    "INTERVAL '10 minutes'"
    >>> written_as_interval(exp.Literal.string("10:00:00"))
    """
    plain = expr.unnest()
    if not isinstance(plain, exp.Literal) or not plain.is_string or not _WORD.search(plain.name):
        return None
    try:
        read_interval([(plain.name, None)])
    except IntervalError:
        return None
    return f"INTERVAL {plain.sql('spark')}"


def trigger_ms(text: str) -> int:
    """Parse the milliseconds between ticks.

    The text is an interval as for `text_us`, or ``0``: start a tick as soon as there are rows.

    Raises:
        IntervalError: The text is not an interval, or not a whole number of milliseconds from 0.
    """
    us = 0 if text.strip() == "0" else text_us(text)
    if us < 0 or us % 1_000:
        raise IntervalError(
            f"{text!r} is not a whole number of milliseconds from 0", "for example '500 ms' or '2 seconds'"
        )
    return us // 1_000


def is_interval(expr: exp.Expression | None) -> bool:
    """Return True if the expression is an interval of any kind, constant or not.

    Intervals are ``INTERVAL …``, its negation, a sum of intervals, and a multiple of one.
    """
    if isinstance(expr, (exp.Paren, exp.Neg)):
        return is_interval(expr.this)
    if isinstance(expr, (exp.Add, exp.Sub)):
        return is_interval(expr.this) and is_interval(expr.expression)
    if isinstance(expr, exp.Mul):
        return is_interval(expr.this) or is_interval(expr.expression)
    return isinstance(expr, exp.Interval)


def is_calendar(interval: exp.Interval) -> bool:
    """Return True if the interval has months or years."""
    return any(unit in _CALENDAR for unit in _units(interval))


def is_of_days(expr: exp.Expression) -> bool:
    """Return True if Spark treats an interval as whole days, by its units and not its length.

    A DATE plus such an interval is a DATE; otherwise the sum is a TIMESTAMP. A multiple of days does
    not count.
    """
    if isinstance(expr, (exp.Paren, exp.Neg)):
        return is_of_days(expr.this)
    if isinstance(expr, (exp.Add, exp.Sub)):
        return is_of_days(expr.this) and is_of_days(expr.expression)
    return isinstance(expr, exp.Interval) and set(_units(expr)) <= {"day", "week"}


def interval_type(literal: exp.Interval) -> SqlType:
    """Return Spark's type of an interval literal: from its greatest to its least unit.

    Weeks count as days.
    """
    places = []
    for unit in _units(literal):
        field = {"week": "day", "millisecond": "second", "microsecond": "second"}.get(unit, unit)
        places.append(INTERVAL_FIELDS.index(field.upper()))
    return interval_of(INTERVAL_FIELDS[min(places)], INTERVAL_FIELDS[max(places)])


def _units(interval: exp.Interval) -> list[str]:
    unit = interval.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        names = [unit.this.name, unit.expression.name]
    elif unit is not None:
        names = [unit.name]
    else:
        names = _WORD.findall(interval.this.name)
    return [unit_name(name) or name.lower() for name in names]


def interval_months(interval: exp.Interval) -> int | None:
    """Return the months of a constant INTERVAL of years and months; None for any other."""
    amount, unit = interval.this, interval.args.get("unit")
    if not isinstance(amount, exp.Literal) or not is_calendar(interval):
        return None
    if isinstance(unit, exp.IntervalSpan):
        match = re.fullmatch(rf"\s*([+-]?)({_DIGITS}+)-({_DIGITS}+)\s*", amount.name)
        if match is None or int(match[3]) > 11:
            return None
        return (int(match[2]) * 12 + int(match[3])) * (-1 if match[1] == "-" else 1)
    try:
        parts = [_part(amount.name, unit.name)] if unit is not None else _parts_of(amount.name, amount.name)
    except IntervalError:
        return None
    if not all(part.unit in _CALENDAR for part in parts):
        return None
    return sum(int(part.amount) * (12 if part.unit == "year" else 1) for part in parts)


def interval_us(expr: exp.Expression | None) -> int | None:
    """Return the µs of a constant day-time interval.

    Return None for month and year intervals, and for any other expression. Parentheses, negation,
    sums of intervals and whole multiples are supported.
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
    if not isinstance(amount, exp.Literal) or is_calendar(expr):
        return None
    text = amount.name
    try:
        if isinstance(unit, exp.IntervalSpan):
            return _span_us(text, unit_name(unit.this.name) or "", unit_name(unit.expression.name) or "")
        if unit is not None:
            return _part(text, unit.name).us
        interval = read_interval([(text, None)])
        if interval.args.get("unit") is not None:
            return _literal_us(interval)
        return sum(part.us for part in _parts_of(interval.this.name, text))
    except IntervalError:
        return None
