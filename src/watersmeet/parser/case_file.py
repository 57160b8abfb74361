"""Case files: the declarations and the query of one case → `Job`. Its steps are not read here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from watersmeet.errors import SpecError
from watersmeet.names import ROW, is_ours
from watersmeet.parser.ddl.quantities import duration_us
from watersmeet.parser.ddl.settings import OPTIONS, Settings
from watersmeet.parser.query.select import query_of
from watersmeet.parser.text.source_position import reserved_name_error
from watersmeet.parser.types.inference import type_named
from watersmeet.spec.change_kinds import PrimaryKey
from watersmeet.spec.model import Column, EventTime, Insert, Job, OnIdle, OutputMode, Sink, Source
from watersmeet.spec.options.changes import primary_key
from watersmeet.types.sql_type import INTEGERS, TIMES

_STREAM_KEYS = {"columns", "time", "partitions", "idle_timeout", "on_idle", "changes", "max_ahead"}
_TABLE_KEYS = {"primary_key", "sequence_by", "tombstones"}


LENIENT = "lenient"
"""Of cases alone: sources of jobs give no explicit advances."""


def case_job(case: Mapping[str, Any]) -> Job:
    """Build the job of a case: one insert ``q`` into a console sink.

    Such a sink accepts duplicate column names.

    Raises:
        SpecError, SqlError, SeveralErrors: The case has errors.
    """
    sources: dict[str, Source] = {}
    for name, declared in case.get("streams", {}).items():
        sources[name] = _source(name, declared, is_table=False)
    for name, declared in case.get("tables", {}).items():
        sources[name] = _source(name, declared, is_table=True)
    settings = Settings()
    for key, value in case.get("options", {}).items():
        if key == LENIENT and isinstance(value, bool):
            settings.options = replace(settings.options, lenient=value)
            continue
        if key not in OPTIONS:
            options = ", ".join([*OPTIONS, f"{LENIENT} (true or false)"])
            raise SpecError(f'unknown option "{key}"', code="unknown-setting", hint=f"known: {options}")
        settings.set(key, "none" if value is None else str(value))
    if settings.options.output_mode is None:
        settings.options = replace(settings.options, output_mode=OutputMode.APPEND)
    if "query" not in case:
        raise SpecError('the case has no "query"', code="bad-case")
    query = query_of(case["query"], sources)
    return Job((Insert("q", Sink("q", "console"), query),), settings.options)


def _source(name: str, declared: Mapping[str, Any], *, is_table: bool) -> Source:
    keys = _STREAM_KEYS | (_TABLE_KEYS if is_table else set())
    unknown = sorted(set(declared) - keys)
    if unknown:
        hint = "known: " + ", ".join(sorted(keys))
        raise SpecError(f'stream "{name}": unknown "{unknown[0]}"', code="bad-case", hint=hint)
    for column in declared["columns"]:
        if is_ours(column) and column != ROW:
            raise reserved_name_error(column)
    columns = tuple(Column(column, type_named(kind)) for column, kind in declared["columns"].items())
    times = tuple(_time(name, columns, time, entry) for time, entry in declared.get("time", {}).items())
    if is_table and times:
        raise SpecError(
            f'table "{name}" cannot have event times', code="bad-case", hint='move it to "streams"'
        )
    return Source(
        name,
        columns,
        "memory",
        {},
        times,
        tuple(str(partition) for partition in declared.get("partitions", ())),
        _seconds_us(declared.get("idle_timeout")),
        OnIdle(declared.get("on_idle", "hold")),
        _seconds_us(declared.get("max_ahead")),
        is_table,
        bool(declared.get("changes", False)) or is_table,
        primary_key=_primary_key(name, declared, columns),
    )


def _primary_key(name: str, declared: Mapping[str, Any], columns: Sequence[Column]) -> PrimaryKey | None:
    """Read the primary key of a table of a case, or return None if it declares none.

    ``tombstones`` is in seconds; null means that deletes are not remembered.
    """

    def error(message: str, hint: str | None) -> SpecError:
        return SpecError(f'table "{name}": {message}', code="bad-case", hint=hint)

    named = declared.get("primary_key")
    if named is None:
        said = next((key for key in ("sequence_by", "tombstones") if key in declared), None)
        if said is not None:
            raise error(f'"{said}" needs "primary_key"', None)
        return None
    remembers = declared.get("tombstones", 0) is not None
    seconds = _seconds_us(declared.get("tombstones"))
    return primary_key(named, declared.get("sequence_by"), seconds, columns, error, remembers=remembers)


def _time(name: str, columns: tuple[Column, ...], time: str, entry: Mapping[str, Any]) -> EventTime:
    column = next((declared for declared in columns if declared.name == time), None)
    if column is None:
        raise SpecError(f'stream "{name}" has no column "{time}"', code="unknown-column")
    if column.type not in INTEGERS and column.type not in TIMES:
        raise SpecError(f'"{name}.{time}" is {column.type} and cannot be an event time', code="wrong-type")
    lag = entry.get("lag")
    return EventTime(time, lag if lag is None else _lag(lag))


def _lag(lag: int | str) -> int:
    """Return a lag in units of the column; an interval given as text becomes µs."""
    return lag if isinstance(lag, int) else duration_us(lag)


def _seconds_us(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1_000_000)
