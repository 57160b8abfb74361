"""Which sources are plain streams of local files, that tasks may read themselves, by what is declared. Loads
little: it is asked before Java begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from watersmeet.runtime.tasks.files import supported_types
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import (
    ON_CHANGED_FILE,
    ON_MISSING_COLUMN,
    OURS,
    format_of,
    local_path,
    path_of,
)
from watersmeet.spec.options.values import lower_names, separator_in
from watersmeet.types.sql_type import SqlType

SEPARATORS = (",", ";", "|", "\t")
"""Of values in CSV."""

_LISTED = frozenset(
    {
        *OURS,
        *(
            ON_CHANGED_FILE,
            ON_MISSING_COLUMN,
            "maxfilespertrigger",
            "maxbytespertrigger",
            "maxfileage",
            "maxcachedfiles",
        ),
        *("discardcachedinputratio", "cleansource", "sourcearchivedir", "pathglobfilter"),
        *("latestfirst", "filenameonly", "ignorecorruptfiles", "ignoremissingfiles"),  # 'false' at most
    }
)
"""Options that say which files are read when, not what is in them."""

_SUPPORTED_OPTIONS: Mapping[str, frozenset[str]] = {
    "parquet": _LISTED,
    "json": _LISTED,
    "csv": _LISTED | {"header", "sep", "delimiter"},
}
"""Options of sources that are plain, per format."""

_TYPE_CHECKS: Mapping[str, Callable[[SqlType], bool]] = {
    "parquet": lambda _: True,  # who reads a file sees to it, for columns that nobody asks for do not count
    "json": supported_types.is_json_type,
    "csv": supported_types.is_text_type,
}
"""Per format, whether values of a type are read alike."""

SETTINGS = (
    *("spark.sql.parquet.", "spark.sql.csv.", "spark.sql.json.", "spark.sql.files.", "spark.sql.sources."),
    *("spark.sql.legacy.", "spark.hadoop.parquet.", "parquet."),
    *(
        "spark.hadoop.mapreduce.input.",
        "spark.hadoop.mapred.",
        "spark.hadoop.textinputformat.",
        "spark.hadoop.io.",
    ),
)
"""How settings begin by which Spark reads files in another way."""


def is_arrow_readable(source: Source) -> bool:
    """Return True if the source is a stream of local files that tasks can read directly."""
    wanted, options = format_of(source.options), lower_names(source.options)
    types = [column.type for column in source.columns]
    return (
        source.traits.files
        and wanted in _SUPPORTED_OPTIONS
        and local_path(path_of(source.options)) is not None
        and set(options) <= _SUPPORTED_OPTIONS[wanted]
        and not (source.changes or source.is_table or source.primary_key or source.partitions)
        and all(map(_TYPE_CHECKS[wanted], types))
        and not any(map(_has_nested_limits, types))
        and (wanted != "csv" or separator_in(options) in SEPARATORS)
    )


def _has_nested_limits(type_: SqlType) -> bool:
    """Return True if text lengths inside nested values need checks, which Spark does."""
    return type_.is_nested and any(own.length for own in type_.every)
