"""Run the nodes of one query on Spark.

The numbers of the tasks (`places`) become the rows of the node's task; the rows of the last node are then
filtered and projected.

A frame is created once per node and number of tasks, and evaluated once per tick (or more often, if a sink
requires it); values that differ per tick are a local property. A node that feeds another node returns no
rows: its tasks write runs. Reports do not travel with the rows but by an accumulator: Spark adds up the
reports of successful tasks. Of several reports for one partition any one is right, since their rows are the
same and their files are new ones. (`observe` does the same, with one more expression per row and a plan that
is new in every tick.) Rows that leave unchanged go straight from the task into the sink, if the sink accepts
them (`Sink.arrow_part`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark import Accumulator, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from watersmeet.errors import EngineError
from watersmeet.names import CHANGE_COLUMNS, KEY_ROWS, TICK
from watersmeet.parallel import parallel_map
from watersmeet.runtime.messages.reports import NodeReport
from watersmeet.runtime.messages.shapes import CONTROL, NodeShape
from watersmeet.runtime.operators.task import InlineResult, NodeTask
from watersmeet.runtime.spark.errors import ErrorSealingTask
from watersmeet.runtime.spark.sql_text import name_unresolved
from watersmeet.runtime.spark.task_messages import (
    NO_SECRETS,
    NODE,
    ListAccumulator,
    node_text,
    parse_node,
)
from watersmeet.runtime.spark.tick.arrow_output import ArrowOutput
from watersmeet.runtime.spark.tick.consolidation import compact_by_key, rename_for_sink, sum_changes
from watersmeet.runtime.spark.tick.outputs import TerminalRows, plan_terminal_rows
from watersmeet.runtime.spark.tick.sink_row_counts import (
    RowCounter,
    SinkRowCounter,
    WrittenRows,
    check_row_count,
)
from watersmeet.runtime.spark.tick.task_placement import FrameCache, TaskPlacement
from watersmeet.runtime.tasks.side import ManyMatches
from watersmeet.sinks.base import ArrowPart, Sink, StagedPart
from watersmeet.sinks.registry import is_known_part
from watersmeet.state.store import Store

STAGED = "staged"

Report = tuple[str, str, int, str]
"""Work file, query, partition, the report's text."""


@dataclass(frozen=True)
class ToSink:
    """The function given to `mapInArrow`: rows out, the report to the accumulator.

    Args:
        plain: instead of giving rows out, stage them in the sink, as this says, and give out what its parts
            tell: of a task that ran twice the rows of one attempt arrive.
        secrets: of the sink.
    """

    shape: NodeShape
    store: Store
    partitions: int
    reports: Accumulator[list[Report]]
    plain: ArrowOutput | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        owned = _read_partition_numbers(batches)
        task, part = _read_node_task(self.shape, self.store, self.secrets)
        for partition in owned:
            rows = self._rows(task, partition)
            if self.plain is None or part is None:
                yield from rows
            else:
                staged = part.write(partition, self.plain.schema, self.plain.rows(rows, task.tick))
                if staged is not None:
                    yield pa.record_batch({STAGED: pa.array([json.dumps(dict(staged))])})

    def _rows(self, task: NodeTask, partition: int) -> Iterator[pa.RecordBatch]:
        for batch in task.run(partition, self.partitions):
            if isinstance(batch, NodeReport):
                self.reports.add([(task.file, self.shape.query, partition, batch.model_dump_json())])
            else:
                yield _append_tick(batch, task.tick) if self.shape.changelog else batch


def _append_tick(batch: pa.RecordBatch, tick: int) -> pa.RecordBatch:
    """Append a column with the tick to a batch.

    It is not a constant in Spark's plan, which Spark would compile again in every tick.
    """
    ticks = pa.array(np.full(batch.num_rows, tick, dtype=np.int64))
    return pa.RecordBatch.from_arrays([*batch.columns, ticks], names=[*batch.schema.names, TICK])


def _read_partition_numbers(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch.column(0).to_pylist()]


def _read_node_task(
    shape: NodeShape, store: Store, secrets: Mapping[str, str] = NO_SECRETS
) -> tuple[NodeTask, ArrowPart | None]:
    """Read the current task from this tick's local property."""
    context = TaskContext.get()
    text = context.getLocalProperty(NODE) if context is not None else None
    if not text:
        raise EngineError(
            "a node was evaluated outside of a tick",
            code="internal",
            hint="this is a bug in watersmeet: please report it with this message",
        )
    work, tick, part, answers = parse_node(text, secrets)
    return NodeTask(shape, store, work, tick, answers=answers), part


@dataclass(frozen=True)
class ToNode:
    """The function given to `mapInArrow` for a node whose rows go to another one: only reports come out."""

    shape: NodeShape
    store: Store
    partitions: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        owned = _read_partition_numbers(batches)
        task, _ = _read_node_task(self.shape, self.store)
        for partition in owned:
            for report in task.run(partition, self.partitions):
                if isinstance(report, NodeReport):
                    yield pa.record_batch({CONTROL: pa.array([report.model_dump_json()])})


class FeedFrame:
    """A node of one query whose rows go to another one, to be evaluated within a tick."""

    def __init__(self, spark: SparkSession, places: TaskPlacement, shape: NodeShape, store: Store) -> None:
        self._spark = spark

        def build_feed_frame(partitions: int) -> DataFrame:
            numbers = places.numbers(partitions)
            return numbers.mapInArrow(ErrorSealingTask(ToNode(shape, store, partitions)), f"{CONTROL} STRING")

        self._frames = FrameCache(build_feed_frame)

    def run(self, task: NodeTask, partitions: int) -> list[NodeReport]:
        """Run ``task`` in ``partitions`` partitions and return one report per partition."""
        told = node_text(task.file, task.tick, answers=task.answers)
        self._spark.sparkContext.setLocalProperty(NODE, told)
        return [NodeReport.model_validate_json(row[0]) for row in self._frames.of(partitions).collect()]


def _list_expressions(
    frame: DataFrame, outputs: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, Callable[[], object]]]:
    for sql, name in outputs:
        yield f"column {name} = {sql}", partial(frame.selectExpr, sql)


class SinkFrame:
    """Rows of one query's last node, filtered and projected, to evaluate within a tick.

    Args:
        where, outputs: Spark SQL over columns named ``alias.column``; outputs are (SQL, name).
        plain: the Arrow output, if rows leave unchanged.
        time_zone: the session's.
        rows: Spark SQL of the number of rows of the sink's key; None: they are not counted.
        results: computes from the tasks' rows the rows that ``where`` and ``outputs`` apply to; None:
            they
            apply to the tasks' rows.

    ``schema``: the schema of the rows, before they become records by their keys.
    """

    def __init__(
        self,
        spark: SparkSession,
        places: TaskPlacement,
        shape: NodeShape,
        store: Store,
        where: str | None,
        outputs: list[tuple[str, str]],
        plain: ArrowOutput | None,
        time_zone: str,
        sink: Sink,
        takings: SinkRowCounter,
        results: Callable[[DataFrame], DataFrame] | None = None,
        rows: str | None = None,
    ) -> None:
        self._spark = spark
        self._query = shape.query
        self._sink = sink
        self._takings = takings
        self._reports: Accumulator[list[Report]] = spark.sparkContext.accumulator([], ListAccumulator())
        changes = shape.changelog
        row_schema = shape.row_schema.append(pa.field(TICK, pa.int64())) if changes else shape.row_schema
        schema = from_arrow_schema(row_schema)

        def staging(partitions: int) -> DataFrame:
            numbers = places.numbers(partitions)
            to_sink = ToSink(shape, store, partitions, self._reports, plain, sink.secrets)
            return numbers.mapInArrow(ErrorSealingTask(to_sink), f"{STAGED} STRING")

        self._staging = FrameCache(staging)
        keyed = sink.keyed
        self._plain = plain if keyed is None else None
        grouped = bool(shape.by_spark) or changes or keyed is not None
        self._is_cut = grouped or where is not None
        self._left_out = sink.leaves_out(len(outputs) + (len(CHANGE_COLUMNS) if changes else 0))
        told = sink.tells_rows and self._left_out is None
        self._counter = RowCounter(spark) if self._is_cut and not told else None

        counted = [] if rows is None else [(rows, KEY_ROWS)]

        anew = results is not None or changes or keyed is not None

        def build_sink_frame(partitions: int) -> DataFrame:
            numbers = places.numbers(partitions, grouped=anew)
            frame = numbers.mapInArrow(
                ErrorSealingTask(ToSink(shape, store, partitions, self._reports)), schema
            )
            if results is not None:
                frame = results(frame)
            if where is not None:
                with name_unresolved(f'INSERT "{self._query}", its filter {where}', tuple):
                    frame = frame.where(where)
            if self._counter is not None and not grouped:
                frame = self._counter.over(frame)
            with name_unresolved(f'INSERT "{self._query}"', partial(_list_expressions, frame, outputs)):
                if changes:
                    put_out = [*outputs, *counted]
                    frame = rename_for_sink(sum_changes(frame, put_out, self._query), put_out)
                else:
                    frame = frame.select(*(F.expr(sql).alias(name) for sql, name in outputs))
            self.schema = frame.drop(KEY_ROWS).schema
            if keyed is not None and set(keyed.columns) <= set(frame.columns):  # the sink says that one lacks
                frame = compact_by_key(
                    frame, keyed, self._query, changes=changes, rows=KEY_ROWS if counted else None
                )
            return self._counter.count_groups(frame) if self._counter is not None and grouped else frame

        # A frame that shuffles would take what it shuffled in the tick before.
        self._frames = FrameCache(build_sink_frame, anew=anew)
        self._frames.of(1)  # what is wrong with it shows at once
        if plain is not None and plain.computed and not plain.matches_schema(self.schema):
            self._plain = None
        self._shows = (
            None
            if self._plain is None
            else plan_terminal_rows(sink, self._plain.schema, self.schema, time_zone)
        )
        self._handed_over = None
        if self._plain is not None:
            self._handed_over = self._plain.find_python_schema(self.schema, time_zone)

    def write(
        self,
        task: NodeTask,
        attempt: str,
        partitions: int,
        alone: Callable[[Callable[[InlineResult], InlineResult | None]], InlineResult | None],
    ) -> tuple[list[NodeReport], int | None]:
        """Stage the rows of ``task`` in the sink.

        Args:
            alone: runs the task in this process if it has little work, and processes its rows; called only if
                they need no Spark.

        Returns:
            One report per partition, and the number of rows that the sink received; None: as many as left the
            tasks.

        Raises:
            EngineError: not all partitions have been evaluated.
        """
        part = None
        if self._plain is not None:
            part = self._sink.arrow_part(self._plain.schema, self._query, task.tick, attempt)
            is_told = part is not None and is_known_part(part)
            takes: ArrowPart | TerminalRows | None = self._shows
            if takes is None and (is_told or self._handed_over is not None):
                takes = part
            ran = alone(partial(self._sum_rows, task.tick)) if takes is not None else None
            if takes is not None and ran is not None:
                return ran.reports, self._stage(takes, ran, task, attempt)
            if self._plain.summed or not is_told:
                part = None
        self._reports.value = []
        if self._counter is not None:
            self._counter.begin()
        told = node_text(task.file, task.tick, part, task.answers)
        self._spark.sparkContext.setLocalProperty(NODE, told)

        def write() -> None:
            if part is None:
                self._sink.write(self._frames.of(partitions), self._query, task.tick, attempt)
            else:
                parts = [json.loads(row[0]) for row in self._staging.of(partitions).collect()]
                self._sink.take_parts(self._query, task.tick, attempt, parts)

        def count_emitted_rows() -> int:
            return (
                self._counter.rows(told)
                if self._counter
                else sum(own.rows_out for own in self._collect_reports(task))
            )

        took = self._takings.of(self._sink, self._query, task.tick, attempt, write, count_emitted_rows)
        reports = self._collect_reports(task)
        if len(reports) != partitions:
            raise EngineError(
                f'the sink of "{self._query}" wrote {len(reports)} of {partitions} partitions',
                code="internal",
                hint="make the sink's function write all rows of its DataFrame",
            )
        rows = count_emitted_rows()
        if self._counter is not None:
            check_row_count(self._query, WrittenRows(rows), sum(own.rows_out for own in reports), cut=True)
        is_cut = self._is_cut and part is None
        cut = is_cut and self._counter is None
        check_row_count(self._query, took, rows, left_out=self._left_out, cut=cut)
        if not is_cut:
            return reports, None
        return reports, rows if self._counter is not None or took is None else took.rows

    def _sum_rows(self, tick: int, ran: InlineResult) -> InlineResult | None:
        """Consolidate the rows of changes; None if there are too many for this process."""
        plain = self._plain
        assert plain is not None
        if not plain.summed:
            return ran
        try:
            return replace(ran, shares=[list(plain.rows(ran.rows, tick))])
        except ManyMatches:
            return None

    def _stage(self, takes: ArrowPart | TerminalRows, ran: InlineResult, task: NodeTask, attempt: str) -> int:
        """Stage the rows of a node that this process has run; how many they are."""
        plain = self._plain
        assert plain is not None
        count: int = sum(batch.num_rows for batch in ran.rows)

        def rows(own: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return iter(own) if plain.summed else plain.rows(own, task.tick)

        def stage_partition(number: int) -> StagedPart | None:
            assert not isinstance(takes, TerminalRows)
            own, schema = rows(ran.shares[number]), plain.schema
            if not is_known_part(takes) and self._handed_over is not None:
                schema = self._handed_over
                own = (batch.cast(schema) for batch in own if batch.num_rows)
            return takes.write(number, schema, own)

        def write() -> None:
            if isinstance(takes, TerminalRows):
                takes.take(rows(ran.rows), plain.schema, self._query, task.tick, attempt)
                return
            parts = [
                told for told in parallel_map(stage_partition, range(len(ran.shares))) if told is not None
            ]
            self._sink.take_parts(self._query, task.tick, attempt, parts)

        took = self._takings.of(self._sink, self._query, task.tick, attempt, write, lambda: count)
        check_row_count(self._query, took, count)
        return count

    def _collect_reports(self, task: NodeTask) -> list[NodeReport]:
        """Return the reports of the task's partitions."""
        texts = {
            partition: text
            for file, query, partition, text in self._reports.value
            if (file, query) == (task.file, self._query)
        }
        return [NodeReport.model_validate_json(text) for text in texts.values()]
