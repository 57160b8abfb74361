"""Count rows on their way into a sink, and verify that the sink has them."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import Accumulator, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from watersmeet.errors import EngineError, format_count
from watersmeet.runtime.spark.sources.topics import ADMIN_TIMEOUT_MS, list_partition_numbers
from watersmeet.runtime.spark.task_messages import NODE, ListAccumulator
from watersmeet.sinks.base import Omission, Sink, Topic

# Counts rows on their way into a sink, where these are not the ones that left the tasks: after a filter
# or a grouping by Spark, and the sink cannot tell (`Sink.tells_rows`).
#
# Rows pass through Python once more, which adds up by an accumulator. It is no `observe`: that says
# nothing of a frame which a connector evaluates by itself, as Spark's for Kafka does.

_EVALUATION = "spark.sql.execution.id"

_Batch = TypeVar("_Batch", pa.RecordBatch, pa.Array)

Count = tuple[str | None, str | None, int, int]
"""What the tick's tasks were told, evaluation, partition, rows."""


class RowCounter:
    """Counts the rows of one frame, anew in every tick."""

    def __init__(self, spark: SparkSession) -> None:
        self._counts: Accumulator[list[Count]] = spark.sparkContext.accumulator([], ListAccumulator())

    def over(self, frame: DataFrame) -> DataFrame:
        """Return the same rows, counted as they pass.

        All columns must have types that tasks can return.
        """
        passing = _Counting(self._counts)
        plain = frame.toDF(*(f"c{n}" for n in range(len(frame.columns))))  # it takes no names with dots
        return plain.mapInArrow(passing.rows, plain.schema).toDF(*frame.columns)

    def count_groups(self, frame: DataFrame) -> DataFrame:
        """Return the same rows, counted as they pass, for columns of any types.

        A condition that is true for every row receives a column of constants only. This takes twice the
        time
        per row.
        """
        udf: Any = arrow_udf  # its kind follows from the type hints, which its overloads leave out
        # Not deterministic: it stays where it is, above the query's own conditions.
        passing = udf(_Counting(self._counts).true, "BOOLEAN").asNondeterministic()
        return frame.where(passing(F.lit(True)))

    def begin(self) -> None:
        """Forget what was counted."""
        self._counts.value = []

    def rows(self, told: str) -> int:
        """Return the number of rows of the tick whose tasks received the property ``told``.

        Each row counts once, although several tasks may have evaluated a partition, and the frame or a part
        of
        it may have been evaluated several times.
        """
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
        yield from _count_batches(batches, self.counts)

    def true(self, batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        yield from _count_batches(batches, self.counts)


def _count_batches(batches: Iterator[_Batch], counts: Accumulator[list[Count]]) -> Iterator[_Batch]:
    """Yield the batches of one task, and add their row count after the last one."""
    rows = 0
    for batch in batches:
        rows += len(batch)
        yield batch
    context = TaskContext.get()
    if context is not None:
        told, evaluation = map(context.getLocalProperty, (NODE, _EVALUATION))
        counts.add([(told, evaluation, context.partitionId(), rows)])


# Whether sinks took the rows that they were given: what their files hold, and by how much topics have
# grown.
#
# Of a topic its brokers tell, and others may write to it: so it has grown by so many records at least.
# What all replicas have acknowledged is seen at once; what the leader alone has, a little later, and is
# waited for.

MAX_WAIT_S = 5.0
"""Maximum seconds to wait until a topic has as many new records as the tick sent."""
_PAUSE_S = 0.1

_END = re.compile(r"-(\d+)=\w+\(offset=(\d+),")
"""In the text of what brokers answer: a partition, and its end."""

EndOffsets = Mapping[int, int]
"""Of a topic's partitions."""


@dataclass(frozen=True)
class WrittenRows:
    """Number of rows; ``at_least``: rows of other writers may be among them."""

    rows: int
    at_least: bool = False


class SinkRowCounter:
    """Counter of the rows in a job's sinks. Its connections stay open until `close`."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._admins: dict[tuple[tuple[str, str], ...], Any] = {}
        self._requests: dict[Topic, Any] = {}

    def close(self) -> None:
        for admin in self._admins.values():
            admin.close(self._jvm.java.time.Duration.ofSeconds(0))
        self._admins.clear()
        self._requests.clear()

    def of(
        self,
        sink: Sink,
        insert: str,
        tick: int,
        attempt: str,
        write: Callable[[], object],
        given: Callable[[], int],
    ) -> WrittenRows | None:
        """Call ``write`` and count the rows that ``sink`` received; None if it does not report them.

        Args:
            given: returns the number of rows that it should have received; called after ``write``.
        """
        topic = sink.appends_to
        if topic is None:
            write()
            return WrittenRows(sink.staged_rows(insert, tick, attempt)) if sink.tells_rows else None
        self._forget_if_changed(topic)
        before = self._ends(topic)
        write()
        wanted = given()
        try:
            rows = self._count_new_records(topic, before, wanted)
        except EngineError as error:
            raise EngineError(
                f"{error.message}. The rows of this tick were sent; the next run repeats the tick and"
                " sends them again",
                code=error.code,
                hint=error.hint,
            ) from None
        return WrittenRows(rows, at_least=True)

    def _count_new_records(self, topic: Topic, before: EndOffsets, wanted: int) -> int:
        """Count the new records, and wait until there are ``wanted``.

        All records of partitions that were added with the rows count. The wait is limited to `MAX_WAIT_S`.
        """
        until = time.monotonic() + MAX_WAIT_S
        rows = _count_between(self._ends(topic), before)
        if rows < wanted:
            self._requests.pop(topic, None)  # has it more partitions by now? The rows are sent: once will do
            rows = _count_between(self._ends(topic), before)
        while rows < wanted and time.monotonic() < until:
            time.sleep(_PAUSE_S)
            rows = _count_between(self._ends(topic), before)
        return rows

    def _forget_if_changed(self, topic: Topic) -> None:
        """Drop the prepared request if the topic's partitions changed.

        Records that others wrote to new partitions before this tick do not belong to it.
        """
        if topic not in self._requests:
            return
        try:
            is_same = len(self._partitions(topic)) == self._requests[topic].size()
        except Exception:  # the topic or the broker is gone: asking says so
            is_same = False
        if not is_same:
            self._requests.pop(topic, None)

    def _ends(self, topic: Topic) -> EndOffsets:
        """Return the approximate number of records that each partition ever had.

        The result is empty if the topic does not exist.
        """
        try:
            if topic not in self._requests:
                self._requests[topic] = self._request(topic)
            request = self._requests[topic]
            ends = self._admin(topic).listOffsets(request).all().get()
        except Exception as error:
            self._requests.pop(topic, None)
            if "UnknownTopicOrPartition" in str(error):
                return {}
            raise EngineError(
                f'the brokers of topic "{topic.name}" do not report its number of rows: {error}',
                code="kafka-unreachable",
                hint="check 'bootstrap.servers', and that the broker is running and reachable",
            ) from None
        # One call for all of them: each one into Java takes longer than the broker's answer.
        end_offsets = {int(partition): int(end) for partition, end in _END.findall(ends.toString())}
        if len(end_offsets) != len(request):
            end_offsets = {place.partition(): int(ends[place].offset()) for place in ends}
        return end_offsets

    def _request(self, topic: Topic) -> Any:
        """Build the request for the ends of all current partitions of the topic."""
        client = self._jvm.org.apache.kafka
        latest, place_of = client.clients.admin.OffsetSpec.latest(), client.common.TopicPartition
        request = self._jvm.java.util.HashMap()
        for number in self._partitions(topic):
            request.put(place_of(topic.name, number), latest)
        return request

    def _partitions(self, topic: Topic) -> list[int]:
        asked = self._jvm.java.util.Collections.singletonList(topic.name)
        told = self._admin(topic).describeTopics(asked).allTopicNames().get()
        return list_partition_numbers(told.get(topic.name))

    def _admin(self, topic: Topic) -> Any:
        if topic.settings not in self._admins:
            properties = self._jvm.java.util.Properties()
            timeouts = {
                name: str(ADMIN_TIMEOUT_MS) for name in ("request.timeout.ms", "default.api.timeout.ms")
            }
            for name, value in {**dict(topic.settings), **timeouts}.items():
                properties.setProperty(name, value)
            self._admins[topic.settings] = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(
                properties
            )
        return self._admins[topic.settings]


def _count_between(now: EndOffsets, before: EndOffsets) -> int:
    return sum(end - before.get(partition, 0) for partition, end in now.items())


def check_row_count(
    insert: str, took: WrittenRows | None, given: int, *, left_out: Omission | None = None, cut: bool = False
) -> None:
    """Check that a sink received all rows that the job wrote to it.

    Args:
        left_out: describes rows that the sink may omit.
        cut: Spark omits some of the rows, or groups them.

    Raises:
        EngineError: the numbers differ; nothing of the tick is published.
    """
    if took is None or took.rows == given or (took.at_least and took.rows > given):
        return
    if took.rows < given and cut:
        return
    message = f'the sink of "{insert}" has {format_count(took.rows, "row")}, but the job wrote {given:,}'
    if took.rows < given and left_out is not None:
        raise EngineError(f"{message}: {left_out.what}", code="rows-left-out", hint=left_out.hint)
    if took.at_least:
        raise EngineError(
            f"{message}: rows did not reach the topic",
            code="internal-rows",
            hint="check whether the topic was deleted or a replica without its newest records became"
            " leader, then run again, which repeats the tick; otherwise please report this bug",
        )
    raise EngineError(
        f"{message}; nothing of the tick was published",
        code="internal-rows",
        hint="check whether another program writes to the sink's directory; otherwise please report this bug",
    )
