"""A declared source → a streaming frame with its columns, `PARTITION` and `BROKEN`.

* `PARTITION`: what the source's watermark is kept by: the Kafka partition (``topic/partition`` for several
  topics), NULL for sources that are one partition.
* `BROKEN`: STRING, the raw record when it does not parse into the declared columns, else NULL. A broken
  record's columns may be NULL or half read: whoever uses the frame drops them, and counts.

Options that are not known are refused; those of Spark's readers go there. How much one tick reads is bounded
by default.
"""

from __future__ import annotations

import codecs
import glob
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamReader

from watersmeet.engine.spark import generator, kafka
from watersmeet.engine.spark.parquet_types import check_types
from watersmeet.engine.spark.split import BROKEN
from watersmeet.engine.spark.text import quoted
from watersmeet.engine.step.table_files import local_files
from watersmeet.errors import EngineError, SpecError, near_names, raise_all
from watersmeet.names import PARTITION
from watersmeet.spec.files import OURS, format_of, local_path, path_of, source_problems
from watersmeet.spec.model import Source

BYTES_PER_TICK = str(32 << 20)

PATTERN = frozenset("{}[]*?\\")
"""Characters by which Spark takes a path for a pattern."""

_BOUNDS = frozenset({"maxfilespertrigger", "maxbytespertrigger"})


def read(spark: SparkSession, source: Source, *, sources: int = 1, trigger_s: float = 1.0) -> DataFrame:
    """The streaming frame of ``source``; see the module.

    Args:
        sources: how many sources the job reads; a tick's rows are shared among them.
        trigger_s: seconds between ticks, for sources whose rows per tick follow from a rate.

    Raises:
        EngineError: what it reads from is not there.
        SpecError: an option is missing or wrong.
    """
    if source.connector == "kafka":
        return kafka.read(spark, source, sources)
    if source.connector == "file":
        return _read_files(spark, source)
    if source.connector == "generator":
        return generator.read(spark, source, trigger_s)
    raise SpecError(
        f'"{source.name}": there is no source of type "{source.connector}" on Spark',
        code="unknown-connector",
        hint=near_names(source.connector, ("kafka", "file", "generator")),
    )


def parses(source: Source) -> bool:
    """Whether a record of ``source`` can be broken."""
    wanted = lowered(source.options).get("format", "").strip().lower()
    if source.connector == "kafka":
        return wanted != "raw"
    return source.connector == "file" and wanted in ("json", "csv")


def has_partitions(source: Source) -> bool:
    return source.connector in ("kafka", "memory") or bool(source.partitions)


def declared(source: Source) -> str:
    """The declared columns as DDL."""
    return ", ".join(f"{quoted(column.name)} {column.type}" for column in source.columns)


def _read_files(spark: SparkSession, source: Source) -> DataFrame:
    given = lowered(source.options)
    raise_all(source_problems(source))
    path, wanted = path_of(source.options), format_of(source.options)
    check_path(spark, f'file source "{source.name}"', path)
    if wanted == "parquet" and "pathglobfilter" not in given:
        _check_parquet(source, path)
    options = {name: value for name, value in given.items() if name not in OURS}
    if not _BOUNDS & set(options):
        options["maxbytespertrigger"] = BYTES_PER_TICK
    frame = read_records(spark.readStream, source, wanted, path, options)
    null = F.lit(None).cast("string")
    columns = [F.col(quoted(column.name)) for column in source.columns]
    return frame.select(
        *columns, null.alias(PARTITION), F.col(BROKEN) if parses(source) else null.alias(BROKEN)
    )


def read_records(
    reading: DataFrameReader | DataStreamReader,
    source: Source,
    wanted: str,
    path: str,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The declared columns of the files at ``path``, and for formats that parse `BROKEN`.

    Args:
        options: for the reader; None: those of ``source``.
    """
    if options is None:
        options = {name: value for name, value in lowered(source.options).items() if name not in OURS}
    reader: Any = reading.format(wanted).options(**options)
    if wanted == "parquet":
        found: DataFrame = reader.schema(declared(source)).load(path)
        return found
    if wanted == "csv":
        reader = reader.option("columnPruning", "false")  # or lines with too few fields go unnoticed
        reader = reader.option("header", options.get("header", "true"))
        # or columns in another order are taken by their place, whatever the header says
        reader = reader.option("enforceSchema", options.get("enforceschema", "false"))
    reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", BROKEN)
    found = reader.schema(f"{declared(source)}, {BROKEN} STRING").load(path)
    return found


def check_path(spark: SparkSession, what: str, path: str) -> None:
    """That there is something at a local path, and that Spark will find it; others are checked by Spark when
    it lists them.

    Raises:
        EngineError: there is nothing, or Spark would pass over what is there.
    """
    local = local_path(path)
    if local is None:
        return
    whole = os.path.abspath(local)
    exists = os.path.exists(whole)
    if exists and PATTERN & set(whole):
        raise EngineError(
            f'{what}: Spark takes "{path}" for a pattern, not for the path that is there',
            code="path-is-pattern",
            hint=f"rename it, or name a link to it, in whose path is none of {' '.join(sorted(PATTERN))}",
        )
    if not exists and not glob.glob(whole):
        raise EngineError(
            f'{what}: there is no "{path}"',
            code="path-missing",
            hint="name a directory that exists (it may be empty, and grow)",
        )
    java: Any = spark._jvm
    encoding = str(java.java.lang.System.getProperty("sun.jnu.encoding"))
    if codecs.lookup(encoding).name != "utf-8":
        raise EngineError(
            f"{what}: Spark's Java process takes file names for {encoding}, and passes over others",
            code="file-names-encoding",
            hint="start it with a locale of UTF-8: LC_ALL=C.UTF-8",
        )


def _check_parquet(source: Source, path: str) -> None:
    """Parquet files know their columns; one that is in none would be NULL in every row, and one of another
    type is not read. The oldest and the newest file that are there are looked at: columns may have been added
    in between."""
    what = f'file source "{source.name}"'
    local = local_path(path)
    if local is None:
        return
    files = sorted(local_files(source, local), key=lambda entry: entry[2])
    found: list[str] = []
    for name, _, _ in [*files[:1], *files[1:][-1:]]:
        try:
            found += parquet.read_schema(name).names
            check_types(what, source, name)
        except (OSError, pa.ArrowInvalid):
            return  # half written, or no Parquet: reading it says so
        found += [part.partition("=")[0] for part in name.split(os.sep) if "=" in part]
    if found:
        check_columns(what, source, found, f"the files at {path} have")


def check_columns(what: str, source: Source, found: Sequence[str], where: str) -> None:
    """Raises: EngineError naming the declared columns that ``where`` ("the files have") has not."""
    known = {name.lower() for name in found}
    missing = [column.name for column in source.columns if column.name.lower() not in known]
    if missing:
        raise EngineError(
            f"{what}: {where} no column {', '.join(missing)}",
            code="wrong-columns",
            hint=near_names(missing[0], found) or f"its columns are {', '.join(found)}",
        )


def lowered(options: Mapping[str, str]) -> dict[str, str]:
    """Options by their names in lower case: Spark does not tell letters' cases apart, so nothing here may."""
    return {name.lower(): value for name, value in options.items()}
