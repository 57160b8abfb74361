"""Values of texts and of JSON as Spark reads them, where that is certain here: in their one spelling."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from watersmeet.engine.spark.sources.files.first_found import Row, refused
from watersmeet.engine.spark.sources.files.inferred_types import (
    DATE,
    INT,
    LOCAL,
    LONG,
    NUMBER,
    ZONED,
    kind_of_text,
)
from watersmeet.engine.spark.time_formats import TimeFormats
from watersmeet.spec.model import Column, Source
from watersmeet.spec.records.counted_times import TimeUnit, said_unit
from watersmeet.spec.records.json_names import written_as
from watersmeet.spec.time_zones import UTC as UTC_ZONE
from watersmeet.types import sql_type as sql
from watersmeet.types.sql_type import PLAIN, SqlType
from watersmeet.zones import zone

_COUNTED = (sql.TIMESTAMP, sql.TIMESTAMP_NTZ)
_KNOWN_PARTS = frozenset(PLAIN) - {sql.FLOAT, sql.BINARY}
_FIXED = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.([0-9]+))?")


class Unsure(Exception):
    """What Spark reads here is not known."""


def json_object(line: str) -> dict[str, Any]:
    """The object that a text is, fractions as Decimal. Raises: Unsure."""
    try:
        value = json.loads(line, parse_float=Decimal, parse_constant=_unsure, object_pairs_hook=_pairs)
    except (ValueError, RecursionError, ArithmeticError):
        raise Unsure from None
    if not isinstance(value, dict) or not is_text(line):
        raise Unsure
    if "\\u" in line and not is_text(json.dumps(value, ensure_ascii=False, default=str)):
        raise Unsure  # half of a character, also in what nobody declared
    return value


def fields_of(value: Mapping[str, Any], converters: Mapping[str, Callable[[Any], Any] | None]) -> Row:
    """The columns of an object, by their readers. Raises: Unsure."""
    row: Row = {}
    for name, convert in converters.items():
        given = _field_of(value, name)
        if convert is None:
            row[name] = None
        else:
            row[name] = None if given is None else convert(given)
    return row


def _field_of(record: Mapping[str, Any], name: str) -> Any:
    """The value of a field, whatever the case of its name; None: there is none.

    Raises: Unsure: several names differ by case alone, or the record has objects within, where such a name
        may stand, too.
    """
    try:
        written = written_as(record, name)
    except ValueError:
        raise Unsure from None
    if written not in (None, name) and any(isinstance(value, dict | list) for value in record.values()):
        raise Unsure
    return None if written is None else record[written]


def _part_of(value: Mapping[str, Any], name: str) -> Any:
    """The value of a field of a STRUCT. Raises: Unsure: it is there in another case."""
    if name not in value and any(own.lower() == name.lower() for own in value):
        raise Unsure
    return value.get(name)


def text_reader(source: Source, column: Column, times: TimeFormats) -> Callable[[str], Any]:
    """What reads a text in its one certain spelling as a value of the column. It raises `Unsure`.

    Raises:
        EngineError: only Spark knows how.
    """
    convert = certain_text(source, column, times)
    if convert is None:
        raise refused(source, f"only Spark can read {column.name} as {column.type}")
    return convert


def json_reader(source: Source, column: Column, times: TimeFormats) -> Callable[[Any], Any] | None:
    """None: it has parts of which it is not known here how they are read."""
    if column.type.is_nested:
        return _of_parts(source, column, times)
    texts, unit = certain_text(source, column, times), said_unit(source.options)
    if texts is None:
        raise refused(source, f"only Spark can read {column.name} as {column.type}")

    def convert(value: Any) -> Any:
        if column.type == sql.BOOLEAN:
            return value if isinstance(value, bool) else _unsure(value)
        if unit is not None and column.type in _COUNTED and not isinstance(value, str | bool):
            return counted_time(value, unit) if isinstance(value, int) else _unsure(value)
        if column.type in (sql.STRING, *sql.TIMES):
            return texts(value) if isinstance(value, str) and is_text(value) else _unsure(value)
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise Unsure
        if column.type == sql.DOUBLE:
            return float(value)
        return texts(str(value))

    return convert


def _of_parts(source: Source, column: Column, times: TimeFormats) -> Callable[[Any], Any] | None:
    """Of an ARRAY, a MAP or a STRUCT. A part that is not there is NULL, one that nobody declared is left."""

    def part(own: SqlType) -> Callable[[Any], Any] | None:
        is_plain = own.is_nested or own.is_decimal or own in _KNOWN_PARTS
        convert = json_reader(source, Column(column.name, own), times) if is_plain else None
        return None if convert is None else lambda value: None if value is None else convert(value)

    element, entry = column.type.element, column.type.entry
    if element is not None:
        reader = part(element)
        return reader and (lambda value: [*map(reader, value)] if isinstance(value, list) else _unsure(value))
    if entry is not None:
        item = part(entry[1]) if entry[0] == sql.STRING else None
        return item and (
            lambda value: (
                {_text(key): item(own) for key, own in value.items()}
                if isinstance(value, dict)
                else _unsure(value)
            )
        )
    parts = {field.name: part(field.type) for field in column.type.fields}
    if not parts or None in parts.values():
        return None
    return lambda value: (
        {name: own(_part_of(value, name)) for name, own in parts.items() if own is not None}
        if isinstance(value, dict)
        else _unsure(value)
    )


def certain_text(source: Source, column: Column, times: TimeFormats) -> Callable[[str], Any] | None:
    """What a text in its one certain spelling is as a value of the column; None: that is not known here."""
    type_ = column.type
    if type_.is_integer:
        limit = 1 << (type_.bits - 1)
        return lambda text: _sure(
            text, kind_of_text(text, {})[0] in (INT, LONG) and -limit <= int(text) < limit, int
        )
    if type_.is_decimal:
        return lambda text: _sure(text, _fits(text, type_.digits, type_.scale), Decimal)
    if column.type == sql.DOUBLE:
        return lambda text: (
            float("nan") if text == "NaN" else _sure(text, bool(NUMBER.fullmatch(text)), float)
        )
    if column.type == sql.STRING:
        most = column.type.length
        return (lambda text: _sure(text, len(text) <= most, str)) if most else str
    if column.type == sql.BOOLEAN:
        return lambda text: _sure(
            text, text.lower() in ("true", "false"), lambda given: given.lower() == "true"
        )
    if column.type == sql.DATE:
        if (read_date := times.date) is not None:
            return lambda text: _known(read_date(text)).date()
        return lambda text: _sure(text, kind_of_text(text, {})[0] == DATE, date.fromisoformat)
    if column.type in _COUNTED:
        unit, read = said_unit(source.options), _time_reader(column.type, times)
        return lambda text: (
            counted_time(int(text), unit)
            if unit is not None and kind_of_text(text, {})[0] in (INT, LONG)
            else read(text)
        )
    return None


def _time_reader(type_: SqlType, times: TimeFormats) -> Callable[[str], datetime]:
    """What reads a text as a TIMESTAMP or TIMESTAMP_NTZ. It raises `Unsure`."""
    if type_ == sql.TIMESTAMP:
        if (read_time := times.timestamp) is not None:
            return lambda text: _of_wall(_known(read_time(text)), times.time_zone)
        return lambda text: _instant(text, times.time_zone)
    if (read_wall := times.ntz) is not None:
        return lambda text: _known(read_wall(text))

    def local(text: str) -> datetime:
        wall: datetime = _sure(text, kind_of_text(text, {})[0] == LOCAL, datetime.fromisoformat)
        return wall

    return local


def counted_time(count: int, unit: TimeUnit) -> datetime:
    """Return the time so many units after 1970 began; below a microsecond it is cut off. Raises: Unsure: it
    is not of the years 1 to 9999."""
    try:
        return datetime(1970, 1, 1) + timedelta(microseconds=count * 1_000_000 // unit.per_second)
    except OverflowError:
        raise Unsure from None


def _instant(text: str, time_zone: str) -> datetime:
    kind, _ = kind_of_text(text, {})
    if kind not in (LOCAL, ZONED):
        raise Unsure
    instant = datetime.fromisoformat(text)
    if kind == LOCAL:
        return _of_wall(instant, time_zone)
    try:
        return instant.astimezone(UTC).replace(tzinfo=None)
    except (OverflowError, ValueError):
        raise Unsure from None


def _of_wall(wall: datetime, time_zone: str) -> datetime:
    """The instant, in UTC, at which a clock of the zone shows that."""
    if time_zone == UTC_ZONE:
        return wall
    epoch = datetime(1970, 1, 1)
    try:
        micros = np.array([(wall - epoch) // timedelta(microseconds=1)], dtype=np.int64)
        return epoch + timedelta(microseconds=int(zone(time_zone).to_instant(micros)[0]))
    except (OverflowError, ValueError):
        raise Unsure from None


def _known(time: datetime | None) -> datetime:
    if time is None:
        raise Unsure
    return time


def _sure(text: str, certain: bool, convert: Callable[[str], Any]) -> Any:
    return convert(text) if certain else _unsure(text)


def _fits(text: str, digits: int, scale: int) -> bool:
    match = _FIXED.fullmatch(text)
    if match is None:
        return False
    fraction = len(match[1] or "")
    whole = len(text.lstrip("-").split(".")[0].lstrip("0"))
    return fraction <= scale and whole <= digits - scale


def _pairs(pairs: Sequence[tuple[str, Any]]) -> Any:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise Unsure
    return fields


def _text(value: str) -> str:
    return value if is_text(value) else _unsure(value)


def _unsure(_: Any) -> Any:
    raise Unsure


def is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
