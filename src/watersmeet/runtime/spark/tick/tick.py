"""Run the ticks of a job on Spark: read a tick's rows, run its tasks and process their results.

`runtime.tick` defines the order of the steps. The module works on any frame of the scan's reports, streaming
or not.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from watersmeet.objects.postgres_store import TablesStore, TransactionStore
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.explain.wording import node_name
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.runtime.coordinator.commit import StagedParts
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.node_cost import MAX_INLINE_MATCHES
from watersmeet.runtime.coordinator.results import TickResult
from watersmeet.runtime.coordinator.run_context import RunContext
from watersmeet.runtime.coordinator.tick_phases import RunningTick, StartedTick
from watersmeet.runtime.messages.reports import IngestReport
from watersmeet.runtime.operators.task import InlineResult, NodeTask
from watersmeet.runtime.spark.configuration import context_settings
from watersmeet.runtime.spark.sql_text import to_spark_sql
from watersmeet.runtime.spark.tick.arrow_output import plan_arrow_output
from watersmeet.runtime.spark.tick.consolidation import build_results
from watersmeet.runtime.spark.tick.deferred_conditions import ConditionFrame
from watersmeet.runtime.spark.tick.ingest import REPORT, SIDE_OUTPUT
from watersmeet.runtime.spark.tick.nodes import FeedFrame, SinkFrame
from watersmeet.runtime.spark.tick.outputs import (
    BROKEN_INSERT,
    LATE_INSERT,
    PROGRESS_INSERT,
    SHED_INSERT,
    Outputs,
)
from watersmeet.runtime.spark.tick.reading.source_rows import TickReading
from watersmeet.runtime.spark.tick.side_outputs import (
    SideOutputFile,
    build_side_frame,
    find_insert,
    list_side_outputs,
    progress_frame,
)
from watersmeet.runtime.spark.tick.sink_row_counts import SinkRowCounter, check_row_count
from watersmeet.runtime.spark.tick.task_placement import Descriptions, TaskCounts, TaskPlacement
from watersmeet.runtime.tick import Backend, NodeResult, TickInput, run_tick
from watersmeet.sinks.base import Sink
from watersmeet.sinks.part_mark import Identity
from watersmeet.sinks.postgres.sink import PostgresSink, publish_together
from watersmeet.spec.options.spark import says_how
from watersmeet.state.commits import commit
from watersmeet.state.manifest import KnownPart, Manifest
from watersmeet.state.store import Store


@dataclass(frozen=True)
class AtomicCommit:
    """Sinks, each with its insert, whose rows come with the state; see `coordinator.commit.JointCommit`."""

    sinks: tuple[tuple[Sink, str], ...]

    @property
    def inserts(self) -> frozenset[str]:
        return frozenset(insert for _, insert in self.sinks)

    def create(self, store: Store, manifest: Manifest, attempt: str, identity: Identity) -> Manifest:
        return create_manifest_with_rows(store, manifest, self.sinks, attempt, identity)


def find_atomic_commit(store: Store, staged: Sequence[tuple[Sink, str]]) -> AtomicCommit | None:
    """Find the staged sinks that commit their rows together with the state; None without any."""
    if not isinstance(store, TablesStore) or store.place.database is None:
        return None
    database = store.place.database
    sinks = tuple(one for one in staged if isinstance(one[0], PostgresSink) and one[0].database == database)
    return AtomicCommit(sinks) if sinks else None


def create_manifest_with_rows(
    store: Store, manifest: Manifest, sinks: Sequence[tuple[Sink, str]], attempt: str, identity: Identity
) -> Manifest:
    """Commit the manifest as `state.commits.commit` does, with the rows staged in ``sinks``.

    Either everything is committed or nothing.

    Raises:
        StateError: as `state.commits.commit`.
        EngineError: the sinks' tables reject something.
    """
    assert isinstance(store, TablesStore)
    tables, writer = store, uuid.uuid4().hex  # the same when it is done again
    part = KnownPart(tick=manifest.tick, identity=dict(identity))

    def create(cursor: Any, inserts: list[str]) -> Manifest:
        parts = {**manifest.parts, **dict.fromkeys(inserts, part)}
        whole = manifest.model_copy(update={"parts": parts, "writer": writer})
        return commit(TransactionStore(tables, cursor), whole)

    of_tables = [(sink, insert) for sink, insert in sinks if isinstance(sink, PostgresSink)]
    return publish_together(of_tables, manifest.tick, attempt, identity, create)


_NodeKey = tuple[str, int]
"""A query's name, and the number of a node of it."""


class SparkTicks:
    """Runner of the ticks of one job, one after the other.

    Its constructor reports a column that Spark rejects.

    Args:
        context: the objects that all ticks of the run share.
        partitions: the number of tasks per node; None: as many as the node needs in each tick.
        takings: counts the rows that sinks received; close it after all ticks.
        described: the descriptions of their jobs in Spark's UI.
    """

    def __init__(
        self,
        spark: SparkSession,
        context: RunContext,
        outputs: Outputs,
        partitions: int | None,
        takings: SinkRowCounter,
        described: Descriptions,
    ) -> None:
        places, plan = TaskPlacement(spark), context.plan
        self._spark, self._context, self._outputs = spark, context, outputs
        self._tools = _RunTools(
            spark,
            outputs,
            partitions == 1,
            TaskCounts(spark, partitions),
            takings,
            described,
            {
                query.name: self._sink_frame(places, takings, query)
                for query in plan.queries
                if not query.is_index
            },
            {
                (query.name, node.number): FeedFrame(
                    spark, places, context.shapes[query.name][node.number], context.store
                )
                for query in plan.queries
                for node in (query.nodes if query.is_index else query.nodes[:-1])
                if not node.rests
            },
            {
                (query.name, node.number): frame
                for query in plan.queries
                for node in query.nodes
                if (frame := self._condition_frame(places, query, node)) is not None
            },
        )

    def prepare(
        self, manifest: Manifest | None, owner: str, *, pending: bool = False, set_aside: bool = False
    ) -> list[str]:
        """Let every sink check what it can; see `Outputs.prepare`."""
        aside = build_side_frame(self._spark, self._context.store, []).schema
        schemas = {
            **dict.fromkeys((LATE_INSERT, BROKEN_INSERT, SHED_INSERT), aside),
            PROGRESS_INSERT: progress_frame(self._spark, self._context.plan, None).schema,
            **{name: frame.schema for name, frame in self._tools.frames.items()},
        }
        return self._outputs.prepare(schemas, manifest, owner, pending=pending, set_aside=set_aside)

    def run(
        self, driver: TickDriver, reading: TickReading | None, host: Mapping[str, Any], given: TickInput
    ) -> TickResult:
        """Run one tick.

        Args:
            reading: how its rows are read; None: a tick without rows.
            host: what the manifest remembers for this engine.
        """
        tools, tick = self._tools, _SparkTick(self._tools, reading, host)
        tools.counts.begin()
        with tools.described.of(driver.tick + 1):
            result = run_tick(driver, tick, given)
        tools.counts.learn(result.queries)
        return replace(result, tasks=tools.counts.used(), seconds=tick.timings.parts)

    def _condition_frame(
        self, places: TaskPlacement, query: QueryPlan, node: NodePlan
    ) -> ConditionFrame | None:
        shape = self._context.shapes[query.name][node.number]
        asked = node.pair_condition
        if shape.elsewhere is None or asked is None:
            return None
        sql, text = to_spark_sql(asked), text_of(asked).replace("`", "")
        return ConditionFrame(self._spark, places, shape, self._context.store, sql, text)

    def _sink_frame(self, places: TaskPlacement, takings: SinkRowCounter, query: QueryPlan) -> SinkFrame:
        outputs = [(to_spark_sql(output.expr), output.name) for output in query.outputs]
        where = None if query.where is None else to_spark_sql(query.where)
        shape = self._context.shapes[query.name][query.root.number]
        results = build_results(query.root, shape)
        as_they_are = where is None and results is None and not _has_writer_settings(self._spark)
        return SinkFrame(
            self._spark,
            places,
            shape,
            self._context.store,
            where,
            outputs,
            plan_arrow_output(query, shape) if as_they_are else None,
            query.options.time_zone,
            self._outputs.queries[query.name],
            takings,
            results,
            None if query.rows_of_key is None else to_spark_sql(query.rows_of_key),
        )


@dataclass(frozen=True)
class _RunTools:
    """Tools that the ticks of one run share; see `SparkTicks`.

    Attributes:
        frames: the frames of the queries' last nodes.
        feeds: the frames of the nodes that feed the last nodes.
        conditions: the conditions that Spark computes.
    """

    spark: SparkSession
    outputs: Outputs
    ordered: bool
    counts: TaskCounts
    takings: SinkRowCounter
    described: Descriptions
    frames: Mapping[str, SinkFrame]
    feeds: Mapping[_NodeKey, FeedFrame]
    conditions: Mapping[_NodeKey, ConditionFrame]


@dataclass(frozen=True)
class _Timings:
    """Seconds that the parts of a tick took."""

    parts: dict[str, float] = field(default_factory=dict)
    _started: float = field(default_factory=time.perf_counter)

    def mark(self, part: str) -> None:
        spent = time.perf_counter() - self._started - sum(self.parts.values())
        self.parts[part] = self.parts.get(part, 0.0) + spent


@dataclass(frozen=True)
class _SparkTick(Backend):
    """One tick on Spark; see `Backend`.

    Args:
        aside: the files of rows set aside that ingest tasks wrote.
        visible: what rows of the tick may be seen of: sinks that do not stage, and after them all.
    """

    tools: _RunTools
    reading: TickReading | None
    told_host: Mapping[str, Any]
    timings: _Timings = field(default_factory=_Timings)
    aside: list[SideOutputFile] = field(default_factory=list)
    visible: set[str] = field(default_factory=set)

    @property
    def task_count(self) -> int:
        return self.tools.counts.about

    @property
    def ordered(self) -> bool:
        return self.tools.ordered

    def mark(self, phase: str) -> None:
        self.timings.mark(phase)

    def host(self, result: TickResult) -> Mapping[str, Any]:
        return self.told_host

    def ingest(self, tick: StartedTick) -> Sequence[IngestReport]:
        if self.reading is None:
            return ()
        self.tools.described.part("ingest")
        rows = self.reading.told(self.tools.spark, tick.start)
        self.aside.extend(SideOutputFile.from_json(row[1]) for row in rows if row[0] == SIDE_OUTPUT)
        return [IngestReport.model_validate_json(row[1]) for row in rows if row[0] == REPORT]

    def run(self, tick: RunningTick, query: QueryPlan, node: NodePlan) -> NodeResult:
        tools, key = self.tools, (query.name, node.number)
        tools.described.part(query.name, node_name(query, node))
        task = tick.node_task(*key)
        task.send()
        amount = tick.amount(*key)
        count = tools.counts.of(*key, amount)
        if key in tools.conditions:
            task = tools.conditions[key].answers(task, count)
        if key in tools.feeds:
            alone = run_node_inline(tick, tools.counts, key, task)
            return NodeResult(tools.feeds[key].run(task, count) if alone is None else alone.reports)
        self._note_direct_write(tools.outputs.queries[query.name], query.name)
        alone_then = partial(run_node_inline, tick, tools.counts, key, task)
        return NodeResult(*tools.frames[query.name].write(task, tick.start.attempt, count, alone_then))

    def stage(self, tick: RunningTick) -> StagedParts:
        tools = self.tools
        parts = [(sink, name) for name, sink in tools.outputs.queries.items()]
        parts += self._stage_aside(tick, list_side_outputs(tick, self.aside))
        tools.described.part("publish")
        progress = tools.outputs.progress
        if progress is not None:
            plan = tick.begun.run.plan
            return StagedParts(parts, _Completion(tools.spark, plan, progress, tools.takings))
        return StagedParts(parts, joint=find_atomic_commit(tick.begun.run.store, parts))

    def _stage_aside(self, tick: RunningTick, aside: list[SideOutputFile]) -> list[tuple[Sink, str]]:
        tools, start, staged = self.tools, tick.start, list[tuple[Sink, str]]()
        for insert in (LATE_INSERT, BROKEN_INSERT, SHED_INSERT):
            sink = tools.outputs.sinks_by_insert.get(insert)
            files = [file for file in aside if find_insert(file) == insert]
            if sink is None or not files:
                continue
            tools.described.part(insert)
            self._note_direct_write(sink, insert)
            frame = build_side_frame(tools.spark, tick.begun.run.store, files)
            _write(tools.takings, sink, frame, insert, start.tick, start.attempt, sum(f.rows for f in files))
            staged.append((sink, insert))
        if staged:
            self.mark("side outputs")
        return staged

    def discard(self, tick: StartedTick) -> None:
        for sink in self.tools.outputs.sinks:
            sink.discard(tick.start.attempt)

    def _note_direct_write(self, sink: Sink, insert: str) -> None:
        """Record that rows are about to be written to ``sink``, which may not stage them."""
        if not sink.stages:
            self.visible.add(insert)

    def before_publish(self) -> None:
        self.visible.add("publish")

    def abandon(self, tick: StartedTick) -> None:
        """Remove the record that the tick began, if sinks cannot report its rows.

        The next run may then run the tick with any settings. A run that is killed leaves the record.
        """
        if not self.visible and any(not sink.idempotent for sink in self.tools.outputs.sinks):
            with suppress(Exception):  # then the next run takes it that rows may be out
                tick.forget_attempt()


def run_node_inline(
    tick: RunningTick,
    counts: TaskCounts,
    key: _NodeKey,
    task: NodeTask,
    then: Callable[[InlineResult], InlineResult | None] | None = None,
) -> InlineResult | None:
    """Run a node in this process, without tasks, if it has little work (`RunningTick.run_inline`).

    Returns:
        The result; None if the node needs tasks, or if the last tick predicts more than `MAX_INLINE_MATCHES`
        rows.
    """
    if counts.estimate_rows(key[0], tick.amount(*key)) > MAX_INLINE_MATCHES:
        return None
    alone = tick.run_inline(*key, task, then)
    if alone is not None:
        counts.note_inline_run(*key)
    return alone


@dataclass(frozen=True)
class _Completion:
    """The row that says that all sinks have theirs of a tick; see `coordinator.commit.Completion`."""

    spark: SparkSession
    plan: JobPlan
    sink: Sink
    takings: SinkRowCounter

    def check(self, tick: int, identity: Identity) -> None:
        self.sink.check(PROGRESS_INSERT, tick, identity)

    def tell(self, result: TickResult, attempt: str, identity: Identity) -> list[str]:
        frame = progress_frame(self.spark, self.plan, result)
        try:
            _write(self.takings, self.sink, frame, PROGRESS_INSERT, result.tick, attempt, 1)
        except BaseException:
            self.sink.discard(attempt)
            raise
        return [PROGRESS_INSERT] if self.sink.publish(PROGRESS_INSERT, result.tick, attempt, identity) else []


def _write(
    takings: SinkRowCounter, sink: Sink, frame: Any, insert: str, tick: int, attempt: str, rows: int
) -> None:
    """Stage the rows of a frame. Raises: EngineError: the sink took fewer."""
    took = takings.of(
        sink, insert, tick, attempt, lambda: sink.write(frame, insert, tick, attempt), lambda: rows
    )
    check_row_count(insert, took, rows)


def _has_writer_settings(spark: SparkSession) -> bool:
    """Return True if the user configured how Spark writes files; Spark then writes them.

    Settings that watersmeet adds to every session do not count, because tasks write in the same way.
    """
    return says_how(context_settings(spark.sparkContext), "spark.sql.parquet.", "spark.sql.files.")
