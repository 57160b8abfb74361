"""Which type a column has by the values of a sample: one that Spark reads each of them as, without loss.

Where values have several kinds, or one that would lose something (``007`` as a number), it is STRING.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal

from watersmeet.engine.spark.time_formats import (
    DATE_FORMAT,
    TIMESTAMP_FORMAT,
    Reader,
    pattern_reader,
)
from watersmeet.types import sql_type as sql
from watersmeet.types.sql_type import MOST_DIGITS, SqlType, decimal

Told = tuple[str | None, str]
"""A note, and the column that it is on (None: on no column that is there)."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")
_NUMERIC = re.compile(r"\s*[+-]?[0-9][0-9_]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?\s*")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_LARGEST_OFFSET_S = 18 * 3600

INT, LONG, BIG, REAL, SPECIAL, BOOL, DATE, LOCAL, ZONED, TEXT = (
    "whole numbers", "whole numbers that no DOUBLE holds", "whole numbers beyond BIGINT", "numbers",
    "NaN and the like", "true and false", "dates",
    "times without a zone", "times with a zone", "texts",
)  # fmt: skip

_ALONE = {
    BOOL: sql.BOOLEAN,
    DATE: sql.DATE,
    LOCAL: sql.TIMESTAMP,
    ZONED: sql.TIMESTAMP,
    TEXT: sql.STRING,
}


@dataclass
class Seen:
    """The kinds of values of a column. ``examples``: the first text of each kind; ``why``: what keeps a text
    a text that looks like another type."""

    examples: dict[str, str] = field(default_factory=dict)
    why: str | None = None

    def add_text(self, value: str | None, options: Mapping[str, str]) -> None:
        """A text as it stands in a file; None: no value. ``options``: of the source, in lower case."""
        if value is None or value == options.get("nullvalue", ""):
            return
        kind, why = kind_of_text(value, options)
        self.examples.setdefault(kind, value[:40])
        self.why = self.why or why


def type_of(seen: Seen) -> tuple[SqlType, str | None]:
    """The type, and what a person should know of it."""
    kinds = set(seen.examples)
    if not kinds:
        return sql.STRING, "there are no values in the sample"
    if kinds <= {INT, LONG}:
        return sql.BIGINT, None
    if kinds <= {INT, LONG, BIG}:
        return decimal(MOST_DIGITS, 0), "whole numbers beyond BIGINT"
    if kinds & {INT, REAL} and kinds <= {INT, REAL, SPECIAL}:
        return sql.DOUBLE, None
    if len(kinds) == 1:
        (kind,) = kinds
        note = (
            seen.why
            if kind == TEXT
            else "times without a zone are in the zone of SET time_zone"
            if kind == LOCAL
            else None
        )
        return _ALONE.get(kind, sql.STRING), note
    first, second = list(seen.examples.items())[:2]
    return sql.STRING, f"there are {first[0]} ({first[1]!r}) and {second[0]} ({second[1]!r})"


def kind_of_text(value: str, options: Mapping[str, str]) -> tuple[str, str | None]:
    """The kind, and what keeps a text that looks like a number or time a text."""
    if _INTEGER.fullmatch(value):
        return _kind_of_integer(value, options)
    if NUMBER.fullmatch(value):
        if not _is_double(value):
            return TEXT, f"{value[:40]!r} has more digits than a DOUBLE holds"
        return REAL, None
    if value in (
        options.get("nanvalue", "NaN"),
        options.get("positiveinf", "Inf"),
        options.get("negativeinf", "-Inf"),
    ):
        return SPECIAL, None
    if value.lower() in ("true", "false"):
        return BOOL, None
    if _is_date(value, options):
        return DATE, None
    reader = _reader(options, TIMESTAMP_FORMAT)
    if reader is not None and reader(value) is not None:
        return LOCAL, None
    time = _TIME.fullmatch(value)
    if time is not None:
        return _kind_of_time(time, options)
    if _NUMERIC.fullmatch(value):
        return TEXT, f"a number would not keep {value[:40]!r} as it is written"
    return TEXT, None


def _is_double(value: str) -> bool:
    """Whether a DOUBLE, written again, is this number."""
    number = float(value)
    return math.isfinite(number) and Decimal(value) == Decimal(repr(number))


def _kind_of_integer(value: str, options: Mapping[str, str]) -> tuple[str, str | None]:
    digits = len(value.lstrip("-"))
    if digits <= 19 and -(2**63) <= int(value) < 2**63:
        if float(int(value)) != int(value):
            return LONG, None
        return (INT, None) if value != "-0" else (TEXT, "a number would not keep '-0' as it is written")
    if digits <= MOST_DIGITS and "locale" not in options:
        return BIG, None
    return TEXT, f"{value[:40]!r} is too large for a number"


def _kind_of_time(time: re.Match[str], options: Mapping[str, str]) -> tuple[str, str | None]:
    day, clock, fraction, zone = time.groups()
    text = time.group()
    if TIMESTAMP_FORMAT in options:
        why = "it does not match 'timestampFormat'"
        if _reader(options, TIMESTAMP_FORMAT) is None:
            why = "the source has a 'timestampFormat'; declare the column"
        return TEXT, why
    if fraction is not None and len(fraction) > 7:
        return TEXT, f"a TIMESTAMP has microseconds and would not keep all digits of {text[:40]!r}"
    if not _is_time(f"{day}T{clock}") or (zone not in (None, "Z") and not _is_offset(zone)):
        return TEXT, f"{text[:40]!r} is not a valid time"
    return (LOCAL if zone is None else ZONED), None


def _reader(options: Mapping[str, str], name: str) -> Reader | None:
    return pattern_reader(options[name]) if name in options else None


def _is_date(text: str, options: Mapping[str, str]) -> bool:
    if DATE_FORMAT in options:
        reader = _reader(options, DATE_FORMAT)
        return reader is not None and reader(text) is not None
    if _DATE.fullmatch(text) is None:
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return text[11:13] != "24"


def _is_offset(text: str) -> bool:
    hours, minutes = int(text[1:3]), int(text[4:])
    return minutes < 60 and hours * 3600 + minutes * 60 <= _LARGEST_OFFSET_S
