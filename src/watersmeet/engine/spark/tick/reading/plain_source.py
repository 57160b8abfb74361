"""Which sources are plain streams of local Parquet files, that tasks may read themselves."""

from __future__ import annotations

from watersmeet.spec.model import Source
from watersmeet.spec.options.files import ON_CHANGED_FILE, OURS, format_of, local_path, path_of
from watersmeet.spec.options.lowered import lowered

_LISTED = frozenset(
    {
        *OURS,
        *(ON_CHANGED_FILE, "maxfilespertrigger", "maxbytespertrigger", "maxfileage", "maxcachedfiles"),
        *("discardcachedinputratio", "cleansource", "sourcearchivedir", "pathglobfilter"),
        *("latestfirst", "filenameonly", "ignorecorruptfiles", "ignoremissingfiles"),  # 'false' at most
    }
)
"""Options that say which files are read when, not what is in them."""

SETTINGS = (
    *("spark.sql.parquet.", "spark.sql.files.", "spark.sql.sources.", "spark.sql.legacy."),
    *("spark.hadoop.parquet.", "parquet."),
)
"""How settings begin by which Spark reads files in another way."""


def is_plain(source: Source) -> bool:
    """Whether it is a stream of local Parquet files that are read as they are."""
    return (
        source.traits.files
        and format_of(source.options) == "parquet"
        and local_path(path_of(source.options)) is not None
        and set(lowered(source.options)) <= _LISTED
        and not (source.changes or source.is_table or source.primary_key or source.partitions)
    )
