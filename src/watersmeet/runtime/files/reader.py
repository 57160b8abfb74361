"""Read files of a source as columns of their declared types, as Spark does, or say why only Spark can."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence, Set

import pyarrow as pa

from watersmeet.kernel.batches import one_table
from watersmeet.runtime.files.csv_header import matches_by_name, read_layout
from watersmeet.runtime.files.file_split import FileReadPlan, FileSplit, UnsupportedFile
from watersmeet.runtime.files.first_rows import read_file_rows
from watersmeet.runtime.files.parquet_files import ParquetRows
from watersmeet.runtime.files.partitions import partition_folders
from watersmeet.runtime.files.supported_types import has_arrow_reader
from watersmeet.runtime.files.text_files import MAX_COLUMNS, CsvRows, JsonRows
from watersmeet.runtime.values import arrow_type_of, to_table
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import format_of
from watersmeet.spec.options.values import lower_names, separator_in
from watersmeet.types.arrow import has_longer
from watersmeet.types.sql_type import SqlType


def read_file(
    source: Source, path: str, time_zone: str, needed: Set[str], max_records: int = sys.maxsize
) -> pa.Table:
    """Read columns of a file: by Arrow, or record by record where Arrow might read otherwise than Spark.

    Args:
        time_zone: time zone of clock times without a zone.
        needed: names of the columns to read; the table has them in the declared order.
        max_records: maximum number of records to read one by one; more are left unread.

    Raises:
        UnsupportedFile: only Spark knows how a record or a column is read.
        EngineError: the file is damaged, or its columns are not the declared ones.
    """
    columns = [column for column in source.columns if column.name in needed]
    schema = pa.schema([(column.name, arrow_type_of(column)) for column in columns])
    try:
        batches = _read_by_arrow(source, path, time_zone, {column.name: column.type for column in columns})
        return one_table([pa.Table.from_batches(batches).cast(schema)]) if batches else schema.empty_table()
    except (UnsupportedFile, pa.ArrowInvalid):
        sample = read_file_rows(source, path, time_zone, needed=frozenset(needed), count=max_records)
    if sample.left_out:
        raise UnsupportedFile(f"{path}: only Spark can read the record {sample.example}")
    return to_table(columns, sample.rows, [1] * len(sample.rows)).select(schema.names)


def _read_by_arrow(
    source: Source, path: str, time_zone: str, wanted: Mapping[str, SqlType]
) -> list[pa.RecordBatch]:
    reader = None
    if has_arrow_reader(source) and not partition_folders(source, path):
        reader = plan_reader(source, lambda: read_csv_columns(source, path), time_zone)
    if reader is None:
        raise UnsupportedFile(f"{path}: Arrow does not read one of its columns or options")
    batches = list(reader.rows_of(FileSplit(path), wanted))
    for name, type_ in wanted.items():
        if any(has_longer(batch.column(name), type_) for batch in batches):
            raise UnsupportedFile(f"{path}: {name} has texts that are too long")
    return batches


def plan_reader(
    source: Source, in_file: Callable[[], Sequence[str] | None], time_zone: str
) -> FileReadPlan | None:
    """Plan how tasks read the files of a plain source; None if Spark has to read them.

    Args:
        in_file: returns the CSV columns in their order; None: there is no file.
        time_zone: the session's time zone.
    """
    wanted, options = format_of(source.options), lower_names(source.options)
    types = {column.name: column.type for column in source.columns}
    if wanted == "parquet":
        return ParquetRows()
    if wanted == "json":
        return JsonRows(tuple(types.items()), time_zone)
    names = in_file()
    columns = tuple((name, types.get(name)) for name in (types if names is None else names))
    if any(type_ is None and name != name.strip() for name, type_ in columns):
        return None  # it may be a declared column with blanks around its name
    if not 2 <= len(columns) <= MAX_COLUMNS:
        return None  # of one, a line of blanks would be a value, or none
    return CsvRows(columns, separator_in(options), matches_by_name(options), time_zone)


def read_csv_columns(source: Source, path: str) -> list[str] | None:
    """Read the columns of a CSV file, named as in `list_reader_columns`; None: as declared.

    Raises:
        EngineError: the file has other columns.
    """
    options = lower_names(source.options)
    entry = (path, os.path.getsize(path), 0)
    layout = read_layout("", source, [entry], options) if matches_by_name(options) else None
    if layout is None:
        return None
    return [name if column is None or name != name.strip() else column.name for name, column in layout]
