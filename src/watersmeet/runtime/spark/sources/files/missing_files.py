"""Find files of other file systems that are gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from watersmeet.errors import EngineError
from watersmeet.parallel import parallel_map
from watersmeet.runtime.spark.errors import readable_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Whether files of other file systems (S3, HDFS, …) are there, as Hadoop's clients see them.
#
# Spark lists the files of a batch once more before it reads them, and those that are gone by then it
# passes over without a word. So they are asked for before the rows of their tick are read: a request for
# each, several at once.

FindMissing = Callable[[Sequence[str]], frozenset[str]]
"""Which of these files, by their URLs, are not there any more."""

_MAX_PARALLEL_CHECKS = 16


def build_missing_check(spark: SparkSession) -> FindMissing:
    """Asks with what the session says of file systems.

    Raises (what is returned): EngineError, when a file system does not answer.
    """
    java, hadoop = spark._jvm.java.net, spark._jvm.org.apache.hadoop  # type: ignore[union-attr]
    state: Any = spark._jsparkSession.sessionState()

    def find_missing_files(urls: Sequence[str]) -> frozenset[str]:
        conf = state.newHadoopConf()

        def is_there(url: str) -> bool:
            path = hadoop.fs.Path(java.URI(url))
            try:
                return bool(path.getFileSystem(conf).exists(path))
            except Exception as error:
                told = readable_error(error)
                raise EngineError(
                    f"{url} cannot be checked: {told.message}",
                    code="file-unreadable",
                    hint=told.hint
                    or "run again when its file system answers; nothing of this tick was written",
                ) from None

        there = parallel_map(is_there, urls, _MAX_PARALLEL_CHECKS)
        return frozenset(url for url, is_left in zip(urls, there, strict=True) if not is_left)

    return find_missing_files
