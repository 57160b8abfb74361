"""In how many tasks each node is run in a tick: as many as the user says, or by what there is to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession

from watersmeet.engine.driver.amount import Amount
from watersmeet.engine.driver.results import QueryResult


class Frames:
    """A frame per number of tasks, made when it is first asked for, or each time (``anew``)."""

    def __init__(self, make: Callable[[int], DataFrame], *, anew: bool = False) -> None:
        self._make, self._anew = make, anew
        self._made: dict[int, DataFrame] = {}

    def of(self, partitions: int) -> DataFrame:
        if self._anew or partitions not in self._made:
            self._made[partitions] = self._make(partitions)
        return self._made[partitions]


class TaskCounts:
    """Numbers of tasks. Nothing depends on them but time and memory: a tick that is repeated may have others.

    How many rows the nodes of a query find or put out for each that comes is taken from the last tick that
    had some: of a run's first one it is not known.

    Args:
        asked: as many tasks in every tick; None: by what there is to do.
    """

    def __init__(self, spark: SparkSession, asked: int | None) -> None:
        self._context = spark.sparkContext
        self._asked = asked
        self._rows: dict[str, int] = {}
        self._found: dict[str, float] = {}

    def begin(self) -> None:
        """A tick begins."""
        self._rows.clear()

    def of(self, query: str, amount: Amount) -> int:
        """For the next node of a query, which has so much to do."""
        self._rows[query] = self._rows.get(query, 0) + amount.rows
        if self._asked is not None:
            return self._asked
        # Asked in every tick: executors come and go.
        return amount.tasks(self._context.defaultParallelism, self._found.get(query, 1.0))

    def learn(self, results: Mapping[str, QueryResult]) -> None:
        """What came of the tick."""
        for query, rows in self._rows.items():
            if rows:
                of_query = results[query]
                self._found[query] = max(of_query.matches, of_query.rows_out) / rows
