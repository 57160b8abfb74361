"""Who reads the Parquet files of a job's streams."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

PARQUET_READER = "parquet_reader"


class ParquetReader(Enum):
    """``AUTO``: tasks, by Arrow, where that gives what Spark's reader does; else Spark. ``SPARK``: always."""

    AUTO = "auto"
    SPARK = "spark"


def reader_in(settings: Mapping[str, str]) -> ParquetReader:
    """The one that the settings of a run name; those are checked."""
    return ParquetReader(settings.get(PARQUET_READER, ParquetReader.AUTO.value))
