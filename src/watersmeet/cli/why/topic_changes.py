"""Records of Kafka that change rows (``upsert-json``, ``debezium-json``), in this process: each as the rows
that go and come, as `sources.keyed` and `sources.debezium` have Spark read them, or nothing where that is not
certain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from watersmeet.engine.spark.sources.files.first_found import Row, refused
from watersmeet.engine.spark.sources.files.first_rows import json_readers
from watersmeet.engine.spark.sources.files.first_values import (
    Unsure,
    counted_time,
    fields_of,
    json_object,
    text_reader,
)
from watersmeet.engine.spark.time_formats import FORMATS, TimeFormats
from watersmeet.spec.changing import PrimaryKey
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.changes import DEBEZIUM
from watersmeet.spec.options.debezium import (
    CLOCKS,
    MARKS,
    NAMES_OF_DAYS,
    NAMES_OF_UNITS,
    event_fields,
    placeholders,
    reads_decimal_texts,
    skips_truncate,
    timestamps_unit,
)
from watersmeet.spec.options.kafka import RAW, key_format
from watersmeet.spec.records.counted_times import DAYS, TimeUnit
from watersmeet.types import sql_type as sql

Changes = Sequence[tuple[Row, int]]
"""Rows, and how often each comes; below zero: goes."""

OfRecord = Callable[[bytes | None, bytes | None], Changes | None]
"""Of a record's key and value; None: it says nothing of rows, and is counted. It raises `Unsure`."""

Readers = Mapping[str, Callable[[Any], Any] | None]

_MOST = 2**63 - 1 - TimeUnit.NANOS.per_second
"""What is nearer to the bounds of a BIGINT, or beyond, is not certain here."""
_WHOLE = re.compile(r"-?[0-9]+")


def decoded(value: bytes) -> str:
    """The text that bytes are. Raises: Unsure."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Unsure from None


# upsert-json


def upserts(
    source: Source,
    values: Sequence[Column],
    options: Mapping[str, str],
    time_zone: str,
    needed: frozenset[str],
) -> OfRecord:
    """What reads records of ``upsert-json``.

    Args:
        values: the columns that are in keys and values.
        options: of the parser, by names in lower case.
        needed: the columns that must be there.

    Raises:
        EngineError: only Spark knows how.
    """
    key = source.primary_key
    assert key is not None
    readers = json_readers(source, values, options, time_zone, needed | {*key.columns})
    of_key = _key_reader(source, key, readers, time_zone)

    def read(key_bytes: bytes | None, value: bytes | None) -> Changes:
        told = {} if key_bytes is None else of_key(decoded(key_bytes))
        row = dict.fromkeys(readers) if value is None else fields_of(json_object(decoded(value)), readers)
        for name in key.columns:
            own, other = row[name], told.get(name)
            if key_bytes is not None and own is not None and own != other:
                raise Unsure
            row[name] = own if other is None else other
        return [(row, -1 if value is None else 1)]

    return read


def _key_reader(
    source: Source, key: PrimaryKey, readers: Readers, time_zone: str
) -> Callable[[str], Mapping[str, Any]]:
    if key_format(source.options) == RAW:
        (name,) = key.columns
        read = text_reader(source, _column(source, name), TimeFormats(time_zone))
        return lambda text: {name: read(text)}
    own = {name: readers[name] for name in key.columns}
    return lambda text: fields_of(json_object(text), own)


def _column(source: Source, name: str) -> Column:
    return next(column for column in source.columns if column.name == name)


# debezium-json


def events(source: Source, options: Mapping[str, str], time_zone: str, needed: frozenset[str]) -> OfRecord:
    """What reads records of ``debezium-json``; a record without a value says nothing.

    Args:
        options, needed: as in `upserts`.

    Raises:
        EngineError: only Spark knows how.
    """
    key = source.primary_key
    keys = () if key is None else key.columns
    fields = event_fields(source)
    usual = timestamps_unit(source.options)
    by_unit = {
        unit: _event_readers(source, options, time_zone, (needed | {*keys}) - {*fields}, unit)
        for unit in {usual, *TimeUnit}
    }
    kinds = {column.name: column.type for column in source.columns}

    def read(key_bytes: bytes | None, value: bytes | None) -> Changes | None:
        if value is None:
            return []
        whole = json_object(decoded(value))
        event = _unwrapped(whole, ("before", "after", "op"))
        readers = _as_described(by_unit, usual, kinds, _names_of_types(whole))
        before, after = (_part(event.get(name), readers) for name in ("before", "after"))
        if _is_skipped(event, source):
            return None
        if after is not None and any(_is_left_out(own, kinds[name]) for name, own in after.items()):
            raise Unsure
        told_beside = {name: _of_event(event, path, kinds[name]) for name, path in fields.items()}
        after = None if after is None else after | told_beside
        if key is None:
            return _by_row(event.get("op"), before, after)

        def old() -> Row:
            told: Row = {} if before is None else before
            row = {name: told.get(name) for name in key.columns}
            if None in row.values() and key_bytes is not None:
                of_record = _unwrapped(json_object(decoded(key_bytes)), key.columns)
                of_record = fields_of(of_record, {name: readers[name] for name in key.columns})
                row = {name: of_record[name] if own is None else own for name, own in row.items()}
            return row

        return _by_key(key, event.get("op"), before, after, old, dict.fromkeys(readers) | told_beside)

    return read


def _event_readers(
    source: Source,
    options: Mapping[str, str],
    time_zone: str,
    needed: frozenset[str],
    unit: TimeUnit | None,
) -> Readers:
    for name in options:
        if name in FORMATS:
            raise refused(source, f"what the option '{name}' means for {DEBEZIUM}, only Spark knows")
    columns = [column for column in source.columns if column.name not in event_fields(source)]
    readers = dict(json_readers(source, columns, options, time_zone, needed))
    for column in columns:
        read = readers[column.name]
        if column.type in sql.TIMES:
            readers[column.name] = _time_reader(column, unit, time_zone, read)
        elif column.type.is_decimal and reads_decimal_texts(source.options):
            readers[column.name] = _either(read, text_reader(source, column, TimeFormats(time_zone)))
    return readers


def _names_of_types(event: Mapping[str, Any]) -> Mapping[str, str | None] | None:
    """Return what a record's schema calls the types of columns; None: it has no schema."""
    try:
        parts = (event.get("schema") or {}).get("fields") or []
        row = next((part.get("fields") for part in parts if part.get("field") == "after"), None)
        return None if row is None else {own["field"]: own.get("name") for own in row}
    except (AttributeError, TypeError, KeyError):
        raise Unsure from None


def _as_described(
    by_unit: Mapping[TimeUnit | None, Readers],
    usual: TimeUnit | None,
    kinds: Mapping[str, sql.SqlType],
    names: Mapping[str, str | None] | None,
) -> Readers:
    """Return the readers of a record whose schema has these names of types. Bytes of DECIMALs are not certain
    here."""
    if names is None:
        return by_unit[usual]
    readers = dict(by_unit[usual])
    for column, read in by_unit[usual].items():
        name, kind = names.get(column), kinds[column]
        unit = next((unit for unit, own in NAMES_OF_UNITS.items() if name in own), None)
        if kind.is_decimal:
            readers[column] = _unless(read, str)
        elif kind in sql.TIMES and (unit is not None if kind == sql.DATE else name in NAMES_OF_DAYS):
            readers[column] = _unless(read, int)
        elif kind in sql.TIMES and unit is not None:
            readers[column] = by_unit[unit][column]
    return readers


def _unless(read: Any, uncertain: type) -> Callable[[Any], Any]:
    def certain(value: Any) -> Any:
        if isinstance(value, uncertain):
            raise Unsure
        return read(value)

    return certain


def _either(read: Any, of_text: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: of_text(value) if isinstance(value, str) else read(value)


def _time_reader(column: Column, unit: TimeUnit | None, time_zone: str, of_text: Any) -> Callable[[Any], Any]:
    """Of days, and of parts of a second, since 1970, or of texts."""

    def read(value: Any) -> Any:
        if isinstance(value, str) and not _WHOLE.fullmatch(value):
            return of_text(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise Unsure
        if column.type == sql.DATE:
            if value not in DAYS:
                raise Unsure
            return date(1970, 1, 1) + timedelta(days=value)
        if unit is None or not -_MOST <= value <= _MOST:
            raise Unsure
        return counted_time(value, unit)

    return read


def _unwrapped(event: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """An event without its schema; one that says something beside its payload is not certain here."""
    if event.get("payload") is None:
        return event
    if not isinstance(event["payload"], dict) or any(event.get(name) is not None for name in names):
        raise Unsure
    payload: Mapping[str, Any] = event["payload"]
    return payload


def _is_skipped(event: Mapping[str, Any], source: Source) -> bool:
    """See `sources.debezium`: messages of the log, heartbeats, markers of transactions, truncations."""
    op = event.get("op")
    if op is not None:
        return op == "m" or (op == "t" and skips_truncate(source.options))
    if any(event.get(name) is not None for name in ("before", "after")):
        return False
    is_heartbeat = "ts_ms" in event and event.keys() <= {*CLOCKS}
    return is_heartbeat or (event.get("status") in MARKS and {"id", "event_count"} <= event.keys())


def _of_event(event: Mapping[str, Any], path: str, kind: sql.SqlType) -> Any:
    """Return a field of the event, for a column of this type."""
    value: Any = event
    for name in path.split("."):
        if value is None:
            return None
        if not isinstance(value, dict):
            raise Unsure
        value = value.get(name)
    if value is None or (isinstance(value, str) and kind == sql.STRING):
        return value
    if kind == sql.STRING or not isinstance(value, int) or isinstance(value, bool):
        raise Unsure
    if not -(2 ** (bits := sql.INTEGER_BITS[kind.name] - 1)) <= value < 2**bits:
        raise Unsure
    return value


def _part(value: Any, readers: Readers) -> Row | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise Unsure
    return fields_of(value, readers)


def _is_left_out(value: Any, kind: sql.SqlType) -> bool:
    """Return True if the change did not touch a large value, so that the event does not have it."""
    return (list(value.items()) if isinstance(value, dict) else value) in placeholders(kind)


def _by_row(op: Any, before: Row | None, after: Row | None) -> Changes:
    if op in ("c", "r") and after is not None:
        return [(after, 1)]
    if op == "d" and before is not None:
        return [(before, -1)]
    if op == "u" and before is not None and after is not None:
        return [(before, -1), (after, 1)]
    raise Unsure


def _by_key(
    key: PrimaryKey,
    op: Any,
    before: Row | None,
    after: Row | None,
    old: Callable[[], Row],
    nothing: Row,
) -> Changes:
    """See `sources.debezium`: a row that gets another key goes with the sequence of the one that comes.

    Args:
        nothing: a row that says no more than the event itself.
    """
    if op in ("c", "r") and after is not None:
        return [(after, 1)]
    if op == "d":
        row = old()
        if None in row.values():
            raise Unsure
        return [(nothing | row, -1)]
    if op == "u" and after is not None:
        was = {name: (before or {}).get(name) for name in key.columns}
        if None in was.values() or all(was[name] == after[name] for name in key.columns):
            return [(after, 1)]
        sequence = {} if key.sequence is None else {key.sequence: after[key.sequence]}
        return [(nothing | was | sequence, -1), (after, 1)]
    raise Unsure
