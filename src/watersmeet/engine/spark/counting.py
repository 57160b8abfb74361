"""Counts rows on their way into a sink, where these are not the ones that left the tasks: after a filter or a
grouping by Spark.

A condition that is true of every row, evaluated by Python, adds up by an accumulator. Only a column of
constants crosses over to Python, so whatever types rows have, they stay where they are. It is no `observe`:
that says nothing of a frame which a connector evaluates by itself, as that of Kafka does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

from watersmeet.engine.spark.properties import JOIN

_EVALUATION = "spark.sql.execution.id"

Count = tuple[str | None, str | None, int, int]
"""What the tick's tasks were told, evaluation, partition, rows."""


class _Counts(AccumulatorParam[list[Count]]):
    """Lists, put together."""

    def zero(self, value: list[Count]) -> list[Count]:
        return []

    def addInPlace(self, value1: list[Count], value2: list[Count]) -> list[Count]:
        value1.extend(value2)
        return value1


class RowCounter:
    """Counts the rows of one frame, anew in every tick."""

    def __init__(self, spark: SparkSession) -> None:
        self._counts: Accumulator[list[Count]] = spark.sparkContext.accumulator([], _Counts())

    def over(self, frame: DataFrame) -> DataFrame:
        """The same rows, counted as they pass."""
        counts = self._counts

        def counted(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
            rows = 0
            for batch in batches:
                rows += len(batch)
                yield batch
            context = TaskContext.get()
            if context is not None:
                told, evaluation = map(context.getLocalProperty, (JOIN, _EVALUATION))
                counts.add([(told, evaluation, context.partitionId(), rows)])

        # Not deterministic: it stays where it is, above the query's own conditions.
        passing = arrow_udf(counted, "BOOLEAN", ArrowUDFType.SCALAR_ITER).asNondeterministic()
        return frame.where(passing(F.lit(True)))

    def begin(self) -> None:
        """Forget what was counted."""
        self._counts.value = []

    def rows(self, told: str) -> int:
        """Rows of the tick whose tasks were told ``told``, once each: a partition may have been evaluated by
        several tasks, and the whole frame or a part of it more often than once."""
        found: defaultdict[str | None, dict[int, int]] = defaultdict(dict)
        for whose, evaluation, partition, rows in self._counts.value:
            if whose == told:
                found[evaluation][partition] = rows
        return max((sum(partitions.values()) for partitions in found.values()), default=0)
