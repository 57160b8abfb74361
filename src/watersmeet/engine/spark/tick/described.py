"""What Spark's own UI says of the jobs of a tick: ``orders: tick 12, delivered, join 2``.

Spark describes the jobs of a streaming batch itself, by the query's name and the batch's number. Its words
are there again when a tick is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark.sql import SparkSession

DESCRIPTION = "spark.job.description"


class Descriptions:
    """Of the ticks of one job. ``job``: its name."""

    def __init__(self, spark: SparkSession, job: str) -> None:
        self._context = spark.sparkContext
        self._tick = job

    @contextmanager
    def of(self, tick: int) -> Iterator[None]:
        """Within, the jobs that this thread starts are those of a tick."""
        before, name = self._context.getLocalProperty(DESCRIPTION), self._tick
        self._tick = f"{name}: tick {tick:,}"
        try:
            yield
        finally:
            self._tick = name
            with suppress(Exception):  # Java may be gone, and how the tick ended is what counts
                self._context.setLocalProperty(DESCRIPTION, before)  # type: ignore[arg-type]

    def part(self, *words: str) -> None:
        """The jobs that follow are of this part of the tick."""
        self._context.setLocalProperty(DESCRIPTION, ", ".join([self._tick, *words]))
