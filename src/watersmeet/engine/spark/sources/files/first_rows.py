"""The first rows of a file source, read in this process: of each record what Spark would read, or nothing.

Records of which that is not certain here (malformed ones, quotes within quotes, numbers in another spelling)
are left out and counted; options and types of which it is not known are refused by name.
"""

from __future__ import annotations

import csv
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from watersmeet.engine.files.csv_header import BROKEN_ARCHIVE, OPENERS, UNREADABLE, layout_of
from watersmeet.engine.files.partitions import NO_VALUE, partition_columns
from watersmeet.engine.spark.sources.files.contents import wrong_with
from watersmeet.engine.spark.sources.files.first_found import FirstRows, Row, damaged, refused
from watersmeet.engine.spark.sources.files.first_parquet import read_parquet
from watersmeet.engine.spark.sources.files.first_values import (
    Unsure,
    certain_text,
    fields_of,
    is_text,
    json_object,
    json_reader,
    text_reader,
)
from watersmeet.engine.spark.sources.files.inferred import files_in_order
from watersmeet.engine.spark.sources.files.there import shown
from watersmeet.engine.spark.time_formats import TimeFormats, knows_format, time_formats
from watersmeet.errors import EngineError
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.changes import DEBEZIUM
from watersmeet.spec.options.files import OF_SOURCES, format_of, path_of
from watersmeet.spec.options.values import separator_of, separator_said
from watersmeet.spec.time_zones import UTC as UTC_ZONE

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

_BACKSLASH, _QUOTE = "\\", '"'
"""Characters that 'escape' may name: Spark's default, and that of RFC 4180 (a quote is written twice)."""

_BLANK = "".join(map(chr, range(33)))


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
        raise refused(source, f"only Spark can read rows of format {DEBEZIUM}")
    _check_options(source, wanted, options)
    files = files_in_order(source, path_of(source.options), options, "it cannot be previewed", None)
    collected = FirstRows()
    for number, file in enumerate(files):
        if len(collected.rows) + collected.left_out >= count:
            collected.more = True
            break
        collected.files = number + 1
        rows, left_out = len(collected.rows), collected.left_out
        _read(source, file.path, wanted, options, time_zone, collected, count)
        if len(collected.rows) == rows and collected.left_out > left_out:
            collected.left_out_files.append((file.path, collected.left_out - left_out))
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
        raise refused(source, f"only Spark can read rows of format {DEBEZIUM}")
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
    of_path = _of_path(source, path, time_zone)
    readers: dict[str, Any] = {"parquet": read_parquet, "csv": _csv, "json": _json}
    readers[wanted](source, path, of_path, options, time_zone, collected, count)


def _check_needed(source: Source, needed: frozenset[str], collected: FirstRows) -> None:
    missed = [
        column for column in source.columns if column.name in needed and column.name in collected.unchecked
    ]
    if missed:
        named = ", ".join(f"{column.name} as {column.type}" for column in missed)
        raise refused(source, f"only Spark can read {named}")


def _check_options(source: Source, wanted: str, options: Mapping[str, str]) -> None:
    for name, value in options.items():
        same = _AS_THEY_ARE.get(name) == value.strip().lower().replace("utf8", "utf-8")
        if wanted == "csv" and name == "escape":
            same = value in (_BACKSLASH, _QUOTE)
        same = same or (wanted != "parquet" and knows_format(name, value))
        if name not in _ANY and name not in _OPTIONS[wanted] and not same:
            raise refused(source, f"only Spark supports the option '{name}' for {wanted}")


def _of_path(source: Source, file: str, time_zone: str) -> Row:
    """Return the columns that directories of partitions (``k=v``) give."""
    row: Row = {}
    declared = {column.name.lower(): column for column in source.columns}
    for name, value in partition_columns(source, file).items():
        column = declared.get(name)
        if column is None:
            continue
        convert = certain_text(source, column, TimeFormats(time_zone))
        try:
            row[column.name] = None if convert is None or value == NO_VALUE else convert(unquote(value))
        except Unsure:
            raise refused(source, f"only Spark can read {name}={value} as {column.type}") from None
    return row


def _csv(
    source: Source, file: str, of_path: Row, options: Any, time_zone: str, collected: FirstRows, count: int
) -> None:
    lines = _lines_of_csv(source, options)
    times = time_formats(options, time_zone)
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
            converters = [_converter(source, column, times) for column in columns]
            continue
        if len(collected.rows) + collected.left_out >= count:
            collected.more = True
            return
        converters = converters or [_converter(source, column, times) for column in columns]
        try:
            collected.rows.append(_record(line, lines, null, converters) | of_path)
        except Unsure:
            collected.leave_out(line)


@dataclass(frozen=True)
class _CsvLines:
    """Lines of which it is certain what they are. ``plain``: all of one; ``odd``: what one must not have."""

    separator: str
    plain: re.Pattern[str]
    odd: re.Pattern[str]


def _lines_of_csv(source: Source, options: Mapping[str, str]) -> _CsvLines:
    separator = separator_of(written := separator_said(options))
    if len(separator) != 1:
        raise refused(source, f"only Spark supports the separator {written!r}")
    s = re.escape(separator)
    quoted, bare, odd = r'"[^"\\]*"', rf'[^"\\{s}]*', '""'
    if options.get("escape") == _QUOTE:
        quoted, bare, odd = r'"(?:[^"]|"")*"', rf'[^"{s}]*', rf'(?:^|{s})""(?:{s}|$)'
    value = f"(?:{quoted}|{bare})"
    return _CsvLines(separator, re.compile(f"{value}(?:{s}{value})*"), re.compile(odd))


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
        raise refused(source, "only Spark supports the option 'comment' for this source")
    lines = _lines_of_csv(source, options)
    null = options.get("nullvalue", "")
    converters = [_converter(source, column, time_formats(options, time_zone)) for column in columns]

    def read(text: str) -> Row:
        if not text.strip(_BLANK) or text[0] == "\ufeff" or "\n" in text or "\r" in text:
            raise Unsure
        return _record(text, lines, null, converters)

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
    converters = json_readers(source, columns, options, time_zone, needed)
    return lambda text: fields_of(json_object(text), converters)


def json_readers(
    source: Source,
    columns: Sequence[Column],
    options: Mapping[str, str],
    time_zone: str,
    needed: frozenset[str],
) -> Mapping[str, Callable[[Any], Any] | None]:
    """Per column what reads a value of `json_object` that is not null; None: that is not known here, and the
    column is not needed. They raise `Unsure`.

    Args:
        options, needed: as in `json_record`.

    Raises:
        EngineError: only Spark knows how.
    """
    _check_options(source, "json", options)
    times = time_formats(options, time_zone)
    readers = {column.name: json_reader(source, column, times) for column in columns}
    unchecked = tuple(name for name, convert in readers.items() if convert is None)
    _check_needed(source, needed, FirstRows(unchecked=unchecked))
    return readers


def _record(line: str, lines: _CsvLines, null: str, converters: Sequence[Any]) -> Row:
    if not lines.plain.fullmatch(line) or lines.odd.search(line) or not is_text(line):
        raise Unsure
    (values,) = csv.reader([line], delimiter=lines.separator)
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
    source: Source, column: Column | None, times: TimeFormats
) -> tuple[str, Callable[[str], Any]] | None:
    """None: nobody asked for the column."""
    if column is None:
        return None
    return column.name, text_reader(source, column, times)


def _json(
    source: Source, file: str, of_path: Row, options: Any, time_zone: str, collected: FirstRows, count: int
) -> None:
    converters: dict[str, Callable[[Any], Any] | None] = {}
    times = time_formats(options, time_zone)
    for column in source.columns:
        if column.name not in of_path:
            converters[column.name] = json_reader(source, column, times)
    collected.unchecked = tuple(name for name, convert in converters.items() if convert is None)
    for line in _lines(source, file):
        if not line.strip(_BLANK):
            continue
        if len(collected.rows) + collected.left_out >= count:
            collected.more = True
            return
        try:
            collected.rows.append(fields_of(json_object(line), converters) | of_path)
        except Unsure:
            collected.leave_out(line)


def _lines(source: Source, file: str) -> Iterator[str]:
    """Without their ends; what is no UTF-8 stays as it is (see `is_text`)."""
    suffix = os.path.splitext(file)[1].lower()
    if suffix in UNREADABLE:
        raise refused(source, f"only Spark can read the compression of {shown(file)}")
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
