"""SET: the semantics' options, settings of the run, and Spark's own."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from typing import Any, TypeVar

from sqlglot.tokens import TokenType

from watersmeet import deprecated_names
from watersmeet.errors import Location, SqlError, WatersmeetError, collect_errors, near_names
from watersmeet.parser.ddl.quantities import (
    ROWS_HINT,
    bytes_hint,
    bytes_in,
    count_or_share,
    duration_us,
    is_none,
    rows_in,
    units_in,
)
from watersmeet.parser.text.tokens import TokenCursor
from watersmeet.spec.job_options import (
    LEAST_KEPT_TICKS,
    LEAST_TASK_MEMORY,
    MOST_KEPT_TICKS,
    OFF,
    ON,
    SMALL_TICKS,
    SmallTicks,
)
from watersmeet.spec.model import (
    AtLimit,
    Lateness,
    NullTime,
    Options,
    OutputMode,
    PlanChoice,
    WatermarkRule,
)
from watersmeet.spec.monitoring import TOKEN_FILE, LogFormat, address_in
from watersmeet.spec.options.files import FILE_READER, FileReader, local_path
from watersmeet.spec.options.spark import problem_of
from watersmeet.spec.secrets import public_option, without_value, wrap_secret
from watersmeet.spec.time_zones import hint_for, zone_named
from watersmeet.types.intervals import IntervalError, trigger_ms

OPTIONS = (
    "watermark_rule",
    "lateness",
    "allowed_lateness",
    "output_mode",
    "plan",
    "max_rows",
    "max_bytes",
    "max_rows_per_key",
    "max_output_rows_per_tick",
    "max_job_rows",
    "max_job_bytes",
    "at_limit",
    "max_drift",
    "max_broken",
    "on_null_time",
    "max_task_memory",
    "time_zone",
)
_ROWS = ("max_rows", "max_rows_per_key", "max_output_rows_per_tick", "max_job_rows")
_BYTES = ("max_bytes", "max_job_bytes")
RUN_SETTINGS = (
    "checkpoint",
    "partitions",
    "trigger",
    "master",
    "late_output",
    "broken_output",
    "shed_output",
    "progress_output",
    "until_caught_up",
    "finish",
    "replace_newer_files",
    "change_queries",
    "keep_ticks",
    "history",
    FILE_READER,
    SMALL_TICKS,
    "metrics",
    "ui",
    TOKEN_FILE,
    "log_format",
    "jars",
    "state_store",
    "state_cache",
    "state_store_endpoint",
    "state_store_region",
    "state_store_allow_http",
)
"""Settings of the run, given as text to whoever runs the job."""

STATE_SETTINGS = ("checkpoint", *(name for name in RUN_SETTINGS if name.startswith("state_store")))
"""Those that say where the state is."""

SWITCHES = (
    "until_caught_up",
    "finish",
    "replace_newer_files",
    "change_queries",
    "history",
    "state_store_allow_http",
)

_Kind = TypeVar("_Kind", bound=Enum)


@dataclass
class Settings:
    """All settings (SET) so far.

    Attributes:
        durations: settings that are lengths of event time, by name; True for an interval, False for a number.
    """

    options: Options = field(default_factory=Options)
    run: dict[str, str] = field(default_factory=dict)
    spark: dict[str, str] = field(default_factory=dict)
    durations: dict[str, bool] = field(default_factory=dict)

    def set_all(self, values: Mapping[str, Any]) -> list[WatersmeetError]:
        """Apply several settings and return the errors."""
        problems: list[WatersmeetError] = []
        for key, value in values.items():
            with collect_errors(problems):
                self.set(str(key), as_text(value))
        return problems

    def set(self, key: str, value: str, location: Location | None = None) -> None:
        """Set one setting.

        Raises:
            SqlError: The name is unknown, or the setting cannot have this value.
        """
        name = setting_name(key)
        if name != _plain(key):
            deprecated_names.warn_of_earlier_name(key, name)
        if key.lower().startswith("spark."):
            _check_spark_setting(key, value, location)
            self.spark[key] = wrap_secret(key, value)
        elif name in RUN_SETTINGS:
            self.run[name] = _run_setting(name, value, location)
        elif name == "watermark_rule":
            self.options = replace(self.options, watermark_rule=_one_of(WatermarkRule, name, value, location))
        elif name == "lateness":
            self.options = replace(self.options, lateness=_one_of(Lateness, name, value, location))
        elif name == "output_mode":
            self.options = replace(self.options, output_mode=_one_of(OutputMode, name, value, location))
        elif name == "plan":
            self.options = replace(self.options, plan=_one_of(PlanChoice, name, value, location))
        elif name == "at_limit":
            self.options = replace(self.options, at_limit=_one_of(AtLimit, name, value, location))
        elif name == "on_null_time":
            self.options = replace(self.options, on_null_time=_one_of(NullTime, name, value, location))
        elif name == "time_zone":
            self.options = replace(self.options, time_zone=_time_zone(value, location))
        elif name in _ROWS:
            rows: dict[str, Any] = {name: _most_rows(name, value, location)}
            self.options = replace(self.options, **rows)
        elif name in _BYTES:
            size: dict[str, Any] = {name: _most_bytes(name, value, location)}
            self.options = replace(self.options, **size)
        elif name == "max_task_memory":
            self.options = replace(self.options, max_task_memory=_bytes(name, value, location))
        elif name == "allowed_lateness":
            self.options = replace(self.options, allowed_lateness=self._length(name, value, location))
        elif name == "max_drift":
            most = None if is_none(value) else self._length(name, value, location)
            if most == 0:
                raise SqlError(
                    "max_drift must be above zero",
                    code="bad-setting",
                    hint="use an interval above zero, or 'none'",
                    location=location,
                )
            self.options = replace(self.options, max_drift=most)
        elif name == "max_broken":
            self.options = replace(self.options, max_broken=_most_broken(value, location))
        else:
            hint = near_names(name, [*OPTIONS, *RUN_SETTINGS])
            if not difflib.get_close_matches(name, [*OPTIONS, *RUN_SETTINGS], n=1):
                hint = f"{hint}; settings of Spark start with spark."
            raise SqlError(f'unknown setting "{key}"', code="unknown-setting", hint=hint, location=location)

    def _length(self, name: str, value: str, location: Location | None) -> int:
        """Parse a length of event time: an interval or a whole number."""
        number = units_in(value)
        self.durations[name] = number is None
        try:
            length = duration_us(value) if number is None else number
        except SqlError as error:
            raise SqlError(
                f"{name}: {without_value(error.message, name, value)}",
                code="bad-setting",
                hint="write INTERVAL '10' SECONDS, or a whole number if event times are integers",
                location=location,
            ) from error
        if length < 0:
            raise SqlError(f"{name} must not be negative", code="bad-setting", location=location)
        return length


def setting_name(key: str) -> str:
    """Return the name of a setting of ours, however it is written, or was called before.

    >>> setting_name("Max-Rows"), setting_name("max-skew")
    ('max_rows', 'max_drift')
    """
    return deprecated_names.SETTINGS.get(_plain(key), _plain(key))


def _plain(key: str) -> str:
    return key.strip().lower().replace("-", "_")


def is_same_setting(one: str, other: str) -> bool:
    """Return True if two names denote the same setting.

    Names of Spark settings have no other spelling.
    """
    return setting_name(one) == setting_name(other) and not one.startswith("spark.")


def as_text(value: object) -> str:
    """Format a setting or option from Python as a SQL text would write it.

    >>> as_text(True), as_text(9)
    ('true', '9')
    """
    if isinstance(value, str):
        return value  # also one that is a secret
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_spark_setting(name: str, value: str, location: Location | None) -> None:
    problem = problem_of(name, value)
    if problem is not None:
        raise SqlError(problem[0], code="fixed-setting", hint=problem[1], location=location)


def _most_broken(value: str, location: Location | None) -> int | Fraction | None:
    most = count_or_share(value)
    if most is None and not is_none(value):
        hint = "use a number of records, a share such as '1 %', or 'none'"
        raise _wrong_value("max_broken", value, hint, location)
    return most


def _time_zone(value: str, location: Location | None) -> str:
    zone = zone_named(value)
    if zone is None:
        shown = public_option("time_zone", value)
        raise SqlError(
            f"time_zone is '{shown}', which is not a time zone that Java and Python both know",
            code="bad-setting",
            hint=hint_for(value),
            location=location,
        )
    return zone


def _run_setting(name: str, value: str, location: Location | None) -> str:
    """Check a setting of the run and return it as text for the program that runs the job."""
    if name == "checkpoint":
        place = local_path(value)
        if place is not None and place.strip():
            return place
        elsewhere = ", or set state_store to 's3://…' or 'postgresql://…'"
        hint: str | None = f"use a directory on this machine{elsewhere if place is None else ''}"
    elif name == "partitions" and rows_in(value) is None:
        hint = "use a whole number above zero"
    elif name == "keep_ticks" and not (LEAST_KEPT_TICKS <= (rows_in(value) or 0) <= MOST_KEPT_TICKS):
        hint = f"use a whole number from {LEAST_KEPT_TICKS} to {MOST_KEPT_TICKS:,}"
    elif name in ("metrics", "ui") and address_in(value) is None:
        port = "9464" if name == "metrics" else "8765"
        hint = f"use a port such as {port}, or HOST:PORT to listen on another address"
    elif name == TOKEN_FILE and not value.strip():
        hint = "use the path of a file, or 'none'"
    elif name == "log_format":
        return str(_one_of(LogFormat, name, value, location).value)
    elif name == FILE_READER:
        return str(_one_of(FileReader, name, value, location).value)
    elif name == SMALL_TICKS:
        return str(_one_of(SmallTicks, name, value, location).value)
    elif name == "trigger":
        try:
            if value.strip().lower().startswith("interval"):
                value = f"{duration_us(value)} microseconds"
            trigger_ms(value)
            return value
        except IntervalError as error:
            hint = error.hint
        except SqlError as error:
            hint = error.hint
    elif name in SWITCHES and value.strip().lower() not in (*ON, *OFF):
        hint = "use 'true' or 'false'"
    else:
        return wrap_secret(f"{name}.url", value) if name == "state_store" else value
    raise _wrong_value(name, value, hint, location)


def _wrong_value(name: str, value: str, hint: str | None, location: Location | None) -> SqlError:
    shown = public_option(name, value)
    return SqlError(f"{name} is '{shown}'", code="bad-setting", hint=hint, location=location)


def _one_of(kind: type[_Kind], name: str, value: str, location: Location | None) -> _Kind:
    choices = [str(member.value) for member in kind]
    if value.strip().lower() in choices:
        return kind(value.strip().lower())
    hint = "use " + " or ".join(f"'{choice}'" for choice in choices)
    raise _wrong_value(name, value, hint, location)


def _most_rows(name: str, value: str, location: Location | None) -> int | None:
    rows = rows_in(value)
    if rows is None and not is_none(value):
        raise _wrong_value(name, value, ROWS_HINT, location)
    return rows


def _most_bytes(name: str, value: str, location: Location | None) -> int | None:
    return None if is_none(value) else _bytes(name, value, location, least=1)


def _bytes(name: str, value: str, location: Location | None, least: int = LEAST_TASK_MEMORY) -> int:
    size = bytes_in(value, least)
    if size is None:
        raise _wrong_value(name, value, bytes_hint(least), location)
    return size


def read_set(cursor: TokenCursor) -> tuple[str, str, Location]:
    """Read ``key = value``, ``'key' TO 'value'``, ``a.b.c = some words`` or ``key = FROM FILE 'path'``.

    References to what is not there are added to the text's problems, and stand for nothing in the value.
    """
    start = cursor.offset
    key = cursor.take_dotted_name("a setting's name")
    while cursor.accept("-"):
        key += "-" + cursor.take_dotted_name("a setting's name")
    if not cursor.accept("=") and not cursor.accept("TO"):
        raise cursor.syntax_error("=")
    location = cursor.text.at(start)
    content = cursor.external_value()
    if content is not None:
        cursor.end()
        return key, content, location
    tokens = cursor.rest()
    if not tokens:
        raise cursor.syntax_error("a value")
    if len(tokens) == 1 and tokens[0].token_type in (TokenType.STRING, TokenType.IDENTIFIER):
        value = tokens[0].text
    else:
        value = cursor.text.sql[tokens[0].start : tokens[-1].end + 1].strip()
    return key, cursor.fill(value, tokens[0].start), location
