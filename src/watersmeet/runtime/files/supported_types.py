"""Formats, options and types that Arrow reads as Spark does. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
from watersmeet.types.sql_type import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    SqlType,
    decimal,
)

_TEXT_TYPES = frozenset({STRING, BOOLEAN, FLOAT, DOUBLE, DATE, TIMESTAMP, TIMESTAMP_NTZ})
COMPACT_DIGITS, MAX_DIGITS = 18, 38
"""Of decimals that Spark computes as 64 bits: others cost a fifth of reading JSON more. And of any."""


def is_text_type(type_: SqlType) -> bool:
    """Return True if tasks can read texts, as in CSV, as values of the type."""
    return type_.is_integer or type_.is_decimal or type_ in _TEXT_TYPES


def is_json_type(type_: SqlType) -> bool:
    """Return True if tasks can read JSON values as values of the type.

    FLOAT is unsupported because Spark's parser rounds it twice. DECIMAL is unsupported because Arrow
    changes a number with too many digits, and its original spelling is not visible here.
    """
    return is_text_type(type_) and type_ != FLOAT and not type_.is_decimal


def wider_decimal(type_: SqlType) -> SqlType | None:
    """Return the type as which Spark reads a decimal, or None if it has no more fraction digits.

    If None, Spark does not report lost digits.

    >>> [str(wider_decimal(decimal(*digits))) for digits in ((10, 2), (17, 2), (18, 2), (20, 2), (38, 2))]
    ['DECIMAL(18,10)', 'DECIMAL(18,3)', 'None', 'DECIMAL(38,20)', 'None']
    """
    digits = COMPACT_DIGITS if type_.digits <= COMPACT_DIGITS else MAX_DIGITS
    more = digits - type_.digits
    return decimal(digits, type_.scale + more) if more > 0 else None


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
    "json": is_json_type,
    "csv": is_text_type,
}
"""Per format, whether values of a type are read alike."""


def has_arrow_reader(source: Source) -> bool:
    """Return True if Arrow can read the source's files by their format, options and types."""
    wanted, options = format_of(source.options), lower_names(source.options)
    types = [column.type for column in source.columns]
    return (
        source.traits.files
        and wanted in _SUPPORTED_OPTIONS
        and local_path(path_of(source.options)) is not None
        and set(options) <= _SUPPORTED_OPTIONS[wanted]
        and all(map(_TYPE_CHECKS[wanted], types))
        and not any(map(_has_nested_limits, types))
        and (wanted != "csv" or separator_in(options) in SEPARATORS)
    )


def _has_nested_limits(type_: SqlType) -> bool:
    """Return True if text lengths inside nested values need checks, which Spark does."""
    return type_.is_nested and any(own.length for own in type_.every)
