"""How texts of a sample are read: by the options that the source has for files of the same format."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from typing import Any

import pyarrow as pa
from pyarrow import csv, json

from watersmeet.errors import SpecError
from watersmeet.expressions.times import parse_time, read_pattern
from watersmeet.expressions.typed_tree import UnsupportedExpression
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import ANY_READER, OF_SOURCES, format_of
from watersmeet.spec.options.kafka import parser_of, records_of
from watersmeet.spec.options.lowered import is_true, lowered
from watersmeet.spec.options.values import separator_in
from watersmeet.spec.records.counted_times import UNIT
from watersmeet.types.sql_type import SqlType

_OF_FILES = frozenset(name.lower() for name in (*ANY_READER, *OF_SOURCES) if name != UNIT)
"""Which files there are, and not what is in them."""
_BACKSLASH = "\\"
_TIMES = {"DATE": "dateformat", "TIMESTAMP": "timestampformat", "TIMESTAMP_NTZ": "timestampntzformat"}
_AS_THEY_ARE: Mapping[str, tuple[str, ...]] = {
    "encoding": ("utf-8", "utf8"),
    "charset": ("utf-8", "utf8"),
    "ignoreleadingwhitespace": ("false",),
    "ignoretrailingwhitespace": ("false",),
    "linesep": ("\n", "\r\n", "\r"),
}
"""Options that may be said if they say what holds anyway."""
_KNOWN = {
    "csv": {"header", "sep", "delimiter", "quote", "escape", "nullvalue", "multiline", "enforceschema"},
    "json": {"multiline"},
}


@dataclass(frozen=True)
class TextOptions:
    """Options of a source with names in lower case, all of which are known here."""

    given: Mapping[str, str]

    @property
    def names_columns(self) -> bool:
        """Whether the first line of a CSV file names the columns, and they are taken by name."""
        return self._has_header and not is_true(self.given, "enforceschema")

    @property
    def _has_header(self) -> bool:
        return self.given.get("header", "true").strip().lower() == "true"

    def csv_arguments(self, source: Source) -> dict[str, Any]:
        """Return how pyarrow reads CSV files of the source, but for the types."""
        quote = self.given.get("quote", '"')[:1]
        names = {} if self.names_columns else {"column_names": [column.name for column in source.columns]}
        return {
            "read_options": csv.ReadOptions(
                skip_rows=int(self._has_header and not self.names_columns), **names
            ),
            "parse_options": csv.ParseOptions(
                delimiter=separator_in(self.given),
                quote_char=quote or False,
                newlines_in_values=is_true(self.given, "multiline"),
            ),
        }

    def has_escapes(self, file: str) -> bool:
        """Return whether a CSV file has quotes behind backslashes, which Arrow reads in another way."""
        quote = self.given.get("quote", '"')[:1]
        if not quote or self.given.get("escape", _BACKSLASH) != _BACKSLASH or not os.path.getsize(file):
            return False
        with open(file, "rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as content:
            return content.find(f"{_BACKSLASH}{quote}".encode()) >= 0

    @property
    def null_value(self) -> str:
        """The text that stands for NULL in CSV."""
        return self.given.get("nullvalue", "")

    def json_arguments(self, schema: pa.Schema) -> dict[str, Any]:
        """Return how pyarrow reads JSON files of the source."""
        options = json.ParseOptions(
            explicit_schema=schema,
            unexpected_field_behavior="infer",
            newlines_in_values=is_true(self.given, "multiline"),
        )
        return {"parse_options": options}

    def time_reader(self, type_: SqlType) -> Callable[[pa.Array], pa.Array] | None:
        """Return what reads texts by the pattern of a type, as clocks showed it in µs; None: it has none."""
        pattern = self.given.get(_TIMES.get(type_.name, ""))
        if pattern is None:
            return None
        pieces = read_pattern(pattern)
        return lambda texts: parse_time(texts, pieces)


def text_options(source: Source, wanted: str) -> TextOptions:
    """Return the options by which a source reads files of a format; none, where its own format is another.

    Raises:
        SpecError: what one of them means, only Spark knows.
    """
    given = _given(source, wanted)
    for name, value in given.items():
        if not _is_known(name, value, wanted, given.get("quote", '"')):
            said = f"'{name}' = '{value}'"
            raise SpecError(
                f'the sample of "{source.name}": only Spark supports {said} for {wanted}',
                code="not-tried",
                hint="write the sample as Parquet with Spark: spark.read….write.parquet('sample')",
            )
    return TextOptions(given)


def _given(source: Source, wanted: str) -> Mapping[str, str]:
    if source.traits.log:
        if parser_of(records_of(source.options)) != wanted:
            return {}
        prefix = f"{wanted}."
        return lowered({n.removeprefix(prefix): v for n, v in source.options.items() if n.startswith(prefix)})
    if not source.traits.files or format_of(source.options) != wanted:
        return {}
    return {name: value for name, value in lowered(source.options).items() if name not in _OF_FILES}


def _is_known(name: str, value: str, wanted: str, quote: str) -> bool:
    if name in _TIMES.values():
        try:
            read_pattern(value)
        except UnsupportedExpression:
            return False
        return True
    if name in ("sep", "delimiter"):
        return len(separator_in({name: value})) == 1
    if name == "escape":  # a quote within quotes is written twice, or not at all (`has_escapes`)
        return value in (quote, _BACKSLASH)
    if name in _AS_THEY_ARE:
        return value.strip(" ").lower() in _AS_THEY_ARE[name]
    return name in _KNOWN[wanted]
