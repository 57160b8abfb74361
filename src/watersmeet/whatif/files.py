"""Files of a sample, read by the source's own options."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from mmap import ACCESS_READ, mmap
from typing import Any

import pyarrow as pa
from pyarrow import csv, json, parquet

from watersmeet.errors import EngineError, SpecError, WatersmeetError, near_names, raise_all
from watersmeet.expressions.base import Fails
from watersmeet.expressions.casts import text_to_date, text_to_timestamp, text_to_wall
from watersmeet.expressions.times import parse_time, read_pattern
from watersmeet.expressions.typed_tree import UnsupportedExpression
from watersmeet.kernel.batches import one_array
from watersmeet.names import DIFF, PARTITION
from watersmeet.regular_files import named_files
from watersmeet.runtime.files.csv_header import matches_by_name
from watersmeet.runtime.files.open_files import FORMATS, format_by_name
from watersmeet.runtime.files.text_values import to_instants
from watersmeet.runtime.local.input_rows import coerce_rows
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.files import ANY_READER, OF_SOURCES, format_of
from watersmeet.spec.options.kafka import parser_of, records_of
from watersmeet.spec.options.values import is_true, lower_names, separator_in
from watersmeet.spec.records.text_records import UNIT
from watersmeet.types.arrow import in_arrow
from watersmeet.types.sql_type import TIMESTAMP, SqlType
from watersmeet.whatif.sample import SampleSource

# How texts of a sample are read: by the options that the source has for files of the same format.

_OF_FILES = frozenset(name.lower() for name in (*ANY_READER, *OF_SOURCES) if name != UNIT)
"""Which files there are, and not what is in them."""
_BACKSLASH = "\\"
_WALL = pa.timestamp("us")
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

    def csv_arguments(self, source: Source) -> dict[str, Any]:
        """Return how pyarrow reads CSV files of the source, but for the types."""
        quote = self.given.get("quote", '"')[:1]
        by_name = matches_by_name(self.given)
        has_header = self.given.get("header", "true").strip().lower() == "true"
        names = {} if by_name else {"column_names": [column.name for column in source.columns]}
        return {
            "read_options": csv.ReadOptions(skip_rows=int(has_header and not by_name), **names),
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
        """The text that means NULL in CSV."""
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
        """Return a parser of texts by a type's pattern, to clock times in µs; None without a pattern."""
        pattern = self.given.get(_TIMES.get(type_.name, ""))
        if pattern is None:
            return None
        pieces = read_pattern(pattern)
        return lambda texts: parse_time(texts, pieces)


def text_options(source: Source, wanted: str) -> TextOptions:
    """Return the options by which a source reads files of a format; none if its own format differs.

    Raises:
        SpecError: only Spark can interpret one of the options.
    """
    given = _source_options(source, wanted)
    for name, value in given.items():
        if not _is_known(name, value, wanted, given.get("quote", '"')):
            said = f"'{name}' = '{value}'"
            raise SpecError(
                f'the sample of "{source.name}": only Spark supports {said} for {wanted}',
                code="not-tried",
                hint="write the sample as Parquet with Spark: spark.read….write.parquet('sample')",
            )
    return TextOptions(given)


def _source_options(source: Source, wanted: str) -> Mapping[str, str]:
    if source.traits.log:
        if parser_of(records_of(source.options)) != wanted:
            return {}
        prefix = f"{wanted}."
        return lower_names(
            {n.removeprefix(prefix): v for n, v in source.options.items() if n.startswith(prefix)}
        )
    if not source.traits.files or format_of(source.options) != wanted:
        return {}
    return {name: value for name, value in lower_names(source.options).items() if name not in _OF_FILES}


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


# Files of a sample: Parquet, CSV and JSON, these two by the source's own options; what their rows are, in
# order.
#
# The order of the rows is that of the files as they are given (those of a directory, or of a pattern, by
# name), and in each that of its rows. First all files of all sources are looked at, then any is read.


@dataclass(frozen=True)
class FileRequest:
    """Request to read the files of one source.

    Attributes:
        paths: files, directories, patterns.
        needed: the columns that the job uses.
        first_time: see `SampleSource`.
        arrival: any column of the files that has the arrival time of a row.
        partition: any column of the files that has the partition of a row.
    """

    source: Source
    paths: Sequence[str]
    needed: frozenset[str]
    first_time: str
    arrival: str | None = None
    partition: str | None = None


def read(asked: Sequence[FileRequest], time_zone: str) -> list[SampleSource]:
    """Read all rows of all sources.

    Args:
        time_zone: time zone of texts of times that have none.

    Raises:
        SpecError, EngineError: files are missing, cannot be read, or lack columns, or values have other
            types.
        SeveralErrors: there are several of these problems.
    """
    problems: list[WatersmeetError] = []
    files: list[list[str]] = []
    for own in asked:
        paths_there, wrong = _check_files(own)
        files.append(paths_there)
        problems += wrong
    raise_all(problems)
    given = []
    for own, paths in zip(asked, files, strict=True):
        try:
            given.append(_read_given(own, paths, time_zone))
        except WatersmeetError as error:
            problems.append(error)
    raise_all(problems)
    return given


def _check_files(asked: FileRequest) -> tuple[list[str], list[WatersmeetError]]:
    problems: list[WatersmeetError] = []
    files: list[str] = []
    name = asked.source.name
    for path in asked.paths:
        paths_there = named_files(path)
        if not paths_there:
            problems.append(
                SpecError(
                    f'the sample of "{name}": no file exists at {path}',
                    code="path-missing",
                    hint="use a file, a directory of files, or a pattern such as 'orders/*.parquet'",
                )
            )
        files += paths_there
    for file in files:
        problems += _check_file(asked, file)
    return files, problems


def _check_file(asked: FileRequest, file: str) -> Iterator[WatersmeetError]:
    where = f'the sample of "{asked.source.name}": {file}'
    wanted = format_by_name(file)
    if wanted is None:
        yield SpecError(
            f"{where}: its name does not show its format",
            code="unknown-format",
            hint=f"rename it to end in {', '.join(FORMATS)}",
        )
        return
    try:
        there = [*_names_in(asked, file, wanted).values()]
    except SpecError as error:
        yield error
        return
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        yield _unreadable(where, error)
        return
    for column, why in _columns(asked).items():
        if column not in there:
            yield SpecError(
                f'{where} has no column "{column}"{why}',
                code="missing-column",
                hint=near_names(column, there),
            )


def _columns(asked: FileRequest) -> dict[str, str]:
    """Return the required columns, each with the reason for an error message."""
    columns = {c.name: "" for c in asked.source.columns if c.name in asked.needed}
    for name, option in ((asked.arrival, "--arrival"), (asked.partition, "--partition")):
        if name is not None and name not in columns:
            columns[name] = f", which {option} names"
    return columns


def _unreadable(where: str, error: Exception) -> EngineError:
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error).splitlines()[0]
    return EngineError(f"{where} cannot be read: {said}", code="file-unreadable")


def _names_in(asked: FileRequest, file: str, wanted: str) -> dict[str, str]:
    """Return the columns of a file by their names in it: as they are declared, or named by an option."""
    names = _NAMES[wanted](asked, file)
    wanted_names = [*(column.name for column in asked.source.columns), *_columns(asked)]
    by_plain_name = {name.lower(): name for name in wanted_names}
    exact = set(names) & set(wanted_names)
    columns: dict[str, str] = {}
    for name in names:
        meant = by_plain_name.get(name.strip().lower(), name)
        columns[name] = name if meant in exact or meant in columns.values() else meant
    return columns


def _names_of_csv(asked: FileRequest, file: str) -> list[str]:
    options = text_options(asked.source, "csv")
    if options.has_escapes(file):
        raise SpecError(
            f'the sample of "{asked.source.name}": {file} has quotes after backslashes, which only'
            " Spark can read",
            code="not-tried",
            hint="write the sample as Parquet, or with 'escape' = '\"' and doubled quotes",
        )
    if not matches_by_name(options.given):
        return [column.name for column in asked.source.columns]
    with csv.open_csv(file, **options.csv_arguments(asked.source)) as reader:
        return list(reader.schema.names)


def _names_of_json(asked: FileRequest, file: str) -> list[str]:
    if os.path.getsize(file) == 0:
        raise pa.ArrowInvalid("it is empty")
    options = text_options(asked.source, "json")
    with json.open_json(file, **options.json_arguments(pa.schema([]))) as reader:
        return list(reader.schema.names)


_NAMES: Mapping[str, Callable[[FileRequest, str], Sequence[str]]] = {
    "parquet": lambda asked, file: parquet.read_schema(file).names,
    "csv": _names_of_csv,
    "json": _names_of_json,
}


def _read_given(asked: FileRequest, files: Sequence[str], time_zone: str) -> SampleSource:
    tables = []
    for file in files:
        wanted = format_by_name(file) or ""
        try:
            in_file = {meant: name for name, meant in _names_in(asked, file, wanted).items()}
            columns = [*_columns(asked)]
            table = _READERS[wanted](asked, file, {in_file.get(name, name): name for name in columns})
            table = table.rename_columns(columns)
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise _unreadable(f'the sample of "{asked.source.name}": {file}', error) from None
        tables.append(_parse_times(asked, file, wanted, table, time_zone))
    try:
        together = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise EngineError(
            f'the files of the sample of "{asked.source.name}" have columns of different types:'
            f" {str(error).splitlines()[0]}",
            code="wrong-type",
        ) from None
    own = [column for column in asked.source.columns if column.name in asked.needed]
    needed = replace(asked.source, columns=tuple(own), primary_key=None, change_column=None)
    rows = coerce_rows(
        needed, together.select([column.name for column in own]), naive_is_utc=time_zone == "UTC"
    )
    rows = rows.drop_columns([PARTITION, DIFF])
    return SampleSource(
        asked.source,
        _fill_missing_columns(asked.source, rows),
        asked.first_time,
        None if asked.arrival is None else _arrival(asked, together),
        None if asked.partition is None else together.column(asked.partition).cast(pa.string()),
    )


def _fill_missing_columns(source: Source, rows: pa.Table) -> pa.Table:
    """Add NULL columns for the declared columns that no query uses."""
    there = set(rows.column_names)
    columns = [
        rows.column(column.name)
        if column.name in there
        else pa.chunked_array([pa.nulls(rows.num_rows, in_arrow(column.type) or pa.null())])
        for column in source.columns
    ]
    return pa.table(columns, names=[column.name for column in source.columns])


def _arrival(asked: FileRequest, rows: pa.Table) -> pa.ChunkedArray:
    column = rows.column(asked.arrival)
    types = pa.types
    if not (types.is_timestamp(column.type) or types.is_integer(column.type) or types.is_date32(column.type)):
        raise SpecError(
            f'the column "{asked.arrival}" of "{asked.source.name}" is {column.type}, which cannot be'
            " an arrival time",
            code="wrong-type",
            hint="use a column of times or whole numbers for --arrival",
        )
    if types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", column.type.tz), safe=False)
    return column


def _from_parquet(asked: FileRequest, file: str, names: Mapping[str, str]) -> pa.Table:
    return parquet.ParquetFile(file).read(columns=list(names)).select(list(names))


def _from_csv(asked: FileRequest, file: str, names: Mapping[str, str]) -> pa.Table:
    options = text_options(asked.source, "csv")
    convert = csv.ConvertOptions(
        include_columns=list(names),
        column_types=_types_of_texts(asked, names),
        strings_can_be_null=True,
        null_values=[options.null_value],
    )
    return csv.read_csv(file, **options.csv_arguments(asked.source), convert_options=convert)


def _from_json(asked: FileRequest, file: str, names: Mapping[str, str]) -> pa.Table:
    schema = pa.schema(list(_types_of_texts(asked, names).items()))
    options = text_options(asked.source, "json")
    return json.read_json(file, **options.json_arguments(schema)).select(list(names))


_READERS: Mapping[str, Callable[[FileRequest, str, Mapping[str, str]], pa.Table]] = {
    "parquet": _from_parquet,
    "csv": _from_csv,
    "json": _from_json,
}
"""Per format what reads columns of a file. Called with the names in the file, and what each is."""


def _types_of_texts(asked: FileRequest, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the types in which columns of a file are read, by their names in the file.

    Times are read as texts first, and partitions are texts.
    """
    types = {}
    for in_file, name in names.items():
        column = asked.source.column(name)
        if column is not None and column.name in asked.needed:
            kind = (
                pa.string() if column.type.is_time and not column.type.is_integer else in_arrow(column.type)
            )
            if kind is not None:
                types[in_file] = kind
        elif name == asked.partition:
            types[in_file] = pa.string()
    return types


def _parse_times(asked: FileRequest, file: str, wanted: str, table: pa.Table, time_zone: str) -> pa.Table:
    """Parse the texts of declared times, and of the arrival column, as times."""
    options = text_options(asked.source, wanted) if wanted != "parquet" else TextOptions({})
    for place, name in enumerate(table.column_names):
        column = asked.source.column(name) if name in asked.needed else None
        if column is None and name == asked.arrival:
            column = Column(name, TIMESTAMP)
        if column is None or not column.type.is_time or not pa.types.is_string(table.schema.field(name).type):
            continue
        try:
            read_times = _times(table.column(name), column, time_zone, options)
        except Fails as fails:
            value = table.column(name)[fails.row].as_py()
            raise EngineError(
                f'the sample of "{asked.source.name}": {file}, row {fails.row + 1}: "{name}" is'
                f" {value!r}, but {fails.what}",
                code="bad-value",
            ) from None
        table = table.set_column(place, name, read_times)
    return table


def _times(texts: pa.ChunkedArray, column: Column, time_zone: str, options: TextOptions) -> pa.Array:
    text = one_array(texts)
    reader = options.time_reader(column.type)
    if reader is not None:
        walls = reader(text).view(_WALL)
        if column.type.name == "DATE":
            return walls.cast(pa.date32())
        return to_instants(walls, time_zone) if column.type == TIMESTAMP else walls
    if column.type.name == "DATE":
        return text_to_date(text).view(pa.date32())
    if column.type != TIMESTAMP:
        return text_to_wall(text).view(_WALL)
    return text_to_timestamp(text, time_zone).view(pa.timestamp("us", "UTC"))
