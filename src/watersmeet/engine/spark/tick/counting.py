"""Counts rows on their way into a sink, where these are not the ones that left the tasks: after a filter or a
grouping by Spark, and the sink cannot tell (`Sink.tells_rows`).

Rows pass through Python once more, which adds up by an accumulator. It is no `observe`: that says nothing of
a frame which a connector evaluates by itself, as Spark's for Kafka does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import Accumulator, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from watersmeet.engine.spark.lists import Lists
from watersmeet.engine.spark.properties import NODE

_EVALUATION = "spark.sql.execution.id"

_Batch = TypeVar("_Batch", pa.RecordBatch, pa.Array)

Count = tuple[str | None, str | None, int, int]
"""What the tick's tasks were told, evaluation, partition, rows."""


class RowCounter:
    """Counts the rows of one frame, anew in every tick."""

    def __init__(self, spark: SparkSession) -> None:
        self._counts: Accumulator[list[Count]] = spark.sparkContext.accumulator([], Lists())

    def over(self, frame: DataFrame) -> DataFrame:
        """The same rows, counted as they pass. Columns have types that tasks give rows of, too."""
        passing = _Counting(self._counts)
        plain = frame.toDF(*(f"c{n}" for n in range(len(frame.columns))))  # it takes no names with dots
        return plain.mapInArrow(passing.rows, plain.schema).toDF(*frame.columns)

    def over_groups(self, frame: DataFrame) -> DataFrame:
        """The same for columns of any types: a condition that is true of every row is given a column of
        constants alone. That takes twice the time per row."""
        udf: Any = arrow_udf  # its kind follows from the type hints, which its overloads leave out
        # Not deterministic: it stays where it is, above the query's own conditions.
        passing = udf(_Counting(self._counts).true, "BOOLEAN").asNondeterministic()
        return frame.where(passing(F.lit(True)))

    def begin(self) -> None:
        """Forget what was counted."""
        self._counts.value = []

    def rows(self, told: str) -> int:
        """Rows of the tick whose tasks were told ``told``, once each: a partition may have been evaluated by
        several tasks, and the whole frame or a part of it more often than once."""
        rows_by_evaluation: defaultdict[str | None, dict[int, int]] = defaultdict(dict)
        for whose, evaluation, partition, rows in self._counts.value:
            if whose == told:
                rows_by_evaluation[evaluation][partition] = rows
        return max((sum(partitions.values()) for partitions in rows_by_evaluation.values()), default=0)


@dataclass(frozen=True)
class _Counting:
    """The functions given to Spark: the batches of one task as they come, counted."""

    counts: Accumulator[list[Count]]

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _counted(batches, self.counts)

    def true(self, batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        yield from _counted(batches, self.counts)


def _counted(batches: Iterator[_Batch], counts: Accumulator[list[Count]]) -> Iterator[_Batch]:
    """The batches of one task; how many rows they had is added when all have been taken."""
    rows = 0
    for batch in batches:
        rows += len(batch)
        yield batch
    context = TaskContext.get()
    if context is not None:
        told, evaluation = map(context.getLocalProperty, (NODE, _EVALUATION))
        counts.add([(told, evaluation, context.partitionId(), rows)])
