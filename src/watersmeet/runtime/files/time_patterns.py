"""Texts of times by the patterns of a source."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from watersmeet.expressions.times import APART, read_pattern
from watersmeet.expressions.typed_tree import UnsupportedExpression
from watersmeet.spec.time_zones import UTC

# Texts of times by the patterns of a source ('timestampFormat' and the like), where it is certain here
# what Spark reads: those patterns that `to_timestamp` knows, in years of four digits.

DATE_FORMAT, TIMESTAMP_FORMAT, NTZ_FORMAT = "dateformat", "timestampformat", "timestampntzformat"
FORMATS = (DATE_FORMAT, TIMESTAMP_FORMAT, NTZ_FORMAT)

Reader = Callable[[str], datetime | None]
"""A text as the clock on the wall showed it; None: it is not certain here."""


@dataclass(frozen=True)
class TimeFormats:
    """Time formats of a source; None stands for Spark's default format.

    ``time_zone``: the zone of times that name none.
    """

    time_zone: str = UTC
    date: Reader | None = None
    timestamp: Reader | None = None
    ntz: Reader | None = None


def time_formats(options: Mapping[str, str], time_zone: str) -> TimeFormats:
    """Return the formats that options name.

    Args:
        options: of the source, with names in lower case; their patterns are known (`knows_format`).
    """
    date, timestamp, ntz = (pattern_reader(options[name]) if name in options else None for name in FORMATS)
    return TimeFormats(time_zone, date, timestamp, ntz)


def knows_format(name: str, value: str) -> bool:
    """Return whether an option is a format of times whose pattern is known here."""
    return name in FORMATS and pattern_reader(value) is not None


@lru_cache
def pattern_reader(pattern: str) -> Reader | None:
    """Return what reads texts of a pattern of Java's; None where only Spark knows the pattern."""
    try:
        pieces = read_pattern(pattern).split(APART)
    except UnsupportedExpression:
        return None
    letters = [piece[1] for piece in pieces if piece[0] == "#"]
    expression = re.compile("".join(map(_expression, pieces)), re.IGNORECASE | re.ASCII | re.DOTALL)

    def read(text: str) -> datetime | None:
        match = expression.fullmatch(text)
        if match is None:
            return None
        fields = dict(zip(letters, match.groups(), strict=True))
        micros = fields.get("S", "").ljust(6, "0")[:6]
        year, month, day, hour, minute, second = (
            int(fields.get(x, low)) for x, low in _DEFAULT_FIELDS.items()
        )
        try:
            return datetime(year, month, day, hour, minute, second, int(micros))
        except ValueError:
            return None

    return read


_DEFAULT_FIELDS = {"y": 1970, "M": 1, "d": 1, "H": 0, "m": 0, "s": 0}


def _expression(piece: str) -> str:
    letters = piece[1:]
    if piece[0] == "=":
        return re.escape(letters)
    if letters[0] == "S":
        return f"([0-9]{{1,{len(letters)}}})"
    return f"([0-9]{{{len(letters)}}})" if len(letters) > 1 else "([0-9]{1,2})"
