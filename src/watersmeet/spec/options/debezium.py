"""How Debezium writes values: what a source says of it, and what it need not say.

A DATE is a number of days, a timestamp without a zone a number of what its precision takes; one with a zone
is a text. A DECIMAL is bytes, unless the connector is told otherwise, and JSON has them as texts in base64,
without their scale; some of those are digits alone ("1234" is −2,658,824 of some scale). Source: Debezium's
documentation of the PostgreSQL connector, "Temporal types", "Decimal types".
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from watersmeet.errors import SpecError, near_names
from watersmeet.spec.model import Source
from watersmeet.spec.options.values import wrong_value
from watersmeet.spec.records.text_records import TimeUnit
from watersmeet.types.sql_type import (
    BIGINT,
    BINARY,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    SqlType,
    array,
    map_of,
)

TIMESTAMPS, DECIMALS, TRUNCATE = "debezium.timestamps", "debezium.decimals", "debezium.truncate"
OPTIONS = (TIMESTAMPS, DECIMALS, TRUNCATE)
STOP, SKIP = "stop", "skip"
"""Of `TRUNCATE`: what an event that says that the table was emptied does to the job."""

METADATA_PREFIX = "metadata."
"""Options that begin so fill the column that they name from a field of the event, or of Kafka's record."""
EVENT_FIELDS = "source.lsn, source.ts_ms, ts_ms"
"""Some of them, for messages."""
_FIELD = re.compile(r"ts_(ms|us|ns)|source\.[A-Za-z_]\w*")

TEXTS = "string"
"""Of `DECIMALS`: texts are numbers as they are written; so Debezium's ``decimal.handling.mode`` calls it."""

UNAVAILABLE = "__debezium_unavailable_value"
"""Stands for a large value that an update did not touch: the database's log does not hold it."""
_BYTES = UNAVAILABLE.encode()
_UUID = str(UUID(bytes=hashlib.md5(_BYTES, usedforsecurity=False).digest(), version=3))
_PLACEHOLDERS: Mapping[SqlType, tuple[Any, ...]] = {
    STRING: (
        UNAVAILABLE,
        f'{{"{UNAVAILABLE}":"{UNAVAILABLE}"}}',  # hstore.handling.mode = json
        b64encode(_BYTES).decode(),  # binary.handling.mode = bytes, base64
        _BYTES.hex(),
    ),
    BINARY: (_BYTES,),
    **{array(kind): ([*_BYTES],) for kind in (SMALLINT, INT, BIGINT)},
    array(STRING): ([UNAVAILABLE], [_UUID]),
    array(BINARY): ([_BYTES],),
    map_of(STRING, STRING): ([(UNAVAILABLE, UNAVAILABLE)],),
}
"""The same in other types. Source: Debezium's ``UnchangedToastedPlaceholder``."""


def placeholders(kind: SqlType) -> tuple[Any, ...]:
    """Return the values of a type that stand for one which an update did not touch; a MAP as its pairs."""
    return _PLACEHOLDERS.get(kind, ())


DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
"""Names of types in a record's schema: of bytes, and of an object with bytes and their scale."""

NAMES_OF_DAYS = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
"""Those of numbers of days."""


NAMES_OF_UNITS: Mapping[TimeUnit, tuple[str, ...]] = {
    TimeUnit.MILLIS: ("io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp"),
    TimeUnit.MICROS: ("io.debezium.time.MicroTimestamp",),
    TimeUnit.NANOS: ("io.debezium.time.NanoTimestamp",),
}
"""What a record's schema calls numbers that count so since 1970."""

_UNIT_OF = {"millis": TimeUnit.MILLIS, "micros": TimeUnit.MICROS, "nanos": TimeUnit.NANOS}
UNITS = tuple(_UNIT_OF)


def timestamps_unit(options: Mapping[str, str]) -> TimeUnit | None:
    """Return the unit of timestamps that are numbers.

    Return None if no unit is set; numbers are not timestamps then.
    """
    for name, value in options.items():
        if name.lower() == TIMESTAMPS and value.strip().lower() in UNITS:
            return _UNIT_OF[value.strip().lower()]
    return None


def reads_decimal_texts(options: Mapping[str, str]) -> bool:
    """Return True if a text as the value of a DECIMAL is a number; otherwise only a number is."""
    return any(name.lower() == DECIMALS and value.strip().lower() == TEXTS for name, value in options.items())


def skips_truncate(options: Mapping[str, str]) -> bool:
    """Return True if an event that says that the table was emptied is skipped; else it stops the job."""
    return any(name.lower() == TRUNCATE and value.strip().lower() == SKIP for name, value in options.items())


CLOCKS = ("ts_ms", "ts_us", "ts_ns")
"""All that a heartbeat has."""
MARKS = ("BEGIN", "END")
"""The status of markers of transactions."""


def event_fields(source: Source) -> dict[str, str]:
    """Return per column that the event itself fills, and not its rows, the field: ``source.lsn``."""
    names = {column.name.lower(): column.name for column in source.columns}
    return {
        names[column]: value.strip()
        for name, value in source.options.items()
        for column in [name.lower().removeprefix(METADATA_PREFIX)]
        if name.lower().startswith(METADATA_PREFIX) and column in names and is_event_field(value)
    }


def is_event_field(value: str) -> bool:
    return _FIELD.fullmatch(value.strip()) is not None


def _field_problems(what: str, source: Source) -> Iterator[SpecError]:
    """Yield what is wrong with columns that the event itself fills."""
    key, fields = source.primary_key, event_fields(source)
    for column in source.columns:
        if column.name not in fields:
            continue
        hint = None
        if key is None:
            hint = (
                "leave it out: a delete must have the same values as its insert, but its event has"
                " another one"
            )
        elif column.name in key.columns:
            hint = f'leave it out: "{column.name}" is in the primary key, which comes from the rows'
        elif not column.type.is_integer and column.type != STRING:
            hint = f"declare {column.name} BIGINT, or STRING for a text"
        if hint is not None:
            said = f"option '{METADATA_PREFIX}{column.name}' is '{fields[column.name]}'"
            yield SpecError(f"{what}: {said}", code="wrong-option", hint=hint)


def value_problems(what: str, source: Source) -> Iterator[SpecError]:
    """Yield problems of the options of the format, and of columns with ambiguous values."""
    yield from _field_problems(what, source)
    for name, value in source.options.items():
        if name.lower() == TIMESTAMPS and value.strip().lower() not in UNITS:
            hint = near_names(value, UNITS) or f"it can be {', '.join(UNITS)}"
            yield wrong_value(what, name, value, hint)
        if name.lower() == DECIMALS and value.strip().lower() != TEXTS:
            hint = f"it can be '{TEXTS}', with decimal.handling.mode = string in Debezium"
            yield wrong_value(what, name, value, hint)
        if name.lower() == TRUNCATE and value.strip().lower() not in (STOP, SKIP):
            hint = f"it can be '{STOP}' (the default) or '{SKIP}', which keeps the rows"
            yield wrong_value(what, name, value, hint)
    for column in source.columns:
        if column.type != TIMESTAMP and TIMESTAMP in column.type.every:
            yield SpecError(
                f'{what}: the column "{column.name}" is {column.type}, but Spark would read numbers'
                " inside it as seconds",
                code="wrong-types",
                hint="declare these fields BIGINT (or STRING, where Debezium writes text), and cast in a"
                " view",
            )
        within = any(inner.is_decimal for inner in column.type.every if inner != column.type)
        if within and not reads_decimal_texts(source.options):
            yield SpecError(
                f'{what}: the column "{column.name}" is {column.type}, but DECIMALs inside it may be'
                " encoded as bytes",
                code="wrong-types",
                hint=f"set decimal.handling.mode = string in Debezium and '{DECIMALS}' = '{TEXTS}' here",
            )
