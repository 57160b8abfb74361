"""Text files as the texts of their records, whatever their format, to be looked at beside Spark's readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from watersmeet.engine.spark.text import quoted
from watersmeet.names import ours
from watersmeet.spec.options.lowered import is_true

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TEXT = ours("text")
"""The column of texts: their bytes, whatever the encoding."""

AS_NAMED = {"__globPaths__": "false"}
"""Options of a reader that is given files: Spark takes none of them for a pattern, as in a stream."""

_OF_FILES = ("recursivefilelookup", "pathglobfilter", "ignorecorruptfiles", "ignoremissingfiles")


def read_texts(spark: SparkSession, options: Mapping[str, str], paths: str | Sequence[str]) -> DataFrame:
    """`TEXT`: each record, cut as Spark's readers of text cut them.

    Args:
        options: of the source, with names in lower case.
        paths: of files; one text: where a table's files are.
    """
    reader = spark.read.format("text").schema(f"{quoted(TEXT)} STRING")
    if is_true(options, "multiline"):
        reader = reader.option("wholetext", "true")
    elif "linesep" in options:
        reader = reader.option("lineSep", options["linesep"])
        if (encoding := said_encoding(options)) is not None:
            reader = reader.option("encoding", encoding)
    for name in _OF_FILES:
        if name in options:
            reader = reader.option(name, options[name])
    if isinstance(paths, str):
        return reader.load(paths)
    return reader.options(**AS_NAMED).load(list(paths))


def json_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options for Spark's JSON reader, with names in lower case. An encoding that is said with multiLine it
    reads with U+FFFD in the place of bytes that are none of it; UTF-8, and ASCII in it, it finds itself, and
    tells which bytes are none."""
    found_anyway = is_true(options, "multiline") and said_encoding(options) in ("UTF-8", "US-ASCII")
    return {
        name: value
        for name, value in options.items()
        if not (found_anyway and name in ("encoding", "charset"))
    }


def said_encoding(options: Mapping[str, str]) -> str | None:
    """In upper case. ``options``: with names in lower case."""
    return (options.get("encoding") or options.get("charset") or "").strip().upper() or None


def first_text(texts: DataFrame) -> str | None:
    """A text of a frame that has them, as `shown_text` has it; None: it has none."""
    first = texts.select(TEXT).limit(1).toArrow().column(TEXT)
    return shown_text(first[0]) if len(first) else None


def shown_text(value: pa.Scalar) -> str:
    """A text as Spark gives it; bytes that are no UTF-8 by their numbers."""
    raw: bytes = value.cast(pa.large_binary()).as_py()
    return raw.decode("utf-8", "backslashreplace")
