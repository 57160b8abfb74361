"""A declared source → a streaming frame with its columns, `PARTITION` and `BROKEN`.

* `PARTITION`: what the source's watermark is kept by: the Kafka partition (``topic/partition`` for several
  topics), NULL for sources that are one partition.
* `BROKEN`: STRING, the raw record when it does not parse into the declared columns, else NULL. A broken
  record's columns may be NULL or half read: whoever uses the frame drops them, and counts. Files: `FILE`.

Options that are not known are refused; those of Spark's readers go there. How much one tick reads is bounded
by default.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyarrow import parquet

from watersmeet.errors import EngineError, SpecError, near_names, raise_all
from watersmeet.names import PARTITION, ours
from watersmeet.regular_files import matching_paths, special_at
from watersmeet.runtime.files import csv_header
from watersmeet.runtime.files.listing import PATTERN, encode_for_url, format_path, hadoop_path, is_unnameable
from watersmeet.runtime.files.parquet_files import UNREADABLE
from watersmeet.runtime.files.parquet_types import compare_columns, nanosecond_columns
from watersmeet.runtime.files.partitions import (
    check_not_above,
    check_partitions,
    first_json_names,
    partition_columns,
    partition_folders,
)
from watersmeet.runtime.files.table_files import list_local_files, missing_path_error
from watersmeet.runtime.spark import lazy_functions as F
from watersmeet.runtime.spark.errors import colon_in_name_error
from watersmeet.runtime.spark.read_types import cast_to_declared, use_read_types
from watersmeet.runtime.spark.rejected_values import limited_columns
from watersmeet.runtime.spark.rounded_decimals import (
    add_null_rounded,
    round_decimals,
    use_wider_decimals,
)
from watersmeet.runtime.spark.sources import dataframes, debezium, generator, kafka
from watersmeet.runtime.spark.sources.changes import add_diff_column, add_key_checks
from watersmeet.runtime.spark.sources.columns import BROKEN, FILE, check_columns
from watersmeet.runtime.spark.sources.files.narrow_integers import (
    mark_misfits,
    narrow_columns,
    widen_integers,
)
from watersmeet.runtime.spark.sources.files.text_files import LITERAL_PATHS, json_options
from watersmeet.runtime.spark.sql_text import quote_name
from watersmeet.runtime.spark.time_values import convert_number_to_time
from watersmeet.spec.connectors import DATAFRAME
from watersmeet.spec.entry_points import SOURCES, load_code
from watersmeet.spec.model import Source
from watersmeet.spec.options.changes import DEBEZIUM
from watersmeet.spec.options.debezium import METADATA_PREFIX
from watersmeet.spec.options.debezium import OPTIONS as OF_DEBEZIUM
from watersmeet.spec.options.files import (
    ANY_READER,
    OF_SOURCES,
    format_of,
    local_path,
    path_of,
    source_problems,
)
from watersmeet.spec.options.values import lower_names
from watersmeet.spec.records.text_records import TimeUnit
from watersmeet.types.sql_type import STRING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader
    from pyspark.sql.types import StructType

BYTES_PER_TICK = str(32 << 20)

NO_AGE = "1000000d"
"""Spark passes files over that are so much older than the newest, a week by default. Modification times say
nothing about what was read."""

_LINE_OPTIONS = frozenset({"linesep", *(name.lower() for name in ANY_READER)})
"""Options of reading lines, whatever they hold."""

BLOCK, ROW = ours("block"), ours("row")
"""Columns by which rows of files are found again: see `reread_as_batch`."""

_FILE = (
    "concat(lpad(CAST(unix_micros(_metadata.file_modification_time) AS STRING), 20, '0'), ' ',"
    " _metadata.file_name)"
)
"""By which the files of a tick are in order."""

_BOUNDS = frozenset({"maxfilespertrigger", "maxbytespertrigger"})


def read(
    spark: SparkSession,
    source: Source,
    *,
    sources: int = 1,
    trigger_s: float = 1.0,
    given: Mapping[str, DataFrame] = MappingProxyType({}),
) -> DataFrame:
    """Return the streaming frame of ``source``; see the module.

    Args:
        sources: the number of sources that the job reads; they share a tick's rows.
        trigger_s: seconds between ticks, for sources whose rows per tick follow from a rate.
        given: by name, the DataFrames of sources that read one.

    Raises:
        EngineError: the place that it reads from does not exist.
        SpecError: an option is missing or wrong.
    """
    if source.connector == DATAFRAME:
        return _finish_frame(dataframes.read(spark, source, given[source.name]), source)
    reader = source.traits.reader
    if reader is not None:
        frame = load_code(SOURCES, source.connector, reader)(spark, source)
        return _finish_frame(dataframes.read_checked(spark, source, frame), source)
    if source.connector not in _READERS:
        raise SpecError(
            f'"{source.name}": watersmeet on Spark has no source of TYPE "{source.connector}"',
            code="unknown-connector",
            hint=near_names(source.connector, _READERS),
        )
    return _finish_frame(_READERS[source.connector](spark, source, sources, trigger_s), source)


def _finish_frame(frame: DataFrame, source: Source) -> DataFrame:
    frame = add_key_checks(add_diff_column(frame, source), source)
    lacks_file = source.traits.files and can_have_broken_records(source) and FILE not in frame.columns
    return frame.withColumn(FILE, F.input_file_name()) if lacks_file else frame


def can_have_broken_records(source: Source) -> bool:
    """Return True if a record of ``source`` can be broken."""
    traits = source.traits
    keyed = source.primary_key is not None and (traits.log or traits.files or traits.kept_by_spark)
    return (
        has_parsed_records(source)
        or source.change_column is not None
        or keyed
        or bool(limited_columns(source))
    )


def has_parsed_records(source: Source) -> bool:
    """Return True if records of ``source`` may not have the declared types.

    `BROKEN` then identifies such records.
    """
    wanted = lower_names(source.options).get("format", "").strip().lower()
    if source.traits.log:
        return wanted != "raw"
    return source.traits.files and (wanted in ("json", "csv", DEBEZIUM) or bool(narrow_columns(source)))


def has_partitions(source: Source) -> bool:
    return source.traits.tells_partitions or bool(source.partitions) or _is_ordered_by_file(source)


def _is_ordered_by_file(source: Source) -> bool:
    """Return True if rows of one tick count in the order of their files.

    Spark reads files in the order of their sizes; `PARTITION` names the file of a row, in a form that
    sorts in the files' order.
    """
    return source.traits.files and source.primary_key is not None


def format_ddl(source: Source) -> str:
    """Format the declared columns as DDL."""
    return ", ".join(f"{quote_name(column.name)} {column.type}" for column in source.columns)


def _read_files(spark: SparkSession, source: Source) -> DataFrame:
    given = lower_names(source.options)
    check_files(source)
    path, wanted = path_of(source.options), format_of(source.options)
    check_path(spark, f'file source "{source.name}"', path)
    options = {name: value for name, value in given.items() if name not in OF_SOURCES}
    options["maxfileage"] = NO_AGE
    if not _BOUNDS & set(options):
        options["maxbytespertrigger"] = BYTES_PER_TICK
    if wanted == DEBEZIUM:
        return _read_envelopes(spark, source, path, options)
    as_read = use_read_types(source)
    frame = read_records(spark.readStream, use_wider_decimals(as_read), wanted, path, options)
    return cast_to_declared(round_decimals(_select_read(frame, source), as_read), source)


def _select_read(frame: DataFrame, source: Source) -> DataFrame:
    null = F.lit(None).cast("string")
    columns = [F.col(quote_name(column.name)) for column in source.columns]
    partition = F.col(PARTITION) if _is_ordered_by_file(source) else null.alias(PARTITION)
    told = [F.col(BROKEN) if has_parsed_records(source) else null.alias(BROKEN)]
    told += [F.col(FILE)] if FILE in frame.columns else []
    return frame.select(*columns, partition, *told)


def reread_as_batch(
    spark: SparkSession,
    source: Source,
    files: str | Sequence[str],
    mended: Callable[[DataFrame], DataFrame] = lambda rows: rows,
) -> DataFrame:
    """Return the frame of some JSON or CSV files in the form that `read` gives for all files.

    Decimals are read as declared.

    Args:
        files: one text: the path of the source.
        mended: receives the declared columns, `BROKEN`, `FILE`, and `BLOCK` and `ROW`, which order the
            rows of a file; returns the rows that count, in their order.
    """
    options = {name: value for name, value in lower_names(source.options).items() if name not in OF_SOURCES}
    if not isinstance(files, str):
        options |= {**_base_path_option(path_of(source.options)), **LITERAL_PATHS}
    more = {FILE: "_metadata.file_path", BLOCK: "_metadata.file_block_start"}
    more[ROW] = "monotonically_increasing_id()"
    frame = read_records(spark.read, use_read_types(source), format_of(source.options), files, options, more)
    frame = cast_to_declared(_select_read(mended(frame), source), source)
    return _finish_frame(add_null_rounded(frame, source), source)


def _base_path_option(path: str) -> dict[str, str]:
    """Return the option for the directory under which subdirectories are partition columns.

    Spark sets the same value for the readers of a stream.
    """
    local = local_path(path)
    if local is None:
        return {} if PATTERN & set(path) else {"basepath": path}
    return {"basepath": hadoop_path(path, stream=False)} if os.path.isdir(local) else {}


def _read_envelopes(spark: SparkSession, source: Source, path: str, options: Mapping[str, str]) -> DataFrame:
    """Read Debezium events from files with one event per line."""
    of_lines = {name: value for name, value in options.items() if name in _LINE_OPTIONS}
    reader = spark.readStream.format("text").options(**of_lines)
    frame = reader.load(hadoop_path(path, stream=True))
    file = F.expr(_FILE) if _is_ordered_by_file(source) else F.lit(None).cast("string")
    ours_alone = (*_LINE_OPTIONS, *OF_DEBEZIUM)
    parser = {n: v for n, v in options.items() if n not in ours_alone and not n.startswith(METADATA_PREFIX)}
    return debezium.read_changes(frame, source, file, parser)


_READERS: Mapping[str, Callable[[SparkSession, Source, int, float], DataFrame]] = {
    "kafka": lambda spark, source, sources, _: kafka.read(spark, source, sources),
    "file": lambda spark, source, _, __: _read_files(spark, source),
    "spark": lambda spark, source, _, __: dataframes.read_by_format(spark, source),
    "generator": lambda spark, source, _, trigger_s: generator.read(spark, source, trigger_s),
}


def check_files(source: Source) -> None:
    """Check what is visible of a file source without Spark.

    This covers options, the existence of its path, and the columns of CSV and Parquet files.

    Raises:
        EngineError: the path does not exist, or the files have other columns.
        SpecError: an option is missing or wrong.
    """
    given = lower_names(source.options)
    raise_all(source_problems(source))
    path, wanted = path_of(source.options), format_of(source.options)
    what = f'file source "{source.name}"'
    check_there(what, path)
    files = list_local_paths(source)
    _check_names(what, files)
    check_directories(what, source, files)
    if "pathglobfilter" in given or local_path(path) is None:
        return
    if wanted == "parquet":
        check_parquet(what, source, path)
    elif wanted == "csv" and csv_header.matches_by_name(given):
        read_csv_layout(what, source, path, given)


def check_directories(what: str, source: Source, files: Sequence[str]) -> None:
    """Compare the declared columns with what directories of partitions give local files.

    Raises:
        EngineError: a value is not read as declared, or a directory gives no column though it is meant to.
    """
    for name in files:
        check_partitions(what, source, name)
    if files and format_of(source.options) == "json" and "=" in files[0]:
        check_not_above(what, source, files[0], first_json_names(files[0]))


def read_csv_layout(
    what: str, source: Source, path: str, options: Mapping[str, str]
) -> csv_header.Layout | None:
    """Read the columns of the CSV files at a path, as `csv_header.read_layout`.

    Returns:
        The columns, or None if the path is not local.
    """
    local = local_path(path)
    if local is None or "pathglobfilter" in options:
        return None
    return csv_header.read_layout(what, source, list_local_files(source, local), options)


def read_records(
    reading: DataFrameReader | DataStreamReader,
    source: Source,
    wanted: str,
    path: str | Sequence[str],
    options: Mapping[str, str] | None = None,
    more: Mapping[str, str] = {},
    nanos: Set[str] | None = None,
) -> DataFrame:
    """Read the files at ``path``.

    Args:
        path: as the user wrote it; several paths: as Spark names them.
        options: for the reader; None: those of ``source``.
        more: further columns for JSON, by name, as Spark SQL.
        nanos: for Parquet, the `nanosecond_columns` that its files were compared with; None: determine
            them.

    Returns:
        The declared columns; `BROKEN` if records may be broken (`has_parsed_records`); `PARTITION` for
            a
        table with a primary key.
    """
    from pyspark.sql.streaming.readwriter import DataStreamReader
    from pyspark.sql.types import StructType

    if options is None:
        options = {
            name: value for name, value in lower_names(source.options).items() if name not in OF_SOURCES
        }
    if wanted == "json":
        options = json_options(options)
    reader: Any = reading.format(wanted).options(**options)
    is_stream = isinstance(reading, DataStreamReader)
    where = hadoop_path(path, stream=is_stream) if isinstance(path, str) else list(path)
    if wanted == "parquet":
        names_of_nanos = nanosecond_columns(source) if nanos is None else nanos
        counted = [c for c in source.columns if c.name.lower() in names_of_nanos]
        kinds = {c.name: "BIGINT" if c in counted else widen_integers(c.type) for c in source.columns}
        columns = ", ".join(f"{quote_name(name)} {kind}" for name, kind in kinds.items())
        frame: DataFrame = _decode_partition_texts(reader.schema(columns).load(where), source, path)
        times = {
            c.name: F.expr(convert_number_to_time(quote_name(c.name), c.type, TimeUnit.NANOS))
            for c in counted
        }
        frame = frame.withColumns(times) if times else frame
        frame = frame.withColumn(PARTITION, F.expr(_FILE)) if _is_ordered_by_file(source) else frame
        return mark_misfits(frame, source) if narrow_columns(source) else frame
    schema: Any = StructType.fromDDL(f"{format_ddl(source)}, {BROKEN} STRING")
    renamed: dict[str, str] = {}
    if wanted == "csv":
        reader = reader.option("columnPruning", "false")  # or lines with too few fields go unnoticed
        reader = reader.option("header", options.get("header", "true"))
        # or columns in another order are taken by their place, whatever the header says
        reader = reader.option("enforceSchema", options.get("enforceschema", "false"))
        if csv_header.matches_by_name(options):
            folder = path if isinstance(path, str) else path_of(source.options)
            schema, renamed = _order_by_header(source, folder, options, schema)
    reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", BROKEN)
    frame = _decode_partition_texts(
        reader.schema(schema).load(where).withColumnsRenamed(renamed), source, path
    )
    names = [*(column.name for column in source.columns), BROKEN, *more]
    frame = frame.withColumns({name: F.expr(text) for name, text in more.items()}) if more else frame
    if _is_ordered_by_file(source):
        frame = frame.withColumn(PARTITION, F.expr(_FILE))
        names.append(PARTITION)
    return frame.select(*(F.col(quote_name(name)) for name in names))


def _decode_partition_texts(frame: DataFrame, source: Source, path: str | Sequence[str]) -> DataFrame:
    """Decode texts of partition directories (``k=%C3%A4``) as UTF-8.

    Other writers than Spark encode texts so; Spark takes each byte for a character. Texts that are not UTF-8
    stay as Spark has them.
    """
    texts = [column.name for column in source.columns if column.type == STRING]
    if not texts or not _has_partitions(source, path):
        return frame
    file, decoded = F.col("_metadata.file_path"), {}
    for text in texts:
        name = encode_for_url(text)
        part = F.regexp_extract(file, rf"(?i)/\Q{name}\E=([^/]*)/", 1)
        for _ in range(2):  # the path's own encoding, then that of the directory's name
            part = F.try_url_decode(F.replace(part, F.lit("+"), F.lit("%2B")))
        own = F.col(quote_name(text))
        of_bytes = F.when(own.rlike("^[\\x00-\\xff]*$"), F.encode(own, "ISO-8859-1")).cast("string")
        # Where Spark's value is not the bytes of the directory's name, it is of the file.
        is_encoded = F.contains(file, F.lit("%25")) & (of_bytes == part)
        decoded[text] = F.when(is_encoded, part).otherwise(own)
    return frame.withColumns(decoded)


def _has_partitions(source: Source, path: str | Sequence[str]) -> bool:
    """Return True if files are in partition directories, or may be.

    They may be if there are no files yet or their places are unknown.
    """
    if not isinstance(path, str):
        return any("=" in os.path.dirname(file) for file in path)
    local = local_path(path)
    if local is None or not os.path.isdir(local):
        return local is None or "=" in path
    files = list_local_files(source, os.path.abspath(local))
    return not files or any(partition_folders(source, name) for name, _, _ in files)


def _order_by_header(
    source: Source, path: str, options: Mapping[str, str], schema: StructType
) -> tuple[StructType, dict[str, str]]:
    """Return the schema with the columns in the order of the existing files' header.

    Undeclared columns of the header are read as text. Without files, the schema stays as declared.

    Returns:
        The schema, and the header names with surrounding blanks mapped to their declared names.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    layout = read_csv_layout(f'"{source.name}"', source, path, options)
    if layout is None:
        return schema, {}
    types = {field.name: field for field in schema.fields}
    renamed = {name: column.name for name, column in layout if column is not None and name != name.strip()}
    fields = []
    for name, column in layout:
        own = StructField(name, StringType()) if column is None else types.pop(column.name)
        fields.append(StructField(name, own.dataType) if name in renamed else own)
    return StructType([*fields, *types.values()]), renamed


def check_path(spark: SparkSession, what: str, path: str) -> None:
    """Check a local path as `check_there`, and that Spark's JVM reads file names correctly."""
    if local_path(path) is None:
        return
    check_there(what, path)
    java: Any = spark._jvm
    encoding = str(java.java.lang.System.getProperty("sun.jnu.encoding"))
    if codecs.lookup(encoding).name != "utf-8":
        raise EngineError(
            f"{what}: Spark's Java process decodes file names as {encoding}, and skips files with other"
            " names",
            code="file-names-encoding",
            hint="start it in a UTF-8 locale: LC_ALL=C.UTF-8",
        )


def check_there(what: str, path: str) -> None:
    """Check that a local path exists and that Spark will find it.

    Spark checks other paths when it lists them.

    Raises:
        EngineError: nothing exists there, or Spark would skip it.
    """
    local = local_path(path)
    if local is None:
        return
    whole = os.path.abspath(local)
    special = special_at(whole)
    if special is not None:
        raise EngineError(
            f'{what}: "{path}" is {special}, not a file',
            code="path-not-readable",
            hint="set 'path' to a file or a directory of files",
        )
    exists = os.path.exists(whole)
    if exists and PATTERN & set(whole):
        raise EngineError(
            f'{what}: Spark would read "{path}" as a pattern, although a path of this name exists',
            code="path-is-pattern",
            hint=f"rename it, or use a symbolic link whose path contains none of {' '.join(sorted(PATTERN))}",
        )
    matched = [] if exists else matching_paths(whole)
    odd = next((one for one in matched if ":" in one), None)
    if odd is not None:
        raise colon_in_name_error(f"{what}: {format_path(odd)}")
    if not exists and not matched:
        raise missing_path_error(what, path)


def list_local_paths(source: Source) -> list[str]:
    """Return the absolute paths of the files of a source; none where its path is not local, or has none."""
    local = local_path(path_of(source.options))
    if local is None or not matching_paths(local):
        return []
    return [name for name, _, _ in list_local_files(source, os.path.abspath(local))]


def _check_names(what: str, files: Sequence[str]) -> None:
    """Raise EngineError if Spark would treat a file's name as a pattern.

    Spark treats the paths of a batch's files as patterns: with brackets and similar characters in them
    it
    reads each of n files n times.
    """
    odd = next((name for name in files if is_unnameable(name)), None)
    if odd is not None:
        raise EngineError(
            f"{what}: Spark would read {format_path(odd)} as a pattern, and its rows twice or not at all",
            code="file-name",
            hint="rename it without [ ] { } * ? or backslash, in UTF-8",
        )


def check_parquet(what: str, source: Source, path: str) -> bool:
    """Check that Parquet files contain the declared columns with fitting types.

    A column that no file contains would be NULL in every row, and Spark cannot read one of another
    type.
    This checks only the oldest and the newest file: columns may have been added between them.

    Args:
        what: the source, for messages (``file source "a"``).

    Returns:
        True if the files could be checked; Spark reports files that are not Parquet.

    Raises:
        EngineError: the files have other columns than declared.
    """
    local = local_path(path)
    if local is None:
        return False
    files = sorted(list_local_files(source, local), key=lambda entry: entry[2])
    columns, nanos = list[str](), nanosecond_columns(source)
    for name, _, _ in [*files[:1], *files[1:][-1:]]:
        try:
            names = parquet.read_schema(name).names
            compare_columns(what, source, name, nanos)
        except UNREADABLE:
            return False  # half written, or no Parquet: reading it says so
        check_not_above(what, source, name, {own.lower() for own in names})
        columns += [*names, *partition_columns(source, name)]
    if columns:
        check_columns(what, source, columns, f"the files at {path} have")
    return True
