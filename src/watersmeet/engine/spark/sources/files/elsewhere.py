"""Whether files of other file systems (S3, HDFS, …) are there, as Hadoop's clients see them.

Spark lists the files of a batch once more before it reads them, and those that are gone by then it passes
over without a word. So they are asked for before the rows of their tick are read: a request for each, several
at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from watersmeet.engine.spark.errors import readable_error
from watersmeet.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Gone = Callable[[Sequence[str]], frozenset[str]]
"""Which of these files, by their URLs, are not there any more."""

_AT_ONCE = 16


def gone_in(spark: SparkSession) -> Gone:
    """Asks with what the session says of file systems.

    Raises (what is returned): EngineError, when a file system does not answer.
    """
    java, hadoop = spark._jvm.java.net, spark._jvm.org.apache.hadoop  # type: ignore[union-attr]
    state: Any = spark._jsparkSession.sessionState()

    def gone(urls: Sequence[str]) -> frozenset[str]:
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

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            there = list(pool.map(is_there, urls))
        return frozenset(url for url, is_left in zip(urls, there, strict=True) if not is_left)

    return gone
