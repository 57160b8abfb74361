"""``DATE '…'`` and ``TIMESTAMP '…'``: which texts Spark reads so."""

from __future__ import annotations

import re

from watersmeet.time_texts import JAVA_BLANK, read_date, read_time, zone_converter

TYPED = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ")
"""The types that stand before a text."""

_WORDS = re.compile(r"\s*(epoch|now|today|tomorrow|yesterday)\b", re.IGNORECASE)
_US_OF_DAY = 86_400_000_000
_MOST = 2**63 + _US_OF_DAY
"""µs; whether a time less than a day beyond a BIGINT fits is left to Spark."""


def typed_problem(kind: str, text: str) -> tuple[str, str] | None:
    """Why ``text`` cannot stand behind the name of that type, and what to do; None: it can, or is a word for
    a time.

    >>> typed_problem("DATE", "2024-13-01")
    ("DATE '2024-13-01' is not a valid DATE", "write one as DATE '2024-01-31'")
    >>> typed_problem("TIMESTAMP", "2024-03-01 10:00:00 Europe/Berlin") is None
    True
    """
    if _WORDS.match(text):
        return None
    form = "2024-01-31" if kind == "DATE" else "2024-01-31 23:59:59.999999"
    malformed = f"{kind} '{text}' is not a valid {kind}", f"write one as {kind} '{form}'"
    if kind == "DATE":
        return malformed if read_date(text) is None else None
    parsed = read_time(text)
    if parsed is None:
        return malformed
    days, of_day, zone = parsed
    if zone is not None and zone_converter(zone.strip(JAVA_BLANK)) is None:
        return f"{kind} '{text}': there is no time zone {zone.strip()}", "such as Europe/Berlin, Z or +01:00"
    if days is None:
        if kind == "TIMESTAMP_NTZ":
            return malformed
        return (
            f"{kind} '{text}' has no date, so it would depend on the day of the run",
            "write a date before it",
        )
    return None if abs(days * _US_OF_DAY + of_day) < _MOST else malformed
