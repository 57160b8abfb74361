"""Constants of time: INTERVAL literals of every day-time kind, exact in µs.

MONTH and YEAR have no fixed length: such an interval is no constant, and a condition with one is residual.
"""

from __future__ import annotations

import re
from fractions import Fraction

from sqlglot import exp

from watersmeet.event_time import DAY_US

UNIT_US = {
    "WEEK": 7 * DAY_US,
    "DAY": DAY_US,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
    "MILLISECOND": 1_000,
    "MICROSECOND": 1,
}
_SPANS = ("DAY", "HOUR", "MINUTE", "SECOND")
_PAIR = re.compile(r"\s*([+-]?\s*\d*\.?\d+)\s+([A-Za-z]+)")
_NUMBER = re.compile(r"[+-]?\d*\.?\d+")


def unit_us(name: str) -> int | None:
    """µs of a unit by its name, in the singular or plural; None for months, years and what is unknown."""
    upper = name.upper()
    return UNIT_US.get(upper, UNIT_US.get(upper.removesuffix("S")))


def interval_us(interval: exp.Interval) -> int | None:
    """The length of an INTERVAL literal in µs, or None when it has no fixed one."""
    value, unit = interval.this, interval.args.get("unit")
    if not isinstance(value, exp.Literal):
        return None
    text = value.this.strip()
    if unit is None:
        return _pairs(text)
    if isinstance(unit, exp.IntervalSpan):
        return _span(text, unit.this.name.upper(), unit.expression.name.upper())
    size = unit_us(unit.name)
    return _whole(Fraction(text) * size) if size is not None and _NUMBER.fullmatch(text) else None


def _whole(value: Fraction) -> int | None:
    return value.numerator if value.denominator == 1 else None


def _pairs(text: str) -> int | None:
    """``1 hour 30 minutes``."""
    total, end = Fraction(0), 0
    text = re.sub(r"^interval\s+", "", text, flags=re.IGNORECASE)
    while end < len(text):
        pair = _PAIR.match(text, end)
        size = unit_us(pair.group(2)) if pair else None
        if pair is None or size is None:
            return None
        total += Fraction(pair.group(1).replace(" ", "")) * size
        end = pair.end()
    return _whole(total) if end else None


def _span(text: str, first: str, last: str) -> int | None:
    """``1 02:03:04.5`` DAY TO SECOND, and its shorter kin."""
    if first not in _SPANS or last not in _SPANS:
        return None
    names = _SPANS[_SPANS.index(first) : _SPANS.index(last) + 1]
    sign = -1 if text.startswith("-") else 1
    parts = re.split(r"[ :]+", text.lstrip("+-").strip())
    if len(parts) != len(names) or not all(_NUMBER.fullmatch(part) for part in parts):
        return None
    return _whole(
        sign * sum((Fraction(p) * UNIT_US[n] for p, n in zip(parts, names, strict=True)), Fraction(0))
    )
