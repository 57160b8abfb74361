"""In which unit numbers in the place of timestamps count, in records of JSON and CSV.

Spark's JSON reader takes a number in a TIMESTAMP for seconds; its CSV reader reads none. Producers count
milliseconds more often than not, and one of them read as seconds is of the year 56135.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

from watersmeet.errors import SpecError
from watersmeet.spec.model import Source
from watersmeet.spec.options.changes import DEBEZIUM, UPSERT
from watersmeet.spec.options.values import wrong_value
from watersmeet.types.sql_type import TIMESTAMP, TIMESTAMP_NTZ

UNIT = "timestamp.unit"
DAYS = range(-719_162, 2_932_896 + 1)
"""Of the years 1 to 9999, since 1970. Infinity, which Postgres has, is beyond."""
FORMATS = ("json", "csv", UPSERT)
"""Of the records that it is said of."""


class TimeUnit(Enum):
    """Of what a number in the place of a timestamp is a count."""

    SECONDS = "s"
    MILLIS = "ms"
    MICROS = "us"
    NANOS = "ns"

    @property
    def per_second(self) -> int:
        return {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}[self.value]


UNITS = tuple(unit.value for unit in TimeUnit)


def said_unit(options: Mapping[str, str]) -> TimeUnit | None:
    """Return the unit that a source's options say; None: none, and numbers are what Spark takes them for."""
    for name, value in options.items():
        if name.lower() == UNIT and value.strip().lower() in UNITS:
            return TimeUnit(value.strip().lower())
    return None


def unit_problems(what: str, source: Source, wanted: str) -> Iterator[SpecError]:
    """Yield what is wrong with the option of a source whose records are in the format ``wanted``."""
    value = next((value for name, value in source.options.items() if name.lower() == UNIT), None)
    if value is None:
        return
    if wanted not in FORMATS:
        yield SpecError(
            f"{what}: option '{UNIT}' is for the formats {', '.join(FORMATS)}, but the format is {wanted}",
            code="unknown-option",
            hint="remove it: records of this format contain their time unit"
            if wanted != DEBEZIUM
            else "use 'debezium.timestamps' = 'millis', 'micros' or 'nanos' instead",
        )
    elif value.strip().lower() not in UNITS:
        hint = f"it can be {', '.join(UNITS)}"
        yield wrong_value(what, UNIT, value, hint)
    else:
        for column in source.columns:
            if column.type.is_nested and {TIMESTAMP, TIMESTAMP_NTZ} & set(column.type.every):
                yield SpecError(
                    f'{what}: the column "{column.name}" is {column.type}, but Spark reads numbers'
                    " inside it as seconds",
                    code="wrong-types",
                    hint=f"declare these fields BIGINT and cast in a view: '{UNIT}' applies to columns only",
                )
