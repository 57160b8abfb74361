"""Why a record is broken: which of its values is not of its column's type, and the option that would read it.

Only JSON, CSV, and rows of Parquet, which are shown as JSON, are explained. A record is known to be broken,
and a value that certainly is of its column's type is not the reason; so the columns that are left are named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import product
from typing import Any

from watersmeet.engine.files.csv_header import SEPARATORS, by_name, can_be_split, records
from watersmeet.engine.spark.misfits import has_length
from watersmeet.engine.spark.sources.files.first_found import FirstRows
from watersmeet.engine.spark.sources.files.first_rows import first_rows
from watersmeet.engine.spark.sources.files.first_values import Unsure, certain_text, json_reader
from watersmeet.engine.spark.sources.files.inferred_types import BIG, INT, LONG, NUMBER, REAL, kind_of_text
from watersmeet.engine.spark.sources.files.json_text import parsed
from watersmeet.engine.spark.sources.files.narrow import PARQUET
from watersmeet.engine.spark.sources.files.there import shown
from watersmeet.engine.spark.sources.frames import layout_at
from watersmeet.engine.spark.text import literal
from watersmeet.engine.spark.time_formats import TimeFormats, knows_format, pattern_reader, time_formats
from watersmeet.errors import EngineError, counted, printable
from watersmeet.plan.model.job import JobPlan
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.changes import UPSERT
from watersmeet.spec.options.files import format_of, local_path, path_of
from watersmeet.spec.options.kafka import metadata_of, parser_of, records_of
from watersmeet.spec.options.lowered import is_true, lowered
from watersmeet.spec.records.counted_times import UNIT, said_unit
from watersmeet.spec.records.json_names import written_as
from watersmeet.spec.time_zones import UTC
from watersmeet.types.sql_type import BINARY, DATE, INTEGER_BITS, STRING, TIMESTAMP, TIMESTAMP_NTZ

MOST_NAMED = 2
"""Columns whose values are shown."""
SAMPLED = 1_000
"""Records of a source that are looked at on request."""
_VALUE = 60
"""Characters of a value that are shown."""
_NO_VALUES = frozenset({"null", "na", "n/a", "nan", "none", "nil", "-", "\\n", "?"})
_OPTION = {DATE: "dateFormat", TIMESTAMP: "timestampFormat", TIMESTAMP_NTZ: "timestampNTZFormat"}
_USUAL_TIME = re.compile("[0-9]{4}(-(0?[1-9]|1[0-2])(-(0?[1-9]|[12][0-9]|3[01])([T ].*)?)?)?$")
_TIME = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:")
_DATES = ("dd{0}MM{0}yyyy", "MM{0}dd{0}yyyy", "yyyy{0}MM{0}dd", "d{0}M{0}yyyy", "M{0}d{0}yyyy")
_CLOCKS = ("", " HH:mm", " HH:mm:ss", " H:mm:ss", " HH:mm:ss{0}", "'T'HH:mm", "'T'HH:mm:ss", "'T'HH:mm:ss{0}")


@dataclass(frozen=True)
class RecordCheck:
    """Explains broken records of a source.

    Attributes:
        source: its columns and the options of its parser alone, with names in lower case.
        columns: those of a record of CSV in their order; None: nobody asked for it.
        prefix: with which names of the parser's options begin (``csv.``).
    """

    source: Source
    is_csv: bool
    columns: tuple[Column | None, ...]
    prefix: str = ""
    is_parquet: bool = False

    def explain(self, record: str) -> str:
        """Return the reason and what would read the record, in words; empty: not known."""
        try:
            return self._reason(record)
        except Exception:  # what only explains must not stop a job
            return ""

    def _reason(self, record: str) -> str:
        if record.startswith("\0") and self.prefix:
            return f"it begins with a byte 0: {_reads(*_HEADER)}"
        if not self.is_csv or record.startswith("{"):
            value = object_in_text(record, self.source.options)
            if isinstance(value, dict):
                return self._of_fields(value)
            if not self.is_csv:
                return self._no_object(record)
        values: list[str] = next(records(iter([record]), self.source.options), [])
        if len(values) != len(self.columns):
            return self._other_width(record, len(values))
        null = self.source.options.get("nullvalue", "")
        pairs = zip(self.columns, values, strict=True)
        return self._misfits([(c, text) for c, text in pairs if c is not None and text not in ("", null)])

    def _of_fields(self, record: Mapping[str, Any]) -> str:
        pairs = []
        for column in filter(None, self.columns):
            try:
                name = written_as(record, column.name)
            except ValueError as several:
                return str(several)
            if name is not None and (value := record[name]) is not None:
                # JSON of a record of CSV is what Spark read of it: values that are texts in the file
                as_text = self.is_csv and not isinstance(value, str)
                pairs.append((column, str(value).lower() if as_text else value))
        return self._misfits(pairs)

    def _misfits(self, values: Sequence[tuple[Column, Any]]) -> str:
        """Name the values that may be the reason; those that Spark may read, though it is not certain here,
        where there are no others."""
        wrong = [pair for pair in values if not self._fits(*pair)]
        certain = [(column, value) for column, value in wrong if not _is_usual_time(column, value)]
        return "; ".join(self._misfit(*pair) for pair in (certain or wrong)[:MOST_NAMED])

    def _fits(self, column: Column, value: Any) -> bool:
        """Return whether a value is of the column's type, or only Spark knows."""
        kind = column.type
        if kind in (STRING, BINARY):
            return not (kind.length and isinstance(value, str) and len(value) > kind.length)
        text, is_text = str(value), isinstance(value, str)
        is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        if kind.is_real and is_text and not self.is_csv:
            return text.lstrip("+-").lower() in ("nan", "inf", "infinity")
        if kind.is_real or kind.is_decimal:
            return bool(NUMBER.fullmatch(text)) and not (
                kind.is_decimal and round(abs(Decimal(text)), kind.scale) >= 10**kind.whole_digits
            )
        if kind.is_time and is_number and not self.is_csv and said_unit(self.source.options) is None:
            return kind != DATE  # seconds, to Spark
        try:
            reader = self._reader(column)
            if reader is not None:
                reader(value)
        except Unsure:
            return False
        except EngineError:
            return True
        return True

    def _reader(self, column: Column) -> Callable[[Any], Any] | None:
        return (certain_text if self.is_csv else json_reader)(self.source, column, self._times)

    @cached_property
    def _times(self) -> TimeFormats:
        formats = {name: v for name, v in self.source.options.items() if knows_format(name, v)}
        return time_formats(formats, UTC)

    def _misfit(self, column: Column, value: Any) -> str:
        plain = isinstance(value, str | Decimal)
        text = str(value) if plain else json.dumps(value, ensure_ascii=False, default=str)
        shown = printable(text if len(text) <= _VALUE else f"{text[: _VALUE - 1]}…")
        written = f"'{shown}'" if isinstance(value, str) else shown
        remedy = self._remedy(column, text, is_text=isinstance(value, str))
        kind = f"VARCHAR({column.type.length})" if column.type.length else column.type
        return f"{column.name} is {kind}, but the value is {written}: {remedy}"

    def _remedy(self, column: Column, text: str, *, is_text: bool) -> str:
        kind = column.type
        if kind.length:
            return "declare it STRING"
        within = ["a text inside it may be longer than its VARCHAR(n); declare that STRING"] * has_length(
            kind
        )
        if self.is_parquet and kind.is_nested and any(own in PARQUET for own in kind.every):
            within.append("an integer inside it does not fit its TINYINT or SMALLINT; declare that INT")
        if within:
            return "; or ".join(within)
        if self.is_csv and text.lower() == column.name.lower():
            return _reads("header", "true", self.prefix)
        if self.is_csv and text.lower() in _NO_VALUES:
            return _reads("nullValue", text, self.prefix)
        if self.is_csv and text != text.strip() and self._fits(column, text.strip()):
            both = ("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace")
            said = (f"'{self.prefix}{name}' = 'true'" for name in both)
            return f"{' and '.join(said)} read it"
        if kind in _OPTION:
            return self._time_remedy(column, text)
        number, _ = kind_of_text(text, {})
        fit = {BIG: "DECIMAL(38,0)", REAL: "DOUBLE"}.get(number)
        if number in (INT, LONG):
            own = int(text)
            least = max(kind.bits, max(own, ~own).bit_length())
            fit = next((name for name, bits in INTEGER_BITS.items() if bits > least), None)
        if fit is not None and kind.is_integer and (self.is_csv or not is_text):
            return f"declare it {fit}"
        if kind.is_decimal and fit is not None and (self.is_csv or not is_text):
            return "declare it with more digits before the point"
        return f"declare it {'TIMESTAMP' if _TIME.match(text) else 'STRING, and cast it in a view'}"

    def _time_remedy(self, column: Column, text: str) -> str:
        if re.fullmatch("-?[0-9]{9,19}", text) and column.type != DATE and not self._can_be_date(text):
            unit = next(unit for unit, digits in _UNITS if len(text.lstrip("-")) <= digits)
            return _reads(UNIT, unit)
        if patterns := list(_patterns(text, with_clock=column.type != DATE)):
            name = f"{self.prefix}{_OPTION[column.type]}"
            said = (f"'{name}' = {literal(pattern)}" for pattern in patterns[:2])
            return f"{' or '.join(said)} reads it"
        if column.type == DATE and any(_patterns(text, with_clock=True)):
            return "declare it TIMESTAMP"
        return f"set '{self.prefix}{_OPTION[column.type]}' to its format, or declare it STRING"

    def _can_be_date(self, text: str) -> bool:
        return len(text) == 14 and text[:2] in ("19", "20")

    def _other_width(self, record: str, width: int) -> str:
        wanted = len(self.columns)
        values = "1 value" if width == 1 else f"{width} values"
        counted = f"it has {values}, but {wanted} columns are declared"
        for separator in SEPARATORS:
            options = {**self.source.options, "sep": separator}
            if wanted > 1 and len(next(records(iter([record]), options), [])) == wanted:
                written = {"\t": "\\t"}.get(separator, separator)
                return f"{counted}: {_reads('sep', written, self.prefix)}"
        return counted

    def _no_object(self, record: str) -> str:
        text = record.strip()
        if not self.prefix and text in ("{", "[", "[{") and not is_true(self.source.options, "multiline"):
            return f"it is not a JSON object: {_reads('multiLine', 'true')} where a file is one value"
        try:
            _, end = json.JSONDecoder().raw_decode(text)
        except ValueError:
            return "it is not a JSON object"
        return "more text follows its JSON object" if end < len(text) else "it is not a JSON object"


_HEADER = ("schema.header", "confluent")
_UNITS = (("s", 11), ("ms", 14), ("us", 17), ("ns", 19))
"""Of numbers with at most so many digits."""


def said_options(source: Source) -> tuple[str, dict[str, str], str] | None:
    """Return the format of a source's records, the options of its parser by names in lower case, and with
    which names these begin (``csv.``); None: it has none."""
    if source.traits.log:
        wanted, prefix = records_of(source.options), f"{parser_of(records_of(source.options))}."
        named = {
            name.removeprefix(prefix).lower(): value
            for name, value in source.options.items()
            if name.startswith(prefix) or name.lower() == UNIT
        }
        return wanted, named, prefix
    return (format_of(source.options), lowered(source.options), "") if source.traits.files else None


def record_check(source: Source) -> RecordCheck | None:
    """Return what explains broken records of a source; None: of its format nothing does."""
    said = said_options(source)
    if said is None or said[0] not in ("json", "csv", UPSERT if source.traits.log else "parquet"):
        return None
    wanted, named, prefix = said
    elsewhere = metadata_of(source) if source.traits.log else {}
    columns = tuple(column for column in source.columns if column.name not in elsewhere)
    in_order: tuple[Column | None, ...] = columns
    if wanted == "csv" and not prefix and by_name(named):
        layout = layout_at("", source, path_of(source.options), named)
        if layout is not None:
            in_order = tuple(column for _, column in layout)
    is_csv = wanted == "csv"
    if is_csv and not can_be_split(named):
        return None
    kept = {name: value for name, value in named.items() if name not in _NOT_OF_PARSERS}
    only_parsers = Source(source.name, columns, "file", kept)
    return RecordCheck(only_parsers, is_csv, in_order, prefix, is_parquet=wanted == "parquet")


def left_out_words(source: Source, sample: FirstRows) -> str:
    """Say what is known of the records that a sample of a source's files leaves out."""
    check = record_check(source)
    why = "" if check is None else check.explain(sample.first)
    files = ""
    if sample.left_out_files and sample.rows:
        path, records = sample.left_out_files[0]
        several, end = "", ""
        if (number := len(sample.left_out_files)) > 1:
            several, end = f"{number:,} files, first ", ","
        files = (
            f", including all sampled records of {several}{shown(path)} ({counted(records, 'record')}){end}"
        )
    return (
        f"{counted(sample.left_out, 'record')} left out, which are broken or which only Spark can read:"
        f" {sample.example}{f' ({why})' if why else ''}{files}"
    )


def sample_notes(plan: JobPlan) -> Iterator[str]:
    """Read the first records of each source and table of local files, and yield what is wrong with them."""
    for source in (*plan.sources, *plan.tables):
        if source.traits.files and local_path(path_of(source.options)) is not None:
            with suppress(EngineError):  # only Spark knows how, or it was said as a problem
                sample = first_rows(source, SAMPLED)
                if sample.left_out:
                    read = counted(len(sample.rows) + sample.left_out, "record")
                    yield f'"{source.name}": of the first {read} {left_out_words(source, sample)}'


_NOT_OF_PARSERS = frozenset({"path", "format"})


def object_in_text(text: str, options: Mapping[str, str]) -> Any:
    """Return the first object of a record, its fractions as they are written; None: it is none."""
    try:
        value = json.loads(text, parse_float=Decimal)
    except ValueError:
        value = parsed(text, options)
    if isinstance(value, list):
        value = next((row for row in value if isinstance(row, dict)), None)
    return value


def _is_usual_time(column: Column, value: Any) -> bool:
    return column.type.is_time and isinstance(value, str) and bool(_USUAL_TIME.match(value))


def _patterns(text: str, *, with_clock: bool) -> Iterator[str]:
    """Yield the patterns by which Spark reads a text as a time, one per order of day, month and year."""
    fraction = re.search(r"\.([0-9]{1,9})$", text)
    digits = "." + "S" * len(fraction[1]) if fraction else ""
    days = [pattern.format(mark) for mark, pattern in product("/.-", _DATES)]
    clocks = _CLOCKS if with_clock else ("",)
    every = [day + clock.format(digits) for day, clock in product(days, clocks)]
    every += [
        "yyyyMMdd",
        *(["yyyyMMddHHmmss", "yyyyMMdd HH:mm:ss", "yyyyMMdd'T'HHmmss"] if with_clock else []),
    ]
    first = set[str]()
    for pattern in every:
        read = pattern_reader(pattern)
        if pattern[0] not in first and read is not None and read(text) is not None:
            first.add(pattern[0])
            yield pattern


def _reads(name: str, value: str, prefix: str = "") -> str:
    return f"'{prefix}{name}' = '{value}' reads it"
