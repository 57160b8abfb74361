"""How the files of plain sources are read, as far as the first of them show."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from watersmeet.engine.files.csv_header import by_name, layout_of
from watersmeet.engine.files.table_files import is_hidden
from watersmeet.engine.spark.sources.views import BROKEN
from watersmeet.engine.tasks.files.csv_rows import MOST_COLUMNS, CsvRows
from watersmeet.engine.tasks.files.json_rows import JsonRows
from watersmeet.engine.tasks.files.lines import said_of_lines
from watersmeet.engine.tasks.files.parquet_rows import ParquetRows, said_of_rows
from watersmeet.engine.tasks.files.part import NotPlain, Part, Reader
from watersmeet.errors import EngineError
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import format_of, local_path, path_of
from watersmeet.spec.options.lowered import lowered
from watersmeet.spec.options.values import separator_in
from watersmeet.spec.time_zones import UTC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_LISTED = 1_000
"""Of the files of a directory, whose times of change are asked for before Java is."""

LOOKED_AT = 256 << 10
"""Bytes of a file: the lines that begin in them."""

SAID: Mapping[str, Callable[[str], tuple[int, int]]] = {
    "parquet": said_of_rows,
    "json": said_of_lines,
    "csv": said_of_lines,
}
"""Per format how many rows a file has, and of how many bytes, about."""


def reader_of(source: Source, in_file: Callable[[], Sequence[str] | None], time_zone: str) -> Reader | None:
    """How the files of a plain source are read; None: by Spark.

    Args:
        in_file: gives the columns of CSV in their order; None: there is no file.
        time_zone: of the session.
    """
    wanted, options = format_of(source.options), lowered(source.options)
    types = {column.name: column.type for column in source.columns}
    if wanted == "parquet":
        return ParquetRows()
    if wanted == "json":
        return JsonRows(tuple(types.items()), time_zone)
    names = in_file()
    columns = tuple((name, types.get(name)) for name in (types if names is None else names))
    if any(type_ is None and name != name.strip() for name, type_ in columns):
        return None  # it may be a declared column with blanks around its name
    if not 2 <= len(columns) <= MOST_COLUMNS:
        return None  # of one, a line of blanks would be a value, or none
    return CsvRows(columns, separator_in(options), by_name(options), time_zone)


def columns_told(frame: DataFrame) -> list[str]:
    """The columns that Spark's reader of a source was told that the files have, in their order."""
    leaf: Any = frame._jdf.queryExecution().logical().collectLeaves().head()
    names = [field["name"] for field in json.loads(leaf.schema().json())["fields"]]
    return [name for name in names if name != BROKEN]


def columns_in(source: Source, path: str) -> list[str] | None:
    """The columns of a CSV file, named as `columns_told` has them; None: as declared.

    Raises:
        EngineError: it has other ones.
    """
    options = lowered(source.options)
    entry = (path, os.path.getsize(path), 0)
    layout = layout_of("", source, [entry], options) if by_name(options) else None
    if layout is None:
        return None
    return [name if column is None or name != name.strip() else column.name for name, column in layout]


def first_files(source: Source) -> list[str]:
    """Those of a plain source that the first tick of a new job reads. Raises: OSError: that is not known."""
    folder, options = local_path(path_of(source.options)), lowered(source.options)
    if {"maxbytespertrigger", "pathglobfilter"} & options.keys():
        raise OSError("by bytes, or by names")
    if folder is not None and os.path.isfile(folder):
        return [folder]
    if folder is None or not os.path.isdir(folder):  # nor is what no path can be
        raise OSError("no directory")
    with os.scandir(folder) as entries:
        there = list(islice(entries, MOST_LISTED + 1))
    if len(there) > MOST_LISTED:
        raise OSError("too many to look at each")
    seen = [entry for entry in there if not is_hidden(entry.name)]
    if any(entry.is_dir() for entry in seen):
        raise OSError("some may be in its directories")
    files = [entry for entry in seen if entry.is_file()]
    files.sort(key=lambda entry: entry.stat().st_mtime)
    return [entry.path for entry in files[: int(options.get("maxfilespertrigger", len(files)))]]


def begins_plain(source: Source, reader: Reader) -> bool:
    """Whether the beginning of the first file that is there is read as Spark reads it, if it is text, and as
    far as that is known. What is not is no rule: but who does not begin to read need not begin anew."""
    beginning = _first_text(source)
    return beginning is None or _is_read(source, reader, beginning)


def seems_plain(source: Source) -> bool:
    """The same without Spark."""
    beginning = _first_text(source)
    try:
        path = None if beginning is None else beginning.path
        reader = reader_of(source, lambda: None if path is None else columns_in(source, path), UTC)
    except (OSError, EngineError):  # it is gone, or the run will say what is wrong with it
        return False
    return reader is not None and (beginning is None or _is_read(source, reader, beginning))


def _is_read(source: Source, reader: Reader, part: Part) -> bool:
    try:
        for _ in reader.rows_of(part, {column.name: column.type for column in source.columns}):
            pass
    except NotPlain:
        return False
    return True


def _first_text(source: Source) -> Part | None:
    """The beginning of the first file of text that has something in it; None: there is none, or it is not
    known which."""
    if format_of(source.options) == "parquet":
        return None
    try:
        for file in first_files(source):
            if nbytes := os.path.getsize(file):
                return Part(file, 0, LOOKED_AT if nbytes > LOOKED_AT else None)
    except OSError:
        return None
    return None
