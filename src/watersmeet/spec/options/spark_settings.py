"""Settings of Spark that the rows of a job rest on: they have one value here, and nobody may choose another.

Whatever decides what an expression means (time zone, ANSI mode, coercion, parsers) has to be the same in
Spark, in the tasks and after a restart. What only decides how fast or where something runs is the user's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

TIME_ZONE = "spark.sql.session.timeZone"

_RAISES = "expressions mean what ANSI mode says: where Spark raises, the job stops"
_NAMES = "names are compared without regard to case when a job is planned"
_TYPES = "the types that a job was planned with would not be those that it runs with"
_TEXT = "the text of the job would be read in another way than when it was planned"

FIXED: Mapping[str, tuple[str, str]] = {
    "spark.sql.ansi.enabled": ("true", _RAISES),
    "spark.sql.storeAssignmentPolicy": ("ANSI", _RAISES),
    "spark.sql.caseSensitive": ("false", _NAMES),
    "spark.sql.timestampType": ("TIMESTAMP_LTZ", _TYPES),
    "spark.sql.decimalOperations.allowPrecisionLoss": ("true", _TYPES),
    "spark.sql.preserveCharVarcharTypeInfo": ("false", _TYPES),
    "spark.sql.functionResolution.sessionOrder": (
        "second",
        "a function of yours would be called by the name of one of Spark's",
    ),
    "spark.sql.session.collation.default": ("UTF8_BINARY", "tasks compare texts by their bytes"),
    "spark.sql.mapKeyDedupPolicy": ("EXCEPTION", _RAISES),
    "spark.sql.icu.caseMappings.enabled": (
        "true",
        "upper and lower would give other texts than in tasks",
    ),
    "spark.sql.variable.substitute": ("false", _TEXT),
    "spark.sql.parser.quotedRegexColumnNames": ("false", _TEXT),
    "spark.sql.parser.escapedStringLiterals": ("false", _TEXT),
    "spark.sql.ansi.doubleQuotedIdentifiers": ("false", _TEXT),
    "spark.sql.parquet.datetimeRebaseModeInRead": ("CORRECTED", "days and times before 1582 would be moved"),
    "spark.sql.parquet.datetimeRebaseModeInWrite": ("CORRECTED", "days and times before 1582 would be moved"),
    "spark.sql.parquet.int96RebaseModeInRead": ("CORRECTED", "times before 1582 would be moved"),
    "spark.sql.parquet.int96RebaseModeInWrite": ("CORRECTED", "times before 1582 would be moved"),
    "spark.sql.avro.datetimeRebaseModeInRead": ("CORRECTED", "days and times before 1582 would be moved"),
    "spark.sql.avro.datetimeRebaseModeInWrite": ("CORRECTED", "days and times before 1582 would be moved"),
    "spark.sql.execution.arrow.useLargeVarTypes": ("false", "tasks take texts in Arrow's usual types"),
}
"""Name -> (the one value, why)."""

TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
"""That of Parquet's which says nothing else than what tasks write anyway."""

LEGACY = "spark.sql.legacy."


def says_how(names: Iterable[str], *beginnings: str) -> bool:
    """Whether settings of these names tell Spark to read or write in another way than tasks do. Their names
    begin so; those that have one value here do not count.

    >>> says_how(["spark.sql.parquet.filterPushdown", "spark.app.name"], "spark.sql.parquet.")
    True
    """
    return any(name.startswith(beginnings) and name not in (TIMESTAMPS, *FIXED) for name in names)


def problem_of(name: str, value: str) -> tuple[str, str] | None:
    """(what is wrong, what to do) if a user may not give a setting of Spark this value."""
    name = name.strip()
    if name.lower() == TIME_ZONE.lower():
        return (
            f"{name} cannot be set for Spark alone: conditions are computed outside of it, too",
            "SET time_zone = 'America/New_York' holds for all of the job",
        )
    if name.lower().startswith(LEGACY):
        return (
            f"{name} cannot be set: expressions mean what Spark says without its legacy settings",
            "leave it out",
        )
    for fixed, (only, why) in FIXED.items():
        if name.lower() == fixed.lower() and value.strip().lower() != only.lower():
            return f"{fixed} = {value} cannot be set: {why}", f"leave it out; here it is {only}"
    return None
