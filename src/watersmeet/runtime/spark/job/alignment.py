"""Holds sources that are ahead of others (`watermark.holders`), while Spark's query goes on.

A running query asks each source, batch by batch, for an offset to read up to, within a limit that it keeps in
a map (`uniqueSources`, public and volatile in Java). A source that is held gets a limit of no rows: its
offset stays as it is, in Spark's checkpoint, too, and a batch that is repeated is the same. Where a source
knows no limits (made-up rows) it is not asked, which comes to the same.

Nothing of this is stored: who is held follows from the watermarks of the last tick. A run that goes on finds
the same sources ahead; they are held before its first batch is planned, under the lock by which the query
plans. If the query should be faster than this process, which has its time to make its sources, the first
batch has rows of theirs, and the next one has none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyspark
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.errors import EngineError
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.spark.sources import generator
from watersmeet.spec.model import Source

_PATIENCE_S = 60.0
"""Spark makes its sources within a second or two."""


class Alignment:
    """Watermark alignment of one run of a job."""

    def __init__(self, spark: SparkSession, sources: Sequence[Source], driver: TickDriver) -> None:
        self._spark = spark
        self._sources = sources
        self._driver = driver
        self._execution: Any = None
        self._limits: Any = None
        self._made: list[Any] = []
        self._held: frozenset[str] = frozenset()

    def begin(self, query: StreamingQuery) -> None:
        """Begin alignment for a query that Spark has just started.

        Raises:
            EngineError: as `align`.
        """
        self._execution, self._limits, self._held = None, None, frozenset()
        if all(query.options.max_drift is None for query in self._driver.plan.queries):
            return
        with _translate_java_errors():
            execution: Any = query._jsq.streamingQuery()
            planning = execution.awaitProgressLock()
            locked = planning.tryLock()  # at once; else it is planning already: a tick too many
            try:
                until, held = time.monotonic() + _PATIENCE_S, self._driver.held()
                while held and query.isActive and not execution.uniqueSources().size():
                    if time.monotonic() > until:
                        break
                    time.sleep(0.002)
                self._execution = execution  # from its first tick on it is held, whatever comes of this
                if query.isActive and (not held or execution.uniqueSources().size()):
                    self.align()
            finally:
                if locked:
                    planning.unlock()

    def align(self) -> None:
        """Hold who is ahead now, and read who is no more. Raises: EngineError, if Spark does not let it."""
        execution = self._execution  # the query may end meanwhile
        held = frozenset(self._driver.held()) if execution is not None else self._held
        if held == self._held:
            return
        with _translate_java_errors():
            if self._limits is None:
                self._limits = execution.uniqueSources()
                made = execution.sources()
                self._made = [made.apply(number) for number in range(made.size())]
                if len(self._made) != len(self._sources):
                    raise _not_aligned_error()
            limits, none = self._limits, self._build_empty_limits()
            for source, made in zip(self._sources, self._made, strict=True):
                if source.name in held and (source.traits.log or source.traits.files):
                    limits = limits.updated(made, none[source.traits.log])
                elif source.name in held:
                    limits = getattr(limits, "$minus")(made)
            getattr(execution, "uniqueSources_$eq")(limits)
        self._held = held

    def end(self) -> None:
        """End alignment: Spark's query has ended or is about to end."""
        self._execution = None

    def goes_on(self, offsets: Sequence[str]) -> bool:
        """Return True if a new query has more to read, after the query found nothing more.

        A run that ends at the end of its input calls this. Generated sources produce one batch per query.
        Sources that are not paused have no rows left, so they are marked as ended; otherwise the paused
        sources would wait for rows that do not exist.
        """
        held = self._driver.held()
        free = [source for source in self._sources if source.name not in held]
        if generator.has_more_rows(self._sources, offsets, passed_over=held):
            return True
        self._driver.inputs.mark_ended(source.name for source in free)
        return bool(held)

    def _build_empty_limits(self) -> dict[bool, Any]:
        jvm: Any = self._spark._jvm
        limit = jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit
        return {True: limit.maxRows(0), False: limit.maxFiles(0)}


@contextmanager
def _translate_java_errors() -> Iterator[None]:
    try:
        yield
    except Py4JNetworkError:
        raise
    except Py4JError as error:
        if "does not exist" in str(error):
            raise _not_aligned_error() from None
        raise


def _not_aligned_error() -> EngineError:
    return EngineError(
        f"Spark {pyspark.__version__} cannot pause a source, which max_drift needs",
        code="not-aligned",
        hint="remove max_drift, or run the job on another version of Spark",
    )
