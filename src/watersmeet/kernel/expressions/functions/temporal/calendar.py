"""The calendar, Gregorian for ever both ways: int64 days since 1970-01-01 and months since 1970-01."""

from __future__ import annotations

import numpy as np

from watersmeet.kernel.expressions.functions.base import Raw

MONTHS_OF = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def months_of(days: Raw) -> tuple[Raw, Raw]:
    """(months since 1970-01, days since the first of that month)."""
    dates = days.astype(np.int64).view("M8[D]")
    months = dates.astype("M8[M]")
    return months.view(np.int64), (dates - months.astype("M8[D]")).view(np.int64)


def first_of(months: Raw) -> Raw:
    """The first day of a month."""
    days: Raw = months.astype(np.int64).view("M8[M]").astype("M8[D]").view(np.int64)
    return days


def length_of(months: Raw) -> Raw:
    """How many days a month has."""
    lengths: Raw = first_of(months + 1) - first_of(months)
    return lengths


def plus_months(days: Raw, by: Raw) -> Raw:
    """The same day so many months on, or that month's last."""
    months, rest = months_of(days)
    there = months + by
    moved: Raw = first_of(there) + np.minimum(rest, length_of(there) - 1)
    return moved


def floor_days(days: Raw, unit: str) -> Raw:
    """The first day of the WEEK (a Monday), MONTH, QUARTER or YEAR."""
    if unit == "WEEK":
        monday: Raw = days - (days + 3) % 7  # 1970-01-01 was a Thursday
        return monday
    months, _ = months_of(days)
    return first_of(months - months % MONTHS_OF[unit])


def part_of(days: Raw, part: str) -> Raw:
    """`year`, `month`, … of days."""
    if part in ("dayofweek", "dayofweek_iso", "weekday"):
        monday: Raw = (days + 3) % 7
        return {"dayofweek": (monday + 1) % 7 + 1, "dayofweek_iso": monday + 1, "weekday": monday}[part]
    if part in ("week", "yearofweek"):
        thursday = floor_days(days, "WEEK") + 3  # it says of which year the week is
        months, _ = months_of(thursday)
        year = months - months % 12
        return (thursday - first_of(year)) // 7 + 1 if part == "week" else year // 12 + 1970
    months, rest = months_of(days)
    if part == "year":
        return months // 12 + 1970
    if part == "quarter":
        return months % 12 // 3 + 1
    if part == "month":
        return months % 12 + 1
    return rest + 1 if part == "day" else days - first_of(months - months % 12) + 1
