"""Read the first rows of a file source in this process."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from watersmeet.errors import EngineError
from watersmeet.runtime.files.csv_header import read_layout
from watersmeet.runtime.files.inference import (
    DATE,
    INT,
    LOCAL,
    LONG,
    NUMBER,
    ZONED,
    classify_text,
    order_files,
    spark_type,
)
from watersmeet.runtime.files.listing import format_path
from watersmeet.runtime.files.open_files import BROKEN_ARCHIVE, can_open, open_text
from watersmeet.runtime.files.parquet_files import UNREADABLE as UNREADABLE_PARQUET
from watersmeet.runtime.files.parquet_types import compare_columns
from watersmeet.runtime.files.partitions import NO_VALUE, partition_columns
from watersmeet.runtime.files.time_patterns import TimeFormats, knows_format, time_formats
from watersmeet.runtime.files.validation import WHOLE, check_file
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.changes import DEBEZIUM
from watersmeet.spec.options.files import OF_SOURCES, format_of, path_of
from watersmeet.spec.options.values import get_written_separator, lower_names, separator_of
from watersmeet.spec.records.text_records import TimeUnit, get_declared_unit, written_as
from watersmeet.spec.time_zones import UTC as UTC_ZONE
from watersmeet.types import sql_type as sql
from watersmeet.types.arrow import sql_name
from watersmeet.types.sql_type import BIGINT, PLAIN, TIMESTAMP, TIMESTAMP_NTZ, SqlType
from watersmeet.zones import zone

# What was read of a source's first rows, and refusals of what is not.

Row = dict[str, Any]

MAX_RECORDS = 1_000


@dataclass
class FirstRows:
    """First rows of a source.

    Attributes:
        rows: rows of Python values; TIMESTAMPs are naive UTC.
        left_out: the number of records that were omitted.
        example: the beginning of the first omitted record.
        more: True if there are other records that were not examined.
        unchecked: the columns whose values were not checked.
        records: the first `MAX_RECORDS` omitted records.
        first: the first omitted record.
        left_out_files: pairs of a file of which all records were omitted, and their number.
    """

    rows: list[Row] = field(default_factory=list)
    files: int = 0
    left_out: int = 0
    example: str = ""
    more: bool = False
    unchecked: tuple[str, ...] = ()
    records: list[str] = field(default_factory=list)
    first: str = ""
    left_out_files: list[tuple[str, int]] = field(default_factory=list)

    def leave_out(self, record: str) -> None:
        self.left_out += 1
        self.example = self.example or record[:80]
        self.first = self.first or record
        if len(self.records) < MAX_RECORDS:
            self.records.append(record[:200])


def damaged_file_error(source: Source, file: str, why: str) -> EngineError:
    why = " ".join(why.split()).rstrip(".")
    return EngineError(
        f'"{source.name}": {format_path(file)} is damaged: {why}',
        code="file-unreadable",
        hint=f"{WHOLE}; a run would fail at it",
    )


def not_previewed_error(source: Source, why: str) -> EngineError:
    return EngineError(
        f'"{source.name}": {why}',
        code="not-previewed",
        hint="use `watersmeet run`, which can read it; the preview cannot",
    )


# Values of texts and of JSON as Spark reads them, where that is certain here: in their one spelling.

_COUNTED = (sql.TIMESTAMP, sql.TIMESTAMP_NTZ)
_KNOWN_PARTS = frozenset(PLAIN) - {sql.FLOAT, sql.BINARY}
_FIXED = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.([0-9]+))?")


class UncertainValue(Exception):
    """Exception for a value that Spark may read in another way."""


def json_object(line: str) -> dict[str, Any]:
    """Parse a text as a JSON object, with fractions as Decimal.

    Raises:
        UncertainValue: the text is not an object, or Spark might read it differently.
    """
    try:
        value = json.loads(
            line, parse_float=Decimal, parse_constant=_raise_uncertain, object_pairs_hook=_check_unique_names
        )
    except (ValueError, RecursionError, ArithmeticError):
        raise UncertainValue from None
    if not isinstance(value, dict) or not is_text(line):
        raise UncertainValue
    if "\\u" in line and not is_text(json.dumps(value, ensure_ascii=False, default=str)):
        raise UncertainValue  # half of a character, also in what nobody declared
    return value


def read_fields(value: Mapping[str, Any], converters: Mapping[str, Callable[[Any], Any] | None]) -> Row:
    """Read the columns of an object with their converters.

    Raises:
        UncertainValue: Spark might read a value differently.
    """
    row: Row = {}
    for name, convert in converters.items():
        given = _read_field(value, name)
        if convert is None:
            row[name] = None
        else:
            row[name] = None if given is None else convert(given)
    return row


def _read_field(record: Mapping[str, Any], name: str) -> Any:
    """Return the value of a field, in any case of its name; None if there is none.

    Raises:
        UncertainValue: several names differ only in case, or the record has nested objects that may
            contain such a name, too.
    """
    try:
        written = written_as(record, name)
    except ValueError:
        raise UncertainValue from None
    if written not in (None, name) and any(isinstance(value, dict | list) for value in record.values()):
        raise UncertainValue
    return None if written is None else record[written]


def _read_part(value: Mapping[str, Any], name: str) -> Any:
    """Return the value of a field of a STRUCT, or None.

    Raises:
        UncertainValue: the field is there in another case.
    """
    if name not in value and any(own.lower() == name.lower() for own in value):
        raise UncertainValue
    return value.get(name)


def text_reader(source: Source, column: Column, times: TimeFormats) -> Callable[[str], Any]:
    """Return the function that reads a text in its one certain spelling as the column's type.

    The function raises `UncertainValue` for any other text.

    Raises:
        EngineError: only Spark can read this type.
    """
    convert = certain_text_reader(source, column, times)
    if convert is None:
        raise not_previewed_error(source, f"only Spark can read {column.name} as {column.type}")
    return convert


def json_reader(source: Source, column: Column, times: TimeFormats) -> Callable[[Any], Any] | None:
    """Return the function that reads a JSON value as the column's type.

    Returns:
        The function; None if it is unknown how Spark reads parts of the type.
    """
    if column.type.is_nested:
        return _nested_reader(source, column, times)
    texts, unit = certain_text_reader(source, column, times), get_declared_unit(source.options)
    if texts is None:
        raise not_previewed_error(source, f"only Spark can read {column.name} as {column.type}")

    def convert(value: Any) -> Any:
        if column.type == sql.BOOLEAN:
            return value if isinstance(value, bool) else _raise_uncertain(value)
        if unit is not None and column.type in _COUNTED and not isinstance(value, str | bool):
            return convert_counted_time(value, unit) if isinstance(value, int) else _raise_uncertain(value)
        if column.type in (sql.STRING, *sql.TIMES):
            return texts(value) if isinstance(value, str) and is_text(value) else _raise_uncertain(value)
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise UncertainValue
        if column.type == sql.DOUBLE:
            return float(value)
        return texts(str(value))

    return convert


def _nested_reader(source: Source, column: Column, times: TimeFormats) -> Callable[[Any], Any] | None:
    """Return the function that reads an ARRAY, a MAP or a STRUCT; None if a part is unknown.

    A missing field is read as NULL; an undeclared field is ignored.
    """

    def part(own: SqlType) -> Callable[[Any], Any] | None:
        is_plain = own.is_nested or own.is_decimal or own in _KNOWN_PARTS
        convert = json_reader(source, Column(column.name, own), times) if is_plain else None
        return None if convert is None else lambda value: None if value is None else convert(value)

    element, entry = column.type.element, column.type.entry
    if element is not None:
        reader = part(element)
        return reader and (
            lambda value: [*map(reader, value)] if isinstance(value, list) else _raise_uncertain(value)
        )
    if entry is not None:
        item = part(entry[1]) if entry[0] == sql.STRING else None
        return item and (
            lambda value: (
                {_require_text(key): item(own) for key, own in value.items()}
                if isinstance(value, dict)
                else _raise_uncertain(value)
            )
        )
    parts = {field.name: part(field.type) for field in column.type.fields}
    if not parts or None in parts.values():
        return None
    return lambda value: (
        {name: own(_read_part(value, name)) for name, own in parts.items() if own is not None}
        if isinstance(value, dict)
        else _raise_uncertain(value)
    )


def certain_text_reader(source: Source, column: Column, times: TimeFormats) -> Callable[[str], Any] | None:
    """Return the function that reads a text in its one certain spelling as the column's type.

    Returns:
        The function, or None if this process does not know how Spark reads the type.
    """
    type_ = column.type
    if type_.is_integer:
        limit = 1 << (type_.bits - 1)
        return lambda text: _convert_certain(
            text, classify_text(text, {})[0] in (INT, LONG) and -limit <= int(text) < limit, int
        )
    if type_.is_decimal:
        return lambda text: _convert_certain(text, _fits_decimal(text, type_.digits, type_.scale), Decimal)
    if column.type == sql.DOUBLE:
        return lambda text: (
            float("nan") if text == "NaN" else _convert_certain(text, bool(NUMBER.fullmatch(text)), float)
        )
    if column.type == sql.STRING:
        most = column.type.length
        return (lambda text: _convert_certain(text, len(text) <= most, str)) if most else str
    if column.type == sql.BOOLEAN:
        return lambda text: _convert_certain(
            text, text.lower() in ("true", "false"), lambda given: given.lower() == "true"
        )
    if column.type == sql.DATE:
        if (read_date := times.date) is not None:
            return lambda text: _require_time(read_date(text)).date()
        return lambda text: _convert_certain(text, classify_text(text, {})[0] == DATE, date.fromisoformat)
    if column.type in _COUNTED:
        unit, read = get_declared_unit(source.options), _time_reader(column.type, times)
        return lambda text: (
            convert_counted_time(int(text), unit)
            if unit is not None and classify_text(text, {})[0] in (INT, LONG)
            else read(text)
        )
    return None


def _time_reader(type_: SqlType, times: TimeFormats) -> Callable[[str], datetime]:
    """Return the function that reads a text as a TIMESTAMP or TIMESTAMP_NTZ.

    The function raises `UncertainValue`.
    """
    if type_ == sql.TIMESTAMP:
        if (read_time := times.timestamp) is not None:
            return lambda text: _wall_to_utc(_require_time(read_time(text)), times.time_zone)
        return lambda text: _instant(text, times.time_zone)
    if (read_wall := times.ntz) is not None:
        return lambda text: _require_time(read_wall(text))

    def local(text: str) -> datetime:
        wall: datetime = _convert_certain(text, classify_text(text, {})[0] == LOCAL, datetime.fromisoformat)
        return wall

    return local


def convert_counted_time(count: int, unit: TimeUnit) -> datetime:
    """Return the time ``count`` units after the start of 1970, truncated to microseconds.

    Raises:
        UncertainValue: the time is not in the years 1 to 9999.
    """
    try:
        return datetime(1970, 1, 1) + timedelta(microseconds=count * 1_000_000 // unit.per_second)
    except OverflowError:
        raise UncertainValue from None


def _instant(text: str, time_zone: str) -> datetime:
    kind, _ = classify_text(text, {})
    if kind not in (LOCAL, ZONED):
        raise UncertainValue
    instant = datetime.fromisoformat(text)
    if kind == LOCAL:
        return _wall_to_utc(instant, time_zone)
    try:
        return instant.astimezone(UTC).replace(tzinfo=None)
    except (OverflowError, ValueError):
        raise UncertainValue from None


def _wall_to_utc(wall: datetime, time_zone: str) -> datetime:
    """Return the instant, in UTC, at which a clock in the zone shows this wall-clock time."""
    if time_zone == UTC_ZONE:
        return wall
    epoch = datetime(1970, 1, 1)
    try:
        micros = np.array([(wall - epoch) // timedelta(microseconds=1)], dtype=np.int64)
        return epoch + timedelta(microseconds=int(zone(time_zone).to_instant(micros)[0]))
    except (OverflowError, ValueError):
        raise UncertainValue from None


def _require_time(time: datetime | None) -> datetime:
    if time is None:
        raise UncertainValue
    return time


def _convert_certain(text: str, certain: bool, convert: Callable[[str], Any]) -> Any:
    return convert(text) if certain else _raise_uncertain(text)


def _fits_decimal(text: str, digits: int, scale: int) -> bool:
    match = _FIXED.fullmatch(text)
    if match is None:
        return False
    fraction = len(match[1] or "")
    whole = len(text.lstrip("-").split(".")[0].lstrip("0"))
    return fraction <= scale and whole <= digits - scale


def _check_unique_names(pairs: Sequence[tuple[str, Any]]) -> Any:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise UncertainValue
    return fields


def _require_text(value: str) -> str:
    return value if is_text(value) else _raise_uncertain(value)


def _raise_uncertain(_: Any) -> Any:
    raise UncertainValue


def is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# The first rows of a Parquet file: of columns of which it is known how Spark reads them as declared.

_OLDEST_TIME = datetime(1900, 1, 1)


def read_parquet(
    source: Source, file: str, of_path: Row, options: Any, time_zone: str, first_rows: FirstRows, count: int
) -> None:
    try:
        opened = parquet.ParquetFile(file)
        compare_columns(f'"{source.name}"', source, file)
        fields = {arrow_field.name.lower(): arrow_field for arrow_field in opened.schema_arrow}
        leaves = [opened.metadata.schema.column(n) for n in range(len(opened.metadata.schema))]
    except UNREADABLE_PARQUET:
        raise damaged_file_error(source, file, "it is not a complete Parquet file") from None
    physical = {leaf.path: leaf.physical_type for leaf in leaves}
    chosen: dict[str, Column] = {}
    for column in source.columns:
        field = fields.get(column.name.lower())
        if column.name in of_path or field is None:
            continue
        has = spark_type(field.type, physical.get(field.name, ""))
        is_ns = (
            pa.types.is_timestamp(field.type) and has == BIGINT and column.type in (TIMESTAMP, TIMESTAMP_NTZ)
        )
        if has is None or not (is_ns or _is_readable_as(has, column.type)):
            if column.type.is_nested:
                first_rows.unchecked = tuple(dict.fromkeys((*first_rows.unchecked, column.name)))
                continue
            raise not_previewed_error(
                source, f"only Spark can read column {column.name} ({sql_name(field.type)}) as {column.type}"
            )
        chosen[field.name] = column
    left = count - len(first_rows.rows)
    first_rows.more = first_rows.more or opened.metadata.num_rows > left
    for batch in _read_batches(source, file, opened, min(left, 10_000), list(chosen)):
        batch = batch.slice(0, left)
        values = [_convert_values(source, batch.column(name), column) for name, column in chosen.items()]
        names = [column.name for column in chosen.values()]
        for number in range(batch.num_rows):
            first_rows.rows.append(
                {n: column_values[number] for n, column_values in zip(names, values, strict=True)} | of_path
            )
        left -= batch.num_rows
        if not left:
            return


def _is_readable_as(has: SqlType, declared: SqlType) -> bool:
    """Return True if a file's column can be read as its own type or, for integers, a wider one."""
    return has.nullable == declared.nullable or 0 < has.bits <= declared.bits


def _read_batches(
    source: Source, file: str, opened: parquet.ParquetFile, rows: int, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """Yield batches of the columns.

    They may contain other columns, too: ``a`` is also the beginning of ``a.b``.
    """
    try:
        yield from opened.iter_batches(rows, columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise damaged_file_error(source, file, str(error)) from None


def _convert_values(source: Source, array: pa.Array, column: Column) -> list[Any]:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_timestamp(array.type):
        if column.type == BIGINT:
            array = array.cast(pa.int64())
        elif array.type.unit == "ns":  # rounded down, as Spark does
            us = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) // 1000
            missing = array.is_null().to_numpy(zero_copy_only=False)
            array = pa.array(us, mask=missing).cast(pa.timestamp("us"))
        else:
            array = array.cast(pa.timestamp("us"))
    try:
        values: list[Any] = array.to_pylist()
    except (ValueError, OverflowError, UnicodeDecodeError):
        raise not_previewed_error(source, f"only Spark can read some values of {column.name}") from None
    nested = column.type.is_nested
    old = [
        v
        for v in (_flatten_values(values) if nested else values)
        if isinstance(v, date) and v.year < _OLDEST_TIME.year
    ]
    if old:
        raise not_previewed_error(source, f"only Spark can read times before 1900 ({column.name}: {old[0]})")
    return values


def _flatten_values(value: Any) -> Iterator[Any]:
    """Yield the scalar values inside nested values."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for element in value:
            yield from _flatten_values(element)
    else:
        yield value


# The first rows of a file source, read in this process: of each record what Spark would read, or nothing.
#
# Records of which that is not certain here (malformed ones, quotes within quotes, numbers in another
# spelling) are left out and counted; options and types of which it is not known are refused by name.

_OPTIONS = {
    "parquet": frozenset({"mergeschema"}),
    "json": frozenset[str](),
    "csv": frozenset({"header", "sep", "delimiter", "nullvalue", "comment"}),
}
_ANY = frozenset({*OF_SOURCES, "maxfilespertrigger", "maxbytespertrigger", "recursivefilelookup"})
_NEUTRAL_OPTIONS = {
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


def read_first_rows(
    source: Source, count: int, time_zone: str = UTC_ZONE, *, needed: frozenset[str] = frozenset()
) -> FirstRows:
    """Read at most ``count`` records, those of the oldest files first.

    Args:
        needed: the columns that must be present; other columns are omitted if only Spark can read parts
            of them.

    Raises:
        EngineError: there is no file, a file cannot be read, or only Spark can read it.
    """
    options = _read_options(source)
    files = order_files(source, path_of(source.options), options, "it cannot be previewed", None)
    collected = FirstRows()
    for number, file in enumerate(files):
        if len(collected.rows) + collected.left_out >= count:
            collected.more = True
            break
        collected.files = number + 1
        rows, left_out = len(collected.rows), collected.left_out
        _read(source, file.path, options, time_zone, collected, count)
        if len(collected.rows) == rows and collected.left_out > left_out:
            collected.left_out_files.append((file.path, collected.left_out - left_out))
    _check_needed(source, needed, collected)
    return collected


def read_file_rows(
    source: Source,
    path: str,
    time_zone: str = UTC_ZONE,
    *,
    needed: frozenset[str] = frozenset(),
    count: int = sys.maxsize,
) -> FirstRows:
    """Read at most ``count`` records of one file of a source.

    Args:
        needed: as in `read_first_rows`.

    Raises:
        EngineError: the file cannot be read, or only Spark can read it.
    """
    collected = FirstRows(files=1)
    _read(source, path, _read_options(source), time_zone, collected, count)
    _check_needed(source, needed, collected)
    return collected


def _read_options(source: Source) -> Mapping[str, str]:
    """Return the options with names in lower case, all of which are known here."""
    wanted = format_of(source.options)
    if wanted == DEBEZIUM:
        raise not_previewed_error(source, f"only Spark can read rows of format {DEBEZIUM}")
    options = lower_names(source.options)
    _check_options(source, wanted, options)
    return options


def _read(
    source: Source,
    path: str,
    options: Mapping[str, str],
    time_zone: str,
    collected: FirstRows,
    count: int,
) -> None:
    wanted = format_of(source.options)
    wrong = check_file(path, wanted, options)
    if wrong is not None and wrong.certain:
        raise EngineError(
            f'"{source.name}": {wrong.what}: {format_path(path)}', code="file-unreadable", hint=wrong.hint
        )
    of_path = _path_columns(source, path, time_zone)
    readers: dict[str, Any] = {"parquet": read_parquet, "csv": _read_csv, "json": _read_json}
    readers[wanted](source, path, of_path, options, time_zone, collected, count)


def _check_needed(source: Source, needed: frozenset[str], collected: FirstRows) -> None:
    missed = [
        column for column in source.columns if column.name in needed and column.name in collected.unchecked
    ]
    if missed:
        named = ", ".join(f"{column.name} as {column.type}" for column in missed)
        raise not_previewed_error(source, f"only Spark can read {named}")


def _check_options(source: Source, wanted: str, options: Mapping[str, str]) -> None:
    for name, value in options.items():
        same = _NEUTRAL_OPTIONS.get(name) == value.strip().lower().replace("utf8", "utf-8")
        if wanted == "csv" and name == "escape":
            same = value in (_BACKSLASH, _QUOTE)
        same = same or (wanted != "parquet" and knows_format(name, value))
        if name not in _ANY and name not in _OPTIONS[wanted] and not same:
            raise not_previewed_error(source, f"only Spark supports the option '{name}' for {wanted}")


def _path_columns(source: Source, file: str, time_zone: str) -> Row:
    """Return the columns that directories of partitions (``k=v``) give."""
    row: Row = {}
    declared = {column.name.lower(): column for column in source.columns}
    for name, value in partition_columns(source, file).items():
        column = declared.get(name)
        if column is None:
            continue
        convert = certain_text_reader(source, column, TimeFormats(time_zone))
        try:
            row[column.name] = None if convert is None or value == NO_VALUE else convert(unquote(value))
        except UncertainValue:
            raise not_previewed_error(
                source, f"only Spark can read {name}={value} as {column.type}"
            ) from None
    return row


def _read_csv(
    source: Source, file: str, of_path: Row, options: Any, time_zone: str, collected: FirstRows, count: int
) -> None:
    lines = _build_csv_lines(source, options)
    times = time_formats(options, time_zone)
    comment = options.get("comment", "")
    null = options.get("nullvalue", "")
    columns: Sequence[Column | None] | None = None
    if options.get("header", "true").strip().lower() != "true":
        columns = [column for column in source.columns if column.name not in of_path]
    converters: list[tuple[str, Callable[[str], Any]] | None] = []
    for line in _read_lines(source, file):
        if not line.strip(_BLANK) or (comment and line.startswith(comment)):
            continue
        if columns is None:
            layout = read_layout(f'"{source.name}"', source, [(file, 1, 0)], options)
            columns = [] if layout is None else [column for _, column in layout]
            converters = [_converter(source, column, times) for column in columns]
            continue
        if len(collected.rows) + collected.left_out >= count:
            collected.more = True
            return
        converters = converters or [_converter(source, column, times) for column in columns]
        try:
            collected.rows.append(_record(line, lines, null, converters) | of_path)
        except UncertainValue:
            collected.leave_out(line)


@dataclass(frozen=True)
class _CsvLines:
    """Lines of which it is certain what they are. ``plain``: all of one; ``odd``: what one must not have."""

    separator: str
    plain: re.Pattern[str]
    odd: re.Pattern[str]


def _build_csv_lines(source: Source, options: Mapping[str, str]) -> _CsvLines:
    separator = separator_of(written := get_written_separator(options))
    if len(separator) != 1:
        raise not_previewed_error(source, f"only Spark supports the separator {written!r}")
    s = re.escape(separator)
    quoted, bare, odd = r'"[^"\\]*"', rf'[^"\\{s}]*', '""'
    if options.get("escape") == _QUOTE:
        quoted, bare, odd = r'"(?:[^"]|"")*"', rf'[^"{s}]*', rf'(?:^|{s})""(?:{s}|$)'
    value = f"(?:{quoted}|{bare})"
    return _CsvLines(separator, re.compile(f"{value}(?:{s}{value})*"), re.compile(odd))


def csv_record(
    source: Source, columns: Sequence[Column], options: Mapping[str, str], time_zone: str
) -> Callable[[str], Row]:
    """Return the function that reads a text as a row of these columns, in this order.

    The function raises `UncertainValue`.

    Args:
        options: options of the parser, with names in lower case.

    Raises:
        EngineError: only Spark can read the rows.
    """
    _check_options(source, "csv", options)
    if "comment" in options:
        raise not_previewed_error(source, "only Spark supports the option 'comment' for this source")
    lines = _build_csv_lines(source, options)
    null = options.get("nullvalue", "")
    converters = [_converter(source, column, time_formats(options, time_zone)) for column in columns]

    def read(text: str) -> Row:
        if not text.strip(_BLANK) or text[0] == "\ufeff" or "\n" in text or "\r" in text:
            raise UncertainValue
        return _record(text, lines, null, converters)

    return read


def json_record(
    source: Source,
    columns: Sequence[Column],
    options: Mapping[str, str],
    time_zone: str,
    needed: frozenset[str],
) -> Callable[[str], Row]:
    """Return the function that reads a text as an object with these columns of a source.

    The function raises `UncertainValue`.

    Args:
        options, needed: as in `csv_record`, and in `read_first_rows`.

    Raises:
        EngineError: only Spark can read the rows.
    """
    converters = json_readers(source, columns, options, time_zone, needed)
    return lambda text: read_fields(json_object(text), converters)


def json_readers(
    source: Source,
    columns: Sequence[Column],
    options: Mapping[str, str],
    time_zone: str,
    needed: frozenset[str],
) -> Mapping[str, Callable[[Any], Any] | None]:
    """Return per column the function that reads its values in the result of `json_object`.

    The functions get only values that are not null, and raise `UncertainValue`. None stands for a
    column
    that is not needed and whose reading is unknown here.

    Args:
        options, needed: as in `json_record`.

    Raises:
        EngineError: only Spark can read a column.
    """
    _check_options(source, "json", options)
    times = time_formats(options, time_zone)
    readers = {column.name: json_reader(source, column, times) for column in columns}
    unchecked = tuple(name for name, convert in readers.items() if convert is None)
    _check_needed(source, needed, FirstRows(unchecked=unchecked))
    return readers


def _record(line: str, lines: _CsvLines, null: str, converters: Sequence[Any]) -> Row:
    if not lines.plain.fullmatch(line) or lines.odd.search(line) or not is_text(line):
        raise UncertainValue
    (values,) = csv.reader([line], delimiter=lines.separator)
    if len(values) != len(converters):
        raise UncertainValue
    row: Row = {}
    for value, converter in zip(values, converters, strict=True):
        if converter is None:
            continue
        if value == "" and null != "":
            raise UncertainValue
        name, convert = converter
        row[name] = None if value == null else convert(value)
    return row


def _converter(
    source: Source, column: Column | None, times: TimeFormats
) -> tuple[str, Callable[[str], Any]] | None:
    """Return the name and the reader of a column; None for a column that is not wanted."""
    if column is None:
        return None
    return column.name, text_reader(source, column, times)


def _read_json(
    source: Source, file: str, of_path: Row, options: Any, time_zone: str, collected: FirstRows, count: int
) -> None:
    converters: dict[str, Callable[[Any], Any] | None] = {}
    times = time_formats(options, time_zone)
    for column in source.columns:
        if column.name not in of_path:
            converters[column.name] = json_reader(source, column, times)
    collected.unchecked = tuple(name for name, convert in converters.items() if convert is None)
    for line in _read_lines(source, file):
        if not line.strip(_BLANK):
            continue
        if len(collected.rows) + collected.left_out >= count:
            collected.more = True
            return
        try:
            collected.rows.append(read_fields(json_object(line), converters) | of_path)
        except UncertainValue:
            collected.leave_out(line)


def _read_lines(source: Source, file: str) -> Iterator[str]:
    """Yield the lines of a file without their ends.

    Bytes that are not UTF-8 are preserved (see `is_text`).
    """
    if not can_open(file):
        raise not_previewed_error(source, f"only Spark can read the compression of {format_path(file)}")
    try:
        with open_text(file, {}, errors="surrogateescape", newline=None) as text:
            for line in text:
                yield line.rstrip("\n")
    except BROKEN_ARCHIVE as error:
        reason = getattr(error, "strerror", None)
        if reason:
            raise not_previewed_error(source, f"{format_path(file)} cannot be read: {reason}") from None
        raise damaged_file_error(source, file, str(error)) from None
