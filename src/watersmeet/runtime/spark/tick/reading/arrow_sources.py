"""The plain streams of local files, which tasks may read themselves.

Declarations decide. This module imports little, because it is used before Java starts.
"""

from __future__ import annotations

from watersmeet.runtime.files.supported_types import has_arrow_reader
from watersmeet.spec.model import Source

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
    return has_arrow_reader(source) and not (
        source.changes or source.is_table or source.primary_key or source.partitions
    )
