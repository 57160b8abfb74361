"""Texts as Spark's casts and typed literals read them as dates and times: numbers, without a type of Arrow.

A text that is none gives None. Of the words that Spark reads as times (``epoch``, ``now``) nothing is known.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from watersmeet.zones import CYCLE_US, zone

BLANK = "".join(map(chr, [*range(0x21), 0x7F]))
"""What Spark takes off both ends of a text."""

JAVA_BLANK = "".join(map(chr, range(0x21)))
"""What Java's ``trim`` does."""


def _days(year: int, month: int, day: int) -> int | None:
    """Return the days since 1970-01-01 in the proleptic Gregorian calendar.

    Returns:
        The days; None for a day that does not exist.
    """
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        return None
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if (day > (29 if leap else 28) and month == 2) or (day > 30 and month in (4, 6, 9, 11)):
        return None
    year -= month <= 2
    era, within = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + within * 365 + within // 4 - within // 100 + of_year - 719_468


_DATE = re.compile(
    r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL | re.ASCII
)


def read_date(text: str) -> int | None:
    """Read the days since 1970-01-01; ignore everything after the day and a blank or T.

    >>> read_date("1970-01-02"), read_date("1971"), read_date("1970-13-01")
    (1, 365, None)
    """
    match = _DATE.fullmatch(text.strip(BLANK))
    if match is None:
        return None
    year = int(match[2]) * (-1 if match[1] == "-" else 1)
    days = _days(year, int(match[3] or 1), int(match[4] or 1))
    return days if days is not None and abs(days) < 2**31 else None


_TIME = re.compile(
    r"(?:([+-]?)([0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T](?:(.*))?)?)?)?)", re.DOTALL
)


def read_time(text: str) -> tuple[int | None, int, str | None] | None:
    """Read a time as (days, µs of the day, zone); return None if it is malformed.

    The days are None if the text has only a time of day.
    """
    own = text.strip(BLANK)
    if not own:
        return None
    days: int | None
    bare = re.match(r"[0-9]{1,2}:", own)
    if bare or text.startswith("T"):
        days, clock = None, own[not bare :]
    else:
        match = _TIME.fullmatch(own)
        if match is None:
            return None
        year = int(match[2]) * (-1 if match[1] == "-" else 1)
        days = _days(year, int(match[3] or 1), int(match[4] or 1))
        if days is None:
            return None
        if match[5] is None:
            return (days, 0, None)
        clock = match[5]
    parts = re.fullmatch(
        r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9].*)?)?)?", clock, re.DOTALL
    )
    if parts is None:
        return None
    if parts[4] is None and (parts[5] or "").startswith("."):
        return None
    hours, minutes, seconds = (int(parts[n] or 0) for n in (1, 2, 3))
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    micros = int(((parts[4] or "") + "000000")[:6])
    return days, ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros, parts[5]


_SHORT = {
    "EST": "-05:00", "MST": "-07:00", "HST": "-10:00", "ACT": "Australia/Darwin", "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires", "ART": "Africa/Cairo", "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka", "CAT": "Africa/Harare", "CNT": "America/St_Johns",
    "CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
"""Java's short names of zones."""
_NOT_IN_JAVA = ("posix/", "right/", "SystemV/")
_OFFSET = re.compile(
    r"([+-])(?:([0-9]{1,2})|([0-9]{2})([0-9]{2})([0-9]{2})?|([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?)"
)


@cache
def _names() -> frozenset[str]:
    names = zoneinfo.available_timezones() - {"localtime", "posixrules", "Factory", "ROC", *_SHORT}
    return frozenset(name for name in names if not name.startswith(_NOT_IN_JAVA))


@cache
def zone_converter(text: str) -> Callable[[int], int] | None:
    """Return a function from wall-clock times to instants for a zone as `ZoneId.of` reads it.

    Returns:
        The function; None if there is no such zone.
    """
    text = re.sub(r"([+-])([0-9]):", r"\g<1>0\2:", text, count=1)
    text = re.sub(r"([+-])([0-9][0-9]):([0-9])$", r"\1\2:0\3", text, count=1)
    text = _SHORT.get(text, text)
    if text in ("Z", "UTC", "GMT", "UT"):
        return lambda wall: wall
    prefix = re.match(r"(?:UTC|GMT|UT)(?=[+-])", text)
    match = _OFFSET.fullmatch(text[prefix.end() :] if prefix else text)
    if match is not None:
        hours, minutes, seconds = (
            int(match[a] or match[b] or match[c] or 0) for a, b, c in ((2, 3, 6), (2, 4, 7), (2, 5, 8))
        )
        if match[2]:
            minutes = seconds = 0
        total = hours * 3600 + minutes * 60 + seconds
        if minutes > 59 or seconds > 59 or total > 18 * 3600:
            return None
        offset = total * (1_000_000 if match[1] == "+" else -1_000_000)
        return lambda wall: wall - offset
    return converter_of(text) if text in _names() else None


def converter_of(name: str) -> Callable[[int], int]:
    """Return what converts wall-clock times of a zone to instants, beyond the range of 64 bits, too."""
    own: Any = zone(name)

    def convert(wall: int) -> int:
        moved = 0
        if wall > 2**62:
            moved = (wall // CYCLE_US - 6) * CYCLE_US  # rules repeat themselves
        elif wall < -(2**62):
            moved = wall + 2**62  # local mean time, as of all times before the first change
        return int(own.to_instant(np.array([wall - moved], dtype=np.int64))[0]) + moved

    return convert
