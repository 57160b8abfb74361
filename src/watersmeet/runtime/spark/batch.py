"""Read all rows of a job's sources once, as views, and run statements over them.

The rows are read as the job reads them: with the declared columns, by the options of the source, without
records that do not parse. The caller names the files; topics are read from their beginning up to given
offsets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.errors import EngineError
from watersmeet.names import PARTITION, ours
from watersmeet.runtime.spark.errors import readable_error
from watersmeet.runtime.spark.read_types import cast_to_declared, use_read_types
from watersmeet.runtime.spark.rejected_values import misfit_sql
from watersmeet.runtime.spark.sources import kafka
from watersmeet.runtime.spark.sources.columns import BROKEN
from watersmeet.runtime.spark.sources.files.json_texts import has_other_case_fields
from watersmeet.runtime.spark.sources.files.text_files import LITERAL_PATHS
from watersmeet.runtime.spark.sources.frames import read_records
from watersmeet.runtime.spark.sql_text import quote_name
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.files import OF_SOURCES, format_of
from watersmeet.spec.options.kafka import records_of, topics_in
from watersmeet.spec.options.values import lower_names
from watersmeet.types.sql_type import BIGINT

_OFFSET, _FILE, _NUMBER = ours("offset"), ours("file"), ours("number")
_PLAIN = ("json", "csv", "raw")
"""Formats of Kafka's records of which each is a row that comes."""
_FORMATS = ("parquet", "json", "csv")


class Batch:
    """Views of a Spark session over a job's sources.

    Attributes:
        part: the column that orders rows within their tick.
        at: the column that orders rows by tick.
    """

    def __init__(self, spark: SparkSession, part: str, at: str) -> None:
        self._spark = spark
        self._part, self._at = part, at
        self._tables: dict[str, str] = {}

    @property
    def tables(self) -> Mapping[str, str]:
        """Per source the name of its view."""
        return self._tables

    def files(
        self, source: Source, files: Sequence[str], urls: Sequence[str], asked: Collection[str]
    ) -> None:
        """Read the rows of files, in the order in which the job read them.

        Args:
            urls: the files as Spark calls them.
            asked: the columns that the job looks at.
        """
        wanted = format_of(source.options)
        if source.change_column is not None or source.primary_key is not None or wanted not in _FORMATS:
            raise _not_compared_error(source)
        if not files:
            empty = ", ".join(f"CAST(NULL AS {c.type}) AS {quote_name(c.name)}" for c in source.columns)
            self._view(source, self._spark.sql(f"SELECT {empty} LIMIT 0").withColumn(_FILE, F.lit("")), {})
            return
        options = {
            name: value for name, value in lower_names(source.options).items() if name not in OF_SOURCES
        }
        more = {_FILE: r"regexp_replace(_metadata.file_path, '^file:/+', 'file:/')"}
        if wanted == "json":
            options |= LITERAL_PATHS
        if wanted == "json" and has_other_case_fields(self._spark, source, list(files)):
            raise EngineError(
                f'"{source.name}" has fields whose names differ in case from the declared columns; diff'
                " does not compare such sources",
                code="not-compared",
                hint="declare the columns in the case that the files use",
            )
        frame = read_records(self._spark.read, use_read_types(source), wanted, list(files), options, more)
        frame = cast_to_declared(frame, source)
        if wanted == "parquet":
            frame = frame.withColumn(_FILE, F.expr(more[_FILE]))
        self._view(
            source,
            _drop_broken_rows(frame, source, asked),
            {re.sub("^file:/+", "file:/", url): n for n, url in enumerate(urls)},
        )

    def topics(self, source: Source, ends: Mapping[str, Mapping[str, int]], asked: Collection[str]) -> None:
        """Read the records of a Kafka source before the given offsets, per topic and partition.

        Args:
            asked: as in `files`.
        """
        if (
            records_of(source.options) not in _PLAIN
            or source.change_column is not None
            or source.primary_key is not None
        ):
            raise _not_compared_error(source)
        options = kafka.reader_options(source)
        if options.pop("startingOffsets", "earliest") != "earliest":
            raise EngineError(
                f'the job did not read "{source.name}" from its beginning, and the state does not'
                " record where it began",
                code="not-compared",
                hint=f"name the rows to compare: --input {source.name}=FILES",
            )
        options = {
            **{name: value for name, value in options.items() if name.startswith("kafka.")},
            "startingOffsets": "earliest",
            "endingOffsets": json.dumps(ends),
            "subscribe": ",".join(topics_in(source.options)),
            "failOnDataLoss": "false",
        }
        with_offset = replace(
            source,
            columns=(*source.columns, Column(_OFFSET, BIGINT)),
            options={**source.options, f"metadata.{_OFFSET}": "offset"},
        )
        raw = self._spark.read.format("kafka").options(**options).load()
        frame = _drop_broken_rows(kafka.parse_records(raw, with_offset), source, asked)
        columns = [F.col(quote_name(column.name)) for column in source.columns]
        frame = frame.select(*columns, F.col(PARTITION).alias(self._part), F.col(_OFFSET).alias(self._at))
        self._register_view(source, frame)

    def write(self, statement: str, folder: str) -> None:
        """Write the result of a statement as Parquet files.

        Raises:
            EngineError: the statement or the write fails.
        """
        try:
            self._spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
            self._spark.sql(statement).write.mode("overwrite").parquet(f"file://{folder}")
        except Exception as error:
            raise readable_error(error, "the batch answer") from None

    def _view(self, source: Source, frame: DataFrame, numbers: Mapping[str, int]) -> None:
        columns = [F.col(quote_name(column.name)) for column in source.columns]
        order = self._spark.createDataFrame(
            [(path, number) for path, number in numbers.items()] or [("", 0)],
            f"{_FILE} STRING, {_NUMBER} INT",
        )
        frame = frame.join(F.broadcast(order), _FILE, "left").select(
            *columns, F.lit("").alias(self._part), F.col(_NUMBER).cast("bigint").alias(self._at)
        )
        self._register_view(source, frame)

    def _register_view(self, source: Source, frame: DataFrame) -> None:
        name = ours(f"source{len(self._tables)}")
        frame.createOrReplaceTempView(name)
        self._tables[source.name] = name


def _drop_broken_rows(frame: DataFrame, source: Source, asked: Collection[str]) -> DataFrame:
    """Return the rows of records that the job does not count as broken."""
    if BROKEN in frame.columns:
        frame = frame.where(F.col(BROKEN).isNull())
    misfit = misfit_sql(source, [quote_name(name) for name in asked])
    return frame if misfit is None else frame.where(F.expr(f"{misfit} IS NULL"))


def _not_compared_error(source: Source) -> EngineError:
    return EngineError(
        f'"{source.name}" has updates or deletes, which diff does not apply for this source',
        code="not-compared",
        hint="compare queries over streams without updates and deletes",
    )
