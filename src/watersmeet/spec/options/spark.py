"""Spark's own data sources, and settings of Spark that results rest on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from watersmeet.errors import SpecError
from watersmeet.spec.model import Sink, Source
from watersmeet.spec.options.values import lower_names

# Settings of Spark that the rows of a job rest on: they have one value here, and nobody may choose
# another.
#
# Whatever decides what an expression means (time zone, ANSI mode, coercion, parsers) has to be the same
# in Spark, in the tasks and after a restart. What only decides how fast or where something runs is the
# user's.

TIME_ZONE = "spark.sql.session.timeZone"

_RAISES = "the job evaluates expressions in ANSI mode and stops where Spark raises an error"
_NAMES = "the planner compares names case-insensitively"
_TYPES = "the job would run with other types than planned"
_TEXT = "Spark would parse the job's SQL differently than the planner"

FIXED: Mapping[str, tuple[str, str]] = {
    "spark.sql.ansi.enabled": ("true", _RAISES),
    "spark.sql.storeAssignmentPolicy": ("ANSI", _RAISES),
    "spark.sql.caseSensitive": ("false", _NAMES),
    "spark.sql.timestampType": ("TIMESTAMP_LTZ", _TYPES),
    "spark.sql.decimalOperations.allowPrecisionLoss": ("true", _TYPES),
    "spark.sql.preserveCharVarcharTypeInfo": ("false", _TYPES),
    "spark.sql.functionResolution.sessionOrder": (
        "second",
        "your functions would replace functions of Spark with the same name",
    ),
    "spark.sql.session.collation.default": ("UTF8_BINARY", "tasks compare text by its bytes"),
    "spark.sql.mapKeyDedupPolicy": ("EXCEPTION", _RAISES),
    "spark.sql.icu.caseMappings.enabled": (
        "true",
        "upper() and lower() would give other results than in tasks",
    ),
    "spark.sql.variable.substitute": ("false", _TEXT),
    "spark.sql.parser.quotedRegexColumnNames": ("false", _TEXT),
    "spark.sql.parser.escapedStringLiterals": ("false", _TEXT),
    "spark.sql.ansi.doubleQuotedIdentifiers": ("false", _TEXT),
    "spark.sql.parquet.datetimeRebaseModeInRead": ("CORRECTED", "dates and times before 1582 would change"),
    "spark.sql.parquet.datetimeRebaseModeInWrite": ("CORRECTED", "dates and times before 1582 would change"),
    "spark.sql.parquet.int96RebaseModeInRead": ("CORRECTED", "times before 1582 would change"),
    "spark.sql.parquet.int96RebaseModeInWrite": ("CORRECTED", "times before 1582 would change"),
    "spark.sql.avro.datetimeRebaseModeInRead": ("CORRECTED", "dates and times before 1582 would change"),
    "spark.sql.avro.datetimeRebaseModeInWrite": ("CORRECTED", "dates and times before 1582 would change"),
    "spark.sql.execution.arrow.useLargeVarTypes": ("false", "tasks need Arrow's regular text types"),
}
"""Name -> (the one value, why)."""

TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
"""That of Parquet's which says nothing else than what tasks write anyway."""

LEGACY = "spark.sql.legacy."


def says_how(names: Iterable[str], *beginnings: str) -> bool:
    """Return True if a setting makes Spark read or write differently than tasks do.

    Such names begin with one of ``beginnings``; settings that have a fixed value here do not count.

    >>> says_how(["spark.sql.parquet.filterPushdown", "spark.app.name"], "spark.sql.parquet.")
    True
    """
    return any(name.startswith(beginnings) and name not in (TIMESTAMPS, *FIXED) for name in names)


def problem_of(name: str, value: str) -> tuple[str, str] | None:
    """Return the problem and the hint if users may not give a Spark setting this value.

    Return None if the value is allowed.
    """
    name = name.strip()
    if name.lower() == TIME_ZONE.lower():
        return (
            f"{name} cannot be set for Spark only: the job also evaluates conditions outside of Spark",
            "use SET time_zone = 'America/New_York', which applies to the whole job",
        )
    if name.lower().startswith(LEGACY):
        return (
            f"{name} cannot be set: the job does not support Spark's legacy settings",
            "leave it out",
        )
    for fixed, (only, why) in FIXED.items():
        if name.lower() == fixed.lower() and value.strip().lower() != only.lower():
            return f"{fixed} = {value} cannot be set: {why}", f"remove it; watersmeet uses {only}"
    return None


# What is read and written by one of Spark's own data sources is told: which, and that one's options.

FORMAT, TABLE = "format", "table"
_OURS = {"kafka": "Kafka", "json": "File", "csv": "File", "parquet": "File"}
"""Formats that have a connector of their own, which counts what is broken, knows what was read, and puts rows
out exactly once."""
_NOT_WRITTEN = {**_OURS, "console": "Console", "memory": "Memory"}
_MODES = ("mode", "savemode")


def source_problems(source: Source) -> Iterator[SpecError]:
    """Yield problems of the options of a source that the text alone shows."""
    what = f'"{source.name}"'
    written = format_of(source.options)
    if not written:
        yield SpecError(
            f"{what}: the option '{FORMAT}' is missing, which names Spark's data source",
            code="missing-option",
            hint=f"for example '{FORMAT}' = 'rate'",
        )
    elif written.lower() in _OURS:
        own = _OURS[written.lower()]
        yield SpecError(
            f"{what}: use TYPE {own} to read {written}; it also counts broken records",
            code="wrong-option",
            hint=f"write TYPE {own}, or read it in Python: stream(spark.readStream.format(…), …)",
        )


def sink_problems(sink: Sink) -> Iterator[SpecError]:
    """Yield problems of the options of a sink that the text alone shows."""
    what = f'sink "{sink.name}"'
    written = format_of(sink.options)
    if not written and not table_of(sink.options):
        yield SpecError(
            f"{what}: the option '{FORMAT}' or '{TABLE}' is missing, which names Spark's data source",
            code="missing-option",
            hint=f"for example '{FORMAT}' = 'jdbc', or '{TABLE}' = 'catalog.db.t'",
        )
    elif written.lower() in _NOT_WRITTEN:
        own = _NOT_WRITTEN[written.lower()]
        why = (
            "which writes exactly once, unlike Spark's own writer"
            if written.lower() in _OURS
            else "which writes it directly"
        )
        yield SpecError(
            f"{what}: {written} needs TYPE {own}, {why}",
            code="wrong-option",
            hint=f"write TYPE {own}, or in Python sink('{own.lower()}', …)",
        )
    for name in sink.options:
        if name.lower() in _MODES:
            yield SpecError(
                f"{what}: option '{name}' cannot be set: each tick appends its rows",
                code="wrong-option",
                hint="remove it",
            )


def format_of(options: Mapping[str, str]) -> str:
    """Return the name of the data source; empty if it is not set."""
    return lower_names(options).get(FORMAT, "").strip()


def table_of(options: Mapping[str, str]) -> str:
    """Return the table of a Spark catalog; empty if a format defines the meaning of ``table``."""
    return "" if format_of(options) else lower_names(options).get(TABLE, "").strip()


def own_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that the data source gets."""
    ours = (FORMAT,) if format_of(options) else (TABLE,)
    return {name: str(value) for name, value in options.items() if name.lower() not in ours}
