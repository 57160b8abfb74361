"""Infer names and types of a file source's columns."""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import parquet

from watersmeet.errors import EngineError, format_count, raise_all
from watersmeet.names import is_ours
from watersmeet.runtime.files.csv_header import (
    can_be_split,
    check_same_header,
    matches_by_name,
    read_records,
    suggest_separator,
)
from watersmeet.runtime.files.json_grammar import has_other_forms, parse_json
from watersmeet.runtime.files.listing import (
    ListedFile,
    format_path,
    list_source_files,
    list_special_files,
    special_note,
)
from watersmeet.runtime.files.open_files import (
    BROKEN_ARCHIVE,
    MAX_HEADER_FILES,
    can_open,
    choose_oldest_and_newest,
    open_bytes,
    open_text,
)
from watersmeet.runtime.files.parquet_files import UNREADABLE as UNREADABLE_PARQUET
from watersmeet.runtime.files.parquet_types import list_readable_types
from watersmeet.runtime.files.partitions import NO_VALUE
from watersmeet.runtime.files.time_patterns import DATE_FORMAT, TIMESTAMP_FORMAT, Reader, pattern_reader
from watersmeet.runtime.files.validation import START, find_text_problem
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.changes import DEBEZIUM
from watersmeet.spec.options.files import format_of, local_path, path_of, source_problems
from watersmeet.spec.options.values import is_true, lower_names
from watersmeet.types import sql_type as sql
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import (
    BIGINT,
    DOUBLE,
    MAX_DECIMAL_DIGITS,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    Field,
    SqlType,
    array,
    decimal,
    map_of,
    struct,
)
from watersmeet.types.sql_type import INT as SQL_INT

# Which type a column has by the values of a sample: one that Spark reads each of them as, without loss.
#
# Where values have several kinds, or one that would lose something (``007`` as a number), it is STRING.

ColumnNote = tuple[str | None, str]
"""A note, and the column that it is on (None: on no column that is there)."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")
_NUMERIC = re.compile(r"\s*[+-]?[0-9][0-9_]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?\s*")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_LARGEST_OFFSET_S = 18 * 3600

INT, LONG, BIG, REAL, SPECIAL, BOOL, DATE, LOCAL, ZONED, TEXT = (
    "whole numbers", "whole numbers that no DOUBLE holds", "whole numbers beyond BIGINT", "numbers",
    "NaN and the like", "true and false", "dates",
    "times without a zone", "times with a zone", "texts",
)  # fmt: skip

_TYPES_OF_ONE_KIND = {
    BOOL: sql.BOOLEAN,
    DATE: sql.DATE,
    LOCAL: sql.TIMESTAMP,
    ZONED: sql.TIMESTAMP,
    TEXT: sql.STRING,
}


@dataclass
class SampledValues:
    """Kinds of values found in a column.

    Attributes:
        examples: the first text of each kind.
        why: reason why a text that looks like another type remains a text.
    """

    examples: dict[str, str] = field(default_factory=dict)
    why: str | None = None

    def add_text(self, value: str | None, options: Mapping[str, str]) -> None:
        """Add a text as it is written in a file; None means no value.

        Args:
            options: the options of the source, with names in lower case.
        """
        if value is None or value == options.get("nullvalue", ""):
            return
        kind, why = classify_text(value, options)
        self.examples.setdefault(kind, value[:40])
        self.why = self.why or why


def infer_type(seen: SampledValues) -> tuple[SqlType, str | None]:
    """Infer the type of sampled values.

    Returns:
        The type, and a note for the user or None.
    """
    kinds = set(seen.examples)
    if not kinds:
        return sql.STRING, "there are no values in the sample"
    if kinds <= {INT, LONG}:
        return sql.BIGINT, None
    if kinds <= {INT, LONG, BIG}:
        return decimal(MAX_DECIMAL_DIGITS, 0), "whole numbers beyond BIGINT"
    if kinds & {INT, REAL} and kinds <= {INT, REAL, SPECIAL}:
        return sql.DOUBLE, None
    if len(kinds) == 1:
        (kind,) = kinds
        note = (
            seen.why
            if kind == TEXT
            else "times without a zone are in the zone of SET time_zone"
            if kind == LOCAL
            else None
        )
        return _TYPES_OF_ONE_KIND.get(kind, sql.STRING), note
    first, second = list(seen.examples.items())[:2]
    return sql.STRING, f"there are {first[0]} ({first[1]!r}) and {second[0]} ({second[1]!r})"


def classify_text(value: str, options: Mapping[str, str]) -> tuple[str, str | None]:
    """Return the kind of a text, and why a text that looks like a number or time is only a text."""
    if _INTEGER.fullmatch(value):
        return _classify_integer(value, options)
    if NUMBER.fullmatch(value):
        if not _is_double(value):
            return TEXT, f"{value[:40]!r} has more digits than a DOUBLE holds"
        return REAL, None
    if value in (
        options.get("nanvalue", "NaN"),
        options.get("positiveinf", "Inf"),
        options.get("negativeinf", "-Inf"),
    ):
        return SPECIAL, None
    if value.lower() in ("true", "false"):
        return BOOL, None
    if _is_date(value, options):
        return DATE, None
    reader = _reader(options, TIMESTAMP_FORMAT)
    if reader is not None and reader(value) is not None:
        return LOCAL, None
    time = _TIME.fullmatch(value)
    if time is not None:
        return _classify_time(time, options)
    if _NUMERIC.fullmatch(value):
        return TEXT, f"a number would not keep {value[:40]!r} as it is written"
    return TEXT, None


def _is_double(value: str) -> bool:
    """Return True if a DOUBLE represents this number without loss of digits."""
    number = float(value)
    return math.isfinite(number) and Decimal(value) == Decimal(repr(number))


def _classify_integer(value: str, options: Mapping[str, str]) -> tuple[str, str | None]:
    digits = len(value.lstrip("-"))
    if digits <= 19 and -(2**63) <= int(value) < 2**63:
        if float(int(value)) != int(value):
            return LONG, None
        return (INT, None) if value != "-0" else (TEXT, "a number would not keep '-0' as it is written")
    if digits <= MAX_DECIMAL_DIGITS and "locale" not in options:
        return BIG, None
    return TEXT, f"{value[:40]!r} is too large for a number"


def _classify_time(time: re.Match[str], options: Mapping[str, str]) -> tuple[str, str | None]:
    day, clock, fraction, zone = time.groups()
    text = time.group()
    if TIMESTAMP_FORMAT in options:
        why = "it does not match 'timestampFormat'"
        if _reader(options, TIMESTAMP_FORMAT) is None:
            why = "the source has a 'timestampFormat'; declare the column"
        return TEXT, why
    if fraction is not None and len(fraction) > 7:
        return TEXT, f"a TIMESTAMP has microseconds and would not keep all digits of {text[:40]!r}"
    if not _is_time(f"{day}T{clock}") or (zone not in (None, "Z") and not _is_offset(zone)):
        return TEXT, f"{text[:40]!r} is not a valid time"
    return (LOCAL if zone is None else ZONED), None


def _reader(options: Mapping[str, str], name: str) -> Reader | None:
    return pattern_reader(options[name]) if name in options else None


def _is_date(text: str, options: Mapping[str, str]) -> bool:
    if DATE_FORMAT in options:
        reader = _reader(options, DATE_FORMAT)
        return reader is not None and reader(text) is not None
    if _DATE.fullmatch(text) is None:
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return text[11:13] != "24"


def _is_offset(text: str) -> bool:
    hours, minutes = int(text[1:3]), int(text[4:])
    return minutes < 60 and hours * 3600 + minutes * 60 <= _LARGEST_OFFSET_S


# The columns of Parquet files by their footers, as Spark reads them.

_NEAREST_TYPES = {
    pa.int8(): TINYINT, pa.int16(): SMALLINT, pa.uint8(): SMALLINT, pa.uint16(): SQL_INT,
}  # fmt: skip


@dataclass
class FileColumns:
    """Columns that files contain: ``types`` by name, in the order of the files."""

    types: dict[str, SqlType] = field(default_factory=dict)
    notes: list[ColumnNote] = field(default_factory=list)
    files: int = 0
    records: int | None = None


def parquet_columns(name: str, files: Sequence[str]) -> FileColumns:
    """Return the columns of Parquet ``files``, which must be the same in all of them.

    Args:
        name: the name of the source.

    Raises:
        EngineError: a file cannot be read, or two files have different columns.
    """
    first: tuple[str, FileColumns] | None = None
    for file in files:
        columns = _read_file_columns(name, file)
        if first is None:
            first = file, columns
        elif _lower_names(columns) != _lower_names(first[1]):
            raise EngineError(
                f'"{name}": its files have different columns: {format_path(first[0])} has '
                f"{_format_columns(first[1])};"
                f" {format_path(file)} has {_format_columns(columns)}",
                code="wrong-columns",
                hint="declare the columns that you need; a file that lacks one reads as NULL",
            )
    assert first is not None
    first[1].files = len(files)
    return first[1]


def _lower_names(columns: FileColumns) -> dict[str, SqlType]:
    return {name.lower(): kind for name, kind in columns.types.items()}


def _format_columns(columns: FileColumns) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.types.items())


def _read_file_columns(name: str, file: str) -> FileColumns:
    try:
        meta = parquet.read_metadata(file)
        fields = meta.schema.to_arrow_schema()
    except UNREADABLE_PARQUET as error:
        reason = (
            error.strerror
            if isinstance(error, OSError) and error.strerror
            else "it is not a complete Parquet file"
        )
        raise EngineError(
            f'"{name}": {format_path(file)} cannot be read: {reason}',
            code="cannot-infer",
            hint="correct or remove the file, or set 'format' if the files are not Parquet",
        ) from None
    leaves = {
        leaf.path: leaf.physical_type for leaf in (meta.schema.column(n) for n in range(len(meta.schema)))
    }
    columns = FileColumns()
    for column in fields:
        if column.name.lower() in _lower_names(columns):
            raise EngineError(
                f'"{name}": {format_path(file)} has two columns named {column.name}, which differ in case at'
                " most, so Spark cannot read either",
                code="wrong-columns",
                hint="declare the columns that you need, without that one",
            )
        kind = spark_type(column.type, leaves.get(column.name, ""))
        if kind is None:
            columns.notes.append(
                (None, f"the column {column.name} is left out: Spark cannot read its type {column.type}")
            )
            continue
        columns.types[column.name] = kind
        if pa.types.is_timestamp(column.type) and kind == BIGINT:
            note = (
                f"{column.name} is inferred as BIGINT, in nanoseconds since 1970: Spark cannot read"
                " it as TIMESTAMP"
            )
            columns.notes.append((column.name, note))
    return columns


def spark_type(kind: pa.DataType, physical: str) -> SqlType | None:
    """Return the type that Spark infers; None if it is unknown here.

    Args:
        physical: Parquet's type of a column that is not nested, such as ``INT96``.
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = spark_type(kind.value_type, "")
        return element and array(element)
    if pa.types.is_map(kind):
        key, item = spark_type(kind.key_type, ""), spark_type(kind.item_type, "")
        return key and item and map_of(key, item)
    if pa.types.is_struct(kind):
        parts = [(column.name, spark_type(column.type, "")) for column in kind]
        fields = [Field(name, part) for name, part in parts if part is not None]
        return struct(fields) if fields and len(fields) == len(parts) else None
    if pa.types.is_timestamp(kind) and kind.unit == "ns" and not physical:
        return None
    if pa.types.is_decimal(kind) and kind.precision > MAX_DECIMAL_DIGITS:
        return None
    if kind in _NEAREST_TYPES:
        return _NEAREST_TYPES[kind]
    return next(iter(list_readable_types(kind, physical)), None)


# The columns of CSV and JSON files by a sample of their records.
#
# A record that cannot be read is passed over and counted: a run counts it as broken, or says what is
# wrong.

RECORDS = 10_000
"""So many are sampled in all, shared among the files."""

BYTES = 16 << 20
"""Of one file no more is read."""

_HINT = "declare its columns: CREATE TABLE … (name type, …) WITH (…)"
_OBJECT, _ARRAY = "objects", "arrays"


def text_columns(name: str, wanted: str, files: Sequence[str], options: Mapping[str, str]) -> FileColumns:
    """Infer the columns from samples of all ``files``.

    Args:
        name: the name of the source.
        wanted: the format, ``csv`` or ``json``.
        options: the options of the source, with names in lower case.

    Raises:
        EngineError: there are no records, the files have different headers, or they have names that
            Spark
            treats as one.
    """
    if wanted == "csv" and not matches_by_name(options):
        raise _cannot_infer_error(
            name, "its files have no header, or the options ignore it ('header', 'enforceSchema')"
        )
    if wanted == "csv" and not can_be_split(options):
        raise _cannot_infer_error(name, "only Spark supports such separators ('sep', 'lineSep')")
    sample = _Sample(name, options, max(1, RECORDS // len(files)))
    for file in files:
        if not can_open(file):
            raise _cannot_infer_error(name, f"only Spark can read the compression of {format_path(file)}")
        (sample.csv if wanted == "csv" else sample.json)(file)
    if not sample.records:
        what = "there are no records"
        if sample.too_long:
            raise _cannot_infer_error(
                name, f"the first record of {format_path(sample.too_long)} is longer than {BYTES >> 20} MB"
            )
        if sample.broken and wanted == "json" and not sample.is_true("multiline"):
            hint = f"set 'multiLine' = 'true' if a JSON value spans several lines; or {_HINT}"
            hint = _HINT if has_other_forms(options) else hint
            raise _cannot_infer_error(
                name, f"{what}: none of {format_count(sample.broken, 'line')} is a JSON object", hint
            )
        raise _cannot_infer_error(name, f"{what}: {sample.broken} cannot be read" if sample.broken else what)
    columns = FileColumns(files=len(files), records=sample.records)
    for column, seen in sample.columns.items():
        _add_column(columns, column, seen, options)
    if sample.broken:
        columns.notes.append((None, f"{format_count(sample.broken, 'record')} of the sample cannot be read"))
    return columns


def _add_column(columns: FileColumns, column: str, seen: SampledValues, options: Mapping[str, str]) -> None:
    if any(column.lower() == other.lower() for other in columns.types):
        raise EngineError(
            f"there are two columns named {column}, which differ in case at most, so Spark cannot read"
            " either",
            code="wrong-columns",
            hint="declare the columns that you need, without that one",
        )
    kind, why = (STRING, None) if _reads_as_text(options) else nested_type(seen)
    if kind is None:
        columns.notes.append((None, f"the column {column} is left out: {why}"))
        return
    columns.types[column] = kind
    if why:
        columns.notes.append((column, f"{column} is {kind}: {why}"))


def _reads_as_text(options: Mapping[str, str]) -> bool:
    return options.get("primitivesasstring", "").strip().lower() == "true"


@dataclass
class NestedValues(SampledValues):
    """Kinds of values found at one place of JSON records.

    Attributes:
        parts: for objects, the values by field name.
        element: for arrays, the elements.
    """

    parts: dict[str, NestedValues] = field(default_factory=dict)
    element: NestedValues | None = None

    def add(self, value: Any, options: Mapping[str, str]) -> None:
        if value is None:
            return
        if isinstance(value, dict):
            self.examples.setdefault(_OBJECT, "{…}")
            for name, part in value.items():
                self.parts.setdefault(name, NestedValues()).add(part, options)
        elif isinstance(value, list):
            self.examples.setdefault(_ARRAY, "[…]")
            self.element = self.element or NestedValues()
            for part in value:
                self.element.add(part, options)
        elif isinstance(value, bool):
            self.examples.setdefault(BOOL, str(value).lower())
        elif isinstance(value, float):
            self.examples.setdefault(REAL, str(value))
        elif isinstance(value, int):
            fits = -(2**63) <= value < 2**63
            if not fits and abs(value) >= 10**MAX_DECIMAL_DIGITS:
                self.examples.setdefault(REAL, "a very large one")
                self.examples.setdefault(LONG, "a very large one")  # whose digits a DOUBLE does not hold
            elif fits:
                self.examples.setdefault(INT if float(value) == value else LONG, str(value))
            else:
                self.examples.setdefault(BIG, str(value))
        else:
            self._add_json_text(value, options)

    def _add_json_text(self, value: str, options: Mapping[str, str]) -> None:
        """Add a JSON text, which can be a time or a date but not a number.

        A number in quotes is a text.
        """
        kind, why = classify_text(value, options)
        if kind not in (DATE, LOCAL, ZONED):
            why = why if value[:4].isdigit() and value[4:5] == "-" else None
            kind = TEXT
        self.examples.setdefault(kind, value[:40])
        self.why = self.why or why


def nested_type(seen: SampledValues) -> tuple[SqlType | None, str | None]:
    """Infer the type of sampled values, including objects and arrays.

    Returns:
        The type, or None if Spark has no such type; and a note for the user or None.
    """
    kinds = set(seen.examples)
    if not isinstance(seen, NestedValues) or not kinds & {_OBJECT, _ARRAY} or len(kinds) > 1:
        kind, why = infer_type(seen)
        if REAL in kinds and kinds & {LONG, BIG} and kinds <= {INT, LONG, BIG, REAL}:
            return DOUBLE, "some of its numbers have more digits than a DOUBLE holds"
        return kind, why
    if seen.element is not None:
        element, why = nested_type(seen.element)
        return element and array(element), why
    return _struct(seen)


def _struct(seen: NestedValues) -> tuple[SqlType | None, str | None]:
    if not seen.parts:
        return None, "its objects are empty"
    if len({name.lower() for name in seen.parts}) < len(seen.parts):
        return None, "its objects have two fields whose names differ in case at most"
    fields: list[Field] = []
    notes: list[str] = []
    for name, part in seen.parts.items():
        kind, why = nested_type(part)
        if kind is None or not name.strip() or not name.isprintable():
            return None, f"its field {name!r} cannot be declared"
        fields.append(Field(name, kind))
        notes += [f"{name}: {why}"] if why else []
    return struct(fields), "; ".join(notes) or None


class _Sample:
    """Sample of records from files that are read one after the other.

    Attributes:
        columns: values by column name, in the files' order.
    """

    def __init__(self, name: str, options: Mapping[str, str], share: int) -> None:
        self._name = name
        self._options = options
        self._each = share
        self.columns: dict[str, SampledValues] = {}
        self.records = 0
        self.broken = 0
        self.too_long: str | None = None
        self._header: tuple[str, list[str]] | None = None

    def csv(self, file: str) -> None:
        """Sample the records of a CSV file.

        Raises:
            EngineError: the file's header differs from that of earlier files, or the file is unreadable.
        """
        with self._open_text(file) as text:
            bounded = _BoundedLines(text)
            rows = read_records(bounded, self._options)
            try:
                header = next(rows, None)
                if header is None:
                    self._note_long_file(file, bounded)
                    return
                header = [name.strip() for name in header]
                self._same_header(file, header)
                names = self._header[1] if self._header is not None else header
                for number, row in enumerate(rows):
                    if number >= self._each:
                        return
                    if len(row) != len(names):
                        self.broken += 1
                        continue
                    self.records += 1
                    for name, value in zip(names, row, strict=True):
                        self.columns[name].add_text(value, self._options)
                self._note_long_file(file, bounded)
            except (csv.Error, UnicodeError, *BROKEN_ARCHIVE) as error:
                raise self._unreadable(file, error) from None

    def _same_header(self, file: str, header: list[str]) -> None:
        if self._header is None:
            hint = suggest_separator(header)
            if hint is not None:
                raise _cannot_infer_error(
                    self._name, f"{format_path(file)} has one column", f"{hint}; or {_HINT}"
                )
            unnamed = [str(place + 1) for place, name in enumerate(header) if not name.strip()]
            if len(unnamed) > 1:
                raise EngineError(
                    f'"{self._name}": {format_path(file)} has {len(unnamed)} columns without a name, at'
                    f" positions {', '.join(unnamed[:10])}{', …' if len(unnamed) > 10 else ''}",
                    code="wrong-columns",
                    hint="name them in its header; or set 'enforceSchema' = 'true' to take columns by"
                    " position and " + _HINT,
                )
            lowered = [name.lower() for name in header]
            twice = sorted({name for name in header if lowered.count(name.lower()) > 1})
            if twice:
                raise EngineError(
                    f'"{self._name}": {format_path(file)} has two columns named {twice[0]}',
                    code="wrong-columns",
                    hint=f"set 'enforceSchema' = 'true' to take columns by position and {_HINT}",
                )
            self._header = file, header
            self.columns = {name: SampledValues() for name in header}
        check_same_header(f'"{self._name}"', self._header, file, header)

    def json(self, file: str) -> None:
        """Sample the records of a JSON file: its lines or, with 'multiLine', the whole file."""
        with self._open_text(file) as text:
            try:
                values = self._whole(text) if self.is_true("multiline") else self._lines(file, text)
                for number, value in enumerate(values):
                    if number >= self._each:
                        return
                    if not isinstance(value, dict):
                        self.broken += 1
                        continue
                    self.records += 1
                    for name, part in value.items():
                        seen = self.columns.setdefault(name, NestedValues())
                        assert isinstance(seen, NestedValues)
                        seen.add(part, self._options)
            except (UnicodeError, *BROKEN_ARCHIVE) as error:
                raise self._unreadable(file, error) from None

    def _lines(self, file: str, text: Any) -> Iterator[Any]:
        bounded = _BoundedLines(text)
        for line in bounded:
            if line.strip():
                value = parse_json(line, self._options)
                rows = isinstance(value, list) and all(isinstance(row, dict) for row in value)
                yield from value if rows else [value]
        self._note_long_file(file, bounded)

    def _note_long_file(self, file: str, bounded: _BoundedLines) -> None:
        if bounded.cut and self.too_long is None:
            self.too_long = file

    def _whole(self, text: Any) -> Iterator[Any]:
        written = text.read(BYTES + 1)
        if len(written) > BYTES:
            raise _cannot_infer_error(self._name, "a file is too large to be read as one value ('multiLine')")
        value = parse_json(written, self._options)
        yield from value if isinstance(value, list) else [value]

    def is_true(self, option: str) -> bool:
        return is_true(self._options, option)

    def _open_text(self, file: str) -> Any:
        try:
            return open_text(file, self._options)
        except (OSError, LookupError) as error:
            raise self._unreadable(file, error) from None

    def _unreadable(self, file: str, error: Exception) -> EngineError:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if isinstance(error, UnicodeDecodeError):
            with open_bytes(file) as opened:
                wrong = find_text_problem(opened.read(START))
            if wrong is not None and wrong.certain:
                return _cannot_infer_error(
                    self._name, f"{format_path(file)} cannot be read: {wrong.what}", wrong.hint
                )
            reason = f"it is not {error.encoding.upper()} text (at byte {error.start:,})"
            hint = "set 'encoding' (for JSON also 'lineSep'), or write the file as UTF-8"
            return _cannot_infer_error(
                self._name, f"{format_path(file)} cannot be read: {reason}", f"{hint}; or {_HINT}"
            )
        return _cannot_infer_error(self._name, f"{format_path(file)} cannot be read: {reason}")


class _BoundedLines:
    """The complete lines within the first `BYTES` characters of a file.

    Attributes:
        cut: True if the file has a further line.
    """

    def __init__(self, text: Any) -> None:
        self._text = text
        self._left = BYTES
        self.cut = False

    def __iter__(self) -> Iterator[str]:
        while self._left > 0:
            line = self._text.readline(self._left + 1)
            self._left -= len(line)
            if not line or self._left < 0:
                self.cut = bool(line)
                return
            yield line


def _cannot_infer_error(name: str, why: str, hint: str = _HINT) -> EngineError:
    return EngineError(f'"{name}": its columns cannot be inferred: {why}', code="cannot-infer", hint=hint)


# Names and types of a file source's columns, read from the files that are there: footers of Parquet,
# headers and samples of CSV and JSON.
#
# What is inferred must be read by Spark as the sample was: where there is doubt, a column is STRING, and
# that is said. Only this process looks at the files; Spark is not started.

MAX_SAMPLED_FILES = 20
"""So many files are sampled, or their footers compared: the oldest and the newest, half and half. Of Parquet
it is `csv_header.MAX_HEADER_FILES`."""

COLUMNS = "columns"
"""Where a manifest's ``host`` has, per source, the columns that were inferred when the job began."""

_DECLARE = "declare its columns: CREATE TABLE … (name type, …) WITH (…)"


@dataclass(frozen=True)
class InferredColumns:
    """Columns inferred from files.

    Attributes:
        columns: columns in the files' order, then those of the partition directories.
        files: number of files examined.
        records: number of sampled records; None if none had to be sampled.
        notes: remarks for people about some columns.
    """

    columns: tuple[Column, ...]
    files: int
    records: int | None = None
    notes: tuple[str, ...] = ()


def infer(source: Source) -> InferredColumns:
    """Infer the columns of ``source``.

    Declared columns stay as declared, and the files must contain them.

    Raises:
        EngineError: there is nothing to infer from, or files have different columns.
        SpecError: options are wrong.
    """
    if not source.traits.files:
        raise EngineError(
            f'"{source.name}": columns can be inferred for files only, not for a {source.connector} source',
            code="cannot-infer",
            hint=_DECLARE,
        )
    first = ("missing-option", "unknown-format", "wrong-option")
    raise_all([source_problem for source_problem in source_problems(source) if source_problem.code in first])
    options = lower_names(source.options)
    path, wanted = path_of(source.options), format_of(source.options)
    if wanted == DEBEZIUM:
        raise EngineError(
            f'"{source.name}": columns cannot be inferred for the format {DEBEZIUM}',
            code="cannot-infer",
            hint=_DECLARE,
        )
    files = order_files(source, path, options)
    declared = {column.name.lower(): column for column in source.columns}
    if wanted == "parquet":
        told = parquet_columns(source.name, _oldest_and_newest(files, MAX_HEADER_FILES))
    else:
        told = text_columns(source.name, wanted, _oldest_and_newest(files, MAX_SAMPLED_FILES), options)
    notes = list(told.notes)
    if special := list_special_files(source):
        notes.append((None, special_note(f'"{source.name}"', special)))
    types = dict(told.types)
    for name, kind, note in list_partition_columns(path, files, options):
        if name.lower() in {typed.lower() for typed in types}:
            raise EngineError(
                f'"{source.name}": the column {name} is both in the files and in the names of their'
                " directories",
                code="cannot-infer",
                hint=_DECLARE,
            )
        types[name] = kind
        notes += note
    columns = [
        declared.get(name.lower()) or Column(name, kind)
        for name, kind in types.items()
        if _is_declarable(name, notes)
    ]
    missing = [column.name for name, column in declared.items() if name not in {n.lower() for n in types}]
    if missing:
        raise EngineError(
            f'"{source.name}": the files at {path} have no column {", ".join(missing)}',
            code="wrong-columns",
            hint=f"their columns are {', '.join(types)}",
        )
    if not columns:
        raise EngineError(
            f'"{source.name}": the files at {path} have no column of a supported type',
            code="cannot-infer",
            hint=_DECLARE,
        )
    kept = {column.name.lower() for column in columns} - set(declared)
    said = tuple(
        text for name, text in notes if name is None or name.lower() in kept | {""} or name not in types
    )
    return InferredColumns(tuple(columns), told.files, told.records, said)


def encode_columns(columns: Iterable[Column]) -> list[list[str]]:
    """Encode columns for a manifest's ``host``."""
    return [[column.name, str(column.type)] for column in columns]


def load_inferred_columns(host: Mapping[str, Any]) -> dict[str, tuple[Column, ...]]:
    """Load per source the columns inferred at the job's start; empty if none were inferred."""
    return {
        name: tuple(Column(column, sql_type(kind)) for column, kind in columns)
        for name, columns in host.get(COLUMNS, {}).items()
    }


def order_files(
    source: Source,
    path: str,
    options: Mapping[str, str],
    fails: str = "its columns cannot be inferred",
    hint: str | None = _DECLARE,
) -> list[ListedFile]:
    """List the files that Spark will read and that are not empty, oldest first.

    Args:
        fails: what is impossible if the files cannot be listed, for messages.
        hint: what else to do if there is no file with content; None: return an empty list then.
    """
    local = local_path(path)
    if local is None or "pathglobfilter" in options:
        what = f"{path} is not a local path" if local is None else ("only Spark supports 'pathGlobFilter'")
        raise EngineError(f'"{source.name}": {fails}: {what}', code="cannot-infer", hint=hint)
    files = [file for file in list_source_files(source) if file.passed_over is None and file.stat[0]]
    if not files:
        there = os.path.exists(local)
        if there and hint is None:
            return []
        what = "there is no file with content at" if there else "there is no"
        raise EngineError(
            f'"{source.name}": {fails}: {what} "{path}"',
            code="cannot-infer" if there else "path-missing",
            hint="put a first file there" + (f", or {hint}" if hint else ""),
        )
    return sorted(files, key=lambda file: (file.stat[1], file.path))


def _oldest_and_newest(files: Sequence[ListedFile], most: int) -> list[str]:
    """Return the oldest and the newest of the ordered files, at most ``most`` of them."""
    return [file.path for file in choose_oldest_and_newest(files, most)]


def list_partition_columns(
    path: str, files: Sequence[ListedFile], options: Mapping[str, str]
) -> Iterator[tuple[str, SqlType, list[ColumnNote]]]:
    """Yield the columns of partition directories (``k=v``): name, type, notes."""
    root = os.path.abspath(local_path(path) or path)
    if not os.path.isdir(root) or options.get("recursivefilelookup", "").strip().lower() == "true":
        return
    seen: dict[str, SampledValues] = {}
    for file in files:
        for part in os.path.dirname(file.path.removeprefix(root)).split(os.sep):
            name, equals, value = part.partition("=")
            if equals:
                written = None if value == NO_VALUE else unquote(value)
                seen.setdefault(unquote(name), SampledValues()).add_text(written, {})
    for name, values in seen.items():
        kind, why = infer_type(values)
        if kind == TIMESTAMP:  # times have colons, which directories' names have in other spellings
            kind, why = STRING, "times in directory names are read as text"
        yield name, kind, [(name, f"{name} is {kind}: {why}")] if why else []


def _is_declarable(name: str, notes: list[ColumnNote]) -> bool:
    """Return True if a column with this name can be declared; else add a note."""
    why = None
    if not name.strip():
        why = "a column without a name (name it in the files' headers to read it)"
    elif is_ours(name):
        why = f"the column {name}, whose name is reserved for the engine,"
    elif not name.isprintable():
        why = f"the column {format_path(name)!r}, whose name is not printable,"
    if why is None:
        return True
    notes.append((None, f"{why} is left out"))
    return False
