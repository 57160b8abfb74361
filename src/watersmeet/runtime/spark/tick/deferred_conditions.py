"""Conditions that Spark computes over candidate pairs, before the tick's task decides what matches.

    numbers → the task's first pass: candidates → select: the condition → their truth, as a file per task

One stage, no shuffle; then the node's own job, which is told the files. What a task asks does not depend on
the answers, but where one side is broadcast: there it may ask more once it knows some, and is asked again
until nothing is new.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from watersmeet.errors import EngineError
from watersmeet.expressions.evaluate import guard_of
from watersmeet.kernel.match.deferred_conditions import ASK, HOLDS
from watersmeet.runtime.messages.shapes import NodeShape
from watersmeet.runtime.operators.task import NodeTask
from watersmeet.runtime.spark.errors import ErrorSealingTask, find_condition, readable_error
from watersmeet.runtime.spark.sql_text import quote_name
from watersmeet.runtime.spark.task_messages import NODE, AnswersByPartition, node_text, parse_node
from watersmeet.runtime.spark.tick.task_placement import FrameCache, TaskPlacement
from watersmeet.runtime.tasks.deferred_conditions import AnswerFile, AnswerWriter, question_schema
from watersmeet.state.store import Store

_FILE = "partition INT, name STRING, checksum BIGINT, asked BIGINT"


@dataclass(frozen=True)
class _ToCandidates:
    shape: NodeShape
    store: Store
    partitions: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        owned = [number for batch in batches for number in batch.column(0).to_pylist()]
        work, tick, answers = _read_task_property()
        for partition in owned:
            task = NodeTask(self.shape, self.store, work, tick, answers=answers)
            yield from task.ask(partition, self.partitions)


@dataclass(frozen=True)
class _ToFile:
    store: Store

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = AnswerWriter()
        for batch in batches:
            writer.add(batch)
        context = TaskContext.get()
        assert context is not None
        (name, checksum), asked = writer.write(self.store, f"work/answers-{uuid.uuid4().hex}")
        row = ([context.partitionId()], [name], [checksum], [asked])
        kinds = (pa.int32(), pa.string(), pa.int64(), pa.int64())
        columns = [pa.array(value, kind) for value, kind in zip(row, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names=["partition", "name", "checksum", "asked"])


def _read_task_property() -> tuple[str, int, AnswersByPartition]:
    context = TaskContext.get()
    text = context.getLocalProperty(NODE) if context is not None else None
    if not text:
        raise EngineError("a task requested candidates outside of a tick", code="internal")
    work, tick, _, answers = parse_node(text)
    return work, tick, answers


class ConditionFrame:
    """The condition of one node, to be computed within a tick.

    Args:
        sql: the condition as Spark SQL over the joined columns; ``text``: as it was written.
    """

    def __init__(
        self, spark: SparkSession, places: TaskPlacement, shape: NodeShape, store: Store, sql: str, text: str
    ) -> None:
        self._spark = spark
        self._text = text
        self._broadcast = any(shape.is_broadcast(place) for place, _ in enumerate(shape.sides))

        def build_condition_frame(partitions: int) -> DataFrame:
            numbers = places.numbers(partitions)
            schema = from_arrow_schema(question_schema(shape))
            candidates = numbers.mapInArrow(ErrorSealingTask(_ToCandidates(shape, store, partitions)), schema)
            truth = candidates.select(F.col(quote_name(ASK)), F.expr(f"({sql}) IS TRUE").alias(HOLDS))
            return truth.mapInArrow(ErrorSealingTask(_ToFile(store)), _FILE)

        self._frames = FrameCache(build_condition_frame)

    def answers(self, task: NodeTask, partitions: int) -> NodeTask:
        """Return ``task`` with Spark's results of the condition for its candidates.

        Args:
            partitions: the number of partitions that the task will run in.

        Raises:
            EngineError: the condition fails on a pair.
        """
        files: dict[int, tuple[AnswerFile, ...]] = {}
        frame = self._frames.of(partitions)
        while True:
            told = node_text(task.file, task.tick, answers=files)
            self._spark.sparkContext.setLocalProperty(NODE, told)
            try:
                rows = frame.collect()
            except Exception as error:
                raise self._build_condition_error(error) from None
            if files and not any(row.asked for row in rows):
                return replace(task, answers=files)
            for row in rows:
                files[row.partition] = (*files.get(row.partition, ()), (row["name"], row.checksum))
            if not self._broadcast or partitions == 1:
                return replace(task, answers=files)

    def _build_condition_error(self, error: Exception) -> Exception:
        shown = readable_error(error)
        if shown.code != "spark-failed":
            return shown
        name = find_condition(error)
        return EngineError(
            f"the condition {self._text} failed: {'' if name is None else f'[{name}] '}{shown.message}",
            code="condition-failed",
            hint=guard_of(name),
        )
