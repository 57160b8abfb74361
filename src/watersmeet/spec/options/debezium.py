"""How Debezium writes values: what a source says of it, and what it need not say.

A DATE is a number of days, a timestamp without a zone a number of what its precision takes; one with a zone
is a text. A DECIMAL is bytes, unless the connector is told otherwise, and JSON has them as texts in base64,
without their scale; some of those are digits alone ("1234" is −2,658,824 of some scale). Source: Debezium's
documentation of the PostgreSQL connector, "Temporal types", "Decimal types".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from watersmeet.errors import SpecError, near_names
from watersmeet.spec.model import Source
from watersmeet.spec.records.counted_times import TimeUnit
from watersmeet.types.sql_type import TIMESTAMP

TIMESTAMPS, DECIMALS = "debezium.timestamps", "debezium.decimals"
OPTIONS = (TIMESTAMPS, DECIMALS)

TEXTS = "string"
"""Of `DECIMALS`: texts are numbers as they are written; so Debezium's ``decimal.handling.mode`` calls it."""

UNAVAILABLE = "__debezium_unavailable_value"
"""Stands for a large value that an update did not touch: the database's log does not hold it."""


_UNIT_OF = {"millis": TimeUnit.MILLIS, "micros": TimeUnit.MICROS, "nanos": TimeUnit.NANOS}
UNITS = tuple(_UNIT_OF)


def timestamps_unit(options: Mapping[str, str]) -> TimeUnit | None:
    """The unit that is said; None: none is, and numbers are no timestamps."""
    for name, value in options.items():
        if name.lower() == TIMESTAMPS and value.strip().lower() in UNITS:
            return _UNIT_OF[value.strip().lower()]
    return None


def reads_decimal_texts(options: Mapping[str, str]) -> bool:
    """Whether a text in the place of a DECIMAL is a number; else only a number is."""
    return any(name.lower() == DECIMALS and value.strip().lower() == TEXTS for name, value in options.items())


def value_problems(what: str, source: Source) -> Iterator[SpecError]:
    """What is wrong with the options beside the format, and with columns whose values could not be told."""
    for name, value in source.options.items():
        if name.lower() == TIMESTAMPS and value.strip().lower() not in UNITS:
            hint = near_names(value, UNITS) or f"it can be {', '.join(UNITS)}"
            yield SpecError(f"{what}: option '{name}' is '{value}'", code="wrong-option", hint=hint)
        if name.lower() == DECIMALS and value.strip().lower() != TEXTS:
            hint = f"it can be '{TEXTS}', with decimal.handling.mode = string: bytes do not say their scale"
            yield SpecError(f"{what}: option '{name}' is '{value}'", code="wrong-option", hint=hint)
    for column in source.columns:
        if column.type != TIMESTAMP and TIMESTAMP in column.type.every:
            yield SpecError(
                f'{what}: the column "{column.name}" is {column.type}, and numbers within would be seconds',
                code="wrong-types",
                hint="declare BIGINT within (or STRING, where Debezium writes texts), and cast in a view",
            )
        within = any(inner.is_decimal for inner in column.type.every if inner != column.type)
        if within and not reads_decimal_texts(source.options):
            yield SpecError(
                f'{what}: the column "{column.name}" is {column.type}, and texts within may be bytes',
                code="wrong-types",
                hint=f"set decimal.handling.mode = string, and say '{DECIMALS}' = '{TEXTS}'",
            )
