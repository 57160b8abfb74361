"""Text files as the texts of their records; CSV lines that Spark reads otherwise."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from watersmeet.errors import EngineError, printable
from watersmeet.names import ours
from watersmeet.runtime.files.listing import format_path, to_local_path
from watersmeet.runtime.spark.sql_text import literal, quote_name
from watersmeet.spec.model import Source
from watersmeet.spec.options.values import WIDE, is_true, lower_names, separator_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# Text files as the texts of their records, whatever their format, to be looked at beside Spark's readers.

TEXT = ours("text")
"""The column of texts: their bytes, whatever the encoding."""

LITERAL_PATHS = {"__globPaths__": "false"}
"""Options of a reader that is given files: Spark takes none of them for a pattern, as in a stream."""

_FILE_OPTIONS = ("recursivefilelookup", "pathglobfilter", "ignorecorruptfiles", "ignoremissingfiles")


def read_texts(spark: SparkSession, options: Mapping[str, str], paths: str | Sequence[str]) -> DataFrame:
    """Return a frame with column `TEXT`: each record, split as Spark's text readers do.

    Args:
        options: the options of the source, with names in lower case.
        paths: the paths of files; one text: the path of a table's files.
    """
    reader = spark.read.format("text").schema(f"{quote_name(TEXT)} STRING")
    if is_true(options, "multiline"):
        reader = reader.option("wholetext", "true")
    elif "linesep" in options:
        reader = reader.option("lineSep", options["linesep"])
        if (encoding := declared_encoding(options)) is not None:
            reader = reader.option("encoding", encoding)
    for name in _FILE_OPTIONS:
        if name in options:
            reader = reader.option(name, options[name])
    if isinstance(paths, str):
        return reader.load(paths)
    return reader.options(**LITERAL_PATHS).load(list(paths))


def json_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options for Spark's JSON reader, with names in lower case.

    With an explicit encoding and multiLine, the reader replaces invalid bytes by U+FFFD. For UTF-8 and
    ASCII the encoding is therefore omitted: the reader detects them itself and reports invalid bytes.
    """
    found_anyway = is_true(options, "multiline") and declared_encoding(options) in ("UTF-8", "US-ASCII")
    return {
        name: value
        for name, value in options.items()
        if not (found_anyway and name in ("encoding", "charset"))
    }


def declared_encoding(options: Mapping[str, str]) -> str | None:
    """Return the declared encoding in upper case, or None.

    Args:
        options: options with names in lower case.
    """
    return (options.get("encoding") or options.get("charset") or "").strip().upper() or None


def read_first_text(texts: DataFrame) -> str | None:
    """Return one text of a frame with column `TEXT`, as `format_text` does; None if it has none."""
    first = texts.select(TEXT).limit(1).toArrow().column(TEXT)
    return format_text(first[0]) if len(first) else None


def format_text(value: pa.Scalar) -> str:
    """Format a text from Spark; bytes that are not UTF-8 become escape sequences."""
    raw: bytes = value.cast(pa.large_binary()).as_py()
    return raw.decode("utf-8", "backslashreplace")


# CSV files as texts: lines that are no UTF-8, and lines that end within quotes.
#
# Spark's reader tells nobody of either. In the place of bytes that are no UTF-8 it puts U+FFFD: keys that
# differ in such bytes would be equal. Who says an encoding, be it UTF-8, has been told that
# (docs/users/connectors/files.md). And without ``multiLine`` it takes each line for a record: a value
# with a line's end within its quotes is cut, and the rest of it is another row.

_IS_UTF8 = f"is_valid_utf8({quote_name(TEXT)})"
_HINT_UTF8 = (
    "set the encoding of the files, such as 'encoding' = 'ISO-8859-1', or write them as UTF-8;"
    " 'encoding' = 'UTF-8' replaces such bytes with U+FFFD"
)
_HINT_QUOTES = (
    "set 'multiLine' = 'true' if quoted values contain line breaks, or 'quote' = '' if quotes are"
    " ordinary characters"
)
_LONGEST_SHOWN = 200


@dataclass(frozen=True)
class CsvTexts:
    """The lines of CSV files, and which of them Spark's reader would misread.

    Args:
        options: of the source, with names in lower case.
    """

    options: Mapping[str, str]

    @classmethod
    def of(cls, source: Source) -> CsvTexts:
        return cls(lower_names(source.options))

    def list_misread_lines(self, spark: SparkSession, paths: str | Sequence[str]) -> DataFrame:
        """Return the lines of files that are not UTF-8 or end within quotes, as `read_texts` does.

        For records that may span several lines, this returns their lines: no UTF-8 character contains the
        byte of a line end, and a file may be larger than a text can be.
        """
        options = {name: value for name, value in self.options.items() if name != "multiline"}
        conditions = [] if declared_encoding(self.options) else [f"NOT {_IS_UTF8}"]
        if not is_true(self.options, "multiline") and (within_quotes := self._ends_within_quotes) is not None:
            conditions.append(within_quotes)
        return read_texts(spark, options, paths).where(" OR ".join(conditions) or "false")

    def first_problem(self, what: str, lines: DataFrame, before: str = "") -> EngineError | None:
        """Return the error of the first of such lines; None: there is none.

        Args:
            what: the source, for the message.
            lines: as `list_misread_lines` gives them.
            before: what the hint begins with.
        """
        columns = (quote_name(TEXT), f"{_IS_UTF8} AS is_utf8", "_metadata.file_path")
        rows = lines.selectExpr(*columns).orderBy("is_utf8").limit(1).toArrow()
        if not rows.num_rows:
            return None
        text, is_utf8, path = (column[0] for column in rows.columns)
        file = format_path(to_local_path(path.as_py()) or path.as_py())
        line = printable(format_text(text)[:_LONGEST_SHOWN])
        if not is_utf8.as_py() and declared_encoding(self.options) is None:
            return EngineError(
                f"{what}: {file} is not valid UTF-8, and 'encoding' is not set: {line}",
                code="file-not-utf8",
                hint=f"{before}{_HINT_UTF8}",
            )
        return EngineError(
            f"{what}: {file} has a line that ends inside a quoted value: {line}",
            code="value-runs-on",
            hint=f"{before}{_HINT_QUOTES}",
        )

    @property
    def _ends_within_quotes(self) -> str | None:
        """The condition that a line does; None where there are no quotes."""
        quote = self.options.get("quote", '"')
        if quote in ("", "\0"):
            return None
        text = quote_name(TEXT)
        if (encoding := declared_encoding(self.options)) in WIDE:
            text = f"decode(CAST({text} AS BINARY), {literal(str(encoding))})"
        condition = (
            f"contains({text}, {literal(quote)}) AND rlike({text}, {literal(self._open_value(quote))})"
        )
        if comment := self.options.get("comment", ""):
            condition += f" AND NOT startswith({text}, {literal(comment)})"
        return condition

    def _open_value(self, quote: str) -> str:
        """Build a pattern of lines whose last value begins with a quote and does not end with one.

        It follows Spark: a value is quoted if it begins with the quote. It may contain escaped characters
        and
        doubled quotes. The text between its closing quote and the separator belongs to it.
        """
        q, escape = re.escape(quote), re.escape(self.options.get("escape", "\\") or "\0")
        separator = re.escape(separator_in(self.options))
        blank = "[ \\t]*+" if is_true(self.options, "ignoreleadingwhitespace") else ""
        within = rf"{q}(?:{q}{q}|{escape}.|(?!{q}|{escape}).)*+"
        if escape == q:
            within = rf"{q}(?:{q}{q}|(?!{q}).)*+"
        to_separator = rf"(?:(?!{separator}).)*+{separator}"
        return rf"(?s)^(?:{blank}(?:(?!{q})|{within}{q}){to_separator})*+{blank}{within}\z"
