"""Headers of CSV files: which of their columns are the declared ones, by name, in whatever order they stand.

Spark's reader takes columns by their place, and compares the header with the declared names. So what it is
told is the header's order, with the columns that nobody asked for as text; a file with another header is
refused by it, by name. A header that cannot be read here (another compression, another file system) is left
to Spark.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence, Set
from typing import Any

from watersmeet.errors import EngineError, near_names
from watersmeet.runtime.files.listing import format_path
from watersmeet.runtime.files.open_files import (
    BROKEN_ARCHIVE,
    MAX_HEADER_FILES,
    can_open,
    choose_oldest_and_newest,
    open_text,
)
from watersmeet.runtime.files.partitions import check_not_above, partition_columns
from watersmeet.runtime.files.table_files import Entry
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.values import is_true, separator_in

csv.field_size_limit(1 << 30)
"""Python's is 128 KiB; Spark's reader has none."""

SEPARATORS = ";\t|,"
"""Other ones than that of a source, which a header of one column may be meant to have."""

_LINE_ENDS = ("\n", "\r\n", "\r")

Layout = tuple[tuple[str, Column | None], ...]
"""The columns of a file in their order: the name in the header, with its blanks, and which declared one it
is, if any."""


def matches_by_name(options: Mapping[str, str]) -> bool:
    """Return True if columns are matched by name: a header exists and is not ignored.

    Args:
        options: the options, with names in lower case.
    """
    header = options.get("header", "true").strip().lower()
    return header == "true" and options.get("enforceschema", "false").strip().lower() != "true"


def read_layout(
    what: str, source: Source, files: Sequence[Entry], options: Mapping[str, str]
) -> Layout | None:
    """Read the columns of all the files; return None if no header can be read.

    Args:
        what: the source, for messages (``file source "a"``).
        options: the options of the source, with names in lower case.

    Raises:
        EngineError: a declared column is missing, a name occurs twice, or two files have different
            headers.
    """
    ordered = sorted(files, key=lambda entry: (entry[2], entry[0]))
    first: tuple[str, list[str]] | None = None
    for name, size, _ in choose_oldest_and_newest(ordered, MAX_HEADER_FILES):
        header = read_header(name, options) if size else None
        if header is None:
            continue
        first = check_same_header(what, first, name, header)
    return None if first is None else _layout(what, source, *first)


def check_same_header(
    what: str, first: tuple[str, list[str]] | None, file: str, header: list[str]
) -> tuple[str, list[str]]:
    """Check that a file has the header of the first one; return the first file and its header.

    Args:
        what: the source, for messages (``file source "a"``).
        first: None for the first file.

    Raises:
        EngineError: the headers differ by more than case.
    """
    if first is not None and [name.lower() for name in header] != [name.lower() for name in first[1]]:
        raise EngineError(
            f"{what}: its files have different columns, or the same in another order: {format_path(first[0])}"
            f" has {', '.join(first[1])}; {format_path(file)} has {', '.join(header)}",
            code="wrong-columns",
            hint="put the files of each layout into a directory of their own, and UNION ALL the sources",
        )
    return first or (file, header)


def read_header(file: str, options: Mapping[str, str]) -> list[str] | None:
    """Read the first record of a file that is neither empty nor a comment.

    Returns:
        The record; None if there is none, or if the file is not text that this module can read.
    """
    if not can_open(file) or not can_be_split(options):
        return None
    try:
        with open_text(file, options) as text:
            return next(read_records(text, options), None)
    except (*BROKEN_ARCHIVE, UnicodeError, LookupError, csv.Error):
        return None


def can_be_split(options: Mapping[str, str]) -> bool:
    """Return True if `read_records` can split lines and columns; otherwise only Spark can."""
    return len(separator_in(options)) == 1 and options.get("linesep", "\n") in _LINE_ENDS


def suggest_separator(header: Sequence[str]) -> str | None:
    """Suggest a separator for a header that is one column and contains separators; None if not."""
    if len(header) != 1:
        return None
    other = next((separator for separator in SEPARATORS if separator in header[0]), None)
    if other is None:
        return None
    written = {"\t": "\\t"}.get(other, other)
    shown = header[0].replace("\t", "\\t")
    return f"its header is one column, {shown[:80]}: if {written} separates columns, set 'sep' = '{written}'"


def read_records(text: Any, options: Mapping[str, str]) -> Any:
    """Read the records of an open file as lists of texts; skip empty lines and comments."""
    comment = options.get("comment", "")
    quote = options.get("quote", '"')[:1]
    escape = options.get("escape", "\\")[:1]
    lines = (line for line in text if not (comment and line.startswith(comment)))
    reader = csv.reader(
        lines,
        delimiter=separator_in(options)[:1] or ",",
        quotechar=quote or None,
        quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
        escapechar=None if escape == quote else escape or None,  # RFC 4180: a quote is written twice
    )
    is_left, is_right = (is_true(options, f"ignore{side}whitespace") for side in ("leading", "trailing"))
    for record in reader:
        if record:
            fields = [field.lstrip() for field in record] if is_left else record
            yield [field.rstrip() for field in fields] if is_right else fields


def _layout(what: str, source: Source, file: str, header: list[str]) -> Layout:
    declared = {column.name.lower(): column for column in source.columns}
    exact = {name.lower() for name in header}
    names = [_declared_name(name.lower(), exact, declared) for name in header]
    in_path = partition_columns(source, file)
    check_not_above(what, source, file, names)
    missing = [c.name for name, c in declared.items() if name not in names and name not in in_path]
    if missing:
        raise EngineError(
            f"{what}: {file} has no column {', '.join(missing)}",
            code="wrong-columns",
            hint=suggest_separator(header)
            or near_names(missing[0], header)
            or f"its columns are {', '.join(header)}",
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise EngineError(
            f"{what}: {file} has two columns {f'named {twice[0]}' if twice[0] else 'without a name'}",
            code="wrong-columns",
            hint="give each column a name in the header; or set 'enforceSchema' = 'true', which ignores"
            " the header and takes columns by position",
        )
    return tuple((written, declared.get(name)) for written, name in zip(header, names, strict=True))


def _declared_name(name: str, exact: Set[str], declared: Mapping[str, Column]) -> str:
    """Strip blanks around a name that matches a declared column only when stripped."""
    plain = name.strip()
    return plain if name not in declared and plain in declared and plain not in exact else name
