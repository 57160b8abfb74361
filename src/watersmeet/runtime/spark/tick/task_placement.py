"""Number, place and describe the tasks of a tick."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from watersmeet.runtime.coordinator.node_cost import CostEstimate
from watersmeet.runtime.coordinator.results import QueryResult

# In how many tasks each node is run in a tick: as many as the user says, or by what there is to do.


class FrameCache:
    """A frame per number of tasks, made when it is first asked for, or each time (``anew``)."""

    def __init__(self, make: Callable[[int], DataFrame], *, anew: bool = False) -> None:
        self._make, self._anew = make, anew
        self._made: dict[int, DataFrame] = {}

    def of(self, partitions: int) -> DataFrame:
        if self._anew or partitions not in self._made:
            self._made[partitions] = self._make(partitions)
        return self._made[partitions]


class TaskCounts:
    """Numbers of tasks. They affect only time and memory: a repeated tick may use others.

    The ratio of rows that the nodes of a query find or emit to their input rows comes from the last
    tick
    that had input. It is unknown in the first tick of a run.

    Args:
        asked: the number of tasks in every tick; None: depends on the work.
    """

    def __init__(self, spark: SparkSession, asked: int | None) -> None:
        self._context = spark.sparkContext
        self._asked = asked
        self._rows: dict[str, int] = {}
        self._given: dict[tuple[str, int], int] = {}
        self._found: dict[str, float] = {}

    @property
    def about(self) -> int:
        """Number of tasks of a node with much work."""
        return self._asked or int(self._context.defaultParallelism)

    def begin(self) -> None:
        """Reset the counts at the start of a tick."""
        self._rows.clear()
        self._given.clear()

    def of(self, query: str, number: int, amount: CostEstimate) -> int:
        """Return the number of tasks for the next node of a query, given its cost estimate."""
        self._rows[query] = self._rows.get(query, 0) + amount.rows
        count = self._asked
        if count is None:
            # Asked in every tick: executors come and go.
            count = amount.tasks(self._context.defaultParallelism, self._found.get(query, 1.0))
        self._given[query, number] = count
        return count

    def estimate_rows(self, query: str, amount: CostEstimate) -> float:
        """Estimate the rows that a node with this cost finds or emits; 0 in the first tick."""
        return amount.rows * self._found.get(query, 0.0)

    def note_inline_run(self, query: str, number: int) -> None:
        """Record that the driver ran the node inline."""
        self._given[query, number] = 0

    def used(self) -> dict[str, int]:
        """Return per query with work in this tick the largest number of tasks of one of its nodes."""
        return {
            query: max(count for (of, _), count in self._given.items() if of == query)
            for query, _ in self._given
        }

    def learn(self, results: Mapping[str, QueryResult]) -> None:
        """Update the row ratios from the results of the tick."""
        for query, rows in self._rows.items():
            if rows:
                of_query = results[query]
                self._found[query] = max(of_query.matches, of_query.rows_out) / rows


# Where tasks run on a cluster: each slice of a node in the executor that had it in the last tick.
#
# A task reads its slice of the state from the cache of its executor's machine, as far as it was read or
# written there before; all else it fetches from the store. Spark alone places tasks at random. So
# executors keep what tasks are made of, their numbers (some bytes each), and Spark prefers for each task
# the executor that keeps its number. No task waits for that, and nothing rests on it: a number that is
# gone with its executor is made anew wherever the task runs then.

_RELEASES = "spark.dynamicAllocation.enabled"
"""Executors go that have had nothing to do for a while, but for those that keep something."""
_WAIT = "spark.locality.wait"
"""So long does a task wait for the executor that it prefers, while that one has others to run."""


class TaskPlacement:
    """The numbers of tasks as frames of one column, ``id``, with a row for each partition; see the module.

    They have no places in one process, nor where executors that keep something would stay for it, nor where
    tasks would wait for them.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.are_kept = _can_persist_numbers(spark.sparkContext)
        self._made: dict[int, DataFrame] = {}

    def numbers(self, partitions: int, *, grouped: bool = False) -> DataFrame:
        """Return a frame of the numbers from 0 on, each in a partition of its own.

        Args:
            grouped: Spark groups or sums the rows that are made from them. With one partition it needs no
                shuffle if it knows their number, which it does not for persisted numbers.
        """
        if not self.are_kept or (grouped and partitions == 1):
            return self._plain(partitions)
        if partitions not in self._made:
            self._made[partitions] = self._persist_numbers(self._plain(partitions))
        return self._made[partitions]

    def _plain(self, partitions: int) -> DataFrame:
        return self._spark.range(0, partitions, 1, partitions)

    def _persist_numbers(self, numbers: DataFrame) -> DataFrame:
        rows: Any = numbers._jdf.queryExecution().toRdd()
        rows.persist(self._spark.sparkContext._getJavaStorageLevel(StorageLevel.MEMORY_ONLY))
        session: Any = self._spark._jsparkSession
        return DataFrame(session.internalCreateDataFrame(rows, numbers._jdf.schema(), False), self._spark)


def _can_persist_numbers(context: Any) -> bool:
    running = context._jsc.sc()
    conf = running.conf()
    return not (running.isLocal() or conf.getBoolean(_RELEASES, False) or conf.getTimeAsMs(_WAIT, "3s"))


# What Spark's own UI says of the jobs of a tick: ``orders: tick 12, delivered, join 2``.
#
# Spark describes the jobs of a streaming batch itself, by the query's name and the batch's number. Its
# words are there again when a tick is over.

DESCRIPTION = "spark.job.description"


class Descriptions:
    """Descriptions, in Spark's UI, of the jobs of one watersmeet job's ticks.

    ``job``: its name.
    """

    def __init__(self, spark: SparkSession, job: str) -> None:
        self._context = spark.sparkContext
        self._tick = job

    @contextmanager
    def of(self, tick: int) -> Iterator[None]:
        """Describe the Spark jobs that this thread starts within the block as those of a tick."""
        before, name = self._context.getLocalProperty(DESCRIPTION), self._tick
        self._tick = f"{name}: tick {tick:,}"
        try:
            yield
        finally:
            self._tick = name
            with suppress(Exception):  # Java may be gone, and how the tick ended is what counts
                self._context.setLocalProperty(DESCRIPTION, before)  # type: ignore[arg-type]

    def part(self, *words: str) -> None:
        """Describe the following Spark jobs as this part of the tick."""
        self._context.setLocalProperty(DESCRIPTION, ", ".join([self._tick, *words]))
