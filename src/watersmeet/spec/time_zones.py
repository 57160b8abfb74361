"""Names of time zones that mean the same to Java and to Python: regions with a slash, UTC, and offsets."""

from __future__ import annotations

import difflib
import re
import zoneinfo
from functools import cache

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
