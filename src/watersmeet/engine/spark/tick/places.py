"""Where tasks run on a cluster: each slice of a node in the executor that had it in the last tick.

A task reads its slice of the state from the cache of its executor's machine, as far as it was read or
written there before; all else it fetches from the store. Spark alone places tasks at random. So executors
keep what tasks are made of, their numbers (some bytes each), and Spark prefers for each task the executor
that keeps its number. No task waits for that, and nothing rests on it: a number that is gone with its
executor is made anew wherever the task runs then.
"""

from __future__ import annotations

from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

_RELEASES = "spark.dynamicAllocation.enabled"
"""Executors go that have had nothing to do for a while, but for those that keep something."""
_WAIT = "spark.locality.wait"
"""So long does a task wait for the executor that it prefers, while that one has others to run."""


class Places:
    """The numbers of tasks as frames of one column, ``id``, with a row for each partition; see the module.

    They have no places in one process, nor where executors that keep something would stay for it, nor where
    tasks would wait for them.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.are_kept = _may_be_kept(spark.sparkContext)
        self._made: dict[int, DataFrame] = {}

    def numbers(self, partitions: int, *, grouped: bool = False) -> DataFrame:
        """The numbers from 0 on, each in a partition of its own.

        Args:
            grouped: rows that are made of them are grouped or summed by Spark, which need not shuffle them
                where it knows that there is but one partition. Of numbers that are kept it does not.
        """
        if not self.are_kept or (grouped and partitions == 1):
            return self._plain(partitions)
        if partitions not in self._made:
            self._made[partitions] = self._kept(self._plain(partitions))
        return self._made[partitions]

    def _plain(self, partitions: int) -> DataFrame:
        return self._spark.range(0, partitions, 1, partitions)

    def _kept(self, numbers: DataFrame) -> DataFrame:
        rows: Any = numbers._jdf.queryExecution().toRdd()
        rows.persist(self._spark.sparkContext._getJavaStorageLevel(StorageLevel.MEMORY_ONLY))
        session: Any = self._spark._jsparkSession
        return DataFrame(session.internalCreateDataFrame(rows, numbers._jdf.schema(), False), self._spark)


def _may_be_kept(context: Any) -> bool:
    running = context._jsc.sc()
    conf = running.conf()
    return not (running.isLocal() or conf.getBoolean(_RELEASES, False) or conf.getTimeAsMs(_WAIT, "3s"))
