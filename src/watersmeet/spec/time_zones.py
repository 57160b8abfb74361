"""Names of time zones that mean the same to Java and to Python: regions with a slash, UTC, and offsets."""

from __future__ import annotations

import difflib
import re
import zoneinfo
from functools import cache

_MOST = {
    "a": 1, "d": 2, "g": 19, "h": 2, "k": 2, "m": 2, "q": 4, "s": 2, "x": 5, "y": 6, "z": 4, "D": 3, "E": 4,
    "F": 1, "G": 4, "H": 2, "K": 2, "L": 4, "M": 4, "Q": 4, "S": 9, "X": 5, "Z": 5,
}  # fmt: skip
_EXACTLY = {"v": (1, 4), "O": (1, 4), "V": (2,)}
_NOT_READ = frozenset("EFqQ")
_INSTEAD = {"Y": "y", "A": "a", "n": "S", "N": "S", "B": "a", "u": "E", "e": "E", "c": "E"}
_RESERVED = "{}#"
_PART = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|(.)", re.DOTALL)


def pattern_problem(pattern: str, *, reading: bool) -> str | None:
    """Return the reason why Spark rejects the pattern, or None.

    Args:
        reading: The pattern reads texts; otherwise it writes them.

    >>> pattern_problem("YYYY-MM-dd", reading=False)
    'YYYY is not a pattern letter, but yyyy is'
    >>> pattern_problem("yyyy-MM-dd'T'HH:mm:ss.SSS", reading=True) is None
    True
    """
    depth = 0
    for match in _PART.finditer(pattern):
        letter, sign = match[1], match[2]
        if letter:
            problem = _of_letters(letter, len(match[0]), reading)
            if problem is not None:
                return problem
        elif sign == "'":
            # of fractions that are read Spark makes patterns of its own
            return None if reading and "S" in pattern else "a quote has no end"
        elif sign and sign in _RESERVED:
            return f"{sign} is reserved: write '{sign}' in quotes"
        elif sign:
            depth += (sign == "[") - (sign == "]")
            if depth < 0:
                return "a ] has no [ before it"
    return None


def _of_letters(letter: str, count: int, reading: bool) -> str | None:
    if reading and letter in _NOT_READ:
        return f"{letter * count} works for writing only, not for reading"
    if letter in _EXACTLY:
        if count in _EXACTLY[letter]:
            return None
        return f"{letter * count} has no meaning; use {letter * _EXACTLY[letter][-1]}"
    most = _MOST.get(letter)
    if most is None:
        other = _INSTEAD.get(letter)
        if other is None:
            return f"{letter * count} is not a pattern letter: put literal text in quotes"
        return f"{letter * count} is not a pattern letter, but {other * min(count, _MOST[other])} is"
    return None if count <= most else f"{letter * count} is too long: use at most {most} {letter}"


UTC = "UTC"

_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?")
_MOST_MINUTES = 18 * 60
_APART = ("posix/", "right/", "SystemV/")
"""Folders of the zone database that Java does not have."""


@cache
def regions() -> frozenset[str]:
    """Return time zone names such as ``Europe/Berlin``.

    Leave out three-letter names (EST, IST, …), which denote other zones in Java.
    """
    return frozenset(
        name for name in zoneinfo.available_timezones() if "/" in name and not name.startswith(_APART)
    )


def zone_named(text: str) -> str | None:
    """Return the canonical name of a zone, or None if there is no such zone.

    Canonical names are ``UTC``, ``+05:30`` and ``America/New_York``, for example.
    """
    name = text.strip()
    if name.upper() in ("UTC", "Z", "GMT", "ETC/UTC", "+00:00", "-00:00"):
        return UTC
    offset = _OFFSET.fullmatch(name.upper())
    if offset is not None:
        sign, hours, minutes = offset.group(1), int(offset.group(2)), int(offset.group(3) or 0)
        if minutes > 59 or hours * 60 + minutes > _MOST_MINUTES:
            return None
        return UTC if hours == minutes == 0 else f"{sign}{hours:02}:{minutes:02}"
    return name if name in regions() else None


def hint_for(text: str) -> str:
    """Return what to write instead of a name that is not a time zone."""
    wanted = text.strip().lower()
    by_lower = {name.lower(): name for name in sorted(regions())}
    near = difflib.get_close_matches(wanted, by_lower, n=1)
    if near:
        return f'did you mean "{by_lower[near[0]]}"?'
    return "use a region such as 'America/New_York', 'UTC', or an offset such as '+05:30'"
