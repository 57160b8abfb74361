"""Which sources are plain streams of local files, that tasks may read themselves, and how they read them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame

from watersmeet.engine.files.csv_header import by_name, separator_in
from watersmeet.engine.spark.sources.views import BROKEN
from watersmeet.engine.tasks.files import json_rows, texts
from watersmeet.engine.tasks.files.csv_rows import MOST_COLUMNS, SEPARATORS, CsvRows
from watersmeet.engine.tasks.files.json_rows import JsonRows
from watersmeet.engine.tasks.files.lines import said_of_lines
from watersmeet.engine.tasks.files.parquet_rows import ParquetRows, said_of_rows
from watersmeet.engine.tasks.files.part import Reader
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import ON_CHANGED_FILE, OURS, format_of, local_path, path_of
from watersmeet.spec.options.lowered import lowered
from watersmeet.types.sql_type import SqlType

_LISTED = frozenset(
    {
        *OURS,
        *(ON_CHANGED_FILE, "maxfilespertrigger", "maxbytespertrigger", "maxfileage", "maxcachedfiles"),
        *("discardcachedinputratio", "cleansource", "sourcearchivedir", "pathglobfilter"),
        *("latestfirst", "filenameonly", "ignorecorruptfiles", "ignoremissingfiles"),  # 'false' at most
    }
)
"""Options that say which files are read when, not what is in them."""

_OF_FORMAT: Mapping[str, frozenset[str]] = {
    "parquet": _LISTED,
    "json": _LISTED,
    "csv": _LISTED | {"header", "sep", "delimiter"},
}
"""Options of sources that are plain, per format."""

_TAKEN: Mapping[str, Callable[[SqlType], bool]] = {
    "parquet": lambda _: True,  # who reads a file sees to it, for columns that nobody asks for do not count
    "json": json_rows.is_taken,
    "csv": texts.is_taken,
}
"""Per format, whether values of a type are read alike."""

SETTINGS = (
    *("spark.sql.parquet.", "spark.sql.csv.", "spark.sql.json.", "spark.sql.files.", "spark.sql.sources."),
    *("spark.sql.legacy.", "spark.sql.caseSensitive", "spark.hadoop.parquet.", "parquet."),
    *("spark.hadoop.mapreduce.input.", "spark.hadoop.textinputformat.", "spark.hadoop.io."),
)
"""How settings begin by which Spark reads files in another way."""

SAID: Mapping[str, Callable[[str], tuple[int, int]]] = {
    "parquet": said_of_rows,
    "json": said_of_lines,
    "csv": said_of_lines,
}
"""Per format how many rows a file has, and of how many bytes, about."""


def is_plain(source: Source) -> bool:
    """Whether it is a stream of local files that are read as they are."""
    wanted, options = format_of(source.options), lowered(source.options)
    return (
        source.traits.files
        and wanted in _OF_FORMAT
        and local_path(path_of(source.options)) is not None
        and set(options) <= _OF_FORMAT[wanted]
        and not (source.changes or source.is_table or source.primary_key or source.partitions)
        and all(_TAKEN[wanted](column.type) for column in source.columns)
        and (wanted != "csv" or separator_in(options) in SEPARATORS)
    )


def reader_of(source: Source, frame: DataFrame, time_zone: str) -> Reader | None:
    """How the files of a plain source are read; None: by Spark.

    Args:
        frame: of the source, as Spark reads it.
        time_zone: of the session.
    """
    wanted, options = format_of(source.options), lowered(source.options)
    types = {column.name: column.type for column in source.columns}
    if wanted == "parquet":
        return ParquetRows()
    if wanted == "json":
        return JsonRows(tuple(types.items()), time_zone)
    columns = tuple((name, types.get(name)) for name in _columns_told(frame))
    if not 2 <= len(columns) <= MOST_COLUMNS:
        return None  # of one, a line of blanks would be a value, or none
    return CsvRows(columns, separator_in(options), by_name(options), time_zone)


def _columns_told(frame: DataFrame) -> list[str]:
    """The columns that Spark's reader of a source was told that the files have, in their order."""
    leaf: Any = frame._jdf.queryExecution().logical().collectLeaves().head()  # type: ignore[operator]
    names = [field["name"] for field in json.loads(leaf.schema().json())["fields"]]
    return [name for name in names if name != BROKEN]
