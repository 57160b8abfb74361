"""Find the value and the reason for which Spark rejects a record."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from itertools import product
from typing import Any

from watersmeet.errors import EngineError, format_count, printable
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.files.csv_header import SEPARATORS, can_be_split, matches_by_name, read_records
from watersmeet.runtime.files.first_rows import (
    FirstRows,
    UncertainValue,
    certain_text_reader,
    json_reader,
    read_first_rows,
)
from watersmeet.runtime.files.inference import BIG, INT, LONG, NUMBER, REAL, classify_text
from watersmeet.runtime.files.json_grammar import parse_json
from watersmeet.runtime.files.listing import format_path
from watersmeet.runtime.files.time_patterns import TimeFormats, knows_format, pattern_reader, time_formats
from watersmeet.runtime.spark.rejected_values import has_length
from watersmeet.runtime.spark.sources.files.narrow_integers import PARQUET
from watersmeet.runtime.spark.sources.frames import read_csv_layout
from watersmeet.runtime.spark.sql_text import literal
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.changes import DEBEZIUM, UPSERT
from watersmeet.spec.options.debezium import (
    DECIMALS,
    METADATA_PREFIX,
    OPTIONS,
    TIMESTAMPS,
    UNAVAILABLE,
    event_fields,
    placeholders,
    reads_decimal_texts,
    timestamps_unit,
)
from watersmeet.spec.options.files import format_of, local_path, path_of
from watersmeet.spec.options.kafka import metadata_of, parser_of, records_of
from watersmeet.spec.options.values import is_true, lower_names
from watersmeet.spec.records.text_records import DAYS, UNIT, get_declared_unit, written_as
from watersmeet.spec.time_zones import UTC
from watersmeet.types.sql_type import (
    BINARY,
    DATE,
    INTEGER_BITS,
    STRING,
    TIMES,
    TIMESTAMP,
    TIMESTAMP_NTZ,
)

# Why a record is broken: which of its values is not of its column's type, and the option that would read
# it.
#
# Only JSON, CSV, and rows of Parquet, which are shown as JSON, are explained. A record is known to be
# broken, and a value that certainly is of its column's type is not the reason; so the columns that are
# left are named.

MAX_NAMED_COLUMNS = 2
"""Columns whose values are shown."""
SAMPLE_RECORDS = 1_000
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
        """Return why Spark cannot read the record and how to read it; "" if the reason is unknown."""
        try:
            return self._reason(record)
        except Exception:  # what only explains must not stop a job
            return ""

    def _reason(self, record: str) -> str:
        if record.startswith("\0") and self.prefix:
            return f"it begins with a byte 0: {_option_hint(*_HEADER)}"
        if not self.is_csv or record.startswith("{"):
            value = find_object(record, self.source.options)
            if isinstance(value, dict):
                return self._explain_fields(value)
            if not self.is_csv:
                return self._explain_no_object(record)
        values: list[str] = next(read_records(iter([record]), self.source.options), [])
        if len(values) != len(self.columns):
            return self._explain_width(record, len(values))
        null = self.source.options.get("nullvalue", "")
        pairs = zip(self.columns, values, strict=True)
        return self._explain_misfits(
            [(c, text) for c, text in pairs if c is not None and text not in ("", null)]
        )

    def _explain_fields(self, record: Mapping[str, Any]) -> str:
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
        return self._explain_misfits(pairs)

    def _explain_misfits(self, values: Sequence[tuple[Column, Any]]) -> str:
        """Describe the values that may be the reason why Spark cannot read the record.

        Values that Spark may still be able to read are named only if there are no others.
        """
        wrong = [pair for pair in values if not self._fits(*pair)]
        certain = [(column, value) for column, value in wrong if not _is_usual_time(column, value)]
        return "; ".join(self._explain_misfit(*pair) for pair in (certain or wrong)[:MAX_NAMED_COLUMNS])

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
        if kind.is_time and is_number and not self.is_csv and get_declared_unit(self.source.options) is None:
            return kind != DATE  # seconds, to Spark
        try:
            reader = self._reader(column)
            if reader is not None:
                reader(value)
        except UncertainValue:
            return False
        except EngineError:
            return True
        return True

    def _reader(self, column: Column) -> Callable[[Any], Any] | None:
        return (certain_text_reader if self.is_csv else json_reader)(self.source, column, self._times)

    @cached_property
    def _times(self) -> TimeFormats:
        formats = {name: v for name, v in self.source.options.items() if knows_format(name, v)}
        return time_formats(formats, UTC)

    def _explain_misfit(self, column: Column, value: Any) -> str:
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
            return _option_hint("header", "true", self.prefix)
        if self.is_csv and text.lower() in _NO_VALUES:
            return _option_hint("nullValue", text, self.prefix)
        if self.is_csv and text != text.strip() and self._fits(column, text.strip()):
            both = ("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace")
            said = (f"'{self.prefix}{name}' = 'true'" for name in both)
            return f"{' and '.join(said)} read it"
        if kind in _OPTION:
            return self._time_remedy(column, text)
        number, _ = classify_text(text, {})
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
            return _option_hint(UNIT, unit)
        if patterns := list(_list_time_patterns(text, with_clock=column.type != DATE)):
            name = f"{self.prefix}{_OPTION[column.type]}"
            said = (f"'{name}' = {literal(pattern)}" for pattern in patterns[:2])
            return f"{' or '.join(said)} reads it"
        if column.type == DATE and any(_list_time_patterns(text, with_clock=True)):
            return "declare it TIMESTAMP"
        return f"set '{self.prefix}{_OPTION[column.type]}' to its format, or declare it STRING"

    def _can_be_date(self, text: str) -> bool:
        return len(text) == 14 and text[:2] in ("19", "20")

    def _explain_width(self, record: str, width: int) -> str:
        wanted = len(self.columns)
        values = "1 value" if width == 1 else f"{width} values"
        counted = f"it has {values}, but {wanted} columns are declared"
        for separator in SEPARATORS:
            options = {**self.source.options, "sep": separator}
            if wanted > 1 and len(next(read_records(iter([record]), options), [])) == wanted:
                written = {"\t": "\\t"}.get(separator, separator)
                return f"{counted}: {_option_hint('sep', written, self.prefix)}"
        return counted

    def _explain_no_object(self, record: str) -> str:
        text = record.strip()
        if not self.prefix and text in ("{", "[", "[{") and not is_true(self.source.options, "multiline"):
            return f"it is not a JSON object: {_option_hint('multiLine', 'true')} where a file is one value"
        try:
            _, end = json.JSONDecoder().raw_decode(text)
        except ValueError:
            return "it is not a JSON object"
        return "more text follows its JSON object" if end < len(text) else "it is not a JSON object"


_HEADER = ("schema.header", "confluent")
_UNITS = (("s", 11), ("ms", 14), ("us", 17), ("ns", 19))
"""Of numbers with at most so many digits."""


def find_parser_options(source: Source) -> tuple[str, dict[str, str], str] | None:
    """Return the parser options of a source's records.

    Returns:
        Format of the records, options of its parser by names in lower case, and the prefix of these names
        (``csv.``). None if the source has no parser.
    """
    if source.traits.log:
        wanted, prefix = records_of(source.options), f"{parser_of(records_of(source.options))}."
        named = {
            name.removeprefix(prefix).lower(): value
            for name, value in source.options.items()
            if name.startswith(prefix) or name.lower() == UNIT
        }
        return wanted, named, prefix
    return (format_of(source.options), lower_names(source.options), "") if source.traits.files else None


def record_check(source: Source) -> RecordCheck | None:
    """Return what explains broken records of a source; None: of its format nothing does."""
    said = find_parser_options(source)
    if said is None or said[0] not in ("json", "csv", UPSERT if source.traits.log else "parquet"):
        return None
    wanted, named, prefix = said
    elsewhere = metadata_of(source) if source.traits.log else {}
    columns = tuple(column for column in source.columns if column.name not in elsewhere)
    in_order: tuple[Column | None, ...] = columns
    if wanted == "csv" and not prefix and matches_by_name(named):
        layout = read_csv_layout("", source, path_of(source.options), named)
        if layout is not None:
            in_order = tuple(column for _, column in layout)
    is_csv = wanted == "csv"
    if is_csv and not can_be_split(named):
        return None
    kept = {name: value for name, value in named.items() if name not in _NOT_OF_PARSERS}
    only_parsers = Source(source.name, columns, "file", kept)
    return RecordCheck(only_parsers, is_csv, in_order, prefix, is_parquet=wanted == "parquet")


def describe_left_out(source: Source, sample: FirstRows) -> str:
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
            f", including all sampled records of {several}{format_path(path)} "
            f"({format_count(records, 'record')}){end}"
        )
    return (
        f"{format_count(sample.left_out, 'record')} left out, which are broken or which only Spark can read:"
        f" {sample.example}{f' ({why})' if why else ''}{files}"
    )


def list_sample_notes(plan: JobPlan) -> Iterator[str]:
    """Read the first records of each source and table of local files, and yield what is wrong with them."""
    for source in (*plan.sources, *plan.tables):
        if source.traits.files and local_path(path_of(source.options)) is not None:
            with suppress(EngineError):  # only Spark knows how, or it was said as a problem
                sample = read_first_rows(source, SAMPLE_RECORDS)
                if sample.left_out:
                    read = format_count(len(sample.rows) + sample.left_out, "record")
                    yield f'"{source.name}": of the first {read} {describe_left_out(source, sample)}'


_NOT_OF_PARSERS = frozenset({"path", "format"})


def find_object(text: str, options: Mapping[str, str]) -> Any:
    """Return the first object of a record, its fractions as they are written; None: it is none."""
    try:
        value = json.loads(text, parse_float=Decimal)
    except ValueError:
        value = parse_json(text, options)
    if isinstance(value, list):
        value = next((row for row in value if isinstance(row, dict)), None)
    return value


def _is_usual_time(column: Column, value: Any) -> bool:
    return column.type.is_time and isinstance(value, str) and bool(_USUAL_TIME.match(value))


def _list_time_patterns(text: str, *, with_clock: bool) -> Iterator[str]:
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


def _option_hint(name: str, value: str, prefix: str = "") -> str:
    return f"'{prefix}{name}' = '{value}' reads it"


# Why an event of Debezium's is broken: a value that is not of its column's type, or what it lacks.
#
# Of records of other formats `broken_records` says it.

_OPS = ("c", "r", "u", "d")
_PARTS = ("before", "after")
_IDENTITY = "the table needs REPLICA IDENTITY FULL (PostgreSQL), or a PRIMARY KEY here"
_EVENT_UNITS = ((14, "millis"), (17, "micros"), (20, "nanos"))
"""Of numbers with at most so many digits, and a sign."""


@dataclass(frozen=True, kw_only=True)
class EventCheck(RecordCheck):
    """Explains broken events of a source.

    Attributes:
        declared: the source with all of its columns, and the options that say how its events are read.
        is_described: the record's schema says what its numbers and bytes are.
    """

    declared: Source
    is_described: bool = False

    def _reason(self, record: str) -> str:
        whole = find_object(record, self.source.options)
        if not isinstance(whole, dict):
            return self._explain_no_object(record)
        payload = whole.get("payload")
        event = payload if isinstance(payload, dict) else whole
        if not {"op", *_PARTS} & event.keys():
            return self._of_row(event)
        return replace(self, is_described=bool(whole.get("schema")))._explain_event(event)

    def _of_row(self, record: Mapping[str, Any]) -> str:
        """Explain a record that is not an event, or an event row that does not identify its change."""
        key, names = self.declared.primary_key, {column.name for column in self.declared.columns}
        if key is not None and record.keys() <= names:
            if lacking := [name for name in key.columns if record.get(name) is None]:
                return f"its row has no {', '.join(lacking)}, which is in the PRIMARY KEY"
            if key.sequence is not None and record.get(key.sequence) is None:
                return f"its row has no {key.sequence}, which orders the changes"
        if too_long := [
            pair for pair in self._values(record) if pair[0].type.length and not self._fits(*pair)
        ]:
            return self._explain_misfits(too_long)
        return "it has no op, before or after, unlike a Debezium event"

    def _explain_event(self, event: Mapping[str, Any]) -> str:
        op = event.get("op")
        rows = {part: event.get(part) for part in _PARTS}
        for part, row in rows.items():
            if row is not None and not isinstance(row, dict):
                return f"{part} is not a JSON object"
            if row is not None and (why := self._explain_fields(row)):
                return f"in {part}, {why}"
        if op not in _OPS:
            return "it has no op" if op is None else f"op is '{printable(str(op))}', not c, r, u or d"
        return "; ".join(self._explain_missing_rows(op, rows["before"], rows["after"]))

    def _explain_missing_rows(
        self, op: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
    ) -> Iterator[str]:
        key = self.declared.primary_key
        if op != "d" and after is None:
            yield f"op is '{op}', but it has no after"
        if key is None and op in ("u", "d") and before is None:
            yield f"op is '{op}', but it has no before: {_IDENTITY}"
        if key is not None and op == "d" and (lacking := _list_missing_columns(before, key.columns)):
            yield f"op is 'd', but neither before nor the record's key has {', '.join(lacking)}"
        if key is not None and op != "d" and after is not None:
            of_row = [name for name in key.named if name not in event_fields(self.declared)]
            if lacking := _list_missing_columns(after, of_row):
                yield f"after has no {', '.join(lacking)}"
        for column, value in self._values(after or {}):
            if _is_left_out(column, value):
                yield f"neither after nor before has {column.name}: {_IDENTITY}"
                return

    def _fits(self, column: Column, value: Any) -> bool:
        kind, is_text = column.type, isinstance(value, str)
        if self.is_described and (kind.is_decimal or kind in TIMES):
            return True  # by the schema, which is not looked at here
        if kind.is_decimal and is_text and not reads_decimal_texts(self.declared.options):
            return False
        if kind in TIMES and is_text and re.fullmatch("-?[0-9]+", value):
            value, is_text = int(value), False
        if kind in TIMES and isinstance(value, int) and not isinstance(value, bool):
            return value in DAYS if kind == DATE else timestamps_unit(self.declared.options) is not None
        return super()._fits(column, value)

    def _remedy(self, column: Column, text: str, *, is_text: bool) -> str:
        kind = column.type
        if kind.is_decimal and is_text and not reads_decimal_texts(self.declared.options):
            return f"with decimal.handling.mode = string, '{DECIMALS}' = 'string' reads it"
        if kind in TIMES and kind != DATE and re.fullmatch("-?[0-9]+", text):
            unit = next((unit for digits, unit in _EVENT_UNITS if len(text) <= digits), None)
            if unit is not None and timestamps_unit(self.declared.options) is None:
                return f"'{TIMESTAMPS}' = '{unit}' reads it"
        return super()._remedy(column, text, is_text=is_text)

    def _values(self, row: Mapping[str, Any]) -> list[tuple[Column, Any]]:
        named = ((column, written_as(row, column.name)) for column in self.columns if column is not None)
        return [(c, row[name]) for c, name in named if name is not None and row[name] is not None]


def _list_missing_columns(row: Mapping[str, Any] | None, names: Sequence[str]) -> list[str]:
    """Return the columns that a row does not have, or that are NULL in it."""
    values = {} if row is None else row
    return [name for name in names if (own := written_as(values, name)) is None or values.get(own) is None]


def _is_left_out(column: Column, value: Any) -> bool:
    if column.type == BINARY:
        return bool(value == b64encode(UNAVAILABLE.encode()).decode())
    return (list(value.items()) if isinstance(value, dict) else value) in placeholders(column.type)


def build_check(source: Source) -> RecordCheck | None:
    """Return what explains broken records of a source, also of Debezium's events; None: nothing does."""
    said = find_parser_options(source)
    if said is None or said[0] != DEBEZIUM:
        return record_check(source)
    _, options, prefix = said
    fields = event_fields(source)
    columns = tuple(column for column in source.columns if column.name not in fields)
    declared = replace(source, options={n: v for n, v in source.options.items() if _reads_events(n.lower())})
    return EventCheck(
        Source(source.name, columns, "file", options), False, columns, prefix, declared=declared
    )


def _reads_events(name: str) -> bool:
    """Return True if `EventCheck` needs the option.

    Tasks receive these options, and no passwords.
    """
    return name in OPTIONS or name.startswith(METADATA_PREFIX)
