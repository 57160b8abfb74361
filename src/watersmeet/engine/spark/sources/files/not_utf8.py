"""CSV files that are no UTF-8, of sources that say no encoding.

Spark's reader puts U+FFFD in the place of bytes that are none, and tells nobody: keys that differ in such
bytes would be equal. Who says an encoding, be it UTF-8, has been told that (docs/formats.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from watersmeet.engine.spark.sources.files.texts import TEXT, read_texts, said_encoding
from watersmeet.engine.spark.text import quoted
from watersmeet.errors import EngineError
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import format_of
from watersmeet.spec.options.lowered import lowered

_HINT = (
    "say what it is, 'encoding' = 'ISO-8859-1' for one, or write it as UTF-8; with 'encoding' = 'UTF-8' such "
    "bytes become U+FFFD, and texts that differ by them alone are equal"
)


def must_be_utf8(source: Source) -> bool:
    """Whether the files of a source are to be looked at."""
    return format_of(source.options) == "csv" and said_encoding(lowered(source.options)) is None


def not_utf8(spark: SparkSession, source: Source, paths: str | Sequence[str]) -> DataFrame:
    """The lines that are no UTF-8, as `read_texts` has them. Lines, however records are cut: no character of
    UTF-8 has the byte of a line's end within, and a file may be larger than a text can be."""
    options = lowered(source.options)
    of_files = {name: value for name, value in options.items() if name not in ("multiline", "linesep")}
    return read_texts(spark, of_files, paths).where(f"NOT is_valid_utf8({quoted(TEXT)})")


def no_utf8(what: str, file: str, before: str = "") -> EngineError:
    """The error. ``what``: the source, in words; ``before``: what else is to be hinted at."""
    return EngineError(
        f"{what}: {file} has bytes that are no UTF-8, and no encoding is said",
        code="file-not-utf8",
        hint=f"{before}{_HINT}",
    )
