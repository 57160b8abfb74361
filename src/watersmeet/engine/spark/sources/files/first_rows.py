"""The first rows of a file source, read in this process: of each record what Spark would read, or nothing.

Records of which that is not certain here (malformed ones, quotes within quotes, numbers in another spelling)
are left out and counted; options and types of which it is not known are refused by name.
"""

from __future__ import annotations

import csv
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import numpy as np

from watersmeet.engine.files.csv_header import BROKEN_ARCHIVE, OPENERS, UNREADABLE, layout_of
from watersmeet.engine.spark.sources.files.contents import wrong_with
from watersmeet.engine.spark.sources.files.first_found import FirstRows, Row, damaged, refused
from watersmeet.engine.spark.sources.files.first_parquet import read_parquet
from watersmeet.engine.spark.sources.files.inferred import NO_VALUE, files_in_order
from watersmeet.engine.spark.sources.files.inferred_types import (
    DATE,
    INT,
    LOCAL,
    LONG,
    NUMBER,
    ZONED,
    kind_of_text,
)
from watersmeet.engine.spark.sources.files.there import shown
from watersmeet.errors import EngineError
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.changes import DEBEZIUM
from watersmeet.spec.options.files import OF_SOURCES, format_of, local_path, path_of
from watersmeet.spec.options.values import separator_of
from watersmeet.spec.time_zones import UTC as UTC_ZONE
from watersmeet.types import sql_type as sql
from watersmeet.types.sql_type import PLAIN, SqlType
from watersmeet.zones import zone

_OPTIONS = {
    "parquet": frozenset({"mergeschema"}),
    "json": frozenset[str](),
    "csv": frozenset({"header", "sep", "delimiter", "nullvalue", "comment"}),
}
_ANY = frozenset({*OF_SOURCES, "maxfilespertrigger", "maxbytespertrigger", "recursivefilelookup"})
_AS_THEY_ARE = {
    "multiline": "false",
    "enforceschema": "false",
    "encoding": "utf-8",
    "charset": "utf-8",
    "quote": '"',
}
"""Options that may be said if they say what holds anyway."""

_KNOWN_PARTS = frozenset(PLAIN) - {sql.FLOAT, sql.BINARY}
_FIXED = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.([0-9]+))?")
_BLANK = "".join(map(chr, range(33)))


class Unsure(Exception):
    """What Spark reads here is not known."""


def first_rows(
    source: Source, count: int, time_zone: str = UTC_ZONE, *, needed: frozenset[str] = frozenset()
) -> FirstRows:
    """At most ``count`` records, of the oldest files first.

    Args:
        needed: the columns that must be there; others that have parts which only Spark reads are left out.

    Raises:
        EngineError: there is no file, one cannot be read, or only Spark knows how.
    """
    options = {name.lower(): value for name, value in source.options.items()}
    wanted = format_of(source.options)
    if wanted == DEBEZIUM:
        raise refused(source, f"which rows lines of {DEBEZIUM} come to, only Spark knows")
    _check_options(source, wanted, options)
    files = files_in_order(source, path_of(source.options), options, "there is no preview of it", None)
    collected = FirstRows()
    for number, file in enumerate(files):
        if len(collected.rows) + collected.left_out >= count:
            collected.more = True
            break
        collected.files = number + 1
        _read(source, file.path, wanted, options, time_zone, collected, count)
    _check_needed(source, needed, collected)
    return collected


def rows_of_file(
    source: Source, path: str, time_zone: str = UTC_ZONE, *, needed: frozenset[str] = frozenset()
) -> FirstRows:
    """All records of one file of a source.

    Args:
        needed: as in `first_rows`.

    Raises:
        EngineError: it cannot be read, or only Spark knows how.
    """
    options = {name.lower(): value for name, value in source.options.items()}
    wanted = format_of(source.options)
    if wanted == DEBEZIUM:
        raise refused(source, f"which rows lines of {DEBEZIUM} come to, only Spark knows")
    _check_options(source, wanted, options)
    collected = FirstRows(files=1)
    _read(source, path, wanted, options, time_zone, collected, sys.maxsize)
    _check_needed(source, needed, collected)
    return collected


def _read(
    source: Source,
    path: str,
    wanted: str,
    options: Mapping[str, str],
    time_zone: str,
    collected: FirstRows,
    count: int,
) -> None:
    wrong = wrong_with(path, wanted, options)
    if wrong is not None and wrong.certain:
        raise EngineError(
            f'"{source.name}": {wrong.what}: {shown(path)}', code="file-unreadable", hint=wrong.hint
        )
    of_path = _of_path(source, path, time_zone, options)
    readers: dict[str, Any] = {"parquet": read_parquet, "csv": _csv, "json": _json}
    readers[wanted](source, path, of_path, options, time_zone, collected, count)


def _check_needed(source: Source, needed: frozenset[str], collected: FirstRows) -> None:
    missed = [
        column for column in source.columns if column.name in needed and column.name in collected.unchecked
    ]
    if missed:
        named = ", ".join(f"{column.name} as {column.type}" for column in missed)
        raise refused(source, f"how {named} is read, only Spark knows")


def _check_options(source: Source, wanted: str, options: Mapping[str, str]) -> None:
    for name, value in options.items():
        same = _AS_THEY_ARE.get(name) == value.strip().lower().replace("utf8", "utf-8")
        if name not in _ANY and name not in _OPTIONS[wanted] and not same:
            raise refused(source, f"what the option '{name}' means for {wanted}, only Spark knows")


def _of_path(source: Source, file: str, time_zone: str, options: Mapping[str, str]) -> Row:
    """Columns of directories of partitions (``k=v``)."""
    root = os.path.abspath(local_path(path_of(source.options)) or "")
    if not os.path.isdir(root) or options.get("recursivefilelookup", "").strip().lower() == "true":
        return {}
    row: Row = {}
    declared = {column.name.lower(): column for column in source.columns}
    for part in os.path.dirname(file.removeprefix(root)).split(os.sep):
        name, equals, value = part.partition("=")
        column = declared.get(unquote(name).lower()) if equals else None
        if column is None:
            continue
        convert = _of_text(source, column, time_zone)
        try:
            row[column.name] = None if convert is None or value == NO_VALUE else convert(unquote(value))
        except Unsure:
            raise refused(source, f"how {part} is read as {column.type}, only Spark knows") from None
    return row


def _csv(
    source: Source, file: str, of_path: Row, options: Any, time_zone: str, collected: FirstRows, count: int
) -> None:
    separator, plain = _separated(source, options)
    comment = options.get("comment", "")
    null = options.get("nullvalue", "")
    columns: Sequence[Column | None] | None = None
    if options.get("header", "true").strip().lower() != "true":
        columns = [column for column in source.columns if column.name not in of_path]
    converters: list[tuple[str, Callable[[str], Any]] | None] = []
    for line in _lines(source, file):
        if not line.strip(_BLANK) or (comment and line.startswith(comment)):
            continue
        if columns is None:
            layout = layout_of(f'"{source.name}"', source, [(file, 1, 0)], options)
            columns = [] if layout is None else [column for _, column in layout]
            converters = [_converter(source, column, time_zone) for column in columns]
            continue
        if len(collected.rows) + collected.left_out >= count:
            collected.more = True
            return
        converters = converters or [_converter(source, column, time_zone) for column in columns]
        try:
            collected.rows.append(_record(line, separator, plain, null, converters) | of_path)
        except Unsure:
            collected.leave_out(line)


def _separated(source: Source, options: Mapping[str, str]) -> tuple[str, re.Pattern[str]]:
    """What separates values, and lines of which it is certain what they are."""
    separator = separator_of(written := options.get("sep", options.get("delimiter", ",")))
    if len(separator) != 1:
        raise refused(source, f"how the separator {written!r} is taken, only Spark knows")
    s = re.escape(separator)
    return separator, re.compile(rf'(?:"[^"\\]*"|[^"\\{s}]*)(?:{s}(?:"[^"\\]*"|[^"\\{s}]*))*')


def csv_record(
    source: Source, columns: Sequence[Column], options: Mapping[str, str], time_zone: str
) -> Callable[[str], Row]:
    """What reads a text that is a row of these columns of a source, in this order. It raises `Unsure`.

    Args:
        options: of the parser, by names in lower case.

    Raises:
        EngineError: only Spark knows how.
    """
    _check_options(source, "csv", options)
    if "comment" in options:
        raise refused(source, "what 'comment' means for texts of CSV, only Spark knows")
    separator, plain = _separated(source, options)
    null = options.get("nullvalue", "")
    converters = [_converter(source, column, time_zone) for column in columns]

    def read(text: str) -> Row:
        if not text.strip(_BLANK) or text[0] == "\ufeff" or "\n" in text or "\r" in text:
            raise Unsure
        return _record(text, separator, plain, null, converters)

    return read


def json_record(
    source: Source,
    columns: Sequence[Column],
    options: Mapping[str, str],
    time_zone: str,
    needed: frozenset[str],
) -> Callable[[str], Row]:
    """What reads a text that is an object with these columns of a source. It raises `Unsure`.

    Args:
        options, needed: as in `csv_record`, and in `first_rows`.

    Raises:
        EngineError: only Spark knows how.
    """
    _check_options(source, "json", options)
    converters = {column.name: _of_json(source, column, time_zone) for column in columns}
    unchecked = tuple(name for name, convert in converters.items() if convert is None)
    _check_needed(source, needed, FirstRows(unchecked=unchecked))
    return lambda text: _object(text, converters)


def _record(line: str, separator: str, plain: re.Pattern[str], null: str, converters: Sequence[Any]) -> Row:
    if not plain.fullmatch(line) or '""' in line or not _is_text(line):
        raise Unsure
    (values,) = csv.reader([line], delimiter=separator)
    if len(values) != len(converters):
        raise Unsure
    row: Row = {}
    for value, converter in zip(values, converters, strict=True):
        if converter is None:
            continue
        if value == "" and null != "":
            raise Unsure
        name, convert = converter
        row[name] = None if value == null else convert(value)
    return row


def _converter(
    source: Source, column: Column | None, time_zone: str
) -> tuple[str, Callable[[str], Any]] | None:
    """None: nobody asked for the column."""
    if column is None:
        return None
    convert = _of_text(source, column, time_zone)
    if convert is None:
        raise refused(source, f"how {column.name} is read as {column.type}, only Spark knows")
    return column.name, convert


def _json(
    source: Source, file: str, of_path: Row, options: Any, time_zone: str, collected: FirstRows, count: int
) -> None:
    converters: dict[str, Callable[[Any], Any] | None] = {}
    for column in source.columns:
        if column.name not in of_path:
            converters[column.name] = _of_json(source, column, time_zone)
    collected.unchecked = tuple(name for name, convert in converters.items() if convert is None)
    for line in _lines(source, file):
        if not line.strip(_BLANK):
            continue
        if len(collected.rows) + collected.left_out >= count:
            collected.more = True
            return
        try:
            collected.rows.append(_object(line, converters) | of_path)
        except Unsure:
            collected.leave_out(line)


def _object(line: str, converters: Mapping[str, Callable[[Any], Any] | None]) -> Row:
    try:
        value = json.loads(line, parse_float=Decimal, parse_constant=_unsure, object_pairs_hook=_pairs)
    except (ValueError, RecursionError, ArithmeticError):
        raise Unsure from None
    if not isinstance(value, dict) or not _is_text(line):
        raise Unsure
    if "\\u" in line and not _is_text(json.dumps(value, ensure_ascii=False, default=str)):
        raise Unsure  # half of a character, also in what nobody declared
    row: Row = {}
    for name, convert in converters.items():
        given = value.get(name)
        if convert is None:
            row[name] = None
        else:
            row[name] = None if given is None else convert(given)
    return row


def _unsure(_: Any) -> Any:
    raise Unsure


def _pairs(pairs: Sequence[tuple[str, Any]]) -> Any:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise Unsure
    return fields


def _of_json(source: Source, column: Column, time_zone: str) -> Callable[[Any], Any] | None:
    """None: it has parts of which it is not known here how they are read."""
    if column.type.is_nested:
        return _of_parts(source, column, time_zone)
    texts = _of_text(source, column, time_zone)
    if texts is None:
        raise refused(source, f"how {column.name} is read as {column.type}, only Spark knows")

    def convert(value: Any) -> Any:
        if column.type == sql.BOOLEAN:
            return value if isinstance(value, bool) else _unsure(value)
        if column.type in (sql.STRING, *sql.TIMES):
            return texts(value) if isinstance(value, str) and _is_text(value) else _unsure(value)
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise Unsure
        if column.type == sql.DOUBLE:
            return float(value)
        return texts(str(value))

    return convert


def _of_parts(source: Source, column: Column, time_zone: str) -> Callable[[Any], Any] | None:
    """Of an ARRAY, a MAP or a STRUCT. A part that is not there is NULL, one that nobody declared is left."""

    def part(own: SqlType) -> Callable[[Any], Any] | None:
        is_plain = own.is_nested or own.is_decimal or own in _KNOWN_PARTS
        convert = _of_json(source, Column(column.name, own), time_zone) if is_plain else None
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
        {name: own(value.get(name)) for name, own in parts.items() if own is not None}
        if isinstance(value, dict)
        else _unsure(value)
    )


def _text(value: str) -> str:
    return value if _is_text(value) else _unsure(value)


def _of_text(source: Source, column: Column, time_zone: str) -> Callable[[str], Any] | None:
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
        return str
    if column.type == sql.BOOLEAN:
        return lambda text: _sure(
            text, text.lower() in ("true", "false"), lambda given: given.lower() == "true"
        )
    if column.type == sql.DATE:
        return lambda text: _sure(text, kind_of_text(text, {})[0] == DATE, date.fromisoformat)
    if column.type == sql.TIMESTAMP:
        return lambda text: _instant(text, time_zone)
    if column.type == sql.TIMESTAMP_NTZ:
        return lambda text: _sure(text, kind_of_text(text, {})[0] == LOCAL, datetime.fromisoformat)
    return None


def _sure(text: str, certain: bool, convert: Callable[[str], Any]) -> Any:
    return convert(text) if certain else _unsure(text)


def _fits(text: str, digits: int, scale: int) -> bool:
    match = _FIXED.fullmatch(text)
    if match is None:
        return False
    fraction = len(match[1] or "")
    whole = len(text.lstrip("-").split(".")[0].lstrip("0"))
    return fraction <= scale and whole <= digits - scale


def _instant(text: str, time_zone: str) -> datetime:
    kind, _ = kind_of_text(text, {})
    if kind not in (LOCAL, ZONED):
        raise Unsure
    instant = datetime.fromisoformat(text)
    try:
        if kind == ZONED:
            return instant.astimezone(UTC).replace(tzinfo=None)
        if time_zone == UTC_ZONE:
            return instant
        epoch = datetime(1970, 1, 1)
        wall = np.array([(instant - epoch) // timedelta(microseconds=1)], dtype=np.int64)
        return epoch + timedelta(microseconds=int(zone(time_zone).to_instant(wall)[0]))
    except (OverflowError, ValueError):
        raise Unsure from None


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _lines(source: Source, file: str) -> Iterator[str]:
    """Without their ends; what is no UTF-8 stays as it is (see `_is_text`)."""
    suffix = os.path.splitext(file)[1].lower()
    if suffix in UNREADABLE:
        raise refused(source, f"{shown(file)} is compressed in a way that only Spark reads")
    opened: Callable[..., Any] = OPENERS.get(suffix, open)
    try:
        with opened(file, "rt", encoding="utf-8-sig", errors="surrogateescape", newline=None) as text:
            for line in text:
                yield line.rstrip("\n")
    except BROKEN_ARCHIVE as error:
        reason = getattr(error, "strerror", None)
        if reason:
            raise refused(source, f"{shown(file)} cannot be read: {reason}") from None
        raise damaged(source, file, str(error)) from None
