"""Options of file sources and sinks, also in object stores: path, format, types of a format."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Annotated, Literal
from urllib.parse import quote, unquote, urlsplit

from watersmeet.errors import SpecError, near_names
from watersmeet.spec.connectors import OF_ALL_SOURCES
from watersmeet.spec.model import Column, Sink, Source
from watersmeet.spec.options.changes import DEBEZIUM, UPSERT
from watersmeet.spec.options.debezium import EVENT_FIELDS, METADATA_PREFIX, is_event_field
from watersmeet.spec.options.debezium import OPTIONS as OF_DEBEZIUM
from watersmeet.spec.options.debezium import value_problems as debezium_problems
from watersmeet.spec.options.model import ANY_CASE, Endpoint, SystemOptions, Text
from watersmeet.spec.options.values import Use, lower_names, value_problems, wrong_value
from watersmeet.spec.records.text_records import UNIT, unit_problems
from watersmeet.spec.secrets import public_option
from watersmeet.types.sql_type import CALENDAR_INTERVAL, STRING, SqlType

# Which types the records of a format can hold, as Spark reads and writes them.

_NOT_IN_CSV = ("ARRAY", "MAP", "STRUCT", "BINARY", "VARIANT", "VOID")


def type_problems(source: Source, format_: str) -> list[SpecError]:
    """Return problems of columns that Spark cannot read from such records.

    Spark would report them only after the start (CSV), or fail in the first tick by an error of its
    own casts (JSON).
    """
    if format_ == "csv":
        return [
            _wrong(
                source,
                column.name,
                column.type,
                "CSV cannot hold such values",
                "declare it as STRING and parse it in a view",
            )
            for column in source.columns
            if column.type.is_nested or column.type.is_void
        ]
    if format_ == "json":
        return [
            _wrong(source, column.name, column.type, "keys in JSON are text", "declare MAP<STRING, …>")
            for column in source.columns
            if _other_keys(column.type)
        ]
    return []


def check_written(sink: Sink, format_: str, columns: Iterable[Column]) -> None:
    """Raise for the first column that could not be read again as what it was.

    Raises:
        SpecError: Spark has no form for such values, or one that nobody reads (``[61 62]``, ``{a -> 1}``).
    """
    for column in columns:
        unheld = column.type == CALENDAR_INTERVAL and format_ in ("parquet", "json", "csv")
        if unheld or (format_ == "csv" and column.type.name in _NOT_IN_CSV):
            what = "CSV" if format_ == "csv" else format_.capitalize() if unheld else format_
            raise SpecError(
                f'{what} cannot hold column "{column.name}" of type {column.type} ("{sink.name}")',
                code="type-not-supported",
                hint="write it as an INTERVAL DAY TO SECOND or YEAR TO MONTH, or as text"
                if unheld
                else "write Parquet or JSON, or write the column as text: to_json(…)",
            )


def _other_keys(type_: SqlType) -> bool:
    """Return True if the type contains a MAP whose keys are not texts."""
    return (type_.entry is not None and type_.entry[0] != STRING) or any(map(_other_keys, type_.inner))


def _wrong(source: Source, column: str, type_: SqlType, why: str, hint: str) -> SpecError:
    return SpecError(
        f'"{source.name}": the column "{column}" cannot be read as {type_}: {why}',
        code="wrong-types",
        hint=hint,
    )


# Options of file sinks whose path is in an object store, as far as a text tells.

STORES = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az"}
"""Schemes of paths, and what clients call them."""
_CREDENTIALS = "set credentials in the environment of each process, such as AWS_ACCESS_KEY_ID"
_UNSAFE = re.compile(r"[%?#*\[\]{}\\^`|<>~\x00-\x1f\x7f]|//|/\.{1,2}(/|$)")
"""In a path: what clients, or readers, take for something else."""


class StoredFileOptions(SystemOptions):
    """The options of a file sink whose path is in an object store."""

    credentials = _CREDENTIALS

    path: Text
    format: Text = "parquet"
    compression: Annotated[Literal["snappy", "zstd", "gzip", "none"], ANY_CASE] = "snappy"
    endpoint: Endpoint = ""
    region: Text = ""

    @property
    def url(self) -> str:
        """The path without a slash at its end, by its client's scheme."""
        parts = urlsplit(self.path)
        return f"{STORES[parts.scheme]}://{parts.netloc}{parts.path.rstrip('/')}"


def in_store(path: str) -> bool:
    """Return True if the path is in an object store."""
    return urlsplit(path).scheme in STORES


def parts_in_store(path: str) -> tuple[str, ...]:
    """Split a path that is `in_store` into the bucket and the names between slashes.

    Equal locations have equal tuples.
    """
    parts = urlsplit(path)
    return (f"{STORES[parts.scheme]}://{parts.netloc}", *filter(None, parts.path.split("/")))


def stored_problems(what: str, options: Mapping[str, str]) -> Iterator[SpecError]:
    """Yield problems of the options of a file sink whose path is `in_store`.

    Args:
        what: The sink, as messages name it.
    """
    yield from StoredFileOptions.problems(what, options, where=" for an object store")
    given = lower_names(options)
    if given.get("format", "parquet").strip().lower() in ("json", "csv"):
        yield SpecError(
            f'{what} writes Parquet to an object store, not "{given["format"].strip()}"',
            code="format-not-supported",
            hint="remove 'format', or write to a directory",
        )
    path, region = given["path"].strip(), given.get("region", "").strip()
    parts = urlsplit(path)
    if not parts.netloc or "@" in parts.netloc or not parts.path.strip("/"):
        yield SpecError(
            f"{what}: 'path' must name a directory inside a bucket",
            code="wrong-option",
            hint=f"for example 'path' = '{parts.scheme}://bucket/delivered'; {_CREDENTIALS}",
        )
    elif _UNSAFE.search(path.split("://", 1)[1].rstrip("/")):
        yield SpecError(
            f"{what}: 'path' contains characters that object stores interpret differently",
            code="wrong-option",
            hint="use only letters, digits, spaces and - _ . = ! between single slashes",
        )
    if region and STORES[parts.scheme] != "s3":
        yield wrong_value(what, "region", region, "remove it: it is for S3 only")


# What files a source reads and a sink writes: path, format and options, as far as a text tells.
#
# Options are those of Spark's readers and writers that mean something here; others are refused by name,
# whatever the cases of their letters. Each check returns all that it finds.

FILE_READER = "file_reader"


class FileReader(Enum):
    """Reader of the files of a job's streams.

    ``AUTO``: the driver or tasks, by Arrow, where the result equals that of Spark's readers;
    otherwise Spark. ``SPARK``: always Spark.
    """

    AUTO = "auto"
    SPARK = "spark"


def reader_in(settings: Mapping[str, str]) -> FileReader:
    """Return the reader that the checked settings of a run name."""
    return FileReader(settings.get(FILE_READER, FileReader.AUTO.value))


FORMATS = ("parquet", "json", "csv")
COMPRESSED = frozenset({".gz", ".bz2", ".zst", ".zstd", ".lz4", ".snappy", ".deflate", ".zip", ".xz"})
"""How names of files of text end that are compressed, in lower case."""
LONGEST_NAME = 200
"""Of a sink, quoted: names of its files add a tick and a number, and file systems allow 255 bytes."""
OURS = ("path", "format")
ON_CHANGED_FILE = "on_changed_file"
ON_MISSING_COLUMN = "on_missing_column"
OF_SOURCES = (*OURS, ON_CHANGED_FILE, ON_MISSING_COLUMN, UNIT)
"""What Spark's readers are not told."""

_OF_STREAMS = (
    "maxFilesPerTrigger", "maxBytesPerTrigger", "latestFirst", "maxFileAge", "fileNameOnly", "maxCachedFiles",
    "discardCachedInputRatio", "cleanSource", "sourceArchiveDir",
)  # fmt: skip
ANY_READER = (
    *_OF_STREAMS, "pathGlobFilter", "recursiveFileLookup", "ignoreCorruptFiles", "ignoreMissingFiles",
    "basePath",
)  # fmt: skip
SPECIFIC_TO_FILES = frozenset(ANY_READER)
"""Of what a source may say: what parsing alone knows not."""

_TEXT = (
    "encoding", "charset", "lineSep", "locale", "timeZone", "dateFormat", "timestampFormat",
    "timestampNTZFormat", "enableDateTimeParsingFallback", "multiLine",
)  # fmt: skip
_JSON = (
    *ANY_READER, *_TEXT, "primitivesAsString", "allowComments", "allowUnquotedFieldNames",
    "allowSingleQuotes", "allowNumericLeadingZeros", "allowBackslashEscapingAnyCharacter",
    "allowUnquotedControlChars", "allowNonNumericNumbers",
)  # fmt: skip
_NOT_OF_LINES = ("encoding", "charset", "multiLine")
"""An event is a line of UTF-8."""
READERS = {
    "parquet": (*ANY_READER, "mergeSchema", "datetimeRebaseMode", "int96RebaseMode"),
    "json": _JSON,
    DEBEZIUM: (
        *(name for name in _JSON if name not in _NOT_OF_LINES), *OF_DEBEZIUM, f"{METADATA_PREFIX}<column>",
    ),
    "csv": (
        *ANY_READER, *_TEXT, "header", "sep", "delimiter", "quote", "escape", "charToEscapeQuoteEscaping",
        "comment", "enforceSchema", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "nullValue",
        "emptyValue", "nanValue", "positiveInf", "negativeInf", "maxColumns", "maxCharsPerColumn",
        "unescapedQuoteHandling",
    ),
}  # fmt: skip
"""What a source may say, per format."""

_TEXT_OUT = (
    "compression", "maxRecordsPerFile", "encoding", "charset", "lineSep", "locale", "timeZone", "dateFormat",
    "timestampFormat", "timestampNTZFormat",
)  # fmt: skip
WRITERS = {
    "parquet": ("compression", "maxRecordsPerFile", "datetimeRebaseMode", "int96RebaseMode"),
    "json": (*_TEXT_OUT, "ignoreNullFields", "pretty", "writeNonAsciiCharacterAsCodePoint"),
    "csv": (
        *_TEXT_OUT, "codec", "header", "sep", "delimiter", "quote", "escape", "charToEscapeQuoteEscaping",
        "escapeQuotes", "quoteAll", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "nullValue",
        "emptyValue", "nanValue", "positiveInf", "negativeInf", "comment",
    ),
}  # fmt: skip
"""What a sink may say, per format. To Parquet anything with a dot is a setting of the format itself."""

_LOSING = {
    "maxfileage": "Spark would skip older files silently",
    "latestfirst": "files must be read in the order of their times; otherwise rows of older files are late",
    "filenameonly": "Spark would read only one of two files with the same name in different directories",
    "ignorecorruptfiles": "rows would be lost silently: remove or correct the file",
    "ignoremissingfiles": "rows would be lost silently; 'on_changed_file' = 'warn' counts such files",
}
"""Options of a stream that may be 'false' at most, and why."""

_POINTLESS = {
    "mode": "records that do not parse are counted; SET broken_output writes them to a sink",
    "columnnameofcorruptrecord": "SET broken_output writes records that do not parse to a sink",
    "badrecordspath": "SET broken_output writes records that do not parse to a sink",
    "inferschema": "the source has the declared columns",
    "samplingratio": "the source has the declared columns",
}
"""Options that Spark has, and that would do nothing here."""


def source_problems(source: Source, *, table: bool = False) -> list[SpecError]:
    """Return problems of the options of a file source.

    Args:
        table: The source is read completely and repeatedly.
    """
    what = f'table "{source.name}"' if table else f'file source "{source.name}"'
    problems = _common(what, "read", source.options, "in/orders")
    wanted = format_of(source.options)
    if wanted in READERS:
        names = [
            *(name for name in OF_SOURCES if not (table and name == ON_CHANGED_FILE)),
            *(name for name in READERS[wanted] if not (table and name in _OF_STREAMS)),
            *(f"{METADATA_PREFIX}{column.name}" for column in source.columns if wanted == DEBEZIUM),
        ]
        problems += _unknown(what, wanted, source.options, names, READERS)
        problems += _values(what, wanted, source.options, names, Use.READ)
    if wanted == DEBEZIUM:
        problems += debezium_problems(what, source)
        for name, value in source.options.items():
            if name.lower().startswith(METADATA_PREFIX) and not is_event_field(value):
                problems.append(wrong_value(what, name, value, f"name a field of the event: {EVENT_FIELDS}"))
    problems += unit_problems(what, source, wanted)
    problems += _of_missing_columns(what, source.options, wanted)
    given = {name.lower() for name in source.options}
    if not table:
        problems += _losing(what, source.options)
    if not table and {"maxfilespertrigger", "maxbytespertrigger"} <= given:
        problems.append(
            SpecError(
                f"{what} has both maxFilesPerTrigger and maxBytesPerTrigger",
                code="wrong-option",
                hint="remove one of them",
            )
        )
    return problems


def sink_problems(sink: Sink) -> list[SpecError]:
    """Return problems of the options of a file sink."""
    what = f'file sink "{sink.name}"'
    problems = _common(what, "write", sink.options, "out/delivered")
    wanted = format_of(sink.options)
    path = path_of(sink.options)
    if in_store(path):
        problems += stored_problems(what, sink.options)
    elif wanted in WRITERS:
        settings = [name for name in sink.options if wanted == "parquet" and "." in name]
        problems += _unknown(what, wanted, sink.options, [*OURS, *WRITERS[wanted], *settings], WRITERS)
        problems += _values(what, wanted, sink.options, WRITERS[wanted], Use.WRITE)
    if len(quote(sink.name, safe="")) > LONGEST_NAME:
        problems.append(
            SpecError(
                f'file sink "{sink.name[:40]}…": its name is too long for a directory name',
                code="name-too-long",
                hint="use a shorter name; characters other than ASCII letters and digits count three"
                " times or more",
            )
        )
    if path and local_path(path) is None and not in_store(path):
        problems.append(
            SpecError(
                f"{what} can write to directories and object stores (s3, gs, az), not to"
                f' "{urlsplit(path).scheme}:"',
                code="file-system-not-supported",
                hint="mount it as a directory, or use another sink",
            )
        )
    return problems


def warns_of_changes(options: Mapping[str, str]) -> bool:
    """Return True if a file that changes after it is read does not stop the job.

    Such files are counted instead.
    """
    return _option(options, ON_CHANGED_FILE, "fail").lower() == "warn"


def needs_all_columns(options: Mapping[str, str]) -> bool:
    """Return whether a Parquet file without a declared column is refused; else its rows have NULL there."""
    return _option(options, ON_MISSING_COLUMN, "null").lower() == "fail"


def path_of(options: Mapping[str, str]) -> str:
    """Return the option 'path'; empty if it is not set."""
    return _option(options, "path", "")


def format_of(options: Mapping[str, str]) -> str:
    """Return the option 'format' in lower case; it may be an unknown format."""
    return _option(options, "format", FORMATS[0]).lower()


def local_path(path: str) -> str | None:
    """Return the path for the operating system; None if it is on another file system."""
    parts = urlsplit(path)
    if len(parts.scheme) > 1 and parts.scheme != "file":  # one letter is a drive
        return None
    return unquote(parts.path) if parts.scheme == "file" else os.path.expanduser(path)


def _option(options: Mapping[str, str], name: str, default: str) -> str:
    return next((value for key, value in options.items() if key.lower() == name), default).strip()


def _common(what: str, does: str, options: Mapping[str, str], example: str) -> list[SpecError]:
    """Check that the path is set and that the format exists; return problems."""
    problems = []
    if not path_of(options):
        problems.append(
            SpecError(
                f'{what} needs the option "path"', code="missing-option", hint=f"add 'path' = '{example}'"
            )
        )
    wanted = format_of(options)
    formats = tuple(READERS) if does == "read" else FORMATS
    if wanted not in formats:
        of_keys = does == "read" and wanted == UPSERT
        shown = public_option("format", wanted)
        problems.append(
            SpecError(
                f'{what} cannot {does} format "{shown}"',
                code="unknown-format",
                hint=f"lines of files have no keys: use 'op.column' or the format {DEBEZIUM} for deletes"
                if of_keys
                else near_names(wanted, formats),
            )
        )
    return problems


def _unknown(
    what: str,
    wanted: str,
    options: Mapping[str, str],
    accepted: list[str],
    formats: Mapping[str, tuple[str, ...]],
) -> Iterator[SpecError]:
    lowered = {name.lower() for name in accepted}
    others = {name.lower() for names in formats.values() for name in names}
    of_streams = {name.lower() for name in _OF_STREAMS} - lowered
    for name in options:
        if name.lower() in lowered:
            continue
        hint = None
        if formats is READERS:
            hint = _POINTLESS.get(name.lower())
            if hint is None and name.lower() in of_streams:
                hint = "remove it: it is for streams, and a table is read completely"
        yield SpecError(
            f'{what} has no option "{name}"'
            + (f" for the format {wanted}" if name.lower() in others else ""),
            code="unknown-option",
            hint=hint or near_names(name, [*accepted, *(OF_ALL_SOURCES if formats is READERS else ())]),
        )


def _values(
    what: str, wanted: str, options: Mapping[str, str], names: Iterable[str], use: Use
) -> Iterator[SpecError]:
    """Yield problems of values that an option cannot have.

    Spark would reject them late, or ignore some silently.
    """
    lowered = {name.lower() for name in names}
    given = {name: value for name, value in options.items() if name.lower() in lowered}
    for name, hint in value_problems(given, wanted, use):
        yield wrong_value(what, name, given[name], hint)


def _losing(what: str, options: Mapping[str, str]) -> Iterator[SpecError]:
    """Yield problems of options by which Spark's readers skip files, and so rows, silently."""
    for name, value in options.items():
        reason = _LOSING.get(name.lower())
        if reason is not None and (name.lower() == "maxfileage" or value.strip().lower() == "true"):
            yield wrong_value(what, name, value.strip(), reason)
    wanted = _option(options, ON_CHANGED_FILE, "fail")
    if wanted.lower() not in ("fail", "warn"):
        yield wrong_value(what, ON_CHANGED_FILE, wanted, "it can be 'fail' or 'warn'")


def _of_missing_columns(what: str, options: Mapping[str, str], wanted: str) -> Iterator[SpecError]:
    said = _option(options, ON_MISSING_COLUMN, "null")
    if said.lower() not in ("null", "fail"):
        yield wrong_value(what, ON_MISSING_COLUMN, said, "it can be 'null' or 'fail'")
    elif wanted != "parquet" and any(name.lower() == ON_MISSING_COLUMN for name in options):
        of_csv, of_json = "a CSV file with other columns stops the job", "JSON records may lack fields"
        reason = of_csv if wanted == "csv" else of_json
        yield wrong_value(what, ON_MISSING_COLUMN, said, f"remove it: it is for Parquet files only; {reason}")
