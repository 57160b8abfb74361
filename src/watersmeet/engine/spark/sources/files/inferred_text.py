"""The columns of CSV and JSON files by a sample of their records.

A record that cannot be read is passed over and counted: a run counts it as broken, or says what is wrong.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from watersmeet.engine.files.csv_header import (
    BROKEN_ARCHIVE,
    OPENERS,
    UNREADABLE,
    by_name,
    can_be_split,
    other_separator,
    records,
)
from watersmeet.engine.spark.sources.files.contents import START, no_text
from watersmeet.engine.spark.sources.files.inferred_parquet import FileColumns
from watersmeet.engine.spark.sources.files.inferred_types import (
    BIG,
    BOOL,
    DATE,
    INT,
    LOCAL,
    LONG,
    REAL,
    TEXT,
    ZONED,
    Seen,
    kind_of_text,
    type_of,
)
from watersmeet.engine.spark.sources.files.json_text import has_other_forms, parsed
from watersmeet.engine.spark.sources.files.there import shown
from watersmeet.errors import EngineError, counted
from watersmeet.spec.options.lowered import is_true
from watersmeet.types.sql_type import DOUBLE, MOST_DIGITS, STRING, Field, SqlType, array, struct

RECORDS = 10_000
"""So many are sampled in all, shared among the files."""

BYTES = 16 << 20
"""Of one file no more is read."""

_HINT = "declare its columns: CREATE TABLE … (name type, …) WITH (…)"
_OBJECT, _ARRAY = "objects", "arrays"


def columns_of(name: str, wanted: str, files: Sequence[str], options: Mapping[str, str]) -> FileColumns:
    """The columns by samples of all ``files``.

    Args:
        name: of the source.
        wanted: the format, ``csv`` or ``json``.
        options: of the source, with names in lower case.

    Raises:
        EngineError: there are no records, or files have other headers, or names that Spark takes for one.
    """
    if wanted == "csv" and not by_name(options):
        raise _refused(name, "its files have no header, or the options ignore it ('header', 'enforceSchema')")
    if wanted == "csv" and not can_be_split(options):
        raise _refused(name, "only Spark supports such separators ('sep', 'lineSep')")
    sample = _Sample(name, options, max(1, RECORDS // len(files)))
    for file in files:
        if os.path.splitext(file)[1].lower() in UNREADABLE:
            raise _refused(name, f"only Spark can read the compression of {shown(file)}")
        (sample.csv if wanted == "csv" else sample.json)(file)
    if not sample.records:
        what = "there are no records"
        if sample.too_long:
            raise _refused(
                name, f"the first record of {shown(sample.too_long)} is longer than {BYTES >> 20} MB"
            )
        if sample.broken and wanted == "json" and not sample.is_true("multiline"):
            hint = f"set 'multiLine' = 'true' if a JSON value spans several lines; or {_HINT}"
            hint = _HINT if has_other_forms(options) else hint
            raise _refused(name, f"{what}: none of {counted(sample.broken, 'line')} is a JSON object", hint)
        raise _refused(name, f"{what}: {sample.broken} cannot be read" if sample.broken else what)
    columns = FileColumns(files=len(files), records=sample.records)
    for column, seen in sample.columns.items():
        _settle(columns, column, seen, options)
    if sample.broken:
        columns.notes.append((None, f"{counted(sample.broken, 'record')} of the sample cannot be read"))
    return columns


def _settle(columns: FileColumns, column: str, seen: Seen, options: Mapping[str, str]) -> None:
    if any(column.lower() == other.lower() for other in columns.types):
        raise EngineError(
            f"there are two columns named {column}, which differ in case at most, so Spark cannot read"
            " either",
            code="wrong-columns",
            hint="declare the columns that you need, without that one",
        )
    kind, why = (STRING, None) if _as_text(options) else nested_type(seen)
    if kind is None:
        columns.notes.append((None, f"the column {column} is left out: {why}"))
        return
    columns.types[column] = kind
    if why:
        columns.notes.append((column, f"{column} is {kind}: {why}"))


def _as_text(options: Mapping[str, str]) -> bool:
    return options.get("primitivesasstring", "").strip().lower() == "true"


@dataclass
class Nested(Seen):
    """A `Seen` of JSON. ``parts``: of objects, by name; ``element``: of arrays."""

    parts: dict[str, Nested] = field(default_factory=dict)
    element: Nested | None = None

    def add(self, value: Any, options: Mapping[str, str]) -> None:
        if value is None:
            return
        if isinstance(value, dict):
            self.examples.setdefault(_OBJECT, "{…}")
            for name, part in value.items():
                self.parts.setdefault(name, Nested()).add(part, options)
        elif isinstance(value, list):
            self.examples.setdefault(_ARRAY, "[…]")
            self.element = self.element or Nested()
            for part in value:
                self.element.add(part, options)
        elif isinstance(value, bool):
            self.examples.setdefault(BOOL, str(value).lower())
        elif isinstance(value, float):
            self.examples.setdefault(REAL, str(value))
        elif isinstance(value, int):
            fits = -(2**63) <= value < 2**63
            if not fits and abs(value) >= 10**MOST_DIGITS:
                self.examples.setdefault(REAL, "a very large one")
                self.examples.setdefault(LONG, "a very large one")  # whose digits a DOUBLE does not hold
            elif fits:
                self.examples.setdefault(INT if float(value) == value else LONG, str(value))
            else:
                self.examples.setdefault(BIG, str(value))
        else:
            self._add_json_text(value, options)

    def _add_json_text(self, value: str, options: Mapping[str, str]) -> None:
        """Texts are times or dates at most: numbers in quotes are meant as texts."""
        kind, why = kind_of_text(value, options)
        if kind not in (DATE, LOCAL, ZONED):
            why = why if value[:4].isdigit() and value[4:5] == "-" else None
            kind = TEXT
        self.examples.setdefault(kind, value[:40])
        self.why = self.why or why


def nested_type(seen: Seen) -> tuple[SqlType | None, str | None]:
    """As `type_of`, also of objects and arrays; None: Spark has no such type."""
    kinds = set(seen.examples)
    if not isinstance(seen, Nested) or not kinds & {_OBJECT, _ARRAY} or len(kinds) > 1:
        kind, why = type_of(seen)
        if REAL in kinds and kinds & {LONG, BIG} and kinds <= {INT, LONG, BIG, REAL}:
            return DOUBLE, "some of its numbers have more digits than a DOUBLE holds"
        return kind, why
    if seen.element is not None:
        element, why = nested_type(seen.element)
        return element and array(element), why
    return _struct(seen)


def _struct(seen: Nested) -> tuple[SqlType | None, str | None]:
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
    """Records of files, one after the other. ``columns``: what was seen, by name in the files' order."""

    def __init__(self, name: str, options: Mapping[str, str], share: int) -> None:
        self._name = name
        self._options = options
        self._each = share
        self.columns: dict[str, Seen] = {}
        self.records = 0
        self.broken = 0
        self.too_long: str | None = None
        self._header: tuple[str, list[str]] | None = None

    def csv(self, file: str) -> None:
        """Raises: EngineError when the file has another header than those before."""
        with self._opened(file) as text:
            bounded = _Bounded(text)
            rows = records(bounded, self._options)
            try:
                header = next(rows, None)
                if header is None:
                    self._see(file, bounded)
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
                self._see(file, bounded)
            except (csv.Error, UnicodeError, *BROKEN_ARCHIVE) as error:
                raise self._unreadable(file, error) from None

    def _same_header(self, file: str, header: list[str]) -> None:
        if self._header is None:
            hint = other_separator(header)
            if hint is not None:
                raise _refused(self._name, f"{shown(file)} has one column", f"{hint}; or {_HINT}")
            unnamed = [str(place + 1) for place, name in enumerate(header) if not name.strip()]
            if len(unnamed) > 1:
                raise EngineError(
                    f'"{self._name}": {shown(file)} has {len(unnamed)} columns without a name, at'
                    f" positions {', '.join(unnamed[:10])}{', …' if len(unnamed) > 10 else ''}",
                    code="wrong-columns",
                    hint="name them in its header; or set 'enforceSchema' = 'true' to take columns by"
                    " position and " + _HINT,
                )
            lowered = [name.lower() for name in header]
            twice = sorted({name for name in header if lowered.count(name.lower()) > 1})
            if twice:
                raise EngineError(
                    f'"{self._name}": {shown(file)} has two columns named {twice[0]}',
                    code="wrong-columns",
                    hint=f"set 'enforceSchema' = 'true' to take columns by position and {_HINT}",
                )
            self._header = file, header
            self.columns = {name: Seen() for name in header}
        elif [name.lower() for name in header] != [name.lower() for name in self._header[1]]:
            raise EngineError(
                f'"{self._name}": its files have different columns, or the same in another order:'
                f" {shown(self._header[0])} has {', '.join(self._header[1])}; {shown(file)} has"
                f" {', '.join(header)}",
                code="wrong-columns",
                hint="put the files of each layout into a directory of their own, and UNION ALL the sources",
            )

    def json(self, file: str) -> None:
        """Records of a file: lines, or with 'multiLine' the whole of it."""
        with self._opened(file) as text:
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
                        seen = self.columns.setdefault(name, Nested())
                        assert isinstance(seen, Nested)
                        seen.add(part, self._options)
            except (UnicodeError, *BROKEN_ARCHIVE) as error:
                raise self._unreadable(file, error) from None

    def _lines(self, file: str, text: Any) -> Iterator[Any]:
        bounded = _Bounded(text)
        for line in bounded:
            if line.strip():
                value = parsed(line, self._options)
                rows = isinstance(value, list) and all(isinstance(row, dict) for row in value)
                yield from value if rows else [value]
        self._see(file, bounded)

    def _see(self, file: str, bounded: _Bounded) -> None:
        if bounded.cut and self.too_long is None:
            self.too_long = file

    def _whole(self, text: Any) -> Iterator[Any]:
        written = text.read(BYTES + 1)
        if len(written) > BYTES:
            raise _refused(self._name, "a file is too large to be read as one value ('multiLine')")
        value = parsed(written, self._options)
        yield from value if isinstance(value, list) else [value]

    def is_true(self, option: str) -> bool:
        return is_true(self._options, option)

    def _opened(self, file: str) -> Any:
        encoding = (self._options.get("encoding") or self._options.get("charset") or "utf-8").strip()
        if encoding.lower() in ("utf-8", "utf8"):
            encoding = "utf-8-sig"
        opened: Callable[..., Any] = OPENERS.get(os.path.splitext(file)[1].lower(), open)
        try:
            return opened(file, "rt", encoding=encoding, newline="")
        except (OSError, LookupError) as error:
            raise self._unreadable(file, error) from None

    def _unreadable(self, file: str, error: Exception) -> EngineError:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if isinstance(error, UnicodeDecodeError):
            with OPENERS.get(os.path.splitext(file)[1].lower(), open)(file, "rb") as opened:
                wrong = no_text(opened.read(START))
            if wrong is not None and wrong.certain:
                return _refused(self._name, f"{shown(file)} cannot be read: {wrong.what}", wrong.hint)
            reason = f"it is not {error.encoding.upper()} text (at byte {error.start:,})"
            hint = "set 'encoding' (for JSON also 'lineSep'), or write the file as UTF-8"
            return _refused(self._name, f"{shown(file)} cannot be read: {reason}", f"{hint}; or {_HINT}")
        return _refused(self._name, f"{shown(file)} cannot be read: {reason}")


class _Bounded:
    """The lines of a file, as far as the first `BYTES` characters hold whole ones. ``cut``: there is one
    more."""

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


def _refused(name: str, why: str, hint: str = _HINT) -> EngineError:
    return EngineError(f'"{name}": its columns cannot be inferred: {why}', code="cannot-infer", hint=hint)
