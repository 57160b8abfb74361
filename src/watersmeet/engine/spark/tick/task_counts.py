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
        self._given: dict[tuple[str, int], int] = {}
        self._found: dict[str, float] = {}

    @property
    def about(self) -> int:
        """So many a node has that has much to do."""
        return self._asked or int(self._context.defaultParallelism)

    def begin(self) -> None:
        """A tick begins."""
        self._rows.clear()
        self._given.clear()

    def of(self, query: str, number: int, amount: Amount) -> int:
        """For the next node of a query, which has so much to do."""
        self._rows[query] = self._rows.get(query, 0) + amount.rows
        count = self._asked
        if count is None:
            # Asked in every tick: executors come and go.
            count = amount.tasks(self._context.defaultParallelism, self._found.get(query, 1.0))
        self._given[query, number] = count
        return count

    def foreseen(self, query: str, amount: Amount) -> float:
        """About how many rows a node that has so much to do finds, or puts out; in the first tick 0."""
        return amount.rows * self._found.get(query, 0.0)

    def spared(self, query: str, number: int) -> None:
        """The driver did itself what the node had to do."""
        self._given[query, number] = 0

    def used(self) -> dict[str, int]:
        """Per query with nodes that had something to do: the most tasks of a node of it in this tick."""
        return {
            query: max(count for (of, _), count in self._given.items() if of == query)
            for query, _ in self._given
        }

    def learn(self, results: Mapping[str, QueryResult]) -> None:
        """What came of the tick."""
        for query, rows in self._rows.items():
            if rows:
                of_query = results[query]
                self._found[query] = max(of_query.matches, of_query.rows_out) / rows
